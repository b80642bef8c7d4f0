"""Versions, as programs read them: of the h5py whose names these are, and of what is under them."""

import sys

import numpy as np

version = "3.16.0"
version_tuple = (3, 16, 0, None, None, None)
hdf5_version = "2.0.0"
hdf5_version_tuple = (2, 0, 0)
hdf5_built_version_tuple = (2, 0, 0)
api_version = "1.8"
api_version_tuple = (1, 8)

info = f"""\
Engram, by the names of h5py {version}
Python  {sys.version}
numpy   {np.__version__}
"""
