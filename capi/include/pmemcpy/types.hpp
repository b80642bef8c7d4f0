// What pmemcpy.hpp speaks of: serializers, dimensions; and what it needs to say it.
#ifndef PMEMCPY_TYPES_HPP
#define PMEMCPY_TYPES_HPP

#include "../engram/base.hpp"
#include "serializers.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/statvfs.h>
#include <type_traits>
#include <vector>

namespace pmemcpy {

static_assert(std::is_same<std::size_t, std::uint64_t>::value, "Engram is for 64-bit Linux");

using Error = engram::Error;

// How values are kept.
enum class SerializerType {
    // As they are in memory: an array is contiguous, and can be viewed with no copy.
    Default = 0,
    // In chunks, each encoded: arrays that are made with one of these have no view, and take less
    // room where their values are alike. So are single values of a type that has a serializer, such
    // as std::string. A number, or a structure, is kept raw all the same.
    LZ4 = 1,
    ZSTD = 2,
    SHUFFLE_LZ4 = 3,
    SHUFFLE_ZSTD = 4,
    // The names of the older library: its serializers are not here, and values are kept raw.
    NO_SERIALIZER = Default,
    CAPNPROTO = Default,
    CAPNPROTO_NOCOMPRESS = Default,
};

// Where the older library kept values; all of it is a pool here.
enum class StorageType { PMDK_HASHTABLE, PMDK_FS, POSIX };

namespace detail {
template <class T, class = void>
struct has_dtype : std::false_type {};
template <class T>
struct has_dtype<T, std::void_t<decltype(engram::dtype<T>::get())>> : std::true_type {};

using PoolHandle = engram::Owned<engram_pool, engram_pool_close>;
using GroupHandle = engram::Owned<engram_group, engram_group_free>;
using ObjectHandle = engram::Owned<engram_object, engram_object_free>;
using OptionsHandle = engram::Owned<engram_options, engram_options_free>;

// The engine's name of a codec; NULL of what is kept raw.
inline const char *codec_of(SerializerType type) {
    static const char *const names[] = {nullptr, "lz4", "zstd", "shuffle+lz4", "shuffle+zstd"};
    const auto number = static_cast<std::size_t>(type);
    if (number >= sizeof names / sizeof *names) {
        throw engram::ArgumentError(std::to_string(number) + " is no SerializerType");
    }
    return names[number];
}

inline std::string shown(std::size_t ndims, const std::uint64_t *dims) {
    std::string text = "(";
    for (std::size_t dim = 0; dim < ndims; ++dim) {
        text += (dim ? ", " : "") + std::to_string(dims[dim]);
    }
    return text + (ndims == 1 ? ",)" : ")");
}

inline std::string shown(const engram_dtype *dtype) {
    return engram::text_of([&](char **to) { return engram_dtype_text(dtype, to); });
}

// The nearest folder of a path that there is.
inline struct statvfs mount_of(std::string path) {
    struct statvfs found = {};
    while (::statvfs(path.empty() ? "." : path.c_str(), &found) != 0 && path.size() > 1) {
        const auto slash = path.find_last_of('/');
        path = slash == std::string::npos ? "" : slash == 0 ? "/" : path.substr(0, slash);
    }
    return found;
}

// A number of bytes, as in "4294967296", "4G", "4 GiB".
inline std::uint64_t bytes_of(const std::string &text) {
    char *rest = nullptr;
    errno = 0;
    const unsigned long long number = std::strtoull(text.c_str(), &rest, 10);
    std::string unit = rest;
    unit.erase(0, unit.find_first_not_of(' '));
    const std::string units = "KMGT";
    const auto place = unit.empty() ? std::string::npos : units.find(unit[0]);
    const unsigned shift = place == std::string::npos ? 0 : 10 * (unsigned(place) + 1);
    const bool known = unit.empty() || unit == "B" ||
                       (shift && (unit.size() == 1 || unit.substr(1) == "iB"));
    const bool digit = !text.empty() && text[0] >= '0' && text[0] <= '9';
    if (errno || !digit || !known || (number << shift) >> shift != number) {
        throw engram::ArgumentError("\"" + text + "\" is no number of bytes: give one such as "
                                    "4294967296, 4G or 4 GiB");
    }
    return number << shift;
}
} // namespace detail

// Lengths, offsets or sizes, one for each dimension.
class Dimensions {
public:
    template <class... N, class = std::enable_if_t<(std::is_integral<N>::value && ...)>>
    Dimensions(N... lengths) : lengths_{static_cast<std::size_t>(lengths)...} {}
    std::size_t count() const {
        std::size_t all = 1;
        for (auto length : lengths_) all *= length;
        return all;
    }
    std::size_t *data() { return lengths_.data(); }
    const std::size_t *data() const { return lengths_.data(); }
    std::size_t operator[](std::size_t dim) const { return lengths_[dim]; }
    int ndims() const { return static_cast<int>(lengths_.size()); }

private:
    std::vector<std::size_t> lengths_;
};
using Offsets = Dimensions;
using Sizes = Dimensions;

} // namespace pmemcpy

#endif // PMEMCPY_TYPES_HPP
