"""Dimensions of datasets: labels and scales, in the words of an import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.compat.h5py.base import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.compat.h5py.dataset import Dataset


class DimensionManager:
    """The dimensions of a dataset."""

    __slots__ = ("_of",)

    def __init__(self, parent: Dataset) -> None:
        self._of = parent

    def __getitem__(self, index: int) -> DimensionProxy:
        if not -len(self) <= index < len(self):
            raise IndexError(f"Index out of range: {index} is no dimension of {len(self)}")
        return DimensionProxy(self._of, index % len(self))

    def __len__(self) -> int:
        return self._of.ndim

    def __iter__(self) -> Iterator[DimensionProxy]:
        for index in range(len(self)):
            yield self[index]

    def create_scale(self, dset: Dataset, name: str = "") -> None:
        """Make a dataset a scale, by the older name of `Dataset.make_scale`."""
        dset.make_scale(name)

    def __repr__(self) -> str:
        if not self._of:
            return "<Dimensions of closed HDF5 dataset>"
        return f"<Dimensions of HDF5 object at {id(self._of)}>"


class DimensionProxy:
    """One dimension of a dataset: its label, and the scales attached to it."""

    __slots__ = ("_axis", "_of")

    def __init__(self, of: Dataset, axis: int) -> None:
        self._of = of
        self._axis = axis

    @property
    def label(self) -> str:
        """The dimension's name."""
        return labels_of(self._of)[self._axis]

    @label.setter
    def label(self, value: Any) -> None:
        labels = labels_of(self._of)
        labels[self._axis] = text_of(value)
        self._of._say(labels=labels)

    def attach_scale(self, dset: Dataset) -> None:
        """Attach a scale to this dimension; it is made one, if it is none.

        Raises
        ------
        RuntimeError
            If it is of another file, or this dataset is a scale itself.

        """
        if dset.file != self._of.file or dset == self._of or self._of.is_scale:
            raise RuntimeError(
                f"{dset!r} cannot be attached to {self._of!r}: a scale is of the same file, and "
                "has no scales itself"
            )
        if not dset.is_scale:
            dset.make_scale()
        scales = scales_of(self._of)
        path = dset._path_here()
        if path not in scales[self._axis]:
            scales[self._axis].append(path)
            self._of._say(scales=scales)

    def detach_scale(self, dset: Dataset) -> None:
        """Take a scale from this dimension.

        Raises
        ------
        RuntimeError
            If it is not attached.

        """
        scales = scales_of(self._of)
        path = dset._path_here()
        if path not in scales[self._axis]:
            raise RuntimeError(f"{dset!r} is not attached to dimension {self._axis}")
        scales[self._axis].remove(path)
        self._of._say(scales=scales)

    def items(self) -> list[tuple[str, Dataset]]:
        """Return the names and datasets of its scales."""
        found = []
        for path in scales_of(self._of)[self._axis]:
            scale = self._of._at_imported(path)
            if scale is not None:
                found.append((scale_name(scale) or "", scale))
        return found

    def keys(self) -> list[str]:
        """Return the names of its scales."""
        return [name for name, _ in self.items()]

    def values(self) -> list[Dataset]:
        """Return its scales."""
        return [scale for _, scale in self.items()]

    def __getitem__(self, item: int | str | bytes) -> Dataset:
        if isinstance(item, int):
            found = self.values()
            if not -len(found) <= item < len(found):
                raise IndexError(f"{item} is no scale of this dimension, which has {len(found)}")
            return found[item]
        for name, scale in self.items():
            if name == text_of(item):
                return scale
        raise KeyError(item)

    def __len__(self) -> int:
        return len(self.items())

    def __iter__(self) -> Iterator[str]:
        yield from self.keys()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DimensionProxy):
            return NotImplemented
        return self._of == other._of and self._axis == other._axis

    def __hash__(self) -> int:
        return hash((self._of, self._axis))

    def __repr__(self) -> str:
        if not self._of:
            return "<Dimension of closed HDF5 dataset>"
        return f'<"{self.label}" dimension {self._axis} of HDF5 dataset at {id(self._of)}>'


def labels_of(dataset: Dataset) -> list[str]:
    """Return a dataset's labels: as said, or its dimensions' names where nothing is said."""
    said = dataset._words()
    told = said.get("labels")
    if isinstance(told, list) and len(told) == dataset.ndim:
        return [str(label or "") for label in told]
    if not dataset._is_group and "scales" not in said and "scale" not in said:
        dims = _engram.object_info(dataset._namespace, dataset._id).dims
        if dims is not None and len(dims) == dataset.ndim:
            return list(dims)
    return [""] * dataset.ndim


def scales_of(dataset: Dataset) -> list[list[str]]:
    """Return the paths of the scales of each dimension."""
    told = dataset._words().get("scales")
    if isinstance(told, list) and len(told) == dataset.ndim:
        return [list(paths) for paths in told]
    return [[] for _ in range(dataset.ndim)]


def scale_name(dataset: Dataset) -> str | None:
    """Return the name that a dataset has as a scale; None if it is none."""
    found = dataset._words().get("scale")
    return None if found is None else str(found)
