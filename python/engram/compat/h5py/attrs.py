"""Attributes as h5py has them, in a pool that keeps the same values.

What of their types a value does not say (an enumeration, UTF-8 of a fixed width, no dataspace) is
kept as words, under `attributes`; so is their order where it is tracked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from engram import _engram
from engram.compat.h5py import base, dtypes, refused, values, words
from engram.compat.h5py.base import Empty, Viewed, text_of
from engram.compat.h5py.errors import NoWriteError
from engram.compat.h5py.refused import refuse
from engram.errors import NotFoundError, ReadOnlyError

if TYPE_CHECKING:
    from engram.compat.h5py.base import HLObject

_WORD = "attributes"
_ORDER = "attribute_order"


class AttributeManager(Viewed, MutableMapping[str, Any]):
    """The attributes of a file, a group or a dataset."""

    __slots__ = ("_id", "_is_group", "_ns", "_of")

    def __init__(self, parent: HLObject) -> None:
        self._of = parent
        self._ns = parent._namespace
        self._is_group = parent._is_group
        self._id = parent._id

    def __getitem__(self, name: Any) -> Any:
        name = text_of(name)
        found = _engram.attr_get(self._ns, self._is_group, self._id, name)
        if found is None:
            there = ", ".join(map(repr, list(self)[:8])) or "nothing"
            raise NotFoundError(f"there is no attribute {name!r} here: there is {there}")
        if isinstance(found, str):
            return str(found)
        if isinstance(found, np.ndarray):
            return self._array(name, found)
        return found

    def _array(self, name: str, found: np.ndarray[Any, Any]) -> Any:
        if found.shape == (0,):
            told = self._told().get(name, {})
            if told.get("dataspace") == "null":
                return Empty(dtypes.told_dtype(found.dtype, told))
        if found.dtype.kind in "TU":
            return values.as_objects(found, encoded=False)
        return found[()] if found.ndim == 0 else found

    def __setitem__(self, name: Any, value: Any) -> None:
        self.create(name, value)

    def create(self, name: Any, data: Any, shape: Any = None, dtype: Any = None) -> None:
        """Set an attribute, of a shape and dtype if they are given.

        Raises
        ------
        TypeError
            If HDF5 has no type for the value, or a pool has none.
        ValueError
            If the shape is of another number of items.

        """
        name = text_of(name)
        kept, told = _kept(data, shape, dtype)
        try:
            _engram.attr_set(self._ns, self._is_group, self._id, {name: kept})
        except ReadOnlyError as error:
            raise NoWriteError(str(error)) from error
        self._tell(name, told)

    def modify(self, name: Any, value: Any) -> None:
        """Change an attribute, which keeps its type; set it, if it is not there.

        Raises
        ------
        OSError
            If it has no dataspace.
        TypeError
            If the value is of another shape.

        """
        name = text_of(name)
        if name not in self:
            self[name] = value
            return
        was = self[name]
        if isinstance(was, Empty):
            raise OSError(f"{name!r} is Empty, and can't be modified: set it anew")
        if isinstance(was, str):
            self._modified(name, value, np.asarray(was, dtypes.string_dtype()))
            return
        array = np.asarray(was)
        if array.dtype.kind == "O":
            array = array.view(dtypes.string_dtype())
        self._modified(name, value, array)

    def _modified(self, name: str, value: Any, was: np.ndarray[Any, Any]) -> None:
        new = np.asarray(value, None if isinstance(value, np.ndarray) else was.dtype)
        if new.shape != was.shape and not (new.size == 1 == was.size):
            raise TypeError(
                f"Shape of data is incompatible with existing attribute: {new.shape} is not "
                f"{was.shape}; set it anew"
            )
        new = values.written(new.reshape(was.shape), was.dtype)
        kept = new if new.dtype.kind == "T" else new.astype(was.dtype)
        _engram.attr_set(self._ns, self._is_group, self._id, {name: kept})

    def get_id(self, name: Any) -> NoReturn:
        """Refused: there is no low-level identifier."""
        refuse(f"attrs.get_id({name!r})", refused.LOW_LEVEL)

    def __delitem__(self, name: Any) -> None:
        name = text_of(name)
        try:
            _engram.attr_delete(self._ns, self._is_group, self._id, name)
        except ReadOnlyError as error:
            raise NoWriteError(str(error)) from error
        self._tell(name, None, is_gone=True)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str | bytes):
            return False
        return _engram.attr_get(self._ns, self._is_group, self._id, text_of(name)) is not None

    def __iter__(self) -> Iterator[str]:
        names = _engram.attr_names(self._ns, self._is_group, self._id)
        if len(names) > 1:
            order = self._words().get(_ORDER)
            if isinstance(order, list):
                there = set(names)
                names = [*(n for n in order if n in there), *(n for n in names if n not in order)]
        return iter(names)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))

    def __len__(self) -> int:
        return len(_engram.attr_names(self._ns, self._is_group, self._id))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttributeManager):
            return NotImplemented
        return self._of == other._of

    def __hash__(self) -> int:
        return hash(self._of)

    def __repr__(self) -> str:
        if not self._of:
            return "<Attributes of closed HDF5 object>"
        return f"<Attributes of HDF5 object at {id(self._of)}>"

    def _words(self) -> words.Words:
        of = words.of_group if self._is_group else words.of_object
        return of(self._ns, self._id)

    def _told(self) -> dict[str, Any]:
        found = self._words().get(_WORD)
        return found if isinstance(found, dict) else {}

    def _tell(self, name: str, told: words.Words | None, *, is_gone: bool = False) -> None:
        """Keep what is to be said of an attribute's type, and its place in the order."""
        said = self._words()
        if not said and told is None:
            return
        known = said.get(_WORD)
        known = known if isinstance(known, dict) else {}
        order = said.get(_ORDER)
        is_tracked = bool((said.get("tracked") or {}).get("attributes"))
        new: dict[str, Any] = {}
        if known.get(name) != told:
            new[_WORD] = {
                **{n: w for n, w in known.items() if n != name},
                **({name: told} if told else {}),
            }
        if is_tracked or isinstance(order, list):
            rest = [n for n in order or () if n != name]
            if not is_gone:  # one that is set anew is the last, as in HDF5; `modify` is no new one
                rest = [*rest, name]
            if rest != order:
                new[_ORDER] = rest
        if not new:
            return
        if self._is_group:
            words.change_group(self._ns, self._id, lambda w: _said(w, new))
        else:
            words.change_object(self._ns, self._id, **new)


