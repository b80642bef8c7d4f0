"""A mapping of objects by what they are: a class may have an `__eq__` of its own, or no hash."""

from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar

V = TypeVar("V")


class ByIdentity(MutableMapping[Any, V]):
    """A mapping whose keys are the same only if they are one object."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, V]] = {}

    @classmethod
    def of(cls, key: Any, value: V) -> "ByIdentity[V]":
        """Make one of one object."""
        made = cls()
        made[key] = value
        return made

    def __getitem__(self, key: Any) -> V:
        return self._held[id(key)][1]

    def __setitem__(self, key: Any, value: V) -> None:
        self._held[id(key)] = (key, value)

    def __delitem__(self, key: Any) -> None:
        del self._held[id(key)]

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self._held.values()])

    def __len__(self) -> int:
        return len(self._held)
