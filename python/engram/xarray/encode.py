"""Variables as they are stored: encoded by xarray as CF has it, with the few forms of the pool.

Texts keep the form that they have: of a fixed width as numpy has it, else of variable length. Only
where an encoding asks for characters ("S1"), and for single bytes, they get a dimension more, as in
netCDF, by which xarray knows them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.coding.strings import (
    CharacterArrayCoder,
    EncodedStringCoder,
    check_vlen_dtype,
    ensure_fixed_length_bytes,
)
from xarray.conventions import decode_cf_variables

from engram.errors import ArgumentError
from engram.formats.names import key_problem, name_problem
from engram.formats.text import string_dtype
from engram.time_units import TimeUnits
from engram.xarray import encoding
from engram.xarray.plan import is_lazy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xarray import Dataset, Variable

_TEXTS = "OUT"
_OF_NUMPY = {"standard", "gregorian", "proleptic_gregorian"}
"""Calendars in which numpy counts days."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A variable as it is stored.

    Attributes
    ----------
    dims
        Its dimensions.
    value
        Its values: numpy's, or lazy ones.
    attrs
        Its attributes.
    layout
        How it lies: its chunks and codec.
    origin
        What is kept for exports.

    """

    dims: tuple[str, ...]
    value: Any
    attrs: dict[str, Any]
    layout: dict[str, Any]
    origin: bytes

    def said(self) -> dict[str, Any]:
        """Return what `new_member` is told of it."""
        named = {"dims": self.dims} if self.dims else {}
        return {"attrs": self.attrs, "origin": self.origin, **named, **self.layout}


def variable(name: str, given: Variable) -> Variable:
    """Encode texts and bytes of a variable that is encoded as CF has it."""
    wants_characters = given.encoding.get("dtype") == "S1"
    found = EncodedStringCoder(allows_unicode=True).encode(given, name=name)
    found = ensure_fixed_length_bytes(found)
    if found.dtype.kind == "S" and given.encoding.get("dtype") is str:
        found = found.copy(data=np.strings.decode(np.asarray(found.data), "utf-8"))
    if found.dtype.kind == "S" and (wants_characters or found.dtype.itemsize == 1):
        found = CharacterArrayCoder().encode(found, name=name)
    return found


def stored(name: str, encoded: Variable) -> Stored:
    """Return how a variable is stored.

    Raises
    ------
    ArgumentError
        If its encoding does not fit it.
    InvalidNameError
        If it has a name that nothing here can have.

    """
    check_name(name, "variable")
    for dim in encoded.dims:
        if not isinstance(dim, str):
            raise ArgumentError(f"the dimension {dim!r} of {name!r} is no str: rename it first")
        check_name(dim, "dimension")
    value = encoded.data
    if check_vlen_dtype(value.dtype) is str:
        value = np.asarray(value).astype(string_dtype())
    layout = encoding.layout(name, encoded.encoding, value.shape, value.dtype)
    kept = encoding.kept_of(encoded.encoding, value.dtype)
    attrs = {str(n): attribute(n, a, name) for n, a in encoded.attrs.items()}
    return Stored(tuple(map(str, encoded.dims)), value, attrs, layout, kept)


def check_name(name: str, what: str) -> None:
    """Refuse what cannot be a name in a pool.

    Raises
    ------
    ArgumentError
        If it cannot.

    """
    why = name_problem(name) if what == "variable" else key_problem(name)
    if "/" in name:
        raise ArgumentError(
            f"Forward slashes '/' are not allowed in the name of a {what}: {name!r} would be one "
            "in a group. Rename it first"
        )
    if why is not None:
        raise ArgumentError(f"the {what} {name!r} cannot be stored: {why}. Rename it first")


def attribute(key: Any, value: Any, owner: str) -> Any:
    """Return an attribute's value, or say which it is that cannot be stored."""
    if not isinstance(key, str):
        raise ArgumentError(f"the attribute {key!r} of {owner!r} is no str: rename it")
    if value is None or isinstance(value, dict):
        raise ArgumentError(
            f"the attribute {key!r} of {owner!r} is {value!r}, which no attribute can be: give a "
            "number, a text, bytes, or a sequence of such"
        )
    return value


def check_variables(dataset: Dataset) -> None:
    """Refuse names of variables that are no text, and dtypes that are not numpy's.

    Raises
    ------
    TypeError, ValueError
        As xarray does for other stores.

    """
    for name, one in dataset.variables.items():
        if not isinstance(one.dtype, np.dtype):
            raise ArgumentError(
                f"the variable {name!r} is of dtype {one.dtype}, which only pandas has: convert it,"
                " to times without a zone, texts or numbers"
            )
        if name is not None and not isinstance(name, str):
            raise TypeError(
                f"Invalid name {name!r} of a variable: it must be a string or None, so rename it"
            )
        if name == "":
            raise ArgumentError(
                f"Invalid name {name!r} of a variable: its string must be length 1 or more"
            )


