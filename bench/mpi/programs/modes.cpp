// One rank's block of 64 MiB into a pool that survives a loss of power: made durable once after it has
// been copied (pMEMCPY's mode A), or piece by piece (mode B); seconds as JSON, a line a round.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <engram.hpp>
#include <vector>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const std::size_t count = (64 << 20) / sizeof(double);
    std::vector<double> values(count, 1.0);
    auto pool = engram::Pool::open(argv[1]);
    auto array = pool.root().open("A");
    auto stored = [&](engram_flush flush) {
        for (auto &value : values)
            value += 1.0;
        auto start = std::chrono::steady_clock::now();
        array.store<double>({count}, {count}, values, flush);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    for (int round = 0; round < std::atoi(argv[2]); round++) {
        double once = stored(ENGRAM_FLUSH_ONCE);
        double as_written = stored(ENGRAM_FLUSH_AS_WRITTEN);
        std::printf("{\"once\": %.9f, \"as written\": %.9f}\n", once, as_written);
    }
}
