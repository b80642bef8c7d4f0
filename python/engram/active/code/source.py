"""A class's source, with what it needs of its module, as one text that runs by itself.

What a class names, in its methods, decorators, annotations and bases, is looked up in its module.
Modules and what comes from other modules become imports; functions and classes of the same module
are taken over with what they need themselves; numbers, strings and the like are written out. A name
that is none of these stays undefined, and is told. What a statement of the module has assigned is
taken over with the statement if that only names something: an annotation, a type variable, a named
tuple, a lambda, a logger.
"""

import ast
import builtins
import cmath
import enum
import linecache
import symtable
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from engram.active.code.lines import lines_of, ordered
from engram.active.stored.values import module_of

_CONSTANTS: Final = (int, float, str, bytes, bool, complex, type(None))


class Source(NamedTuple):
    """A class's source."""

    text: str
    """What runs; "" where there is none (a class typed into an interpreter)."""
    missing: tuple[str, ...]
    """Names that it needs and that could not be taken over."""
    names: tuple[str, ...] = ()
    """Names that are in it: imports, constants, definitions."""


made_of: WeakKeyDictionary[Any, Source] = WeakKeyDictionary()
"""The sources of classes that were made of them, and are in no file."""


scopes: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()
"""What surrounds classes that `run` made: another one of their module may be the one entered."""


def source_of(cls: Any) -> Source:
    """Give the source of a class, or of a function, with what it needs."""
    known = made_of.get(cls)
    if known is not None:
        return known
    try:
        gathered = _Gathered(cls)
    except (OSError, TypeError, SyntaxError):
        return Source("", ())
    return gathered.source()


class _Gathered:
    """What has been gathered: imports, constants, and definitions in the order of their module."""

    def __init__(self, cls: Any) -> None:
        module = sys.modules.get(cls.__module__)
        self._globals: dict[str, Any] = vars(module) if module is not None else {}
        self._module = cls.__module__
        self._imports: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._definitions: dict[str, tuple[int, str]] = {}
        self._missing: set[str] = set()
        self._define(cls.__name__, cls)

    def source(self) -> Source:
        imports = sorted(self._imports.values())
        constants = [self._constants[name] for name in sorted(self._constants)]
        parts = ["\n".join(imports), "\n".join(constants), *ordered(self._definitions)]
        text = "\n\n\n".join(part for part in parts if part)
        names = {*self._imports, *self._constants, *self._definitions}
        return Source(
            f"from __future__ import annotations\n\n{text}\n",
            tuple(sorted(self._missing)),
            tuple(sorted(names)),
        )

    def _define(self, name: str, thing: Any) -> None:
        """Take over a function or a class of the module."""
        lines, first = lines_of(thing)
        text = textwrap.dedent("".join(lines)).rstrip()
        self._definitions[name] = (first, text)
        for used in _names(text):
            self._need(used)

    def _need(self, name: str) -> None:
        if name in self._definitions or name in self._imports or name in self._constants:
            return
        if name not in self._globals:
            if not hasattr(builtins, name):
                self._missing.add(name)
            return
        value = self._globals[name]
        if isinstance(value, types.ModuleType):
            self._imports[name] = _import(name, value.__name__)
            return
        home = getattr(value, "__module__", None)
        own = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if callable(value) and home == self._module:
            try:
                if own != name:  # another name of something, or a part of it
                    raise TypeError(name)  # noqa: TRY301
                self._define(name, value)
            except (OSError, TypeError, SyntaxError):
                self._assign(name, value)
        elif home != self._module and isinstance(own, str) and _is_there(home, own, value):
            self._imports[name] = f"from {home} import {own}" + (
                f" as {name}" if own != name else ""
            )
        elif _is_constant(value):
            self._constants[name] = f"{name} = {_written(value)}"
        else:
            self._assign(name, value)

    def _assign(self, name: str, value: Any) -> None:
        """Take over the statement of the module that made something, if that only names it."""
        found = _assignment(self._lines(), name) if _only_names(value) else None
        if found is None:
            self._missing.add(name)
            return
        first, text = found
        self._definitions[name] = (first, text)
        quoted = _names_of_hint(ast.parse(text).body[0].value)  # type: ignore[attr-defined]
        for used in _names(text) | (quoted & self._globals.keys()):
            self._need(used)

    def _lines(self) -> str:
        path = self._globals.get("__file__")
        return "".join(linecache.getlines(path, self._globals)) if path else ""


def _only_names(value: Any) -> bool:
    """Tell whether making a value again, as its module does, does nothing else."""
    if isinstance(value, type):
        return hasattr(value, "_fields") or issubclass(value, enum.Enum)
    # A function that is no lambda, and has another name here, is an alias of one.
    made = isinstance(value, types.FunctionType | types.GenericAlias | types.UnionType)
    kinds = ("typing", "typing_extensions", "logging")
    return made or type(value).__module__ in kinds or type(value) is typing.NewType


