"""How a dataset is stored: what was asked for is kept, and the nearest that a pool has is done.

A pool's codecs are zstd and LZ4. What h5py is asked for (`compression="gzip"`, `shuffle=True`) is
kept in the words of an import, so that it is answered, and an export does it; the pool itself
encodes chunks with zstd for gzip and szip, and with LZ4 for lzf.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from engram.compat.h5py.errors import BeyondError

Shape = tuple[int, ...]
Words = dict[str, Any]
DType = np.dtype[Any]

GZIP, SHUFFLE, FLETCHER32, SZIP, SCALEOFFSET, LZF = 1, 2, 3, 4, 6, 32000
_NAMES = {GZIP: "gzip", SZIP: "szip", LZF: "lzf"}
FILTER_NAMES = {
    GZIP: "deflate",
    SHUFFLE: "shuffle",
    FLETCHER32: "fletcher32",
    SZIP: "szip",
    SCALEOFFSET: "scaleoffset",
    LZF: "lzf",
}
_KNOWN = {SHUFFLE, FLETCHER32, SCALEOFFSET, GZIP, SZIP, LZF}
_OPTIONAL = 1
_FIRST_REGISTERED = 256
"""HDF5's own filters are below; those above come with plugins, such as hdf5plugin's."""
_DEFAULT_GZIP = 4
_LEVELS = range(10)
_DEFAULT_SZIP = ("nn", 8)
_SZIP_MASKS = {"ec": 4, "nn": 32}
_MOST_SZIP = 32
_FILL_TIMES = {"alloc": 0, "never": 1, "ifset": 2}
_AUTO_BYTES = 256 << 10
"""A chunk that is chosen here has about so many bytes."""
_UNKNOWN_LENGTH = 1024
"""What an axis is taken for that has no length yet."""

LEVELS_OF_ZSTD = {0: 1, 1: 1, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5, 7: 6, 8: 7, 9: 9}


class Asked(NamedTuple):
    """What `create_dataset` is asked for of a dataset's storage."""

    chunks: Any = None
    maxshape: Any = None
    compression: Any = None
    compression_opts: Any = None
    shuffle: Any = None
    fletcher32: Any = None
    scaleoffset: Any = None
    fill_time: Any = None


class Storage(NamedTuple):
    """How a dataset is stored: for the pool, and in words."""

    chunks: Shape | None
    codec: str | None
    words: Words


def storage(asked: Asked, shape: Shape | None, dtype: DType) -> Storage:
    """Work out how a dataset is stored.

    Raises
    ------
    TypeError, ValueError
        If what is asked for does not fit, as h5py.

    """
    is_compressed = asked.compression is not None and asked.compression is not False
    has_filters = bool(is_compressed or asked.shuffle or asked.fletcher32)
    has_filters = has_filters or asked.scaleoffset is not None
    if (has_filters or asked.maxshape) and asked.chunks is False:
        raise ValueError(
            "Chunked format required for given storage options: leave chunks=False out"
        )
    if not shape:
        _check_without_axes(asked, shape, has_filters=has_filters)
        return Storage(None, None, {})
    maxshape = _maxshape(asked.maxshape, shape)
    filters = _filters(asked, dtype)
    chunks = _chunks(asked.chunks, shape, maxshape)
    if asked.chunks is True or (chunks is None and (filters or asked.maxshape is not None)):
        chunks = auto_chunks(shape, dtype.itemsize)
    words: Words = {}
    if chunks is not None:
        words["chunks"] = list(chunks)
    if maxshape is not None and (maxshape != shape or asked.maxshape is True):
        words["maxshape"] = list(maxshape)
    if filters:
        words["filters"] = filters
    if asked.fill_time is not None:
        if asked.fill_time not in _FILL_TIMES:
            raise ValueError(
                "fill_time must be one of the following choices: 'alloc', 'never' or 'ifset', but "
                f"it is {asked.fill_time}."
            )
        words["fill_time"] = _FILL_TIMES[asked.fill_time]
    return Storage(chunks, codec_of(filters) if chunks is not None else None, words)


def _check_without_axes(asked: Asked, shape: Shape | None, *, has_filters: bool) -> None:
    kind = "Empty" if shape is None else "Scalar"
    if asked.chunks or has_filters or asked.compression_opts is not None:
        raise TypeError(f"{kind} datasets don't support chunk/filter options")
    if asked.maxshape and asked.maxshape != ():
        raise TypeError(f"{kind} datasets cannot be extended")


