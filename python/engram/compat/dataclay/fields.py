"""A class's fields, as dataClay finds them: annotations, docstrings, and what annotations add."""

import contextlib
import sys
import typing
from typing import Any

from engram.active.code import schema
from engram.active.fields import NO_DEFAULT, Field
from engram.compat.dataclay.annotated import LocalOnly, PropertyTransformer
from engram.compat.dataclay.docstrings import fields_of


class TransformedField(Field):
    """A field whose annotation has a `PropertyTransformer`."""

    __slots__ = ("_transformers",)

    def __init__(
        self,
        owner: str,
        name: str,
        hint: Any,
        default: Any,
        transformers: list[PropertyTransformer],
    ) -> None:
        super().__init__(owner, name, hint, default)
        self._transformers = transformers

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        value = super().__get__(obj, owner)  # type: ignore[arg-type]
        if obj is not None:
            for each in reversed(self._transformers):
                value = each.getter(value)
        return value

    def __set__(self, obj: Any, value: Any) -> None:
        for each in self._transformers:
            value = each.setter(value)
        super().__set__(obj, value)


class DocstringField(Field):
    """A field of a docstring's schema: a persistent object has None where nothing was assigned."""

    __slots__ = ()

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        try:
            return super().__get__(obj, owner)  # type: ignore[arg-type]
        except AttributeError:
            if obj._volatile is not None:
                raise
            return None


def declared(cls: type, engrams_own: type) -> dict[str, Field]:
    """Give the fields that a class and its mixins declare."""
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        if base is cls or not (issubclass(base, engrams_own) or issubclass(engrams_own, base)):
            for name, hint in schema.annotated(base).items():
                field = None if name.startswith("_dc_") else _field(cls, base, name, hint)
                if field is not None:
                    found[name] = field
    for name, kind in fields_of(cls).items():
        default = cls.__dict__.get(name, NO_DEFAULT)
        found[name] = DocstringField(cls.__qualname__, name, kind, default)
    return found


def _field(cls: type, base: type, name: str, hint: Any) -> Field | None:
    default = base.__dict__.get(name, NO_DEFAULT)
    extras = _extras(base, hint)
    if any(each is LocalOnly or isinstance(each, LocalOnly) for each in extras):
        return None
    transformers = [each for each in extras if isinstance(each, PropertyTransformer)]
    if transformers:
        return TransformedField(cls.__qualname__, name, hint, default, transformers)
    return Field(cls.__qualname__, name, hint, default)


def _extras(base: type, hint: Any) -> tuple[Any, ...]:
    """Give what `Annotated` adds to a type, also where the annotation is text."""
    if isinstance(hint, str):
        if "[" not in hint:
            return ()
        known = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        with contextlib.suppress(Exception):  # it names what is not there yet
            hint = eval(hint, known, dict(vars(base)))  # noqa: S307 - as Python would evaluate it
    if typing.get_origin(hint) is typing.Annotated:
        return tuple(hint.__metadata__)
    return (LocalOnly,) if isinstance(hint, str) and "LocalOnly(" in hint else ()
