"""Types of a netCDF-4 file: which each variable has, and the user-defined ones in their groups.

netCDF's library reads a variable of an enumeration, a compound or an opaque type only if that type
is committed somewhere in the file, and a type inside another only if it comes before. So the types
that an import has kept are committed again where they were, the inner ones first; and what has none
gets one, under a name of its own, in the variable's group.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
from h5py import h5t

from engram.formats import text
from engram.formats.hdf5.build import build
from engram.formats.netcdf.forms import CHARS, COMPOUND, ENUM, OPAQUE, SEQUENCES, STRINGS, unopened
from engram.formats.netcdf.naming import unused
from engram.formats.netcdf.plan import fill_value
from engram.formats.netcdf.structure4 import native

if TYPE_CHECKING:
    from h5py import h5g

    from engram.formats.netcdf.plan import Plan, Variable

    DType = np.dtype[Any]


def _string_type() -> h5t.TypeStringID:
    """Return the type of strings: of variable length, UTF-8."""
    made = h5t.C_S1.copy()
    made.set_size(h5t.VARIABLE)
    made.set_cset(h5t.CSET_UTF8)
    return made


STRING = _string_type()


def text_type(size: int, *, padded: bool = False) -> h5t.TypeStringID:
    """Return the type of text of so many bytes."""
    made = h5t.C_S1.copy()
    made.set_size(size)
    made.set_strpad(h5t.STR_NULLPAD if padded else h5t.STR_NULLTERM)
    return made


_COMMITTED = {ENUM, COMPOUND, OPAQUE, SEQUENCES}
"""The kinds of types that netCDF's library reads if they are committed."""


class Types:
    """The user-defined types of a file."""

    def __init__(self, plan: Plan) -> None:
        """Find the types that were kept, and those that variables need besides."""
        self._chosen: dict[str, h5t.TypeID] = {}
        taken = _members(plan)
        self._wanted: dict[str, dict[str, h5t.TypeID]] = {
            path: {} if plan.kind.is_classic else _kept(group.item.origin, taken[path])
            for path, group in plan.groups.items()
        }
        known = [(n, t) for types in self._wanted.values() for n, t in types.items()]
        for path, group in plan.groups.items():
            names = taken[path] | set(self._wanted[path])
            for variable in group.variables:
                if variable.form.kind not in _COMMITTED or variable.dims is None:
                    continue
                tid = _wanted_type(variable)
                there = _alike(tid, _type_name(variable), known)
                if there is None:
                    there = _laid_out(variable.form.dtype, _type_name(variable), known)
                if there is None:
                    name = _type_name(variable) or f"{variable.name}_t"
                    there = tid
                    for part_name, part in _with_inner(name, tid):
                        if _alike(part, None, known) is None:
                            free = unused(part_name, names)
                            names.add(free)
                            self._wanted[path][free] = part
                            known.append((free, part))
                self._chosen[variable.item.path] = there

    def commit(self, place: h5g.GroupID, path: str) -> None:
        """Commit a group's types in the order of their origin, but inner ones first."""
        for name, tid in _inner_first(self._wanted[path]).items():
            tid.commit(place, name.encode())

    def of_variable(self, variable: Variable) -> h5t.TypeID:
        """Return the type of a variable."""
        return self._chosen.get(variable.item.path) or _wanted_type(variable)

    def in_memory(self, variable: Variable) -> h5t.TypeID | None:
        """Return the type of a variable's values where it is not that in the file."""
        chosen = self._chosen.get(variable.item.path)
        made = None if chosen is None else _wanted_type(variable)
        return None if made is None or made.equal(chosen) else made

    def of_value(self, dtype: DType, facts: dict[str, Any]) -> tuple[h5t.TypeID, h5t.TypeID]:
        """Return the types of an attribute's value, in the file and in memory."""
        made = _from_facts(dtype, facts)
        known = [(n, t) for types in self._wanted.values() for n, t in types.items()]
        there = _alike(made, facts.get("name"), known) or _laid_out(dtype, None, known)
        return there or made, made


def _members(plan: Plan) -> dict[str, set[str]]:
    """Return the names that each group's variables, dimensions and groups have."""
    found = {
        path: {v.name for v in group.variables} | set(group.dims)
        for path, group in plan.groups.items()
    }
    for path in plan.groups:
        above, _, name = path.rpartition("/")
        if path:
            found[above].add(name)
    return found


def _kept(origin: dict[str, Any], taken: set[str]) -> dict[str, h5t.TypeID]:
    """Return the committed types that a group's origin tells of, whose names are not taken.

    Of those of plain HDF5, one that would keep netCDF4 from opening the file is none.
    """
    is_netcdf = str(origin.get("format", "")).startswith("NETCDF")
    found: dict[str, h5t.TypeID] = {}
    kept = origin.get("types")
    for name, facts in (kept if isinstance(kept, dict) else {}).items():
        encoded = facts.get("hdf5") if isinstance(facts, dict) else None
        if isinstance(encoded, str) and name not in taken:
            # A copy, since what was decoded of a committed type cannot be committed again.
            tid = h5t.decode(base64.b64decode(encoded)).copy()
            if is_netcdf or _is_openable(tid):
                found[name] = tid
    return found


def _is_openable(tid: h5t.TypeID) -> bool:
    """Whether netCDF4 opens a file with a type."""
    try:
        return unopened(tid.dtype) is None
    except TypeError:  # it has no dtype
        return False


def _alike(
    tid: h5t.TypeID, name: str | None, known: list[tuple[str, h5t.TypeID]]
) -> h5t.TypeID | None:
    """Return the known type that equals one; that of its name, if several do."""
    equal = [(n, t) for n, t in known if t.equal(tid)]
    for found, there in equal:
        if found == name:
            return there
    return equal[0][1] if equal else None


