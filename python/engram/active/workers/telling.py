"""What a program tells its workers: where its pools are, and how its classes are to be had.

A worker never runs the program's script again, and takes no name of a module from a pool. It has
the parent's `sys.path`, and a list of *things*: each class of active objects, and each class or
function of the main module that an argument refers to. One of an importable module is told by the
module's name, and is imported when something needs it; one of the main module (a script, a
notebook, `python -c`) by its source with what it needs (`source.py`), and that is run when it is
needed.

Invariant: all is numbered in the order in which it came or changed, and a worker is told all that
came after the last number that it was told, before the call that needs it. Of a name that is bound
anew in the main module, such as a class whose cell was run again, the stamp changes, which has the
worker run it again.
"""

import io
import os
import pickle
import sys
import threading
import types
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from engram import telemetry
from engram.active import using
from engram.active.code import classes
from engram.active.code.source import made_of, source_of
from engram.active.errors import ClassUnknownError
from engram.active.object import ActiveObject
from engram.active.stored.home import homes
from engram.active.workers.wire import CALL, HELLO, Message, apart, packed
from engram.errors import ArgumentError, EngramError

if TYPE_CHECKING:
    from engram.active.method import BoundMethod
    from engram.active.stored.home import Home

MAIN: Final = "__main__"
_ABSENT: Final = object()


class Place(NamedTuple):
    """A namespace of a pool, which workers open in the same mode."""

    number: int
    uuid: str
    path: str
    mode: str
    namespace: str


class Thing(NamedTuple):
    """A class or a function, and how to get it."""

    module: str
    name: str
    """Its qualified name in the module."""
    stored: str
    """What pools call it; "" of what is no class of active objects."""
    text: str
    """Its source; "" where the module is to be imported."""
    missing: tuple[str, ...]
    """Names that its source needs and that could not be taken over."""
    stamps: dict[str, int]
    """Of each name in the source, which binding of it this is; of an import, of the class."""


class News(NamedTuple):
    """What is new since a worker was told last."""

    path: list[str] | None
    places: list[Place]
    things: list[Thing]


class Hello(NamedTuple):
    """What a worker is told when it starts."""

    main_file: str | None
    main_name: str | None
    python_path: str | None
    arguments: list[str]
    news: News


class Target(NamedTuple):
    """What a call is of: the first half of its message, the arguments are the other one."""

    place: int
    gid: int
    method: str
    """"": the first argument is a function, which is given the home and the others."""
    used: int
    """The place that objects are made in."""
    places: list[int]
    """All places that arguments are in."""
    trace: str = ""
    """The span that it comes from, as `telemetry.here` gives it."""


class Packed(NamedTuple):
    """A call as it is sent."""

    body: bytes
    buffers: list[Any]

    def message(self, news: bytes) -> Message:
        """Make the message for a worker that has to be told some news before."""
        return Message(CALL, news + self.body, self.buffers)


_NOTHING: Final = pickle.dumps(None, protocol=5)
_NO_ARGUMENTS: Final = pickle.dumps(((), {}), protocol=5)


