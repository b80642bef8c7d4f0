"""What a variable's encoding says beyond CF: how a file had it, how it lies in the pool.

Read, an encoding has what an import kept in `origin`, in netCDF's words (`zlib`, `chunksizes`), so
that a file that is written of the dataset is like the one that it came from; and in the pool's own
words how it lies here (`chunks`, `codec`). Written, `chunks` and `codec` say how it shall lie here,
and netCDF's words go into `origin`, for exports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engram.errors import ArgumentError
from engram.formats import origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from engram._engram import ObjectInfo

_FILTERS = ("zlib", "szip", "zstd", "bzip2", "blosc", "shuffle", "complevel", "fletcher32")
_OURS = {"chunks", "codec"}
_NETCDF = {*_FILTERS, "chunksizes", "contiguous", "endian", "original_shape"}
_CF = {
    *("_FillValue", "_Unsigned", "_Encoding", "add_offset", "bounds", "calendar", "coordinates"),
    *("char_dim_name", "dtype", "grid_mapping", "missing_value", "scale_factor", "units"),
}
_TOLD = {"preferred_chunks", "source"}
FORMAT = "XARRAY"
"""How `origin` says that xarray has written it."""


def of_array(info: ObjectInfo, dims: Sequence[str], source: str) -> dict[str, Any]:
    """Return the encoding of an array: as its file had it, and as it lies in the pool."""
    kept = origin.decode(info.origin)
    found: dict[str, Any] = {"source": source, "original_shape": tuple(info.shape)}
    if str(kept.get("format", "")).startswith(("NETCDF4", "HDF5", FORMAT)):
        found |= _as_netcdf(kept)
    enum = _enum(kept.get("type"))
    if enum is not None:
        found["dtype"] = np.dtype(info.dtype, metadata=enum)
    if info.chunks is not None:
        found |= {"chunks": tuple(info.chunks), "codec": info.codec or "none"}
    preferred = info.chunks or found.get("chunksizes")
    if preferred is not None:  # in one piece any will do, so a file's are as good as others
        found["preferred_chunks"] = dict(zip(dims, preferred, strict=False))
    return found


def _as_netcdf(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an origin keeps of chunks and filters, as netCDF4 tells it to xarray."""
    filters, chunks = kept.get("filters"), kept.get("chunks")
    told = filters if isinstance(filters, dict) else {}
    if kept.get("format") == FORMAT and not told and chunks is None:
        return {}
    found: dict[str, Any] = {name: told.get(name, False) for name in _FILTERS}
    found["complevel"] = told.get("complevel", 0)
    has_chunks = isinstance(chunks, list)
    found["contiguous"] = not has_chunks
    found["chunksizes"] = tuple(chunks) if isinstance(chunks, list) else None
    return found


def _enum(told: Any) -> dict[str, Any] | None:
    """Return the enumeration that an origin tells of, in the words by which xarray knows one."""
    if not isinstance(told, dict) or not isinstance(told.get("enum"), dict):
        return None
    return {"enum": dict(told["enum"]), "enum_name": str(told.get("name", ""))}


def check(name: str, encoding: Mapping[str, Any]) -> None:
    """Refuse words of an encoding, given as an argument, that nothing here knows.

    Raises
    ------
    ArgumentError
        If there are any.

    """
    unknown = sorted(map(str, set(encoding) - _OURS - _NETCDF - _CF - _TOLD))
    if unknown:
        raise ArgumentError(
            f"unexpected encoding parameters {unknown} of {name!r}: beside CF's, give chunks and "
            "codec, or those of netCDF files, which are kept for exports"
        )


def layout(
    name: str, encoding: Mapping[str, Any], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> dict[str, Any]:
    """Return how an array shall lie: its chunks and codec, for `new_member`.

    Raises
    ------
    ArgumentError
        If the chunks are of another number of dimensions than the array.

    """
    chunks, codec = encoding.get("chunks"), encoding.get("codec")
    if chunks is None and codec is None:
        return {}
    if not shape or dtype.kind in "TO":  # what cannot be chunked lies in one piece
        return {}
    if chunks is None:
        return {"chunks": True, "codec": str(codec)}
    if chunks is True or chunks == "auto":
        return {"chunks": True, "codec": codec}
    lengths = (chunks,) * len(shape) if isinstance(chunks, int | np.integer) else tuple(chunks)
    if len(lengths) != len(shape):
        raise ArgumentError(
            f"chunks {chunks!r} of {name!r} has {len(lengths)} lengths, and the variable has "
            f"{len(shape)} dimensions: give one for each"
        )
    return {"chunks": lengths, "codec": codec}


def kept_of(encoding: Mapping[str, Any], dtype: np.dtype[Any]) -> bytes:
    """Return the origin of a variable: what a netCDF file that is made of it shall be like.

    Characters have one in any case: it says that their last dimension is that of texts.
    """
    filters = {n: encoding[n] for n in _FILTERS if encoding.get(n)}
    facts: dict[str, Any] = {"filters": filters} if filters else {}
    chunks = encoding.get("chunksizes")
    if chunks is not None:
        facts["chunks"] = [int(length) for length in chunks]
    enum: Mapping[str, Any] = dtype.metadata or {}
    if "enum" in enum and "enum_name" in enum:
        members = {str(name): int(number) for name, number in enum["enum"].items()}
        facts["type"] = {"enum": members, "base": dtype.str, "name": str(enum["enum_name"])}
    return origin.encode({"format": FORMAT, **facts}) if facts or dtype == np.dtype("S1") else b""


def kept_of_group(
    before: Mapping[str, Any], order: Iterable[str], sizes: Mapping[str, int], grows: set[str]
) -> bytes:
    """Return the origin of a group: the order of its variables, and the dimensions that grow."""
    facts = {name: value for name, value in before.items() if name != "version"}
    facts.setdefault("format", FORMAT)
    old = facts.get("dimensions")
    dims = dict(old) if isinstance(old, dict) else {}
    for name, length in sizes.items():
        if name in grows or name in dims:
            dims[name] = {"size": length, "unlimited": name in grows}
    if dims:
        facts["dimensions"] = dims
    facts["order"] = list(order)
    return origin.encode(facts)
