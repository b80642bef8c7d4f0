"""A worker: a process that runs methods for the program that started it, one after another.

It is started as `python -m engram.active.workers.worker FD`, where FD is its end of a socketpair,
and reads calls from there until nothing more comes. What the program has told it (`telling.py`)
says where classes are to be had: those of modules are imported, those of the program's main module
are run from their source, in a module of that name, one statement at a time and each once. The
program's script itself is never run.

If the program dies in the middle of a call, the worker ends at once: what the call has not
committed never happened.
"""

import ast
import contextlib
import importlib
import importlib.machinery
import io
import linecache
import os
import pickle
import select
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any, Final

from engram import telemetry
from engram.active import using
from engram.active.code import classes
from engram.active.code.source import Source, made_of, run, standing_in
from engram.active.errors import ClassUnknownError
from engram.active.object import ActiveObject
from engram.active.stored.home import Home, home_of
from engram.active.workers.telling import MAIN, Hello, News, Place, Target, Thing
from engram.active.workers.wire import FAILURE, READY, RESULT, UNFIT, Message, Thrown, Wire, packed
from engram.errors import EngramError, NotFoundError
from engram.namespace import Namespace
from engram.pool import _kept_here, _shared_opening

_AWAKE = 0.0002
"""Seconds for which a worker that has answered is awake for the next call."""

_ORPHANED: Final = 1
_LATER_ANNOTATIONS: Final = 0x1000000
"""The compiler's flag of `from __future__ import annotations`."""


