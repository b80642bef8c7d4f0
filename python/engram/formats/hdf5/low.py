"""An HDF5 file at h5py's low level: each object is opened once, each datatype described once.

A small file costs what its handles cost: opening an object, asking for its type, space and
property list, closing them. h5py's high level asks anew for each answer, and makes a numpy dtype
of a type each time. Here a dataset's handle is held while its file is open, with what has been
asked of it, and types are known by their encoding, whichever file they are in: most variables and
attributes share a few. Only committed types belong to their file.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5ds, h5f, h5fd, h5g, h5o, h5p, h5r, h5s, h5t

from engram.errors import BusyError, FormatError
from engram.formats.hdf5 import types as h5types
from engram.formats.hdf5.build import in_memory
from engram.formats.source import Plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

with contextlib.suppress(ImportError):
    import hdf5plugin  # noqa: F401 - where it is installed, its filters are found

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

_ACCESS = h5p.create(h5p.FILE_ACCESS)
_ACCESS.set_fclose_degree(h5f.CLOSE_STRONG)

_BY_CREATION = h5py.h5.INDEX_CRT_ORDER
_INT32 = h5t.NATIVE_INT32
_DIMENSION_LIST = b"DIMENSION_LIST"
_DIMENSION_LABELS = b"DIMENSION_LABELS"


class Kind:
    """A datatype of the file.

    Attributes
    ----------
    dtype
        Its dtype as h5py gives it; None where there is none.
    problem
        Why it has no like here; None if it has one.
    is_text
        Whether it is a variable-length string, or an array type of such.
    plain
        Its dtype here, without the shape of an array type; object for text.
    inner
        The shape of an array type; empty for others.
    told
        What its dtype does not say, for `origin`; None where it says all.
    nbytes
        Bytes of one value in the file.
    of
        HDF5's class of it.

    """

    __slots__ = (
        "_memory", "dtype", "inner", "is_text", "nbytes", "of", "plain", "problem", "tid", "told",
    )  # fmt: skip

    def __init__(self, tid: h5t.TypeID) -> None:
        """Describe a datatype."""
        self.tid = tid
        self._memory: h5t.TypeID | None = None
        self.nbytes: int = tid.get_size()
        self.of: int = tid.get_class()
        self.inner: Shape = ()
        self.is_text = False
        self.told: dict[str, Any] | None = None
        self.plain: np.dtype[Any] = np.dtype(object)
        self.dtype: Any = None
        try:
            self.dtype = tid.dtype
        except (TypeError, ValueError) as error:  # as of a wider float
            self.problem: str | None = f"its type has no like here: {error}"
            return
        self.problem = h5types.problem(self.dtype)
        base = self.dtype
        while base.subdtype is not None:  # arrays of arrays have more axes
            base, axes = base.subdtype
            self.inner += axes
        self.is_text = h5types.is_text(base)
        if self.problem is None:
            self.told = h5types.describe(tid)
            if not self.is_text:
                self.plain = h5types.plain(base)

    def seen_as(self, dtype: np.dtype[Any]) -> Kind:
        """Return the same datatype, with values of another dtype that HDF5 converts them to."""
        other = Kind(self.tid)
        other.dtype = other.plain = dtype
        other._memory = h5t.py_create(dtype)
        return other

    @property
    def memory(self) -> h5t.TypeID:
        """The type that its values have in memory, to which HDF5 can bring them.

        Raises
        ------
        ValueError
            Its values are of another size than those of `plain`: HDF5 would write beyond them.

        """
        if self._memory is None:
            found = h5t.py_create(self.dtype) if self.is_text else in_memory(self.tid)
            nbytes = self.plain.itemsize * math.prod(self.inner)
            if found.get_size() != nbytes:
                message = f"its values are of {found.get_size()} bytes, and of {nbytes} in memory"
                raise ValueError(message)
            self._memory = found
        return self._memory


class File:
    """An open file."""

    def __init__(self, path: Path) -> None:
        """Open a file for reading.

        Raises
        ------
        BusyError
            Another process has it open for writing.
        FormatError
            It is damaged.

        """
        try:
            self.id = _opened_file(os.fsencode(path))
            self.root = h5g.open(self.id, b"/")
        except BlockingIOError:
            message = (
                f"{path}: another process has it open for writing; import it when that has ended"
            )
            raise BusyError(message) from None
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            message = f"{path}: not a whole HDF5 file: {error}. Get it again, or look with `h5ls`"
            raise FormatError(message) from None
        self._committed: dict[int, Kind] = {}
        self.objects: dict[int, Owner] = {}

    def close(self) -> None:
        """Close the file, and all that is open in it.

        Each handle by itself: it is slow to close them with the file, and where this process has
        it open elsewhere, a handle that is left would keep it open.
        """
        for owner in self.objects.values():
            owner.id.close()
        self.objects.clear()
        for kind in self._committed.values():
            kind.tid.close()
        self._committed.clear()
        if self.id.valid:
            self.root.close()
            self.id.close()

    def kind(self, tid: h5t.TypeID) -> Kind:
        """Return what is known of a datatype."""
        if not tid.committed():
            return _kind(tid.encode())
        address = int(h5o.get_info(tid).addr)
        known = self._committed.get(address)
        if known is None:
            known = self._committed[address] = Kind(tid)
        return known


def _opened_file(path: bytes) -> h5f.FileID:
    """Open a file, to be closed with all in it; as h5py does, where this process has it open so."""
    try:
        return h5f.open(path, h5f.ACC_RDONLY, _ACCESS)
    except OSError as error:
        if "close degree" not in str(error):
            raise
        return h5f.open(path, h5f.ACC_RDONLY)


@functools.lru_cache(maxsize=1024)
def _kind(encoded: bytes) -> Kind:
    """Return what is known of a datatype that stands alone, in whichever file."""
    return Kind(h5t.decode(encoded))


class Owner:
    """A group, a dataset or a committed datatype, as an owner of attributes.

    Attributes
    ----------
    file
        The file that it is in.
    id
        Its handle.
    names
        The names of its attributes, in the file's order.

    """

    __slots__ = ("_plist", "file", "id", "names")

    def __init__(self, file: File, oid: Any) -> None:
        """Take an open handle."""
        self.file = file
        self.id = oid
        self._plist: h5p.PropOCID | None = None
        self.names: list[bytes] = []
        if self._is_ordered():
            h5a.iterate(oid, self.names.append, index_type=_BY_CREATION)
        else:
            h5a.iterate(oid, self.names.append)

    def _is_ordered(self) -> bool:
        """Whether the file keeps the order in which attributes were made."""
        if isinstance(self.id, h5t.TypeID):
            return False
        return bool(self.plist.get_attr_creation_order() & h5p.CRT_ORDER_TRACKED)

    @property
    def plist(self) -> Any:
        """How it was created."""
        if self._plist is None:
            self._plist = self.id.get_create_plist()
        return self._plist

    @property
    def address(self) -> int:
        """Where it stands in the file: equal for two names of one object."""
        return int(h5o.get_info(self.id).addr)

    def attribute(self, name: bytes) -> tuple[Kind, h5a.AttrID]:
        """Open an attribute: its type, and its handle."""
        attr = h5a.open(self.id, name)
        return self.file.kind(attr.get_type()), attr

    def integers(self, name: bytes, shape: Shape) -> list[int]:
        """Read an attribute of the file's own structure: integers, of this shape.

        Raises
        ------
        ValueError
            It is not as structure has it.

        """
        kind, attr = self.attribute(name)
        out: Array = np.empty(shape, np.int32)
        if attr.get_storage_size() != kind.nbytes * out.size:
            message = f"its attribute {name!r} has the shape {attr.shape}, not {shape}"
            raise ValueError(message)
        attr.read(out, mtype=_INT32)
        found: list[int] = out.reshape(-1).tolist()
        return found


class Group(Owner):
    """An open group."""

    __slots__ = ()

    def links(self) -> list[tuple[bytes, int, int]]:
        """Return its links in the file's order: name, type, and a hard one's address."""
        ordered = self.plist.get_link_creation_order() & h5p.CRT_ORDER_TRACKED
        found: list[tuple[bytes, int, int]] = []

        def visit(name: bytes, info: Any) -> None:
            found.append((name, info.type, info.u))  # h5py uses one info for all

        index = _BY_CREATION if ordered else h5py.h5.INDEX_NAME
        self.id.links.iterate(visit, idx_type=index, info=True)
        return found


class Dataset(Owner):
    """An open dataset.

    Attributes
    ----------
    kind
        Its datatype.
    shape
        Its shape, without that of an array type; None if it has no dataspace.
    maxshape
        How far it can grow: None for an axis without a limit.

    """

    __slots__ = ("_is_scale", "kind", "maxshape", "shape")

    def __init__(self, file: File, oid: h5d.DatasetID) -> None:
        """Take an open handle."""
        super().__init__(file, oid)
        self.kind = file.kind(oid.get_type())
        space = oid.get_space()
        self._is_scale: bool | None = None
        self.shape: Shape | None = None
        self.maxshape: tuple[int | None, ...] = ()
        if space.get_simple_extent_type() != h5s.NULL:
            self.shape = space.get_simple_extent_dims()
            most = space.get_simple_extent_dims(True)
            self.maxshape = tuple(None if n == h5s.UNLIMITED else n for n in most)

    @property
    def is_scale(self) -> bool:
        """Whether it is a dimension scale."""
        if self._is_scale is None:
            self._is_scale = b"CLASS" in self.names and bool(h5ds.is_scale(self.id))
        return self._is_scale

    @property
    def chunks(self) -> Shape | None:
        """Its chunk shape, if it has one, without the shape of an array type."""
        if self.shape is None or self.plist.get_layout() != h5d.CHUNKED:
            return None
        chunks: Shape = self.plist.get_chunk()
        return chunks

    def plain(self, kind: Kind) -> Plain | None:
        """Say where its values lie as they are in memory by `kind`; None if HDF5 has to help.

        HDF5 has to help where it converts values, puts them together, or holds some back, as it may
        in a file that this process writes to.
        """
        file = self.file.id
        if (
            self.shape is None
            or not kind.memory.equal(kind.tid)
            or file.get_intent() != h5f.ACC_RDONLY
            or file.get_access_plist().get_driver() != h5fd.SEC2
        ):
            return None
        # HDF5 knows no offset of chunks, of virtual or compact values, and of those elsewhere.
        at, nbytes = self.id.get_offset(), kind.nbytes * math.prod(self.shape)
        is_whole = at is not None and self.id.get_storage_size() == nbytes
        return Plain(file.get_vfd_handle(), at) if is_whole else None

    @property
    def has_dimension_list(self) -> bool:
        """Whether dimension scales are attached to it."""
        return _DIMENSION_LIST in self.names

    def labels(self) -> list[str]:
        """Return the labels of its axes, empty where there are none.

        Raises
        ------
        ValueError, OSError
            They are damaged.

        """
        if _DIMENSION_LABELS not in self.names:
            return [""] * len(self.shape or ())
        found: list[str] = [bytes(label or b"").decode() for label in self._of_axes()]
        return found

    def _of_axes(self) -> list[Any]:
        """Read the labels by h5py: HDF5's own reading of what is damaged ends the process."""
        kind, attr = self.attribute(_DIMENSION_LABELS)
        self._check_axes(_DIMENSION_LABELS, attr.shape, is_right=kind.is_text)
        out: Array = np.empty(attr.shape, object)
        attr.read(out, mtype=kind.memory)
        return list(out)

    def scales(self) -> list[list[h5d.DatasetID]]:
        """Return the dimension scales of each axis.

        Raises
        ------
        ValueError, RuntimeError, OSError
            They are damaged.

        """
        if not self.has_dimension_list:
            return [[] for _ in self.shape or ()]
        # By h5py, as the labels. What of HDF5's types it does not know is left to HDF5.
        attr = h5a.open(self.id, _DIMENSION_LIST)
        tid = attr.get_type()
        try:
            to = h5py.check_vlen_dtype(tid.dtype)
        except TypeError:
            return self._scales_by_hdf5()
        is_right = to is not None and h5py.check_ref_dtype(to) is h5py.Reference
        self._check_axes(_DIMENSION_LIST, attr.shape, is_right=is_right)
        out: Array = np.empty(attr.shape, tid.dtype)
        attr.read(out)
        return [
            [h5r.dereference(one, self.id) for one in (() if axis is None else axis) if one]
            for axis in out
        ]

    def _scales_by_hdf5(self) -> list[list[h5d.DatasetID]]:
        """Return the dimension scales of each axis, as HDF5 knows them."""
        found: list[list[h5d.DatasetID]] = [[] for _ in self.shape or ()]
        for axis, inner in enumerate(found):
            if h5ds.get_num_scales(self.id, axis) > 0:
                h5ds.iterate(self.id, axis, inner.append, 0)
        return found

    def _check_axes(self, name: bytes, shape: Shape | None, *, is_right: bool) -> None:
        """Refuse an attribute that does not have a value of the right type for each axis."""
        if not is_right or shape != (len(self.shape or ()),):
            message = f"its attribute {name.decode()} is not one of {len(self.shape or ())} axes"
            raise ValueError(message)


def opened(file: File, above: Any, name: bytes, address: int) -> Owner:
    """Open what a hard link leads to: a `Group`, a `Dataset`, or an `Owner` for a committed type.

    An object that has been opened already, under whichever name, is not opened again.
    """
    known = file.objects.get(address)
    if known is None:
        oid = h5o.open(above, name)
        if isinstance(oid, h5d.DatasetID):
            known = Dataset(file, oid)
        else:
            known = Group(file, oid) if isinstance(oid, h5g.GroupID) else Owner(file, oid)
        file.objects[address] = known
    return known


def joined(at: str, name: str) -> str:
    """Return the path of a member of a group."""
    return f"{at}/{name}" if at else name


def filters(plist: Any) -> Iterator[tuple[int, int, tuple[int, ...], bytes]]:
    """Yield a dataset's filters: code, flags, values, name."""
    for place in range(plist.get_nfilters()):
        yield plist.get_filter(place)
