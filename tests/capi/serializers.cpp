// Serializers of pMEMCPY's interface: those that write themselves into the pool, and what is
// refused.
#include <pmemcpy/pmemcpy.hpp>

#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>

#define IS(truth)                                                                                 \
    if (!(truth)) throw std::logic_error(std::to_string(__LINE__) + ": not so: " #truth)

// Whether something throws this kind of error, with all of these texts in its message.
template <class E, class F>
bool throws(F &&work, std::initializer_list<const char *> texts) {
    try {
        work();
    } catch (const E &error) {
        bool all = true;
        for (const char *text : texts) {
            all = all && std::string(error.what()).find(text) != std::string::npos;
        }
        if (!all) std::cout << error.what() << "\n";
        return all;
    }
    std::cout << "nothing was thrown\n";
    return false;
}

static std::string pool_path;

// Whether memory is that of the pool: mappings of its files, one after the other.
static bool is_of_pool(const void *memory, std::size_t nbytes) {
    std::ifstream maps("/proc/self/maps");
    auto at = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t end = at + nbytes;
    for (std::string line; at < end && std::getline(maps, line);) {
        std::istringstream words(line);
        std::uintptr_t from = 0, to = 0;
        char dash = 0;
        words >> std::hex >> from >> dash >> to;
        if (from <= at && at < to) {
            if (line.find(pool_path) == std::string::npos) return false;
            at = to;
        }
    }
    return at >= end;
}

// How much memory of its own this process has, in bytes.
static std::size_t own_memory() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("RssAnon:", 0) == 0) return std::stoull(line.substr(8)) << 10;
    }
    throw std::logic_error("the kernel does not tell RssAnon");
}

struct Mesh {
    std::vector<double> points;
    std::vector<std::uint32_t> cells;
};

// Where the last serializer wrote, and read; what it then had of memory.
static const void *wrote = nullptr, *was_read = nullptr;
static std::size_t memory_then = 0;

template <>
struct pmemcpy::serializer<Mesh> {
    static constexpr const char *name = "mesh";
    static std::size_t size(const Mesh &mesh) {
        return 2 * sizeof(std::uint64_t) + bytes_of(mesh.points) + bytes_of(mesh.cells);
    }
    static void write(const Mesh &mesh, pmemcpy::Output &into) {
        into.put<std::uint64_t>(mesh.points.size());
        into.put<std::uint64_t>(mesh.cells.size());
        void *points = into.take(bytes_of(mesh.points));
        if (!mesh.points.empty()) std::memcpy(points, mesh.points.data(), bytes_of(mesh.points));
        into.put(mesh.cells.data(), bytes_of(mesh.cells));
        wrote = points;
        memory_then = own_memory();
    }
    static Mesh read(pmemcpy::Input &from) {
        Mesh mesh;
        mesh.points.resize(from.get<std::uint64_t>());
        mesh.cells.resize(from.get<std::uint64_t>());
        was_read = from.take(bytes_of(mesh.points));
        if (!mesh.points.empty()) {
            std::memcpy(mesh.points.data(), was_read, bytes_of(mesh.points));
        }
        from.get(mesh.cells.data(), bytes_of(mesh.cells));
        return mesh;
    }
    template <class V>
    static std::size_t bytes_of(const std::vector<V> &values) { return values.size() * sizeof(V); }
};

// A serializer of words as an object: it is told what parts them, and what it is to do wrong.
using Words = std::vector<std::string>;
struct Joined {
    std::string name = "joined";
    char parting = ' ';
    std::ptrdiff_t more = 0;
    std::function<void(pmemcpy::Output &)> meanwhile = [](pmemcpy::Output &) {};

    std::size_t size(const Words &words) const {
        std::size_t all = 0;
        for (const auto &word : words) all += word.size() + 1;
        return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(all) + more);
    }
    void write(const Words &words, pmemcpy::Output &into) const {
        for (const auto &word : words) {
            into.put(word.data(), word.size());
            into.put(parting);
        }
        meanwhile(into);
    }
    Words read(pmemcpy::Input &from) const {
        Words words;
        for (std::string word; from.left();) {
            const char letter = from.get<char>();
            if (letter != parting) {
                word += letter;
            } else {
                words.push_back(std::move(word));
                word.clear();
            }
        }
        return words;
    }
};

// A program's own object for what has a serializer already.
struct Greedy {
    static constexpr const char *name = "joined";
    static std::size_t size(const Words &) { return 0; }
    static void write(const Words &, pmemcpy::Output &) {}
    static Words read(pmemcpy::Input &from) {
        from.take(from.size() + 1);
        return {};
    }
};

