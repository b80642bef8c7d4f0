// Engram for C++20: handles that free themselves, exceptions by kind, views on the pool's memory.
//
//   auto pool = engram::Pool::create("/dev/shm/run", 4ull << 30);
//   auto t = pool.root().create<double>("step-1/T", {ny, nx});
//   t.store<double>({y0, 0}, {64, nx}, block);         // a box of it, in place, with no lock
//   engram::View<const double> v = t.view<double>();   // on the pool's own memory, no copy
//   double sum = v[{3, 4}] + v.span()[0];
//
// Each call is one of engram.h, whose conventions hold: what fails throws an engram::Error.
#ifndef ENGRAM_HPP
#define ENGRAM_HPP

#if __cplusplus < 202002L
#error "engram.hpp is C++20: -std=c++20; with CMake, target_compile_features(... cxx_std_20)"
#endif

#include "engram/base.hpp"

#include <concepts>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace engram {

// What may be kept in arrays: numbers, and structures with an ENGRAM_STRUCT.
template <class T>
concept Stored = !std::is_array_v<T> && std::is_trivially_copyable_v<T> && requires {
    { dtype<T>::get() } -> std::same_as<const engram_dtype *>;
};

// A view: memory of the pool as an array of any number of dimensions, in C order. It stays valid
// until its last copy is destroyed, even if the object is deleted or replaced.
template <class T>
class View {
public:
    using Held = std::shared_ptr<void>;
    View(Held held, T *data, Shape shape)
        : held_(std::move(held)), data_(data), shape_(std::move(shape)) {}

    T *data() const { return data_; }
    const Shape &shape() const { return shape_; }
    std::size_t ndim() const { return shape_.size(); }
    std::uint64_t extent(std::size_t dim) const { return shape_.at(dim); }
    // How many items lie between two neighbours in a dimension.
    std::uint64_t stride(std::size_t dim) const {
        return product(std::span(shape_).subspan(dim + 1));
    }
    std::size_t size() const { return product(shape_); }
    std::span<T> span() const { return {data_, size()}; }
    T *begin() const { return data_; }
    T *end() const { return data_ + size(); }
    // One item: v[{2, 3}], or v(2, 3). Its place is not checked, as in std::span.
    T &operator[](std::initializer_list<std::uint64_t> place) const { return data_[offset(place)]; }
    template <std::integral... I>
    T &operator()(I... place) const {
        return data_[offset({static_cast<std::uint64_t>(place)...})];
    }
    // The part with one place of the first dimension: a row of a matrix.
    View row(std::uint64_t place) const {
        return View(held_, data_ + place * stride(0), Shape(shape_.begin() + 1, shape_.end()));
    }

private:
    static std::size_t product(std::span<const std::uint64_t> lengths) {
        return std::accumulate(lengths.begin(), lengths.end(), std::size_t{1}, std::multiplies<>());
    }
    std::size_t offset(std::initializer_list<std::uint64_t> place) const {
        std::size_t offset = 0, dim = 0;
        for (auto p : place) offset = offset * shape_[dim++] + p;
        return offset;
    }
    Held held_;
    T *data_;
    Shape shape_;
};

// An array or a blob.
class Object {
public:
    using Handle = Owned<engram_object, engram_object_free>;
    explicit Object(Handle handle) : handle_(std::move(handle)) {}
    engram_object *get() const { return handle_.get(); }
    std::uint64_t oid() const { return engram_object_oid(get()); }
    engram_member_kind kind() const { return engram_object_kind(get()); }
    std::string name() const { return engram_object_name(get()); }
    std::string path() const {
        return text_of([&](char **out) { return engram_object_path(get(), out); });
    }
    std::uint64_t nbytes() const { return engram_object_nbytes(get()); }
    Shape shape() const {
        const std::uint64_t *first = engram_object_shape(get());
        return Shape(first, first + engram_object_ndim(get()));
    }
    // The shape of a chunk and how each is encoded; empty for an array in one piece.
    Shape chunks() const {
        const std::uint64_t *first = engram_object_chunks(get());
        return first ? Shape(first, first + engram_object_ndim(get())) : Shape();
    }
    std::string codec() const { return engram_object_codec(get()); }
    // The type as numpy writes it, such as "float64".
    std::string dtype_text() const {
        const auto *own = engram_object_dtype(get());
        return text_of([&](char **out) { return engram_dtype_text(own, out); });
    }
    template <Stored T>
    bool holds() const { return engram_dtype_equal(engram_object_dtype(get()), dtype<T>::get()); }

