"""Conditions on objects as Python expressions: `engram.attr("temperature") < -15`.

An expression is written down as it is made: `str(expression)` is the query language, which one
parser reads, in the engine. So an expression can do what the language can, and nothing else.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NoReturn

import numpy as np

from engram.errors import ArgumentError
from engram.plain import printable

BUILTINS = (
    *("name", "path", "group", "owner", "dtype", "shape", "ndim", "size", "nbytes", "scope"),
    *("created", "modified"),
)
"""The fields that every object has."""

_WORDS = {
    *("and", "or", "not", "between", "in", "contains", "startswith", "endswith", "like", "exists"),
    *("under", "order", "by", "limit", "asc", "desc", "true", "false"),
}
"""What the language keeps for itself: an attribute of such a name stands in backquotes."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}

_INTEGERS = range(-(2**63), 2**64)

_JOIN = (
    "join expressions with & and |, negate them with ~ (not with and, or, not), each in "
    'parentheses: (engram.attr("a") < 5) & ~(engram.attr("b") == 1); for 0 < x < 5 write '
    "(x > 0) & (x < 5), or x.between(0, 5)"
)


class Expression:
    """A condition on an object, for `Group.query`: what comparing a `Field` gives.

    Expressions are joined with `&` and `|` and negated with `~`, each comparison in parentheses:
    `(engram.attr("a") < 5) & ~engram.attr("b").exists()`. `str(expression)` is the same in the
    query language. Two expressions are equal if they are written alike.

    Raises
    ------
    ArgumentError
        Where its truth is asked, as `and`, `or`, `not`, `if` and `0 < x < 5` do.

    """

    __slots__ = ("_joint", "_parts")

    def __init__(self, joint: Literal["", "and", "or", "not"], parts: tuple[str, ...]) -> None:
        self._joint = joint
        self._parts = parts

    def __str__(self) -> str:
        if self._joint == "not":
            return f"not {self._parts[0]}"
        return f" {self._joint} ".join(self._parts)

    def __repr__(self) -> str:
        return f"<engram.Expression {printable(str(self))}>"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Expression) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __bool__(self) -> NoReturn:
        raise ArgumentError(f"the expression {self} is neither true nor false by itself: {_JOIN}")

    def __and__(self, other: "Expression") -> "Expression":
        return _joined("and", self, other) if isinstance(other, Expression) else NotImplemented

    def __or__(self, other: "Expression") -> "Expression":
        return _joined("or", self, other) if isinstance(other, Expression) else NotImplemented

    def __invert__(self) -> "Expression":
        text = f"({self})" if self._joint in {"and", "or"} else str(self)
        return Expression("not", (text,))


def _joined(joint: Literal["and", "or"], left: Expression, right: Expression) -> Expression:
    parts: tuple[str, ...] = ()
    for side in (left, right):
        if side._joint == joint:
            parts += side._parts
        else:
            parts += (f"({side})" if side._joint in {"and", "or"} else str(side),)
    return Expression(joint, parts)


