// engram.hpp: handles, exceptions by kind, views, structures, batches.
#include <engram.hpp>

#include <iostream>
#include <optional>

#define IS(truth)                                                                                 \
    if (!(truth)) throw std::logic_error(std::to_string(__LINE__) + ": not so: " #truth)

// Whether something throws this kind of error, with a text in its message.
template <class E, class F>
bool throws(F &&work, const std::string &text) {
    try {
        work();
    } catch (const E &error) {
        return std::string(error.what()).find(text) != std::string::npos;
    }
    return false;
}

struct Particle {
    double x[3];
    float mass;
    std::int32_t id;
};
ENGRAM_STRUCT(Particle, ENGRAM_FIELD(x) ENGRAM_FIELD(mass) ENGRAM_FIELD(id))

static_assert(engram::Stored<double> && engram::Stored<std::complex<float>>);
static_assert(engram::Stored<Particle> && !engram::Stored<std::string>);
static_assert(engram::scalar_of<long long>() == ENGRAM_SCALAR_I64);
static_assert(engram::scalar_of<unsigned char>() == ENGRAM_SCALAR_U8);

void arrays(const engram::Group &root) {
    const engram::Object grid = root.create<double>("run/grid", {30, 40});
    std::vector<double> block(30);
    std::iota(block.begin(), block.end(), 0.0);
    grid.store<double>({10, 20}, {6, 5}, block);
    std::vector<double> back(30);
    grid.load<double>({10, 20}, {6, 5}, back);
    IS(back == block);
    IS(throws<engram::ArgumentError>([&] { grid.load<float>({0}, {1}, {}); }, "float64"));
    IS(throws<engram::ArgumentError>([&] { grid.load<double>({0}, {1, 1}, back); }, "1 offsets"));
    IS(throws<engram::ArgumentError>([&] { grid.store<double>({29, 39}, {2, 2}, block); }, "[29"));
    IS(throws<engram::ExistsError>([&] { root.create<double>("run/grid", {1}); }, "grid"));
    IS(throws<engram::ExistsError>([&] { root.require<double>("run/grid", {1}); }, "(30, 40)"));
    IS(root.require<double>("run/grid", {30, 40}).oid() == grid.oid());
    auto view = grid.view_to_write<double>();
    IS((view[{11, 21}] == block[6] && view(15, 24) == block[29] && view.size() == 1200));
    IS(view.stride(0) == 40 && view.stride(1) == 1 && view.extent(1) == 40);
    const auto row = view.row(11);
    IS(row.ndim() == 1 && (row[{20}] == 5) && row.span().size() == 40);
    row[{0}] = 7;
    grid.flush();
    IS(grid.read<double>()[11 * 40] == 7);
    const auto reading = grid.view<double>();
    root.remove("run/grid");
    IS((reading[{11, 0}] == 7));
    IS(throws<engram::NotFoundError>([&] { root.open("run/grid"); }, "run/grid"));
}

void making(const engram::Group &root) {
    auto space = root.allocate<float>("made", {3, 1000}, engram::Options().dims({"y", "x"}));
    std::iota(space.span().begin(), space.span().end(), 0.0F);
    IS((space.view()[{2, 999}] == 2999) && !root.contains("made"));
    const auto made = std::move(space).publish();
    IS(made.path() == "made" && made.dtype_text() == "float32" && made.shape()[1] == 1000);
    { auto given_back = root.allocate<float>("never", {5000}); }
    IS(!root.contains("never"));
    const std::vector<Particle> two = {{{1, 2, 3}, 4, 5}, {{6, 7, 8}, 9, 10}};
    const auto particles = root.put<Particle>("particles", {2}, two);
    IS(particles.read<Particle>()[1].x[2] == 8 && particles.view<Particle>().row(0)[{}].id == 5);
    root.put_blob("log", "lines");
    root.put_blob("log", "more lines", engram::Options().overwrite());
    IS(root.open("log").read<std::uint8_t>().size() == 10);
    root.set<double>("made", "t", -15.5);
    root.set("made", "unit", "K");
    root.set("made", "box", std::vector<int>{1, 2});
    IS(root.attr<double>("made", "t") == -15.5 && root.attr<std::string>("made", "unit") == "K");
    IS(throws<engram::ArgumentError>([&] { root.attr<int>("made", "t"); }, "\"t\""));
    IS(throws<engram::NotFoundError>([&] { root.attr<int>("made", "none"); }, "\"none\""));
    root.set("made", "levels", std::vector<double>{1.5, 2, 8});
    IS(root.attr<std::vector<double>>("made", "levels") == (std::vector<double>{1.5, 2, 8}));
    IS(throws<engram::ArgumentError>([&] { root.attr<std::vector<int>>("made", "levels"); },
                                     "\"levels\""));
    IS(root.query("t < -15 and unit = \"K\"") == std::vector<std::string>{"made"});
    IS(throws<engram::QueryError>([&] { root.query("t <"); }, "expected"));
    const auto watch = root.watch("exists(seen)");
    root.put_blob("late", "1");
    root.set("late", "seen", 1.0);
    IS(watch.wait() == std::vector<std::string>{"late"});
    IS(engram_watch_wake(watch.handle.get()) == 0);
    IS(watch.wait().empty() && watch.wait(0.0).empty());
    root.remove("late");
}

void chunked(const engram::Group &root) {
    auto log = root.create<float>("log-of-steps", {0, 100}, engram::Options().chunks({}, "lz4"));
    IS(log.codec() == "lz4" && log.chunks().size() == 2 && root.open("made").chunks().empty());
    const std::vector<float> step(100, 1.5F);
    for (int number = 0; number < 3; ++number) log.append<float>(0, {1, 100}, step);
    IS(log.shape()[0] == 3 && log.read<float>()[299] == 1.5F);
    log.resize({5, 50});
    IS(log.read<float>()[249] == 0 && log.read<float>()[149] == 1.5F);
    IS(throws<engram::ArgumentError>([&] { log.view<float>(); }, "chunked"));
}

void together(const engram::Group &root) {
    {
        engram::Batch undone(root.get());
        root.put_blob("b/one", "1");
    }
    IS(!root.contains("b"));
    engram::Batch kept(root.get());
    root.put_blob("b/one", "1");
    kept.commit();
    root.move("b/one", "b/two");
    IS(root.open_group("b").names() == std::vector<std::string>{"two"});
}

int main(int, char **argv) {
    engram_pool_options *options = nullptr;
    engram::check(engram_pool_options_new(&options));
    engram::check(engram_pool_options_force(options, true));
    std::optional<engram::View<const float>> view;
    {
        const auto pool = engram::Pool::create(argv[1], 64 << 20, options);
        arrays(pool.root());
        making(pool.root());
        chunked(pool.root());
        together(pool.root());
        view = pool.root().open("made").view<float>();
    }
    engram_pool_options_free(options);
    IS(((*view)[{2, 999}] == 2999));
    view.reset();
    IS(throws<engram::NotFoundError>([&] { engram::Pool::open("/nowhere/pool"); }, "/nowhere"));
    IS(engram::Pool::open(argv[1], ENGRAM_OPEN_MODE_READ, true).root().contains("particles"));
    std::cout << "all is well\n";
}