    // Copies a box out, or in, in place, with no lock. Others may store disjoint boxes at once.
    template <Stored T>
    void load(const Shape &offsets, const Shape &counts, std::span<T> data) const {
        expect<T>(offsets, counts);
        check(engram_object_load(get(), counts.size(), offsets.data(), counts.data(), data.data(),
                                 data.size_bytes()));
    }
    template <Stored T>
    void store(const Shape &offsets, const Shape &counts, std::span<const T> data,
               engram_flush flush = ENGRAM_FLUSH_ONCE) const {
        expect<T>(offsets, counts);
        check(engram_object_store(get(), counts.size(), offsets.data(), counts.data(), data.data(),
                                  data.size_bytes(), flush));
    }
    // For a chunked array: changes the shape, with zeros where it grows; appends along a dimension.
    void resize(const Shape &shape) {
        check(engram_array_resize(get(), shape.size(), shape.data()));
    }
    template <Stored T>
    void append(std::size_t axis, const Shape &counts, std::span<const T> data) {
        expect<T>();
        check(engram_array_append(get(), axis, counts.size(), counts.data(), data.data(),
                                  data.size_bytes()));
    }
    // A copy of the whole value.
    template <Stored T>
    std::vector<T> read() const {
        expect<T>();
        std::vector<T> all(nbytes() / sizeof(T));
        check(engram_object_read(get(), all.data(), all.size() * sizeof(T)));
        return all;
    }
    // The value as memory of the pool: for reading, or for writing in place.
    template <Stored T>
    View<const T> view() const { return view_as<const T>(false); }
    template <Stored T>
    View<T> view_to_write() const { return view_as<T>(true); }
    void flush() const { check(engram_object_flush(get())); }

private:
    template <class T>
    void expect() const {
        if (!holds<T>()) {
            const std::string asked =
                text_of([](char **out) { return engram_dtype_text(dtype<T>::get(), out); });
            throw ArgumentError("\"" + path() + "\" is " + dtype_text() + ", and " + asked +
                                " was asked for: use the type that it has");
        }
    }
    template <class T>
    void expect(const Shape &offsets, const Shape &counts) const {
        expect<T>();
        if (offsets.size() != counts.size()) {
            throw ArgumentError("\"" + path() + "\": " + std::to_string(offsets.size()) +
                                " offsets and " + std::to_string(counts.size()) +
                                " counts were given");
        }
    }
    template <class T>
    View<T> view_as(bool write) const {
        expect<std::remove_const_t<T>>();
        auto view = taken<Owned<engram_view, engram_view_free>>(
            [&](auto **out) { return engram_object_view(get(), write, out); });
        auto *data = static_cast<T *>(engram_view_data(view.get()));
        return View<T>(std::shared_ptr<void>(std::move(view)), data, shape());
    }
    Handle handle_;
};

// Space to fill. It is published, or given back by the destructor.
template <Stored T>
class Allocation {
public:
    using Handle = Owned<engram_allocation, engram_allocation_abandon>;
    Allocation(Handle handle, Shape shape) : handle_(std::move(handle)), shape_(std::move(shape)) {}
    T *data() const { return static_cast<T *>(engram_allocation_data(handle_.get())); }
    std::span<T> span() const {
        return {data(), engram_allocation_nbytes(handle_.get()) / sizeof(T)};
    }
    // Valid as long as this allocation.
    View<T> view() const { return View<T>(nullptr, data(), shape_); }
    Object publish() && {
        engram_object *made = nullptr;
        check(engram_allocation_publish(handle_.release(), &made));
        return Object(Object::Handle(made));
    }

private:
    Handle handle_;
    Shape shape_;
};