class Field:
    """What can be compared: an attribute, a group's attribute or a built-in field of an object.

    `==`, `!=`, `<`, `<=`, `>` and `>=` with a value give an `Expression`, as the methods do. A
    value is a number, a `str`, bytes (UTF-8), a `bool`, a `datetime64`, `datetime` or `date` (UTC
    unless it says otherwise), or numpy's scalar of one. A `datetime64` is an instant, whatever its
    unit: `datetime64("2017")` is when 2017 begins. A `date` is the whole day, and a `str` may name
    a day, a month or a year. A comparison is false for an object that lacks the field, and where
    the types are unlike.

    Raises
    ------
    ArgumentError
        If a value cannot be compared with: None, NaN, NaT, an array, an integer beyond 64 bits.

    """

    __slots__ = ("_text",)

    __array_ufunc__ = None  # numpy's scalars leave a comparison to the field

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<engram.Field {printable(self._text)}>"

    def __hash__(self) -> int:
        return hash((Field, self._text))

    def __eq__(self, value: object) -> Expression:  # type: ignore[override]  # a condition
        return self._test("=", value)

    def __ne__(self, value: object) -> Expression:  # type: ignore[override]  # a condition
        return self._test("!=", value)

    def __lt__(self, value: object) -> Expression:
        return self._test("<", value)

    def __le__(self, value: object) -> Expression:
        return self._test("<=", value)

    def __gt__(self, value: object) -> Expression:
        return self._test(">", value)

    def __ge__(self, value: object) -> Expression:
        return self._test(">=", value)

    def __bool__(self) -> NoReturn:
        raise ArgumentError(
            f"the field {self} is neither true nor false by itself: compare it, or ask whether it "
            f"is there by .exists(); {_JOIN}"
        )

    def _lone(self, _other: object = None) -> NoReturn:
        raise ArgumentError(
            f"the field {self} cannot be joined by itself: compare it first, in parentheses, as & "
            f"and | bind tighter than a comparison; {_JOIN}"
        )

    __and__ = __rand__ = __or__ = __ror__ = __invert__ = _lone

    def __getitem__(self, part: str | int | np.integer[Any]) -> "Field":
        """Give a field of an attribute whose dtype is a structure, or a field of that.

        Parameters
        ----------
        part
            The field's name; in a list of a tree, an item's place, from 0 on.

        """
        if self._text.startswith("@"):
            raise ArgumentError(f"{self} has no fields: those of attributes have")
        whole = "`group`" if self._text == "group" else self._text  # `group.` begins a group's
        return Field(f"{whole}.{_part(part)}")

    __iter__ = None  # of what has items by name

    def isin(self, values: "Iterable[Any] | Param") -> Expression:
        """Equal to any of these.

        Parameters
        ----------
        values
            Any number of values: a list, a set, an array of shape (n,); or a `param` for a list.

        """
        return Expression("", (f"{self} in {_several('isin', values)}",))

    def not_in(self, values: "Iterable[Any] | Param") -> Expression:
        """Be there, and equal to none of these.

        Parameters
        ----------
        values
            Any number of values: a list, a set, an array of shape (n,); or a `param` for a list.

        """
        return Expression("", (f"{self} not in {_several('not_in', values)}",))

    def between(self, low: Any, high: Any) -> Expression:
        """From `low` to `high`, both included."""
        return Expression("", (f"{self} between {_value(low)} and {_value(high)}",))

    def not_between(self, low: Any, high: Any) -> Expression:
        """Be there, and below `low` or above `high`, or of another type than both."""
        return Expression("", (f"{self} not between {_value(low)} and {_value(high)}",))

    def contains(self, value: Any) -> Expression:
        """Hold this as a part of a string, or as an item of an array; of a list, each of it."""
        if isinstance(value, list | tuple | set | frozenset):
            return Expression("", (f"{self} contains [{_list(value)[1:-1]}]",))
        return self._test("contains", value)

    def startswith(self, text: "str | bytes | Param") -> Expression:
        """Start with this text."""
        return self._test("startswith", _only_text("startswith", text))

    def endswith(self, text: "str | bytes | Param") -> Expression:
        """End with this text."""
        return self._test("endswith", _only_text("endswith", text))

    def like(self, pattern: "str | bytes | Param") -> Expression:
        """Match a pattern: `%` is any run of characters, `_` any one, a backslash quotes one."""
        return self._test("like", _only_text("like", pattern))

    def not_like(self, pattern: "str | bytes | Param") -> Expression:
        """Be there, and match no such pattern."""
        return self._test("not like", _only_text("not_like", pattern))

    def exists(self) -> Expression:
        """Be there at all, whatever the value."""
        return Expression("", (f"exists({self})",))

    def is_null(self) -> Expression:
        """Not be there."""
        return Expression("", (f"{self} is null",))

    def count(self) -> "Measure":
        """Count the objects that have it."""
        return Measure(f"count({self})")

    def min(self) -> "Measure":
        """Take the least value."""
        return Measure(f"min({self})")

    def max(self) -> "Measure":
        """Take the greatest value."""
        return Measure(f"max({self})")

    def mean(self) -> "Measure":
        """Take the mean of numbers."""
        return Measure(f"mean({self})")

    def sum(self) -> "Measure":
        """Take the sum of numbers."""
        return Measure(f"sum({self})")

    def distinct(self) -> "Measure":
        """Count the different values."""
        return Measure(f"distinct({self})")

    def _test(self, operator: str, value: object) -> Expression:
        return Expression("", (f"{self} {operator} {_value(value)}",))


