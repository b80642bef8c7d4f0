"""What Python objects were, for the case that the batch in which they changed is undone.

An object that is made persistent in a batch, deleted in it, or consolidated, is that at once for
the thread that runs the batch. If the batch is undone, so is this: what is noted here is put back,
when nothing of the batch is left. Each step may be done twice (a signal can come between), so each
only says what is to be, never what is to change.
"""

from typing import TYPE_CHECKING, Any, Final

from engram import _engram
from engram.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.active.stored.home import Home

_STATE: Final = ("_volatile", "_home", "_gid", "_same", "_ended", "_replica_of")
"""What a Python object knows of the stored one that it is."""


def note(*objects: Any) -> None:
    """Have objects be what they are now again, if the batch that this thread runs is undone."""
    if not _engram.in_batch():
        return
    states = [
        (obj, {name: obj.__dict__[name] for name in _STATE if name in obj.__dict__})
        for obj in objects
    ]
    if_undone(lambda: _put_back(states))


def if_undone(work: "Callable[[], object]") -> None:
    """Have something done if the batch that this thread runs, if it runs one, is undone."""
    _engram.when_ended(lambda committed: None if committed else work())


def undo_abandoned() -> None:
    """Undo a batch of this thread that nobody can end any more: what it did is not so."""
    _engram.in_batch()


def _put_back(states: list[tuple[Any, dict[str, Any]]]) -> None:
    for obj, state in states:
        _leave(obj)
        for name in _STATE:
            if name in state:
                obj.__dict__[name] = state[name]
            else:
                obj.__dict__.pop(name, None)
        if state["_volatile"] is None and "_home" in state:
            state["_home"].live[state["_gid"]] = obj


def _leave(obj: Any) -> None:
    """Be no more what is found by an id."""
    home: Home | None = obj.__dict__.get("_home")
    gid = obj.__dict__.get("_gid")
    if home is not None and gid is not None and home.live.get(gid) is obj:
        del home.live[gid]


def refuse_batch(what: str) -> None:
    """Refuse what is commits of two pools where this thread runs a batch, which is one.

    Raises
    ------
    BusyError
        If it does.

    """
    if _engram.in_batch():
        raise BusyError(
            f"{what} is more than one commit, so it cannot be part of a batch: end the batch first"
        )
