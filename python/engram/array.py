"""Arrays: read by indexing, written in place, viewed on the pool's own memory."""

import math
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, DTypeLike, NDArray

from engram import _engram, kept, times, tokens
from engram.decoded import Decoded
from engram.errors import ArgumentError, BusyError
from engram.handle import Handle, makers
from engram.selection import field_names

if TYPE_CHECKING:
    from engram._engram import _New
    from engram.index import IndexMode

_BYTE = np.dtype(np.uint8)

_SURELY_APART = 64 << 10
"""An array of so many bytes lies in memory of its own, whatever the pool."""

# How often a write in place that has begun is tried again, every millisecond, while it is busy.
PATIENCE = 1000


class Array(Handle, NDArrayOperatorsMixin):
    """An array in a pool, of any fixed-size numpy dtype, or of variable-length strings.

    `a[...]`, `a[2:5, ::2]`, `a[mask]` copy out; `a[2:5] = y`, `a[mask] = y` write in place;
    `a.view()` is a numpy array on the pool's own memory, and so is `numpy.asarray(a)`, read-only.
    `a + 1`, `a < b` and numpy's functions of elements compute on that, and give arrays of numpy;
    `a += 1` writes in place. `a == b` asks whether both are the same array in the pool:
    numpy.equal compares values.

    In-place writes are neither atomic nor isolated: another process may see half of one. `create`,
    replacing, `allocate` and batches are.
    """

    __slots__ = ("_dtype", "_shape")

    _kind = 1

    def __init__(
        self, namespace: _engram.Namespace, oid: int, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        self._namespace = namespace
        self._id = oid
        self._dtype = dtype
        self._shape = shape

    @property
    def oid(self) -> int:
        """The object's id: unique in the pool, and never used again."""
        return self._id

    @property
    def index(self) -> "IndexMode":
        """When its attributes come into the index: "sync", "async" or "none"."""
        return _engram.object_info(self._namespace, self._id).index

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype; `numpy.dtypes.StringDType()` for strings of variable length."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape; () for a single value."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the value; with strings of variable length, as they are kept."""
        if self._dtype.kind == "T":
            return _engram.object_info(self._namespace, self._id).nbytes
        return self._dtype.itemsize * self.size

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of a chunk; None for an array in one piece (contiguous)."""
        return None

    @property
    def codec(self) -> str | None:
        """How each chunk is encoded; None for an array in one piece."""
        return None

    @property
    def stored_nbytes(self) -> int:
        """Bytes that the value takes in the pool, as it is encoded and laid out."""
        return _engram.stored_nbytes(self._namespace, self._id)

    @property
    def dims(self) -> tuple[str, ...] | None:
        """The dimensions' names, if they were given any."""
        dims = _engram.object_info(self._namespace, self._id).dims
        return None if dims is None else tuple(dims)

    def __getitem__(self, key: Any) -> Any:
        """Copy out what `key` selects: any index that numpy takes.

        Raises
        ------
        NotFoundError
            If the array was deleted or replaced.
        IndexError
            If the index is out of bounds.

        """
        if key is Ellipsis:
            return _engram.read(self._namespace, self._id, self._dtype, self._shape)
        if self._dtype.kind == "T":
            return _engram.read(self._namespace, self._id, self._dtype, self._shape)[key]
        whole = _engram.view(self._namespace, self._id, self._dtype, self._shape, False)
        part = whole[key]
        if isinstance(part, np.void) or (
            isinstance(part, np.ndarray) and np.may_share_memory(part, whole)
        ):
            part = part.copy()
        return part

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write in place what `key` selects: any index that numpy takes, names of fields as well.

        The rules are numpy's: `value` is broadcast, and of a place that a list names twice the last
        value stays.

        Raises
        ------
        BusyError
            If the array was deleted or replaced meanwhile, and nothing is written; or if it is on
            its way to another scope, and what was written may not be kept.
        ArgumentError
            If `value` does not fit.
        IndexError
            If the index is out of bounds.
        ReadOnlyError
            If the pool was opened with mode "r".

        """
        try:
            value = self._converted(key, value, len(self._shape))
        except (ValueError, TypeError, OverflowError) as error:
            raise self._unfit(key, error) from error
        patience = 0
        while True:
            array, written = self._opened_for_write(patience)
            try:
                array[key] = value
            except (ValueError, TypeError, OverflowError) as error:
                raise self._unfit(key, error) from error
            if not array.nbytes or written.settle(array):
                return
            # Some of it may have been written: it is not given up lightly any more.
            patience = PATIENCE

    def _opened_for_write(self, patience: int) -> tuple[NDArray[Any], _engram.Written]:
        """Open the value to be written, again every millisecond while it is busy."""
        while True:
            try:
                return _engram.open_for_write(self._namespace, self._id, self._dtype, self._shape)
            except BusyError:
                if not patience:
                    raise
            patience -= 1
            time.sleep(0.001)

    def _converted(self, key: Any, value: Any, ndim: int) -> NDArray[Any]:
        return converted(self._dtype, key, value, ndim)

    def _unfit(self, key: Any, error: Exception) -> ArgumentError:
        return ArgumentError(
            f"the value does not fit into [{key}] of an array of shape {self.shape} and dtype "
            f"{self._dtype}: {error}"
        )

    def view(self, mode: str = "r") -> NDArray[Any]:
        """Give a numpy array on the pool's own memory.

        It keeps that memory whatever happens to the object, here or in another process, until the
        last array on it is gone. Writes through a view of mode "r+" are seen by all at once;
        `flush` makes them durable. A small array that lies in the catalog (some KiB) is copied out
        for "r", and moved to memory of its own first for "r+".

        Raises
        ------
        NotFoundError
            If the array was deleted or replaced (for "r+", `BusyError`).
        ReadOnlyError
            For "r+", if the pool was opened with mode "r".
        ArgumentError
            If `mode` is neither "r" nor "r+", or the strings are of variable length.

        """
        if mode not in {"r", "r+"}:
            raise ArgumentError(f'mode {mode!r} is unknown: use "r" or "r+"')
        return _engram.view(self._namespace, self._id, self._dtype, self._shape, mode == "r+")

    def decoded(self) -> Decoded:
        """Give the values as the array's attributes describe them; nothing is read yet.

        The CF conventions say how: `scale_factor` and `add_offset` are applied; missing values
        (`_FillValue`, `missing_value`, outside `valid_range`) are NaN; numbers of "days since" some
        day are times. Without such attributes they are the values that are stored.

        Raises
        ------
        ArgumentError
            If the values are times whose units or calendar cannot be told.

        """
        return Decoded(self)

    def resize(self, shape: int | Sequence[int]) -> None:
        """Refuse: an array in one piece keeps its shape; a chunked one (`chunks=`) need not.

        Raises
        ------
        ArgumentError
            Always.

        """
        raise self._one_piece(f"resized to {shape}")

    def append(self, data: ArrayLike, axis: int = 0) -> tuple[int, ...]:
        """Refuse, as `resize` does.

        Raises
        ------
        ArgumentError
            Always.

        """
        del data
        raise self._one_piece(f"appended to along axis {axis}")

    def _one_piece(self, what: str) -> ArgumentError:
        return ArgumentError(
            f"{self.path!r} lies in one piece, and cannot be {what}: store it in chunks, with "
            "create_array(name, data=data, chunks=True, overwrite=True)"
        )

    def flush(self) -> None:
        """Make all in-place writes so far as durable as the pool is.

        Raises
        ------
        BusyError
            If the array was deleted or replaced meanwhile.

        """
        _engram.flush(self._namespace, self._id)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Without a copy, where that can be: read-only, on the pool's own memory."""
        text = self._dtype.kind == "T"
        if copy is False and text:
            raise ArgumentError("strings cannot be had without a copy: leave copy=False out")
        if copy is False and _engram.object_info(self._namespace, self._id).inline:
            raise ArgumentError(
                "this array lies in the catalog and cannot be had without a copy: leave copy=False "
                'out, or use view("r+"), which moves it'
            )
        array = self[...] if copy or text else self.view()
        if dtype is None or np.dtype(dtype) == self._dtype:
            return array
        if copy is False:
            raise ArgumentError(f"dtype {self._dtype} cannot be had as {dtype} without a copy")
        return array.astype(dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The memory, for libraries that know numpy's interface: read-only, pinned in use.

        Raises
        ------
        AttributeError
            Where there is no memory to share: of small arrays, strings, records and chunks.

        """
        dtype = self._dtype
        nbytes = dtype.itemsize * math.prod(self._shape)
        if dtype.kind not in "biufcmMSU" or not nbytes:
            raise AttributeError(f"an array of {dtype} and {nbytes} bytes has none")
        if nbytes < _SURELY_APART and _engram.object_info(self._namespace, self._id).inline:
            raise AttributeError("an array that lies in the catalog has no __array_interface__")
        # The memory itself, not its address: whoever uses it holds the claim on it.
        memory = _engram.view(self._namespace, self._id, _BYTE, (nbytes,), False)
        return {"version": 3, "typestr": dtype.str, "shape": self._shape, "data": memory}

    def __dlpack__(self, **options: Any) -> Any:
        """Give the values to a library that knows DLPack: the pool's own memory, read-only.

        Raises
        ------
        BufferError
            If the dtype is none of DLPack's, the library cannot take memory that is read-only, or
            it wants no copy of what lies in the catalog or in chunks.

        """
        try:
            array = self.__array__(copy=False if options.get("copy") is False else None)
        except ArgumentError as error:
            raise BufferError(str(error)) from error
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Tell DLPack where the values are: in memory of the CPU."""
        return (1, 0)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute on the values, with `out` written in place."""
        out = options.get("out", ())
        if method == "at" and isinstance(inputs[0], Array):
            return _computed(ufunc, method, (inputs[0].view("r+"), *inputs[1:]), options)
        if not any(isinstance(one, Array) for one in out):
            return _computed(ufunc, method, inputs, options)
        if len(out) > 1 or method not in {"__call__", "accumulate", "reduce"}:
            raise ArgumentError(
                f"{ufunc.__name__} cannot write into an array in a pool by {method!r} with "
                f"{len(out)} outputs: write into its view('r+')"
            )
        (target,) = out
        found = _computed(ufunc, method, inputs, {**options, "out": (np.array(target),)})
        target[...] = found
        return target

    def __ne__(self, other: object) -> bool:
        return not self == other

    __eq__ = Handle.__eq__
    __hash__ = Handle.__hash__

    def __dask_tokenize__(self) -> object:
        """By what name dask knows the values: the same one for as long as they cannot change."""
        # Strings that are written are put anew, all of them.
        return tokens.of_object(self._namespace, self._id, is_kept=self._dtype.kind == "T")

    def __len__(self) -> int:
        if not self._shape:
            raise ArgumentError("a single value (shape ()) has no length")
        return self._shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._shape:
            raise ArgumentError("a single value (shape ()) cannot be iterated: read it with [()]")
        return iter(self[...])

    def __repr__(self) -> str:
        return self._shown(f"{self._shape} {self._dtype}")


makers[1] = Array


def _computed(ufunc: np.ufunc, method: str, inputs: Any, options: dict[str, Any]) -> Any:
    """Have numpy compute on the values of arrays; other libraries' own rules hold for theirs."""
    plain = [np.asarray(one) if isinstance(one, Array) else one for one in inputs]
    where = options.get("where")
    if isinstance(where, Array):
        options = {**options, "where": np.asarray(where)}
    return getattr(ufunc, method)(*plain, **options)


def converted(dtype: np.dtype[Any], key: Any, value: Any, ndim: int) -> NDArray[Any]:
    """Make of `value` what can be copied to `[key]` item by item without a refusal.

    So a value that is refused has written nothing, and no code of the value's own runs between
    the look-up of the object and the write. What copies safely as it is, is not copied here.
    """
    if dtype.names and field_names(key):
        dtype = dtype[key].base
    times.check("the value", value, dtype)
    if type(value) is not np.ndarray:
        kept.check_given("the value", value)
    if not isinstance(value, np.ndarray) and _is_item(key, ndim):
        item = np.empty(1, dtype)
        item[0] = value
        return item.reshape(())
    if isinstance(value, Array):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and _copies_safely(value.dtype, dtype):
        return value
    return np.asarray(value, dtype)


def _is_item(key: Any, ndim: int) -> bool:
    """Whether a basic index selects a single item, and not a part."""
    parts = key if isinstance(key, tuple) else (key,)
    return len(parts) == ndim and all(isinstance(part, int | np.integer) for part in parts)


def _copies_safely(given: np.dtype[Any], kept: np.dtype[Any]) -> bool:
    """Whether every item of one dtype can be written as one of the other."""
    if given == kept:
        return not given.hasobject or given.kind == "T"
    numbers = given.kind in "biufc" and kept.kind in "biufc"
    return (numbers or given.kind == kept.kind in "SU") and np.can_cast(given, kept)


class Allocation:
    """Space for an array that is being filled: a with-block that publishes it, or gives it back.

    Inside the block its target is a writable numpy array on the pool's own memory, which holds
    anything at first. If the block ends, the array is published under its name, whole, and the
    target turns read-only; if it raises, there was never an array. (An array sliced from the target
    inside the block stays writable, as a view of mode "r+" is.)
    """

    __slots__ = ("_native", "_new", "_target")

    def __init__(self, namespace: _engram.Namespace, group: int, path: str, new: "_New") -> None:
        self._target = (namespace, group, path)
        self._new = new
        self._native: _engram.Allocation | None = None

    def __enter__(self) -> NDArray[Any]:
        if self._native is not None:
            raise ArgumentError("this allocation is in use: call allocate() once for each block")
        self._native = _engram.allocate(*self._target, self._new)
        return self._native.array

    def _is_new(self, offset: int, nbytes: int) -> bool:
        """Whether so many bytes are better made elsewhere, and then stored, than made there.

        This process has not come to those pages yet, and each would cost it a fault.
        """
        return self._native is not None and self._native.is_new(offset, nbytes)

    def _store(self, offset: int, values: NDArray[Any]) -> None:
        """Copy the bytes of a contiguous array to an offset of the target, in bytes."""
        assert self._native is not None  # noqa: S101 - within the block
        self._native.store(offset, values.reshape(-1).view(np.uint8))

    def _read(self, offset: int, file: int, at: int, nbytes: int) -> int:
        """Copy bytes of a file, from its byte `at` on, to an offset of the target; return how many.

        There are fewer where the file ends. `file` is an open descriptor.
        """
        assert self._native is not None  # noqa: S101 - within the block
        return self._native.read(offset, file, at, nbytes)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        native, self._native = self._native, None
        if native is None:
            return
        namespace, _, path = self._target
        if kind is None and namespace.is_open:
            native.publish()
            return
        native.abandon()
        if kind is None:
            raise ArgumentError(
                f"{path!r} was not published: the pool {str(namespace.pool_path)!r} was closed "
                "inside the block; close it after"
            )