// How arrays and blobs are made: `Options().overwrite().dims({"y", "x"})`.
class Options {
public:
    Options() : made_(taken<decltype(made_)>(engram_options_new)) {}
    Options &&overwrite() && { return with(engram_options_overwrite(made_.get(), true)); }
    Options &&unset() && { return with(engram_options_unset(made_.get(), true)); }
    Options &&scope(engram_scope who) && { return with(engram_options_scope(made_.get(), who)); }
    Options &&dims(const std::vector<const char *> &names) && {
        return with(engram_options_dims(made_.get(), names.size(), names.data()));
    }
    // Chunks of this shape, or of a shape that Engram chooses; "lz4", "zstd:9", "shuffle+lz4" ...
    Options &&chunks(const std::vector<std::uint64_t> &shape, const char *codec = "none") && {
        return with(engram_options_chunks(made_.get(), shape.size(), shape.data(), codec));
    }
    const engram_options *get() const { return made_.get(); }

private:
    Options &&with(engram_status status) { return check(status), std::move(*this); }
    Owned<engram_options, engram_options_free> made_;
};

// Begins a batch. What is not committed when the batch is destroyed is undone.
class Batch {
public:
    explicit Batch(const engram_group *group)
        : made_(taken<decltype(made_)>([&](auto **to) { return engram_batch_begin(group, to); })) {}
    void commit() { check(engram_batch_commit(made_.release())); }

private:
    Owned<engram_batch, engram_batch_abort> made_;
};

// Names, paths or keys.
template <class Call>
std::vector<std::string> texts_of(Call &&call) {
    const auto list = taken<Owned<engram_list, engram_list_free>>(std::forward<Call>(call));
    std::vector<std::string> all(engram_list_len(list.get()));
    for (std::size_t at = 0; at < all.size(); ++at) {
        const char *text = nullptr;
        check(engram_list_at(list.get(), at, &text, nullptr, nullptr));
        all[at] = text;
    }
    return all;
}

struct Watch { // paths of what has come; none if the time is up, or after a signal
    Owned<engram_watch, engram_watch_free> handle;
    std::vector<std::string> wait(double seconds = -1.0) const {
        return texts_of([&](auto **out) { return engram_watch_wait(handle.get(), seconds, out); });
    }
};
template <class T> struct item_of { using type = void *; };
template <class T> struct item_of<std::vector<T>> { using type = T; };

// A group. A member is named by its path. Attributes at "" are those of the group itself.
class Group {
public:
    using Handle = Owned<engram_group, engram_group_free>;
    using Path = const std::string &;
    explicit Group(Handle handle) : handle_(std::move(handle)) {}
    engram_group *get() const { return handle_.get(); }

