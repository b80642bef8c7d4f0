"""What handles of arrays have in common with those of a pool, wherever the values lie.

The values are fetched for each of these: `a + 1` and `numpy.sin(a)` read all of the array, and give
arrays of numpy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from engram import reflexes, tokens
from engram.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.cluster.cluster import Cluster


class Alike(ABC):
    """Something of a cluster with a value."""

    cluster: Cluster
    path: str

    @property
    def name(self) -> str:
        """The last step of its path."""
        return self.path.rpartition("/")[2]

    @abstractmethod
    def _sign(self) -> tuple[Any, ...]:
        """Give what two handles of one thing have in common, and those of two things do not."""

    def __bool__(self) -> bool:
        return self.cluster.is_open

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Alike):
            return NotImplemented
        return type(self) is type(other) and self._sign() == other._sign()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._sign())

    if not TYPE_CHECKING:  # checkers are to know what there is not

        def __getattr__(self, name: str) -> Any:
            """Say what is called otherwise in h5py; or what a property says of itself."""
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)
            raise reflexes.of_handle(self, name, is_group=False)

    def __dask_tokenize__(self) -> object:
        """By what name dask knows the values: another one each time, as they may change."""
        return tokens.new()


class AlikeArray(Alike, NDArrayOperatorsMixin):
    """An array of a cluster."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    __eq__ = Alike.__eq__
    __ne__ = Alike.__ne__
    __hash__ = Alike.__hash__

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("a single value (shape ()) has no length")
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, key: Any) -> Any:
        """Read what numpy's index asks for."""

    @abstractmethod
    def __setitem__(self, key: Any, value: Any) -> None:
        """Write what numpy's index selects."""

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise ArgumentError("a single value (shape ()) cannot be iterated: read it with [()]")
        return iter(self[...])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ArgumentError(
                f"the values of {self.path!r} are fetched from where they lie, which is a copy: "
                "leave copy=False out"
            )
        return np.asarray(self[...], dtype=dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute on the values, with `out` written in place."""
        out = options.get("out", ())
        targets = [one for one in out if isinstance(one, AlikeArray)]
        if method == "at" and isinstance(inputs[0], AlikeArray):
            _compute_at(ufunc, *inputs)
            return None
        if targets and (len(out) > 1 or method not in {"__call__", "accumulate", "reduce"}):
            raise ArgumentError(
                f"{ufunc.__name__} cannot write into {self.path!r} by {method!r}: compute on "
                "a[...], and assign what comes of it"
            )
        for target in targets:
            target._check_written(...)
        values = _Values()
        plain = [values.of(one) for one in inputs]
        options = {name: values.of(one) for name, one in options.items()}
        if not targets:
            return getattr(ufunc, method)(*plain, **options)
        (target,) = targets
        # What is not computed, as `where` may leave something, stays as it is.
        is_kept = "where" in options
        into = np.array(values.of(target)) if is_kept else np.empty(target.shape, target.dtype)
        options["out"] = (into,)
        target[...] = getattr(ufunc, method)(*plain, **options)
        return target

    def _check_written(self, key: Any) -> None:
        """Refuse a write that is refused whatever its value is, before a value is fetched."""


class _Values:
    """The values of arrays, each of which is fetched once."""

    def __init__(self) -> None:
        self._known: dict[int, np.ndarray[Any, Any]] = {}

    def of(self, thing: Any) -> Any:
        """Give the values of an array; of all else the thing itself."""
        if not isinstance(thing, AlikeArray):
            return thing
        if id(thing) not in self._known:
            self._known[id(thing)] = np.asarray(thing)
        return self._known[id(thing)]


def _compute_at(ufunc: np.ufunc, target: AlikeArray, key: Any, *rest: Any) -> None:
    target._check_written(key)
    values = _Values()
    found = np.array(values.of(target))
    ufunc.at(found, key, *map(values.of, rest))
    target[key] = found[key]
