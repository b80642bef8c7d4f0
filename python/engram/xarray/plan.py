"""A write as a list of steps that are done in one batch: whole, or not at all.

Values that dask computes are computed first, into space that nobody sees yet: so no batch waits for
them, and what fails leaves nothing. Then one batch publishes that space, and puts, deletes and
annotates all else. A chunked array is filled within the batch, one part after another.
"""

from __future__ import annotations

import os
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.backends.common import ArrayWriter
from xarray.backends.locks import get_dask_scheduler
from xarray.namedarray.parallelcompat import get_chunked_array_type

from engram import _engram
from engram.batch import Batch
from engram.handle import make
from engram.member import new_member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engram.group import Group

    Region = tuple[slice, ...]


class Plan:
    """What is to be written below a group."""

    def __init__(self, root: Group) -> None:
        self.root = root
        self._first: list[Callable[[], object]] = []
        self._steps: list[Callable[[], object]] = []
        self._last: list[Callable[[], object]] = []
        self._undo: list[Callable[[], object]] = []
        self._spaces: list[_engram.Allocation] = []
        self.writer = ArrayWriter()

    def add(self, step: Callable[[], object]) -> None:
        """Add a step of the batch."""
        self._steps.append(step)

    def before(self, step: Callable[[], object], undo: Callable[[], object] | None = None) -> None:
        """Add a step that cannot be part of a batch, and goes before it, and what undoes it."""
        self._first.append(step)
        if undo is not None:
            self._undo.append(undo)

    def after(self, step: Callable[[], object]) -> None:
        """Add a step that cannot be part of a batch, and goes after it."""
        self._last.append(step)

    def put(self, path: str, value: Any, **said: Any) -> None:
        """Add an array, which replaces what is there: numpy's, or one that dask computes."""
        namespace, gid = self.root._namespace, self.root._id
        if not is_lazy(value) or value.dtype.kind == "O":
            whole = np.asarray(value)
            new = new_member(overwrite=True, **said)
            self.add(lambda: _engram.put_array(namespace, gid, path, whole, new))
            return
        if said.get("chunks") is None:
            fill(self.writer, value, self.allocate(path, value.shape, value.dtype, **said))
            return
        new = new_member(overwrite=True, shape=value.shape, dtype=value.dtype, **said)
        self.add(lambda: self._fill_chunks(path, value, new))

    def allocate(
        self, path: str, shape: tuple[int, ...], dtype: np.dtype[Any], **said: Any
    ) -> np.ndarray[Any, Any]:
        """Take space for an array in one piece, which the batch publishes."""
        new = new_member(overwrite=True, shape=shape, dtype=dtype, **said)
        space = _engram.allocate(self.root._namespace, self.root._id, path, new)
        self._spaces.append(space)
        self.add(space.publish)
        return space.array

    def run(self) -> None:
        """Do all of it."""
        try:
            self.writer.sync()
            self._commit()
        except BaseException:
            self.give_up()
            raise
        self._spaces.clear()
        for step in self._last:
            step()

    def _commit(self) -> None:
        """Do what goes before the batch, and the batch; undo the former if that fails."""
        try:
            for step in self._first:
                step()
            if self._steps:
                with Batch(self.root._namespace):
                    for step in self._steps:
                        step()
        except BaseException:
            for undo in self._undo:
                undo()
            raise

    def give_up(self) -> None:
        """Give back the space that was taken."""
        while self._spaces:
            self._spaces.pop().abandon()

    def _fill_chunks(self, path: str, value: Any, new: Any) -> None:
        namespace = self.root._namespace
        made = make(namespace, _engram.put_array(namespace, self.root._id, path, None, new))
        for place, part in parts(value):
            made[place] = part


def is_lazy(value: Any) -> bool:
    """Whether dask, or the like of it, has still to compute a value."""
    return hasattr(value, "chunks") and hasattr(value, "compute")


def fill(writer: ArrayWriter, value: Any, target: Any, region: Region | None = None) -> None:
    """Have values written to memory of this process, or to an array that any process can reach.

    Threads do so at the same time. Where dask has processes, they compute, and this one writes.
    """
    in_memory = isinstance(target, np.ndarray)
    if not is_lazy(value):
        target[region or ...] = value
    elif in_memory and get_dask_scheduler() != "threaded":
        for place, part in parts(value):
            target[place] = part
    else:
        writer.add(value, target, region)


def parts(value: Any) -> Iterator[tuple[Region, Any]]:
    """Compute a lazy value some blocks at a time; yield where each belongs, and its values."""
    manager = get_chunked_array_type(value)
    bounds = [np.cumsum([0, *lengths]).tolist() for lengths in value.chunks]
    places = product(*(map(slice, ends, ends[1:]) for ends in bounds))
    while some := list(islice(places, os.cpu_count() or 1)):
        yield from zip(some, manager.compute(*(value[p] for p in some)), strict=True)
