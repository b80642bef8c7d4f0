// The interface of pMEMCPY's older header, so that its programs compile as they are: storages and
// serializers by name, `mmap(path, size)`, `Dimensions`, the macros around errors. Of both headers,
// this is the one to be included first.
#ifndef PMEMCPY_MEMCPY_H
#define PMEMCPY_MEMCPY_H

#include "pmemcpy.hpp"

#include <iostream>
#include <memory>

namespace pmemcpy {

// Sizes, for `mmap`.
struct SizeType {
    static constexpr std::size_t BYTES = 1;
    static constexpr std::size_t KB = std::size_t{1} << 10;
    static constexpr std::size_t MB = std::size_t{1} << 20;
    static constexpr std::size_t GB = std::size_t{1} << 30;
    static constexpr std::size_t TB = std::size_t{1} << 40;
};

// Storages by name.
class StorageTypeConverter {
public:
    static StorageType convert(const std::string &name) {
        if (name == "PMDK_HASHTABLE") return StorageType::PMDK_HASHTABLE;
        if (name == "PMDK_FS") return StorageType::PMDK_FS;
        if (name == "POSIX") return StorageType::POSIX;
        throw engram::ArgumentError("\"" + name + "\" is no storage: PMDK_HASHTABLE, PMDK_FS and "
                                    "POSIX are, and all of them are a pool");
    }
    static std::string convert(StorageType type) {
        if (type == StorageType::PMDK_FS) return "PMDK_FS";
        return type == StorageType::POSIX ? "POSIX" : "PMDK_HASHTABLE";
    }
};

// Serializers by name.
class SerializerTypeConverter {
public:
    static SerializerType convert(const std::string &name) {
        for (const char *raw : {"NO_SERIALIZER", "CAPNPROTO", "CAPNPROTO_NOCOMPRESS"}) {
            if (name == raw) return SerializerType::Default;
        }
        for (std::size_t number = 0; number < 5; ++number) {
            if (name == names[number]) return static_cast<SerializerType>(number);
        }
        throw engram::ArgumentError("\"" + name + "\" is no serializer: Default, LZ4, ZSTD, "
                                    "SHUFFLE_LZ4, SHUFFLE_ZSTD are, and NO_SERIALIZER, CAPNPROTO "
                                    "and CAPNPROTO_NOCOMPRESS, which are Default");
    }
    static std::string convert(SerializerType type) { return names[static_cast<int>(type)]; }

private:
    static constexpr const char *names[] = {"Default", "LZ4", "ZSTD", "SHUFFLE_LZ4",
                                            "SHUFFLE_ZSTD"};
};

} // namespace pmemcpy

// Around code that may throw: says what was wrong, and ends the program with the error's status.
#define PMEMCPY_ERROR_HANDLE_START() try {
#define PMEMCPY_ERROR_HANDLE_END()                                                                \
    }                                                                                             \
    catch (const pmemcpy::Error &error) {                                                         \
        std::cout << error.what() << std::endl;                                                   \
        std::exit(error.status());                                                                \
    }

#endif // PMEMCPY_MEMCPY_H
