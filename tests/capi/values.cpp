// pMEMCPY's interface without MPI: each kind of value, with each serializer, and what is refused.
#include <pmemcpy/pmemcpy.hpp>

#include <atomic>
#include <iostream>
#include <map>
#include <numeric>

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

struct Particle {
    double x[3];
    float mass;
    std::int32_t id;
};
ENGRAM_STRUCT(Particle, ENGRAM_FIELD(x) ENGRAM_FIELD(mass) ENGRAM_FIELD(id))

// What has no fixed size is kept through a serializer.
struct Table {
    std::map<std::string, int> rows;
};
template <>
struct pmemcpy::serializer<Table> {
    static std::string save(const Table &table) {
        std::string text;
        for (const auto &row : table.rows) {
            text += row.first + "=" + std::to_string(row.second) + "\n";
        }
        return text;
    }
    static Table load(const char *bytes, std::size_t len) {
        Table table;
        const std::string text(bytes, len);
        for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
            end = text.find('\n', at);
            const auto is = text.find('=', at);
            table.rows[text.substr(at, is - at)] = std::stoi(text.substr(is + 1, end - is - 1));
        }
        return table;
    }
};

template <class T>
void scalar(pmemcpy::PMEM &pmem, pmemcpy::SerializerType with, const std::string &id, T value) {
    pmem.store<T>(id, value, with);
    IS(pmem.load<T>(id) == value);
    T again = T();
    pmem.load<T>(id, again);
    IS(again == value);
    int ndims = -1;
    pmem.load_dims(id, &ndims, nullptr);
    IS(ndims == (std::is_same<T, std::string>::value ? 1 : 0));
}

void values(pmemcpy::PMEM &pmem, pmemcpy::SerializerType with, const std::string &at) {
    scalar<double>(pmem, with, at + "/f8", -1.5);
    scalar<float>(pmem, with, at + "/f4", 2.5F);
    scalar<bool>(pmem, with, at + "/b", true);
    scalar<char>(pmem, with, at + "/c", 'x');
    scalar<std::uint64_t>(pmem, with, at + "/u8", UINT64_MAX);
    scalar<short>(pmem, with, at + "/i2", -7);
    scalar<std::complex<double>>(pmem, with, at + "/c16", {1, -2});
    scalar<std::string>(pmem, with, at + "/text", std::string("with\0nul", 8));
    Particle particle{{1, 2, 3}, 4, 5};
    pmem.store<Particle>(at + "/particle", particle, with);
    IS(pmem.load<Particle>(at + "/particle").x[2] == 3);
    Table table{{{"one", 1}, {"two", 2}}};
    pmem.store<Table>(at + "/table", table, with);
    IS(pmem.load<Table>(at + "/table").rows.at("two") == 2);
    table.rows["three"] = 3;
    pmem.store<Table>(at + "/table", table, with);
    IS(pmem.load<Table>(at + "/table").rows.size() == 3);
}

void arrays(pmemcpy::PMEM &pmem, pmemcpy::SerializerType with, const std::string &id) {
    const std::size_t dims[] = {40, 50, 60}, off[] = {3, 40, 7}, count[] = {2, 10, 5};
    std::vector<double> block(100), back(100), edge(2);
    std::iota(block.begin(), block.end(), 1.0);
    pmem.alloc<double>(id, 3, dims, with);
    pmem.store<double>(id, block.data(), 3, off, count, with);
    pmem.load<double>(id, back.data(), 3, off, count);
    IS(back == block);
    // Offsets count: the item before the block, and the block's first.
    const std::size_t before[] = {3, 40, 6}, two[] = {1, 1, 2};
    const std::size_t none[] = {0, 0, 0};
    std::vector<double> all(40 * 50 * 60);
    pmem.load<double>(id, all.data(), 3, none, dims);
    pmem.load<double>(id, edge.data(), 3, before, two);
    IS(edge[1] == 1 && all[(3 * 50 + 40) * 60 + 7] == 1 && all[(4 * 50 + 49) * 60 + 11] == 100);
    int ndims = 0;
    std::size_t found[3] = {};
    pmem.load_dims(id, &ndims, found);
    IS(ndims == 3 && found[0] == 40 && found[2] == 60);
    const std::size_t few = 4, from = 1, part = 2;
    Particle some[2] = {{{1, 2, 3}, 4, 5}, {{6, 7, 8}, 9, 10}}, got[2] = {};
    pmem.alloc<Particle>(id + "-particles", 1, &few, with);
    pmem.store<Particle>(id + "-particles", some, 1, &from, &part, with);
    pmem.load<Particle>(id + "-particles", got, 1, &from, &part);
    IS(got[1].x[2] == 8 && got[0].id == 5);
}

