"""Where the source of a class or a function stands: in a file, a notebook's cell, or `python -c`.

Also in which order definitions that are spread over cells have to run.
"""

import ast
import inspect
import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any, Final

_DEFINITIONS: Final = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_CELLS: Final = ("<ipython-input-", "ipykernel_", "<marimo", "<python-input-")
"""What names of cells have in them."""


def lines_of(thing: Any) -> tuple[list[str], int]:
    """Give the lines of a class or a function, and the number of the first one.

    Raises
    ------
    OSError
        If they are nowhere.

    """
    try:
        return inspect.getsourcelines(thing)
    except (OSError, TypeError):
        pass  # it is of no file; classes of cells are not found either
    for filename, number in _places(thing):
        lines = _lines_of_file(filename)
        node = _defined_in(lines, thing.__qualname__, number)
        if node is not None:
            first = _first(node)
            return lines[first - 1 : node.end_lineno], first
    raise OSError(f"the source of {thing!r} is not known")


def _places(thing: Any) -> Iterator[tuple[str, int]]:
    """Give names of files that it may be in, with a line of it; 0 where that is not known."""
    functions = list(vars(thing).values()) if isinstance(thing, type) else [thing]
    for each in functions:
        for name in ("function", "__func__", "fget", "__wrapped__"):
            inner = getattr(each, name, None)
            if isinstance(inner, types.FunctionType):
                each = inner  # noqa: PLW2901 - what is within is what has lines
        if isinstance(each, types.FunctionType) and each.__module__ == thing.__module__:
            yield each.__code__.co_filename, each.__code__.co_firstlineno
    if thing.__module__ == "__main__":
        cells = [name for name in linecache.cache if any(part in name for part in _CELLS)]
        yield from ((name, 0) for name in [*reversed(cells), "<string>"])


def _lines_of_file(filename: str) -> list[str]:
    lines = linecache.getlines(filename)
    if lines or filename != "<string>" or "-c" not in sys.orig_argv[:-1]:
        return lines
    command = sys.orig_argv[sys.orig_argv.index("-c") + 1]
    return command.splitlines(keepends=True)


def _defined_in(lines: list[str], qualified: str, number: int) -> Any:
    """Find the last definition of that name, around a line."""
    try:
        inside: Any = ast.parse("".join(lines))
    except SyntaxError:
        return None
    for name in qualified.split("."):
        found = [
            node
            for node in _within(inside)
            if node.name == name
            and (not number or _first(node) <= number <= (node.end_lineno or number))
        ]
        if not found:
            return None
        inside = found[-1]
    return inside


def _within(node: Any) -> Iterator[Any]:
    """Give what is defined in a scope, also in its with-blocks and the like; not in inner ones."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, _DEFINITIONS):
            yield inner
        else:
            yield from _within(inner)


def _first(node: Any) -> int:
    numbers: list[int] = [node.lineno, *(mark.lineno for mark in node.decorator_list)]
    return min(numbers)


def ordered(definitions: dict[str, tuple[int, str]]) -> list[str]:
    """Give definitions, each with the line it had, so that what one needs to run is before it."""
    done: dict[str, str] = {}

    def take(name: str, within: frozenset[str]) -> None:
        if name in done or name in within:
            return
        text = definitions[name][1]
        for needed in sorted(_needed_at_once(text) & definitions.keys()):
            take(needed, within | {name})
        done[name] = text

    for name in sorted(definitions, key=lambda name: (definitions[name][0], name)):
        take(name, frozenset())
    return list(done.values())


def _needed_at_once(text: str) -> set[str]:
    """Give the names that a definition reads when it runs, not when it is called."""
    names: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            names.add(node.id)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += getattr(node, "decorator_list", ())
            waiting += [each for each in node.args.defaults + node.args.kw_defaults if each]
        elif isinstance(node, ast.AnnAssign):
            waiting += [node.value] if node.value else []
        else:
            waiting += ast.iter_child_nodes(node)
    return names
