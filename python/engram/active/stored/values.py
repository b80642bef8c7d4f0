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
import typing
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import numpy as np

from engram.active.errors import UnsupportedFieldError
from engram.errors import ArgumentError, CorruptError, EngramError
from engram.extras import Library

msgpack: Any = Library("msgpack", "active", "storing active objects")

MOST_NESTED: Final = 100
"""How deep containers may be nested."""

_SHALLOW: Final = 8
"""How deep tuples, sets and the like may be nested with lists as deep as they come in them."""

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
    """Give the name that a class's module has when it is imported, also if it is being run.

    In a process that multiprocessing has spawned, the script is called `__mp_main__`.
    """
    module = kind.__module__
    if module not in {"__main__", "__mp_main__"}:
        return module
    main = sys.modules.get(module)
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
        self._depth = 0
        self._packer = msgpack.Packer(default=self._special, strict_types=True)

    def encode(self, value: Any) -> bytes:
        """Encode a value.

        Raises
        ------
        UnsupportedFieldError
            If it, or something in it, is of a type that cannot be stored.

        """
        self._depth = 0
        try:
            if type(value) is bytearray:  # which msgpack takes for bytes
                value = self._ext(_BYTEARRAY, bytes(value))
            # In a list, since what is read may be nested one less than what is packed.
            packed: bytes = self._packer.pack([value])[1:]
        except UnsupportedFieldError:
            raise
        except (ValueError, OverflowError, TypeError, RecursionError) as error:
            self._packer = msgpack.Packer(default=self._special, strict_types=True)
            raise self._refused(value, f"cannot be stored: {error}") from error
        return packed

    def _ext(self, code: int, payload: Any) -> Any:
        self._depth += 1
        if self._depth >= MOST_NESTED:
            raise self._refused(payload, f"cannot be stored: it is nested over {MOST_NESTED} deep")
        if self._depth > _SHALLOW and _is_deep(payload):  # the packer would use up the stack
            raise self._refused(payload, f"cannot be stored: it is nested over {MOST_NESTED} deep")
        packer = msgpack.Packer(default=self._special, strict_types=True)
        made = msgpack.ExtType(code, packer.pack([payload])[1:])
        self._depth -= 1
        return made

    def _special(self, value: Any) -> Any:  # noqa: PLR0911 - a table, one line a type
        """Give the extension that a value is kept as."""
        made = _SIMPLE.get(type(value))
        if made is not None:
            code, payload = made
            return self._ext(code, payload(value))
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, np.generic):
            return self._ext(_NUMPY_SCALAR, _scalar(value))
        if isinstance(value, enum.Enum):
            return self._ext(_ENUM, [learn(type(value)), *_member(value)])
        if type(value) is int:
            return self._ext(_INTEGER, hex(value))  # of any length, other than decimals
        if type(value) is defaultdict:
            return self._default(value)
        if isinstance(value, pathlib.PurePath):
            return self._ext(_PATH, _path(value))
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


def referred_anew(packed: bytes, refer: Callable[[Any], Any]) -> bytes:
    """Give an encoded value with other references in it: `refer` is asked for each of them.

    Raises
    ------
    CorruptError
        If the bytes are not what an encoder gave.

    """

    def special(code: int, data: bytes) -> Any:
        inner = unpacked(data)
        return msgpack.ExtType(code, repacked(refer(inner) if code == _REFERENCE else inner))

    def unpacked(data: bytes) -> Any:
        return msgpack.unpackb(data, ext_hook=special, strict_map_key=False, use_list=True)

    def repacked(value: Any) -> bytes:
        packer = msgpack.Packer(strict_types=True)
        return bytes(packer.pack([value])[1:])

    try:
        return repacked(unpacked(packed))
    except EngramError:
        raise
    except Exception as error:
        raise CorruptError(f"a value does not decode: {error}") from error


def _is_deep(value: Any) -> bool:
    """Tell whether lists and dicts are nested more than `MOST_NESTED` deep."""
    level = [value]
    for _ in range(MOST_NESTED):
        inner: list[Any] = []
        for each in level:
            if type(each) is list:
                inner += each
            elif type(each) is dict:
                inner += each.values()
        if not inner:
            return False
        level = inner
    return True