// Each serializer of arrays keeps them as it says; what is alike takes less room.
void serializers(pmemcpy::PMEM &pmem) {
    using Type = pmemcpy::SerializerType;
    const std::pair<Type, std::string> all[] = {{Type::Default, "raw"},
                                                {Type::LZ4, "lz4"},
                                                {Type::ZSTD, "zstd"},
                                                {Type::SHUFFLE_LZ4, "shuffle-lz4"},
                                                {Type::SHUFFLE_ZSTD, "shuffle-zstd"}};
    for (const auto &one : all) {
        values(pmem, one.first, one.second);
        arrays(pmem, one.first, one.second + "/array");
    }
    // An array is kept as alloc has said; that of all of a PMEM is said once.
    const std::size_t n = 1000, zero = 0;
    const std::vector<double> data(n, 1.0);
    IS(throws<engram::ArgumentError>(
        [&] { pmem.store<double>("raw/array", data.data(), 1, &zero, &n, Type::LZ4); },
        {"\"raw/array\"", "kept raw", "lz4"}));
    IS(throws<engram::ArgumentError>(
        [&] { pmem.store<double>("lz4/array", data.data(), 1, &zero, &n, Type::ZSTD); },
        {"kept as lz4", "zstd"}));
    const std::size_t dims[] = {40, 50, 60};
    IS(throws<engram::ArgumentError>(
        [&] { pmem.alloc<double>("lz4/array", 3, dims, Type::ZSTD); },
        {"alloc", "kept as lz4", "zstd", "free the id"}));
    pmem.alloc<double>("lz4/array", 3, dims, Type::LZ4);
    pmem.alloc<double>("lz4/array", 3, dims);
    IS(throws<engram::ArgumentError>([&] { pmem.alloc<double>("wrong", 1, &n, Type(9)); }, {"9"}));
}

// The serializer of a PMEM is that of all arrays it makes.
void by_default(const char *path) {
    const std::size_t n = 100000, zero = 0;
    const std::vector<double> data(n, 1.0);
    pmemcpy::PMEM pmem(pmemcpy::SerializerType::SHUFFLE_ZSTD);
    pmem.mmap(path);
    pmem.alloc<double>("own/part", 1, &n);
    pmem.store<double>("own/part", data.data(), 1, &zero, &n);
    pmem.store("own/whole", data.data(), pmemcpy::Dimensions(n));
    std::vector<double> back(n);
    pmem.load("own/whole", back.data(), pmemcpy::Dimensions(n));
    IS(back == data);
}

