// Engram, through pMEMCPY's interface: every rank stores into one array of the pool. What is added
// up is looked at where it lies.
#include "s3d.h"

#include <engram.hpp>
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

double sum_all(const run *run, const block *block, double *const *)
{
    double sum = 0;
    const auto pool = engram::Pool::open(run->path);
    for (int v = 0; v < run->variables; v++) {
        const auto values = pool.root().open("v" + std::to_string(v)).view<double>();
        const auto *at = block->offset, *n = block->count;
        for (std::size_t z = at[0]; z < at[0] + n[0]; z++)
            for (std::size_t y = at[1]; y < at[1] + n[1]; y++)
                sum += add_up(&values(z, y, at[2]), n[2]);
    }
    return sum;
}
