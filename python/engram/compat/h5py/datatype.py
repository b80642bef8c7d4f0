"""Datatypes with a name in a group: kept for export, and readable."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NoReturn

from engram import _engram
from engram.compat.h5py import refused
from engram.extras import library

if TYPE_CHECKING:
    import numpy as np

    from engram.compat.h5py.file import File
    from engram.compat.h5py.links import Spot


class Datatype:
    """A named datatype: `dtype` is what it is."""

    __slots__ = ("_at", "_file", "_told")

    def __init__(self, file: File, at: Spot, told: dict[str, Any]) -> None:
        self._file = file
        self._at = at
        self._told = told

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        h5t = library("h5py.h5t", "hdf5", f"{self._at.name!r}: a named datatype")
        found: np.dtype[Any] = h5t.decode(base64.b64decode(self._told["hdf5"])).dtype
        return found

    @property
    def name(self) -> str:
        """Its path."""
        above = self._file._named(_engram.path_of(self._file._ns, True, self._at.gid))
        return f"{(above or '').rstrip('/')}/{self._at.name}"

    @property
    def file(self) -> File:
        """The file that it is of."""
        return self._file

    @property
    def attrs(self) -> NoReturn:
        """Refused: it is no object of the pool."""
        refused.refuse("attributes of a named datatype", "put them on the group that it is in")

    def __bool__(self) -> bool:
        return self._file._is_open

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Datatype) and self.name == other.name and self._file == other._file

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        if not self:
            return "<Closed HDF5 named type>"
        return f'<HDF5 named type "{self._at.name}" (dtype {self.dtype.str})>'