def as_stored(
    variables: Mapping[str, Variable], there: Mapping[str, Variable]
) -> dict[str, Variable]:
    """Give variables the encodings of those that are there; refuse what these cannot take.

    Raises
    ------
    ArgumentError
        If one has another dtype, or other dimensions.

    """
    raw = {name: there[name].copy(deep=False) for name in variables}
    known, _, _ = decode_cf_variables(raw, {})
    found: dict[str, Variable] = {}
    for name, given in variables.items():
        old = known[name]
        if set(given.dims) != set(old.dims):
            raise ArgumentError(
                f"{name!r} has the dimensions {given.dims}, and {old.dims} in the pool: rename or "
                "transpose it"
            )
        given = given.transpose(*old.dims)  # noqa: PLW2901 - the same variable
        is_packed = old.dtype.kind == "f" and there[name].dtype.kind in "iu"
        if not _same_kind(given.dtype, old.dtype, is_packed=is_packed):
            raise ArgumentError(
                f"{name!r} is of dtype {given.dtype}, and of {old.dtype} in the pool: convert it "
                f"with .astype({str(old.dtype)!r}), or replace the variable with mode 'w'"
            )
        given = given.copy(deep=False)  # noqa: PLW2901 - as above
        given.encoding = dict(old.encoding)
        if there[name].dtype.kind in "US" and given.encoding.get("dtype") != "S1":
            given.encoding.pop("dtype", None)  # by which xarray would cut longer texts
        found[name] = given
    return found


def _same_kind(given: np.dtype[Any], there: np.dtype[Any], *, is_packed: bool) -> bool:
    """Whether values of one dtype can be added to those of another as what they are."""
    kinds = {given.kind, there.kind}
    if kinds <= set(_TEXTS) or kinds in ({"S"}, {"M"}, {"m"}):
        return True
    if is_packed and given.kind == "f":
        return True
    if kinds == {"O", "M"}:  # times of a calendar that numpy lacks
        return True
    return given.newbyteorder("=") == there.newbyteorder("=")


def fitted(name: str, given: Variable, encoded: Variable, there: Variable) -> Any:
    """Return encoded values in the dtype that is stored in the variable that is there.

    Raises
    ------
    ArgumentError
        If texts are longer than those there can be, or values cannot be told as those there are.

    """
    _check_times(name, given, encoded, there)
    value, dtype = encoded.data, there._data.array.stored_dtype  # type: ignore[union-attr]  # ours
    if dtype.kind in "TUS":
        return _fitted_texts(name, value, dtype)
    if not np.can_cast(value.dtype, dtype, "equiv"):
        raise ArgumentError(
            f"{name!r} would be stored as {value.dtype}, and is {dtype} in the pool: give values "
            "that are told so, or replace the variable with mode 'w'"
        )
    if is_lazy(value):
        return value if value.dtype == dtype else value.astype(dtype)
    return np.asarray(value, dtype)


def _fitted_texts(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return texts in the dtype that is stored."""
    whole = np.asarray(value)
    if whole.dtype.kind not in "OUST":
        raise ArgumentError(
            f"{name!r} would be stored as {whole.dtype}, and is of texts in the pool: give '' where"
            " a text is missing"
        )
    if dtype.kind == "T":
        return whole.astype(string_dtype())
    if whole.dtype.kind in ("O", dtype.kind):
        whole = whole.astype(dtype.kind)
    if whole.dtype.itemsize > dtype.itemsize:
        raise ArgumentError(
            f"{name!r} has texts longer than {dtype} in the pool holds: store it as objects "
            "(.astype(object)), which may be of any length, and replace it with mode 'w'"
        )
    return whole.astype(dtype)


def _check_times(name: str, given: Variable, encoded: Variable, there: Variable) -> None:
    """Refuse times that xarray tells in other units than those there, as these are not changed."""
    for key, is_same in (("units", _is_same_unit), ("calendar", _is_same_calendar)):
        made, kept = encoded.attrs.get(key), there.attrs.get(key)
        if key in given.attrs or made is None or is_same(str(made), kept):
            continue
        raise ArgumentError(
            f"{name!r} has times that would be told in {made!r}, and are in {kept!r} in the pool: "
            "round them to what can be told so, or replace the variable with mode 'w' and "
            f"encoding={{{name!r}: {{{key!r}: ...}}}}"
        )


def _is_same_unit(made: str, kept: Any) -> bool:
    if made == kept:
        return True
    if not isinstance(kept, str):
        return False
    try:
        return TimeUnits(made).scale == TimeUnits(kept).scale
    except ArgumentError:  # durations, and what none but xarray can tell
        return False


def _is_same_calendar(made: str, kept: Any) -> bool:
    kept = "standard" if kept is None else kept
    return made == kept or {made, kept} <= _OF_NUMPY
