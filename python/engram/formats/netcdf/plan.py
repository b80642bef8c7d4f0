"""A tree as a netCDF file: what each group, dimension, variable and attribute becomes, or why not.

The plan is made without netCDF's library, before a byte is written, and finds all that a kind of
file cannot hold. Both writers follow it: `write` for classic files, `write4` for netCDF-4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.formats import trees
from engram.formats.netcdf import attributes
from engram.formats.netcdf.attributes import Attribute, attribute_of
from engram.formats.netcdf.dimensions import Dimension, Dimensions
from engram.formats.netcdf.forms import (
    CHARS,
    HIDDEN,
    NUMBERS,
    Form,
    form_of,
    record_problem,
    unopened,
)
from engram.formats.netcdf.naming import RESERVED, name_problem
from engram.formats.target import ArrayItem, Problem

if TYPE_CHECKING:
    from engram.formats.netcdf.kinds import Kind
    from engram.formats.target import GroupItem, Item, Tree

_NO_GROUPS = "{} has no groups; netcdf4 has, and a group's arrays can be exported alone"
_LIMITS = {1: 2**31 - 4, 2: 2**32 - 4}
"""Bytes of a variable in CDF-1 and CDF-2: where the next one begins must still be a number."""
_LENGTH = 2**31 - 1
"""The longest dimension there."""


@dataclass(slots=True)
class Variable:
    """An array, as a variable.

    Attributes
    ----------
    item
        The array.
    form
        How its values stand in the file.
    dims
        Its dimensions; None for a dataset of HDF5 alone, which has none.
    attrs
        Its attributes, in order; none for a dataset of HDF5 alone, whose `item` has them.

    """

    item: ArrayItem
    form: Form
    dims: list[Dimension] | None
    attrs: list[Attribute]

    @property
    def name(self) -> str:
        """Its name."""
        return self.item.path.rpartition("/")[2]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape in the file."""
        width = self.form.width
        return (*self.item.shape, width) if width else self.item.shape

    @property
    def is_coordinate(self) -> bool:
        """Whether it is the variable of the dimension that has its name and group."""
        if not self.dims:
            return False
        first = self.dims[0]
        return first.name == self.name and first.group == self.item.path.rpartition("/")[0]


@dataclass(slots=True)
class Group:
    """A group of the file.

    Attributes
    ----------
    item
        The group.
    dims
        Its dimensions by name.
    attrs
        Its attributes, in order.
    variables
        Its variables, in order.

    """

    item: GroupItem
    dims: dict[str, Dimension]
    attrs: list[Attribute]
    variables: list[Variable] = field(default_factory=list)


