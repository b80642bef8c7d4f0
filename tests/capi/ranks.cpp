// Ranks of MPI on one pool: parts of global arrays, and errors that each rank gets.
#include <mpi.h>
#include <pmemcpy/pmemcpy.hpp>

#include <csignal>
#include <cstdio>
#include <numeric>
#include <unistd.h>

static int rank, ranks;
static bool many_nodes = false;

// What the ranks of one node are, as MPI says; for a test, as if each second one were elsewhere.
extern "C" int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *to) {
    if (!many_nodes) return PMPI_Comm_split_type(comm, type, key, info, to);
    return PMPI_Comm_split(comm, rank % 2, key, to);
}

#define IS(truth)                                                                                 \
    do {                                                                                          \
        if (!(truth)) {                                                                           \
            std::printf("rank %d, line %d: not so: %s\n", rank, __LINE__, #truth);                \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                         \
        }                                                                                         \
    } while (0)

// What something says that is refused.
template <class F>
std::string refusal(engram_status kind, F &&work) {
    try {
        work();
    } catch (const engram::Error &error) {
        if (error.status() == kind) return error.what();
        std::printf("rank %d: %s: %s\n", rank, engram_status_name(error.status()), error.what());
    }
    std::printf("rank %d: no %s\n", rank, engram_status_name(kind));
    MPI_Abort(MPI_COMM_WORLD, 1);
    return "";
}

// Whether all ranks have the same text.
static bool same_everywhere(const std::string &mine) {
    char first[1000] = {0};
    std::snprintf(first, sizeof first, "%s", mine.c_str());
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    int same = mine == first, all = 0;
    MPI_Allreduce(&same, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

using Box = std::vector<std::size_t>;

static double value(std::size_t x, std::size_t y, std::size_t z) {
    return double(x * 10000 + y * 100 + z);
}

// A cube whose planes, columns and rows are dealt out: stored by one, loaded by another. In chunks,
// ranks share some of these.
static void cube(const char *path, pmemcpy::SerializerType serializer, const std::string &name) {
    pmemcpy::PMEM pmem(serializer);
    pmem.size(256 << 20);
    pmem.mmap(path, MPI_COMM_WORLD);
    const std::size_t n = 24, mine = n / std::size_t(ranks), first = mine * std::size_t(rank);
    const Box dims = {n, n, n};
    for (int dim = 0; dim < 3; ++dim) {
        const std::string id = name + "/by-" + std::to_string(dim);
        Box offsets = {0, 0, 0}, counts = {n, n, n};
        offsets[dim] = first, counts[dim] = mine;
        std::vector<double> part(n * n * mine);
        std::size_t at = 0;
        for (std::size_t x = 0; x < counts[0]; ++x)
            for (std::size_t y = 0; y < counts[1]; ++y)
                for (std::size_t z = 0; z < counts[2]; ++z)
                    part[at++] = value(offsets[0] + x, offsets[1] + y, offsets[2] + z);
        pmem.alloc<double>(id, 3, dims.data());
        pmem.store<double>(id, part.data(), 3, offsets.data(), counts.data());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int dim = 0; dim < 3; ++dim) {
        const std::string id = name + "/by-" + std::to_string(dim);
        Box offsets = {0, 0, 0}, counts = {n, n, n};
        const int other = (dim + 1) % 3;
        offsets[other] = first, counts[other] = mine;
        std::vector<double> part(n * n * mine);
        pmem.load<double>(id, part.data(), 3, offsets.data(), counts.data());
        std::size_t at = 0;
        for (std::size_t x = 0; x < counts[0]; ++x)
            for (std::size_t y = 0; y < counts[1]; ++y)
                for (std::size_t z = 0; z < counts[2]; ++z)
                    IS(part[at++] == value(offsets[0] + x, offsets[1] + y, offsets[2] + z));
    }
}

static void errors(const char *path) {
    pmemcpy::PMEM pmem;
    pmem.size(64 << 20);
    // No pool can be there; or not for one rank.
    IS(same_everywhere(refusal(ENGRAM_STATUS_NOT_FOUND, [&] {
        pmem.mmap("/proc/nowhere/pool", MPI_COMM_WORLD);
    })));
    const std::string text = refusal(ENGRAM_STATUS_NOT_FOUND, [&] {
        pmem.mmap(rank == ranks - 1 ? "/proc/nowhere/pool" : path, MPI_COMM_WORLD);
    });
    IS(same_everywhere(text) && text.find("rank " + std::to_string(ranks - 1)) == 0);
    many_nodes = true;
    const std::string nodes = refusal(ENGRAM_STATUS_UNSUPPORTED, [&] {
        pmem.mmap(path, MPI_COMM_WORLD);
    });
    IS(same_everywhere(nodes) && nodes.find("a pool is a node's") != std::string::npos);
    many_nodes = false;
    pmem.mmap(path, MPI_COMM_WORLD);
    // The same mistakes on every rank, and each gets its error.
    const std::size_t n = 100, m = 50, off = 60;
    std::vector<double> data(100);
    std::vector<float> floats(100);
    pmem.alloc<double>("A", 1, &n);
    IS(same_everywhere(refusal(ENGRAM_STATUS_EXISTS, [&] { pmem.alloc<double>("A", 1, &m); })));
    IS(same_everywhere(refusal(ENGRAM_STATUS_EXISTS, [&] { pmem.alloc<float>("A", 1, &n); })));
    IS(same_everywhere(refusal(ENGRAM_STATUS_ARGUMENT, [&] {
        pmem.store<double>("A", data.data(), 1, &off, &m);
    })));
    IS(same_everywhere(refusal(ENGRAM_STATUS_ARGUMENT, [&] {
        pmem.store<float>("A", floats.data(), 1, &off, &m);
    })));
    IS(same_everywhere(refusal(ENGRAM_STATUS_NOT_FOUND, [&] {
        pmem.load<double>("none", data.data(), 1, &off, &m);
    })));
    IS(same_everywhere(refusal(ENGRAM_STATUS_INVALID_NAME, [&] {
        pmem.alloc<double>("", 1, &n);
    })));
    MPI_Barrier(MPI_COMM_WORLD);
}

// All ranks make the same array at once, of which the pool has room for one alone.
static void crowd(const char *path) {
    pmemcpy::PMEM pmem;
    pmem.size(32 << 20);
    pmem.mmap(path, MPI_COMM_WORLD);
    const std::size_t most = (24 << 20) / sizeof(double);
    for (int round = 0; round < 20; ++round) {
        MPI_Barrier(MPI_COMM_WORLD);
        pmem.alloc<double>("A", 1, &most);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) pmem.free("A");
    }
}

// One rank is killed between two stores; the others go on as if nothing were.
static void killed(const char *path) {
    pmemcpy::PMEM pmem;
    pmem.size(256 << 20);
    pmem.mmap(path, MPI_COMM_WORLD);
    const std::size_t each = 100000, half = each / 2, all = each * std::size_t(ranks);
    const std::size_t first = each * std::size_t(rank), second = first + half;
    std::vector<double> data(half, double(rank + 1));
    pmem.alloc<double>("A", 1, &all);
    long pid = getpid();
    MPI_Bcast(&pid, 1, MPI_LONG, ranks - 1, MPI_COMM_WORLD);
    pmem.store<double>("A", data.data(), 1, &first, &half);
    if (rank == ranks - 1) raise(SIGKILL);
    // Dead: gone, or waiting for its parent to look.
    for (bool alive = true; alive;) {
        char state = 'Z';
        const std::string stat = "/proc/" + std::to_string(pid) + "/stat";
        if (FILE *file = std::fopen(stat.c_str(), "r")) {
            if (std::fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
            std::fclose(file);
        }
        alive = state != 'Z' && state != 'X';
    }
    pmem.store<double>("A", data.data(), 1, &second, &half);
    pmem.store<int>("done-" + std::to_string(rank), rank);
    // MPI itself cannot be ended without the dead.
    _exit(0);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const std::string what = argv[2];
    if (what == "cube") {
        cube(argv[1], pmemcpy::SerializerType::Default, "raw");
        cube(argv[1], pmemcpy::SerializerType::SHUFFLE_LZ4, "encoded");
    }
    if (what == "crowd") crowd(argv[1]);
    if (what == "errors") errors(argv[1]);
    if (what == "killed") killed(argv[1]);
    if (rank == 0) std::printf("all is well\n");
    MPI_Finalize();
}
