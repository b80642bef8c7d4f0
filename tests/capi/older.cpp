// A program of pMEMCPY's older header: storages and serializers by name, sizes, Dimensions.
#include <pmemcpy/memcpy.h>

// What the names begin with: processes that store at once keep out of each other's way by it.
static std::string of;

static void write(pmemcpy::PMEM &pmem) {
    double single = 25;
    pmem.store<double>(of + "single", single);
    double square[2][2] = {{10, 11}, {12, 13}};
    pmem.store<double>(of + "square", (double *)square, pmemcpy::Dimensions(2u, 2u));
    square[1][1] = 14;
    pmem.store(of + "square", &square[0][0], pmemcpy::Dimensions(2, 2));
    // A part of a global array, at its offsets.
    uint64_t nx = 4, ny = 6;
    double part[2 * 3] = {1, 2, 3, 4, 5, 6};
    pmem.store<double>(of + "global", part, pmemcpy::Offsets(1, 2), pmemcpy::Sizes(2, 3),
                       pmemcpy::Dimensions(nx, ny));
}

static int read(pmemcpy::PMEM &pmem) {
    double single, square[2][2], edge[2];
    pmem.load<double>(of + "single", single);
    pmem.load<double>(of + "square", (double *)square, pmemcpy::Dimensions(2u, 2u));
    pmem.load<double>(of + "global", edge, pmemcpy::Offsets(2, 3), pmemcpy::Sizes(1, 2),
                      pmemcpy::Dimensions(4, 6));
    return single == 25 && square[1][1] == 14 && square[0][1] == 11 && edge[0] == 5 && edge[1] == 6;
}

int main(int argc, char **argv) {
    if (argc != 6 && argc != 7) return 2;
    if (argc == 7) of = argv[6];
    char *path = argv[1];
    int mode = atoi(argv[2]), good = 0;
    pmemcpy::StorageType storage;
    pmemcpy::SerializerType serializer;
    PMEMCPY_ERROR_HANDLE_START()
    storage = pmemcpy::StorageTypeConverter::convert(argv[3]);
    serializer = pmemcpy::SerializerTypeConverter::convert(argv[4]);
    PMEMCPY_ERROR_HANDLE_END()
    pmemcpy::PMEM pmem(storage, serializer, atoi(argv[5]));
    PMEMCPY_ERROR_HANDLE_START()
    pmem.mmap(path, (size_t)(64 * pmemcpy::SizeType::MB));
    if (mode == 0) write(pmem);
    if (mode <= 1) good = read(pmem);
    if (mode == 2) {
        pmem.free("single");
        pmem.munmap();
        pmem.release(path);
        good = 1;
    }
    if (mode == 3) {
        double three[3];
        pmem.load<double>("square", three, pmemcpy::Dimensions(3));
    }
    PMEMCPY_ERROR_HANDLE_END()
    std::cout << (good ? "good" : "bad") << std::endl;
    return good ? 0 : 1;
}