static void in_place(pmemcpy::PMEM &pmem) {
    const Mesh mesh{{0.5, 1.5, 2.5}, {2, 1, 0, 7}};
    pmem.store<Mesh>("deep/mesh", mesh);
    IS(is_of_pool(wrote, 24));
    const Mesh back = pmem.load<Mesh>("deep/mesh");
    IS(back.points == mesh.points && back.cells == mesh.cells);
    // The same by hand, and another value in its place.
    const pmemcpy::serializer<Mesh> own;
    pmem.store("deep/mesh", Mesh{{4.5}, {}}, own);
    Mesh again = pmem.load<Mesh>("deep/mesh", own);
    IS(again.points == std::vector<double>{4.5} && again.cells.empty());
    pmem.load("deep/mesh", again, own);
    pmem.load<Mesh>("deep/mesh", again);
    IS(again.points == std::vector<double>{4.5});
    pmem.store<Mesh>("deep/none", Mesh());
    IS(pmem.load<Mesh>("deep/none").points.empty());
    Words words{"one", "", "three"};
    pmem.store<Words>("words", words, Joined{"joined", ','});
    IS(pmem.load<Words>("words", Joined{"joined", ','}) == words);
    pmem.store("no words", Words(), Joined());
    IS(pmem.load<Words>("no words", Joined()).empty());
}

// A large value: nothing of its size is allocated while it is stored, and it is read where it lies.
static void large(pmemcpy::PMEM &pmem) {
    const std::size_t many = 4 << 20;
    Mesh mesh{std::vector<double>(many, 1.5), {1}};
    mesh.points.back() = 7;
    own_memory();
    const std::size_t before = own_memory();
    pmem.store<Mesh>("large", mesh);
    IS(memory_then < before + many * sizeof(double) / 4);
    IS(own_memory() < before + many * sizeof(double) / 4);
    IS(is_of_pool(wrote, many * sizeof(double)));
    IS(pmem.load<Mesh>("large").points == mesh.points);
    IS(is_of_pool(was_read, many * sizeof(double)));
    pmem.free("large");
}

// A SerializerType encodes the bytes that a serializer has made.
static void encoded(pmemcpy::PMEM &pmem) {
    using Type = pmemcpy::SerializerType;
    const std::string text(100000, 'x');
    Mesh mesh{std::vector<double>(100000, 2.5), {3}};
    for (const Type type : {Type::LZ4, Type::SHUFFLE_ZSTD}) {
        const std::string at = "encoded/" + std::to_string(static_cast<int>(type));
        pmem.store<std::string>(at + "-text", text, type);
        IS(pmem.load<std::string>(at + "-text") == text);
        pmem.store<Mesh>(at + "-mesh", mesh, type);
        IS(pmem.load<Mesh>(at + "-mesh").points == mesh.points);
        // Another serializer keeps it otherwise, in the place of the first.
        pmem.store<std::string>(at + "-again", text, type);
        pmem.store<std::string>(at + "-again", "short");
        IS(pmem.load<std::string>(at + "-again") == "short");
        pmem.store<Mesh>(at + "-back", mesh);
        pmem.store<Mesh>(at + "-back", mesh, type);
        IS(pmem.load<Mesh>(at + "-back").cells[0] == 3);
        pmem.store<std::string>(at + "-none", "", type);
        IS(pmem.load<std::string>(at + "-none").empty());
    }
    IS(throws<engram::ArgumentError>([&] { pmem.store<double>("f8", 1, Type(9)); }, {"9"}));
}

