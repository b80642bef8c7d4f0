"""The kinds of netCDF file, and what each can hold.

The words of ``--format`` are those of netCDF4's ``data_model``, in lower case. `ncdump -k` and
`nccopy -k` call them otherwise: netcdf3 is "classic", netcdf3-64bit-offset "64-bit offset",
netcdf3-64bit-data "cdf5", netcdf4 "netCDF-4" and netcdf4-classic "netCDF-4 classic model".
"""

from __future__ import annotations

from dataclasses import dataclass

_CLASSIC_TYPES = frozenset({"i1", "i2", "i4", "f4", "f8"})
_ALL_TYPES = _CLASSIC_TYPES | {"u1", "u2", "u4", "i8", "u8"}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of netCDF file.

    Attributes
    ----------
    model
        What netCDF4 calls it: its ``data_model``.
    types
        The numbers that it can hold.
    is_classic
        Whether it has the classic data model: no groups, no types, one unlimited dimension.
    is_hdf5
        Whether it is an HDF5 file.
    version
        The version byte of a classic file; 0 for an HDF5 file.

    """

    model: str
    types: frozenset[str]
    is_classic: bool
    is_hdf5: bool
    version: int = 0


KINDS = {
    "netcdf4": Kind("NETCDF4", _ALL_TYPES, is_classic=False, is_hdf5=True),
    "netcdf4-classic": Kind("NETCDF4_CLASSIC", _CLASSIC_TYPES, is_classic=True, is_hdf5=True),
    "netcdf3": Kind("NETCDF3_CLASSIC", _CLASSIC_TYPES, is_classic=True, is_hdf5=False, version=1),
    "netcdf3-64bit-offset": Kind(
        "NETCDF3_64BIT_OFFSET", _CLASSIC_TYPES, is_classic=True, is_hdf5=False, version=2
    ),
    "netcdf3-64bit-data": Kind(
        "NETCDF3_64BIT_DATA", _ALL_TYPES, is_classic=True, is_hdf5=False, version=5
    ),
}

BY_MODEL = {kind.model: word for word, kind in KINDS.items()}
"""The word of each ``data_model``, which is what `origin` keeps."""

DEFAULT_FILLS = {
    "i1": -127,
    "u1": 255,
    "i2": -32767,
    "u2": 65535,
    "i4": -2147483647,
    "u4": 4294967295,
    "i8": -9223372036854775806,
    "u8": 18446744073709551614,
    "f4": 9.9692099683868690e36,
    "f8": 9.9692099683868690e36,
}
"""netCDF's fill values, where a variable says none."""
