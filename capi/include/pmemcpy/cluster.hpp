// A cluster behind pMEMCPY's interface: `mmap("engram://NAME", comm)`.
//
// Each rank stores into the pool of its own node, and asks nobody. What has been stored since the
// last publication is seen by the rank that stored it. `publish`, `munmap` and MPI_Finalize publish
// it for all, in one transaction of up to a hundred ids: all ranks call them together. A rank loads
// what is published from wherever it lies.
//
// The first `mmap` of such a name loads the library of clusters, libengram_cluster. Programs of one
// node do without it.
#ifndef PMEMCPY_CLUSTER_HPP
#define PMEMCPY_CLUSTER_HPP

#include "types.hpp"

#include "../engram_cluster.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pmemcpy {
namespace detail {

// The functions of libengram_cluster.
#define ENGRAM_CLUSTER_FUNCTIONS(each)                                                            \
    each(last_error) each(string_free) each(open) each(close) each(remove) each(serve)            \
    each(node_free) each(array_open) each(array_free) each(array_spec) each(array_ndim)           \
    each(array_shape) each(array_load)
#define ENGRAM_SHARE_FUNCTIONS(each)                                                              \
    each(begin) each(join) each(array) each(store) each(put) each(load) each(dims) each(drop)     \
    each(told) each(plan) each(seal) each(publish) each(free)

struct ClusterLibrary {
#define ENGRAM_MEMBER(name) decltype(&engram_cluster_##name) name;
    ENGRAM_CLUSTER_FUNCTIONS(ENGRAM_MEMBER)
#undef ENGRAM_MEMBER
#define ENGRAM_MEMBER(name) decltype(&engram_share_##name) share_##name;
    ENGRAM_SHARE_FUNCTIONS(ENGRAM_MEMBER)
#undef ENGRAM_MEMBER

    static const ClusterLibrary &get() {
        static const ClusterLibrary loaded;
        return loaded;
    }

    void check(engram_status status) const {
        if (status != ENGRAM_STATUS_OK) engram::raise(status, last_error());
    }

    // A string that a function gives to be freed.
    template <class Call>
    std::string text(Call &&call) const {
        char *given = nullptr;
        check(std::forward<Call>(call)(&given));
        const std::unique_ptr<char, decltype(string_free)> freed(given, string_free);
        return given;
    }

private:
    ClusterLibrary() {
        const std::string name = "libengram_cluster.so.0";
        // Beside the libengram that this program has; or wherever the linker looks.
        Dl_info own = {};
        const bool is_known = dladdr(reinterpret_cast<void *>(&engram_engine), &own) != 0;
        const std::string beside = is_known && own.dli_fname ? own.dli_fname : "";
        const auto slash = beside.rfind('/');
        void *library = nullptr;
        if (slash != std::string::npos) {
            library = dlopen((beside.substr(0, slash + 1) + name).c_str(), RTLD_NOW | RTLD_LOCAL);
        }
        if (!library) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            const char *why = dlerror();
            throw engram::UnsupportedError(
                std::string("a cluster needs libengram_cluster, which cannot be loaded: ") +
                (why ? why : "no reason was given") + "; `make install` puts it beside libengram");
        }
#define ENGRAM_MEMBER(name) found(library, "engram_cluster_" #name, name);
        ENGRAM_CLUSTER_FUNCTIONS(ENGRAM_MEMBER)
#undef ENGRAM_MEMBER
#define ENGRAM_MEMBER(name) found(library, "engram_share_" #name, share_##name);
        ENGRAM_SHARE_FUNCTIONS(ENGRAM_MEMBER)
#undef ENGRAM_MEMBER
    }

    template <class Function>
    static void found(void *library, const char *name, Function *&place) {
        place = reinterpret_cast<Function *>(dlsym(library, name));
        if (!place) {
            throw engram::UnsupportedError(std::string("libengram_cluster has no ") + name +
                                           ": install the one of this header's version");
        }
    }
};
#undef ENGRAM_CLUSTER_FUNCTIONS
#undef ENGRAM_SHARE_FUNCTIONS

// The processes that publish together. What throws on one of them throws the same on all.
class Peers {
public:
    virtual ~Peers() = default;
    virtual int rank() const = 0;
    // Whether this is the process of its node that takes part in serving it.
    virtual bool serves() const = 0;
    virtual void each(const std::function<void()> &work) const = 0;
    // Gives the texts of all, in the order of their ranks, to the first.
    virtual std::vector<std::string> gathered(const std::string &text) const = 0;
    // Gives the first one's text to all.
    virtual std::string spread(const std::string &text) const = 0;
    // Gives each its own of the first one's texts.
    virtual std::string dealt(const std::vector<std::string> &texts) const = 0;
};

