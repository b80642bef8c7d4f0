"""Ways to read a dataset: as another dtype, as `str`, some fields of it, chunk by chunk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.compat.h5py import values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.compat.h5py.dataset import Dataset


class _View(ABC):
    """A way to read a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._dset = dataset

    def __len__(self) -> int:
        return len(self._dset)

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The dtype of what is read."""

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._dset.ndim

    @property
    def shape(self) -> Any:
        """The dataset's shape."""
        return self._dset.shape

    @property
    def size(self) -> Any:
        """The number of items."""
        return self._dset.size

    @abstractmethod
    def __getitem__(self, args: Any) -> Any: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Read all of it.

        Raises
        ------
        ValueError
            If it is not to be copied.

        """
        if copy is False:
            raise ValueError("memory allocation cannot be avoided on read: leave copy=False out")
        return np.asarray(self[()], dtype=dtype or self.dtype)


class AsTypeView(_View):
    """A dataset that is read as another dtype."""

    def __init__(self, dataset: Dataset, dtype: np.dtype[Any]) -> None:
        super().__init__(dataset)
        self._dtype = dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        """The other dtype."""
        return self._dtype

    def __getitem__(self, args: Any) -> Any:
        return self._dset.__getitem__(args, self._dtype)


class AsStrView(_View):
    """A dataset of strings that is read as `str`."""

    def __init__(self, dataset: Dataset, encoding: str, errors: str) -> None:
        super().__init__(dataset)
        self.encoding = encoding
        self.errors = errors

    @property
    def dtype(self) -> np.dtype[Any]:
        """Objects."""
        return np.dtype(object)

    def __getitem__(self, args: Any) -> Any:
        found = self._dset[args]
        if isinstance(found, bytes):
            return found.decode(self.encoding, self.errors)
        made = np.empty(found.shape, object)
        items = found.reshape(-1).tolist()
        made.reshape(-1)[:] = [item.decode(self.encoding, self.errors) for item in items]
        return made


class FieldsView(_View):
    """Some fields of a dataset of records."""

    def __init__(self, dataset: Dataset, prior: np.dtype[Any], names: Any) -> None:
        super().__init__(dataset)
        self._one = names if isinstance(names, str) else None
        listed = [names] if isinstance(names, str) else list(names)
        self._read = fields_dtype(prior, listed)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the field, or of records of these fields."""
        return self._read if self._one is None else self._read[self._one]

    def __getitem__(self, args: Any) -> Any:
        found = self._dset.__getitem__(args, self._read)
        return found if self._one is None else found[self._one]


def fields_dtype(dtype: np.dtype[Any], names: list[str]) -> np.dtype[Any]:
    """Return the dtype of records of some fields of others.

    Raises
    ------
    ValueError
        If there are no such fields.

    """
    if dtype.names is None:
        raise ValueError("Field names only allowed for compound types")
    for name in names:
        if name not in dtype.names:
            raise ValueError(f"Field {name} does not appear in this type: it has {dtype.names}")
    fields: Any = dtype.fields
    return np.dtype([(name, fields[name][0]) for name in names])


def converted(found: Any, dtype: np.dtype[Any]) -> Any:
    """Return what was read as another dtype: records by the names of their fields."""
    if dtype.names is not None and getattr(found, "dtype", dtype).names is not None:
        made = np.zeros(np.shape(found), dtype)
        for name in dtype.names:
            made[name] = found[name]
        return made if np.ndim(found) else made[()]
    if isinstance(found, np.ndarray):
        return values.fitted(found, dtype).astype(dtype)
    if isinstance(found, bytes):
        return np.asarray(found.decode()).astype(dtype)[()]
    return values.fitted(np.asarray(found), dtype).astype(dtype)[()]


def chunks_of(dataset: Dataset, sel: Any) -> Iterator[tuple[slice, ...]]:
    """Yield the parts of a selection that lie in one chunk each.

    Raises
    ------
    TypeError
        If the dataset is not chunked.
    ValueError
        If the selection does not lie within it.

    """
    shape, chunks = dataset.shape, dataset.chunks
    if not chunks:
        raise TypeError("Chunked dataset required")
    given = (slice(None),) * len(shape) if sel is None else sel
    given = given if isinstance(given, tuple | list) else (given,)
    if len(given) != len(shape):
        raise ValueError("Invalid selection - selection region must have same rank as dataset")
    axes = []
    for part, length, chunk in zip(given, shape, chunks, strict=True):
        start, stop = (part, part + 1) if isinstance(part, int) else (part.start or 0, part.stop)
        stop = length if stop is None else stop
        if start < 0 or stop > length or stop <= start:
            raise ValueError("Invalid selection - selection region must be within dataset space")
        first = start - start % chunk
        axes.append(
            [slice(max(at, start), min(at + chunk, stop), 1) for at in range(first, stop, chunk)]
        )
    return product(*axes)
