"""h5py's names on a pool: a program that uses h5py runs with its import line changed.

::

    import engram.compat.h5py as h5py

    with h5py.File("/dev/shm/run.h5", "w") as f:
        f.create_dataset("T", data=temperatures, chunks=True, compression="gzip")
        f["T"].attrs["units"] = "K"

Where h5py has a file, there is a pool: a folder, which many processes write at once, and whose
arrays engram views without a copy (`engram.open` opens the same). `file.py` tells of paths and
modes, `storage.py` what becomes of chunks and filters, `links.py` of links, `words.py` where it is
kept what a pool's arrays do not say. What a pool cannot have is refused by name (`refused.py`).
"""

from typing import Any

from engram.compat.h5py import filters, version
from engram.compat.h5py.attrs import AttributeManager
from engram.compat.h5py.base import Empty, HLObject
from engram.compat.h5py.dataset import Dataset
from engram.compat.h5py.datatype import Datatype
from engram.compat.h5py.dtypes import (
    check_dtype,
    check_enum_dtype,
    check_opaque_dtype,
    check_ref_dtype,
    check_string_dtype,
    check_vlen_dtype,
    enum_dtype,
    opaque_dtype,
    ref_dtype,
    regionref_dtype,
    special_dtype,
    string_dtype,
    string_info,
    vlen_dtype,
)
from engram.compat.h5py.errors import RefusedError
from engram.compat.h5py.file import File, is_hdf5
from engram.compat.h5py.group import Group, get_config
from engram.compat.h5py.links import ExternalLink, HardLink, SoftLink
from engram.compat.h5py.refused import (
    LowLevel,
    MultiBlockSlice,
    Reference,
    RegionReference,
    VirtualLayout,
    VirtualSource,
)
from engram.compat.h5py.version import version as __version__

UNLIMITED = None
"""What `maxshape` has for an axis without an end."""

_LOW = ("h5", "h5a", "h5ac", "h5d", "h5ds", "h5f", "h5fd", "h5g", "h5i", "h5l", "h5o", "h5p",
        "h5pl", "h5r", "h5s", "h5t", "h5z")  # fmt: skip


_AGAIN: dict[str, dict[str, Any]] = {
    "h5": {"get_config": get_config},
    "h5s": {"UNLIMITED": UNLIMITED},
    "h5f": {"UNLIMITED": UNLIMITED},
    "h5z": {"filter_avail": filters.filter_avail, **filters.NUMBERS},
    "h5r": {"Reference": Reference, "RegionReference": RegionReference},
    "h5t": {
        one.__name__: one
        for one in (
            *(check_dtype, check_enum_dtype, check_opaque_dtype, check_ref_dtype),
            *(check_string_dtype, check_vlen_dtype, enum_dtype, opaque_dtype, special_dtype),
            *(string_dtype, vlen_dtype),
        )
    }
    | {"string_info": string_info, "ref_dtype": ref_dtype, "regionref_dtype": regionref_dtype},
}


def __getattr__(name: str) -> Any:
    """Give what stands for a low-level module, or say that there is no such name."""
    if name in _LOW:
        return LowLevel(name, **_AGAIN.get(name, {}))
    raise AttributeError(f"module 'engram.compat.h5py' has no attribute {name!r}")


__all__ = [
    "UNLIMITED",
    "AttributeManager",
    "Dataset",
    "Datatype",
    "Empty",
    "ExternalLink",
    "File",
    "Group",
    "HLObject",
    "HardLink",
    "MultiBlockSlice",
    "Reference",
    "RefusedError",
    "RegionReference",
    "SoftLink",
    "VirtualLayout",
    "VirtualSource",
    "__version__",
    "check_dtype",
    "check_enum_dtype",
    "check_opaque_dtype",
    "check_ref_dtype",
    "check_string_dtype",
    "check_vlen_dtype",
    "enum_dtype",
    "filters",
    "get_config",
    "is_hdf5",
    "opaque_dtype",
    "ref_dtype",
    "regionref_dtype",
    "special_dtype",
    "string_dtype",
    "version",
    "vlen_dtype",
]