class Worker:
    """What this process knows, and how it answers."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.busy = False
        self.orphan = False
        self._places: dict[int, Place] = {}
        self._open: dict[int, tuple[Home, Namespace]] = {}
        self.things = Things()

    def serve(self) -> None:
        """Answer until nothing more comes."""
        with contextlib.suppress(EOFError, OSError):
            self._begin(pickle.loads(self.wire.receive().body))  # noqa: S301 - our parent's
            self.wire.send(packed(READY, None))
            while True:
                self.wire.comes(_AWAKE)
                message = self.wire.receive()
                self.busy = True
                if self.orphan:
                    return
                answer = self._answer(message)
                del message
                for stream in (sys.stdout, sys.stderr):
                    with contextlib.suppress(OSError, ValueError, AttributeError):
                        stream.flush()
                self.wire.send(answer)
                del answer
                self.busy = False

    def _begin(self, hello: Hello) -> None:
        main = types.ModuleType(MAIN)
        if hello.main_file is not None:
            main.__file__ = hello.main_file
        if hello.main_name is not None:
            main.__spec__ = importlib.machinery.ModuleSpec(hello.main_name, None)
        sys.modules[MAIN] = main
        sys.argv[:] = hello.arguments
        if hello.python_path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = hello.python_path
        self._learn(hello.news)
        for number in self._places:
            with contextlib.suppress(EngramError):
                self._opened(number)
        classes.finders.append(self.things.stored)

    def _learn(self, news: News) -> None:
        if news.path is not None:
            sys.path[:] = news.path
        for place in news.places:
            self._places[place.number] = place
        self.things.learn(news.things)

    def _opened(self, number: int) -> tuple[Home, Namespace]:
        """Give a namespace that the parent has open, opened here in the same mode."""
        found = self._open.get(number)
        if found is None or not found[0].is_open:
            place = self._places[number]
            opening = _shared_opening(place.path, place.mode)
            if opening.uuid != place.uuid:  # another pool was made at that path since
                _kept_here.pop((place.path, place.mode)).close()
                opening = _shared_opening(place.path, place.mode)
            if opening.uuid != place.uuid:
                raise NotFoundError(f"the pool {place.uuid} is not at {place.path!r} any more")
            namespace = Namespace(opening.namespace(place.namespace))
            found = self._open[number] = (home_of(namespace), namespace)
        return found

    # Calls

    def _answer(self, message: Message) -> Message:
        try:
            result = self._result(message)
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            return self._failure(error)
        try:
            return packed(RESULT, result)
        except Exception as error:  # noqa: BLE001 - whatever pickling it does
            return packed(UNFIT, f"{type(result).__qualname__}: {error}")

    def _result(self, message: Message) -> Any:
        file = io.BytesIO(message.body)
        news = pickle.load(file)  # noqa: S301 - our parent's, as all that follows
        if news is not None:
            self._learn(news)
        target = Target(*pickle.load(file))  # noqa: S301 - as above
        for number in target.places:
            self._opened(number)
        using._used.set(self._opened(target.used)[1])
        args, kwargs = _Unpickler(self.things, file, message.buffers).load()
        if not target.method:
            return args[0](self._opened(target.place)[0], *args[1:])
        obj = ActiveObject._handle(self._opened(target.place)[0], target.gid)
        with telemetry.within(target.trace):
            return getattr(obj, target.method)(*args, **kwargs)

    def _failure(self, error: BaseException) -> Message:
        trace = error.__traceback__
        shown = trace.tb_next.tb_next if trace and trace.tb_next else None
        if isinstance(error, NameError) and error.name in self.things.missing:
            error.add_note(
                f"workers have no {error.name!r}: it is of the main module, and what it is cannot "
                "be sent; put it into a module that the main one imports, or into a field"
            )
        text = "".join(traceback.format_exception(type(error), error, shown))
        return packed(FAILURE, (text, _pickled(error)))


def _pickled(error: BaseException) -> bytes | None:
    """Pickle an exception; None if that cannot be had again."""
    ways: list[Any] = [error]
    if hasattr(type(error).__reduce__, "__objclass__"):  # Python's own
        ways.append(Thrown(type(error), error.args, dict(vars(error))))
    for content in ways:
        with contextlib.suppress(Exception):
            whole = pickle.dumps(content, protocol=5)
            if type(pickle.loads(whole)) is type(content):  # noqa: S301 - our own
                return whole
    return None


class Things:
    """The classes and functions of the program, as far as this process was told of them."""

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self._told: dict[tuple[str, str], Thing] = {}
        self._stored: dict[str, tuple[str, str]] = {}
        self._made: dict[tuple[str, str], tuple[Thing, Any]] = {}
        self._ran: dict[str, tuple[int, str]] = {}
        self._loads: dict[str, int] = {}
        self._texts = 0

    def learn(self, things: list[Thing]) -> None:
        """Note what there is; what was made of a thing that has changed is made anew."""
        for thing in things:
            key = (thing.module, thing.name)
            self._told[key] = thing
            self.missing.update(thing.missing)
            if thing.stored:
                self._stored[thing.stored] = key
                classes.ours()[1].pop(thing.stored, None)

    def stored(self, name: str) -> Any:
        """Give the class that pools call by a name, if the parent has it."""
        key = self._stored.get(name)
        return None if key is None else self.get(key)

    def get(self, key: tuple[str, str]) -> Any:
        """Give a thing that the parent has told of; None if it has not.

        Raises
        ------
        ClassUnknownError
            If it cannot be had.

        """
        thing = self._told.get(key)
        if thing is None:
            return None
        made = self._made.get(key)
        if made is None or made[0] != thing:
            try:
                made = self._made[key] = (thing, self._make(thing))
            except Exception as error:
                how = "import its module" if not thing.text else "run its source"
                raise ClassUnknownError(
                    f"the worker cannot have {thing.module}.{thing.name}: to {how} fails with "
                    f"{type(error).__name__}: {error}"
                ) from error
        if thing.stored:
            classes.ours()[1][thing.stored] = made[1]
        return made[1]

    def _make(self, thing: Thing) -> Any:
        if thing.text and thing.module != MAIN:
            whole = f"{thing.module}.{thing.name}"
            return run(whole, thing.text, "the program", (), self._stand_in)
        if thing.text:
            self._run(thing)
            module = sys.modules[MAIN]
        else:
            module = self._imported(thing)
        found: Any = module
        for part in thing.name.split("."):
            found = getattr(found, part)
        return found

    def _stand_in(self, module: str) -> types.ModuleType | None:
        """Make a module that only the program has, of what it has told of it."""
        told = {f"{key[0]}.{key[1]}": key for key in self._told}
        here: dict[str, Any] = {}
        for whole, key in told.items():
            if key[0] == module:
                with contextlib.suppress(ClassUnknownError):  # its users miss it
                    here[whole] = self.get(key)
        return standing_in(module, here | dict.fromkeys(told.keys() - here.keys()))

    def _imported(self, thing: Thing) -> types.ModuleType:
        module = importlib.import_module(thing.module)
        stamp = thing.stamps[thing.module]
        if stamp > self._loads.setdefault(thing.module, stamp):
            module = importlib.reload(module)  # as the parent has done
            self._loads[thing.module] = stamp
        return module

    def _run(self, thing: Thing) -> None:
        """Run those statements of a source that have not run yet."""
        scope = vars(sys.modules[MAIN])
        self._texts += 1
        filename = f"<source of {thing.name}, {self._texts}>"
        lines = thing.text.splitlines(keepends=True)
        linecache.cache[filename] = (len(thing.text), None, lines, filename)
        for node in ast.parse(thing.text).body:
            name = _bound_by(node)
            is_new = (thing.stamps.get(name, 0), ast.dump(node))
            if name == "annotations" or self._ran.get(name) == is_new:
                continue
            code = compile(
                ast.Module([node], []), filename, "exec", _LATER_ANNOTATIONS, dont_inherit=True
            )
            exec(code, scope)  # noqa: S102 - the parent's own
            self._ran[name] = is_new
        for (module, name), told in self._told.items():
            made = scope.get(name)
            if module == MAIN and isinstance(made, type):
                made_of[made] = Source(told.text, told.missing)


def _bound_by(node: Any) -> str:
    """Give the name that an import, an assignment or a definition binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return node.names[0].asname or node.names[0].name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return str(getattr(node, "name", ""))


class _Unpickler(pickle.Unpickler):
    """Unpickles arguments; classes and functions are those that the parent has told of."""

    def __init__(self, things: Things, file: Any, buffers: Any) -> None:
        super().__init__(file, buffers=buffers)
        self._things = things

    def find_class(self, module: str, name: str) -> Any:
        """Find what a pickle refers to."""
        found = self._things.get((module, name))
        return super().find_class(module, name) if found is None else found


def _watch(descriptor: int, worker: Worker) -> None:
    """Wait for the parent's death; if a call goes on then, end it."""
    waiting = select.poll()
    waiting.register(descriptor, 0)
    waiting.poll()
    worker.orphan = True
    if worker.busy:
        os._exit(_ORPHANED)


def main() -> None:
    """Serve the parent at the other end of the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)  # for what a method executes
    wire = Wire(end)
    os.register_at_fork(after_in_child=wire.close)
    worker = Worker(wire)
    threading.Thread(target=_watch, args=(end.fileno(), worker), daemon=True).start()
    worker.serve()


if __name__ == "__main__":
    main()
