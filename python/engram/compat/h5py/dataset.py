"""Datasets: arrays of a pool, seen as h5py shows them.

What is read is a copy, as there. What a dtype of the pool does not say is looked up once, when it
is first needed: `f["x"][...]` asks for the name, for what is said of the object, and for its value.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from engram import _engram
from engram.batch import Batch
from engram.compat.h5py import dtypes, links, storage, values, views, words
from engram.compat.h5py.base import Empty, HLObject, text_of
from engram.compat.h5py.dims import DimensionManager, scale_name, scales_of
from engram.compat.h5py.errors import BeyondError, NoWriteError
from engram.compat.h5py.refused import LOW_LEVEL, refuse
from engram.compat.h5py.selection import Selected, fields_and_rest, select, spread
from engram.errors import ArgumentError, ReadOnlyError
from engram.formats import origin
from engram.handle import make
from engram.member import new_member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.array import Array
    from engram.compat.h5py.file import File

Shape = tuple[int, ...]

_PIECE_BYTES = 8 << 20
"""Fill values are written, and rows iterated, so many bytes at a time."""


class Kind(NamedTuple):
    """What a dataset's values are.

    Attributes
    ----------
    dtype
        As h5py calls it.
    item
        The dtype of one item, without an array type's axes.
    inner
        The axes of an array type.
    is_null
        Whether there is no dataspace.
    is_text
        Whether they are strings of variable length.
    is_plain
        Whether they are as the pool has them, and h5py too.

    """

    dtype: np.dtype[Any]
    item: np.dtype[Any]
    inner: Shape
    is_null: bool
    is_text: bool
    is_plain: bool


class Dataset(HLObject):
    """A dataset: an array of the pool, read and written by h5py's rules."""

    __slots__ = ("_array", "_kind")

    _is_group = False

    def __init__(self, file: File, array: Array) -> None:
        self._file = file
        self._array = array
        self._id = array._id
        self._kind: Kind | None = None

    # What it is

    @property
    def _now(self) -> Array:
        """The array; of one that was put anew to have another shape, the new one."""
        moved = self._file._moved
        if moved and self._id in moved:
            self._follow()
        return self._array

    def _follow(self) -> None:
        while self._id in self._file._moved:
            self._id = self._file._moved[self._id]
        info = _engram.object_info(self._namespace, self._id)
        found = _engram.find(self._namespace, info.parent, info.name)
        if found is not None:
            self._array = make(self._namespace, found)

    def _look(self) -> Kind:
        """Look up what the values are."""
        array = self._now
        try:
            raw = _engram.object_info(array._namespace, self._id).origin
        except ArgumentError as error:
            raise self._file._told(error) from error
        self._kind = _kind_of(array._dtype, words.as_hdf5(origin.decode(raw)) if raw else {})
        return self._kind

    def _words(self) -> words.Words:
        array = self._now
        return words.of_object(array._namespace, self._id)

    def _say(self, **said: Any) -> None:
        array = self._now
        try:
            words.change_object(array._namespace, self._id, **said)
        except ReadOnlyError as error:
            raise NoWriteError(str(error)) from error

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        return (self._kind or self._look()).dtype

    @property
    def shape(self) -> Any:
        """The shape; None where there is no dataspace."""
        self._file._check()
        kind = self._kind or self._look()
        if kind.is_null:
            return None
        shape = self._now.shape
        return shape[: len(shape) - len(kind.inner)] if kind.inner else shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        self.resize(shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        shape = self.shape
        return 0 if shape is None else len(shape)

    @property
    def size(self) -> Any:
        """The number of items; None where there is no dataspace."""
        shape = self.shape
        return None if shape is None else math.prod(shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all items."""
        size = self.size
        return 0 if size is None else self.dtype.itemsize * int(size)

    @property
    def chunks(self) -> Shape | None:
        """The shape of a chunk; None if it is not in chunks."""
        told = self._words().get("chunks")
        if isinstance(told, list) and len(told) == self.ndim:
            return tuple(told)
        found = self._now.chunks
        return None if found is None else found[: self.ndim]

    @property
    def maxshape(self) -> Any:
        """The shape up to which it can be resized: None for an axis without an end."""
        shape = self.shape
        if shape is None:
            return None
        said = self._words()
        told = said.get("maxshape")
        if isinstance(told, list) and len(told) == len(shape):
            return tuple(told)
        if not said and self._now.chunks is not None:  # engram's own, which grow anywhere
            return (None,) * len(shape)
        return shape

    @property
    def compression(self) -> str | None:
        """The compression that was asked for; None for none."""
        return storage.compression_of(self._words())[0]

    @property
    def compression_opts(self) -> Any:
        """How the compression was asked for."""
        return storage.compression_of(self._words())[1]

    @property
    def shuffle(self) -> bool:
        """Whether the shuffle filter was asked for."""
        return storage.SHUFFLE in storage.filters_of(self._words())

    @property
    def fletcher32(self) -> bool:
        """Whether checksums were asked for."""
        return storage.FLETCHER32 in storage.filters_of(self._words())

    @property
    def scaleoffset(self) -> int | None:
        """The setting of the scale-offset filter; None for none."""
        found = storage.filters_of(self._words()).get(storage.SCALEOFFSET)
        return None if found is None else found[1]

    @property
    def filter_ids(self) -> tuple[int, ...]:
        """HDF5's numbers of the filters that were asked for."""
        return tuple(storage.filters_of(self._words()))

    @property
    def filter_names(self) -> tuple[str, ...]:
        """HDF5's names of the filters that were asked for."""
        return tuple(storage.FILTER_NAMES.get(code, str(code)) for code in self.filter_ids)

    @property
    def external(self) -> None:
        """None: a pool's arrays lie in the pool."""
        return

    @property
    def is_virtual(self) -> bool:
        """False: a pool has no virtual datasets."""
        return False

    def virtual_sources(self) -> NoReturn:
        """Refuse: it has none.

        Raises
        ------
        RuntimeError
            Always.

        """
        raise RuntimeError("Not a virtual dataset: a pool has none")

    @property
    def fillvalue(self) -> Any:
        """What stands where nothing was written."""
        kind = self._kind or self._look()
        found = _fill_of(self._words(), kind)
        if found is not None:
            return found
        return b"" if kind.is_text else np.zeros((1,), kind.item)[0]

    @property
    def dims(self) -> DimensionManager:
        """The dimensions: labels and scales."""
        return DimensionManager(self)

    @property
    def is_scale(self) -> bool:
        """Whether it is a dimension scale."""
        return scale_name(self) is not None

    def make_scale(self, name: Any = "") -> None:
        """Make it a dimension scale.

        Raises
        ------
        RuntimeError
            If it has scales itself.

        """
        if any(scales_of(self)):
            raise RuntimeError(f"{self!r} has scales, and so cannot be one")
        self._say(scale=text_of(name))

    # Reading

    def __getitem__(self, args: Any, new_dtype: Any = None) -> Any:
        kind = self._kind or self._look()
        if kind.is_plain and new_dtype is None:
            if args is Ellipsis:
                return np.asarray(self._whole())
            if args.__class__ is tuple and not args:
                return self._whole()[()]
        args = args if isinstance(args, tuple) else (args,)
        names, args = fields_and_rest(args)
        found = self._selected(args, kind)
        if names:
            prior = new_dtype or kind.dtype
            found = views.converted(found, views.fields_dtype(prior, list(names)))
            return found[names[0]] if len(names) == 1 else found
        return found if new_dtype is None else _converted(found, kind, np.dtype(new_dtype))

    def _whole(self) -> Any:
        try:
            return self._now[...]
        except ArgumentError as error:
            raise self._file._told(error) from error

    def _selected(self, args: tuple[Any, ...], kind: Kind) -> Any:
        if kind.is_null:
            if not _is_all(args):
                raise ValueError("Empty datasets cannot be sliced: read it with [()]")
            return Empty(kind.dtype)
        shape = self.shape
        if shape:
            return self._read(select(args, shape), kind)
        if kind.inner and not _is_all(args):
            raise ValueError("Illegal slicing argument for scalar dataspace: read it with [()]")
        return self._read(Selected((), (), True), kind) if kind.inner else self._single(args, kind)

    def _single(self, args: tuple[Any, ...], kind: Kind) -> Any:
        if not _is_all(args):
            raise ValueError("Illegal slicing argument for scalar dataspace: read it with [()]")
        found = self._whole()
        if kind.is_text:
            item = str(found[()] if isinstance(found, np.ndarray) else found).encode()
            return item if not args else np.array(item, dtype=object)
        return np.asarray(found) if args else found[()]

    def _read(self, selected: Selected, kind: Kind) -> Any:
        """Read what is selected, as h5py gives it."""
        try:
            found = selected.of(self._now)
        except ArgumentError as error:
            raise self._file._told(error) from error
        return values.as_objects(found) if kind.is_text else found

    def astype(self, dtype: Any) -> Any:
        """Give a view that reads as another dtype.

        Raises
        ------
        TypeError
            If strings are asked for of what has none.

        """
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        if wanted.kind == "T" and dtypes.check_string_dtype(self.dtype) is None:
            raise TypeError(
                f"dset.astype({wanted}) can only be used on datasets with an HDF5 string datatype"
            )
        return views.AsTypeView(self, wanted)

    def asstr(self, encoding: str | None = None, errors: str = "strict") -> views.AsStrView:
        """Give a view that reads strings as `str`.

        Raises
        ------
        TypeError
            If it has no strings.

        """
        info = dtypes.check_string_dtype(self.dtype)
        if info is None:
            raise TypeError(
                "dset.asstr() can only be used on datasets with an HDF5 string datatype"
            )
        return views.AsStrView(self, encoding or info.encoding, errors)

    def fields(self, names: Any, *, _prior_dtype: Any = None) -> views.FieldsView:
        """Give a view that reads some fields of records."""
        return views.FieldsView(self, _prior_dtype or self.dtype, names)

    def iter_chunks(self, sel: Any = None) -> Iterator[tuple[slice, ...]]:
        """Yield the places of chunks, or of those parts of them that a selection has."""
        return views.chunks_of(self, sel)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Read all of it.

        Raises
        ------
        ValueError
            If it is not to be copied.
        TypeError
            If there is no dataspace.

        """
        if copy is False:
            raise ValueError("memory allocation cannot be avoided on read: leave copy=False out")
        found = self[...]
        if isinstance(found, Empty):
            raise TypeError("Empty datasets have no numpy representation")
        return np.asarray(found if dtype is None else views.converted(found, np.dtype(dtype)))

    def read_direct(self, dest: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read into an array that is there.

        Raises
        ------
        TypeError
            If there is no dataspace, the array cannot be written, or the parts do not fit.

        """
        if self.shape is None:
            raise TypeError("Empty datasets have no numpy representation")
        if not dest.flags.c_contiguous or not dest.flags.writeable:
            raise TypeError("the array to read into must be C-contiguous and writable")
        kind = self._kind or self._look()
        if source_sel is None and dest_sel is None and kind.is_plain and self._now.chunks is None:
            source: Any = self._now.view()
        else:
            source = np.asarray(self[() if source_sel is None else source_sel])
        if dest_sel is None:
            place: Selected = select((), dest.shape)
        else:
            place = select(dest_sel if isinstance(dest_sel, tuple) else (dest_sel,), dest.shape)
        shape = spread(source.shape, place)
        source = source if shape is None else source.reshape(shape)
        place.put(dest, values.fitted(source, dest.dtype))

    def len(self) -> int:
        """Give the length of the first axis."""
        return len(self)

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("Attempt to take len() of scalar dataset")
        return int(shape[0])

    def __iter__(self) -> Iterator[Any]:
        shape = self.shape
        if not shape:
            raise TypeError("Can't iterate over a scalar dataset")
        row = (
            self.dtype.itemsize
            * math.prod(shape[1:])
            * math.prod((self._kind or self._look()).inner)
        )
        step = shape[0] if self.dtype.kind == "O" else max(1, _PIECE_BYTES // max(1, row))
        for start in range(0, shape[0], max(1, step)):
            yield from self[start : start + step]

    # Writing

    def __setitem__(self, args: Any, value: Any) -> None:
        kind = self._kind or self._look()
        names, args = fields_and_rest(args if isinstance(args, tuple) else (args,))
        if kind.is_null:
            raise OSError("an Empty dataset cannot be written to: create it anew, with a shape")
        shape = self.shape
        if shape:
            selected = select(args, shape)
        elif _is_all(args):
            selected = Selected((), (), is_basic=True)
        else:
            raise ValueError("Illegal slicing argument for scalar dataspace: write it with [()]")
        names = names or _other_fields(value, kind.item)
        try:
            if names:
                self._write_fields(names, selected, value, kind)
            else:
                self._write(selected, value, kind)
        except ReadOnlyError as error:
            raise NoWriteError(str(error)) from error

    def _write(self, selected: Selected, value: Any, kind: Kind) -> None:
        kept = values.written(value, kind.dtype if kind.is_text else kind.item)
        inner = kind.inner
        if inner and kept.shape[-len(inner) :] != inner:
            raise TypeError(
                f"When writing to array types, last N dimensions have to match (got {kept.shape}, "
                f"but should end with {inner})"
            )
        outer = kept.shape[: len(kept.shape) - len(inner)]
        if inner and not outer and selected.shape:
            raise TypeError("Scalar broadcasting is not supported for array dtypes")
        shape = spread(outer, selected)
        kept = kept if shape is None else kept.reshape((*shape, *inner))
        array = self._now
        try:
            selected.put(array, kept)
        except ArgumentError as error:
            raise self._file._told(error) from error
        self._file._note(array)

    def _write_fields(
        self, names: tuple[str, ...], selected: Selected, value: Any, kind: Kind
    ) -> None:
        """Write some fields of what is selected."""
        if kind.item.names is None:
            raise TypeError("Illegal slicing argument (not a compound dataset)")
        missing = [name for name in names if name not in kind.item.names]
        if missing:
            raise ValueError(f"Illegal slicing argument (fields {missing} not in dataset type)")
        array = self._now
        part = selected.of(array)
        given = np.asarray(value) if isinstance(value, np.ndarray | np.void) else None
        if given is not None and given.dtype.names is not None:
            for name in (name for name in given.dtype.names if name in names):
                part[name] = values.fitted(given[name], kind.item[name].base)
        elif len(names) == 1:
            part[names[0]] = values.written(value, kind.item[names[0]].base)
        else:
            given = np.asarray(value, views.fields_dtype(kind.item, list(names)))
            for name in names:
                part[name] = given[name]
        selected.put(array, part)
        self._file._note(array)

    def write_direct(self, source: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Write of an array.

        Raises
        ------
        TypeError
            If there is no dataspace, or the parts do not fit.

        """
        if self.shape is None:
            raise TypeError("Empty datasets cannot be written to")
        if not source.flags.c_contiguous:
            raise TypeError("the array to write must be C-contiguous")
        given = () if source_sel is None else source_sel
        place = select(given if isinstance(given, tuple) else (given,), source.shape)
        self[() if dest_sel is None else dest_sel] = place.of(source)

    def resize(self, size: Any, axis: int | None = None) -> None:
        """Give it another shape, or another length along one axis.

        Raises
        ------
        TypeError
            If it is not in chunks, or the length is no number.
        RuntimeError
            If that is beyond `maxshape`.

        """
        if self.chunks is None:
            raise TypeError(
                "Only chunked datasets can be resized: create it with maxshape=, or chunks=True"
            )
        old = self.shape
        if axis is not None:
            if not 0 <= axis < len(old):
                raise ValueError(f"Invalid axis (0 to {len(old) - 1} allowed)")
            try:
                length = int(size)
            except TypeError:
                raise TypeError("Argument must be a single int if axis is specified") from None
            size = (*old[:axis], length, *old[axis + 1 :])
        new = tuple(int(n) for n in ((size,) if isinstance(size, int | np.integer) else size))
        storage.check_within(new, self.maxshape)
        if new == old:
            return
        try:
            if self.maxshape == old:  # which was nowhere said, and is no longer what it was
                self._say(maxshape=list(old))
            self._resize(old, new)
        except ReadOnlyError as error:
            raise NoWriteError(str(error)) from error

    def _resize(self, old: Shape, new: Shape) -> None:
        kind, said = self._kind or self._look(), self._words()
        fill = _fill_of(said, kind)
        if self._now.chunks is None:
            self._put_anew(old, new, kind, said)
        else:
            self._now.resize((*new, *kind.inner))
        if fill is None or (not kind.is_text and not np.any(fill != np.zeros((), kind.item))):
            return
        start = list(old)
        for axis, length in enumerate(new):
            if length > start[axis]:
                place = [slice(0, n) for n in (*new[:axis], 0, *start[axis + 1 :])]
                place[axis] = slice(start[axis], length)
                fill_in(self, tuple(place), fill)
            start[axis] = length

    def _put_anew(self, old: Shape, new: Shape, kind: Kind, said: words.Words) -> None:
        """Put what lies in one piece anew in another shape: in chunks, but for strings."""
        array = self._now
        info = _engram.object_info(array._namespace, self._id)
        common = tuple(slice(0, min(a, b)) for a, b in zip(old, new, strict=True))
        chunks = said.get("chunks")
        layout = (
            {}
            if kind.is_text
            else {
                "chunks": (*(chunks or self.chunks or ()), *kind.inner),
                "codec": storage.codec_of(_filter_list(said)),
            }
        )
        new_array = new_member(
            shape=(*new, *kind.inner),
            dtype=array._dtype,
            attrs=dict(array.attrs),
            dims=info.dims,
            overwrite=True,
            scope=info.scope,
            origin=info.origin,
            **layout,  # type: ignore[arg-type]  # of two kinds
        )
        before = self._id
        kept = array[common]
        with Batch(array._namespace):
            if kind.is_text:
                data = np.full(new, "", array._dtype)
                data[common] = kept
                place = (array._namespace, info.parent, info.name)
                _engram.put_array(*place, data, new_array)
            else:
                place = (array._namespace, info.parent, info.name)
                made = _engram.put_array(*place, None, new_array)
                make(array._namespace, made)[common] = kept
        found = _engram.find(array._namespace, info.parent, info.name)
        if found is None:
            raise BeyondError(f"{info.name!r} is gone: somebody deleted it while it was resized")
        self._array, self._id = make(array._namespace, found), found[1]
        words.carry(
            array._namespace, info.parent, before, (array._namespace, info.parent, self._id)
        )
        self._file._replaced(before, self._id)

    def refresh(self) -> None:
        """Do nothing: what others have written is seen at once."""
        self._kind = None

    def flush(self) -> None:
        """Make what was written as durable as the pool is."""
        self._now.flush()

    @property
    def collective(self) -> NoReturn:
        """Refused: each process writes as it is."""
        refuse("Dataset.collective", "any number of processes write at once; leave the block out")

    # Where it is

    def _path_here(self) -> str:
        """Return the path from where its file's begin: the group that a file was imported into."""
        namespace = self._namespace
        root = links.imported_root(namespace, self._above(), self._file._id)
        path = _engram.path_of(namespace, self._is_group, self._id)
        above = _engram.path_of(namespace, True, root)
        return "/" + path[len(above) :].strip("/")

    def _at_imported(self, path: str) -> Dataset | None:
        """Return the dataset at such a path."""
        namespace = self._namespace
        root = links.imported_root(namespace, self._above(), self._file._id)
        found = self._file._way.find(root, path.lstrip("/"))
        made = None if found is None else self._file._made(found)
        return made if isinstance(made, Dataset) else None

    def _low_level(self, name: str) -> NoReturn:
        refuse(f"Dataset.{name}", LOW_LEVEL)

    def __repr__(self) -> str:
        if not self:
            return "<Closed HDF5 dataset>"
        name = self.name
        shown = "(anonymous)" if name is None else f'"{name.rpartition("/")[2]}"'
        if name is None:
            return f"<HDF5 dataset {shown}: gone>"
        return f'<HDF5 dataset {shown}: shape {self.shape}, type "{self.dtype.str}">'


def _converted(found: Any, kind: Kind, dtype: np.dtype[Any]) -> Any:
    """Return what was read as another dtype."""
    if isinstance(found, Empty):
        return Empty(dtype)
    if kind.is_text and dtype.kind in "TU":
        text = values.as_text(found).astype(dtype)
        return text if text.ndim else text[()]
    return views.converted(found, dtype)


def _is_all(args: tuple[Any, ...]) -> bool:
    """Whether an index selects all, whatever there is."""
    return not args or (len(args) == 1 and args[0] is Ellipsis)


def fill_in(dataset: Dataset, place: tuple[slice, ...], value: Any) -> None:
    """Write one value to a box, some rows at a time."""
    lengths = [part.stop - part.start for part in place]
    if 0 in lengths:
        return
    row = max(1, math.prod(lengths[1:]) * max(1, dataset.dtype.itemsize))
    step = max(1, _PIECE_BYTES // row)
    chunks = dataset.chunks
    if chunks:
        step = max(chunks[0], step - step % chunks[0])
    first = place[0]
    for start in range(first.start, first.stop, step):
        dataset[(slice(start, min(start + step, first.stop)), *place[1:])] = value


def _kind_of(dtype: np.dtype[Any], said: words.Words) -> Kind:
    """Return what values are, of the pool's dtype and an object's words."""
    told = said.get("type")
    is_null = said.get("dataspace") == "null"
    if not said and dtype.kind not in "TmM":
        return Kind(dtype, dtype, (), is_null=False, is_text=False, is_plain=True)
    inner: Shape = ()
    while isinstance(told, dict) and "array" in told:
        inner = (*inner, *told["array"])
        told = told.get("base")
    item = dtypes.told_dtype(dtype, told)
    is_text = dtype.kind == "T"
    whole = np.dtype((item, inner)) if inner else item
    is_plain = not (is_text or inner or is_null)
    return Kind(whole, item, inner, is_null, is_text, is_plain)


def fill_words(value: Any, kind: np.dtype[Any]) -> str:
    """Return a fill value as the words have it."""
    if dtypes.is_text(kind):
        return value.decode() if isinstance(value, bytes) else str(value)
    found = np.asarray(values.written(value, kind), kind.base)
    return base64.b64encode(found.reshape(-1)[:1].tobytes()).decode("ascii")


def _fill_of(said: words.Words, kind: Kind) -> Any:
    """Return the fill value that was given; None if there is none."""
    told = said.get("fill")
    if not isinstance(told, str):
        return None
    if kind.is_text:
        return told.encode()
    try:
        found = np.frombuffer(base64.b64decode(told), kind.item)
    except ValueError:
        return None
    return found[0] if len(found) else None


def _filter_list(said: words.Words) -> list[words.Words]:
    return [{"id": code, "values": list(v)} for code, v in storage.filters_of(said).items()]


def _other_fields(value: Any, dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the fields of records that are given by other names, or in another order."""
    given = getattr(value, "dtype", None)
    if dtype.names is None or given is None or given.names is None or given.names == dtype.names:
        return ()
    return tuple(name for name in given.names if name in dtype.names)
