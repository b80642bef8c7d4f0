"""What the results of MPI codes call their contestants and operations.

Tables and pictures are made of results alone, where no engine is built: they import this.
"""

PEERS = {
    "adios2": "ADIOS2, a file per rank",
    "netcdf": "NetCDF-4",
    "pnetcdf": "PnetCDF",
    "hdf5": "HDF5",
}
NEW_POOL = "engram, new pool"
EMULATED = "engram, emulated persistent memory"
ADD_UP = "add up"
MODES = {"store": "store 64 MiB on a disk, durable", "load": "load 64 MiB stored so"}