def _laid_out(
    dtype: DType, name: str | None, known: list[tuple[str, h5t.TypeID]]
) -> h5t.TypeID | None:
    """Return the known type, of this name if one is given, that holds records in another layout.

    netCDF4 shows records natively and aligned, whatever their byte order and offsets in the file.
    """
    if dtype.names is None or text.of_objects(dtype):
        return None
    named = (t for n, t in known if name in {None, n} and isinstance(t, h5t.TypeCompoundID))
    return next((tid for tid in named if _holds_all(tid) and native(tid) == dtype), None)


def _holds_all(tid: h5t.TypeID) -> bool:
    """Whether HDF5 converts all values of a type's native dtype to it, and none changes."""
    if isinstance(tid, h5t.TypeArrayID):
        return _holds_all(tid.get_super())
    if isinstance(tid, h5t.TypeCompoundID):
        return all(_holds_all(tid.get_member_type(place)) for place in range(tid.get_nmembers()))
    if isinstance(tid, h5t.TypeIntegerID | h5t.TypeFloatID):
        return bool(tid.get_precision() == 8 * tid.get_size())
    return False


def _type_name(variable: Variable) -> str | None:
    """Return the name of a variable's type, if something tells it."""
    facts = variable.item.origin.get("type")
    name = facts.get("name") if isinstance(facts, dict) else None
    return variable.form.type_name or (name if isinstance(name, str) else None)


def _wanted_type(variable: Variable) -> h5t.TypeID:
    """Return the type that a variable's values have in memory: the same is written."""
    form = variable.form
    if form.kind == STRINGS:
        return STRING
    if form.kind == CHARS:
        # With a terminator, as netCDF's library has it, HDF5 would take a fill value for that.
        return text_type(1, padded=fill_value(variable) is not None)
    facts = variable.item.origin.get("type")
    if text.of_objects(form.dtype):
        return build(form.dtype, facts)
    return _from_facts(form.dtype, facts if isinstance(facts, dict) else {})


def _from_facts(dtype: DType, facts: dict[str, Any]) -> h5t.TypeID:
    """Return the type of a dtype, with what its import kept of it where that fits."""
    if "enum" in facts and dtype.kind in "biu":
        made = h5t.enum_create(h5t.py_create(np.dtype("i1") if dtype.kind == "b" else dtype))
        for name, value in facts["enum"].items():
            made.enum_insert(name.encode(), value)
        return made
    if dtype.names is not None:
        return _compound(dtype, facts)
    if dtype.kind == "V":
        made = h5t.create(h5t.OPAQUE, dtype.itemsize)
        tag = facts.get("opaque")
        made.set_tag(tag.encode() if isinstance(tag, str) else b"")
        return made
    if dtype.kind == "S":
        # One character each, as netCDF has them: the same bytes.
        unit = text_type(1)
        return unit if dtype.itemsize == 1 else h5t.array_create(unit, (dtype.itemsize,))
    return h5t.py_create(dtype)


def _compound(dtype: DType, facts: dict[str, Any]) -> h5t.TypeID:
    """Return the compound type of a structured dtype, of the same layout."""
    inner = facts.get("compound")
    known: dict[str, Any] = inner if isinstance(inner, dict) else {}
    made = h5t.create(h5t.COMPOUND, dtype.itemsize)
    fields: Any = dtype.fields
    for name in dtype.names or ():
        kind, offset = fields[name][:2]
        of_field = known.get(name, {})
        of_base = of_field.get("base", of_field)
        base = _from_facts(kind.base, of_base if isinstance(of_base, dict) else {})
        made.insert(name.encode(), offset, _arrayed(base, kind.shape))
    return made


def _arrayed(base: h5t.TypeID, shape: tuple[int, ...]) -> h5t.TypeID:
    """Return the type of an array of a type, as a field has it."""
    if not shape:
        return base
    if isinstance(base, h5t.TypeArrayID):
        return h5t.array_create(base.get_super(), (*shape, *base.get_array_dims()))
    return h5t.array_create(base, shape)


def _with_inner(name: str, tid: h5t.TypeID) -> list[tuple[str, h5t.TypeID]]:
    """Return a type and those of its fields that must be committed too, each with a name."""
    found = [(name, tid)]
    for place in range(tid.get_nmembers() if isinstance(tid, h5t.TypeCompoundID) else 0):
        member = tid.get_member_type(place)
        while isinstance(member, h5t.TypeArrayID):
            member = member.get_super()
        if isinstance(member, h5t.TypeCompoundID | h5t.TypeEnumID | h5t.TypeOpaqueID):
            inner = tid.get_member_name(place)
            field = inner.decode() if isinstance(inner, bytes) else inner
            found += _with_inner(f"{name.removesuffix('_t')}_{field}_t", member)
    return found


def _inner_first(types: dict[str, h5t.TypeID]) -> dict[str, h5t.TypeID]:
    """Return types in their order, but each after those that it is made of."""
    ordered: dict[str, h5t.TypeID] = {}

    def add(name: str) -> None:
        for inner, tid in types.items():
            if inner not in ordered and _is_of(types[name], tid):
                add(inner)
        ordered[name] = types[name]

    for name in types:
        if name not in ordered:
            add(name)
    return ordered


def _is_of(tid: h5t.TypeID, inner: h5t.TypeID) -> bool:
    """Whether a type is made of another one."""
    if isinstance(tid, h5t.TypeArrayID | h5t.TypeVlenID):
        parts = [tid.get_super()]
    elif isinstance(tid, h5t.TypeCompoundID):
        parts = [tid.get_member_type(place) for place in range(tid.get_nmembers())]
    else:
        return False
    return any(part.equal(inner) or _is_of(part, inner) for part in parts)
