"""What an index selects of a dataset: h5py's rules, which are narrower than numpy's.

Integers, slices with steps forward, `...`; one list, of ascending numbers or of truths; or a mask
of the dataset's own shape. All else is refused in the same classes of errors as there.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

Shape = tuple[int, ...]


class Selected(NamedTuple):
    """An index for numpy, and what is selected.

    Attributes
    ----------
    key
        The index: one part for each axis, or a mask.
    shape
        The shape of what is selected.
    is_basic
        Whether it has integers and slices alone.
    turned
        The axis at which a list's items belong that numpy puts first, as it does where a slice
        stands between a list and an integer; 0 where they are in place.

    """

    key: Any
    shape: Shape
    is_basic: bool
    turned: int = 0

    def of(self, array: Any) -> Any:
        """Return what is selected of an array."""
        found = array[self.key]
        return np.ascontiguousarray(np.moveaxis(found, 0, self.turned)) if self.turned else found

    def put(self, array: Any, values: Any) -> None:
        """Write to what is selected of an array."""
        if self.turned:
            whole = (*self.shape, *array.shape[len(self.key) :])  # of an array type, its axes last
            values = np.moveaxis(np.broadcast_to(values, whole), self.turned, 0)
        array[self.key] = values


def fields_and_rest(args: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the names of fields in an index, and the rest."""
    names = tuple(
        arg.decode() if isinstance(arg, bytes) else arg
        for arg in args
        if isinstance(arg, str | bytes)
    )
    if not names:
        return (), args
    return names, tuple(arg for arg in args if not isinstance(arg, str | bytes))


def select(args: tuple[Any, ...], shape: Shape) -> Selected:
    """Work out what is selected.

    Raises
    ------
    TypeError, ValueError, IndexError
        As h5py.

    """
    if len(args) == 1 and isinstance(args[0], np.ndarray) and args[0].dtype.kind == "b":
        mask = args[0]
        if mask.shape == shape:
            return Selected(mask, (int(np.count_nonzero(mask)),), is_basic=False)
        if mask.shape != shape[:1]:
            raise TypeError(
                f"Boolean indexing array has incompatible shape: {mask.shape}, and the dataset has "
                f"{shape}"
            )
    if any(arg is None for arg in args):
        raise TypeError("Indexing with None (or np.newaxis) is not supported")
    parts: list[Any] = []
    lengths: list[int] = []
    is_basic = True
    for axis, arg in enumerate(_expanded(args, len(shape))):
        part, length = _part(arg, shape[axis], is_basic=is_basic)
        is_basic = is_basic and not isinstance(part, np.ndarray)
        parts.append(part)
        if length is not None:
            lengths.append(length)
    return Selected(tuple(parts), tuple(lengths), is_basic, _turned(parts))


def _turned(parts: list[Any]) -> int:
    """Return the axis at which a list's items belong, if numpy puts them first."""
    taken = [axis for axis, part in enumerate(parts) if not isinstance(part, slice)]
    lists = [axis for axis in taken if isinstance(parts[axis], np.ndarray)]
    if not lists or taken[-1] - taken[0] == len(taken) - 1:
        return 0
    return sum(isinstance(part, slice) for part in parts[: lists[0]])


def _expanded(args: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    dots = [place for place, arg in enumerate(args) if arg is Ellipsis]
    if len(dots) > 1:
        raise ValueError("Only one ellipsis may be used.")
    if len(args) - len(dots) > ndim:
        raise ValueError(f"{len(args) - len(dots)} indexing arguments for {ndim} dimensions")
    missing = (slice(None),) * (ndim - len(args) + len(dots))
    if not dots:
        return (*args, *missing)
    return (*args[: dots[0]], *missing, *args[dots[0] + 1 :])


def _part(arg: Any, length: int, *, is_basic: bool) -> tuple[Any, int | None]:
    if isinstance(arg, slice):
        return _slice(arg, length)
    try:
        place = operator.index(arg)
    except TypeError:
        return _list(arg, length, is_first=is_basic)
    if not -length <= place < length:
        where = f"(0-{length - 1})" if length else "empty dimension"
        raise IndexError(f"Index ({place}) out of range for {where}")
    return place, None


def _slice(arg: slice, length: int) -> tuple[slice, int]:
    try:
        start, stop, step = arg.indices(length)
    except ValueError:
        start, stop, step = 0, 0, 0
    if step < 1:
        raise ValueError(f"Step must be >= 1 (got {arg.step}): read it forward, and turn it then")
    return arg, len(range(start, stop, step))


def _list(arg: Any, length: int, *, is_first: bool) -> tuple[Any, int]:
    array = _numbers(arg, length)
    if not is_first:
        raise TypeError(
            "Only one indexing vector or array is currently allowed for fancy indexing: read the "
            "outer part first"
        )
    array = array.astype(np.intp)
    if len(array) and (array.min() < -length or array.max() >= length):
        bad = array[(array < -length) | (array >= length)][0]
        raise IndexError(f"Fancy indexing out of range for (0-{length - 1}): {bad}")
    array = np.where(array < 0, array + length, array)
    if (np.diff(array) <= 0).any():
        raise TypeError("Indexing elements must be in increasing order")
    return array, len(array)


def _numbers(arg: Any, length: int) -> np.ndarray[Any, Any]:
    """Return the numbers that a list, an array, or one of truths selects."""
    if not (isinstance(arg, list | tuple | range) or hasattr(arg, "__array__")):
        raise TypeError(f"Selection can't process {arg!r}")
    array = np.asarray(arg)
    if array.ndim != 1:
        raise TypeError("Only 1D arrays allowed for fancy indexing")
    if array.dtype.kind == "b":
        if len(array) != length:
            raise TypeError(
                f"boolean index did not match indexed array: it has {len(array)} items, and the "
                f"dimension {length}"
            )
        return np.flatnonzero(array)
    if not len(array):
        return np.zeros(0, np.intp)
    if array.dtype.kind not in "iu":
        raise TypeError(f"Indexing arrays must have integer dtypes, not {array.dtype}")
    return array


def spread(given: Shape, selected: Selected) -> Shape | None:
    """Return the shape to which values are brought before numpy broadcasts them; None as it is.

    Axes of one item are passed over where they fit nothing.

    Raises
    ------
    TypeError
        If they do not fit.

    """
    target = selected.shape
    if given == target or not given:
        return None
    if selected.is_basic:
        kept = list(given)
        while len(kept) > len(target) and kept[0] == 1:
            kept.pop(0)
        pairs = zip(reversed(kept), reversed(target), strict=False)
        if len(kept) <= len(target) and all(a in {1, b} for a, b in pairs):
            return tuple(kept)
        raise TypeError(f"Can't broadcast {given} -> {target}")
    if [n for n in given if n != 1] == [n for n in target if n != 1]:
        return target
    raise TypeError(
        f"Can't broadcast {given} -> {target}: complex selections take one value, or "
        "as many as they select"
    )