// A process alone.
class Alone : public Peers {
public:
    int rank() const override { return 0; }
    bool serves() const override { return true; }
    void each(const std::function<void()> &work) const override { work(); }
    std::vector<std::string> gathered(const std::string &text) const override { return {text}; }
    std::string spread(const std::string &text) const override { return text; }
    std::string dealt(const std::vector<std::string> &texts) const override { return texts[0]; }
};

// A type as a cluster has it, for messages: of a structure it has the bytes, in which each name
// comes after its length.
inline std::string said_by(const std::string &spec) {
    if (spec.empty() || spec[0] != 'x') return spec;
    std::string bytes;
    for (std::size_t at = 1; at + 1 < spec.size(); at += 2) {
        bytes += static_cast<char>(std::strtol(spec.substr(at, 2).c_str(), nullptr, 16));
    }
    const std::size_t at = bytes.find(MADE_BY);
    if (at == std::string::npos || at < 4) return "a structure (" + spec + ")";
    std::size_t length = 0;
    for (std::size_t byte = 4; byte > 0; --byte) {
        length = length << 8 | static_cast<unsigned char>(bytes[at - 5 + byte]);
    }
    const std::size_t prefix = std::strlen(MADE_BY);
    return "what the serializer \"" +
           bytes.substr(at + prefix, length > prefix ? length - prefix : 0) + "\" makes";
}

inline bool names_cluster(const std::string &path) { return path.rfind("engram://", 0) == 0; }

// A cluster, as pMEMCPY sees it.
class ClusterMap {
public:
    // Opens the cluster; all together. Behind its name there may be a path, below which ids are.
    ClusterMap(const std::string &path, std::unique_ptr<Peers> peers) : peers_(std::move(peers)) {
        const std::string rest = path.substr(std::string("engram://").size());
        const auto slash = rest.find('/');
        name_ = rest.substr(0, slash);
        if (slash != std::string::npos) below_ = rest.substr(slash + 1);
        while (!below_.empty() && below_.back() == '/') below_.pop_back();
        if (!below_.empty()) below_ += '/';
        try {
            // The process that serves a node comes first: the others find its pool.
            peers_->each([&] { if (peers_->serves()) open(true); });
            peers_->each([&] { if (!peers_->serves()) open(false); });
            begin();
        } catch (...) {
            close();
            throw;
        }
    }
    ClusterMap(const ClusterMap &) = delete;
    ClusterMap &operator=(const ClusterMap &) = delete;

    ~ClusterMap() {
        if (!is_own()) return;
        // What was not published by all is given back.
        if (share_) library().share_free(share_, false);
        close();
    }

    // Whether this is the process that has opened it, and no child that was forked from that.
    bool is_own() const { return pid_ == getpid(); }

    // Gives up what this process has stored: an exception has ended what it did. Nothing is
    // published by any until all have been told.
    void forsake() { is_forsaken_ = true; }
    bool is_forsaken() const { return is_forsaken_; }

    void alloc(const std::string &id, const engram_dtype *dtype, std::size_t ndim,
               const std::size_t *dims) const {
        const std::string spec = spec_of(dtype);
        checked(library().share_array(share_, path(id).c_str(), spec.c_str(), ndim, dims));
    }

    void store(const std::string &id, const engram_dtype *dtype, const void *data,
               std::size_t nbytes, std::size_t ndim, const std::size_t *offsets,
               const std::size_t *counts) const {
        const std::string spec = spec_of(dtype);
        checked(library().share_store(share_, path(id).c_str(), spec.c_str(), ndim, offsets, counts,
                                      data, nbytes));
    }

    void put(const std::string &id, const std::string &spec, const void *data, std::size_t nbytes,
             std::size_t ndim, const std::size_t *dims) const {
        checked(library().share_put(share_, path(id).c_str(), spec.c_str(), ndim, dims, data,
                                    nbytes));
    }

