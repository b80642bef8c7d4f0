"""What others change while a batch is at work: no error yet, but a reason to do it again."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from engram import _engram
from engram.active.home import gone
from engram.errors import BusyError, ExistsError, NotFoundError

if TYPE_CHECKING:
    from engram.active.home import Home

T = TypeVar("T")


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
            try:
                _engram.group_info(home.realm, gid)
            except NotFoundError:
                raise gone("active", gid) from None
        raise BusyError(f"active objects were changed meanwhile: {error}") from error
