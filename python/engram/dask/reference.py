"""An array on pool memory as some 100 bytes: where its object is, and which part of it is meant.

A view of an object knows the object (`_engram.View.object`), and numpy's arrays lead to the view,
however they were sliced, reversed or transposed. Another process of the node makes the same array
of the same memory: no byte is copied, and its claim keeps that memory, whatever becomes of the
object.

A reference is good while the object has that memory. It may have been deleted, replaced, or moved
to another scope since the view was made; so whoever gives a reference looks first, and whoever
takes one may find nothing there (`LostReferenceError`).
"""

from __future__ import annotations

import pickle
import weakref
from typing import Any, NamedTuple

import numpy as np

from engram import _engram
from engram.errors import EngramError
from engram.handle import reopen

LEAST = 16 << 10
"""Arrays of fewer bytes are sent as they are, which takes as long as to find them."""

_namespaces: dict[tuple[str, str, str], _engram.Namespace] = {}
_bases: weakref.WeakValueDictionary[tuple[str, str, str, int], np.ndarray[Any, Any]] = (
    weakref.WeakValueDictionary()
)
"""Arrays on whole objects by namespace and OID: however many parts are held, it is one claim."""


class LostReferenceError(EngramError, EOFError):
    """What a reference leads to is not there any more; its giver has the bytes still.

    To distributed, an `EOFError` is a message that broke off: it closes the connection and asks
    again, for whatever the message was.
    """


class Home(NamedTuple):
    """A namespace, as any process of the node can be told."""

    path: str
    uuid: str
    namespace: str

    def open(self) -> _engram.Namespace:
        """Open it for reading, or take what is open already."""
        found = _namespaces.get(self)
        if found is None or not found.is_open:
            found = reopen[0](self.path, "r", self.namespace, self.uuid)
            _namespaces[self] = found
        return found


class Reference(NamedTuple):
    """An array on the memory of an object."""

    home: Home
    oid: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str | bytes

    def flat(self) -> tuple[Any, ...]:
        """Return what a message can hold."""
        return (*self.home, *self[1:])

    @classmethod
    def of_flat(cls, flat: Any) -> Reference:
        """Read what `flat` has returned."""
        path, uuid, namespace, oid, offset, shape, strides, dtype = flat
        return cls(Home(path, uuid, namespace), oid, offset, tuple(shape), tuple(strides), dtype)


def home_of(array: Any) -> Home | None:
    """Tell in which namespace the object is on whose memory an array lies; None if on none."""
    view = _view_of(array)
    if view is None or (there := view.object) is None:
        return None
    path, uuid, namespace, _ = there
    return Home(str(path), uuid, namespace)


def refer(array: Any) -> Reference | None:
    """Make a reference to an array; None if it is on no memory of a pool, or of no object by now.

    Only numpy's own arrays have one: of a subclass, the array is not all.
    """
    view = _view_of(array)
    if view is None or array.nbytes < LEAST or array.dtype.hasobject:
        return None
    there = view.object
    if there is None:
        return None
    path, uuid, namespace, oid = there
    home = Home(str(path), uuid, namespace)
    start = _address(_bytes(view))
    try:
        if _address(_base(home, oid)) != start:
            return None  # it has other memory by now
    except (EngramError, OSError):
        return None
    offset = _address(array) - start
    return Reference(home, oid, offset, array.shape, array.strides, _told(array.dtype))


def resolve(reference: Reference) -> np.ndarray[Any, Any]:
    """Make the array of a reference: read-only, on the pool's memory.

    Raises
    ------
    LostReferenceError
        If this process cannot open the pool, or the object is gone.

    """
    told = reference.dtype
    dtype = np.dtype(told) if isinstance(told, str) else pickle.loads(told)  # noqa: S301 - a dtype
    try:
        base = _base(reference.home, reference.oid)
        return np.ndarray(reference.shape, dtype, base, reference.offset, reference.strides)
    except (EngramError, OSError, ValueError, TypeError) as error:
        raise LostReferenceError(
            f"object {reference.oid:#x} of the pool {reference.home.path!r}, to which a message "
            f"refers, is not to be had here ({error}): the bytes are asked for"
        ) from None


def resolve_flat(*flat: Any) -> np.ndarray[Any, Any]:
    """Make the array of what `Reference.flat` has returned: for pickles."""
    return resolve(Reference.of_flat(flat))


def _base(home: Home, oid: int) -> np.ndarray[Any, Any]:
    """Give all of an object's memory, as it is now, as bytes."""
    namespace = home.open()
    info = _engram.object_info(namespace, oid)
    view = _engram.view(namespace, oid, info.dtype, tuple(info.shape), False).base
    if not isinstance(view, _engram.View) or view.object is None:
        raise LostReferenceError(f"object {oid:#x} lies in the catalog")
    flat = _bytes(view)
    known = _bases.get((*home, oid))
    if known is not None and _address(known) == _address(flat):
        return known
    _bases[*home, oid] = flat
    return flat


def _view_of(array: Any) -> _engram.View | None:
    """Find the view on whose memory an array lies."""
    if type(array) is not np.ndarray:
        return None
    base: Any = array
    while base is not None and not isinstance(base, _engram.View):
        # What numpy makes of strides has a thing of its own in between, which has a base, too.
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return base


def _bytes(view: Any) -> np.ndarray[Any, Any]:
    """Give all memory of a view."""
    return np.frombuffer(view, np.uint8)


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _told(dtype: np.dtype[Any]) -> str | bytes:
    """Return a dtype as a message can hold it."""
    plain = dtype.kind != "V" and dtype.metadata is None
    return dtype.str if plain else pickle.dumps(dtype)
