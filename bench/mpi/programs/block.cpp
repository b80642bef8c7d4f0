// One rank's block of 64 MiB: stored, loaded, looked at, beside memcpy; seconds as JSON, a line a round.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pmemcpy/pmemcpy.hpp>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

static double timed(auto &&work)
{
    auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A file of the same filesystem, mapped and touched: what memcpy writes to.
static double *mapping(const std::string &path, size_t bytes)
{
    int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0)
        std::abort();
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED)
        std::abort();
    madvise(at, bytes, MADV_HUGEPAGE);
    std::memset(at, 1, bytes);
    close(file);
    unlink(path.c_str());
    return static_cast<double *>(at);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    std::string folder = argv[1];
    int rounds = std::atoi(argv[2]);
    size_t count = (64 << 20) / sizeof(double), all = 4 * count, offset = 2 * count;
    std::vector<double> values(count), loaded(count);
    for (size_t at = 0; at < count; at++)
        values[at] = static_cast<double>(at);
    double *warm = mapping(folder + "/warm", all * sizeof(double));
    pmemcpy::PMEM pmem;
    pmem.mmap(folder + "/pool");
    pmem.alloc<double>("A", 1, &all);
    for (int round = 0; round < rounds; round++) {
        double store = timed([&] { pmem.store("A", values.data(), 1, &offset, &count); });
        double copy = timed([&] { std::memcpy(warm + offset, values.data(), count * sizeof(double)); });
        double load = timed([&] { pmem.load("A", loaded.data(), 1, &offset, &count); });
        double back = timed([&] { std::memcpy(loaded.data(), warm + offset, count * sizeof(double)); });
        if (loaded != values)
            return 1;
        std::printf("{\"store\": %.9f, \"memcpy in\": %.9f, \"load\": %.9f, \"memcpy out\": %.9f}\n",
                    store, copy, load, back);
    }
    pmem.munmap();
}
