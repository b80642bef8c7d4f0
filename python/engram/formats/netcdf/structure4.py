"""The structure of a netCDF-4 file, read from HDF5: its groups, dimensions, variables and types.

A netCDF-4 file is an HDF5 file in which a dimension is a dimension scale, and a variable a
dataset. What netCDF's library makes of one is made here as well: dimensions stand in the order of
their ids (``_Netcdf4Dimid``); a variable knows its dimensions by their ids
(``_Netcdf4Coordinates``), by the scales attached to it, or, if it is one, as its own; a prefix
keeps a variable apart from a dimension of its name that is not its own; a dimension without a
limit is as long as the longest variable on it.

That library trusts its file, and follows what it should not. A file is declined, and read as plain
HDF5, if it has links that the library takes for variables of their own (soft, external) or
follows until it aborts (cycles), datasets of no dataspace, or dimensions that do not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from h5py import h5l, h5o, h5t

from engram.errors import FormatError
from engram.formats.hdf5 import objects as h5objects
from engram.formats.hdf5.low import Dataset, Group, Owner, joined, opened
from engram.formats.names import name_problem
from engram.formats.source import READ_ERRORS, Declined

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.hdf5.low import File, Kind

_RENAMED = b"_nc4_non_coord_"
_MARKS = (b"_NCProperties", b"_nc3_strict")
_DIMID = b"_Netcdf4Dimid"
_COORDINATES = b"_Netcdf4Coordinates"
_USER_TYPES = {h5t.ENUM, h5t.COMPOUND, h5t.VLEN, h5t.OPAQUE}
_NUMBERS = {h5t.INTEGER: (1, 2, 4, 8), h5t.FLOAT: (4, 8)}


@dataclass(slots=True)
class Dimension:
    """A dimension: its group's path, its id, its length, and whether it can grow."""

    name: str
    group: str
    number: int
    size: int
    unlimited: bool


@dataclass(slots=True)
class Variable:
    """A variable: a dataset, and its dimensions where it has all of them.

    `is_netcdf` tells whether netCDF's library shows it; what it does not is HDF5's alone.
    """

    name: str
    path: str
    dataset: Dataset
    is_netcdf: bool = True
    dims: tuple[Dimension, ...] = ()
    kind: Kind = field(init=False)

    def __post_init__(self) -> None:
        """Take the dataset's type, until another is shown."""
        self.kind = self.dataset.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape: of a dimension without a limit, that one's length."""
        return tuple(dim.size for dim in self.dims)


@dataclass(slots=True)
class Place:
    """A group and what is in it."""

    path: str
    group: Group
    above: Place | None
    dimensions: dict[str, Dimension] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    bare: list[tuple[str, Dataset]] = field(default_factory=list)
    types: dict[str, Owner] = field(default_factory=dict)
    below: list[Place] = field(default_factory=list)