    void load(const std::string &id, const std::string &spec, void *data, std::size_t nbytes,
              std::size_t ndim, const std::size_t *offsets, const std::size_t *counts) const {
        const ClusterLibrary &own = library();
        std::int32_t found = 0;
        checked(own.share_load(share_, path(id).c_str(), spec.c_str(), ndim, offsets, counts, data,
                               nbytes, &found));
        if (found == 1) return;
        if (found == 2) {
            throw engram::NotFoundError(told(id) + "this rank has not stored all of that, and what "
                                        "others have is not published: publish() or munmap() is "
                                        "called by all ranks together");
        }
        const Array array(*this, id);
        if (array.spec() != spec) {
            throw engram::ArgumentError(told(id) + "what is stored is " + said_by(array.spec()) +
                                        ", and " + said_by(spec) + " was asked for");
        }
        if (array.ndim() != ndim) {
            throw engram::ArgumentError(told(id) + "what is stored has dims " +
                                        shown(array.ndim(), array.shape()) + ", and a part of " +
                                        std::to_string(ndim) + " dims was asked for");
        }
        array.load(ndim, offsets, counts, data, nbytes);
    }

    // Gives the dims of an array: those that this rank has said, or that are published.
    std::vector<std::uint64_t> dims(const std::string &id) const {
        std::vector<std::uint64_t> found(DIMS_MOST);
        std::int32_t ndim = -1;
        checked(library().share_dims(share_, path(id).c_str(), &ndim, found.data(), found.size()));
        if (ndim >= 0) {
            found.resize(static_cast<std::size_t>(ndim));
            return found;
        }
        const Array array(*this, id);
        return {array.shape(), array.shape() + array.ndim()};
    }

    // Removes an id; nothing under it is no error.
    void free(const std::string &id) const {
        bool was_there = false;
        checked(library().share_drop(share_, path(id).c_str(), &was_there));
        const engram_status done = library().remove(cluster_, path(id).c_str());
        // Another rank may be as far.
        const bool is_gone = done == ENGRAM_STATUS_NOT_FOUND;
        if (!is_gone && !(done == ENGRAM_STATUS_BUSY && !is_there(id))) checked(done);
    }

    // Publishes what all have stored; all together.
    void publish() {
        try {
            publish_all();
        } catch (...) {
            if (!share_) begin();
            throw;
        }
        begin();
    }

    // Publishes, and closes the cluster; all together. Where it cannot be published yet, it stays
    // open, and what was stored is kept.
    void finish() {
        if (!cluster_ || !is_own()) return;
        try {
            publish_all();
        } catch (...) {
            if (!share_) {
                close();
                peers_.reset();
            }
            throw;
        }
        // Nobody ends serving while another publishes.
        peers_->each([] {});
        close();
        peers_.reset();
    }

private:
    static constexpr std::size_t DIMS_MOST = 64;

    // An array that is published.
    class Array {
    public:
        Array(const ClusterMap &map, const std::string &id) {
            checked(library().array_open(map.cluster_, map.path(id).c_str(), &array_));
        }
        Array(const Array &) = delete;
        Array &operator=(const Array &) = delete;
        ~Array() { library().array_free(array_); }
        std::string spec() const { return library().array_spec(array_); }
        std::size_t ndim() const { return library().array_ndim(array_); }
        const std::uint64_t *shape() const { return library().array_shape(array_); }
        void load(std::size_t ndim, const std::size_t *offsets, const std::size_t *counts,
                  void *data, std::size_t nbytes) const {
            checked(library().array_load(array_, ndim, offsets, counts, data, nbytes));
        }

    private:
        engram_cluster_array *array_ = nullptr;
    };

    static const ClusterLibrary &library() { return ClusterLibrary::get(); }
    static void checked(engram_status status) { library().check(status); }
    static std::string told(const std::string &id) { return "\"" + id + "\": "; }

    static std::vector<const char *> pointers(const std::vector<std::string> &texts) {
        std::vector<const char *> found;
        for (const auto &text : texts) found.push_back(text.c_str());
        return found;
    }

    std::string path(const std::string &id) const { return below_ + id; }

    bool is_there(const std::string &id) const {
        engram_cluster_array *array = nullptr;
        const engram_status done = library().array_open(cluster_, path(id).c_str(), &array);
        library().array_free(array);
        return done != ENGRAM_STATUS_NOT_FOUND;
    }

    void open(bool serves) {
        checked(library().open(name_.c_str(), nullptr, engram_engine(), &cluster_));
        if (serves) checked(library().serve(cluster_, nullptr, &node_));
    }

    void begin() {
        std::string token;
        peers_->each([&] {
            if (peers_->rank() != 0) return;
            token = library().text(
                [&](char **to) { return library().share_begin(cluster_, to, &share_); });
        });
        token = peers_->spread(token);
        peers_->each([&] {
            if (peers_->rank() == 0) return;
            const auto place = static_cast<std::uint32_t>(peers_->rank());
            checked(library().share_join(cluster_, token.c_str(), place, &share_));
        });
    }

