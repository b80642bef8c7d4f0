"""Active methods under dataClay's names: Engram's, with what dataClay's programs rely on beside it.

In dataClay, objects that are made in a method, or given to one, are persistent. So it is here: an
object that a method makes or is given says that it is, and is stored, if nothing has stored it
before, when the outermost method ends without an error and something still has it. What nothing has
by then is forgotten, and so never written.

`async def` methods run as plain coroutines, each assignment a commit of its own: there is no
transaction, so what changes in a list or a dict has to be assigned.
"""

import inspect
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from engram.active.method import PATIENCE, ActiveMethod, BoundMethod, call
from engram.active.stored.storing import Storing
from engram.active.transaction import local
from engram.compat.dataclay import runtime
from engram.compat.dataclay.docstrings import checked

if TYPE_CHECKING:
    from engram.compat.dataclay.dataclay_object import DataClayObject


F = TypeVar("F", bound=Callable[..., Any])


class _Local(threading.local):
    def __init__(self) -> None:
        self.born: list[weakref.ref[DataClayObject]] = []


_local = _Local()


def note_birth(obj: "DataClayObject") -> None:
    """Note an object that was made while a method of a persistent object runs."""
    if local.transaction is not None:
        _local.born.append(weakref.ref(obj))


def is_in_method() -> bool:
    """Tell whether a method of a persistent object runs in this thread."""
    return local.transaction is not None


class Method(ActiveMethod[Any, Any]):
    """A method as the class has it."""

    _is_activemethod = True

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return self if obj is None else Bound(self, obj)

    def __call__(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Run it."""
        return _run(obj, self, args, kwargs)


class Bound(BoundMethod[Any, Any]):
    """A method of one object."""

    __slots__ = ()

    _is_activemethod = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it."""
        return _run(self.__self__, self._method, args, kwargs)


def _run(obj: Any, method: ActiveMethod[Any, Any], args: Any, kwargs: Any) -> Any:
    if obj._volatile is not None:
        return method.function(obj, *args, **kwargs)
    outermost = local.transaction is None
    if outermost:
        _local.born = []
    for given in (*args, *kwargs.values()):
        if getattr(given, "_volatile", None) is not None:
            _local.born.append(weakref.ref(given))
    running = runtime.running.objects
    running.append(obj)
    try:
        result = call(obj, method, args, kwargs)
    finally:
        running.pop()
    if outermost and _local.born:
        _store_born(obj)
    return result


def _store_born(obj: Any) -> None:
    """Store the objects that a method has made or was given, and that nothing has stored yet."""
    born, _local.born = _local.born, []
    alive = [each for ref in born if (each := ref()) is not None and each._volatile is not None]
    if alive and obj._home.namespace.writable:
        with Storing(obj._home) as storing:
            for each in alive:
                storing.make(each)


@overload
def activemethod(function: F) -> F: ...
@overload
def activemethod(
    *,
    read_only: bool = False,
    pre_copy: bool = False,
    locks: bool | None = None,
    timeout: float = PATIENCE,
) -> Callable[[F], F]: ...
def activemethod(
    function: Any = None,
    *,
    read_only: bool = False,
    pre_copy: bool = False,
    locks: bool | None = None,
    timeout: float = PATIENCE,
) -> Any:
    """Declare a method that runs where the object's data lie, as one transaction.

    dataClay's decorator takes no arguments; those of `engram.activemethod` may be given here, too.
    An `async def` stays one, without a transaction.
    """

    def made(inner: Any) -> Any:
        if isinstance(inner, ActiveMethod):
            return inner
        if inspect.iscoroutinefunction(inner):
            inner._is_activemethod = True
            return inner
        return Method(inner, read_only=read_only, pre_copy=pre_copy, locks=locks, timeout=timeout)

    return made if function is None else made(function)


def dclayMethod(  # noqa: N802 - dataClay's name
    *, return_: Any = None, _local: bool = False, **types: Any
) -> Callable[[F], F]:
    """Declare a method as dataClay 2 has it: `@dclayMethod(num="int", return_="anything")`.

    The names of types are looked at here, and values at no time, as in dataClay. With `_local=True`
    it is an ordinary method.

    Raises
    ------
    InvalidPythonSignature
        If one of the types is none of dataClay's.

    """

    def made(function: Any) -> Any:
        for name, kind in {**types, "return_": return_}.items():
            checked(kind, f"{name!r} of method {function.__qualname__}")
        is_local = _local or function.__name__ in {"__getstate__", "__setstate__"}
        method: Any = function if is_local else activemethod(function)
        method._dclay_method = True
        method._dclay_args = types
        method._dclay_ret = return_
        method._dclay_local = _local
        return method

    return made


def dclayEmptyMethod(function: F) -> F:  # noqa: N802 - dataClay's name
    """Declare a method that another language has: here it is what its body says."""
    function._dclay_method = True  # type: ignore[attr-defined]
    return function
