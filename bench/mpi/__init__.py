"""The S3D kernel behind Engram and its peers of the MPI world: `make bench-mpi`."""
