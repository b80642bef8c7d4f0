/* PnetCDF: one file of the classic formats (CDF-5), whose numbers are big-endian. */
#include "s3d.h"

#include <pnetcdf.h>
#include <stdio.h>

static void ok(int status)
{
    must(status == NC_NOERR, ncmpi_strerror(status));
}

static void sizes(const size_t from[3], MPI_Offset to[3])
{
    for (int dim = 0; dim < 3; dim++)
        to[dim] = (MPI_Offset)from[dim];
}

void write_all(const struct run *run, const struct block *block, double *const *values)
{
    int file, dims[3], variables[64];
    MPI_Offset offset[3], count[3];
    must(run->variables <= 64, "at most 64 variables");
    sizes(block->offset, offset);
    sizes(block->count, count);
    ok(ncmpi_create(MPI_COMM_WORLD, run->path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    for (int dim = 0; dim < 3; dim++) {
        char name[2] = {"zyx"[dim], 0};
        ok(ncmpi_def_dim(file, name, (MPI_Offset)block->global[dim], &dims[dim]));
    }
    for (int v = 0; v < run->variables; v++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", v);
        ok(ncmpi_def_var(file, name, NC_DOUBLE, 3, dims, &variables[v]));
    }
    ok(ncmpi_enddef(file));
    for (int v = 0; v < run->variables; v++)
        ok(ncmpi_put_vara_double_all(file, variables[v], offset, count, values[v]));
    ok(ncmpi_close(file));
}

void read_all(const struct run *run, const struct block *block, double *const *values)
{
    int file;
    MPI_Offset offset[3], count[3];
    sizes(block->offset, offset);
    sizes(block->count, count);
    ok(ncmpi_open(MPI_COMM_WORLD, run->path, NC_NOWRITE, MPI_INFO_NULL, &file));
    for (int v = 0; v < run->variables; v++) {
        char name[16];
        int variable;
        snprintf(name, sizeof name, "v%d", v);
        ok(ncmpi_inq_varid(file, name, &variable));
        ok(ncmpi_get_vara_double_all(file, variable, offset, count, values[v]));
    }
    ok(ncmpi_close(file));
}
