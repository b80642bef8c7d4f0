// Engram, through pMEMCPY's interface: every rank stores into one array of the pool.
#include "s3d.h"

#include <pmemcpy/pmemcpy.hpp>
#include <string>

void write_all(const run *run, const block *block, double *const *values)
{
    pmemcpy::PMEM pmem;
    pmem.mmap(run->path, MPI_COMM_WORLD);
    for (int v = 0; v < run->variables; v++) {
        std::string name = "v" + std::to_string(v);
        pmem.alloc<double>(name, 3, block->global);
        pmem.store(name, values[v], 3, block->offset, block->count);
    }
    pmem.munmap();
}

void read_all(const run *run, const block *block, double *const *values)
{
    pmemcpy::PMEM pmem;
    pmem.mmap(run->path, MPI_COMM_WORLD);
    for (int v = 0; v < run->variables; v++)
        pmem.load("v" + std::to_string(v), values[v], 3, block->offset, block->count);
    pmem.munmap();
}