    Group require_group(Path path) const { return Group(call<Handle>(engram_group_require, path)); }
    Group open_group(Path path) const { return Group(call<Handle>(engram_group_open, path)); }
    Object open(Path path) const { return Object(call<Object::Handle>(engram_object_open, path)); }
    // Makes an array of zeros. `require` gives an array that exists, if it has this type and shape.
    template <Stored T>
    Object create(Path path, const Shape &shape, const Options &how = {}) const {
        return Object(call<Object::Handle>(engram_array_create, path, dtype<T>::get(), shape.size(),
                                           shape.data(), how.get()));
    }
    template <Stored T>
    Object require(Path path, const Shape &shape, const Options &how = {}) const {
        return Object(call<Object::Handle>(engram_array_require, path, dtype<T>::get(),
                                           shape.size(), shape.data(), how.get()));
    }
    // Stores a whole value, which is visible to all when this returns.
    template <Stored T>
    Object put(Path path, const Shape &shape, std::span<const T> data,
               const Options &how = {}) const {
        return Object(call<Object::Handle>(engram_array_put, path, dtype<T>::get(), shape.size(),
                                           shape.data(), data.data(), data.size_bytes(),
                                           how.get()));
    }
    Object put_blob(Path path, std::string_view bytes, const Options &how = {}) const {
        return Object(
            call<Object::Handle>(engram_blob_put, path, bytes.data(), bytes.size(), how.get()));
    }
    template <Stored T>
    Allocation<T> allocate(Path path, const Shape &shape, const Options &how = {}) const {
        return {call<typename Allocation<T>::Handle>(engram_array_allocate, path, dtype<T>::get(),
                                                     shape.size(), shape.data(), how.get()), shape};
    }
    bool contains(Path path) const {
        auto kind = ENGRAM_MEMBER_KIND_NOTHING;
        check(engram_lookup(get(), path.c_str(), nullptr, &kind));
        return kind != ENGRAM_MEMBER_KIND_NOTHING;
    }
    std::vector<std::string> names() const {
        return texts_of([&](auto **out) { return engram_group_list(get(), out); });
    }
    // Gives the paths of the objects below this group that match a query.
    std::vector<std::string> query(Path text) const {
        return texts_of([&](auto **out) { return engram_query(get(), text.c_str(), out); });
    }
    Watch watch(Path text, bool existing = false) const {
        return {call<decltype(Watch::handle)>(engram_watch_begin, text, existing)};
    }
    void remove(Path path) const { check(engram_delete(get(), path.c_str())); }
    void move(Path old, Path path) const {
        check(engram_move(get(), old.c_str(), get(), path.c_str()));
    }
    // Attributes of the member at a path: single values, strings, arrays of one dimension.
    template <Stored T>
    void set(Path path, Path key, const T &value) const {
        check(engram_attr_set(get(), path.c_str(), key.c_str(), dtype<T>::get(), 0, nullptr, &value,
                              sizeof value));
    }
    void set(Path path, Path key, const std::string &text) const {
        check(engram_attr_set_text(get(), path.c_str(), key.c_str(), text.data(), text.size()));
    }
    template <Stored T>
    void set(Path path, Path key, const std::vector<T> &all) const {
        const std::uint64_t length = all.size();
        check(engram_attr_set(get(), path.c_str(), key.c_str(), dtype<T>::get(), 1, &length,
                              all.data(), length * sizeof(T)));
    }
    // A single value, a string, or all items of an array as a vector.
    template <class T>
    T attr(Path path, Path key) const {
        const auto own = call<Owned<engram_attribute, engram_attribute_free>>(engram_attr_get, path,
                                                                              key.c_str());
        const char *data = static_cast<const char *>(engram_attribute_data(own.get()));
        const std::size_t nbytes = engram_attribute_nbytes(own.get());
        if constexpr (std::is_same_v<T, std::string>) {
            if (engram_dtype_itemsize(engram_attribute_dtype(own.get())) == 0) {
                return std::string(data, nbytes);
            }
        } else if constexpr (std::is_same_v<T, std::vector<typename item_of<T>::type>>) {
            using Item = typename item_of<T>::type;
            if (engram_dtype_equal(engram_attribute_dtype(own.get()), dtype<Item>::get())) {
                T all(nbytes / sizeof(Item));  // in C order, whatever the shape
                return nbytes ? (std::memcpy(all.data(), data, nbytes), all) : all;
            }
        } else {
            T value;
            if (engram_dtype_equal(engram_attribute_dtype(own.get()), dtype<T>::get()) &&
                nbytes == sizeof value) {
                return std::memcpy(&value, data, nbytes), value;
            }
        }
        throw ArgumentError("attribute \"" + key + "\" is of another type or shape");
    }

private:
    template <class Owner, class Function, class... More>
    Owner call(Function function, Path path, More... more) const {
        return taken<Owner>([&](auto **to) { return function(get(), path.c_str(), more..., to); });
    }
    Handle handle_;
};

// An open pool, which its destructor closes. Views stay valid.
class Pool {
public:
    static Pool create(const std::string &path, std::uint64_t size,
                       const engram_pool_options *options = nullptr) {
        return Pool(taken<Handle>(
            [&](auto **out) { return engram_pool_create(path.c_str(), size, options, out); }));
    }
    static Pool open(const std::string &path, engram_open_mode mode = ENGRAM_OPEN_MODE_READ_WRITE,
                     bool force = false) {
        return Pool(taken<Handle>(
            [&](auto **out) { return engram_pool_open(path.c_str(), mode, force, out); }));
    }
    engram_pool *get() const { return handle_.get(); }
    // The root group of a namespace; without a name, of the one that every pool has.
    Group root(const char *name = nullptr) const {
        return Group(taken<Group::Handle>(
            [&](auto **out) { return engram_namespace_open(get(), name, out); }));
    }

private:
    using Handle = Owned<engram_pool, engram_pool_close>;
    explicit Pool(Handle handle) : handle_(std::move(handle)) {}
    Handle handle_;
};

} // namespace engram

#endif // ENGRAM_HPP