class Measure:
    """A figure of objects, for `Group.aggregate`: what `Field.mean` and the others give."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<engram.Measure {printable(self._text)}>"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Measure) else NotImplemented

    def __hash__(self) -> int:
        return hash((Measure, self._text))


class Param:
    """A value that is given later, as `params=`: it stands in an expression as one does."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return f":{self._name}"

    def __repr__(self) -> str:
        return f"<engram.Param {self}>"


def count() -> Measure:
    """Make the figure of how many objects there are, for `Group.aggregate`."""
    return Measure("count()")


def param(name: str) -> Param:
    """Make a value that is given later, as `params=`.

    ::

        pool.query(engram.attr("temperature") < engram.param("low"), params={"low": -15})

    Parameters
    ----------
    name
        Letters, digits and _, and no digit first.

    Raises
    ------
    ArgumentError
        If it is no name.

    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(
            f'a parameter is named by letters, digits and _, not by {name!r}: param("low")'
        )
    return Param(name)


def attr(key: str) -> Field:
    """Make a field of an object's own attribute.

    Parameters
    ----------
    key
        The attribute's key, as in `array.attrs[key]`.

    Raises
    ------
    ArgumentError
        If it is no key.

    """
    return Field(_key("attr", key))


def group_attr(key: str) -> Field:
    """Make a field of the attribute of the nearest group above an object that has it.

    Parameters
    ----------
    key
        The attribute's key, as in `group.attrs[key]`.

    Raises
    ------
    ArgumentError
        If it is no key.

    """
    return Field(f"group.{_key('group_attr', key)}")


def field(name: str) -> Field:
    """Make a field of what every object has.

    Parameters
    ----------
    name
        One of name, path, group, owner, dtype, shape, ndim, size, nbytes, scope, created,
        modified; with a leading @ as in the query language, or without.

    Raises
    ------
    ArgumentError
        If there is no such field.

    """
    plain = name.removeprefix("@") if isinstance(name, str) else ""
    if plain in BUILTINS:
        return Field(f"@{plain}")
    import difflib  # noqa: PLC0415 - for errors alone

    near = difflib.get_close_matches(plain, BUILTINS, 1, 0.5)
    meant = f"did you mean {near[0]!r}? " if near else ""
    raise ArgumentError(
        f"there is no built-in field {name!r}: {meant}There are {', '.join(BUILTINS)}; "
        "an attribute is engram.attr(key)"
    )


def under(path: str) -> Expression:
    """Lie in the group of this path, at any depth.

    Parameters
    ----------
    path
        Relative to the group that is asked; with a leading /, to the namespace's root.

    Raises
    ------
    ArgumentError
        If it is no path.

    """
    return Expression("", (f"under({_quoted(_only_text('under', path))})",))


def _key(what: str, key: object) -> str:
    """Write an attribute's key, in backquotes unless it is a word that can stand without."""
    if not isinstance(key, str) or not key:
        raise ArgumentError(f'{what} takes the key of an attribute, not {key!r}: {what}("units")')
    key = _unicode(key)
    first = key[0] == "_" or key[0].isalpha()
    rest = all(c == "_" or c.isalnum() for c in key)
    if first and rest and key.lower() not in _WORDS:
        return key
    return "`" + key.replace("`", "``") + "`"


def _part(part: object) -> str:
    """Write the name of a field, or an item's place in a list."""
    if isinstance(part, int | np.integer) and not isinstance(part, bool):
        if part < 0:
            raise ArgumentError(
                f"{part} is no place in a list: places are counted from its beginning, from 0 on"
            )
        part = str(int(part))
    if not isinstance(part, str):
        raise ArgumentError(
            f'a field is named by a str, or by its place in a list, not by {part!r}: ["units"], [0]'
        )
    return _key("a field", part)


def _only_text(what: str, text: object) -> Any:
    if isinstance(text, Param):
        return text
    if isinstance(text, bytes):
        return _decoded(text)
    if isinstance(text, str):
        return str.__str__(text)
    raise ArgumentError(f"{what} takes a str, not {text!r}")


def _several(what: str, values: "Iterable[Any] | Param") -> str:
    """Write values, or the parameter that stands for them, as what follows `in`."""
    if isinstance(values, Param):
        return str(values)
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ArgumentError(f"{what} takes several values, not {values!r}: give a list")
    return _list(values)


def _list(values: Iterable[Any]) -> str:
    """Write values as a list of the language."""
    texts = [_value(value) for value in values]
    if isinstance(values, set | frozenset):
        texts.sort()
    return f"({', '.join(texts)})"


