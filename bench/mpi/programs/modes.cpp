// Each rank's part of 64 MiB in a pool that survives a loss of power: stored and made durable once
// after it has been copied (pMEMCPY's mode A), or piece by piece (mode B), and loaded again after
// each. Seconds of the slowest rank as JSON, a line a round.
#include <cstdio>
#include <cstdlib>
#include <engram.hpp>
#include <mpi.h>
#include <vector>

// How long the slowest rank takes for something that all begin together.
template <class Work>
static double slowest(Work &&work)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    work();
    double own = MPI_Wtime() - start, most = 0;
    MPI_Allreduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const std::size_t count = (64 << 20) / sizeof(double) / ranks, offset = count * rank;
    std::vector<double> values(count, rank), read(count);
    auto pool = engram::Pool::open(argv[1]);
    auto array = pool.root().open("A");
    auto stored = [&](engram_flush flush) {
        for (auto &value : values)
            value += 1.0;
        return slowest([&] { array.store<double>({offset}, {count}, values, flush); });
    };
    auto loaded = [&] {
        double took = slowest([&] { array.load<double>({offset}, {count}, read); });
        if (read != values)
            MPI_Abort(MPI_COMM_WORLD, 3);
        return took;
    };
    for (int round = 0; round < std::atoi(argv[2]); round++) {
        double once = stored(ENGRAM_FLUSH_ONCE), load_once = loaded();
        double as_written = stored(ENGRAM_FLUSH_AS_WRITTEN), load_as_written = loaded();
        if (rank == 0)
            std::printf("{\"store\": {\"once\": %.9f, \"as written\": %.9f}, "
                        "\"load\": {\"once\": %.9f, \"as written\": %.9f}}\n",
                        once, as_written, load_once, load_as_written);
    }
    MPI_Finalize();
}
