#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>
int main(int argc, char **argv) {
    int rank, ranks, file, dim, variable;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double data[100] = {0};
    size_t count = 100, offset = rank * count, all = ranks * count;
    nc_create_par(argv[1], NC_CLOBBER | NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &file);
    nc_def_dim(file, "x", all, &dim);
    nc_def_var(file, "A", NC_DOUBLE, 1, &dim, &variable);
    nc_enddef(file);
    nc_var_par_access(file, variable, NC_COLLECTIVE);
    nc_put_vara_double(file, variable, &offset, &count, data);
    nc_close(file);
    MPI_Finalize();
}
