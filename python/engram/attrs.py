"""Attributes: a mapping of names to values, on a group or an object.

Values are kept exactly: dtype, width, byte order and shape. A `str` comes back as `str`, bytes as
`numpy.bytes_`, a scalar as numpy's scalar, a sequence as an array. A 0-d array of foreign byte
order comes back as one, since numpy has no such scalars.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping, ValuesView
from typing import Any, Protocol

from engram import _engram, later
from engram.errors import EngramError, NotFoundError


class _Keyed(Protocol):
    """What `dict.update` takes for a mapping."""

    def keys(self) -> Iterable[str]:
        """Give the names."""

    def __getitem__(self, name: str, /) -> Any: ...


class Attributes(MutableMapping[str, Any]):
    """The attributes of one group or object, iterating names in byte order.

    Each look-up reads the pool, each change is a commit of its own; `update` makes all its changes
    in one. `items()` and `values()` are of one moment.

    Raises
    ------
    NotFoundError
        If there is no such attribute, or the group or object is gone.
    ArgumentError
        If a value is of a type that no array can have.
    InvalidNameError
        If a name is empty, too long or has NUL.
    ReadOnlyError
        On a change, if the pool was opened with mode "r".

    """

    __slots__ = ("_id", "_is_group", "_namespace")

    def __init__(self, namespace: _engram.Namespace, is_group: bool, member: int) -> None:
        self._namespace = namespace
        self._is_group = is_group
        self._id = member

    def __getitem__(self, name: str) -> Any:
        found = _engram.attr_get(self._namespace, self._is_group, self._id, name)
        if found is None:
            names = ", ".join(repr(n) for n in list(self)[:8])
            there = f"it has {names}" if names else "it has none"
            raise NotFoundError(f"there is no attribute {name!r} here: {there}")
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        _engram.attr_set(self._namespace, self._is_group, self._id, {name: value})

    def __delitem__(self, name: str) -> None:
        _engram.attr_delete(self._namespace, self._is_group, self._id, name)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return _engram.attr_get(self._namespace, self._is_group, self._id, name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(_engram.attr_names(self._namespace, self._is_group, self._id))

    def _ipython_key_completions_(self) -> list[str]:
        """Give the names, for the tab key behind `attrs["`."""
        return list(self)

    def __len__(self) -> int:
        return len(_engram.attr_names(self._namespace, self._is_group, self._id))

    def items(self) -> ItemsView[str, Any]:
        """Names and values as they are at one moment."""
        return self._snapshot().items()

    def values(self) -> ValuesView[Any]:
        """Values as they are at one moment, in the order of their names."""
        return self._snapshot().values()

    def update(self, other: _Keyed | Iterable[tuple[str, Any]] = (), /, **more: Any) -> None:
        """Set many attributes in one commit: all of them, or none."""
        given: dict[str, Any] = dict(other, **more)
        if given:
            _engram.attr_set(self._namespace, self._is_group, self._id, given)

    def __eq__(self, other: object) -> bool:
        """Compare like dicts of scalars; compare arrays with numpy instead."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _repr_html_(self) -> str:
        return later.card(self)

    def __repr__(self) -> str:
        try:
            return repr(self._snapshot())
        except EngramError:
            state = "something gone" if self._namespace.is_open else "a closed pool"
            return f"<attributes of {state}>"

    def _snapshot(self) -> dict[str, Any]:
        return dict(_engram.attr_items(self._namespace, self._is_group, self._id))