class Plan:
    """What a tree becomes in a kind of file."""

    def __init__(self, tree: Tree, kind: Kind) -> None:
        """Plan the whole tree; what has no place is in `problems`, and in nothing else."""
        self.tree = tree
        self.kind = kind
        self.problems: list[Problem] = []
        self.notes: list[tuple[str, str, str]] = []
        self.groups: dict[str, Group] = {}
        self.is_netcdf = str(tree.root.origin.get("format", "")).startswith("NETCDF")
        arrays = [a for a in tree.arrays if not self._is_hidden(a) and not self._is_below(a)]
        self._dims = Dimensions(tree, arrays)
        for group in tree.groups:
            self._add_group(group)
        for array in tree.arrays:
            if not self._is_below(array):
                self._add_variable(array)
        self._check_dimensions()
        self._check_sizes()

    def _refuse(self, path: str, what: str, why: str, attribute: str | None = None) -> None:
        """Say that something has no place in the file."""
        self.problems.append(Problem(path, what, why, attribute))

    def _is_hidden(self, item: ArrayItem) -> bool:
        """Whether an array came from an HDF5 dataset without dimensions in a netCDF-4 file."""
        is_netcdf4 = self.kind.is_hdf5 and not self.kind.is_classic and self.is_netcdf
        return is_netcdf4 and item.dims is None and item.origin.get("format") == "HDF5"

    def _is_below(self, item: Item) -> bool:
        """Whether an item is in a group that the file cannot have."""
        return self.kind.is_classic and "/" in item.path

    def _checked_name(self, item: Item) -> bool:
        """Whether the file can carry an item's name; came it from netCDF, it can."""
        name = item.path.rpartition("/")[2]
        why = name_problem(name)
        if why is None or str(item.origin.get("format", "")).startswith("NETCDF4"):
            return True
        self._refuse(item.path, "name", why)
        return False

    def _add_group(self, item: GroupItem) -> None:
        """Add a group."""
        if self.kind.is_classic and item.path:
            if "/" not in item.path:
                self._refuse(item.path, "group", _NO_GROUPS.format(self.kind.model))
            return
        if item.path and not self._checked_name(item):
            return
        dims = self._dims.of_group[item.path]
        self.groups[item.path] = Group(item, dims, self._attributes(item, {}))

    def _add_variable(self, item: ArrayItem) -> None:
        """Add a variable, if its name, its type and its dimensions can be had."""
        conflicts = [c for c in self._dims.conflicts if c.path == item.path]
        for conflict in conflicts:
            self._refuse(item.path, "dimensions", conflict.why)
        form = self._hidden_form(item) if self._is_hidden(item) else form_of(item, self.kind)
        if isinstance(form, str):
            self._refuse(item.path, "variable", form)
            return
        at = item.path.rpartition("/")[0]
        if conflicts or not self._checked_name(item) or at not in self.groups:
            return
        self._tell(item, form)
        attrs = [] if form.kind == HIDDEN else self._attributes(item, form.attrs, form)
        dims = self._dims.of_array.get(item.path)
        if form.width and dims is not None:
            dims = [*dims, self._dims.of_width(item, form.width)]
        self.groups[at].variables.append(Variable(item, form, dims, attrs))

    @staticmethod
    def _hidden_form(item: ArrayItem) -> Form | str:
        """Return the form of an HDF5 dataset beside netCDF's variables."""
        from engram.formats.hdf5.build import problem  # noqa: PLC0415 - h5py for such alone

        return problem(item.dtype) or Form(HIDDEN, item.dtype)

    def _tell(self, item: ArrayItem, form: Form) -> None:
        """Note what of an array is otherwise in the file."""
        if item.is_blob:
            self.notes.append((item.path, "blob", "its bytes, as a variable of unsigned bytes"))
        if form.note is not None:
            self.notes.append((item.path, "values", form.note))
        invented = self._dims.invented.get(item.path)
        if invented:
            names = ", ".join(invented)
            why = f"it has no names for its axes; netCDF needs some, and they are {names}"
            self.notes.append((item.path, "dimensions", why))

    def _attributes(
        self, item: Item, more: dict[str, Any], form: Form | None = None
    ) -> list[Attribute]:
        """Return an item's attributes, and those that tell of its values' form."""
        kept = item.origin.get("attributes")
        facts: dict[str, Any] = kept if isinstance(kept, dict) else {}
        found: list[Attribute] = []
        forms: dict[str, Any] = {}
        for name, value in (more | item.attrs).items():
            if trees.is_tree(value):
                made = self._tree(item, name, value, forms)
            else:
                made = self._attribute(item, name, _like(value, item, form), facts.get(name))
            if name in more and name in item.attrs:
                made = f"it would hide that the values are stored in another way ({name})"
            if isinstance(made, str):
                self._refuse(item.path, f"attribute {name}", made, name)
                continue
            if made.note is not None:
                self.notes.append((item.path, f"attribute {name}", made.note))
            found.append(made)
        if forms:
            mark = trees.mark_of(forms).encode()
            found.append(Attribute(trees.MARK, attributes.TEXT, mark, {}))
        return found

    def _tree(self, item: Item, name: str, value: Any, forms: dict[str, Any]) -> Attribute | str:
        """Return a tree as an attribute of JSON text, or why it has no place; add it to `forms`."""
        text, types = trees.text_of(value)
        made = self._attribute(item, name, text, None)
        if isinstance(made, str):
            return made
        forms[name] = types
        return replace(made, note=trees.AS_TEXT)

    def _attribute(self, item: Item, name: str, value: Any, facts: Any) -> Attribute | str:
        """Return an attribute, or why it has no place."""
        came_so = str(item.origin.get("format", "")).startswith("NETCDF4")
        why = name_problem(name)
        if why is not None and not came_so:
            return why
        if name in RESERVED and self.kind.is_hdf5:
            return "netCDF-4 keeps this name for itself"
        if trees.is_taken(name, item.attrs):
            return trees.TAKEN
        dtype = np.asarray(value).dtype
        if dtype.names is not None and not came_so:
            why = record_problem(dtype) or unopened(dtype)
            if why is not None:
                return why
        return attribute_of(name, value, facts, self.kind)

    def _check_dimensions(self) -> None:
        """Find dimensions that the file cannot have."""
        users: dict[int, list[Variable]] = {}
        for group in self.groups.values():
            for variable in group.variables:
                for dimension in variable.dims or ():
                    users.setdefault(id(dimension), []).append(variable)
        for path, group in self.groups.items():
            for name, dimension in group.dims.items():
                self._check_dimension(path, name, users.get(id(dimension), []))
        if self.kind.version in _LIMITS:
            self._check_lengths(users)
        if self.kind.version:
            self._grow_empty()
        if self.kind.is_classic:
            self._check_unlimited()

    def _grow_empty(self) -> None:
        """Make dimensions without length unlimited: a classic file has no others of length 0."""
        for dimension in self.groups[""].dims.values():
            if not dimension.size and not dimension.unlimited:
                dimension.unlimited = True
                why = f"{dimension.name!r} has the length 0, which only an unlimited one can have"
                self.notes.append(("", f"dimension {dimension.name}", f"unlimited: {why}"))

    def _check_lengths(self, users: dict[int, list[Variable]]) -> None:
        """Find dimensions that are too long for CDF-1 and CDF-2; none is kept for nothing."""
        dims = self.groups[""].dims
        for name, dimension in list(dims.items()):
            if dimension.size <= _LENGTH:
                continue
            why = f"{name!r} has the length {dimension.size}; {self.kind.model} has up to {_LENGTH}"
            used_by = users.get(id(dimension), [])
            for variable in used_by:
                self._refuse(variable.item.path, "dimensions", why)
            if not used_by:
                del dims[name]
                self.notes.append(
                    ("", f"dimension {name}", f"left away, as nothing uses it: {why}")
                )

    def _check_dimension(self, path: str, name: str, users: list[Variable]) -> None:
        """Check a dimension's name."""
        why = name_problem(name)
        came_so = self.is_netcdf and not users
        if why is not None and not came_so:
            for user in users:
                if not str(user.item.origin.get("format", "")).startswith("NETCDF4"):
                    self._refuse(user.item.path, f"dimension {name}", why)
        inner = f"{path}/{name}" if path else name
        if inner in self.groups:
            self._refuse(inner, "group", "a dimension beside it has its name")

    def _check_unlimited(self) -> None:
        """Find what the classic model does not allow of unlimited dimensions."""
        dims = self.groups[""].dims
        used = {d.name for v in self.groups[""].variables for d in v.dims or ()}
        grow = [d for d in dims.values() if d.unlimited and d.name in used]
        first = grow[0].name if grow else None
        for variable in self.groups[""].variables:
            for axis, dimension in enumerate(variable.dims or ()):
                if not dimension.unlimited:
                    continue
                if dimension.name != first:
                    why = f"{dimension.name!r} is unlimited, as {first!r} is; there can be one"
                elif axis:
                    why = f"{dimension.name!r} is unlimited and not the first dimension"
                else:
                    continue
                self._refuse(variable.item.path, "dimensions", why)
                break

    def _check_sizes(self) -> None:
        """Find variables that are too large for CDF-1 and CDF-2."""
        limit = _LIMITS.get(self.kind.version)
        if limit is None:
            return
        for variable in self.groups[""].variables:
            dims = variable.dims or []
            fixed = [d.size for d in dims if not d.unlimited]
            nbytes = variable.form.dtype.itemsize * math.prod(fixed)
            if nbytes > limit:
                why = (
                    f"{nbytes} bytes{' in each record' if len(fixed) < len(dims) else ''}, and "
                    f"{self.kind.model} has at most {limit}; netcdf3-64bit-data has more"
                )
                self._refuse(variable.item.path, "variable", why)


