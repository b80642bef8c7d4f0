"""Records: what is known of a stored object beside its fields, in its attributes.

What a batch reads is no guard; what it writes is. So whoever reads an object's record and writes
what follows from it *holds* the object first, by writing `__held__` into it: from then on the batch
relies on the record being what it was at that moment. Arrays and blobs are rows of their own, so
who replaces one holds the object, too. If others were faster, the batch is undone, and done again
(`again` in `meanwhile.py`).
"""

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import _engram
from engram.active import values
from engram.active.forms import NATIVE
from engram.active.layout import HELD
from engram.errors import ArgumentError

if TYPE_CHECKING:
    from engram._engram import Realm
    from engram.scope import Scope

_held = itertools.count()


class Records:
    """The records of a namespace's objects."""

    def __init__(self, realm: "Realm") -> None:
        self.realm = realm

    @property
    def is_open(self) -> bool:
        """Whether its pool is open still."""
        return self.realm.is_open

    @property
    def pool_path(self) -> str:
        """The pool's path."""
        return str(self.realm.pool_path)

    def batch(self) -> _engram.Batch:
        """Begin a batch."""
        return _engram.Batch(self.realm)

    def group_if_there(self, path: str) -> int | None:
        """Give the group at one of the fixed paths, if it is there."""
        found = _engram.find(self.realm, self.realm.root, path)
        return found[1] if found is not None and found[0] == 0 else None

    def hold(self, gid: int) -> None:
        """Have this batch rely on the object being as it is now, until it is committed.

        Raises
        ------
        NotFoundError
            If it is not there.

        """
        _engram.attr_set(self.realm, True, gid, {HELD: next(_held)})

    # What an object is called

    def notes(self, gid: int, name: str) -> Any:
        """Read one of the attributes that are no fields: a plain value, or None."""
        value = _engram.attr_get(self.realm, True, gid, name)
        if isinstance(value, np.ndarray):
            return values.Decoder(name, _no_reference).decode(value.tobytes())
        return value if value is None or type(value) is str else value.item()

    def note(self, gid: int, name: str, value: Any) -> None:
        """Write one of the attributes that are no fields; None deletes it."""
        if value is None:
            if _engram.attr_get(self.realm, True, gid, name) is not None:
                _engram.attr_delete(self.realm, True, gid, name)
            return
        if type(value) not in NATIVE:
            packed = values.Encoder(name, _no_reference).encode(value)
            value = np.frombuffer(packed, np.uint8)
        _engram.attr_set(self.realm, True, gid, {name: value})

    def scope_of(self, gid: int) -> "Scope | None":
        """Give the scope in which what belongs to an object is made: "private", or as it comes."""
        return "private" if _engram.group_info(self.realm, gid).scope == "private" else None


def _no_reference(target: Any) -> Any:
    raise ArgumentError(f"{target!r} cannot be referred to here")
