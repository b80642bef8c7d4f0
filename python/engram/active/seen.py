"""What a transaction has read of an object, and whether all of it was so at one moment.

Each field is read when the method first asks for it. Every change of an object changes when it was
last modified. So if that is what it was before the first field was read, all were as one commit
left them. If it is not, those that were read are read again: if they are the same, the change was
of something else.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from engram.active.errors import gone
from engram.errors import NotFoundError

if TYPE_CHECKING:
    from engram.active.stored.forms import Loaded

_MOST_TRIES: Final = 100
"""How often fields are read again while others change the object."""


class Viewed(NamedTuple):
    """An array that a method has in hand."""

    oid: int
    array: Any
    asked: bool
    """Whether it was asked for to be written into."""


class Seen:
    """One object's fields, as a transaction sees them."""

    __slots__ = ("_before", "_stamp", "copies", "loaded", "obj", "views", "written")

    def __init__(self, obj: Any) -> None:
        self.obj = obj
        self.loaded: dict[str, Loaded] = {}
        self.written: dict[str, Any] = {}
        self.views: dict[str, Viewed] = {}
        self.copies: dict[str, Any] = {}
        self._before: frozenset[str] = frozenset()

    def begin(self, known: tuple[Any, int] | None) -> None:
        """Note which state of the object the first field is of; `known` may be one of it."""
        if known is not None and known[0] is self.obj:
            self._stamp = known[1]
        elif len(self.obj._fields) > 1:
            self._stamp = self._modified()

    def begin_again(self) -> None:
        """Take what was read so far as it is, after this thread has changed the object's life."""
        self._before = frozenset(self.loaded)
        if self.loaded:
            self.begin(None)

    def is_together(self) -> bool:
        """Tell whether all that was read was so at one moment."""
        now = self._modified()
        for _ in range(_MOST_TRIES):
            if now == self._stamp:
                return True
            if not all(map(self._is_still, self.loaded.keys() - self._before)):
                return False
            self._stamp, now = now, self._modified()
        return False

    def _is_still(self, name: str) -> bool:
        return alike(self.obj._field(name).load(self.obj).raw, self.loaded[name].raw)

    def _modified(self) -> int:
        try:
            return int(self.obj._home.modified(self.obj._gid))
        except NotFoundError:
            raise gone(type(self.obj).__qualname__, self.obj._gid) from None


def alike(one: Any, other: Any) -> bool:
    """Tell whether what was read of a field is the same as what was read before."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        same = one.dtype == other.dtype and one.shape == other.shape
        return bool(same and one.tobytes() == other.tobytes())
    neither_is_a_number = one != one and other != other  # noqa: PLR0124 - so NaN says
    return bool(one == other or neither_is_a_number)