def given(params: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Give parameters as the natives take them: numbers, text, and lists of these."""
    if not isinstance(params, Mapping):
        raise ArgumentError(f'params {params!r} is no mapping: give a dict, {{"low": -15}}')
    return [(_param_name(name), _param(name, value)) for name, value in params.items()]


def _param_name(name: object) -> str:
    if isinstance(name, str) and name.removeprefix(":").isidentifier():
        return name.removeprefix(":")
    raise ArgumentError(f"a parameter is named by letters, digits and _, not by {name!r}")


def _param(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = list(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(name, item) for item in value]
    return _plain(name, value)


def _plain(name: str, value: Any) -> str | int | float:
    """Give a value as a number or text, once it has been found to be one."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, Param):
        raise ArgumentError(f"parameter {name}: {value!r} stands for a value itself")
    try:
        _value(value)
    except ArgumentError as error:
        raise ArgumentError(f"parameter {name}: {error}") from None
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, np.datetime64 | dt.date):
        return _time(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool | np.bool_):
        return int(value)
    return int(value) if isinstance(value, int | np.integer) else float(value)


def _value(value: object) -> str:
    """Write a value in the query language."""
    if isinstance(value, Param):
        return str(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bytes):
        value = _decoded(value)
    match value:
        case str():
            return _quoted(str.__str__(value))
        case bool() | np.bool_():
            return "true" if value else "false"
        case np.datetime64() | dt.date():
            return _quoted(_time(value))
        case np.timedelta64():
            pass
        case int() | np.integer():
            return _integer(int(value))
        case float() | np.floating():
            return _float(float(value))
    raise ArgumentError(_refused(value))


def _refused(value: object) -> str:
    """Say why a value cannot stand in a query, and what to do."""
    if value is None:
        return (
            "nothing compares with None: ask whether there is a value by .exists() or ~….exists()"
        )
    if isinstance(value, Field | Expression):
        return f"a field is compared with values alone, not with {value!r}"
    if isinstance(value, np.ndarray | list | tuple | set | frozenset):
        return (
            f"{value!r} is several values: .isin(…) is equal to any of them, .contains(…) an array "
            "that holds one"
        )
    kind = type(value).__name__
    return f"{value!r} ({kind}) cannot be compared with: give a number, text, a bool or a time"


def _integer(value: int) -> str:
    if value not in _INTEGERS:
        raise ArgumentError(f"{value} is beyond the integers of 64 bits: give a float")
    return str(value)


def _float(value: float) -> str:
    if value != value:  # noqa: PLR0124 - what NaN is
        raise ArgumentError("NaN is equal to nothing: no comparison with it is ever true")
    return repr(value)


def _time(value: np.datetime64 | dt.date) -> str:
    """Write a time for a comparison: a `datetime64` is an instant, and only a `date` a day."""
    text = _instant(value)
    return text if isinstance(value, dt.date) or "T" in text else f"{text}T00"


def _instant(value: np.datetime64 | dt.date) -> str:
    """Write an instant as the language reads it; without its time of day if that is midnight."""
    if value != value:  # noqa: PLR0124 - what NaT is
        raise ArgumentError("NaT is equal to nothing: no comparison with it is ever true")
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        try:
            value = value.astimezone(dt.UTC)
        except OverflowError:
            value = value.replace(tzinfo=None)
    if isinstance(value, dt.date):
        return value.isoformat()
    text = str(value)
    sign = "-" if text.startswith("-") else ""
    year, _, rest = text.removeprefix(sign).partition("-")
    month, _, day = rest.partition("-")
    return f"{sign}{year.zfill(4)}-{month or '01'}-{day or '01'}"


def text_of(value: "bytes | np.datetime64 | dt.date") -> str:
    """Give bytes or an instant as the text that it is beside in queries."""
    return _decoded(value) if isinstance(value, bytes) else _instant(value)


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ArgumentError(
            f"{value!r} is no UTF-8, and queries compare Unicode: decode it first"
        ) from None


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{text!r} is no Unicode text: it has half a surrogate pair") from None
    return text


def _quoted(text: str) -> str:
    """Write text in quotes."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(c) for c in _unicode(text)) + '"'


def _escaped(c: str) -> str:
    if c in _ESCAPES:
        return _ESCAPES[c]
    return c if c.isprintable() else f"\\u{{{ord(c):x}}}"
