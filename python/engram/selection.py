"""What an index selects of an array that lies in chunks: which coordinates, and what of them.

Lists, masks and arrays of numbers select by way of coordinates. Along each axis those that occur
make an *excerpt* of the array: its outer frame is read, or written, chunk by chunk, and chunks that
have nothing of it are left alone. What the index does with the whole array, its `key` does with the
excerpt, so that the rules are numpy's, whatever they are.
"""

from collections.abc import Iterator
from itertools import pairwise, product
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Block(NamedTuple):
    """A box of the array, and where its selected items are: in the excerpt, and in the box."""

    offsets: tuple[int, ...]
    counts: tuple[int, ...]
    place: tuple[slice, ...]
    within: tuple[NDArray[np.intp], ...]

    @property
    def is_dense(self) -> bool:
        """Whether each item of the box is one of the excerpt."""
        places = zip(self.counts, self.within, strict=True)
        return all(count == len(found) for count, found in places)


class Selection:
    """What an index selects, by an excerpt.

    Attributes
    ----------
    axes
        The coordinates along each axis of which something is selected, ascending.
    key
        The index into the excerpt.
    shape
        The excerpt's shape.

    """

    __slots__ = ("_by_points", "axes", "key", "shape")

    def __init__(self, key: Any, shape: tuple[int, ...]) -> None:
        """Work out what `key` selects of an array of this shape.

        Raises
        ------
        IndexError
            If numpy would refuse the index.

        """
        np.broadcast_to(np.False_, shape)[key]  # numpy's own words for what is out of bounds
        parts = key if isinstance(key, tuple) else (key,)
        taken = sum(_axes_of(part) for part in parts)
        self.axes: list[NDArray[np.intp]] = []
        rest: list[Any] = []
        for part in parts:
            if part is Ellipsis:
                for length in shape[len(self.axes) : len(self.axes) + len(shape) - taken]:
                    self.axes.append(np.arange(length))
                rest.append(Ellipsis)
            else:
                found, inner = _selected(part, shape[len(self.axes) :])
                self.axes += found
                rest.append(inner)
        self.axes += [np.arange(length) for length in shape[len(self.axes) :]]
        self.key = tuple(rest)
        self.shape = tuple(len(axis) for axis in self.axes)
        arrays = [inner for inner in rest if isinstance(inner, np.ndarray)]
        # A False selects nothing, and leaves the axes as they are.
        is_none = any(isinstance(part, bool | np.bool_) and not part for part in parts)
        self._by_points = is_none or sum(_axes_of(array) for array in arrays) > 1

    def wanted(self) -> NDArray[np.bool_] | None:
        """Return which items of the excerpt are selected; None if all are."""
        if not self._by_points:
            return None
        found = np.zeros(self.shape, np.bool_)
        found[self.key] = True
        return found

    def numbers(self) -> NDArray[np.intp] | None:
        """Return the numbers of the items that are selected, ascending, in the excerpt's order.

        None if all are. It takes memory for what is selected, and not for the whole excerpt.
        """
        if not self._by_points:
            return None
        found = np.broadcast_to(np.intp(0), self.shape)[self.key]
        stride = 1
        for axis, length in reversed([*enumerate(self.shape)]):
            along = np.arange(length).reshape(-1, *[1] * (len(self.shape) - axis - 1)) * stride
            found = found + np.broadcast_to(along, self.shape)[self.key]
            stride *= length
        return np.unique(found)

    def blocks(self, chunks: tuple[int, ...]) -> Iterator[Block]:
        """Yield the boxes that hold the excerpt: each within one chunk along axes with gaps."""
        cuts = []
        for axis, chunk in zip(self.axes, chunks, strict=True):
            is_run = not self._by_points and len(axis) == axis[-1] - axis[0] + 1 if len(axis) else 1
            ends = [] if is_run else [*(np.flatnonzero(np.diff(axis // chunk)) + 1)]
            bounds = [0, *map(int, ends), len(axis)]
            cuts.append([slice(a, b) for a, b in pairwise(bounds)])
        if 0 in self.shape:
            return
        for place in product(*cuts):
            found = [axis[part] for axis, part in zip(self.axes, place, strict=True)]
            offsets = tuple(int(one[0]) for one in found)
            counts = tuple(int(one[-1] - one[0]) + 1 for one in found)
            yield Block(offsets, counts, place, tuple(one - one[0] for one in found))


def _axes_of(part: Any) -> int:
    """Return how many axes a part of an index takes."""
    if part is None or part is Ellipsis or isinstance(part, bool | np.bool_):
        return 0
    if isinstance(part, slice | int | np.integer):
        return 1
    array = np.asarray(part)
    return array.ndim if array.dtype.kind == "b" else 1


def _selected(part: Any, shape: tuple[int, ...]) -> tuple[list[NDArray[np.intp]], Any]:
    """Return the coordinates that a part of an index takes, and what it is of these."""
    if part is None or isinstance(part, bool | np.bool_):
        return [], part
    if isinstance(part, slice):
        found = range(*part.indices(shape[0]))
        is_up = found.step > 0
        axis = np.asarray(found if is_up else found[::-1], np.intp)
        return [axis], slice(None, None, 1 if is_up else -1)
    if isinstance(part, int | np.integer):
        return [np.array([int(part) % shape[0]])], 0
    array = np.asarray(part)
    if array.dtype.kind == "b":
        axes = [
            np.flatnonzero(array.any(axis=tuple(n for n in range(array.ndim) if n != axis)))
            for axis in range(array.ndim)
        ]
        return axes, array[np.ix_(*axes)]
    whole = array.astype(np.intp)
    places, inverse = np.unique(np.where(whole < 0, whole + shape[0], whole), return_inverse=True)
    return [places], inverse.reshape(array.shape)


def shape_of(key: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of what an index selects from an array of a shape."""
    none = np.empty((), np.bool_)
    return np.shape(np.broadcast_to(none, shape)[key])


def is_basic(key: Any) -> bool:
    """Whether an index has integers, slices, `...` and new axes alone."""
    return all(
        (part is None or isinstance(part, int | np.integer | slice | EllipsisType))
        and not isinstance(part, bool | np.bool_)
        for part in (key if isinstance(key, tuple) else (key,))
    )


def field_names(key: Any) -> list[str] | None:
    """Return the fields that an index names; None if it is none of names."""
    if isinstance(key, str):
        return [key]
    if isinstance(key, list) and key and all(isinstance(name, str) for name in key):
        return key
    return None
