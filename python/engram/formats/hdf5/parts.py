"""Types whose values have no fixed size, as parts that have one, or are text or sequences.

A compound type of which a part is of variable length becomes a group with an array for each field,
since a pool's records are of one size. A sequence of variable length becomes a group of two arrays
(`engram.formats.ragged`). HDF5 reads one field of many by itself: its type in memory is a compound
of that field alone. What has no like here, such as a reference, is left out of the group by name.

The same walk over a type serves both ways: an export compares what it finds with the group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5t

from engram.formats import text
from engram.formats.hdf5 import types as h5types
from engram.formats.hdf5.low import Kind, joined
from engram.formats.names import name_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    Wrap = Callable[[h5t.TypeID], h5t.TypeID]
    Shape = tuple[int, ...]

NUMBERS, TEXT, SEQUENCES = "numbers", "text", "sequences"


@dataclass(frozen=True, slots=True)
class Part:
    """What of a type's values becomes an array, or the two of a sequence.

    Attributes
    ----------
    path
        Its path below the dataset; empty where it is all of it.
    fields
        The fields that lead to it.
    form
        One of the words above.
    plain
        The dtype of its values here; object for text and sequences.
    inner
        The axes that array types add to the dataset's.
    memory
        The type in memory with which HDF5 reads it alone.
    element
        The dtype of a sequence's elements here; `plain` for others.

    """

    path: str
    fields: tuple[str, ...]
    form: str
    plain: np.dtype[Any]
    inner: Shape
    memory: h5t.TypeID
    element: np.dtype[Any]


@dataclass(slots=True)
class Parts:
    """What a type's values become.

    Attributes
    ----------
    groups
        The paths of groups below the dataset's, parents first.
    arrays
        The parts that become arrays.
    left_out
        The paths of fields that have no like here, and why.

    """

    groups: list[str] = field(default_factory=list)
    arrays: list[Part] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def parts(tid: h5t.TypeID) -> Parts | None:
    """Return what a type of no fixed size becomes; None if nothing of it has a like here."""
    found = Parts()
    if _is_variable(tid):
        _walk(found, tid, (), (), lambda inner: inner)
    return found if found.arrays else None


def _is_variable(tid: h5t.TypeID) -> bool:
    """Whether some of a type's values is of variable length, other than text by itself."""
    kind = tid.get_class()
    if kind == h5t.ARRAY:
        return _is_variable(tid.get_super())
    if kind != h5t.COMPOUND:
        return bool(kind == h5t.VLEN)
    members = [tid.get_member_type(place) for place in range(tid.get_nmembers())]
    return any(_is_variable(inner) or _is_text(inner) for inner in members)


def _is_text(tid: h5t.TypeID) -> bool:
    """Whether a type is of strings of variable length, or an array of such."""
    while tid.get_class() == h5t.ARRAY:
        tid = tid.get_super()
    return bool(tid.get_class() == h5t.STRING and tid.is_variable_str())


def _walk(found: Parts, tid: h5t.TypeID, fields: tuple[str, ...], inner: Shape, wrap: Wrap) -> None:
    """Add what a type becomes, that of a field or of all."""
    while tid.get_class() == h5t.ARRAY:
        axes = tid.get_array_dims()
        inner, wrap, tid = (*inner, *axes), _arrayed(axes, wrap), tid.get_super()
    path = "/".join(fields)
    kind = Kind(tid)
    if kind.problem is None:
        form = TEXT if kind.is_text else NUMBERS
        part = Part(path, fields, form, kind.plain, inner, wrap(kind.memory), kind.plain)
        found.arrays.append(part)
    elif kind.of == h5t.COMPOUND and _is_variable(tid):
        if fields:
            found.groups.append(path)
        for place in range(tid.get_nmembers()):
            encoded = tid.get_member_name(place)
            why = name_problem(encoded)
            name = encoded.decode("utf-8", "backslashreplace")
            if why is not None:
                found.left_out.append((joined(path, name), why))
                continue
            member = tid.get_member_type(place)
            _walk(found, member, (*fields, name), inner, _alone(encoded, wrap))
    elif (element := _element(kind)) is not None:
        memory = wrap(h5t.py_create(kind.dtype))
        plain = np.dtype(object)
        found.arrays.append(Part(path, fields, SEQUENCES, plain, inner, memory, element))
    else:
        found.left_out.append((path, kind.problem))


def _alone(name: bytes, wrap: Wrap) -> Wrap:
    """Return what makes a compound type of one field, within what is around it."""

    def made(inner: h5t.TypeID) -> h5t.TypeID:
        compound = h5t.create(h5t.COMPOUND, inner.get_size())
        compound.insert(name, 0, inner)
        return wrap(compound)

    return made


def _arrayed(axes: Shape, wrap: Wrap) -> Wrap:
    """Return what makes an array type, within what is around it."""
    return lambda inner: wrap(h5t.array_create(inner, axes))


def _element(kind: Kind) -> np.dtype[Any] | None:
    """Return the dtype here of a sequence's elements; None if it is none, or they have no like."""
    base = None if kind.dtype is None else h5py.check_vlen_dtype(kind.dtype)
    if base is None or base.subdtype is not None:
        return None
    if h5types.is_text(base):
        return text.string_dtype()
    return None if h5types.problem(base) is not None else h5types.plain(base)
