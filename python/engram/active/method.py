"""Active methods: functions that run where the object's data lie, each as one transaction."""

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    overload,
)

import numpy as np

from engram import telemetry
from engram.active.analysis import Traits, traits_of
from engram.active.errors import ConflictError, MovedError, WentFarError, gone
from engram.active.transaction import Transaction, local
from engram.errors import ArgumentError, NotFoundError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engram.active.object import ActiveObject
    from engram.active.workers.executor import Executor

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 60.0
"""How many seconds a method waits for another one that changes the same object."""


MOST_RUNS: Final = 100
"""How often a method that changes nothing is run again, where others change what it reads."""


class ActiveMethod(Generic[P, R]):
    """A method as the class has it."""

    def __init__(
        self,
        function: Callable[..., R],
        *,
        read_only: bool,
        pre_copy: bool,
        locks: bool | None,
        timeout: float,
    ) -> None:
        self.function = function
        self.read_only = read_only
        self.pre_copy = pre_copy
        self.locks = locks
        self.timeout = timeout
        self._traits: dict[type, Traits] = {}
        functools.update_wrapper(self, function)

    @overload
    def __get__(self, obj: None, owner: type) -> "ActiveMethod[P, R]": ...
    @overload
    def __get__(self, obj: "ActiveObject", owner: type) -> "BoundMethod[P, R]": ...
    def __get__(self, obj: "ActiveObject | None", owner: type | None = None) -> Any:
        return self if obj is None else BoundMethod(self, obj)

    def __call__(self, obj: "ActiveObject", *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it."""
        return cast("R", call(obj, self, args, kwargs))

    def copied(self, args: Any, kwargs: Any) -> Any:
        """Copy the arrays among arguments, but for those to be written into."""
        names = list(inspect.signature(self.function).parameters)[1:]
        copied = tuple(
            np.array(arg) if isinstance(arg, np.ndarray) and name != "out" else arg
            for arg, name in itertools.zip_longest(args, names[: len(args)])
        )
        named = {
            name: np.array(arg) if isinstance(arg, np.ndarray) and name != "out" else arg
            for name, arg in kwargs.items()
        }
        return copied, named

    def traits(self, cls: "type[ActiveObject]") -> Traits:
        """Tell what it does to fields of a class."""
        found = self._traits.get(cls)
        if found is None:
            fields = cls._fields
            found = traits_of(cls, self.function, fields, cls._containers())
            if self.read_only:
                found = Traits(changes=False, fills=False)
            elif self.locks is not None:
                found = found._replace(changes=self.locks)
            self._traits[cls] = found
        return found


class BoundMethod(Generic[P, R]):
    """A method of one object: called here, or handed to workers by `submit`."""

    __slots__ = ("__self__", "_method")

    def __init__(self, method: ActiveMethod[P, R], obj: "ActiveObject") -> None:
        self._method = method
        self.__self__ = obj

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it."""
        return cast("R", call(self.__self__, self._method, args, kwargs))

    def submit(self, *args: Any, executor: "Executor | None" = None, **kwargs: Any) -> "Future[R]":
        """Run it in a worker process; give a future.

        `executor` is by default the one whose with-block this is in (`engram.active.Executor`). An
        object on another node needs none: its node's workers run the method.
        """
        obj = self.__self__
        if executor is None and obj._volatile is None and obj._home.is_far:
            there: Any = obj._home
            name, again = self._method.function.__name__, self._method.read_only
            return cast("Future[R]", there.submit(obj, name, args, kwargs, again=again))
        from engram.active.workers.executor import current  # noqa: PLC0415 - only users of workers need it

        return current(executor).submit(self, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Give what the function has: its name, its module, its annotations."""
        if name == "__wrapped__":
            return self._method.function.__get__(self.__self__)
        return getattr(self._method.function, name)

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self._method.function.__name__)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundMethod):
            return NotImplemented
        return self._method is other._method and self.__self__ is other.__self__

    def __hash__(self) -> int:
        return hash((id(self._method), id(self.__self__)))

    def __repr__(self) -> str:
        return f"<active method {self._method.function.__qualname__} of {self.__self__!r}>"


@overload
def activemethod(
    function: "Callable[Concatenate[Any, P], R]",
) -> ActiveMethod[P, R]: ...
@overload
def activemethod(
    *,
    read_only: bool = False,
    pre_copy: bool = False,
    locks: bool | None = None,
    timeout: float = PATIENCE,
) -> "Callable[[Callable[Concatenate[Any, P], R]], ActiveMethod[P, R]]": ...
def activemethod(
    function: Any = None,
    *,
    read_only: bool = False,
    pre_copy: bool = False,
    locks: bool | None = None,
    timeout: float = PATIENCE,
) -> Any:
    """Declare a method that runs where the object's data lie, as one transaction.

    ::

        class Block(engram.ActiveObject):
            data: np.ndarray

            @engram.activemethod
            def mean(self) -> float:
                return self.data.mean()

    In it an array field is a numpy array on the pool's memory: no copy is made, and writing into it
    is seen by all at once. Changes of fields are written together at the end; if the method raises,
    none of them is (what was written into arrays in place stays). The idea is dataClay's (arXiv
    2111.06851).

    Parameters
    ----------
    function
        The method, where it is used without arguments.
    read_only
        It changes nothing: arrays are read-only, and assigning a field is `ReadOnlyError`. It never
        waits, and nothing is flushed after it.
    pre_copy
        Arrays, those of fields and those among the arguments (but for `out=`), are copied to
        private memory first, once each: for memory that is slow to read again and again. Writing
        into a copy changes no field.
    locks
        Whether it has its object's lock from beginning to end, so that methods of other threads and
        processes that change the object wait. By default a method that changes fields has.
    timeout
        How many seconds it waits for that lock, before `BusyError`.

    Raises
    ------
    ArgumentError
        If it is a generator or a coroutine function, whose transaction would end before it runs.

    """

    def made(inner: Any) -> ActiveMethod[Any, Any]:
        if not callable(inner) or isinstance(inner, staticmethod | classmethod):
            raise ArgumentError(f"{inner!r} is no method: put @activemethod above a def of a class")
        if inspect.isgeneratorfunction(inner) or inspect.iscoroutinefunction(inner):
            raise ArgumentError(
                f"{inner.__qualname__} cannot be an active method: a generator or a coroutine runs "
                "after its transaction has ended; return a list, or call it as `await obj.a_name()`"
            )
        if isinstance(inner, ActiveMethod):
            return inner
        how = {"read_only": read_only, "pre_copy": pre_copy, "locks": locks, "timeout": timeout}
        return ActiveMethod(inner, **how)  # type: ignore[arg-type]  # one type each

    return made if function is None else made(function)


def call(obj: "ActiveObject", method: ActiveMethod[Any, Any], args: Any, kwargs: Any) -> Any:
    """Run a method of an object: of a volatile one as it is, of a stored one as a transaction."""
    if obj._volatile is not None:
        return method.function(obj, *args, **kwargs)
    if telemetry.is_off():
        return _call(obj, method, args, kwargs)
    with telemetry.span("engram.active.call", _facts, obj, method):
        return _call(obj, method, args, kwargs)


def _facts(obj: "ActiveObject", method: ActiveMethod[Any, Any]) -> Mapping[str, telemetry.Value]:
    """Tell which method is called, and where it runs: the caller of another node is here."""
    home = obj._home
    return {
        "engram.active.class": type(obj).__qualname__,
        "engram.active.method": method.function.__name__,
        "engram.active.location": str(getattr(home, "location" if home.is_far else "pool_path")),
        "process.pid": os.getpid(),
    }


def _call(obj: "ActiveObject", method: ActiveMethod[Any, Any], args: Any, kwargs: Any) -> Any:
    """Run a method of a stored object."""
    if obj._home.is_far:
        there: Any = obj._home
        return there.call(obj, method.function.__name__, args, kwargs, again=method.read_only)
    outer = local.transaction
    if outer is not None:
        return _within(outer, obj, method, args, kwargs)
    return _run_again(obj, method, args, kwargs)


def _run_again(obj: "ActiveObject", method: ActiveMethod[Any, Any], args: Any, kwargs: Any) -> Any:
    """Run a method as a transaction; again where others have moved the object, or changed it."""
    for left in range(MOST_RUNS, -1, -1):
        transaction = Transaction()
        transaction.read_only = method.read_only
        try:
            return _run(transaction, obj, method, args, kwargs)
        except MovedError:
            if not left:
                raise
        except WentFarError:
            if not obj._home.is_far:  # it is another object that went
                raise
            return getattr(obj, method.function.__name__)(*args, **kwargs)
        except ConflictError:
            if not (transaction.torn and method.read_only and left):
                raise
    raise AssertionError


def _run(
    transaction: Transaction,
    obj: "ActiveObject",
    method: ActiveMethod[Any, Any],
    args: Any,
    kwargs: Any,
) -> Any:
    """Run a method as a transaction of its own."""
    traits = method.traits(type(obj))
    transaction.checks_views = traits.fills
    try:
        if traits.changes:
            _lock(transaction, obj, method.timeout)
        else:
            transaction.known = (obj, obj._home.modified(obj._gid))
    except NotFoundError:
        transaction.unlock()
        raise gone(type(obj).__qualname__, obj._gid) from None
    local.transaction = transaction
    try:
        if method.pre_copy:
            transaction.pre_copy = True
            args, kwargs = method.copied(args, kwargs)
        result = method.function(obj, *args, **kwargs)
        transaction.commit()
    finally:
        local.transaction = None
        transaction.unlock()
    return result


def _lock(transaction: Transaction, obj: "ActiveObject", timeout: float) -> None:
    """Lock an object; who waited for one that has moved meanwhile has no lock of it.

    Raises
    ------
    MovedError
        If it has moved to another home of this process; it is to be locked there.
    WentFarError
        If it has moved to another node.

    """
    place = (obj._home, obj._gid)
    transaction.lock(obj, timeout)
    if (obj._home, obj._gid) == place and not obj._follow():
        return
    transaction.unlock_one(place)
    if obj._home.is_far:
        raise WentFarError(f"{obj!r} was moved by another process meanwhile: do it again")
    raise MovedError(f"{obj!r} was moved meanwhile: do it again")


def _within(
    outer: Transaction, obj: "ActiveObject", method: ActiveMethod[Any, Any], args: Any, kwargs: Any
) -> Any:
    """Run a method within another one's transaction; if it raises, its changes are taken back."""
    traits = method.traits(type(obj))
    if traits.changes:
        _lock(outer, obj, method.timeout)
    before = outer.read_only, outer.pre_copy
    outer.read_only |= method.read_only
    outer.checks_views |= traits.fills
    outer.enter()
    failed = True
    try:
        if method.pre_copy:
            outer.pre_copy = True
            args, kwargs = method.copied(args, kwargs)
        result = method.function(obj, *args, **kwargs)
        failed = False
        return result
    finally:
        outer.leave(failed=failed)
        outer.read_only, outer.pre_copy = before
