// pMEMCPY's published interface (Logan, Lofstead and Kougkas, "pMEMCPY: a simple, lightweight, and
// portable I/O library for storing data in persistent memory", CLUSTER 2021), on an Engram pool.
//
//   pmemcpy::PMEM pmem;
//   pmem.mmap("/dev/shm/run", MPI_COMM_WORLD);             // collective; or mmap(path) without MPI
//   pmem.alloc<double>("A", 1, &dims);                     // by any rank, or by all at once
//   pmem.store<double>("A", data, 1, &offset, &count);     // this rank's part of the global array
//
// Ranks store and load disjoint parts of one array at once, with no lock, one copy and no
// communication. The values are in the pool when the call returns, even if the program then dies;
// `munmap` need not be called. An id may be a path ("step-1/T"): its groups are made.
//
// An error is thrown as an engram::Error. Its message has the id, what is stored and what was asked
// for. `mmap` with a communicator throws the same on every rank.
//
// Ranks of several nodes share a cluster: `pmem.mmap("engram://run", MPI_COMM_WORLD)`. Each stores
// into the pool of its own node. The values are visible to all when all ranks have called `publish`
// or `munmap`, or MPI_Finalize.
//
// Where MPI's header is not found, or with ENGRAM_NO_MPI defined, there is no MPI in here.
#ifndef PMEMCPY_PMEMCPY_HPP
#define PMEMCPY_PMEMCPY_HPP

#include "cluster.hpp"
#include "types.hpp"