void refusals(pmemcpy::PMEM &pmem) {
    using engram::ArgumentError;
    const std::size_t n = 100, m = 50, off = 60, zero = 0;
    const std::size_t square[] = {10, 10};
    std::vector<double> data(100);
    std::vector<float> floats(100);
    double number = 0;
    pmem.alloc<double>("E", 1, &n);
    pmem.alloc<double>("E", 1, &n);
    IS(throws<engram::ExistsError>([&] { pmem.alloc<double>("E", 1, &m); },
                                   {"\"E\"", "float64", "(100,)", "(50,)"}));
    IS(throws<engram::ExistsError>([&] { pmem.alloc<double>("E", 2, square); }, {"(10, 10)"}));
    IS(throws<engram::ExistsError>([&] { pmem.alloc<int>("E", 1, &n); }, {"float64", "int32"}));
    IS(throws<ArgumentError>([&] { pmem.store<float>("E", floats.data(), 1, &zero, &n); },
                             {"\"E\"", "float64", "float32"}));
    IS(throws<ArgumentError>([&] { pmem.load<float>("E", floats.data(), 1, &zero, &n); },
                             {"\"E\"", "float64", "float32"}));
    IS(throws<ArgumentError>([&] { pmem.store<double>("E", data.data(), 2, square, square); },
                             {"\"E\"", "(100,)", "2 dims", "(10, 10)"}));
    IS(throws<ArgumentError>([&] { pmem.store<double>("E", data.data(), 1, &off, &m); },
                             {"\"E\"", "[60]", "[50]", "[100]"}));
    IS(throws<ArgumentError>([&] { pmem.load<double>("E", data.data(), 1, &off, &m); },
                             {"\"E\"", "[60]", "[50]", "[100]"}));
    const std::size_t huge = SIZE_MAX;
    IS(throws<ArgumentError>([&] { pmem.load<double>("E", data.data(), 1, &huge, &m); },
                             {"\"E\"", "18446744073709551615"}));
    IS(throws<ArgumentError>([&] { pmem.store<double>("E", data.data(), -1, &off, &m); }, {"-1"}));
    IS(throws<ArgumentError>([&] { pmem.load<double>("E"); }, {"\"E\"", "(100,)", "()"}));
    IS(throws<ArgumentError>([&] { pmem.store<double>("E", number); }, {"\"E\"", "(100,)", "()"}));
    IS(throws<ArgumentError>([&] { pmem.load<std::string>("E"); }, {"\"E\"", "float64"}));
    pmem.store<std::string>("S", "text");
    IS(throws<ArgumentError>([&] { pmem.load<double>("S"); }, {"\"S\"", "blob", "float64"}));
    IS(throws<ArgumentError>([&] { pmem.store<double>("S", number); }, {"\"S\"", "blob"}));
    IS(pmem.load<std::string>("S") == "text");
    for (const std::string id : {"missing", "E/missing"}) {
        IS(throws<engram::NotFoundError>([&] { pmem.load<double>(id); }, {id.c_str()}));
        pmem.free(id);
        IS(throws<engram::NotFoundError>([&] { pmem.store<double>(id, data.data(), 1, &zero, &n); },
                                    {id.c_str()}));
    }
    int ndims = 0;
    IS(throws<engram::NotFoundError>([&] { pmem.load_dims("none", &ndims, nullptr); }, {"none"}));
    const std::string length(300, 'x');
    // C would take what comes before the NUL for all of it.
    const std::string nul("E\0b", 3);
    for (const auto &id :
         {std::string(), length, std::string("a//b"), std::string(".."), nul}) {
        IS(throws<engram::InvalidNameError>([&] { pmem.alloc<double>(id, 1, &n); }, {"\""}));
        IS(throws<engram::InvalidNameError>([&] { pmem.store<double>(id, number); }, {"\""}));
        IS(throws<engram::InvalidNameError>([&] { pmem.load<double>(id); }, {"\""}));
    }
    const std::size_t *none = nullptr;
    auto *to = data.data();
    IS(throws<ArgumentError>([&] { pmem.store("E", to, 1, &zero, none); }, {"\"E\"", "NULL"}));
    IS(throws<ArgumentError>([&] { pmem.load("E", to, 1, &zero, none); }, {"\"E\"", "NULL"}));
    pmemcpy::PMEM closed;
    IS(throws<ArgumentError>([&] { closed.load<double>("E"); }, {"mmap"}));
    IS(throws<engram::Error>([&] { closed.mmap("/proc/nowhere/pool"); }, {"/proc/nowhere/pool"}));
    // More than the pool has: nothing comes of it, and what is there stays.
    const std::size_t much = std::size_t{1} << 40;
    IS(throws<engram::PoolFullError>([&] { pmem.alloc<double>("much", 1, &much); }, {"\"much\""}));
    pmem.load<double>("E", data.data(), 1, &zero, &n);
}

// Threads that make the same array at once, and store parts of it beside each other.
void threads(pmemcpy::PMEM &pmem) {
    const std::size_t each = 20000, all = 4 * each;
    std::vector<std::thread> running;
    std::atomic<int> failed{0};
    for (std::size_t number = 0; number < 4; ++number) {
        running.emplace_back([&, number] {
            try {
                std::vector<double> own(each, double(number));
                const std::size_t off = number * each;
                pmem.alloc<double>("T", 1, &all);
                pmem.store<double>("T", own.data(), 1, &off, &each);
            } catch (const engram::Error &error) {
                std::cout << error.what() << "\n";
                ++failed;
            }
        });
    }
    for (auto &thread : running) thread.join();
    std::vector<double> read(all);
    const std::size_t zero = 0;
    pmem.load<double>("T", read.data(), 1, &zero, &all);
    IS(failed == 0 && read[0] == 0 && read[each] == 1 && read[all - 1] == 3);
}

int main(int, char **argv) {
    IS(pmemcpy::detail::bytes_of("4 GiB") == std::uint64_t{4} << 30);
    IS(pmemcpy::detail::bytes_of("100") == 100 && pmemcpy::detail::bytes_of("3M") == 3 << 20);
    for (const char *wrong : {"", "-1", "GiB", "4 ounces", "4 GG", "99999999999T"}) {
        IS(throws<engram::ArgumentError>([&] { pmemcpy::detail::bytes_of(wrong); }, {wrong}));
    }
    {
        pmemcpy::PMEM pmem;
        pmem.size(256 << 20);
        pmem.mmap(argv[1]);
        serializers(pmem);
        refusals(pmem);
        threads(pmem);
    }
    pmemcpy::PMEM again(pmemcpy::SerializerType::Default);
    again.mmap(argv[1]);
    IS(again.load<double>("shuffle-lz4/f8") == -1.5);
    again.free("raw/f8");
    IS(throws<engram::NotFoundError>([&] { again.load<double>("raw/f8"); }, {"raw/f8"}));
    IS(throws<engram::BusyError>([&] { again.release(argv[1]); }, {argv[1]}));
    by_default(argv[1]);
    std::cout << "all is well\n";
}
