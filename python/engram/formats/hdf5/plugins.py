"""Filters of HDF5 that are no part of its library: which of them a dataset needs and are missing.

Looked at only once reading has failed, since a dataset can be read without a filter that none of
its chunks has gone through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from h5py import h5z

from engram.errors import UnsupportedError
from engram.formats.hdf5.low import filters

if TYPE_CHECKING:
    from engram.formats.hdf5.low import Dataset

_OWN = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset"}
"""HDF5's own filters, by its numbers."""

LAST_OWN = 255
"""The last number of a filter of HDF5's own."""

_NAMES = {
    307: "bzip2",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32018: "fcidecomp",
    32024: "sz3",
    32026: "blosc2",
    32028: "sperr",
}
"""The filters that hdf5plugin has, by HDF5's ids."""


def shown(code: int) -> str:
    """Return a filter's name and number, as far as they are known here."""
    name = _NAMES.get(code) or _OWN.get(code)
    return f"{name} (HDF5's number {code})" if name else f"{code}"


def check(dataset: Dataset) -> None:
    """Refuse a dataset that has a filter which is not installed.

    Raises
    ------
    UnsupportedError
        With the filter, and what to install.

    """
    for code, _, _, said in filters(dataset.plist):
        if h5z.filter_avail(code):
            continue
        name = _NAMES.get(code) or said.decode("utf-8", "replace") or "a program's own"
        get = (
            "pip install 'engram[filters]'"
            if code in _NAMES
            else "set HDF5_PLUGIN_PATH to the folder that has its plugin"
        )
        message = f"its filter {name} (HDF5's number {code}) is not installed: {get}"
        raise UnsupportedError(message) from None
