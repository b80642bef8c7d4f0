"""Values of fields as bytes, and back: MessagePack, with extension types for what it lacks.

It is data alone: decoding runs no code that the bytes name. A dataclass or a pydantic model is kept
as the name of its class and its fields, and is made again only of a class that this program has and
that a field's annotation, or an earlier value, has mentioned. `docs/format.md` has the table of
extension types; they are append-only.

A *reference* is the id of another active object: a number where it is in the same namespace, and
else with its pool's uuid and path and its namespace.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import sys
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgpack
import numpy as np

from engram.active.errors import UnsupportedFieldError
from engram.errors import ArgumentError, CorruptError, EngramError

MOST_NESTED: Final = 100
"""How deep containers may be nested."""

_REFERENCE, _ARRAY, _NUMPY_SCALAR, _TUPLE, _SET, _FROZENSET, _COMPLEX, _DATETIME = range(1, 9)
_DATE, _TIME, _TIMEDELTA, _INTEGER, _DECIMAL, _UUID, _BYTEARRAY, _PATH = range(9, 17)
_NAMED, _ENUM, _COUNTER, _ORDERED, _DEFAULT, _DEQUE, _SLICE, _RANGE = range(17, 25)

_FACTORIES: Final[dict[str, Callable[[], Any]]] = {
    made.__name__: made for made in (int, float, str, list, dict, set, tuple, bytes, bool)
}
"""What a defaultdict may make its values with."""

known: dict[str, type] = {}
"""Dataclasses, models, named tuples and enumerations of this program that values may be of."""


def name_of(kind: type) -> str:
    """Give a class's name with its module; a script's own classes have the module's name."""
    return f"{module_of(kind)}.{kind.__qualname__}"


def module_of(kind: type) -> str:
    """Give the name that a class's module has when it is imported, also if it is being run."""
    module = kind.__module__
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        name: str = spec.name
        return name.removesuffix(".__main__")
    path = getattr(main, "__file__", None)
    return pathlib.Path(path).stem if path else module


def is_named(kind: object) -> bool:
    """Tell whether values of a class are kept as its name and their fields."""
    if not isinstance(kind, type):
        return False
    return (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, enum.Enum)
        or hasattr(kind, "model_fields")
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def learn(kind: type) -> str:
    """Enter a class among those that values may be of; give its name."""
    name = name_of(kind)
    known[name] = kind
    return name


class Encoder:
    """Encodes one field's value; notes the references and the classes that it meets.

    `refer` gives what a reference is kept as, or raises if the object cannot be referred to.
    """

    def __init__(self, field: str, refer: Callable[[Any], Any]) -> None:
        self._field = field
        self._refer = refer
        self._packer = msgpack.Packer(default=self._special, strict_types=True)

    def encode(self, value: Any) -> bytes:
        """Encode a value.

        Raises
        ------
        UnsupportedFieldError
            If it, or something in it, is of a type that cannot be stored.

        """
        try:
            packed: bytes = self._packer.pack(value)
        except UnsupportedFieldError:
            raise
        except (ValueError, OverflowError, TypeError, RecursionError) as error:
            self._packer = msgpack.Packer(default=self._special, strict_types=True)
            raise self._refused(value, f"cannot be stored: {error}") from error
        return packed

    def _ext(self, code: int, payload: Any) -> msgpack.ExtType:
        packer = msgpack.Packer(default=self._special, strict_types=True)
        return msgpack.ExtType(code, packer.pack(payload))

    def _special(self, value: Any) -> Any:  # noqa: PLR0911 - a table, one line a type
        """Give the extension that a value is kept as."""
        made = _SIMPLE.get(type(value))
        if made is not None:
            code, payload = made
            return self._ext(code, payload(value))
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, np.generic):
            array = np.asarray(value)
            return self._ext(_NUMPY_SCALAR, [_dtype_text(array.dtype), array.tobytes()])
        if isinstance(value, enum.Enum):
            return self._ext(_ENUM, [learn(type(value)), value.name])
        if type(value) is int:
            return self._ext(_INTEGER, str(value))
        if type(value) is defaultdict:
            return self._default(value)
        if isinstance(value, pathlib.PurePath):
            return self._ext(_PATH, str(value))
        if is_named(type(value)):
            return self._ext(_NAMED, [learn(type(value)), _fields_of(value)])
        if hasattr(value, "_engram_reference"):
            return self._ext(_REFERENCE, self._refer(value))
        raise self._refused(value, "cannot be stored")

    def _array(self, value: np.ndarray[Any, Any]) -> Any:
        if isinstance(value, np.ma.MaskedArray) or value.dtype.hasobject:
            raise self._refused(value, f"of dtype {value.dtype} cannot be stored in a container")
        return self._ext(_ARRAY, [_dtype_text(value.dtype), list(value.shape), value.tobytes()])

    def _default(self, value: defaultdict[Any, Any]) -> Any:
        factory = value.default_factory
        name = None if factory is None else getattr(factory, "__name__", "")
        if name is not None and _FACTORIES.get(name) is not factory:
            raise self._refused(value, f"with factory {factory!r} cannot be stored")
        return self._ext(_DEFAULT, [name, dict(value)])

    def _refused(self, value: Any, why: str) -> UnsupportedFieldError:
        kind = type(value)
        return UnsupportedFieldError(
            f"{self._field}: a value of type {kind.__module__}.{kind.__qualname__} {why}. Fields "
            "hold numpy arrays, numbers, strings, bytes, dates, containers of these, dataclasses, "
            "pydantic models and references to active objects"
        )