def _assignment(text: str, name: str) -> tuple[int, str] | None:
    """Give the last statement at the top of a module that assigns a name alone, with its line."""
    try:
        nodes = ast.parse(text).body
    except (SyntaxError, ValueError):
        return None
    for node in reversed(nodes):
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or value is None or len(targets) > 1:
            continue
        if isinstance(targets[0], ast.Name) and targets[0].id == name:
            return node.lineno, ast.get_source_segment(text, node) or ""
    return None


def _import(name: str, module: str) -> str:
    if name == module:
        return f"import {module}"
    return f"import {module} as {name}"


def _is_there(module: object, name: str, value: Any) -> bool:
    """Tell whether a module has something under a name, so that it can be imported."""
    there = sys.modules.get(module) if isinstance(module, str) else None
    return getattr(there, name, None) is value


def _written(value: Any) -> str:
    """Write a constant, also one with infinite numbers in it."""
    if isinstance(value, float) and not cmath.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex) and not cmath.isfinite(value):
        return f"complex({_written(value.real)}, {_written(value.imag)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_written(k)}: {_written(v)}' for k, v in value.items())}}}"
    if not isinstance(value, tuple | list | set | frozenset) or not value:
        return repr(value)
    parts = ", ".join(map(_written, value))
    shape = {tuple: "({},)", list: "[{}]", set: "{{{}}}"}.get(type(value), "frozenset(({},))")
    return shape.format(parts)


def _is_constant(value: Any) -> bool:
    if type(value) in {tuple, list, set, frozenset}:
        return all(map(_is_constant, value))
    if type(value) is dict:
        return all(_is_constant(part) for pair in value.items() for part in pair)
    return type(value) in _CONSTANTS


def _names(text: str) -> set[str]:
    """Give the names of the module that a source reads, also in annotations that are strings."""
    found: set[str] = set()
    tables = [symtable.symtable(text, "<source>", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        outermost = table.get_type() == "module"
        for symbol in table.get_symbols():
            if outermost:
                own = symbol.is_assigned() or symbol.is_imported()
                known = symbol.is_referenced() and not own
            else:
                known = symbol.is_global() and symbol.is_referenced()
            if known:
                found.add(symbol.get_name())
    for node in ast.walk(ast.parse(text)):
        hints = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for hint in hints:
            if isinstance(hint, ast.expr):
                found |= _names_of_hint(hint)
    return found


def _names_of_hint(hint: ast.expr) -> set[str]:
    """Give the names in an annotation, and in the strings in it."""
    found = set()
    for node in ast.walk(hint):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            with suppress(SyntaxError, ValueError):
                found |= _names_of_hint(ast.parse(node.value, mode="eval").body)
    return found


def standing_in(name: str, made: Mapping[str, Any]) -> types.ModuleType | None:
    """Make a module that is not to be had here, of what is: known by their whole names."""
    inside = {whole.removeprefix(f"{name}."): each for whole, each in made.items()}
    module = types.ModuleType(name)
    module.__path__ = []  # there may be others in it
    vars(module).update({own: each for own, each in inside.items() if "." not in own})
    return module if any(whole.startswith(f"{name}.") for whole in made) else None


def run(
    name: str,
    text: str,
    pool: str,
    missing: Iterable[str] = (),
    stand_in: Callable[[str], types.ModuleType | None] = lambda _: None,
) -> Any:
    """Run a class's source in a module of its own; give the class.

    `name` is the class's with its module; the module is not entered among those of the program.
    Modules that the source imports and that are not there are asked for of `stand_in`.
    """
    added: list[str] = []
    try:
        while True:
            try:
                return _run(name, text, pool, missing)
            except ModuleNotFoundError as error:
                module = None if error.name is None else stand_in(error.name)
                if error.name is None or module is None or error.name in added:
                    raise
                sys.modules[error.name] = module
                added.append(error.name)
    finally:
        for each in added:
            sys.modules.pop(each, None)


def _run(name: str, text: str, pool: str, missing: Iterable[str]) -> Any:
    module_name, _, qualified = name.rpartition(".")
    module = types.ModuleType(module_name or "engram_loaded")
    module.__dict__["__engram_pool__"] = pool
    filename = f"<{name} of {pool}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module  # dataclasses and annotations are looked up there
    try:
        exec(compile(text, filename, "exec"), module.__dict__)  # noqa: S102 - load_class is for it
        made: Any = module.__dict__[qualified]
        for each in list(vars(module).values()):
            if not isinstance(each, type) or each.__module__ != module.__name__:
                continue
            scopes[each] = vars(module)
            if hasattr(each, "_engram_reference"):
                made_of[each] = Source(text, tuple(missing))
                each._resolved()  # type: ignore[attr-defined]
    finally:
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before
    return made


__all__ = ["Source", "module_of", "run", "source_of", "standing_in"]
