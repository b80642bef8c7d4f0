// What engram.hpp and pmemcpy.hpp stand on: errors by kind, handles that free themselves, types of
// items. C++17 will do.
#ifndef ENGRAM_BASE_HPP
#define ENGRAM_BASE_HPP

#include "../engram.h"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace engram {

// What went wrong: its status, and a message that says what was wrong and what to do.
class Error : public std::runtime_error {
public:
    Error(engram_status status, const std::string &message)
        : std::runtime_error(message), status_(status) {}
    engram_status status() const noexcept { return status_; }

private:
    engram_status status_;
};

// One class for each kind, as in Python.
template <engram_status Kind>
class ErrorOf : public Error {
public:
    explicit ErrorOf(const std::string &message) : Error(Kind, message) {}
};
using NotFoundError = ErrorOf<ENGRAM_STATUS_NOT_FOUND>;
using ExistsError = ErrorOf<ENGRAM_STATUS_EXISTS>;
using PoolFullError = ErrorOf<ENGRAM_STATUS_POOL_FULL>;
using AccessError = ErrorOf<ENGRAM_STATUS_ACCESS>;
using ReadOnlyError = ErrorOf<ENGRAM_STATUS_READ_ONLY>;
using QueryError = ErrorOf<ENGRAM_STATUS_QUERY>;
using CorruptError = ErrorOf<ENGRAM_STATUS_CORRUPT>;
using BusyError = ErrorOf<ENGRAM_STATUS_BUSY>;
using FormatError = ErrorOf<ENGRAM_STATUS_FORMAT>;
using InvalidNameError = ErrorOf<ENGRAM_STATUS_INVALID_NAME>;
using ArgumentError = ErrorOf<ENGRAM_STATUS_ARGUMENT>;
using UnsupportedError = ErrorOf<ENGRAM_STATUS_UNSUPPORTED>;
// The change may be durable or not: look after `engram verify`, and repeat it if it is not there.
using CommitUncertainError = ErrorOf<ENGRAM_STATUS_COMMIT_UNCERTAIN>;
// The pool's files were removed: copy what views show, and make it anew.
using PoolGoneError = ErrorOf<ENGRAM_STATUS_POOL_GONE>;
using ClosedNamespaceError = ErrorOf<ENGRAM_STATUS_CLOSED_NAMESPACE>;
using UnverifiedError = ErrorOf<ENGRAM_STATUS_UNVERIFIED>;

// Throws the error of a kind.
template <int... Kinds>
[[noreturn]] void raise_one(engram_status status, const std::string &message,
                            std::integer_sequence<int, Kinds...>) {
    ((status == Kinds ? throw ErrorOf<engram_status(Kinds)>(message) : void()), ...);
    throw Error(status, message);
}
[[noreturn]] inline void raise(engram_status status, const std::string &message) {
    using Kinds = std::make_integer_sequence<int, ENGRAM_STATUS_UNVERIFIED + 1>;
    raise_one(status, message, Kinds());
}

inline void check(engram_status status) {
    if (status != ENGRAM_STATUS_OK) {
        raise(status, engram_last_error());
    }
}

// Frees a handle by its own function, as the deleter of a std::unique_ptr.
template <auto Free>
struct Freeing {
    template <class T>
    void operator()(T *handle) const noexcept { Free(handle); }
};
template <class T, auto Free>
using Owned = std::unique_ptr<T, Freeing<Free>>;

// Takes what a function of the C API gives: `taken<Owned<...>>([&](auto **to) { return f(to); })`.
template <class Owner, class Call>
Owner taken(Call &&call) {
    typename Owner::pointer handle = nullptr;
    check(std::forward<Call>(call)(&handle));
    return Owner(handle);
}

// A string that is to be freed.
template <class Call>
std::string text_of(Call &&call) {
    return taken<Owned<char, engram_string_free>>(std::forward<Call>(call)).get();
}

using Shape = std::vector<std::uint64_t>;

// The dtype of a type of C++: of numbers; of structures, where their author says so with
// ENGRAM_STRUCT; of arrays of these as fields.
template <class T, class = void>
struct dtype;

template <class T>
constexpr engram_scalar scalar_of() {
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (std::is_same_v<T, bool>) return ENGRAM_SCALAR_BOOL;
    else if constexpr (std::is_same_v<T, float>) return ENGRAM_SCALAR_F32;
    else if constexpr (std::is_same_v<T, double>) return ENGRAM_SCALAR_F64;
    else if constexpr (std::is_same_v<T, std::complex<float>>) return ENGRAM_SCALAR_C64;
    else if constexpr (std::is_same_v<T, std::complex<double>>) return ENGRAM_SCALAR_C128;
    else if constexpr (!std::is_integral_v<T>) return ENGRAM_SCALAR_OTHER;
    else if constexpr (sizeof(T) == 1) return is_signed ? ENGRAM_SCALAR_I8 : ENGRAM_SCALAR_U8;
    else if constexpr (sizeof(T) == 2) return is_signed ? ENGRAM_SCALAR_I16 : ENGRAM_SCALAR_U16;
    else if constexpr (sizeof(T) == 4) return is_signed ? ENGRAM_SCALAR_I32 : ENGRAM_SCALAR_U32;
    else return is_signed ? ENGRAM_SCALAR_I64 : ENGRAM_SCALAR_U64;
}

template <class T>
struct dtype<T, std::enable_if_t<scalar_of<T>() != ENGRAM_SCALAR_OTHER>> {
    static const engram_dtype *get() { return engram_dtype_scalar(scalar_of<T>()); }
};

template <class T, std::size_t N>
struct dtype<T[N]> {
    static const engram_dtype *get() {
        static const auto made = taken<Owned<engram_dtype, engram_dtype_free>>([](auto **to) {
            const std::uint64_t length = N;
            return engram_dtype_sub(dtype<T>::get(), 1, &length, to);
        });
        return made.get();
    }
};

// A structure under construction: what ENGRAM_STRUCT is made of.
class Structure {
public:
    explicit Structure(std::size_t size)
        : made_(taken<decltype(made_)>([&](auto **to) { return engram_dtype_struct(size, to); })) {}
    template <class Field>
    Structure &&add(const char *name, std::size_t offset) && {
        check(engram_dtype_add_field(made_.get(), name, offset, dtype<Field>::get()));
        return std::move(*this);
    }
    const engram_dtype *get() const { return made_.get(); }

private:
    Owned<engram_dtype, engram_dtype_free> made_;
};

} // namespace engram

// Says what a structure is made of, outside of any namespace:
//   struct Particle { double x[3]; float mass; };
//   ENGRAM_STRUCT(Particle, ENGRAM_FIELD(x) ENGRAM_FIELD(mass))
#define ENGRAM_FIELD(name) .add<decltype(Self::name)>(#name, offsetof(Self, name))
#define ENGRAM_STRUCT(Type, fields)                                                               \
    template <>                                                                                   \
    struct engram::dtype<Type> {                                                                  \
        using Self = Type;                                                                        \
        static const engram_dtype *get() {                                                        \
            static const auto made = engram::Structure(sizeof(Type)) fields;                      \
            return made.get();                                                                    \
        }                                                                                         \
    };

#endif // ENGRAM_BASE_HPP
