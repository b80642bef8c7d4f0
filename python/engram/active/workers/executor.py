"""Workers: processes that run methods of active objects beside this one.

An executor is for what one process cannot: methods that compute in Python, past its lock, and
methods that may crash. A plain call of a method needs none, and is faster.
"""

import concurrent.futures
import inspect
import os
import weakref
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from engram.active.method import ActiveMethod, BoundMethod
from engram.active.object import ActiveObject
from engram.active.workers.call import Call
from engram.active.workers.crew import Crew
from engram.errors import ArgumentError

_current: ContextVar["Executor | None"] = ContextVar("engram.active.Executor", default=None)


class Executor(concurrent.futures.Executor):
    """Worker processes that run methods of active objects, by reference.

    ::

        with engram.active.Executor(workers=2):
            means = [block.mean.submit() for block in blocks]
            print(sum(future.result() for future in means))

    A worker has the pools mapped that this process has open. It is told which object and which
    method; arguments and results are pickled: persistent objects as their ids, volatile ones and
    arrays by value. The method is a transaction there as it is here. It sees what is committed:
    what a batch, or an active method that submits, has changed and not committed yet, it does not.

    Workers live as long as the executor. A class of the main module (a script, a notebook) comes to
    them as its source, others by import; a script is not run again, and needs no
    `if __name__ == "__main__"`. One that dies is replaced: the future of its call has
    `WorkerDiedError`, and what the method had not committed never happened.

    It is a `concurrent.futures.Executor`: futures work with `concurrent.futures.wait` and
    `asyncio.wrap_future`, and `map(Block.mean, blocks)` gives results in order. What is submitted
    is done before the program ends, if it is not cancelled. Leaving its with-block by an exception
    cancels what has not begun; by Ctrl-C, it ends the workers, too.

    A pool that workers have open cannot be destroyed until the executor is shut down.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        cpus: Iterable[int] | None = None,
        node: int | None = None,
    ) -> None:
        """Start worker processes.

        Parameters
        ----------
        workers
            How many: by default one for each processor that they may use.
        cpus
            The numbers of the processors that workers may use; by default all of this process's.
        node
            The number of a NUMA node (a socket, as a rule), to whose processors they are bound, so
            that what they read and write of a pool on its memory is near.

        Raises
        ------
        ArgumentError
            If `workers` is no number of at least one, or `cpus` and `node` name processors that
            this process may not use, or none.

        """
        bound = _processors(cpus, node)
        if workers is None:
            workers = len(bound or os.sched_getaffinity(0))
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
            raise ArgumentError(f"workers={workers!r} is no number of processes: give 1 or more")
        self._workers = workers
        self._before: list[Executor | None] = []
        self._crew = Crew(workers, bound)
        weakref.finalize(self, self._crew.end).atexit = False

    @property
    def workers(self) -> int:
        """How many worker processes there are."""
        return self._workers

    @property
    def pids(self) -> list[int]:
        """The ids of the worker processes that live now."""
        found = [seat.process for seat in self._crew.seats]
        return [each.pid for each in found if each is not None and each.returncode is None]

    def submit(self, method: Any, /, *args: Any, **kwargs: Any) -> "concurrent.futures.Future[Any]":
        """Run a method in a worker; give a future of its result.

        `method` is one of an object, `block.mean`; or one of a class, `Block.mean`, whose first
        argument is then the object. Arguments are taken as they are now.

        Raises
        ------
        ArgumentError
            If it is no active method of a persistent object; if an argument does not pickle, or is
            an array named `out`; if the executor is shut down, or was made before a fork.
        ClassUnknownError
            If workers cannot have the class: it has no source, or is defined in a function.
        WorkerDiedError
            If no worker could be started.

        """
        if isinstance(method, ActiveMethod):
            if not args or not isinstance(args[0], ActiveObject):
                raise ArgumentError(f"{method.function.__qualname__} needs an object to run on")
            method, args = getattr(args[0], method.function.__name__), args[1:]
        if not isinstance(method, BoundMethod):
            raise ArgumentError(
                f"{method!r} is no active method of an object: submit block.mean, for one"
            )
        obj, name = method.__self__, method._method.function.__name__
        if not obj.is_persistent:
            raise ArgumentError(
                f"{type(obj).__qualname__}.{name} was submitted for a volatile object, which "
                "workers cannot see: make_persistent() first, or call the method here"
            )
        if getattr(obj, name) != method:
            raise ArgumentError(f"{method!r} is not what workers find as {name!r} of the object")
        _check_outputs(method, args, kwargs)
        self._crew.check()
        call = Call(method, self._crew.teller.call(method, args, kwargs))
        self._crew.submit(call)
        return call.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; end the workers when those that were taken are done.

        `wait` says whether to return only then; `cancel_futures` cancels those that have not begun.
        """
        if cancel_futures:
            self._crew.cancel()
        self._crew.end()
        if wait:
            self._crew.join()

    def __enter__(self) -> Self:
        """Be what `submit` of methods uses, until the block ends."""
        self._crew.check()
        self._before.append(_current.get())
        _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for what was submitted; after an exception, only for what runs already."""
        _current.set(self._before.pop())
        self._crew.closing = True
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._crew.cancel()
            self._crew.kill()
        self.shutdown(wait=True, cancel_futures=kind is not None)

    def __repr__(self) -> str:
        crew = self._crew
        if crew.closing:
            return "<engram.active.Executor (shut down)>"
        running = sum(seat.call is not None for seat in crew.seats)
        return (
            f"<engram.active.Executor workers={self._workers} running={running} "
            f"waiting={len(crew.queue)}>"
        )


def _processors(cpus: Iterable[int] | None, node: int | None) -> frozenset[int] | None:
    """Give the processors that workers are bound to; None: they are not bound."""
    if cpus is None and node is None:
        return None
    if cpus is not None and node is not None:
        raise ArgumentError("workers are bound to cpus= or to the processors of node=: give one")
    allowed = os.sched_getaffinity(0)
    if cpus is not None:
        wanted = frozenset(cpus)
        if not wanted or not wanted <= allowed:
            raise ArgumentError(
                f"cpus={sorted(wanted)} are not all processors of this process: it may use "
                f"{sorted(allowed)}"
            )
        return wanted
    try:
        text = Path(f"/sys/devices/system/node/node{node}/cpulist").read_text(encoding="ascii")
    except OSError:
        there = sorted(
            each.name[4:] for each in Path("/sys/devices/system/node").glob("node[0-9]*")
        )
        raise ArgumentError(
            f"node={node!r} is no NUMA node of this machine: it has {', '.join(there) or 'none'}"
        ) from None
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    if not found & allowed:
        raise ArgumentError(f"this process may use no processor of the NUMA node {node}")
    return frozenset(found & allowed)


def _check_outputs(method: "BoundMethod[Any, Any]", args: Any, kwargs: Any) -> None:
    """Refuse an array that the method is to write into: the worker has a copy of it."""
    if not any(isinstance(each, np.ndarray) for each in (*args, *kwargs.values())):
        return
    try:
        function = inspect.signature(method._method.function)
        given = function.bind(method.__self__, *args, **kwargs).arguments
    except (TypeError, ValueError):  # the call says so itself
        return
    if isinstance(given.get("out", kwargs.get("out")), np.ndarray):
        raise ArgumentError(
            f"{method!r} cannot write into out= from a worker, which gets a copy of the array: "
            "give the object that has it as a field, or call the method here"
        )


def current(executor: Executor | None = None) -> Executor:
    """Give the executor that a call means: the one named, or that of the with-block.

    Raises
    ------
    ArgumentError
        If there is none.

    """
    if executor is None:
        executor = _current.get()
    if executor is None:
        raise ArgumentError(
            "there is no executor here: submit within `with engram.active.Executor(workers=2):`, "
            "or name one with executor="
        )
    if not isinstance(executor, Executor):
        raise ArgumentError(f"executor={executor!r} is none: make one, engram.active.Executor()")
    return executor
