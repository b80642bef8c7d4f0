"""Records: what is known of a stored object beside its fields, in its attributes.

A row that a batch reads is no guard; a row that it writes is. So a caller that reads an object's
record and writes what follows from it *holds* the object first, by writing `__held__` into it: from
then on the batch relies on the record being what it was at that moment. Arrays and blobs are rows
of their own, so a caller that replaces one holds the object, too. If others were faster, the batch
is undone, and done again (`again` in `meanwhile.py`).
"""

import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from engram import _engram
from engram.active.stored import values
from engram.active.stored.forms import NATIVE
from engram.active.stored.layout import (
    ALIASES_OF,
    ARRIVING,
    CLASS,
    HELD,
    LINKS,
    MOVED,
    OUTSIDE,
    SHARING,
)
from engram.errors import ArgumentError, CorruptError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.scope import Scope

_held = itertools.count()

GIDS: Final = range(2**64)
"""What may be an id of an object."""


def _is_id(value: Any) -> bool:
    return type(value) is int and value in GIDS


def _is_reference(value: Any) -> bool:
    if not isinstance(value, list):
        return _is_id(value)
    return [type(part) for part in value] == [str, str, str, int] and _is_id(value[3])


def _is_list(value: Any, of: "Callable[[Any], bool]") -> bool:
    return isinstance(value, list) and all(map(of, value))


def _is_sharing(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() - {"borrowed", "lent"}:
        return False
    borrowed, lent = value.get("borrowed", {}), value.get("lent", {})
    if not isinstance(borrowed, dict) or not isinstance(lent, dict):
        return False
    return (
        all(isinstance(name, str) for name in (*borrowed, *lent))
        and all(map(_is_id, borrowed.values()))
        and all(_is_list(some, _is_id) for some in lent.values())
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_FIT: Final[dict[str, "Callable[[Any], bool]"]] = {
    CLASS: _is_text,
    ALIASES_OF: lambda value: _is_list(value, _is_text),
    LINKS: lambda value: isinstance(value, int),
    OUTSIDE: lambda value: isinstance(value, int),
    SHARING: _is_sharing,
    MOVED: _is_reference,
    ARRIVING: _is_reference,
    "__left__": lambda value: _is_list(value, _is_reference),
    "__replica_of__": _is_reference,
    "__version_of__": _is_reference,
    "__replicas__": lambda value: _is_list(value, _is_reference),
    "__versions__": lambda value: _is_list(value, _is_reference),
    "__device__": lambda value: isinstance(value, int),
}
"""What each note may be: anybody who may write in a namespace may have written another thing."""


class Records:
    """The records of a namespace's objects."""

    def __init__(self, namespace: _engram.Namespace) -> None:
        self.namespace = namespace

    @property
    def is_open(self) -> bool:
        """Whether its pool is open still."""
        return self.namespace.is_open

    @property
    def pool_path(self) -> str:
        """The pool's path."""
        return str(self.namespace.pool_path)

    def batch(self) -> _engram.Batch:
        """Begin a batch."""
        return _engram.Batch(self.namespace)

    def group_if_there(self, path: str) -> int | None:
        """Give the group at one of the fixed paths, if it is there."""
        found = _engram.find(self.namespace, self.namespace.root, path)
        return found[1] if found is not None and found[0] == 0 else None

    def hold(self, gid: int) -> None:
        """Have this batch rely on the object being as it is now, until it is committed.

        Raises
        ------
        NotFoundError
            If it is not there.

        """
        _engram.attr_set(self.namespace, True, gid, {HELD: next(_held)})

    # What an object is called

    def notes(self, gid: int, name: str) -> Any:
        """Read one of the attributes that are no fields: a plain value, or None.

        Raises
        ------
        CorruptError
            If it is nothing that is written there.

        """
        value = _engram.attr_get(self.namespace, True, gid, name)
        if value is None:
            return None
        if isinstance(value, np.ndarray):
            label = f"{name} of the active object {gid:#x}"
            value = values.Decoder(label, _no_reference).decode(value.tobytes())
        elif type(value) is not str:
            value = value.item()
        fits = _FIT.get(name)
        if fits is not None and not fits(value):
            raise CorruptError(
                f"{name} of the active object {gid:#x} in {self.pool_path!r} is {value!r:.60}, "
                "which none is stored with: something else has written it"
            )
        return value

    def note(self, gid: int, name: str, value: Any) -> None:
        """Write one of the attributes that are no fields; None deletes it."""
        if value is None:
            if _engram.attr_get(self.namespace, True, gid, name) is not None:
                _engram.attr_delete(self.namespace, True, gid, name)
            return
        if type(value) not in NATIVE:
            packed = values.Encoder(name, _no_reference).encode(value)
            value = np.frombuffer(packed, np.uint8)
        _engram.attr_set(self.namespace, True, gid, {name: value})

    def modified(self, gid: int) -> int:
        """Tell when an object was last changed: another moment after each change.

        Raises
        ------
        NotFoundError
            If it is gone.

        """
        return _engram.group_info(self.namespace, gid).modified

    def is_there(self, gid: int) -> bool:
        """Tell whether an object is there."""
        try:
            self.modified(gid)
        except NotFoundError:
            return False
        return True

    def scope_of(self, gid: int) -> "Scope | None":
        """Give the scope in which what belongs to an object is made: "private", or as it comes."""
        return "private" if _engram.group_info(self.namespace, gid).scope == "private" else None


def _no_reference(target: Any) -> Any:
    raise ArgumentError(f"{target!r} cannot be referred to here")
