"""A group as what xarray calls a store: variables, attributes and dimensions, read at one moment.

All that is told of a group is of one commit, so that a group which is replaced meanwhile is read as
it was or as it is. Values come later (`lazy.py`). xarray decodes what the store tells: nothing of
CF is done here. What is written goes the same way back (`write.py`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
from xarray import Variable
from xarray.backends.common import WritableCFDataStore
from xarray.core.indexing import LazilyIndexedArray

from engram import _engram
from engram.errors import BusyError
from engram.formats import origin
from engram.group import Group
from engram.xarray import dimensions, encoding
from engram.xarray.lazy import PoolArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram._engram import ObjectInfo
    from engram.xarray.place import Place


_FILL = "_FillValue"
_PACKED = {"scale_factor", "add_offset", "missing_value", "_Unsigned"}


class PoolStore(WritableCFDataStore):
    """A group of a pool, for xarray."""

    __slots__ = ("_found", "_leave_out", "_masks", "place")

    def __init__(
        self, place: Place, leave_out: frozenset[str] = frozenset(), *, masks: bool = False
    ) -> None:
        """Take a group.

        Parameters
        ----------
        place
            The group.
        leave_out
            Variables that need not fit the dimensions.
        masks
            Whether xarray replaces fill values by NaN: where they are NaN, that is spared.

        """
        self.place = place
        self._leave_out = leave_out
        self._masks = masks
        self._found: Contents | None = None

    @property
    def contents(self) -> Contents:
        """What is in the group, as it was when it was first asked for."""
        if self._found is None:
            self._found = Contents(self.place, self._leave_out)
        return self._found

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.place, self._leave_out, self._masks)

    def get_child_store(self, group: str) -> PoolStore:
        """Give the store of a group below."""
        return PoolStore(self.place.child(group), self._leave_out, masks=self._masks)

    def get_variables(self) -> dict[str, Variable]:
        """Give the variables, in the order in which their file had them."""
        found = dict(self.contents.variables)
        return {name: unmasked(one) for name, one in found.items()} if self._masks else found

    def get_attrs(self) -> dict[str, Any]:
        """Give the group's attributes."""
        return dict(self.contents.attrs)

    def get_dimensions(self) -> dict[str, int]:
        """Give the dimensions' lengths."""
        return dict(self.contents.sizes)

    def get_encoding(self) -> dict[str, Any]:
        """Tell which dimensions are unlimited."""
        found = self.contents
        told = {"unlimited_dims": found.grows & set(found.sizes)} if found.origin else {}
        return {**told, "source": self.place.source}

    def close(self) -> None:
        """Close the pool, if it was opened for the dataset."""
        self.place.close()


class Contents:
    """What a group has at one moment, as xarray's variables.

    Attributes
    ----------
    variables
        The variables by name.
    attrs
        The group's attributes.
    sizes
        The length of each dimension.
    grows
        The dimensions that are unlimited, whether a variable has them or not.
    origin
        What an import kept of the group.
    infos
        What natives tell of each variable.
    groups
        The names of the groups below.

    """

    def __init__(self, place: Place, leave_out: frozenset[str] = frozenset()) -> None:
        """Read a group.

        Raises
        ------
        ArgumentError
            If its arrays differ in the length of a dimension.

        """
        with _moment(place) as group:
            members = [*group._members()]
            self.attrs = _attributes(group)
            self.origin = origin.decode(group._origin)
            objects = {n: m for n, m in members if not m._is_group}
            self.groups = [n for n, m in members if isinstance(m, Group)]
            self.infos: dict[str, ObjectInfo] = {
                n: m._info() for n, m in objects.items() if n not in leave_out
            }
            self.attrs_of = {n: _attributes(objects[n]) for n in self.infos}
        self.grows = dimensions.growing(self.origin)
        order = self.origin.get("order")
        first = [n for n in order if n in self.infos] if isinstance(order, list) else []
        names = dict.fromkeys([*first, *self.infos])
        lazies = {n: PoolArray(place, n, objects[n].oid, self.infos[n]) for n in names}
        dims = {n: _dims(n, self.infos[n], lazies[n]) for n in names}
        where = place.source
        shapes = {n: (dims[n], lazies[n].shape) for n in names}
        chunked = {n for n in names if lazies[n].is_chunked}
        self.sizes = dimensions.sizes_of(shapes, where, self.grows, chunked)
        self.variables = {n: self._variable(n, lazies[n], dims[n], where) for n in names}

    def _variable(self, name: str, lazy: PoolArray, dims: tuple[str, ...], source: str) -> Variable:
        lazy.clip({axis: self.sizes[dim] for axis, dim in enumerate(dims[: len(lazy.shape)])})
        info = self.infos[name]
        return Variable(
            dims,
            LazilyIndexedArray(lazy),
            self.attrs_of[name],
            encoding.of_array(info, dims, source),
        )


def read_some(place: Place, names: list[str]) -> dict[str, Variable]:
    """Read some variables of a group, as xarray is to decode them; not those that are groups."""
    found = {}
    for name in names:
        member = place.group()[name]
        if not member._is_group:
            info = member._info()
            lazy = PoolArray(place, name, member.oid, info)
            data, dims = LazilyIndexedArray(lazy), _dims(name, info, lazy)
            found[name] = Variable(dims, data, _attributes(member))
    return found


@contextlib.contextmanager
def _moment(place: Place) -> Iterator[Group]:
    """Give the group as it is at one moment."""
    namespace = place.namespace()
    if namespace.is_snapshot:
        yield place.group()
        return
    gid = place.group()._id
    try:
        shown = namespace.snapshot(None, "xarray")
    except BusyError:  # inside a batch, which sees its own changes
        yield place.group()
        return
    try:
        yield Group(shown, gid)
    finally:
        shown.end_snapshot()


def _dims(name: str, info: ObjectInfo, lazy: PoolArray) -> tuple[str, ...]:
    named = dimensions.names_of(name, info.dims, len(lazy.stored_shape))
    return (*named, "string1") if lazy.as_characters else named


def _again(place: Place, leave_out: frozenset[str], masks: bool) -> PoolStore:
    return PoolStore(place, leave_out, masks=masks)


def unmasked(variable: Variable) -> Variable:
    """Return a variable that xarray need not copy for the sake of a fill value that is NaN."""
    fill = variable.attrs.get(_FILL)
    if variable.dtype.kind != "f" or not isinstance(fill, np.floating) or not np.isnan(fill):
        return variable
    if _PACKED & set(variable.attrs):
        return variable
    found = variable.copy(deep=False)
    found.encoding[_FILL] = found.attrs.pop(_FILL)
    return found


def _attributes(owner: Any) -> dict[str, Any]:
    found = _engram.attr_items(owner._namespace, owner._is_group, owner._id)
    return {name: as_xarray(value) for name, value in found}


def as_xarray(value: Any) -> Any:
    """Return an attribute as other engines give it: texts as a list, scalars as native ones."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind in "UT":
        return value.tolist()
    if value.ndim == 0:
        return value.astype(value.dtype.newbyteorder("="))[()]
    return value
