"""What others change while a batch is at work: no error yet, but a reason to do it again."""

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from engram.active.errors import ConflictError, gone
from engram.errors import BusyError, ExistsError, NotFoundError

if TYPE_CHECKING:
    from engram.active.stored.home import Home

_TRIES: Final = 200
"""How often a batch is done again."""

T = TypeVar("T")


def again(work: Callable[[], T]) -> T:
    """Do what is one batch, again where others have changed meanwhile what it relies on.

    Raises
    ------
    BusyError
        If others are faster each time.

    """
    for left in range(_TRIES, -1, -1):
        try:
            return work()
        except ConflictError:
            raise
        except BusyError:
            if not left:
                raise
            time.sleep(random.random() * 0.001)  # noqa: S311 - so that two do not meet again
    raise AssertionError


def unless_changed(home: "Home", work: Callable[[], T], *gids: int) -> T:
    """Do a batch's work on objects; what it misses, or finds too much, others have done.

    Raises
    ------
    BusyError
        If so; it is to be done again.
    ObjectDeletedError
        If one of the objects is gone.

    """
    try:
        return work()
    except (NotFoundError, ExistsError) as error:
        if type(error) not in {NotFoundError, ExistsError}:
            raise
        for gid in gids:
            if not home.is_there(gid):
                raise gone("active", gid) from None
        raise BusyError(f"active objects were changed meanwhile: {error}") from error