    // Publishes, and ends this share. An error says that nothing was published, or of what nobody
    // knows whether it was. Where etcd or a node was away before anything was sealed, the share
    // goes on: what was stored can be published later.
    void publish_all() {
        const ClusterLibrary &own = library();
        bool is_sealing = false, is_asked = false;
        try {
            std::string told, plan, sealed;
            peers_->each([&] {
                if (is_forsaken_) {
                    throw engram::ArgumentError(
                        "an exception has ended what this rank did before it had stored all: "
                        "nothing is published");
                }
                told = own.text([&](char **to) { return own.share_told(share_, to); });
            });
            const auto all = peers_->gathered(told);
            peers_->each([&] {
                if (peers_->rank() != 0) return;
                const auto texts = pointers(all);
                plan = own.text([&](char **to) {
                    return own.share_plan(share_, texts.size(), texts.data(), to);
                });
            });
            const std::string line = peers_->dealt(lines_of(plan));
            is_sealing = true;
            peers_->each([&] {
                sealed = own.text(
                    [&](char **to) { return own.share_seal(share_, line.c_str(), to); });
            });
            const auto sums = peers_->gathered(sealed);
            is_asked = true;
            peers_->each([&] {
                if (peers_->rank() != 0) return;
                const auto texts = pointers(all), sealed_texts = pointers(sums);
                checked(own.share_publish(share_, texts.size(), texts.data(), plan.c_str(),
                                          sealed_texts.data()));
            });
        } catch (const engram::Error &error) {
            const std::string what = error.what();
            const bool passes = !is_forsaken_ && (what.find("CoordinatorError: ") < what.npos ||
                                                  what.find("NodeAwayError: ") < what.npos);
            // What may be published is not given back: its holder knows whether it has a name.
            if (is_sealing || !passes) end(is_asked);
            throw;
        }
        end(true);
    }

    void end(bool is_published) {
        library().share_free(share_, is_published);
        share_ = nullptr;
        is_forsaken_ = false;
    }

    static std::vector<std::string> lines_of(const std::string &text) {
        std::vector<std::string> lines;
        for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
            end = text.find('\n', at);
            lines.push_back(text.substr(at, end - at));
        }
        return lines;
    }

    void close() {
        library().node_free(node_);
        library().close(cluster_);
        node_ = nullptr;
        cluster_ = nullptr;
    }

public:
    // The type as a cluster has it.
    static std::string spec_of(const engram_dtype *dtype) {
        return engram::text_of([&](char **to) { return engram_dtype_spec(dtype, to); });
    }

private:
    std::string name_, below_;
    std::unique_ptr<Peers> peers_;
    engram_cluster *cluster_ = nullptr;
    engram_cluster_node *node_ = nullptr;
    engram_share *share_ = nullptr;
    bool is_forsaken_ = false;
    pid_t pid_ = getpid();
};

// A cluster that a PMEM has open. Where an exception ends the PMEM, nothing of it is published.
class ClusterHandle {
public:
    ClusterHandle() = default;
    ClusterHandle(std::shared_ptr<ClusterMap> map) : map_(std::move(map)) {}
    ClusterHandle(ClusterHandle &&) = default;
    ClusterHandle &operator=(ClusterHandle &&) = default;
    ~ClusterHandle() {
        if (map_ && std::uncaught_exceptions() > thrown_) map_->forsake();
    }
    explicit operator bool() const { return static_cast<bool>(map_); }
    ClusterMap *operator->() const { return map_.get(); }

private:
    std::shared_ptr<ClusterMap> map_;
    int thrown_ = std::uncaught_exceptions();
};

// Opens a cluster for a process alone. It publishes at its end at the latest, unless an exception
// ends it. What fails there ends the program: nobody would learn of it.
inline std::shared_ptr<ClusterMap> alone(const std::string &path) {
    return {new ClusterMap(path, std::make_unique<Alone>()), [](ClusterMap *map) {
                try {
                    if (!map->is_forsaken()) map->finish();
                } catch (const std::exception &error) {
                    std::fprintf(stderr, "engram: what was stored is not published: %s\n",
                                 error.what());
                    std::abort();
                }
                delete map;
            }};
}

} // namespace detail
} // namespace pmemcpy

#endif // PMEMCPY_CLUSTER_HPP