def _said(origin: words.Words, new: words.Words) -> None:
    target = origin["hdf5"] if isinstance(origin.get("hdf5"), dict) else origin
    target.update(new)


def _kept(data: Any, shape: Any, dtype: Any) -> tuple[Any, words.Words | None]:
    """Return an attribute's value as a pool keeps it, and what is to be said of its type."""
    wanted = None if dtype is None else _as_dtype(dtype)
    if isinstance(data, Empty):
        return _nothing(wanted or data.dtype)
    array = values.new_array(data, wanted)
    kind = wanted or array.dtype
    dtypes.check_storable(kind)
    if dtypes.is_variable(kind):
        refuse(
            f"an attribute of {kind}",
            "a pool's attributes have no sequences of variable length: keep them as a dataset, or "
            "as numbers and where each begins",
        )
    item, inner = dtypes.split_array(kind)
    target = array.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    if inner and target[len(target) - len(inner) :] != inner:
        raise ValueError(f"Array dtype shape {inner} is incompatible with data shape {target}")
    if math.prod(target) != array.size:
        raise ValueError(
            f"Shape of new attribute conflicts with shape of data: {target} is not {array.shape}"
        )
    made = values.written(array.reshape(target), item)
    if made.dtype.kind == "T":
        return (str(made[()]) if made.ndim == 0 else made), dtypes.words_of(kind)
    return np.asarray(made, item, order="C"), dtypes.words_of(kind)


def _nothing(dtype: np.dtype[Any]) -> tuple[Any, words.Words]:
    dtypes.check_storable(dtype)
    plain = np.dtypes.StringDType() if dtypes.is_text(dtype) else dtype
    return np.empty(0, plain), {**(dtypes.words_of(dtype) or {}), "dataspace": "null"}


def _as_dtype(dtype: Any) -> np.dtype[Any]:
    return np.dtype(dtype if isinstance(dtype, type) else getattr(dtype, "dtype", dtype))


base._managers.append(AttributeManager)
