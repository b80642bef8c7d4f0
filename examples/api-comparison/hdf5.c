#include <hdf5.h>
#include <mpi.h>
int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double data[100] = {0};
    hsize_t count = 100, offset = rank * count, all = ranks * count;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t space = H5Screate_simple(1, &all, NULL);
    hid_t memory = H5Screate_simple(1, &count, NULL);
    hid_t a = H5Dcreate2(file, "A", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &offset, NULL, &count, NULL);
    H5Dwrite(a, H5T_NATIVE_DOUBLE, memory, space, transfer, data);
    H5Dclose(a);
    H5Sclose(memory);
    H5Sclose(space);
    H5Pclose(transfer);
    H5Pclose(access);
    H5Fclose(file);
    MPI_Finalize();
}