#if !defined(ENGRAM_NO_MPI) && !defined(ENGRAM_PMEMCPY_MPI) && defined(__has_include)
#if __has_include(<mpi.h>)
#define ENGRAM_PMEMCPY_MPI 1
#endif
#endif
#ifdef ENGRAM_PMEMCPY_MPI
#include "ranks.hpp"
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace pmemcpy {

// A pool, as pMEMCPY sees it: ids, and their values. Many threads may use it at once, but only one
// while a cluster is published or closed.
class PMEM {
public:
    explicit PMEM(SerializerType serializer = SerializerType::Default) : serializer_(serializer) {}
    // The older form. Which storage was asked for makes no difference, nor does `use_mmap`.
    PMEM(StorageType, SerializerType serializer = SerializerType::Default, bool = true)
        : serializer_(serializer) {}

    // Sets the size in bytes of a pool that `mmap` makes. 0 is the size in the environment variable
    // ENGRAM_PMEMCPY_SIZE, such as "4 GiB"; without it, half of the space that the mount has free.
    void size(std::uint64_t size) { size_ = size; }

    // Opens the pool at a path, and makes it if there is none. Many processes may do so at once. If
    // the path is a cluster, "engram://NAME", this process publishes alone what it stores.
    void mmap(const std::string &path, std::uint64_t size = 0) {
        if (size) size_ = size;
        if (cluster_) munmap();
        if (detail::names_cluster(path)) {
            munmap();
            cluster_ = detail::alone(path);
        } else {
            open_or_create(path);
        }
    }

#ifdef ENGRAM_PMEMCPY_MPI
#ifdef PMEMCPY_MEMCPY_H
    // Where MPI_Comm is a number (MPICH), the older header's `mmap(path, 100)` means a size.
    template <class Comm, class = std::enable_if_t<std::is_same<Comm, MPI_Comm>::value &&
                                                   !std::is_integral<Comm>::value>>
    void mmap(const std::string &path, Comm comm) { mmap_all(path, comm); }
#else
    // The same for all ranks of a communicator. The ranks of a pool are on one node, those of a
    // cluster on any. Collective: an error on one rank is thrown on every rank. `publish` and
    // `munmap` of a cluster are collective too; no other call communicates.
    void mmap(const std::string &path, MPI_Comm comm) { mmap_all(path, comm); }
#endif
#endif

    // Publishes what all ranks have stored in a cluster; all of them call it together. In a pool
    // everything is there already.
    void publish() {
        if (cluster_) cluster_->publish();
    }

    // Closes the pool. What was stored is in the pool with or without this call. A cluster is
    // published and then closed, by all ranks together. If etcd or a node is away, the cluster
    // stays open, and munmap can be called again.
    void munmap() {
        if (cluster_) {
            cluster_->finish();
            cluster_ = detail::ClusterHandle();
            return;
        }
        root_.reset();
        if (pool_) engram::check(engram_pool_close(pool_.get()));
        (void)pool_.release();
    }

    // Removes the pool at a path with all that is in it; it must not be open.
    void release(const std::string &path) {
        if (detail::names_cluster(path)) {
            throw engram::UnsupportedError("release \"" + path + "\": a cluster is removed by "
                                           "`engram cluster stop` and its pools, not by a rank");
        }
        engram::check(engram_pool_destroy(path.c_str(), false));
    }

    // Makes the array of all ranks, with unset values. One rank may call it, or many at once. An
    // array of another type or other dims is an ExistsError. The serializer is that of the PMEM,
    // unless one is given here.
    template <class T>
    void alloc(const std::string &id, int ndims, const std::size_t *dims) {
        alloc<T>(id, ndims, dims, serializer_);
    }
    template <class T>
    void alloc(const std::string &id, int ndims, const std::size_t *dims,
               SerializerType serializer) {
        static_assert(detail::has_dtype<T>::value, "give the structure an ENGRAM_STRUCT");
        const std::size_t ndim = counted("alloc", id, ndims);
        if (cluster_) {
            raw_only("alloc", id, serializer);
            const engram_dtype *dtype = engram::dtype<T>::get();
            return in_cluster("alloc", id, [&] { cluster_->alloc(id, dtype, ndim, dims); });
        }
        const auto how = engram::taken<detail::OptionsHandle>(engram_options_new);
        engram::check(engram_options_unset(how.get(), true));
        keep_as(how.get(), ndim, serializer);
        engram_object *there = nullptr;
        checked("alloc", id, engram_array_require(root("alloc", id), id.c_str(),
                                                  engram::dtype<T>::get(), ndim, dims, how.get(),
                                                  &there));
        const detail::ObjectHandle object(there);
        if (ndim) expect_codec("alloc", id, there, detail::codec_of(serializer));
    }

    // Stores a single value under an id: the whole value, or nothing. It replaces a value of the
    // same type, or made by the same serializer. A SerializerType encodes the bytes that the
    // type's `pmemcpy::serializer` makes; a value of a fixed size has none, and is kept raw.
    template <class T>
    void store(const std::string &id, const T &value,
               SerializerType type = SerializerType::Default) {
        if constexpr (detail::has_serializer<T>::value) {
            put_saved(id, serializer<T>::save(value), type);
        } else if constexpr (detail::serializes<serializer<T>, T>::value) {
            put_written(id, value, serializer<T>(), type);
        } else {
            (void)detail::codec_of(type);
            put(id, &value, 0, nullptr, SerializerType::Default);
        }
    }

    // Stores a single value by a serializer of its own, which writes into memory of the pool: see
    // serializers.hpp. In a cluster its bytes are copied once.
    template <class T, class S, class = std::enable_if_t<detail::serializes<S, T>::value>>
    void store(const std::string &id, const T &value, const S &own) {
        put_written(id, value, own, SerializerType::Default);
    }

    // Stores a part of an array: from `offsets` on, `dimspp` items in each dimension. The array is
    // kept as `alloc` has said; another serializer here is refused.
    template <class T>
    void store(const std::string &id, const T *data, int ndims, const std::size_t *offsets,
               const std::size_t *dimspp, SerializerType serializer = SerializerType::Default) {
        if (cluster_) return store_in_cluster(id, data, ndims, offsets, dimspp, serializer);
        const auto object = opened<T>("store", id);
        expect_codec("store", id, object.get(), detail::codec_of(serializer));
        const std::size_t ndim = part("store", id, object.get(), ndims, offsets, dimspp);
        const std::size_t nbytes = sizeof(T) * product("store", id, ndim, dimspp);
        checked("store", id, engram_object_store(object.get(), ndim, offsets, dimspp, data, nbytes,
                                                 ENGRAM_FLUSH_ONCE));
    }

    // Stores a whole array (the older form), in place of one of the same type and dims.
    template <class T>
    void store(const std::string &id, const T *data, Dimensions dims) {
        put(id, data, counted("store", id, dims.ndims()), dims.data(), serializer_);
    }

    // Stores a part of an array of these dims (the older form), which is made if it is not there.
    template <class T>
    void store(const std::string &id, const T *data, Offsets offsets, Sizes sizes,
               Dimensions dims) {
        alloc<T>(id, dims.ndims(), dims.data());
        same_ndims("store", id, offsets, sizes, dims);
        store<T>(id, data, dims.ndims(), offsets.data(), sizes.data());
    }

    // Loads a single value.
    template <class T>
    T load(const std::string &id) {
        if constexpr (detail::has_serializer<T>::value) {
            const std::string bytes = get_saved(id);
            return serializer<T>::load(bytes.data(), bytes.size());
        } else if constexpr (detail::serializes<serializer<T>, T>::value) {
            return get_written<T>(id, serializer<T>());
        } else {
            T value;
            get(id, &value, 0, nullptr);
            return value;
        }
    }
    template <class T>
    void load(const std::string &id, T &value) { value = load<T>(id); }

    // Loads a single value by the serializer that has made it. What another one has made is an
    // ArgumentError.
    template <class T, class S, class = std::enable_if_t<detail::serializes<S, T>::value>>
    T load(const std::string &id, const S &own) { return get_written<T>(id, own); }
    template <class T, class S, class = std::enable_if_t<detail::serializes<S, T>::value>>
    void load(const std::string &id, T &value, const S &own) { value = get_written<T>(id, own); }

    // Loads a part of an array.
    template <class T>
    void load(const std::string &id, T *data, int ndims, const std::size_t *offsets,
              const std::size_t *dimspp) {
        if (cluster_) return load_of_cluster(id, data, ndims, offsets, dimspp);
        looked_up("load", id, [&] {
            const auto object = opened<T>("load", id);
            const std::size_t ndim = part("load", id, object.get(), ndims, offsets, dimspp);
            const std::size_t nbytes = sizeof(T) * product("load", id, ndim, dimspp);
            return engram_object_load(object.get(), ndim, offsets, dimspp, data, nbytes);
        });
    }

    // Loads a whole array of these dims, or a part of one (the older forms).
    template <class T>
    void load(const std::string &id, T *data, Dimensions dims) {
        get(id, data, counted("load", id, dims.ndims()), dims.data());
    }
    template <class T>
    void load(const std::string &id, T *data, Offsets offsets, Sizes sizes, Dimensions dims) {
        same_ndims("load", id, offsets, sizes, dims);
        if (cluster_) {
            expect_cluster_dims("load", id, counted("load", id, dims.ndims()), dims.data());
        } else {
            const auto object = opened<T>("load", id);
            expect_dims("load", id, object.get(), counted("load", id, dims.ndims()), dims.data());
        }
        load<T>(id, data, dims.ndims(), offsets.data(), sizes.data());
    }

    // Gives the number of dims of an array; and, unless `dims` is null, their lengths.
    void load_dims(const std::string &id, int *ndims, std::size_t *dims) {
        if (cluster_) {
            const auto found = cluster_dims("load_dims", id);
            *ndims = static_cast<int>(found.size());
            for (std::size_t dim = 0; dims && dim < found.size(); ++dim) dims[dim] = found[dim];
            return;
        }
        const auto object = any("load_dims", id);
        *ndims = static_cast<int>(engram_object_ndim(object.get()));
        const std::uint64_t *shape = engram_object_shape(object.get());
        for (int dim = 0; dims && dim < *ndims; ++dim) dims[dim] = shape[dim];
    }

    // Removes the value of an id. It is no error if the id has none.
    void free(const std::string &id) {
        if (cluster_) return in_cluster("free", id, [&] { cluster_->free(id); });
        const engram_status done = engram_delete(root("free", id), id.c_str());
        if (done != ENGRAM_STATUS_NOT_FOUND) checked("free", id, done);
    }

private:
    // Runs something of a cluster, whose errors are told as those of a pool are.
    template <class Work>
    static void in_cluster(const char *doing, const std::string &id, Work &&work) {
        if (id.find('\0') != std::string::npos) {
            throw engram::InvalidNameError(told(doing, id.c_str()) + "the id has a NUL byte");
        }
        try {
            work();
        } catch (const Error &error) {
            said(doing, id, error.status(), error.what());
        }
    }

    static void raw_only(const char *doing, const std::string &id, SerializerType serializer) {
        if (const char *codec = detail::codec_of(serializer)) {
            throw engram::UnsupportedError(told(doing, id) + "a cluster keeps arrays raw, and " +
                                           codec + " was asked for");
        }
    }

    template <class T>
    void store_in_cluster(const std::string &id, const T *data, int ndims,
                          const std::size_t *offsets, const std::size_t *dimspp,
                          SerializerType serializer) {
        static_assert(detail::has_dtype<T>::value, "give the structure an ENGRAM_STRUCT");
        raw_only("store", id, serializer);
        const std::size_t ndim = counted("store", id, ndims);
        const std::size_t nbytes = sizeof(T) * product("store", id, ndim, dimspp);
        const engram_dtype *dtype = engram::dtype<T>::get();
        in_cluster("store", id, [&] {
            cluster_->store(id, dtype, data, nbytes, ndim, offsets, dimspp);
        });
    }

    template <class T>
    void load_of_cluster(const std::string &id, T *data, int ndims, const std::size_t *offsets,
                         const std::size_t *dimspp) {
        static_assert(detail::has_dtype<T>::value, "give the structure an ENGRAM_STRUCT");
        const std::size_t ndim = counted("load", id, ndims);
        const std::size_t nbytes = sizeof(T) * product("load", id, ndim, dimspp);
        const std::string spec = detail::ClusterMap::spec_of(engram::dtype<T>::get());
        in_cluster("load", id, [&] {
            cluster_->load(id, spec, data, nbytes, ndim, offsets, dimspp);
        });
    }

    std::vector<std::uint64_t> cluster_dims(const char *doing, const std::string &id) const {
        std::vector<std::uint64_t> found;
        in_cluster(doing, id, [&] { found = cluster_->dims(id); });
        return found;
    }

    void expect_cluster_dims(const char *doing, const std::string &id, std::size_t ndim,
                             const std::size_t *dims) const {
        const auto found = cluster_dims(doing, id);
        if (found == std::vector<std::uint64_t>(dims, dims + ndim)) return;
        throw engram::ArgumentError(told(doing, id) + "what is stored has dims " +
                                    detail::shown(found.size(), found.data()) + ", and " +
                                    detail::shown(ndim, dims) + " were asked for");
    }

    static std::string told(const char *doing, const std::string &id) {
        return std::string(doing) + " \"" + id + "\": ";
    }

    static void checked(const char *doing, const std::string &id, engram_status status) {
        if (status != ENGRAM_STATUS_OK) said(doing, id, status, engram_last_error());
    }

    [[noreturn]] static void said(const char *doing, const std::string &id, engram_status status,
                                  const std::string &what) {
        const bool named = what.rfind('"' + id + "\": ", 0) == 0;  // it begins with the id itself
        engram::raise(status, (named ? std::string(doing) + " " : told(doing, id)) + what);
    }

    // The pool's root, for something under an id.
    const engram_group *root(const char *doing, const std::string &id) const {
        if (!root_) {
            throw engram::ArgumentError(told(doing, id) + "no pool is open: call mmap first");
        }
        if (id.find('\0') != std::string::npos) {  // C would take what comes before it
            throw engram::InvalidNameError(told(doing, id.c_str()) + "the id has a NUL byte");
        }
        return root_.get();
    }

    static std::size_t counted(const char *doing, const std::string &id, int ndims) {
        if (ndims < 0) {
            throw engram::ArgumentError(told(doing, id) + std::to_string(ndims) +
                                        " dims were given");
        }
        return static_cast<std::size_t>(ndims);
    }

    static std::size_t product(const char *doing, const std::string &id, std::size_t ndim,
                               const std::size_t *lengths) {
        if (ndim > 0 && lengths == nullptr) {
            throw engram::ArgumentError(told(doing, id) + "dims are NULL");
        }
        std::size_t all = 1;
        for (std::size_t dim = 0; dim < ndim; ++dim) all *= lengths[dim];
        return all;
    }

    static void same_ndims(const char *doing, const std::string &id, const Offsets &offsets,
                           const Sizes &sizes, const Dimensions &dims) {
        if (offsets.ndims() != dims.ndims() || sizes.ndims() != dims.ndims()) {
            throw engram::ArgumentError(
                told(doing, id) + std::to_string(offsets.ndims()) + " offsets, " +
                std::to_string(sizes.ndims()) + " sizes and " + std::to_string(dims.ndims()) +
                " dims were given");
        }
    }

    detail::ObjectHandle any(const char *doing, const std::string &id) const {
        engram_object *found = nullptr;
        checked(doing, id, engram_object_open(root(doing, id), id.c_str(), &found));
        return detail::ObjectHandle(found);
    }

    // What is under an id, of this type.
    template <class T>
    detail::ObjectHandle opened(const char *doing, const std::string &id) const {
        static_assert(detail::has_dtype<T>::value,
                      "give the structure an ENGRAM_STRUCT, or specialise pmemcpy::serializer");
        auto object = any(doing, id);
        const engram_dtype *stored = engram_object_dtype(object.get());
        const engram_dtype *asked = engram::dtype<T>::get();
        const bool array = engram_object_kind(object.get()) == ENGRAM_MEMBER_KIND_ARRAY;
        if (!array || !engram_dtype_equal(stored, asked)) {
            throw engram::ArgumentError(told(doing, id) + "what is stored is " +
                                        detail::kind_of(object.get()) + ", and " +
                                        detail::shown(asked) + " was asked for");
        }
        return object;
    }

    static void expect_dims(const char *doing, const std::string &id, const engram_object *object,
                            std::size_t ndim, const std::size_t *dims) {
        const std::size_t stored = engram_object_ndim(object);
        const std::uint64_t *shape = engram_object_shape(object);
        bool same = stored == ndim;
        for (std::size_t dim = 0; same && dim < ndim; ++dim) same = shape[dim] == dims[dim];
        if (!same) {
            throw engram::ArgumentError(told(doing, id) + "what is stored has dims " +
                                        detail::shown(stored, shape) + ", and " +
                                        detail::shown(ndim, dims) + " were asked for");
        }
    }

    // Checks a part's number of dims, so that no more is read of the caller's than is there.
    static std::size_t part(const char *doing, const std::string &id, const engram_object *object,
                            int ndims, const std::size_t *offsets, const std::size_t *dimspp) {
        const std::size_t ndim = counted(doing, id, ndims);
        if (ndim != engram_object_ndim(object)) {
            throw engram::ArgumentError(
                told(doing, id) + "what is stored has dims " +
                detail::shown(engram_object_ndim(object), engram_object_shape(object)) +
                ", and a part of " + std::to_string(ndim) + " dims was asked for: offsets " +
                detail::shown(ndim, offsets) + ", counts " + detail::shown(ndim, dimspp));
        }
        return ndim;
    }

    // Whether something is there already, which may only be replaced by what is like it.
    bool there(const std::string &id) const {
        engram_member_kind kind = ENGRAM_MEMBER_KIND_NOTHING;
        checked("store", id, engram_lookup(root("store", id), id.c_str(), nullptr, &kind));
        return kind != ENGRAM_MEMBER_KIND_NOTHING;
    }

    // Has a new array kept in chunks, if a serializer asks for that.
    static void keep_as(engram_options *how, std::size_t ndim, SerializerType serializer) {
        const char *codec = detail::codec_of(serializer);
        if (codec && ndim) engram::check(engram_options_chunks(how, 0, nullptr, codec));
    }

    static void expect_codec(const char *doing, const std::string &id,
                             const engram_object *object, const char *codec) {
        const std::string kept = engram_object_codec(object);
        if (!codec || kept == codec) return;
        const bool making = std::string(doing) == "alloc";
        throw engram::ArgumentError(told(doing, id) + "what is stored is kept " +
                                    (kept.empty() ? "raw" : "as " + kept) + ", and " + codec +
                                    " was asked for: " +
                                    (making ? "use that, or free the id first"
                                            : "give the serializer to alloc"));
    }

    static detail::OptionsHandle replacing() {
        auto how = engram::taken<detail::OptionsHandle>(engram_options_new);
        engram::check(engram_options_overwrite(how.get(), true));
        return how;
    }

    template <class T>
    void put(const std::string &id, const T *data, std::size_t ndim, const std::size_t *dims,
             SerializerType serializer) {
        static_assert(detail::has_dtype<T>::value,
                      "give the structure an ENGRAM_STRUCT, or specialise pmemcpy::serializer");
        if (cluster_) {
            raw_only("store", id, serializer);
            const std::string spec = detail::ClusterMap::spec_of(engram::dtype<T>::get());
            const std::size_t all = sizeof(T) * product("store", id, ndim, dims);
            return in_cluster("store", id,
                              [&] { cluster_->put(id, spec, data, all, ndim, dims); });
        }
        if (there(id)) {
            expect_dims("store", id, opened<T>("store", id).get(), ndim, dims);
        }
        const std::size_t nbytes = sizeof(T) * product("store", id, ndim, dims);
        const auto how = replacing();
        keep_as(how.get(), ndim, serializer);
        checked("store", id,
                engram_array_put(root("store", id), id.c_str(), engram::dtype<T>::get(), ndim, dims,
                                 data, nbytes, how.get(), nullptr));
    }

    template <class T>
    void get(const std::string &id, T *data, std::size_t ndim, const std::size_t *dims) {
        if (cluster_) {
            if (ndim) expect_cluster_dims("load", id, ndim, dims);
            const std::vector<std::size_t> zeros(ndim);
            return load_of_cluster(id, data, static_cast<int>(ndim), zeros.data(), dims);
        }
        looked_up("load", id, [&] {
            const auto object = opened<T>("load", id);
            expect_dims("load", id, object.get(), ndim, dims);
            const std::size_t nbytes = sizeof(T) * product("load", id, ndim, dims);
            return engram_object_read(object.get(), data, nbytes);
        });
    }

    // Looks something up and reads it; again where another process replaced it in between: then
    // what was found is gone. A name that is gone is told by looking it up.
    template <class Read>
    static void looked_up(const char *doing, const std::string &id, Read read) {
        const int tries_max = 100;
        engram_status status = read();
        const auto replaced = [&] {
            return status == ENGRAM_STATUS_BUSY || status == ENGRAM_STATUS_NOT_FOUND;
        };
        for (int tries = 1; replaced() && tries < tries_max; ++tries) {
            status = read();
        }
        checked(doing, id, status);
    }

    // Checks that something is what a serializer makes: bytes of its type, or by `save` a blob.
    static void expect_made(const char *doing, const std::string &id, const engram_object *object,
                            const std::string &name) {
        const auto dtype = detail::made_by(name);
        const engram_member_kind kind = engram_object_kind(object);
        if (name.empty() && kind == ENGRAM_MEMBER_KIND_BLOB) return;
        if (kind == ENGRAM_MEMBER_KIND_ARRAY && engram_object_ndim(object) == 1 &&
            engram_dtype_equal(engram_object_dtype(object), dtype.get())) {
            return;
        }
        throw engram::ArgumentError(told(doing, id) + "what is stored is " +
                                    detail::kind_of(object) + ", and what " +
                                    (name.empty() ? "a serializer"
                                                  : "the serializer \"" + name + "\"") +
                                    " makes was asked for");
    }

    template <class S>
    static std::string named(const char *doing, const std::string &id, const S &own) {
        const std::string name(own.name);
        if (name.empty() || name.find('\0') != std::string::npos) {
            throw engram::ArgumentError(told(doing, id) + "the serializer's name is empty, or has "
                                        "a NUL byte");
        }
        return name;
    }

    static std::string who(const char *doing, const std::string &id, const std::string &name) {
        return told(doing, id) + "the serializer \"" + name + "\" ";
    }

    // Stores bytes that a serializer has made, in chunks that are encoded.
    void put_encoded(const std::string &id, const std::string &name, const std::string &bytes,
                     SerializerType type) {
        const auto how = replacing();
        const std::uint64_t nbytes = bytes.size();
        keep_as(how.get(), 1, type);
        checked("store", id,
                engram_array_put(root("store", id), id.c_str(), detail::made_by(name).get(), 1,
                                 &nbytes, bytes.data(), nbytes, how.get(), nullptr));
    }

    void put_in_cluster(const std::string &id, const std::string &spec, const std::string &bytes) {
        const std::size_t nbytes = bytes.size();
        in_cluster("store", id, [&] { cluster_->put(id, spec, bytes.data(), nbytes, 1, &nbytes); });
    }

    // All bytes of something in a cluster that a serializer has made.
    std::string get_of_cluster(const std::string &id, const std::string &spec) const {
        const auto dims = cluster_dims("load", id);
        const std::size_t zero = 0, nbytes = dims.size() == 1 ? dims[0] : 0;
        std::string bytes(nbytes, '\0');
        in_cluster("load", id,
                   [&] { cluster_->load(id, spec, &bytes[0], nbytes, 1, &zero, &nbytes); });
        return bytes;
    }

    void put_saved(const std::string &id, const std::string &bytes, SerializerType type) {
        if (cluster_) {
            raw_only("store", id, type);
            return put_in_cluster(id, BLOB, bytes);
        }
        if (there(id)) expect_made("store", id, any("store", id).get(), "");
        if (detail::codec_of(type)) return put_encoded(id, "", bytes, type);
        checked("store", id, engram_blob_put(root("store", id), id.c_str(), bytes.data(),
                                             bytes.size(), replacing().get(), nullptr));
    }

    std::string get_saved(const std::string &id) const {
        if (cluster_) return get_of_cluster(id, BLOB);
        std::string bytes;
        looked_up("load", id, [&] {
            const auto object = any("load", id);
            expect_made("load", id, object.get(), "");
            bytes.resize(engram_object_nbytes(object.get()));
            return engram_object_read(object.get(), &bytes[0], bytes.size());
        });
        return bytes;
    }

    template <class T, class S>
    void put_written(const std::string &id, const T &value, const S &own, SerializerType type) {
        const std::string name = named("store", id, own);
        if (cluster_) {
            raw_only("store", id, type);
        } else if (there(id)) {
            expect_made("store", id, any("store", id).get(), name);
        }
        const auto dtype = detail::made_by(name);
        const std::uint64_t nbytes = own.size(value);
        const auto fill = [&](void *memory) {
            Output into(memory, nbytes, who("store", id, name));
            own.write(value, into);
            into.end();
        };
        if (cluster_ || detail::codec_of(type)) {
            std::string bytes(nbytes, '\0');
            fill(&bytes[0]);
            if (!cluster_) return put_encoded(id, name, bytes, type);
            return put_in_cluster(id, detail::ClusterMap::spec_of(dtype.get()), bytes);
        }
        engram_allocation *given = nullptr;
        checked("store", id, engram_array_allocate(root("store", id), id.c_str(), dtype.get(), 1,
                                                   &nbytes, replacing().get(), &given));
        detail::AllocationHandle space(given);
        fill(engram_allocation_data(given));
        checked("store", id, engram_allocation_publish(space.release(), nullptr));
    }

    template <class T, class S>
    T get_written(const std::string &id, const S &own) const {
        const std::string name = named("load", id, own);
        std::string bytes;
        detail::ViewHandle view;
        if (cluster_) {
            bytes = get_of_cluster(id, detail::ClusterMap::spec_of(detail::made_by(name).get()));
        } else {
            looked_up("load", id, [&] {
                const auto object = any("load", id);
                expect_made("load", id, object.get(), name);
                if (*engram_object_codec(object.get())) {
                    bytes.resize(engram_object_nbytes(object.get()));
                    return engram_object_read(object.get(), &bytes[0], bytes.size());
                }
                engram_view *given = nullptr;
                const engram_status done = engram_object_view(object.get(), false, &given);
                view.reset(given);
                return done;
            });
        }
        Input from(view ? engram_view_data(view.get()) : bytes.data(),
                   view ? engram_view_nbytes(view.get()) : bytes.size(), who("load", id, name));
        return T(own.read(from));
    }

    std::uint64_t size_of(const std::string &path) const {
        if (size_) return size_;
        if (const char *said = std::getenv("ENGRAM_PMEMCPY_SIZE")) return detail::bytes_of(said);
        const struct statvfs mount = detail::mount_of(path);
        return std::uint64_t{mount.f_bavail} * mount.f_frsize / 2;
    }

    static bool forced() {
        const char *said = std::getenv("ENGRAM_PMEMCPY_FORCE");
        return said && *said && std::string(said) != "0";
    }

    engram_status open(const std::string &path) {
        engram_pool *pool = nullptr;
        engram_status status =
            engram_pool_open(path.c_str(), ENGRAM_OPEN_MODE_READ_WRITE, forced(), &pool);
        return status == ENGRAM_STATUS_OK ? take(pool) : status;
    }

    engram_status create(const std::string &path) {
        engram_pool_options *how = nullptr;
        engram::check(engram_pool_options_new(&how));
        const engram::Owned<engram_pool_options, engram_pool_options_free> freed(how);
        engram::check(engram_pool_options_force(how, forced()));
        engram_pool *pool = nullptr;
        engram_status status = engram_pool_create(path.c_str(), size_of(path), how, &pool);
        return status == ENGRAM_STATUS_OK ? take(pool) : status;
    }

    engram_status take(engram_pool *pool) {
        detail::PoolHandle opened(pool);
        engram_group *root = nullptr;
        const engram_status status = engram_namespace_open(pool, nullptr, &root);
        if (status == ENGRAM_STATUS_OK) {
            munmap();
            pool_ = std::move(opened);
            root_.reset(root);
        }
        return status;
    }

    // Opens the pool, made if there is none. While another makes it, what is there is no pool yet,
    // and the name is taken: that passes, or it is the error.
    void open_or_create(const std::string &path) {
        for (int tries = 0;; ++tries) {
            engram_status done = open(path);
            if (done == ENGRAM_STATUS_OK) return;
            std::string said = engram_last_error();
            // An empty folder is no pool, and a pool can be made there.
            if (done == ENGRAM_STATUS_NOT_FOUND || done == ENGRAM_STATUS_FORMAT) {
                const engram_status made = create(path);
                if (made == ENGRAM_STATUS_OK) return;
                if (done == ENGRAM_STATUS_NOT_FOUND || made != ENGRAM_STATUS_EXISTS) {
                    done = made;
                    said = engram_last_error();
                }
            }
            const bool passes = done == ENGRAM_STATUS_FORMAT || done == ENGRAM_STATUS_EXISTS;
            if (!passes || tries == 100) {
                engram::raise(done, "mmap \"" + path + "\": " + said);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }

#ifdef ENGRAM_PMEMCPY_MPI
    void mmap_all(const std::string &path, MPI_Comm comm) {
        // A cluster is left by all ranks together, before they do anything else.
        if (cluster_) munmap();
        if (detail::names_cluster(path)) {
            munmap();
            cluster_ = detail::of_ranks(path, comm);
            return;
        }
        int rank = 0, ranks = 0, here = 0;
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &ranks);
        MPI_Comm node;
        MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
        MPI_Comm_size(node, &here);
        MPI_Comm_free(&node);
        detail::each_rank(comm, [&] {
            if (here != ranks) {
                throw engram::UnsupportedError(
                    "mmap \"" + path + "\": a pool is a node's, and of the communicator's " +
                    std::to_string(ranks) + " ranks " + std::to_string(here) +
                    " are on this one: name a cluster, such as engram://run, or give one of "
                    "a node's ranks (MPI_Comm_split_type with MPI_COMM_TYPE_SHARED)");
            }
        });
        // One makes the pool, the others find it.
        detail::each_rank(comm, [&] { if (rank == 0) open_or_create(path); });
        try {
            detail::each_rank(comm, [&] { if (rank != 0) open_or_create(path); });
        } catch (...) {
            munmap();
            throw;
        }
    }
#endif

    // What a serializer makes, as a cluster has it: bytes that are no numbers.
    static constexpr const char *BLOB = "|V1";

    SerializerType serializer_;
    std::uint64_t size_ = 0;
    detail::PoolHandle pool_;
    detail::GroupHandle root_;
    detail::ClusterHandle cluster_;
};

} // namespace pmemcpy

#endif // PMEMCPY_PMEMCPY_HPP
