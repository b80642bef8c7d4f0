#include <mpi.h>
#include <pnetcdf.h>
int main(int argc, char **argv) {
    int rank, ranks, file, dim, variable;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double data[100] = {0};
    MPI_Offset count = 100, offset = rank * count, all = ranks * count;
    ncmpi_create(MPI_COMM_WORLD, argv[1], NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file);
    ncmpi_def_dim(file, "x", all, &dim);
    ncmpi_def_var(file, "A", NC_DOUBLE, 1, &dim, &variable);
    ncmpi_enddef(file);
    ncmpi_put_vara_double_all(file, variable, &offset, &count, data);
    ncmpi_close(file);
    MPI_Finalize();
}
