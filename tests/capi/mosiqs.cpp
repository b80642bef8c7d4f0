// Listing 1 of the MOSIQS paper, call by call: a group with a scope, attributes and a place to
// split at, and an object in it with a scope, a value and attributes.
#include <engram/sharing.hpp>

#include <iostream>

#define IS(truth)                                                                                 \
    if (!(truth)) throw std::logic_error(std::to_string(__LINE__) + ": not so: " #truth)

struct Fits {
    std::int32_t naxis[2];
    float exposure;
};
ENGRAM_STRUCT(Fits, ENGRAM_FIELD(naxis) ENGRAM_FIELD(exposure))

template <class E, class F>
bool throws(F &&work, const std::string &text) {
    try {
        work();
    } catch (const E &error) {
        return std::string(error.what()).find(text) != std::string::npos;
    }
    return false;
}

// The listing.
void listing(const engram::Group &root) {
    // create_group("group-name", NULL); set_scope(SHARE)
    const engram::Group group = engram::create_group(root, "group-name", ENGRAM_SCOPE_SHARED);
    // group_attr: file = "sim-v0.1"; set_attr
    root.set("group-name", "file", std::string("sim-v0.1"));
    // set_split_value(100): objects whose iteration is below 1000, and the others; or by number
    engram::IndexSettings().split_on("iteration", 1000).number("split_threshold", 100).apply(group);
    // create_pmo("pmo-name", group_id); set_scope(PRIVATE); set_type; set_pmovalue(fits)
    const Fits fits{{512, 256}, 0.5F};
    group.put<Fits>("pmo-name", {}, {&fits, 1}, engram::Options().scope(ENGRAM_SCOPE_PRIVATE));
    // annotate("file=foo.hdf5"); pmo_attr: timestamp = "t4", iteration = "1401"; set_attr
    group.set("pmo-name", "file", std::string("foo.hdf5"));
    group.set("pmo-name", "timestamp", std::string("t4"));
    group.set("pmo-name", "iteration", std::int64_t{1401});
    // pmo_persist: `put` has stored it when it returns.
}

void scopes(const engram::Group &root) {
    IS(engram::scope_of(root, "group-name") == ENGRAM_SCOPE_SHARED);
    IS(engram::scope_of(root, "group-name/pmo-name") == ENGRAM_SCOPE_PRIVATE);
    const engram::Group group = root.open_group("group-name");
    engram::share(group, "pmo-name");
    IS(engram::scope_of(group, "pmo-name") == ENGRAM_SCOPE_SHARED);
    engram::unshare(group, "pmo-name");
    engram::share(group, "pmo-name");
    engram::publish(group, "pmo-name", true);
    IS(engram::scope_of(group, "pmo-name") == ENGRAM_SCOPE_PUBLISHED);
    IS(throws<engram::ReadOnlyError>([&] { group.set("pmo-name", "file", std::string("x")); }, ""));
    engram::unpublish(group, "pmo-name");
    IS(group.open("pmo-name").read<Fits>()[0].naxis[1] == 256);
    const engram::Group own = engram::create_group(root, "own", ENGRAM_SCOPE_PRIVATE);
    own.put_blob("log", "lines");
    IS(engram::scope_of(own, "log") == ENGRAM_SCOPE_PRIVATE);
    IS(engram::scope_of(own, "") == ENGRAM_SCOPE_PRIVATE);
}

void refusals(const engram::Group &root) {
    using engram::ArgumentError;
    IS(throws<engram::NotFoundError>([&] { engram::share(root, "nowhere"); }, "nowhere"));
    IS(throws<engram::NotFoundError>([&] { engram::scope_of(root, "nowhere"); }, "nowhere"));
    const auto published = ENGRAM_SCOPE_PUBLISHED;
    IS(throws<ArgumentError>([&] { engram::create_group(root, "p", published); }, "scope is 2"));
    IS(throws<ArgumentError>([&] { engram::Options().scope(published); }, "published later"));
    const auto set = [](const char *name, std::uint32_t value) {
        return [=] { engram::IndexSettings().number(name, value); };
    };
    IS(throws<ArgumentError>(set("rows", 5), "split_threshold"));
    IS(throws<ArgumentError>(set("merge_overlap", 101), "merge_overlap is 101"));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    IS(throws<ArgumentError>([&] { engram::IndexSettings().split_on("t", nan); }, "NaN"));
    const auto nameless = [] { engram::IndexSettings().split_on("", 1.0); };
    IS(throws<engram::InvalidNameError>(nameless, "key"));
    const auto never = static_cast<engram_indexing>(9);
    IS(throws<ArgumentError>([&] { engram::IndexSettings().indexing(never); }, "indexing is 9"));
}

int main(int, char **argv) {
    const engram::Pool pool = engram::Pool::open(argv[1], ENGRAM_OPEN_MODE_READ_WRITE, true);
    const engram::Group root = pool.root();
    listing(root);
    // Figure 8: by name, by group, by many attributes.
    const std::vector<std::string> one{"group-name/pmo-name"};
    IS(root.query("@name = 'pmo-name'") == one);
    IS(root.query("under('group-name')") == one);
    IS(root.query("group.file = 'sim-v0.1' and timestamp = 't4' and iteration = 1401") == one);
    scopes(root);
    refusals(root);
    engram::IndexSettings()
        .dynamic(true)
        .indexing(ENGRAM_INDEXING_SYNC)
        .split_on("timestamp", "t2")
        .apply(root);
    std::cout << "all is well\n";
}
