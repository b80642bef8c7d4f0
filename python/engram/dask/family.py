"""How distributed's messages hold references: a family of serializers beside its own.

It is asked first, for messages to workers that are known to resolve what it makes (`plugin.py`),
and has distributed's own families do what is no array of a pool. Arrays in lists and dicts are
serialized one by one, as distributed does. Datasets and arrays of xarray's are pickled, with
references where they have arrays of a pool.
"""

from __future__ import annotations

import io
import pickle
from contextvars import ContextVar
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed.protocol.serialize import (
    deserialize,
    pickle_loads,
    register_serialization_family,
    serialize,
)

from engram.dask.reference import Home, Reference, refer, resolve, resolve_flat

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "engram"
_USUAL = ("dask", "pickle")
ORDER = (NAME, *_USUAL)
"""The families that a message with references is made by."""

allowed: ContextVar[frozenset[Home]] = ContextVar("allowed", default=frozenset())
"""The namespaces in which whoever gets the message finds what is referred to."""

_DEEPEST = 4
_MOST = 100
"""Of so many members of a list or dict it is looked whether they are arrays of a pool."""

_CONTAINERS = (list, tuple, set, frozenset)


def register() -> None:
    """Have distributed know the family, in this process."""
    register_serialization_family(NAME, _dumps, _loads)


def arrays_in(value: Any, depth: int = 0) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the arrays in a value that a message could refer to."""
    if type(value) is np.ndarray:
        yield value
    elif depth >= _DEEPEST:
        return
    elif type(value) is dict:
        for one in islice(value.values(), _MOST):
            yield from arrays_in(one, depth + 1)
    elif type(value) in _CONTAINERS:
        for one in islice(value, _MOST):
            yield from arrays_in(one, depth + 1)
    elif _is_labelled(value):
        for one in _variables_of(value):
            yield from arrays_in(one._data, depth + 1)


def _is_labelled(value: Any) -> bool:
    """Whether it is xarray's."""
    return type(value).__module__.startswith("xarray.core.")


def _variables_of(value: Any) -> Iterator[Any]:
    found = getattr(value, "variables", None)
    if found is None:
        found = {**getattr(value, "coords", {}), "": getattr(value, "variable", value)}
    for one in dict(found).values():
        variable = getattr(one, "variable", one)
        if hasattr(variable, "_data"):
            yield variable


def _dumps(value: Any, context: Any = None) -> tuple[dict[str, Any], list[Any]]:
    """Serialize an array by reference, what xarray has made with references, all else as it is."""
    if type(value) is np.ndarray:
        reference = _reference(value)
        if reference is not None:
            return {"reference": list(reference.flat())}, []
    elif _is_labelled(value) and any(map(_reference, arrays_in(value))):
        found = _pickled(value, (context or {}).get("pickle-protocol"))
        if found is not None:
            return found
    header, frames = serialize(value, serializers=_USUAL, context=context, iterate_collection=False)
    return {"usual": header}, frames


def _reference(array: np.ndarray[Any, Any]) -> Reference | None:
    reference = refer(array)
    return reference if reference is not None and reference.home in allowed.get() else None


class _Pickler(pickle.Pickler):
    """A pickler that refers to arrays of a pool."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and (reference := _reference(value)) is not None:
            return resolve_flat, reference.flat()
        return NotImplemented


def _pickled(value: Any, protocol: int | None) -> tuple[dict[str, Any], list[Any]] | None:
    """Pickle a value as distributed does, its memory beside it; None if that cannot be."""
    file, buffers = io.BytesIO(), list[memoryview]()

    def beside(buffer: Any) -> None:
        buffers.append(memoryview(buffer))

    try:
        _Pickler(file, protocol=protocol or 5, buffer_callback=beside).dump(value)
    except Exception:  # noqa: BLE001 - distributed has ways to pickle more
        return None
    header = {"writeable": tuple(not one.readonly for one in buffers)}
    return header, [file.getvalue(), *buffers]


def _loads(header: dict[str, Any], frames: list[Any]) -> Any:
    if "reference" in header:
        return resolve(Reference.of_flat(header["reference"]))
    if "usual" in header:
        return deserialize(header["usual"], frames)
    return pickle_loads(header, frames)