def _fields_of(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return list(value)
    return {name: getattr(value, name) for name in type(value).model_fields}


def _dtype_text(dtype: np.dtype[Any]) -> Any:
    """Write a dtype as numpy's file format does."""
    return dtype.str if dtype.names is None else repr(np.lib.format.dtype_to_descr(dtype))


def _dtype_of(text: str) -> np.dtype[Any]:
    if not text.startswith("["):
        return np.dtype(text)
    import ast  # noqa: PLC0415 - structured values in containers are rare

    return np.lib.format.descr_to_dtype(ast.literal_eval(text))


def _zone(value: dt.datetime) -> list[Any]:
    """Keep a datetime: ISO text, and the zone's name where it has one (zoneinfo)."""
    return [value.isoformat(), getattr(value.tzinfo, "key", None), value.fold]


_SIMPLE: Final[dict[type, tuple[int, Callable[[Any], Any]]]] = {
    tuple: (_TUPLE, list),
    set: (_SET, lambda value: sorted(value, key=repr)),  # in one order, to be compared
    frozenset: (_FROZENSET, lambda value: sorted(value, key=repr)),
    complex: (_COMPLEX, lambda value: [value.real, value.imag]),
    dt.datetime: (_DATETIME, _zone),
    dt.date: (_DATE, dt.date.isoformat),
    dt.time: (_TIME, dt.time.isoformat),
    dt.timedelta: (_TIMEDELTA, lambda value: [value.days, value.seconds, value.microseconds]),
    decimal.Decimal: (_DECIMAL, str),
    uuid.UUID: (_UUID, lambda value: value.bytes),
    bytearray: (_BYTEARRAY, bytes),
    Counter: (_COUNTER, dict),
    OrderedDict: (_ORDERED, lambda value: [list(pair) for pair in value.items()]),
    deque: (_DEQUE, lambda value: [list(value), value.maxlen]),
    slice: (_SLICE, lambda value: [value.start, value.stop, value.step]),
    range: (_RANGE, lambda value: [value.start, value.stop, value.step]),
}


class Decoder:
    """Decodes one field's value; `refer` gives the object that a reference is of."""

    def __init__(self, field: str, refer: Callable[[Any], Any]) -> None:
        self._field = field
        self._refer = refer
        self._depth = 0

    def decode(self, packed: bytes | memoryview) -> Any:
        """Decode a value.

        Raises
        ------
        CorruptError
            If the bytes are not what an encoder gave.
        ArgumentError
            If a dataclass, model or enumeration in it is not known in this program.

        """
        try:
            return self._unpack(packed)
        except EngramError:
            raise
        except Exception as error:
            raise CorruptError(f"{self._field}: the value does not decode: {error}") from error

    def _unpack(self, packed: bytes | memoryview) -> Any:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise CorruptError(f"{self._field}: the value is nested more than {MOST_NESTED} deep")
        try:
            return msgpack.unpackb(
                packed, ext_hook=self._special, strict_map_key=False, use_list=True
            )
        finally:
            self._depth -= 1

    def _special(self, code: int, data: bytes) -> Any:
        payload = self._unpack(data)
        if code == _REFERENCE:
            return self._refer(payload)
        if code in {_NAMED, _ENUM}:
            return self._named(code, *payload)
        made = _MADE.get(code)
        if made is None:
            raise CorruptError(f"{self._field}: extension type {code} is unknown to this version")
        return made(payload)

    def _named(self, code: int, name: str, payload: Any) -> Any:
        kind = known.get(name)
        if kind is None:
            raise ArgumentError(
                f"{self._field}: this program knows no class {name!r}, which a value is of: import "
                "its module, and mention it in the field's annotation"
            )
        if code == _ENUM:
            return kind[payload]  # type: ignore[index]  # an enumeration
        if isinstance(payload, list):
            return kind(*payload)
        if hasattr(kind, "model_construct"):
            return kind.model_construct(**payload)
        made: Any = object.__new__(kind)
        for name_, value in payload.items():
            object.__setattr__(made, name_, value)
        return made


def _array_of(payload: Any) -> np.ndarray[Any, Any]:
    text, shape, raw = payload
    return np.frombuffer(raw, _dtype_of(text)).reshape(shape).copy()


def _datetime_of(payload: Any) -> dt.datetime:
    text, key, fold = payload
    value = dt.datetime.fromisoformat(text).replace(fold=fold)
    if key is None:
        return value
    import zoneinfo  # noqa: PLC0415 - dates with named zones are rare

    return value.replace(tzinfo=zoneinfo.ZoneInfo(key))


_MADE: Final[dict[int, Callable[[Any], Any]]] = {
    _ARRAY: _array_of,
    _NUMPY_SCALAR: lambda payload: np.frombuffer(payload[1], _dtype_of(payload[0]))[0],
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _COMPLEX: lambda payload: complex(*payload),
    _DATETIME: _datetime_of,
    _DATE: dt.date.fromisoformat,
    _TIME: dt.time.fromisoformat,
    _TIMEDELTA: lambda payload: dt.timedelta(*payload),
    _INTEGER: int,
    _DECIMAL: decimal.Decimal,
    _UUID: lambda payload: uuid.UUID(bytes=payload),
    _BYTEARRAY: bytearray,
    _PATH: pathlib.Path,
    _COUNTER: Counter,
    _ORDERED: OrderedDict,
    _DEFAULT: lambda payload: defaultdict(_FACTORIES.get(payload[0]), payload[1]),
    _DEQUE: lambda payload: deque(payload[0], payload[1]),
    _SLICE: lambda payload: slice(*payload),
    _RANGE: lambda payload: range(*payload),
}


def references(packed: bytes) -> list[Any]:
    """Give the references in an encoded value, without making anything of the rest."""
    found: list[Any] = []
    depth = 0

    def special(code: int, data: bytes) -> None:
        nonlocal depth
        depth += 1
        if depth > MOST_NESTED:
            raise CorruptError(f"a value is nested more than {MOST_NESTED} deep")
        payload = unpack(data)
        depth -= 1
        if code == _REFERENCE:
            found.append(payload if isinstance(payload, int) else tuple(payload))

    def unpack(data: bytes) -> Any:
        return msgpack.unpackb(data, ext_hook=special, strict_map_key=False)

    try:
        unpack(packed)
    except (ValueError, TypeError) as error:
        raise CorruptError(f"a value does not decode: {error}") from error
    return found


def mentioned(hint: Any) -> Iterable[type]:
    """Give the classes that an annotation mentions, at any depth."""
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        yield hint
    for part in getattr(hint, "__args__", ()):
        yield from mentioned(part)
