// Serializers: what makes bytes of a value without a fixed size, and a value of those bytes.
//
// One that writes itself into the pool, with no copy in between, has a name, and three functions:
//
//   template <> struct pmemcpy::serializer<Mesh> {
//       static constexpr const char *name = "mesh";         // kept with the value
//       static std::size_t size(const Mesh &);              // how many bytes `write` will write
//       static void write(const Mesh &, pmemcpy::Output &); // them: into memory of the pool
//       static Mesh read(pmemcpy::Input &);                 // the value, of memory of the pool
//   };
//   pmem.store<Mesh>("mesh", mesh);   mesh = pmem.load<Mesh>("mesh");
//
// Any object with the same members will do, given to `store` and `load`: members that are not
// static may hold what it needs to know.
//
// `store` reserves as many bytes as `size` says, lets `write` fill them, and gives them their id:
// the whole value, or nothing. Where `write` throws, or writes more or less than was said, the
// space is given back, and what the id had before stays. `load` refuses what another serializer has
// made. What is kept is an array of bytes whose type has one field, "serializer:NAME".
#ifndef PMEMCPY_SERIALIZERS_HPP
#define PMEMCPY_SERIALIZERS_HPP

#include "../engram/base.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

namespace pmemcpy {

// Registers a serializer of a type: specialise it as is said above, or with
//   static std::string save(const T &);      static T load(const char *bytes, std::size_t len);
// and values of T are kept as blobs, which are copied from and to such strings.
template <class T, class = void>
struct serializer;

template <>
struct serializer<std::string> {
    static std::string save(const std::string &text) { return text; }
    static std::string load(const char *bytes, std::size_t len) { return {bytes, len}; }
};

// The bytes that a serializer fills, one after the other. They are memory of the pool, and end with
// the call of `write`. More than it said are refused before any is written.
class Output {
public:
    Output(void *memory, std::size_t nbytes, std::string who)
        : memory_(static_cast<char *>(memory)), nbytes_(nbytes), who_(std::move(who)) {}
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;

    // The next bytes, for the caller to fill: each of them, since they are not zeros. They are
    // aligned as the number of bytes before them is, up to 64.
    void *take(std::size_t nbytes) {
        if (nbytes > nbytes_ - used_) {
            has_more_ = true;
            end();
        }
        char *from = memory_ + used_;
        used_ += nbytes;
        return from;
    }

    // Copies bytes, or a value that is no more than its bytes, to the next bytes.
    void put(const void *bytes, std::size_t nbytes) {
        void *to = take(nbytes);
        if (nbytes) std::memcpy(to, bytes, nbytes);
    }
    template <class V>
    void put(const V &value) {
        static_assert(std::is_trivially_copyable<V>::value && !std::is_pointer<V>::value,
                      "only what is no more than its bytes can be put as it is");
        put(&value, sizeof value);
    }

    std::size_t size() const { return nbytes_; }
    std::size_t left() const { return nbytes_ - used_; }

    // Refuses what has not filled all, or wanted more: also where `write` has caught the error.
    void end() const {
        if (!has_more_ && used_ == nbytes_) return;
        throw engram::ArgumentError(who_ + "said " + std::to_string(nbytes_) + " bytes, and " +
                                    (has_more_ ? "writes more" : "wrote ") +
                                    (has_more_ ? "" : std::to_string(used_)) +
                                    ": nothing is stored");
    }

private:
    char *memory_;
    std::size_t nbytes_, used_ = 0;
    std::string who_;
    bool has_more_ = false;
};

// The bytes that a serializer reads, one after the other: memory of the pool, which ends with the
// call of `read`. It need not read all of them.
class Input {
public:
    Input(const void *memory, std::size_t nbytes, std::string who)
        : memory_(static_cast<const char *>(memory)), nbytes_(nbytes), who_(std::move(who)) {}
    Input(const Input &) = delete;
    Input &operator=(const Input &) = delete;

    // The next bytes, where they lie.
    const void *take(std::size_t nbytes) {
        if (nbytes > nbytes_ - used_) {
            throw engram::ArgumentError(who_ + "reads more than the " + std::to_string(nbytes_) +
                                        " bytes that are stored");
        }
        const char *from = memory_ + used_;
        used_ += nbytes;
        return from;
    }

    // Copies the next bytes, or a value that is no more than its bytes.
    void get(void *to, std::size_t nbytes) {
        const void *from = take(nbytes);
        if (nbytes) std::memcpy(to, from, nbytes);
    }
    template <class V>
    V get() {
        static_assert(std::is_trivially_copyable<V>::value && !std::is_pointer<V>::value,
                      "only what is no more than its bytes can be got as it is");
        V value;
        get(&value, sizeof value);
        return value;
    }

    std::size_t size() const { return nbytes_; }
    std::size_t left() const { return nbytes_ - used_; }

private:
    const char *memory_;
    std::size_t nbytes_, used_ = 0;
    std::string who_;
};

namespace detail {

// Whether there is a serializer of T by `save` and `load`.
template <class T, class = void>
struct has_serializer : std::false_type {};
template <class T>
struct has_serializer<T, std::void_t<decltype(&serializer<T>::save)>> : std::true_type {};

// Whether S is a serializer of T that writes itself.
template <class S, class T, class = void>
struct serializes : std::false_type {};
template <class S, class T>
struct serializes<
    S, T,
    std::void_t<decltype(std::string(std::declval<const S &>().name)),
                decltype(std::size_t(std::declval<const S &>().size(std::declval<const T &>()))),
                decltype(std::declval<const S &>().write(std::declval<const T &>(),
                                                         std::declval<Output &>())),
                decltype(T(std::declval<const S &>().read(std::declval<Input &>())))>>
    : std::true_type {};

using AllocationHandle = engram::Owned<engram_allocation, engram_allocation_abandon>;
using DtypeHandle = engram::Owned<engram_dtype, engram_dtype_free>;
using ViewHandle = engram::Owned<engram_view, engram_view_free>;

// How the field of what a serializer has made begins, before the serializer's name.
constexpr const char *MADE_BY = "serializer:";

// The type of the bytes that a serializer of this name makes; of any by `save`, where they are
// encoded, the name is empty.
inline DtypeHandle made_by(const std::string &name) {
    auto made = engram::taken<DtypeHandle>([](auto **to) { return engram_dtype_struct(1, to); });
    const std::string field = name.empty() ? "serialized" : MADE_BY + name;
    engram::check(engram_dtype_add_field(made.get(), field.c_str(), 0,
                                         engram_dtype_scalar(ENGRAM_SCALAR_U8)));
    return made;
}

// What an object is, for messages: a blob, an array of a type, or what a serializer has made.
inline std::string kind_of(const engram_object *object) {
    if (engram_object_kind(object) == ENGRAM_MEMBER_KIND_BLOB) return "a blob";
    const engram_dtype *dtype = engram_object_dtype(object);
    const char *field = nullptr;
    if (engram_dtype_nfields(dtype) == 1) {
        engram::check(engram_dtype_field(dtype, 0, &field, nullptr, nullptr));
    }
    const std::string prefix = MADE_BY, name = field ? field : "";
    if (name.rfind(prefix, 0) == 0) {
        return "what the serializer \"" + name.substr(prefix.size()) + "\" made";
    }
    return engram::text_of([&](char **to) { return engram_dtype_text(dtype, to); });
}

} // namespace detail
} // namespace pmemcpy

#endif // PMEMCPY_SERIALIZERS_HPP
