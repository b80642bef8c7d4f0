#include <pmemcpy/pmemcpy.hpp>
int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double data[100] = {};
    size_t count = 100, offset = rank * count, all = ranks * count;
    pmemcpy::PMEM pmem;
    pmem.mmap(argv[1], MPI_COMM_WORLD);
    pmem.alloc<double>("A", 1, &all);
    pmem.store("A", data, 1, &offset, &count);
    MPI_Finalize();
}
