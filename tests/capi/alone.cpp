// A process alone on a cluster: it publishes with `munmap`, or at its end.
#include <pmemcpy/pmemcpy.hpp>

#include <cstdio>

int main(int, char **argv) {
    const std::size_t n = 3;
    const int some[] = {1, 2, 3};
    try {
        pmemcpy::PMEM pmem;
        pmem.mmap(argv[1]);
        pmem.store<int>("alone/ended", some, pmemcpy::Dimensions(n));
        pmem.store<double>("alone/ended-value", 2.5);
    } catch (const engram::Error &error) {
        std::printf("%s\n", error.what());
        return 1;
    }
    try {
        pmemcpy::PMEM pmem;
        pmem.mmap(argv[1]);
        pmem.store<int>("alone/thrown", 1);
        pmem.load<int>("alone/none");
        return 2;
    } catch (const engram::NotFoundError &) {
    }
    pmemcpy::PMEM pmem;
    pmem.mmap(argv[1]);
    int seen[3] = {0};
    pmem.load<int>("alone/ended", seen, pmemcpy::Dimensions(n));
    if (seen[2] != 3 || pmem.load<double>("alone/ended-value") != 2.5) return 3;
    try {
        pmem.load<int>("alone/thrown");
        return 4;
    } catch (const engram::NotFoundError &) {
    }
    pmem.munmap();
    std::puts("all is well");
}