class Structure:
    """All groups of a file, the root first, parents before children."""

    def __init__(self, path: Path, file: File) -> None:
        """Walk the file.

        Raises
        ------
        Declined
            It is no netCDF, or better read as HDF5.
        FormatError
            It is damaged.

        """
        self._path = path
        self._file = file
        root = Place("", Group(file, file.root), None)
        self.is_marked = any(mark in root.group.names for mark in _MARKS)
        self.places = [root]
        self.problems: list[tuple[str, str]] = []  # names that cannot stand here
        self._met = {root.group.address}
        self._numbers: dict[int, Dimension] = {}
        self._scales: dict[int, Dimension] = {}
        self._shown: dict[Kind, Kind] = {}
        for place in self.places:  # which grows
            self._visit(place)
        if not (self.is_marked or self._numbers):
            reason = "it has no dimension scales"
            raise Declined(reason)
        self._named = [
            (name, owner.id) for place in self.places for name, owner in place.types.items()
        ]
        for place in self.places:
            for variable in place.variables:
                variable.is_netcdf = self._is_shown(variable.dataset)
                if variable.is_netcdf:
                    variable.dims = self._dims(place, variable)
        self._stretch()
        for place in self.places:
            found = sorted(place.dimensions.items(), key=lambda item: item[1].number)
            place.dimensions = dict(found)
        self._dimensions = {place.path: place.dimensions for place in self.places}

    def dimension_groups(self, variable: Variable) -> list[str] | None:
        """Return the groups of a variable's dimensions, if their names and lengths do not tell.

        They tell where each is the first one of its name and length in the variable's group and
        those above it, where netCDF has them as a rule.
        """
        at = variable.path.rpartition("/")[0]
        above = [at]
        while at:
            at = at.rpartition("/")[0]
            above.append(at)
        for dim in variable.dims:
            seen = (self._dimensions[path].get(dim.name) for path in above)
            first = next((one for one in seen if one is not None and one.size == dim.size), None)
            if first is not dim:
                return [dim.group for dim in variable.dims]
        return None

    def type_name(self, kind: Kind) -> str | None:
        """Return the name of a user-defined type, if it is one."""
        if kind.of not in _USER_TYPES:
            return None
        return next((name for name, tid in self._named if tid == kind.tid), None)

    def shown_as(self, kind: Kind) -> Kind:
        """Return a user-defined type as netCDF4 shows it: enumerations as numbers, natively.

        h5py takes some of them for booleans and complex numbers.
        """
        if kind.problem is not None or kind.of not in {h5t.ENUM, h5t.COMPOUND}:
            return kind
        known = self._shown.get(kind)
        if known is None:
            dtype = native(kind.tid)
            known = self._shown[kind] = kind if dtype == kind.dtype else kind.seen_as(dtype)
        return known

    def _visit(self, place: Place) -> None:
        """Open a group's members."""
        for encoded, link, address in place.group.links():
            if link != h5l.TYPE_HARD:
                reason = "it has soft or external links"
                raise Declined(reason)
            if address in self._met:
                reason = "an object has several hard links"
                raise Declined(reason)
            self._met.add(address)
            shown = encoded.decode("utf-8", "backslashreplace")
            inner = joined(place.path, shown)
            why = name_problem(encoded)
            if why is not None:
                self.problems.append((inner, why))
                continue
            try:
                member = opened(self._file, place.group.id, encoded, address)
                self._add(place, shown, inner, member)
            except READ_ERRORS as error:
                message = f"{self._path}: /{inner} cannot be read: {error}. The file is damaged"
                raise FormatError(message) from error

    def _add(self, place: Place, name: str, path: str, member: Owner) -> None:
        """Add a member to its group."""
        if isinstance(member, Group):
            below = Place(path, member, place)
            place.below.append(below)
            self.places.append(below)
        elif not isinstance(member, Dataset):
            place.types[name] = member
        elif member.shape is None:
            reason = f"/{path} has no dataspace"
            raise Declined(reason)
        else:
            if member.is_scale:
                self._add_dimension(place, name, path, member)
                if h5objects.is_bare_dimension(member):
                    place.bare.append((name, member))
                    return
            name = name.removeprefix(_RENAMED.decode())
            place.variables.append(Variable(name, joined(place.path, name), member))

    def _add_dimension(self, place: Place, name: str, path: str, scale: Dataset) -> None:
        """Add the dimension of a scale."""
        if not scale.shape:
            reason = f"/{path} is a dimension scale without an axis"
            raise Declined(reason)
        number = len(self._numbers)
        if _DIMID in scale.names:
            number = scale.integers(_DIMID, ())[0]
        if number in self._numbers:
            reason = f"/{path} has the number of another dimension"
            raise Declined(reason)
        made = Dimension(name, place.path, number, scale.shape[0], scale.maxshape[0] is None)
        place.dimensions[name] = self._numbers[number] = self._scales[scale.address] = made

    def _is_shown(self, dataset: Dataset) -> bool:
        """Whether netCDF's library, and netCDF4, show a dataset as a variable."""
        kind = dataset.kind.of
        if kind in _NUMBERS:
            known = dataset.kind.nbytes in _NUMBERS[kind]
        elif kind in _USER_TYPES:
            known = kind != h5t.OPAQUE and self.type_name(dataset.kind) is not None
        else:
            known = kind == h5t.STRING
        if not known or not dataset.shape or dataset.is_scale:
            return known
        # With axes, and no dimension for any of them: netCDF's library invents some.
        return dataset.has_dimension_list or _COORDINATES in dataset.names

    def _dims(self, place: Place, variable: Variable) -> tuple[Dimension, ...]:
        """Return a variable's dimensions."""
        dataset = variable.dataset
        shape = dataset.shape or ()
        if not shape:
            return ()
        if _COORDINATES in dataset.names:
            numbers = dataset.integers(_COORDINATES, (len(shape),))
            found = [self._numbers.get(number) for number in numbers]
        elif dataset.is_scale:
            found = [self._scales[dataset.address]]
        else:
            found = [self._attached(place, scales) for scales in dataset.scales()]
        dims = tuple(dim for dim in found if dim is not None)
        fits = len(dims) == len(found) == len(shape) and all(
            dim.unlimited or dim.size == length for dim, length in zip(dims, shape, strict=True)
        )
        if not fits:
            reason = f"/{variable.path} has axes that are not of its dimensions"
            raise Declined(reason)
        return dims

    def _attached(self, place: Place, scales: list[Any]) -> Dimension | None:
        """Return the dimension of an axis: the last of its scales, in a group that it is in."""
        if not scales:
            return None
        found = self._scales.get(int(h5o.get_info(scales[-1]).addr))
        at: Place | None = place
        while at is not None:
            if found in at.dimensions.values():
                return found
            at = at.above
        return None

    def _stretch(self) -> None:
        """Make each dimension without a limit as long as the longest variable on it."""
        for dim in self._numbers.values():
            if dim.unlimited:
                dim.size = 0
        for place in self.places:
            for variable in place.variables:
                for dim, length in zip(variable.dims, variable.dataset.shape or (), strict=False):
                    if dim.unlimited:
                        dim.size = max(dim.size, length)


def native(tid: h5t.TypeID) -> np.dtype[Any]:
    """Return the dtype that netCDF4 reads a datatype as: native, fields aligned as in C."""
    kind = tid.get_class()
    if kind == h5t.ENUM:
        return native(tid.get_super())
    if kind == h5t.ARRAY:
        return np.dtype((native(tid.get_super()), tid.get_array_dims()))
    if kind != h5t.COMPOUND:
        dtype: np.dtype[Any] = tid.dtype
        return dtype.newbyteorder("=")
    fields = [
        (
            tid.get_member_name(n).decode("utf-8", "backslashreplace"),
            native(tid.get_member_type(n)),
        )
        for n in range(tid.get_nmembers())
    ]
    return np.dtype(fields, align=True)
