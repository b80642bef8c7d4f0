// Ranks that publish one array, store into another, and are killed: one of them kills itself, and
// MPI ends the others.
#include <mpi.h>
#include <pmemcpy/pmemcpy.hpp>

#include <csignal>
#include <cstdio>
#include <vector>

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const std::size_t all = std::size_t(ranks), one = 1, own = std::size_t(rank);
    const double value = rank;
    const std::size_t large = 1000, first = large * own, whole = large * all;
    const std::vector<double> values(large, rank);
    pmemcpy::PMEM pmem;
    pmem.mmap(argv[1], MPI_COMM_WORLD);
    pmem.alloc<double>("whole", 1, &all);
    pmem.store<double>("whole", &value, 1, &own, &one);
    pmem.publish();
    pmem.alloc<double>("half", 1, &whole);
    pmem.store<double>("half", values.data(), 1, &first, &large);
    pmem.store<int>("value", rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        std::puts("ends here");
        std::fflush(stdout);
        std::raise(SIGKILL);
    }
    MPI_Finalize();
}
