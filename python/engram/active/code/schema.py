"""A class's fields: what its annotations say, in the words that are compared and stored."""

import inspect
import re
import sys
import types
import typing
from typing import Any, ClassVar, NamedTuple

from engram.active.code.source import scopes
from engram.active.stored import values

_ARRAYS = ("ndarray", "NDArray", "engram.Array")
"""Words of annotations of fields that are kept as arrays, as a rule."""


_POOL_ARRAYS = ("engram.Array", "engram.array.Array")


class Fact(NamedTuple):
    """What is stored of a field."""

    kind: str
    """Its annotation, as text."""
    optional: bool
    """Whether the class gives it a default."""


def annotated(cls: type) -> dict[str, Any]:
    """Give the fields that a class body declares, and their annotations: text, it may be."""
    found = inspect.get_annotations(cls)
    return {name: hint for name, hint in found.items() if not _is_classvar(hint)}


def _is_classvar(hint: Any) -> bool:
    if isinstance(hint, str):
        return hint.removeprefix("typing.").startswith("ClassVar")
    return hint is ClassVar or typing.get_origin(hint) is ClassVar


def resolved(cls: type, hints: dict[str, Any]) -> dict[str, Any]:
    """Give annotations as types where their names are known by now; as text where they are not."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        own = inspect.get_annotations(base)
        known = scopes.get(base) or getattr(sys.modules.get(base.__module__), "__dict__", {})
        for name in own.keys() & hints.keys() - found.keys():
            holder = types.SimpleNamespace(__annotations__={name: own[name]})
            try:
                found |= typing.get_type_hints(holder, known, {base.__name__: base})
            except Exception:  # noqa: BLE001 - a name of TYPE_CHECKING, or any expression of theirs
                found[name] = own[name]
    return {name: found.get(name, hint) for name, hint in hints.items()}


def text_of(hint: Any) -> str:
    """Write an annotation in one way, however the program spelled it."""
    if hint is None or hint is types.NoneType or isinstance(hint, str):
        return hint if isinstance(hint, str) else "None"
    if typing.get_origin(hint) is typing.Annotated:
        hint = hint.__origin__
    arguments, origin = typing.get_args(hint), typing.get_origin(hint)
    if origin in {typing.Union, types.UnionType}:
        return " | ".join(sorted(text_of(part) for part in arguments))
    if arguments and isinstance(origin, type):
        name = text_of(origin)
        # Of an array's annotation only that it is one matters: dtypes are the arrays' own.
        inner = "" if name == "numpy.ndarray" else f"[{', '.join(map(_argument, arguments))}]"
        return name + inner
    if isinstance(hint, type):
        module = values.module_of(hint)
        return hint.__qualname__ if module == "builtins" else f"{module}.{hint.__qualname__}"
    return str(hint).removeprefix("typing.")


def _argument(part: Any) -> str:
    if part is Ellipsis:
        return "..."
    return text_of(part) if not isinstance(part, int) else repr(part)


_FIXED = (
    *("int", "float", "bool", "str", "bytes", "complex", "None", "datetime.datetime"),
    *("datetime.date", "datetime.time", "datetime.timedelta", "decimal.Decimal", "uuid.UUID"),
)


def is_fixed(kind: str) -> bool:
    """Tell whether values of a field cannot be changed in place."""
    return all(part in _FIXED for part in kind.split(" | "))


def is_array(kind: str) -> bool:
    """Tell whether a field of this annotation is an array, as a rule."""
    return any(word in kind for word in _ARRAYS) and not kind.startswith(("dict", "list", "tuple"))


def is_array_alone(hint: Any) -> bool:
    """Tell whether an annotation names arrays and nothing else, but for None.

    It is taken as it stands in the class: a name that the class body cannot look up yet, or that
    stands for another one, is none of an array's.
    """
    parts = _parts(_unwrapped(text_of(hint)))
    return parts != {"None"} and all(part == "None" or _is_array_name(part) for part in parts)


def _unwrapped(kind: str) -> str:
    """Write the text of ``Optional[X]`` and ``Annotated[X, ...]`` as what it means."""
    for word, more in (("Optional", " | None"), ("Annotated", "")):
        found = re.fullmatch(rf"(?:\w+\.)*{word}\[(.*)\]", kind, re.DOTALL)
        if found is not None:
            inner = found[1].partition(",")[0] if word == "Annotated" else found[1]
            return _unwrapped(inner.strip()) + more
    return kind


def _is_array_name(part: str) -> bool:
    name = part.partition("[")[0].strip()
    return name.rpartition(".")[2] in {"ndarray", "NDArray"} or name in _POOL_ARRAYS


def _bare(kind: str) -> str:
    """Leave modules out: a name that was not known yet does not tell its module."""
    return re.sub(r"(?:\w+\.)+(\w+)", r"\1", kind)


def _parts(kind: str) -> set[str]:
    """Give the parts of a union, not of those within brackets."""
    found, depth, start = set(), 0, 0
    for at, char in enumerate(kind):
        depth += (char == "[") - (char == "]")
        if char == "|" and not depth:
            found.add(kind[start:at].strip())
            start = at + 1
    return found | {kind[start:].strip()}


def _holds(ours: str, stored: str) -> bool:
    """Tell whether a field of one annotation may have what was stored with another one.

    Unions may have grown, `Any` and `object` hold all, `float` an int, `list` a `list[int]`.
    """
    held = _parts(ours)
    if held & {"Any", "object"}:
        return True
    return all(
        part in held or part.partition("[")[0] in held or (part == "int" and "float" in held)
        for part in _parts(stored)
    )


def differences(stored: dict[str, Fact], ours: dict[str, Fact]) -> list[str]:
    """Tell in which fields a class differs so that objects of the stored one do not fit it.

    A field that only one of the two has fits if there is a default for it, or if it is not asked
    for any more.
    """
    found = []
    for name, fact in ours.items():
        if name not in stored:
            if not fact.optional:
                found.append(f"{name}: {fact.kind} is new, and has no default")
        elif not _holds(_bare(fact.kind), _bare(stored[name].kind)):
            found.append(f"{name}: was {stored[name].kind}, is {fact.kind}")
    return found
