"""Active objects: Python objects that live in a pool, and whose methods run where their data lie.

::

    import engram
    import numpy as np

    class Block(engram.ActiveObject):
        data: np.ndarray
        label: str = ""

        @engram.activemethod
        def mean(self) -> float:
            return self.data.mean()

    with engram.create("/dev/shm/demo") as pool:
        Block(data=np.arange(1e6)).make_persistent("ramp")
        Block.get_by_alias("ramp").mean()       # in any process, now or later

The programming model is dataClay's (arXiv 2111.06851); there is no server: every process that has
the pool open runs methods itself, on the pool's own memory. `docs/guide/active-objects.md` tells
all of it.
"""

from typing import TYPE_CHECKING, Any

from engram.active.code.classes import StoredClass, load_class
from engram.active.collecting import Collector, Rounds, collect
from engram.active.errors import (
    AliasNotFoundError,
    AliasTakenError,
    ClassChangedError,
    ClassUnknownError,
    ConflictError,
    MethodError,
    ObjectDeletedError,
    UndeclaredFieldError,
    UnsupportedFieldError,
    UntrustedCodeError,
    VersionError,
    WorkerDiedError,
)
from engram.active.method import ActiveMethod, activemethod
from engram.active.object import ActiveObject
from engram.active.stored.collect import Collected, gc, unreachable
from engram.active.using import use

if TYPE_CHECKING:
    from engram.active.workers.executor import Executor

__all__ = [
    "ActiveMethod",
    "ActiveObject",
    "AliasNotFoundError",
    "AliasTakenError",
    "ClassChangedError",
    "ClassUnknownError",
    "Collected",
    "Collector",
    "ConflictError",
    "Executor",
    "MethodError",
    "ObjectDeletedError",
    "Rounds",
    "StoredClass",
    "UndeclaredFieldError",
    "UnsupportedFieldError",
    "UntrustedCodeError",
    "VersionError",
    "WorkerDiedError",
    "activemethod",
    "collect",
    "gc",
    "load_class",
    "unreachable",
    "use",
]


def __getattr__(name: str) -> Any:
    """Import what starts processes only where it is used."""
    if name == "Executor":
        from engram.active.workers.executor import Executor  # noqa: PLC0415 - as above

        return Executor
    raise AttributeError(f"module 'engram.active' has no attribute {name!r}")