def _maxshape(asked: Any, shape: Shape) -> tuple[int | None, ...] | None:
    if asked is None or asked is False:
        return None
    if asked is True:
        return (None,) * len(shape)
    limits = (asked,) if isinstance(asked, int) else _tuple(asked, "maxshape")
    if len(limits) != len(shape):
        raise ValueError("'maxshape' must have same rank as dataset shape")
    for most, length in zip(limits, shape, strict=True):
        if most is not None and most < length:
            raise ValueError(
                f"maxshape {limits} is less than {shape}: give None for an axis that grows"
            )
    return tuple(None if most is None else int(most) for most in limits)


def _chunks(asked: Any, shape: Shape, maxshape: tuple[int | None, ...] | None) -> Shape | None:
    if asked is None or isinstance(asked, bool):
        return None
    chunks = (asked,) if isinstance(asked, int | np.integer) else _tuple(asked, "chunks")
    if len(chunks) != len(shape):
        raise ValueError("'chunks' must have same rank as dataset shape")
    limits = shape if maxshape is None else maxshape
    if any(most is not None and chunk > most for chunk, most in zip(chunks, limits, strict=True)):
        raise ValueError(
            "Chunk shape must not be greater than data shape in any dimension. "
            f"{chunks} is not compatible with {shape}"
        )
    if any(chunk < 1 for chunk in chunks):
        raise ValueError(f"chunks {chunks} are none: each length is 1 at least")
    return tuple(int(chunk) for chunk in chunks)


def _tuple(given: Any, name: str) -> tuple[Any, ...]:
    try:
        return tuple(given)
    except TypeError:
        raise TypeError(f"{name!r} argument must be None or a sequence object") from None


