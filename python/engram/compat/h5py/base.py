"""What files, groups and datasets have in common: a place in a pool, a name, attributes."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from engram import _engram
from engram.compat.h5py import refused
from engram.errors import EngramError, NotFoundError

if TYPE_CHECKING:
    from engram.compat.h5py.attrs import AttributeManager
    from engram.compat.h5py.file import File
    from engram.compat.h5py.group import Group


class Empty:
    """A value of no dataspace: a dtype, and nothing else."""

    shape = None
    size = None

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Empty) and self.dtype == other.dtype

    __hash__ = None  # type: ignore[assignment]  # as h5py's

    def __repr__(self) -> str:
        return f"Empty(dtype={self.dtype!r})"


class Identifier:
    """What stands for h5py's low-level identifier: whether the object is there, and which it is."""

    __slots__ = ("_of",)

    def __init__(self, of: HLObject) -> None:
        self._of = of

    @property
    def valid(self) -> bool:
        """Whether the object is there, and its file is open."""
        return bool(self._of)

    @property
    def id(self) -> int:
        """The id of the object in its pool."""
        return self._of._id

    def __bool__(self) -> bool:
        return bool(self._of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identifier) and self._of == other._of

    def __hash__(self) -> int:
        return hash(self._of)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f".id.{name}: {refused.LOW_LEVEL}")


class HLObject:
    """A file, a group or a dataset."""

    __slots__ = ("__weakref__", "_file", "_id")

    _is_group = True
    _file: File
    _id: int

    @property
    def _namespace(self) -> _engram.Namespace:
        return self._file._ns

    @property
    def file(self) -> File:
        """The file that it is of."""
        return self._file

    @property
    def name(self) -> str | None:
        """Its path from the file's root, with a leading slash; None if it is gone."""
        try:
            path = _engram.path_of(self._namespace, self._is_group, self._id)
        except EngramError:
            return None
        return self._file._named(path)

    @property
    def parent(self) -> Group:
        """The group that it is in; of the root, itself.

        Raises
        ------
        ValueError
            If it is gone.

        """
        if self._is_group and self._id == self._file._id:
            return self._file._group(self._id)
        try:
            above = self._above()
        except NotFoundError as error:
            raise ValueError(f"what is gone has no group: {error}") from error
        return self._file._group(above)

    def _above(self) -> int:
        """Return the id of the group that it is in."""
        info = _engram.group_info if self._is_group else _engram.object_info
        return info(self._namespace, self._id).parent

    @property
    def attrs(self) -> AttributeManager:
        """Its attributes."""
        made: AttributeManager = _managers[0](self)
        return made

    @property
    def id(self) -> Identifier:
        """What stands for h5py's low-level identifier."""
        return Identifier(self)

    @property
    def ref(self) -> NoReturn:
        """Refused: a pool has no references."""
        refused.refuse(f"{self!r}.ref", refused.REFERENCES)

    @property
    def regionref(self) -> NoReturn:
        """Refused: a pool has no references."""
        refused.refuse(f"{self!r}.regionref", refused.REFERENCES)

    def __bool__(self) -> bool:
        return self._file._is_open

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HLObject):
            return NotImplemented
        return (
            self._id == other._id
            and self._is_group == other._is_group
            and self._namespace.same_pool(other._namespace)
        )

    def __hash__(self) -> int:
        return hash((self._namespace.uuid, self._id))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "h5py objects cannot be pickled: open the file where it is needed, or pickle engram's "
            "handles, which open their pool there"
        )


_managers: list[Any] = []
"""`AttributeManager`, which enters itself."""


class Keys(KeysView[str]):
    """The names of a group's members, or of attributes."""

    _mapping: Any

    def __reversed__(self) -> Iterator[str]:
        yield from reversed(self._mapping)

    def __repr__(self) -> str:
        return f"<KeysViewHDF5 {list(self)}>"

    __str__ = __repr__


class Values(ValuesView[Any]):
    """The members of a group, or the values of attributes; None where a link leads to nothing."""

    _mapping: Any

    def __contains__(self, value: object) -> bool:
        return any(value == found for found in self)

    def __iter__(self) -> Iterator[Any]:
        for name in self._mapping:
            yield self._mapping.get(name)

    def __reversed__(self) -> Iterator[Any]:
        for name in reversed(self._mapping):
            yield self._mapping.get(name)

    def __repr__(self) -> str:
        return f"ValuesViewHDF5({self._mapping!r})"


class Items(ItemsView[str, Any]):
    """The names and members of a group, or the names and values of attributes."""

    _mapping: Any

    def __contains__(self, item: object) -> bool:
        pair: Any = item
        name, value = pair
        return name in self._mapping and bool(value == self._mapping.get(name))

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name in self._mapping:
            yield name, self._mapping.get(name)

    def __reversed__(self) -> Iterator[tuple[str, Any]]:
        for name in reversed(self._mapping):
            yield name, self._mapping.get(name)

    def __repr__(self) -> str:
        return f"ItemsViewHDF5({self._mapping!r})"


class Viewed:
    """A mapping whose views are shown as h5py's."""

    __slots__ = ()

    def keys(self) -> Keys:
        """Give the names."""
        return Keys(self)  # type: ignore[arg-type]  # it is a mapping

    def values(self) -> Values:
        """Give what they are the names of."""
        return Values(self)  # type: ignore[arg-type]  # likewise

    def items(self) -> Items:
        """Give both."""
        return Items(self)  # type: ignore[arg-type]  # likewise

    def _ipython_key_completions_(self) -> list[str]:
        return sorted(self)  # type: ignore[call-overload,no-any-return]  # likewise


def text_of(name: Any) -> str:
    """Return a name, or a path, that is given as text or as bytes."""
    if isinstance(name, str):
        return name
    if isinstance(name, bytes):
        return name.decode("utf-8")
    raise TypeError(f"A name should be string or bytes, not {type(name)}")
