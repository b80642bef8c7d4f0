/* HDF5, parallel: one file, contiguous datasets. No fill values, space allocated at once. */
#include "s3d.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>

static hid_t transfer(void)
{
    hid_t plist = H5Pcreate(H5P_DATASET_XFER);
    const char *how = getenv("S3D_COLLECTIVE");
    H5Pset_dxpl_mpio(plist, how && *how == '1' ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
    return plist;
}

static hid_t access_list(void)
{
    hid_t plist = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(plist, MPI_COMM_WORLD, MPI_INFO_NULL);
    H5Pset_libver_bounds(plist, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    return plist;
}

static void sizes(const size_t from[3], hsize_t to[3])
{
    for (int dim = 0; dim < 3; dim++)
        to[dim] = from[dim];
}

static hid_t selected(hid_t space, const struct block *block, hid_t *memory)
{
    hsize_t offset[3], count[3];
    sizes(block->offset, offset);
    sizes(block->count, count);
    must(H5Sselect_hyperslab(space, H5S_SELECT_SET, offset, NULL, count, NULL) >= 0, "hyperslab");
    *memory = H5Screate_simple(3, count, NULL);
    return space;
}

void write_all(const struct run *run, const struct block *block, double *const *values)
{
    hid_t fapl = access_list(), dxpl = transfer(), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hid_t file = H5Fcreate(run->path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    hsize_t global[3];
    must(file >= 0, "H5Fcreate");
    sizes(block->global, global);
    H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
    H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
    for (int v = 0; v < run->variables; v++) {
        char name[16];
        hid_t memory, space = H5Screate_simple(3, global, NULL);
        snprintf(name, sizeof name, "v%d", v);
        hid_t data = H5Dcreate2(file, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
        must(data >= 0, "H5Dcreate2");
        selected(space, block, &memory);
        must(H5Dwrite(data, H5T_NATIVE_DOUBLE, memory, space, dxpl, values[v]) >= 0, "H5Dwrite");
        H5Sclose(memory);
        H5Sclose(space);
        H5Dclose(data);
    }
    H5Fclose(file);
    H5Pclose(dcpl);
    H5Pclose(dxpl);
    H5Pclose(fapl);
}

void read_all(const struct run *run, const struct block *block, double *const *values)
{
    hid_t fapl = access_list(), dxpl = transfer();
    hid_t file = H5Fopen(run->path, H5F_ACC_RDONLY, fapl);
    must(file >= 0, "H5Fopen");
    for (int v = 0; v < run->variables; v++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", v);
        hid_t data = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(data), memory;
        selected(space, block, &memory);
        must(H5Dread(data, H5T_NATIVE_DOUBLE, memory, space, dxpl, values[v]) >= 0, "H5Dread");
        H5Sclose(memory);
        H5Sclose(space);
        H5Dclose(data);
    }
    H5Fclose(file);
    H5Pclose(dxpl);
    H5Pclose(fapl);
}