static void refusals(pmemcpy::PMEM &pmem) {
    using engram::ArgumentError;
    const Words words{"one", "two"};
    pmem.store("kept", words, Joined());
    const auto is_kept = [&] { return pmem.load<Words>("kept", Joined()) == words; };
    const Words other{"other", "words", "here"};
    // More or less than was said; also where the serializer goes on after the error.
    for (const char *id : {"kept", "new"}) {
        IS(throws<ArgumentError>([&] { pmem.store(id, other, Joined{"joined", ' ', -1}); },
                                 {"store", id, "\"joined\"", "said 16 bytes", "writes more"}));
        IS(throws<ArgumentError>([&] { pmem.store(id, other, Joined{"joined", ' ', 3}); },
                                 {"store", id, "\"joined\"", "said 20 bytes", "wrote 17"}));
        const auto swallows = [](pmemcpy::Output &into) {
            IS(throws<ArgumentError>([&] { into.take(1); }, {"writes more"}));
            IS(throws<ArgumentError>([&] { into.take(SIZE_MAX); }, {"writes more"}));
        };
        IS(throws<ArgumentError>([&] { pmem.store(id, other, Joined{"joined", ' ', 0, swallows}); },
                                 {id, "said 17 bytes", "writes more"}));
        const auto fails = [](pmemcpy::Output &) { throw std::range_error("its own"); };
        IS(throws<std::range_error>([&] { pmem.store(id, other, Joined{"joined", ' ', 0, fails}); },
                                    {"its own"}));
        IS(throws<engram::PoolFullError>(
            [&] { pmem.store(id, other, Joined{"joined", ' ', std::ptrdiff_t{1} << 40}); }, {id}));
        IS(is_kept());
        IS(id == std::string("kept") ||
           throws<engram::NotFoundError>([&] { pmem.load<Words>(id, Joined()); }, {"new"}));
    }
    // What was reserved for them is given back: the pool has no room for three of these.
    for (int turn = 0; turn < 5; ++turn) {
        IS(throws<ArgumentError>([&] { pmem.store("new", other, Joined{"joined", ' ', 80 << 20}); },
                                 {"\"new\"", "wrote 17"}));
    }
    // Another serializer than has made it, and none.
    IS(throws<ArgumentError>([&] { pmem.load<Words>("kept", Joined{"lines", '\n'}); },
                             {"load", "\"kept\"", "\"joined\" made", "\"lines\" makes"}));
    IS(throws<ArgumentError>([&] { pmem.store("kept", other, Joined{"lines", '\n'}); },
                             {"store", "\"kept\"", "\"joined\" made", "\"lines\" makes"}));
    IS(throws<ArgumentError>([&] { pmem.load<Mesh>("kept"); }, {"\"joined\" made", "\"mesh\""}));
    IS(throws<ArgumentError>([&] { pmem.load<std::string>("kept"); },
                             {"\"joined\" made", "a serializer makes"}));
    IS(throws<ArgumentError>([&] { pmem.load<double>("kept"); }, {"\"joined\" made", "float64"}));
    IS(throws<ArgumentError>([&] { pmem.store<double>("kept", 1); }, {"\"joined\" made"}));
    IS(throws<ArgumentError>([&] { pmem.load<Words>("kept", Greedy()); },
                             {"\"kept\"", "\"joined\" reads more than the 8 bytes"}));
    IS(is_kept());
    pmem.store<std::string>("text", "text");
    pmem.store<double>("number", 1);
    IS(throws<ArgumentError>([&] { pmem.load<Mesh>("text"); }, {"a blob", "\"mesh\""}));
    IS(throws<ArgumentError>([&] { pmem.load<Mesh>("number"); }, {"float64", "\"mesh\""}));
    IS(throws<ArgumentError>([&] { pmem.store<Mesh>("text", Mesh()); }, {"a blob", "\"mesh\""}));
    IS(throws<engram::NotFoundError>([&] { pmem.load<Mesh>("missing"); }, {"\"missing\""}));
    for (const std::string &name : {std::string(), std::string("a\0b", 3)}) {
        IS(throws<ArgumentError>([&] { pmem.store("kept", words, Joined{name}); }, {"name"}));
        IS(throws<ArgumentError>([&] { pmem.load<Words>("kept", Joined{name}); }, {"name"}));
    }
    pmemcpy::PMEM closed;
    IS(throws<ArgumentError>([&] { closed.store<Mesh>("kept", Mesh()); }, {"mmap"}));
}

// Threads that replace one value, while others load it: each value is whole.
static void threads(pmemcpy::PMEM &pmem) {
    pmem.store("changing", Words(50, "0"), Joined());
    std::vector<std::thread> running;
    std::vector<std::string> wrong(4);
    for (std::size_t number = 0; number < wrong.size(); ++number) {
        running.emplace_back([&, number] {
            try {
                for (int turn = 0; turn < 50; ++turn) {
                    if (number % 2) {
                        pmem.store("changing", Words(50, std::to_string(turn)), Joined());
                    }
                    const Words found = pmem.load<Words>("changing", Joined());
                    if (found != Words(50, found.at(0))) wrong[number] = "torn";
                }
            } catch (const std::exception &error) {
                wrong[number] = error.what();
            }
        });
    }
    for (auto &thread : running) thread.join();
    for (const auto &what : wrong) {
        if (!what.empty()) throw std::logic_error(what);
    }
}

int main(int, char **argv) {
    pool_path = argv[1];
    pmemcpy::PMEM pmem;
    pmem.mmap(pool_path);
    in_place(pmem);
    large(pmem);
    encoded(pmem);
    refusals(pmem);
    threads(pmem);
    std::cout << "all is well\n";
}
