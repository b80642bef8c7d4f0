/* NetCDF-4, parallel: one file, contiguous variables that are not filled. */
#include "s3d.h"

#include <netcdf.h>
#include <netcdf_par.h>
#include <stdio.h>
#include <stdlib.h>

static int access_kind(void)
{
    const char *how = getenv("S3D_COLLECTIVE");
    return how && *how == '1' ? NC_COLLECTIVE : NC_INDEPENDENT;
}

static void ok(int status)
{
    must(status == NC_NOERR, nc_strerror(status));
}

void write_all(const struct run *run, const struct block *block, double *const *values)
{
    int file, dims[3], variables[64];
    must(run->variables <= 64, "at most 64 variables");
    ok(nc_create_par(run->path, NC_CLOBBER | NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
    for (int dim = 0; dim < 3; dim++) {
        char name[2] = {"zyx"[dim], 0};
        ok(nc_def_dim(file, name, block->global[dim], &dims[dim]));
    }
    for (int v = 0; v < run->variables; v++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", v);
        ok(nc_def_var(file, name, NC_DOUBLE, 3, dims, &variables[v]));
        ok(nc_def_var_fill(file, variables[v], NC_NOFILL, NULL));
        ok(nc_def_var_chunking(file, variables[v], NC_CONTIGUOUS, NULL));
    }
    ok(nc_enddef(file));
    for (int v = 0; v < run->variables; v++) {
        ok(nc_var_par_access(file, variables[v], access_kind()));
        ok(nc_put_vara_double(file, variables[v], block->offset, block->count, values[v]));
    }
    ok(nc_close(file));
}

void read_all(const struct run *run, const struct block *block, double *const *values)
{
    int file;
    ok(nc_open_par(run->path, NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
    for (int v = 0; v < run->variables; v++) {
        char name[16];
        int variable;
        snprintf(name, sizeof name, "v%d", v);
        ok(nc_inq_varid(file, name, &variable));
        ok(nc_var_par_access(file, variable, access_kind()));
        ok(nc_get_vara_double(file, variable, block->offset, block->count, values[v]));
    }
    ok(nc_close(file));
}