def _fields_of(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = (f.name for f in dataclasses.fields(value))
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    if isinstance(value, tuple):
        return list(value)
    # A model's fields, and the extra ones that it allows; its `__iter__` may be another one.
    own = {name: each for name, each in value.__dict__.items() if name in type(value).model_fields}
    return own | (getattr(value, "__pydantic_extra__", None) or {})


def _scalar(value: np.generic) -> list[Any]:
    """Keep a scalar: its dtype and its bytes. A text is kept as it is: an array cuts off NULs."""
    if isinstance(value, np.str_):
        return ["str_", str(value)]
    if isinstance(value, np.bytes_):
        return ["bytes_", bytes(value)]
    array = np.asarray(value)
    return [_dtype_text(array.dtype), array.tobytes()]


def _path(value: pathlib.PurePath) -> Any:
    """Keep a path: one of this system as its text, a pure one with its class."""
    return str(value) if isinstance(value, pathlib.Path) else [type(value).__name__, str(value)]


def _member(value: enum.Enum) -> list[Any]:
    """Keep a member by its name; one of several flags, which has none, by its number."""
    if value.name in type(value).__members__:
        return [value.name]
    return [None, value.value]


def _dtype_text(dtype: np.dtype[Any]) -> Any:
    """Write a dtype: its text; of a structured one all that numpy makes it of again."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_dtype_text(base), list(shape)]
    if dtype.names is None or dtype.fields is None:
        return dtype.str
    fields: list[Any] = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [_dtype_text(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "titles": [field[2] if len(field) > 2 else None for field in fields],  # noqa: PLR2004
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def _dtype_of(text: Any) -> np.dtype[Any]:
    if isinstance(text, str):
        dtype = np.dtype(text)
    elif isinstance(text, list):
        base, shape = text
        dtype = np.dtype((_dtype_of(base), tuple(shape)))
    else:
        parts: Any = {name: text[name] for name in ("names", "offsets", "titles", "itemsize")}
        if all(title is None for title in parts["titles"]):
            del parts["titles"]
        parts["formats"] = [_dtype_of(each) for each in text["formats"]]
        dtype = np.dtype(parts, align=bool(text["aligned"]))
    if dtype.hasobject:
        raise CorruptError(f"an array in a value is of dtype {dtype}, which none is stored with")
    return dtype


def _zone(value: dt.datetime | dt.time) -> list[Any]:
    """Keep a date's or a day's time: ISO text, and the zone's name if it has one (zoneinfo)."""
    return [value.isoformat(), getattr(value.tzinfo, "key", None), value.fold]


_SIMPLE: Final[dict[type, tuple[int, Callable[[Any], Any]]]] = {
    tuple: (_TUPLE, list),
    set: (_SET, lambda value: sorted(value, key=repr)),  # in one order, to be compared
    frozenset: (_FROZENSET, lambda value: sorted(value, key=repr)),
    complex: (_COMPLEX, lambda value: [value.real, value.imag]),
    dt.datetime: (_DATETIME, _zone),
    dt.date: (_DATE, dt.date.isoformat),
    dt.time: (_TIME, _zone),
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
        except EngramError:  # also of an object that a reference leads to
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
            _check_reference(payload)
            return self._refer(payload)
        if code in {_NAMED, _ENUM}:
            return self._named(code, *payload)
        made = _MADE.get(code)
        if made is None:
            raise CorruptError(f"{self._field}: extension type {code} is unknown to this version")
        wanted, make = made
        if not isinstance(payload, wanted):
            raise CorruptError(
                f"{self._field}: extension type {code} does not hold {payload!r:.40}"
            )
        return make(payload)

    def _named(self, code: int, name: str, payload: Any, *more: Any) -> Any:
        kind: Any = known.get(name)
        if kind is None:
            raise ArgumentError(
                f"{self._field}: this program knows no class {name!r}, which a value is of: import "
                "its module, and mention it in the field's annotation"
            )
        if issubclass(kind, enum.Enum) != (code == _ENUM):
            raise CorruptError(f"{self._field}: the value is none of class {name!r}")
        if code == _ENUM:
            return kind(*more) if payload is None else kind[payload]
        if isinstance(payload, list):
            return tuple.__new__(kind, payload)  # a named one
        if hasattr(kind, "model_construct"):
            return _model_of(kind, payload)
        made: Any = kind.__new__(kind)
        for name_, value in payload.items():
            object.__setattr__(made, name_, value)
        return made


def _model_of(kind: Any, payload: dict[str, Any]) -> Any:
    """Make a pydantic model of its fields, by their names, not their aliases."""
    nothing = (None,) if getattr(kind, "__pydantic_root_model__", False) else ()
    made = kind.model_construct(*nothing)
    fields = kind.model_fields
    made.__dict__.clear()
    made.__dict__.update({name: value for name, value in payload.items() if name in fields})
    made.model_fields_set.clear()
    made.model_fields_set.update(payload)
    extra = {name: value for name, value in payload.items() if name not in fields}
    if extra:
        object.__setattr__(made, "__pydantic_extra__", extra)
    for name, field in fields.items():
        if name not in payload and not field.is_required():  # newer than the value
            made.__dict__[name] = field.get_default(call_default_factory=True)
    return made


def _check_reference(payload: Any) -> None:
    if type(payload) is int and payload >= 0:
        return
    kinds = [type(part) for part in payload] if isinstance(payload, list) else []
    if kinds != [str, str, str, int]:
        raise CorruptError(f"{payload!r:.60} is no reference to an active object")


def _scalar_of(payload: Any) -> Any:
    text, raw = payload
    if text == "str_":
        return np.str_(raw)
    if text == "bytes_":
        return np.bytes_(raw)
    return _filled((), text, raw)[()]


def _path_of(payload: Any) -> pathlib.PurePath:
    if isinstance(payload, str):
        return pathlib.Path(payload)
    return _PATHS[payload[0]](payload[1])


_PATHS: Final = {made.__name__: made for made in (pathlib.PurePosixPath, pathlib.PureWindowsPath)}


def _listed(payload: Any) -> list[Any]:
    if type(payload) is not list:
        raise CorruptError(f"{payload!r:.60} is no list")
    return payload


def _time_of(payload: Any) -> Any:
    text, key, fold = payload
    return _in_zone(dt.time.fromisoformat(text).replace(fold=fold), key)


def _array_of(payload: Any) -> np.ndarray[Any, Any]:
    text, shape, raw = payload
    return _filled(tuple(shape), text, raw)


def _filled(shape: tuple[int, ...], text: Any, raw: bytes) -> np.ndarray[Any, Any]:
    """Make an array of a dtype and bytes, also of items that have none."""
    made: np.ndarray[Any, Any] = np.ndarray(shape, _dtype_of(text), bytearray(raw))
    if made.nbytes != len(raw):
        raise CorruptError(f"an array of {made.nbytes} bytes has {len(raw)} in a value")
    return made


def _datetime_of(payload: Any) -> Any:
    text, key, fold = payload
    return _in_zone(dt.datetime.fromisoformat(text).replace(fold=fold), key)


def _in_zone(value: Any, key: str | None) -> Any:
    """Put a time or a date into the named zone that it was of, if it was of one."""
    if key is None:
        return value
    import zoneinfo  # noqa: PLC0415 - named zones are rare

    return value.replace(tzinfo=zoneinfo.ZoneInfo(key))


_MADE: Final[dict[int, tuple[Any, Callable[[Any], Any]]]] = {
    _ARRAY: (list, _array_of),
    _NUMPY_SCALAR: (list, _scalar_of),
    _TUPLE: (list, tuple),
    _SET: (list, set),
    _FROZENSET: (list, frozenset),
    _COMPLEX: (list, lambda payload: complex(*payload)),
    _DATETIME: (list, _datetime_of),
    _DATE: (str, dt.date.fromisoformat),
    _TIME: (list, _time_of),
    _TIMEDELTA: (list, lambda payload: dt.timedelta(*payload)),
    _INTEGER: (str, lambda payload: int(payload, 0)),
    _DECIMAL: (str, decimal.Decimal),
    _UUID: (bytes, lambda payload: uuid.UUID(bytes=payload)),
    _BYTEARRAY: (bytes, bytearray),
    _PATH: (str | list, _path_of),
    _COUNTER: (dict, Counter),
    _ORDERED: (list, OrderedDict),
    _DEFAULT: (list, lambda payload: defaultdict(_FACTORIES.get(payload[0]), payload[1])),
    _DEQUE: (list, lambda payload: deque(_listed(payload[0]), payload[1])),
    _SLICE: (list, lambda payload: slice(*payload)),
    _RANGE: (list, lambda payload: range(*payload)),
}
"""What the payload of each extension type is, and what makes a value of it."""


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
    """Give the classes that an annotation mentions, and those that their fields mention."""
    found: dict[Any, None] = {}
    waiting = [hint]
    while waiting:
        part = waiting.pop()
        waiting += getattr(part, "__args__", ())
        if not isinstance(part, type) or isinstance(part, types.GenericAlias) or part in found:
            continue
        found[part] = None
        if is_named(part) and not issubclass(part, enum.Enum):
            # A name of TYPE_CHECKING may be in them, or any expression of theirs.
            with suppress(Exception):
                waiting += typing.get_type_hints(part).values()
    yield from found
