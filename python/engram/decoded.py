"""Values as attributes describe them: packed ones unpacked, missing ones NaN, times from numbers.

What is stored stays as it is. `Encoding` is what an array's attributes say of it by the CF
conventions, and `Decoded` an array seen through that: it reads and decodes what is asked for, and
holds nothing. In order: the sign of `_Unsigned`, then what is missing (`_FillValue`,
`missing_value`, outside `valid_range`, `valid_min` or `valid_max`), then `scale_factor` and
`add_offset`, or the units of times. What makes no sense in an attribute, as a factor that is a
text, is as if it were not there: attributes come from any file.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from engram.errors import ArgumentError, InvalidNameError
from engram.time_units import TimeUnits

_MISSING = ("_FillValue", "missing_value")
_VALID = ("valid_range", "valid_min", "valid_max")
_SCALED = ("scale_factor", "add_offset")
_SHORT = 2
"""Whole numbers of so many bytes at most are exact in single precision."""


class Encoding:
    """How values are stored, as far as an array's dtype and its attributes tell.

    Parameters
    ----------
    dtype
        The array's.
    attrs
        The array's.

    Raises
    ------
    ArgumentError
        If the values are times whose units or calendar cannot be told.

    """

    def __init__(self, dtype: np.dtype[Any], attrs: Mapping[str, Any]) -> None:
        self.stored = dtype
        self.used: set[str] = set()
        self.times: TimeUnits | None = None
        self._attrs = attrs
        self._unsigned = False
        self._bool = False
        self._fills: list[Any] = []
        self._valid = (-math.inf, math.inf)
        self._scale, self._offset = None, None
        if dtype.kind in "iufc":
            self._read()
        self.dtype = self._meant()

    @property
    def is_plain(self) -> bool:
        """Whether the values are meant as they are stored."""
        return not self.used

    def decode(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Return the values that are meant by some stored ones, of any shape."""
        if self.is_plain:
            return raw
        if self._bool:
            return raw.astype(bool)
        if self.times is None:
            return self.numbers(raw, self.dtype)
        raw = self._signed(raw)
        packed = self._scale is not None or self._offset is not None
        dtype = np.dtype("f8") if packed else raw.dtype.newbyteorder("=")
        return self.times.decode(self._unpacked(raw, dtype), self._missing(raw))

    def numbers(self, raw: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return stored values unpacked as numbers of `dtype`, missing ones NaN; times are too."""
        raw = self._signed(raw)
        missing = self._missing(raw)
        values = self._unpacked(raw, dtype)
        if missing.any():
            values[missing] = np.nan
        return values

    def _signed(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Return stored values as unsigned ones, where that is what they are."""
        if not self._unsigned:
            return raw
        return raw.astype(raw.dtype.newbyteorder("=")).view(f"u{raw.dtype.itemsize}")

    def _unpacked(self, raw: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a copy, unpacked."""
        values = raw.astype(dtype)
        if self._scale is not None:
            values *= self._scale
        if self._offset is not None:
            values += self._offset
        return values

    def _missing(self, raw: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell which values are missing."""
        missing = np.zeros(raw.shape, bool)
        for fill in self._fills:
            missing |= raw == fill
        low, high = self._valid
        if low > -math.inf:
            missing |= raw < low
        if high < math.inf:
            missing |= raw > high
        return missing

    def _read(self) -> None:
        """Find out what the attributes say; `used` are those that decoding does away with."""
        attrs, kind = self._attrs, self.stored.kind
        self._bool = kind in "iu" and attrs.get("dtype") == "bool"
        if self._bool:
            self.used.add("dtype")
            return
        if kind == "i" and str(attrs.get("_Unsigned", "")).lower() == "true":
            self._unsigned = True
            self.used.add("_Unsigned")
        for name in _MISSING:
            fills = numbers(attrs.get(name))
            self._fills += [self._comparable(fill) for fill in fills if not np.isnan(fill)]
            self.used |= {name} if fills else set()
        if kind != "c":
            self._read_valid()
        scale, offset = (numbers(attrs.get(name)) for name in _SCALED)
        self._scale = scale[0] if len(scale) == 1 else None
        self._offset = offset[0] if len(offset) == 1 else None
        given = zip(_SCALED, (self._scale, self._offset), strict=True)
        self.used |= {name for name, value in given if value is not None}
        if kind != "c":
            self.times = TimeUnits.of(attrs)
            self.used |= {"units", "calendar"} & set(attrs) if self.times is not None else set()

    def _comparable(self, value: Any) -> Any:
        """Return a value of an attribute as stored values are compared with it."""
        if self._unsigned and value < 0:
            return int(value) % (1 << 8 * self.stored.itemsize)
        return value.item()

    def _read_valid(self) -> None:
        """Find the range outside which values are missing."""
        both = numbers(self._attrs.get("valid_range"))
        if len(both) == 2:  # noqa: PLR2004 - a pair
            self._valid = (self._comparable(both[0]), self._comparable(both[1]))
            self.used.add("valid_range")
            return
        low, high = (numbers(self._attrs.get(name)) for name in _VALID[1:])
        self._valid = (
            self._comparable(low[0]) if len(low) == 1 else -math.inf,
            self._comparable(high[0]) if len(high) == 1 else math.inf,
        )
        given = zip(_VALID[1:], (low, high), strict=True)
        self.used |= {name for name, found in given if len(found) == 1}

    def _meant(self) -> np.dtype[Any]:
        """Return the dtype of what is meant."""
        if self.is_plain:
            return self.stored
        if self._bool:
            return np.dtype(bool)
        if self.times is not None:
            return self.times.dtype
        stored, words = self.stored.newbyteorder("="), []
        if self.used == {"_Unsigned"}:
            return np.dtype(f"u{stored.itemsize}")
        for value in (self._scale, self._offset):
            if value is not None and value.dtype.kind == "f":
                words.append(value.dtype)
            elif value is not None:
                words.append(np.dtype("f8"))
        if stored.kind in "iu":
            few = stored.itemsize <= _SHORT
            words.append(np.dtype("f4") if few else np.dtype("f8"))
        else:
            words.append(stored)
        return np.result_type(*words, np.dtype("f4"))


def encoding_for_show(array: Any) -> Encoding:
    """Return how an array's values are stored; as numbers, where what times they are is unclear."""
    attrs = _attrs_of(array)
    try:
        return Encoding(array.dtype, attrs)
    except ArgumentError:
        return Encoding(array.dtype, {**attrs, "units": ""})


def _attrs_of(array: Any) -> dict[str, Any]:
    """Return an array's attributes; bounds of times have the units of their times, as CF has it.

    The times are the coordinate of one of the array's dimensions, or the array whose name goes
    before `_bounds` or `_bnds`; their `bounds` or `climatology` names this one.
    """
    attrs: dict[str, Any] = dict(array.attrs.items())
    dims = array.dims or ()
    if len(dims) < 2 or "units" in attrs or array.dtype.kind not in "iuf":  # noqa: PLR2004 - bounds
        return attrs
    name, parent = array.name, array.parent
    stem = name.removesuffix("_bounds").removesuffix("_bnds")
    for known in (*dims[:-1], stem):
        times = named(parent, known) if known != name else None
        given = {} if times is None else times.attrs
        if name in (given.get("bounds"), given.get("climatology")) and "units" in given:
            shared = {key: given[key] for key in ("units", "calendar") if key in given}
            return {**shared, **attrs} if " since " in str(shared["units"]) else attrs
    return attrs


def named(group: Any, dim: str) -> Any:
    """Give what a group has of a dimension's name; None if nothing, as of what no array is called.

    Such names are `..`, and those with a slash.
    """
    try:
        return group.get(dim) if dim and "/" not in dim else None
    except InvalidNameError:
        return None


def numbers(value: object) -> list[Any]:
    """Return the numbers in an attribute, of numpy's types; none if it is something else."""
    if value is None:
        return []
    array = np.atleast_1d(np.asarray(value))
    return list(array.ravel()) if array.dtype.kind in "iuf" else []


class Decoded(NDArrayOperatorsMixin):
    """An array's values as its attributes describe them; `array.decoded()` gives it.

    It reads when it is indexed or computed with, and decodes what it reads: `d[2:5]`, `d.mean()`,
    `np.asarray(d)`, `d - 273.15` are numpy's. What the attributes say was looked at once.
    """

    __slots__ = ("_array", "_encoding")

    def __init__(self, array: Any) -> None:
        self._array = array
        self._encoding = Encoding(array.dtype, _attrs_of(array))

    @property
    def encoding(self) -> dict[str, Any]:
        """The attributes that say how the values are stored."""
        found = self._array.attrs
        return {name: found[name] for name in sorted(self._encoding.used) if name in found}

    @property
    def attrs(self) -> dict[str, Any]:
        """All other attributes."""
        used = self._encoding.used
        return {name: value for name, value in self._array.attrs.items() if name not in used}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the decoded values; object for times of calendars that numpy has not."""
        return self._encoding.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        shape: tuple[int, ...] = self._array.shape
        return shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self.shape)

    @property
    def dims(self) -> tuple[str, ...] | None:
        """The dimensions' names, if they were given any."""
        dims: tuple[str, ...] | None = self._array.dims
        return dims

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of a chunk; None for an array in one piece."""
        chunks: tuple[int, ...] | None = self._array.chunks
        return chunks

    def __getitem__(self, key: Any) -> Any:
        """Read and decode what `key` selects, as the array itself would give it."""
        part = self._array[key]
        encoding = self._encoding
        if isinstance(key, str) or encoding.is_plain:
            return part
        found = encoding.decode(np.asarray(part))
        return found if isinstance(part, np.ndarray) else found[()]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Decode all; without a copy where nothing is to be decoded."""
        if self._encoding.is_plain:
            plain: NDArray[Any] = self._array.__array__(dtype, copy)
            return plain
        if copy is False:
            raise ArgumentError(
                f"{self._array.path!r} is decoded ({', '.join(self.encoding)}), which is a copy: "
                "leave copy=False out, or take the stored values by view()"
            )
        found = self._encoding.decode(np.asarray(self._array))
        return found if dtype is None else found.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute with the decoded values; they cannot be written to."""
        written = inputs[:1] if method == "at" else options.get("out", ())
        if any(isinstance(target, Decoded) for target in written):
            raise ArgumentError(
                f"decoded values of {self._array.path!r} cannot be written to: write stored ones"
            )
        known = [np.asarray(each) if isinstance(each, Decoded) else each for each in inputs]
        return getattr(ufunc, method)(*known, **options)

    def __array_function__(self, work: Any, types: Any, args: Any, options: Any) -> Any:
        """Compute with the decoded values."""
        del types
        return work(*_as_arrays(args), **_as_arrays(options))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Give a method of numpy's arrays that computes: `mean`, `max`, `std` and their like."""
        if name not in _METHODS:
            raise AttributeError(
                f"decoded values have no {name!r}: np.asarray(...) is all of them, as numpy has it"
            )
        method: Callable[..., Any] = getattr(np.asarray(self), name)
        return method

    def __dask_tokenize__(self) -> object:
        """By what name dask knows the values: that of the stored ones, and how they are stored."""
        said = [(name, str(value)) for name, value in self.encoding.items()]
        return ("engram.decoded", self._array.__dask_tokenize__(), said)

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[...])

    def __repr__(self) -> str:
        said = ", ".join(f"{name} {value}" for name, value in self.encoding.items())
        how = f": {said}" if said else ", as it is stored"
        return f"<decoded {self._array.path!r} {self.shape} {self.dtype}{how}>"


_METHODS = frozenset(
    {
        *(
            "all",
            "any",
            "argmax",
            "argmin",
            "argsort",
            "astype",
            "clip",
            "copy",
            "cumprod",
            "cumsum",
        ),
        *("diagonal", "dot", "flatten", "max", "mean", "min", "nonzero", "prod", "ravel", "repeat"),
        *("reshape", "round", "squeeze", "std", "sum", "swapaxes", "take", "tobytes", "tolist"),
        *("trace", "transpose", "var"),
    }
)
"""Methods of numpy's arrays that change nothing."""


def _as_arrays(given: Any) -> Any:
    """Put decoded values in the place of what decodes them, wherever it stands."""
    if isinstance(given, Decoded):
        return np.asarray(given)
    if isinstance(given, list | tuple):
        return type(given)(_as_arrays(each) for each in given)
    if isinstance(given, dict):
        return {name: _as_arrays(each) for name, each in given.items()}
    return given
