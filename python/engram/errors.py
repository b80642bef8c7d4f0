"""What can go wrong, by what the caller can do about it.

Every error of Engram is an `EngramError`; most are also the built-in exception that a user of h5py
or of plain Python would catch. `str(error)` is the message: what was wrong, with the value, and
what to do next. On an error the pool is as it was before the call. `CommitUncertainError` alone
leaves open whether the change is there. (`update` and `popitem`, which Python gives to every
mapping, are several calls: in a batch they are one.) Exit codes and errnos
come from the engine's table of kinds.
"""

from typing import Any, ClassVar

from engram._engram import kinds
from engram.plain import printable


class EngramError(Exception):
    """Any error of Engram; itself where the operating system failed in a way without a kind."""

    exit_code: ClassVar[int]
    """What the command line exits with."""

    _errno: ClassVar[int]

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        if isinstance(self, OSError):
            object.__setattr__(self, "errno", self._errno)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a call of the class, also where a library pickles tracebacks along (Dask)."""
        return type(self), self.args, self.__dict__ or None

    def __str__(self) -> str:
        return printable(str(self.args[0])) if self.args else ""


class NotFoundError(EngramError, KeyError):
    """No such namespace, group, object or attribute; or a handle's object is gone."""


class PoolNotFoundError(NotFoundError, FileNotFoundError):
    """No pool at this path."""


class ExistsError(EngramError, ValueError):
    """The name is taken."""


class PoolFullError(EngramError, MemoryError):
    """The pool, its device, a filesystem or the memory limit of this job has no room.

    Deleting makes room. Also what a file is written to, as by an export, may be full.
    """


class AccessError(EngramError, PermissionError):
    """The kernel refuses this user."""


class ReadOnlyError(EngramError, PermissionError):
    """A write through a pool that was opened with mode "r"."""


class QueryError(EngramError, ValueError):
    """An ill-formed query: where and why, and below that the line with a caret under the place."""

    def __str__(self) -> str:
        # A tab keeps its width, so that the caret below it stays where it is.
        lines = str(self.args[0]).split("\n") if self.args else []
        return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)


class CorruptError(EngramError):
    """What is on media is not what was written."""


class BusyError(EngramError):
    """Somebody else holds it, or changed it meanwhile."""


class NodeAwayError(BusyError):
    """A node of the cluster is away, or does not answer: which, and since when. Try again later."""


class FencedError(BusyError):
    """The host's node is no member for the moment: nothing of it can be published."""


class CoordinatorError(BusyError):
    """Etcd does not answer: what is open reads on, and nothing can be published."""


class ConflictError(BusyError):
    """Somebody else has changed the name in between: look it up again."""


class PartsLostError(NotFoundError):
    """Parts of an array are lost for good: which."""


class PartialResultError(BusyError):
    """Some nodes have not answered a query: which, and why. `partial=True` does without them."""


class FormatError(EngramError, ValueError):
    """Not a pool, a half-created or a newer one; a file of unknown or broken format."""


class InvalidNameError(EngramError, ValueError):
    """A name that cannot be a name."""


class ArgumentError(EngramError, ValueError, TypeError):
    """A dtype, shape, value or handle that does not fit."""


class UnsupportedError(EngramError, OSError):
    """A filesystem or environment that cannot carry a pool."""


class CommitUncertainError(EngramError, OSError):
    """A commit whose last sync failed: the change is there as a whole, or not at all.

    Close the pool, run `engram verify`, look whether the change is there, and repeat it if it is
    not. No process writes to the pool before that.
    """


class PoolGoneError(EngramError, OSError):
    """The pool's files were removed while this process had it open.

    What it holds goes with the last process that maps it: copy what open views show, and make the
    pool anew. `engram doctor` says what removes files there.
    """


class ClosedNamespaceError(EngramError, PermissionError):
    """Nobody but its owner may enter the namespace: nobody would read what is published there.

    Open it (`engram ns POOL NAME --mode 755`, `engram.chmod`), or publish with `closed=True`.
    """


class UnverifiedError(CorruptError):
    """A loss of power may have damaged the pool, and nobody has verified it since.

    `engram verify POOL` looks; the pool opens again if it is sound. Of one that is not, `engram
    salvage` brings out what can be read.
    """


class EngramWarning(UserWarning):
    """Something that goes on, and will cost: a snapshot that keeps much of a catalog from reuse."""


for _, _name, _exit_code, _errno in kinds():
    _class = globals()[_name]
    _class.exit_code = _exit_code
    _class._errno = _errno

__all__ = [
    "AccessError",
    "ArgumentError",
    "BusyError",
    "ClosedNamespaceError",
    "CommitUncertainError",
    "CorruptError",
    "EngramError",
    "EngramWarning",
    "ExistsError",
    "FormatError",
    "InvalidNameError",
    "NotFoundError",
    "PoolFullError",
    "PoolGoneError",
    "PoolNotFoundError",
    "QueryError",
    "ReadOnlyError",
    "UnsupportedError",
    "UnverifiedError",
]
