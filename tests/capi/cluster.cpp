// Ranks of MPI on a cluster: each stores at its own node, and all load from wherever it lies.
//
// The first argument says what is done, the second names the cluster.
#include <mpi.h>
#include <pmemcpy/pmemcpy.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

static int rank, ranks;

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

static bool says(const std::string &text, const char *what) {
    const bool found = text.find(what) != std::string::npos;
    if (!found) std::printf("rank %d: \"%s\" is not in: %s\n", rank, what, text.c_str());
    return found;
}

using Box = std::vector<std::size_t>;

static double value(std::size_t x, std::size_t y, std::size_t z) {
    return double(x * 10000 + y * 100 + z);
}

template <class F>
static void each_of(const Box &offsets, const Box &counts, F &&work) {
    std::size_t at = 0;
    for (std::size_t x = 0; x < counts[0]; ++x)
        for (std::size_t y = 0; y < counts[1]; ++y)
            for (std::size_t z = 0; z < counts[2]; ++z)
                work(at++, value(offsets[0] + x, offsets[1] + y, offsets[2] + z));
}

// A cube whose planes, columns and rows are dealt out: stored by one, loaded by another.
static void cube(const char *path) {
    pmemcpy::PMEM pmem;
    pmem.mmap(path, MPI_COMM_WORLD);
    const std::size_t n = 24, mine = n / std::size_t(ranks), first = mine * std::size_t(rank);
    const Box dims = {n, n, n};
    for (int round = 0; round < 2; ++round) {
        for (int dim = 0; dim < 3; ++dim) {
            const std::string id = "cube/by-" + std::to_string(dim);
            Box offsets = {0, 0, 0}, counts = {n, n, n};
            offsets[dim] = first, counts[dim] = mine;
            std::vector<double> part(n * n * mine), own(part.size());
            each_of(offsets, counts, [&](std::size_t at, double one) { part[at] = one + round; });
            pmem.alloc<double>(id, 3, dims.data());
            pmem.store<double>(id, part.data(), 3, offsets.data(), counts.data());
            // Its own part it has at once.
            pmem.load<double>(id, own.data(), 3, offsets.data(), counts.data());
            IS(own == part);
        }
        pmem.publish();
        for (int dim = 0; dim < 3; ++dim) {
            const std::string id = "cube/by-" + std::to_string(dim);
            int ndims = 0;
            Box found(3), offsets = {0, 0, 0}, counts = {n, n, n};
            pmem.load_dims(id, &ndims, found.data());
            IS(ndims == 3 && found == dims);
            const int other = (dim + 1) % 3;
            offsets[other] = first, counts[other] = mine;
            std::vector<double> part(n * n * mine);
            pmem.load<double>(id, part.data(), 3, offsets.data(), counts.data());
            each_of(offsets, counts,
                    [&](std::size_t at, double one) { IS(part[at] == one + round); });
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

struct Particle {
    double x[3];
    float mass;
};
ENGRAM_STRUCT(Particle, ENGRAM_FIELD(x) ENGRAM_FIELD(mass))

// Numbers, by a serializer with a name.
struct Counted {
    const char *name = "counted";
    static std::size_t size(const std::vector<int> &all) { return all.size() * sizeof(int); }
    static void write(const std::vector<int> &all, pmemcpy::Output &into) {
        for (const int one : all) into.put(one);
    }
    static std::vector<int> read(pmemcpy::Input &from) {
        std::vector<int> all;
        while (from.left()) all.push_back(from.get<int>());
        return all;
    }
};

// Values that one rank stores, or all; structures, text; parts that are stored again.
static void values(const char *path) {
    const std::size_t n = 4 * std::size_t(ranks), four = 4, first = 4 * std::size_t(rank);
    {
        pmemcpy::PMEM pmem;
        pmem.mmap(std::string(path) + "/deep/er", MPI_COMM_WORLD);
        pmem.store<int>("ranks", ranks);
        if (rank == ranks - 1) pmem.store<std::string>("note", std::string("last\0word", 9));
        const std::vector<int> numbers{1, 2, 3};
        pmem.store("numbers", numbers, Counted());
        IS(pmem.load<std::vector<int>>("numbers", Counted()) == numbers);
        refusal(ENGRAM_STATUS_ARGUMENT, [&] {
            pmem.load<std::vector<int>>("numbers", Counted{"other"});
        });
        IS(says(refusal(ENGRAM_STATUS_UNSUPPORTED, [&] {
            pmem.store<std::string>("packed", "text", pmemcpy::SerializerType::LZ4);
        }), "lz4"));
        std::vector<Particle> some(4);
        for (auto &one : some) one = {{double(rank), 1, 2}, 1.5f};
        if (rank == 0) pmem.alloc<Particle>("particles", 1, &n);
        pmem.store<Particle>("particles", some.data(), 1, &first, &four);
        // A part of its own that it stores again; one that holds nothing.
        const std::size_t one = 1, none = 0, at = first + 2;
        const Particle other = {{7, 8, 9}, float(rank)};
        pmem.store<Particle>("particles", &other, 1, &at, &one);
        pmem.store<Particle>("particles", &other, 1, &at, &none);
        if (ranks > 1) {
            const std::size_t all = 0;
            some.resize(n);
            IS(says(refusal(ENGRAM_STATUS_NOT_FOUND, [&] {
                pmem.load<Particle>("particles", some.data(), 1, &all, &n);
            }), "publish()"));
        }
        pmem.munmap();
    }
    pmemcpy::PMEM pmem;
    pmem.mmap(path, MPI_COMM_WORLD);
    IS(pmem.load<int>("deep/er/ranks") == ranks);
    IS(pmem.load<std::string>("deep/er/note") == std::string("last\0word", 9));
    IS(pmem.load<std::vector<int>>("deep/er/numbers", Counted()).at(2) == 3);
    IS(says(refusal(ENGRAM_STATUS_ARGUMENT, [&] {
        pmem.load<std::vector<int>>("deep/er/numbers", Counted{"other"});
    }), "the serializer \"counted\" makes, and what the serializer \"other\" makes was"));
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<Particle> all(n);
    const std::size_t zero = 0;
    pmem.load<Particle>("deep/er/particles", all.data(), 1, &zero, &n);
    for (std::size_t at = 0; at < n; ++at) {
        const bool again = at % 4 == 2;
        IS(all[at].x[0] == (again ? 7 : double(at / 4)));
        IS(all[at].mass == (again ? float(at / 4) : 1.5f));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    pmem.free("deep/er/note");
    pmem.free("deep/er/note");
    MPI_Barrier(MPI_COMM_WORLD);
    refusal(ENGRAM_STATUS_NOT_FOUND, [&] { pmem.load<std::string>("deep/er/note"); });
    IS(pmem.load<int>("deep/er/ranks") == ranks);
}

// The same mistakes on every rank, or of one alone, and each gets its error; nothing is published.
static void errors(const char *path) {
    pmemcpy::PMEM pmem;
    refusal(ENGRAM_STATUS_NOT_FOUND, [&] { pmem.mmap("engram://nobody", MPI_COMM_WORLD); });
    refusal(ENGRAM_STATUS_ARGUMENT, [&] { pmem.mmap("engram://no body", MPI_COMM_WORLD); });
    pmem.mmap(path, MPI_COMM_WORLD);
    const std::size_t n = 100 * std::size_t(ranks), hundred = 100, first = 100 * std::size_t(rank);
    std::vector<double> data(100, rank);
    std::vector<float> floats(100);
    const std::size_t fifty = 50, within = first + 60;
    pmem.alloc<double>("E", 1, &n);
    refusal(ENGRAM_STATUS_EXISTS, [&] { pmem.alloc<double>("E", 1, &fifty); });
    refusal(ENGRAM_STATUS_ARGUMENT, [&] { pmem.alloc<float>("E", 1, &n); });
    refusal(ENGRAM_STATUS_INVALID_NAME, [&] { pmem.alloc<double>("", 1, &n); });
    refusal(ENGRAM_STATUS_INVALID_NAME, [&] { pmem.alloc<double>("a//b", 1, &n); });
    refusal(ENGRAM_STATUS_UNSUPPORTED, [&] {
        pmem.alloc<double>("Z", 1, &n, pmemcpy::SerializerType::LZ4);
    });
    const std::size_t outside = n - 10;
    refusal(ENGRAM_STATUS_ARGUMENT, [&] {
        pmem.store<double>("E", data.data(), 1, &outside, &hundred);
    });
    pmem.store<double>("E", data.data(), 1, &first, &hundred);
    IS(says(refusal(ENGRAM_STATUS_ARGUMENT, [&] {
        pmem.store<double>("E", data.data(), 1, &within, &hundred);
    }), ranks == 1 || rank == ranks - 1 ? "is not within" : "partly over"));
    refusal(ENGRAM_STATUS_ARGUMENT, [&] {
        pmem.store<float>("E", floats.data(), 1, &first, &hundred);
    });
    refusal(ENGRAM_STATUS_UNSUPPORTED, [&] { pmem.release(path); });
    pmem.publish();

    // Nobody has said the dims.
    pmem.store<double>("F", data.data(), 1, &first, &hundred);
    IS(says(refusal(ENGRAM_STATUS_ARGUMENT, [&] { pmem.publish(); }), "has said its dims"));
    refusal(ENGRAM_STATUS_NOT_FOUND, [&] { pmem.load_dims("F", nullptr, nullptr); });
    // Ranks that do not agree; boxes of two ranks over each other.
    if (ranks > 1) {
        const std::size_t other = rank == 1 ? n + 1 : n;
        pmem.alloc<double>("F", 1, &other);
        IS(says(refusal(ENGRAM_STATUS_EXISTS, [&] { pmem.publish(); }), "process 1"));
        const std::size_t zero = 0;
        pmem.alloc<double>("F", 1, &n);
        pmem.store<double>("F", data.data(), 1, &zero, &hundred);
        IS(says(refusal(ENGRAM_STATUS_ARGUMENT, [&] { pmem.publish(); }), "overlap"));
    }
    // What is there is neither replaced by another type, nor by less.
    pmem.alloc<float>("E", 1, &n);
    pmem.store<float>("E", floats.data(), 1, &first, &hundred);
    IS(says(refusal(ENGRAM_STATUS_EXISTS, [&] { pmem.publish(); }), "float64"));
    pmem.alloc<double>("E", 1, &n);
    if (rank == 0) pmem.store<double>("E", data.data(), 1, &first, &fifty);
    IS(says(refusal(ENGRAM_STATUS_ARGUMENT, [&] { pmem.publish(); }), "stored all of these again"));
    std::vector<double> all(n);
    const std::size_t zero = 0;
    pmem.load<double>("E", all.data(), 1, &zero, &n);
    for (std::size_t at = 0; at < n; ++at) IS(all[at] == double(at / 100));
    refusal(ENGRAM_STATUS_ARGUMENT, [&] {
        pmem.load<float>("E", floats.data(), 1, &zero, &fifty);
    });
    MPI_Barrier(MPI_COMM_WORLD);
}

static std::string word(int length) { return std::string(std::size_t(length), 'w'); }

// Stores in a PMEM that is left without a word, as programs of a pool leave it.
static void leave(const std::string &path, const std::string &id) {
    pmemcpy::PMEM pmem;
    pmem.mmap(path, MPI_COMM_WORLD);
    pmem.store<int>(id, ranks);
}

// What programs do that store again: values of another length, arrays that are there, other PMEMs.
static void again(const char *path) {
    const std::string root = path;
    const std::size_t n = 100 * std::size_t(ranks), hundred = 100, first = 100 * std::size_t(rank);
    std::vector<double> data(100, rank), all(n);
    leave(root + "/a", "left-1");
    leave(root + "/a", "left-2");
    pmemcpy::PMEM pmem, other;
    pmem.mmap(root + "/a", MPI_COMM_WORLD);
    other.mmap(root + "/b", MPI_COMM_WORLD);
    pmem.alloc<double>("T", 1, &n);
    pmem.store<double>("T", data.data(), 1, &first, &hundred);
    other.store<std::string>("name", word(rank + 1));
    pmem.store<std::string>("text", "a");
    pmem.store<std::string>("text", "abc");
    pmem.store<std::string>("none", "");
    IS(pmem.load<std::string>("text") == "abc" && pmem.load<std::string>("none").empty());
    // A store that is refused leaves nothing that would have to be published.
    const std::size_t most = ~std::size_t(0);
    refusal(ENGRAM_STATUS_ARGUMENT, [&] {
        pmem.store<double>("typo", data.data(), 1, &most, &hundred);
    });
    pmem.publish();
    other.publish();
    IS(other.load<std::string>("name") == "w");
    MPI_Barrier(MPI_COMM_WORLD);
    // A restart says the arrays again, reads, and stores some.
    pmem.alloc<double>("T", 1, &n);
    const std::size_t zero = 0;
    pmem.load<double>("T", all.data(), 1, &zero, &n);
    for (std::size_t at = 0; at < n; ++at) IS(all[at] == double(at / 100));
    pmem.store<std::string>("text", word(10 + rank));
    pmem.publish();
    IS(pmem.load<std::string>("text") == word(10));
    pmem.load<double>("T", all.data(), 1, &zero, &n);
    IS(all[n - 1] == ranks - 1);
    MPI_Barrier(MPI_COMM_WORLD);
    // And again and again: nothing is kept of those that are closed.
    for (int round = 0; round < 5; ++round) {
        other.mmap(root + "/b", MPI_COMM_WORLD);
        other.store<int>("round", round);
    }
    other.munmap();
    other.munmap();
}

// Reads at once what a job before this one has published.
static void look(const char *path) {
    pmemcpy::PMEM pmem;
    pmem.mmap(path, MPI_COMM_WORLD);
    const std::size_t n = 100 * std::size_t(ranks), zero = 0;
    std::vector<double> all(n);
    pmem.load<double>("a/T", all.data(), 1, &zero, &n);
    for (std::size_t at = 0; at < n; ++at) IS(all[at] == double(at / 100));
    IS(pmem.load<int>("a/left-1") == ranks && pmem.load<int>("a/left-2") == ranks);
    IS(pmem.load<int>("b/round") == 4);
}

// One rank meets an error of its own, and goes on to the end.
static void thrown(const char *path) {
    const std::size_t n = std::size_t(ranks), one = 1, own = std::size_t(rank);
    try {
        pmemcpy::PMEM pmem;
        pmem.mmap(path, MPI_COMM_WORLD);
        pmem.alloc<double>("holes", 1, &n);
        const double value = 1;
        if (rank == 1) throw std::runtime_error("a rank's own");
        pmem.store<double>("holes", &value, 1, &own, &one);
    } catch (const std::runtime_error &error) {
        if (rank != 1) throw;
    }
}

// Nobody says what the array is to be, and nobody asks whether all went well.
static void unsaid(const char *path) {
    const std::size_t one = 1, own = std::size_t(rank);
    const double value = 1;
    pmemcpy::PMEM pmem;
    pmem.mmap(path, MPI_COMM_WORLD);
    pmem.store<double>("unsaid", &value, 1, &own, &one);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const std::string what = argc == 3 ? argv[1] : "";
    if (what == "cube") cube(argv[2]);
    else if (what == "values") values(argv[2]);
    else if (what == "errors") errors(argv[2]);
    else if (what == "again") again(argv[2]);
    else if (what == "look") look(argv[2]);
    else if (what == "thrown") thrown(argv[2]);
    else if (what == "unsaid") unsaid(argv[2]);
    else return 2;
    MPI_Finalize();
    if (rank == 0) std::printf("all is well\n");
}