def auto_chunks(shape: Shape, itemsize: int) -> Shape:
    """Return chunks of a reasonable size: the longest axis is halved until they are so."""
    chunks = [length or _UNKNOWN_LENGTH for length in shape]
    while math.prod(chunks) * max(1, itemsize) > _AUTO_BYTES and max(chunks) > 1:
        longest = chunks.index(max(chunks))
        chunks[longest] = -(-chunks[longest] // 2)
    return tuple(chunks)


def _filters(asked: Asked, dtype: DType) -> list[Words]:
    """Return the filters asked for, in HDF5's order and numbers."""
    found: list[tuple[int, int, tuple[int, ...]]] = []
    if asked.scaleoffset is not None and asked.scaleoffset is not False:
        found.append(_scaleoffset(asked, dtype))
    if asked.shuffle:
        found.append((SHUFFLE, _OPTIONAL, (dtype.itemsize,)))
    compression = _compression(asked.compression, asked.compression_opts)
    if compression is not None:
        found.append(compression)
    if asked.fletcher32:
        found.append((FLETCHER32, 0, ()))
    return [{"id": code, "flags": flags, "values": list(v)} for code, flags, v in found]


def _scaleoffset(asked: Asked, dtype: DType) -> tuple[int, int, tuple[int, ...]]:
    given = asked.scaleoffset
    if given < 0:
        raise ValueError("scale factor must be >= 0")
    if dtype.kind == "f":
        if given is True:
            raise ValueError("integer scaleoffset must be provided for floating point types")
    elif dtype.kind not in "ui":
        raise TypeError("scale/offset filter only supported for integer and floating-point types")
    if asked.fletcher32:
        raise ValueError("fletcher32 cannot be used with potentially lossy scale/offset filter")
    return (
        SCALEOFFSET,
        _OPTIONAL,
        (0 if dtype.kind == "f" else 2, 0 if given is True else int(given)),
    )


def _compression(name: Any, options: Any) -> tuple[int, int, tuple[int, ...]] | None:
    if name is None or name is False:
        if options is not None:
            raise TypeError("Compression method must be specified")
        return None
    name, options = _usual(name, options)
    if name == "gzip":
        return _gzip(options)
    if name == "lzf":
        if options is not None:
            raise ValueError("LZF compression filter accepts no options")
        return LZF, _OPTIONAL, ()
    if name == "szip":
        return _szip(_DEFAULT_SZIP if options is None else options)
    return _by_number(name), _OPTIONAL, tuple(int(v) for v in options or ())


def _usual(name: Any, options: Any) -> tuple[Any, Any]:
    """Return a compression by the usual name, where it is given in another way."""
    if name is True:
        return "gzip", _DEFAULT_GZIP if options is None else options
    if isinstance(name, int | np.integer) and name in _LEVELS:
        if options is not None:
            raise TypeError("Conflict in compression options")
        return "gzip", int(name)
    if hasattr(name, "filter_id"):  # as hdf5plugin's classes
        return name.filter_id, getattr(name, "filter_options", options)
    return name, options


def _by_number(name: Any) -> int:
    is_number = isinstance(name, int | np.integer)
    what = "Unknown compression filter number" if is_number else "Compression filter"
    if is_number and (name in _KNOWN or name >= _FIRST_REGISTERED):
        return int(name)
    if is_number and name < 0:
        what = "Invalid filter number"
    raise ValueError(f'{what} {name!r} is unavailable: use "gzip", "lzf" or "szip"')


def _gzip(options: Any) -> tuple[int, int, tuple[int, ...]]:
    level = _DEFAULT_GZIP if options is None else options
    if level not in _LEVELS:
        raise ValueError(f"GZIP setting must be an integer from 0-9, not {options!r}")
    return GZIP, _OPTIONAL, (int(level),)


def _szip(options: Any) -> tuple[int, int, tuple[int, ...]]:
    what = "SZIP options must be a 2-tuple ('ec'|'nn', even integer 0-32)"
    try:
        method, pixels = options
    except TypeError:
        raise TypeError(what) from None
    if method not in _SZIP_MASKS or not (0 < pixels <= _MOST_SZIP and pixels % 2 == 0):
        raise ValueError(what)
    return SZIP, _OPTIONAL, (_SZIP_MASKS[method], int(pixels))


def codec_of(filters: list[Words]) -> str | None:
    """Return the pool's codec for filters of HDF5."""
    codes = {one["id"]: one["values"] for one in filters}
    name = None
    if LZF in codes:
        name = "lz4"
    elif GZIP in codes:
        name = f"zstd:{LEVELS_OF_ZSTD.get((codes[GZIP] or [_DEFAULT_GZIP])[0], 3)}"
    elif SZIP in codes or SCALEOFFSET in codes or codes.keys() - _KNOWN:
        name = "zstd"
    if name is None:
        return "shuffle+lz4" if SHUFFLE in codes else None
    return f"shuffle+{name}" if SHUFFLE in codes else name


# What was asked for, from the words.


def filters_of(words: Words) -> dict[int, tuple[int, ...]]:
    """Return the filters that words tell of: HDF5's numbers, and what is set of each."""
    told = words.get("filters")
    if isinstance(told, dict):  # as netCDF's library tells of them
        found: dict[int, tuple[int, ...]] = {SHUFFLE: ()} if told.get("shuffle") else {}
        if told.get("zlib"):
            found[GZIP] = (int(told.get("complevel") or 0),)
        if told.get("fletcher32"):
            found[FLETCHER32] = ()
        return found
    return {one["id"]: tuple(one["values"]) for one in told or ()}


def compression_of(words: Words) -> tuple[str | None, Any]:
    """Return a dataset's compression, and how it is set."""
    found = filters_of(words)
    for code, name in _NAMES.items():
        if code not in found:
            continue
        values = found[code]
        if code == LZF:
            return name, None
        if code == GZIP:
            return name, values[0] if values else _DEFAULT_GZIP
        return name, ("ec" if values[0] & _SZIP_MASKS["ec"] else "nn", values[1])
    return ("unknown", None) if found.keys() - _KNOWN else (None, None)


def check_within(shape: Shape, maxshape: tuple[int | None, ...] | None) -> None:
    """Refuse a shape beyond what a dataset may have.

    Raises
    ------
    RuntimeError
        It is an `ArgumentError` as well.

    """
    limits = maxshape or ()
    if len(shape) != len(limits):
        raise BeyondError(f"{shape} has not the dataset's {len(limits)} dimensions")
    for length, most in zip(shape, limits, strict=True):
        if length < 0 or (most is not None and length > most):
            raise BeyondError(
                f"dimension cannot exceed the existing maximal size: {shape} is beyond maxshape "
                f"{limits}; create it with None for an axis that grows"
            )
