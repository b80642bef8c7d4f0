// Ranks that store a block each, publish, and of which the first loads the block of the last.
//
// mpirun -n N ranks PATH MIB ROUNDS: prints for each round the slowest rank's seconds.
#include <mpi.h>
#include <pmemcpy/pmemcpy.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

// Waits for all ranks, and leaves the processors to those that work.
static void meet() {
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (int done = 0; !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE)) usleep(100);
}

static double timed(const std::function<void()> &work) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    work();
    double mine = MPI_Wtime() - start, slowest = 0;
    meet();
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4) return 2;
    const std::size_t own = (std::strtoull(argv[2], nullptr, 10) << 20) / sizeof(double);
    const std::size_t all = own * std::size_t(ranks), first = own * std::size_t(rank);
    std::vector<double> data(own, rank), seen(own, -1);
    pmemcpy::PMEM pmem;
    pmem.mmap(argv[1], MPI_COMM_WORLD);
    for (int round = 0; round < std::atoi(argv[3]); ++round) {
        const std::string id = "round-" + std::to_string(round);
        // A pool has room taken by alloc, a cluster by store.
        const double store = timed([&] {
            pmem.alloc<double>(id, 1, &all);
            pmem.store<double>(id, data.data(), 1, &first, &own);
        });
        const double publish = timed([&] { pmem.publish(); });
        const std::size_t last = own * std::size_t(ranks - 1);
        const double load = timed([&] {
            if (rank == 0) pmem.load<double>(id, seen.data(), 1, &last, &own);
        });
        if (rank == 0) {
            if (std::any_of(seen.begin(), seen.end(), [&](double v) { return v != ranks - 1; })) {
                std::printf("other values were loaded\n");
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
            std::printf("%.9f %.9f %.9f\n", store, publish, load);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < std::atoi(argv[3]); ++round) {
        if (rank == 0) pmem.free("round-" + std::to_string(round));
    }
    MPI_Finalize();
}