def _like(value: Any, item: Item, form: Form | None) -> Any:
    """Return an attribute of its array's dtype, such as a fill value, in the dtype of the file."""
    if form is None or form.kind != NUMBERS or not isinstance(item, ArrayItem):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or form.convert is None or form.dtype == item.dtype:
        return value
    if array.dtype.newbyteorder("=") != item.dtype.newbyteorder("="):
        return value
    like = form.convert(array.reshape(-1)).reshape(array.shape)
    is_same_bytes = like.dtype.itemsize == array.dtype.itemsize
    return like if is_same_bytes or (like == array).all() else value


def fill_value(variable: Variable) -> Any:
    """Return the value of the variable's attribute _FillValue, if it is one of its type."""
    for attribute in variable.attrs:
        if attribute.name != "_FillValue":
            continue
        if attribute.kind == attributes.TEXT and variable.form.kind == CHARS:
            return np.array(attribute.value[:1], "S1")
        if attribute.kind == attributes.NUMBERS and variable.form.kind == NUMBERS:
            same = attribute.value.dtype == variable.form.dtype.newbyteorder("=")
            return attribute.value[0] if same and attribute.value.size == 1 else None
        if attribute.kind == attributes.TYPED:
            return attribute.value.reshape(-1)[0] if attribute.value.size == 1 else None
    return None