class Teller:
    """What all workers of an executor are told, and the calls in its words."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._number = 0
        self._path: tuple[int, list[str]] = (0, [])
        self._places: dict[int, Place] = {}
        self._things: dict[tuple[str, str], tuple[int, Thing]] = {}
        self._roots: dict[tuple[str, str], tuple[Any, str]] = {}
        self._bindings: dict[str, tuple[Any, int]] = {}
        self._loads: dict[str, tuple[Any, int]] = {}
        self._refused: dict[tuple[str, str], str] = {}
        self._homes: WeakKeyDictionary[Home, int] = WeakKeyDictionary()
        self._entered = -1

    # Calls

    def call(self, bound: "BoundMethod[Any, Any]", args: Any, kwargs: Any) -> Packed:
        """Pack a call.

        Raises
        ------
        ArgumentError
            If an argument does not pickle.
        ClassUnknownError
            If a worker cannot get at the class.

        """
        obj, name = bound.__self__, bound._method.function.__name__
        if not obj._home.is_open:
            raise ArgumentError(f"the pool of {obj!r} is closed: open it again")
        with self._lock:
            self._look()
            self._check(type(obj))
            home = obj._home
            place = self._place(home)
            places = [place]
            buffers: list[Any] = []
            if args or kwargs:
                packed_args = self._arguments(bound, (args, kwargs), places, buffers)
            else:
                packed_args = _NO_ARGUMENTS
            used = self._used(home)
            target = Target(place, obj._gid, name, used, places, telemetry.here())
            return Packed(pickle.dumps(tuple(target), protocol=5) + packed_args, buffers)

    def task(self, home: "Home", function: Any, args: Any) -> Packed:
        """Pack a call of a function of this package's: of the home as a worker has it, and these.

        The arguments are plain data.
        """
        with self._lock:
            place = self._place(home)
        target = Target(place, 0, "", place, [place])
        content = pickle.dumps(((function, *args), {}), protocol=5)
        return Packed(pickle.dumps(tuple(target), protocol=5) + content, [])

    def _arguments(self, bound: Any, content: Any, places: list[int], buffers: list[Any]) -> bytes:
        file = io.BytesIO()
        try:
            _ArgumentPickler(self, places, file, buffers).dump(content)
        except EngramError:
            raise
        except Exception as error:
            raise ArgumentError(
                f"an argument of {bound!r} cannot be sent to a worker: {error}"
            ) from error
        return file.getvalue()

    def _used(self, home: "Home") -> int:
        """Give the place that objects are made in: the program's, or that of the called object."""
        try:
            return self._place(using.home())
        except EngramError:  # several pools are open, and none is in use
            return self._place(home)

    def _place(self, home: "Home") -> int:
        number = self._homes.get(home)
        if number is None:
            self._number += 1
            number = self._homes[home] = self._number
            namespace = home.namespace
            mode = "r+" if namespace.writable else "r"
            path = os.path.realpath(home.pool_path)
            self._places[number] = Place(number, namespace.uuid, path, mode, namespace.name)
        return number

    # News

    def hello(self) -> tuple[Message, int]:
        """Give the first message to a worker, and the number up to which it is told."""
        main = sys.modules.get(MAIN)
        spec = getattr(main, "__spec__", None)
        name, file = getattr(spec, "name", None), getattr(main, "__file__", None)
        with self._lock:
            self._look()
            for home in homes():
                self._place(home)
            path = os.environ.get("PYTHONPATH")
            hello = Hello(file, name, path, list(sys.argv), self._news(0))
            return packed(HELLO, hello), self._number

    def since(self, told: int) -> tuple[bytes, int]:
        """Give what is new since a number, and the number up to which a worker is then told."""
        if told == self._number:
            return _NOTHING, told
        with self._lock:
            return pickle.dumps(self._news(told), protocol=5), self._number

    def _news(self, told: int) -> News:
        return News(
            self._path[1] if self._path[0] > told else None,
            [place for number, place in self._places.items() if number > told],
            [thing for number, thing in self._things.values() if number > told],
        )

    # Things

    def _look(self) -> None:
        """Note what is new or has changed since the last look."""
        if sys.path != self._path[1]:
            self._number += 1
            self._path = (self._number, list(sys.path))
        scope = vars(sys.modules[MAIN])
        for name, (value, _) in self._bindings.items():
            if scope.get(name, _ABSENT) is not value:
                self._refresh()
                break
        entered, known = classes.ours()
        if entered != self._entered:
            self._entered = entered
            for stored, cls in list(known.items()):
                self._note(cls, stored)

    def _refresh(self) -> None:
        """Gather anew what is of the main module; its names mean something else now."""
        for key, (thing, stored) in list(self._roots.items()):
            if key[0] == MAIN:
                self._note(thing, stored, anew=True)

    def _note(self, thing: Any, stored: str = "", *, anew: bool = False) -> None:
        """Note a class or a function, if workers can get at it."""
        key = (thing.__module__, thing.__qualname__)
        before = self._roots.get(key)
        if before is not None and before[0] is thing and not anew:
            return
        self._roots[key] = (thing, stored)
        self._refused.pop(key, None)
        try:
            made = self._thing(thing, stored)
        except ClassUnknownError as error:
            self._refused[key] = str(error)
            self._things.pop(key, None)
            return
        if key not in self._things or self._things[key][1] != made:
            self._number += 1
            self._things[key] = (self._number, made)

    def _thing(self, thing: Any, stored: str) -> Thing:
        module, name = thing.__module__, thing.__qualname__
        if "<locals>" in name:
            raise ClassUnknownError(
                f"workers cannot find {name!r}, which is defined within a function: define it at "
                "the top of a module, or of the script"
            )
        source = made_of.get(thing)
        if source is not None:
            stamps = {name: _stamp(self._loads, f"{module}.{name}", thing)}
            return Thing(module, name, stored, source.text, (), stamps)
        if module != MAIN:
            spec = getattr(sys.modules.get(module), "__spec__", None)  # a reload makes another
            return Thing(module, name, stored, "", (), {module: _stamp(self._loads, module, spec)})
        scope = vars(sys.modules[MAIN])
        source = source_of(scope.get(name.partition(".")[0], thing) if "." in name else thing)
        if not source.text:
            raise ClassUnknownError(
                f"workers cannot have {name!r}: its source is not known, as of all that is typed "
                "into an interpreter; write it into a file, or a notebook's cell"
            )
        stamps = {
            used: _stamp(self._bindings, used, scope.get(used, _ABSENT)) for used in source.names
        }
        return Thing(module, name, stored, source.text, source.missing, stamps)

    def _check(self, cls: type) -> None:
        """Refuse if workers cannot get at a class."""
        key = (cls.__module__, cls.__qualname__)
        noted = self._roots.get(key)
        if noted is None or noted[0] is not cls:
            if noted is not None and cls.__module__ == MAIN:
                raise ClassUnknownError(
                    f"{cls.__qualname__} was defined again since this object was got: get the "
                    "object again"
                )
            self._note(cls)
        if key in self._refused:
            raise ClassUnknownError(self._refused[key])

    def meet(self, thing: Any, places: list[int]) -> None:
        """Note what an argument refers to."""
        if isinstance(thing, type | types.FunctionType):
            if thing.__module__ == MAIN or thing in made_of:
                known = self._roots.get((thing.__module__, thing.__qualname__))
                if known is None or known[0] is not thing:
                    self._note(thing)
                self._check(thing)  # type: ignore[arg-type]  # a function has these names, too
        elif isinstance(thing, ActiveObject) and thing.is_persistent:
            number = self._place(thing._home)
            if number not in places:
                places.append(number)


def _stamp(stamps: dict[str, tuple[Any, int]], name: str, value: Any) -> int:
    """Give the number of a name's binding: another one if it is bound to something else now."""
    before, stamp = stamps.get(name, (_ABSENT, 0))
    if before is not value or not stamp:
        stamp += 1
        stamps[name] = (value, stamp)
    return stamp


class _ArgumentPickler(pickle.Pickler):
    """Pickles arguments; notes the classes, functions and pools that they refer to."""

    def __init__(self, teller: Teller, places: list[int], file: Any, buffers: list[Any]) -> None:
        super().__init__(file, protocol=5, buffer_callback=apart(buffers))
        self._teller = teller
        self._places = places

    def reducer_override(self, thing: Any) -> Any:
        """Leave the pickling to the thing itself."""
        self._teller.meet(thing, self._places)
        return NotImplemented
