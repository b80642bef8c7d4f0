"""Arrays of a cluster as dask's, and dask's as arrays of a cluster.

A part is a future: its reference lies on a worker of a node that holds it, and the scheduler counts
the part's bytes for it. So Dask's own placement runs a task where its part lies. The worker counts
the reference alone: it spills and pauses for no memory that is the pool's. A task that was taken
elsewhere fetches the part: that it is local is never assumed.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from dask.base import tokenize

from engram.cluster import values
from engram.cluster.boxes import Box, ClusterArray, PartRef
from engram.cluster.cluster import Cluster
from engram.cluster.making import ArrayPlan, Holder, Made, Making, Places, make_part
from engram.cluster.memory import spare_pools
from engram.errors import ArgumentError, FencedError, NotFoundError


def load(cluster: Cluster, part: PartRef) -> np.ndarray[Any, Any]:
    """Give a part's values: memory of the pool where it lies here, else fetched.

    Raises
    ------
    NotFoundError
        If the array was replaced since it was looked up.

    """
    if cluster.node in part.nodes:
        for own in cluster._array(part.path).local_parts():
            if (own.ref.uuid, own.number) == (part.uuid, part.number):
                return own.view()
    array = cluster._array(part.path)
    found, uuid = array.read(part.box)
    if uuid != part.uuid:
        raise NotFoundError(
            f"{part.path!r} was replaced since it was looked up for Dask: look it up again"
        )
    return found


def array_of(array: ClusterArray) -> Any:
    """Give an array of a cluster as dask's."""
    # What is written in place has a name that is new each time.
    state = array._manifest["uuid"] if array.sealed else uuid4().hex
    name = f"engram-{tokenize(array.cluster.name, array.path, state)}"
    chunks = chunks_of(array)
    if chunks is None:
        return da.from_array(array, chunks="auto", name=name)
    parts = {part.box.offsets: part for part in array.parts}
    places = _placed(array, list(parts.values()))
    edges = [[0, *itertools.accumulate(lengths)][:-1] for lengths in chunks]
    graph: dict[Any, Any] = {}
    loaded = dask.delayed(load, pure=True)
    for index in itertools.product(*(range(len(lengths)) for lengths in chunks)):
        part = parts[tuple(edges[dim][at] for dim, at in enumerate(index))]
        where = places.get(part.number, part)
        graph.update(loaded(array.cluster, where, dask_key_name=(name, *index)).dask)
    return da.Array(graph, name, chunks, dtype=array.dtype)


def chunks_of(array: ClusterArray) -> tuple[tuple[int, ...], ...] | None:
    """Give the chunks that an array's boxes are, if they are a grid that covers it."""
    boxes = [part.box for part in array.parts]
    if not boxes or not array.shape:
        return None
    edges = [
        sorted({0, length, *(box.offsets[dim] for box in boxes)})
        for dim, length in enumerate(array.shape)
    ]
    chunks = tuple(tuple(b - a for a, b in itertools.pairwise(own)) for own in edges)
    if math.prod(len(lengths) for lengths in chunks) != len(boxes):
        return None
    sizes = [
        dict(zip(own, lengths, strict=False)) for own, lengths in zip(edges, chunks, strict=True)
    ]
    fits = all(
        all(sizes[dim].get(at) == n for dim, (at, n) in enumerate(zip(*box, strict=True)))
        for box in boxes
    )
    return chunks if fits else None


def _placed(array: ClusterArray, parts: list[PartRef]) -> dict[int, Any]:
    """Give a future for each part whose node has a worker: a reference that lies there."""
    try:
        from distributed import get_client  # noqa: PLC0415 - there may be none

        client = get_client()
    except (ImportError, ValueError):
        return {}
    spare_pools(client)
    workers: dict[str | None, list[str]] = {}
    for worker, node in client.run(_own_node, array.cluster).items():
        workers.setdefault(node, []).append(worker)
    by_node: dict[str, list[PartRef]] = {}
    for part in parts:
        there = [node for node in part.nodes if node in workers]
        if there:
            by_node.setdefault(there[part.number % len(there)], []).append(part)
    places: dict[int, Any] = {}
    for node, own in by_node.items():
        futures = client.scatter(own, workers=workers[node], hash=False)
        places.update(zip((part.number for part in own), futures, strict=True))
    weights = {places[part.number].key: part.nbytes for part in parts if part.number in places}
    if weights:
        client.run_on_scheduler(_weigh, weights)
    return places


def _weigh(weights: dict[str, int], dask_scheduler: Any) -> None:
    """Have the scheduler count a part's bytes for its reference: it runs tasks where most lie."""
    for key, nbytes in weights.items():
        task = dask_scheduler.tasks.get(key)
        if task is not None:
            task.set_nbytes(nbytes)


def _own_node(cluster: Cluster) -> str | None:
    return cluster.node


class DaskPlan(ArrayPlan):
    """An array of dask's: each block is made a part by the worker that computes it."""

    array: Any

    def place(self, cluster: Cluster) -> None:
        """Refuse what has too few hosts; where each block goes is known when it is computed."""
        places = Places(cluster, self.replicas)
        self.places = [places.beside(places.all[-1])] * len(self.boxes)

    def make(self, cluster: Cluster, making: Making, made: list[Made]) -> None:
        """Have the workers make the parts."""
        stored = dask.delayed(_store_block, pure=False)
        said = (cluster, making, self.dtype, self.replicas)
        numbers = {box.offsets: number for number, box in enumerate(self.boxes)}
        tasks = []
        for box, block in _blocks(self.array):
            if all(box.counts):
                tasks.append(stored(block.block, numbers[box.offsets], block.place, box, *said))
        made.extend(dask.compute(*tasks))


class _Block(NamedTuple):
    """A block of an array of dask's, which is computed later, and where it is among the blocks."""

    place: tuple[int, ...]
    block: Any


def _blocks(array: Any) -> Iterator[tuple[Box, _Block]]:
    """Give each block of an array of dask's, with the box that it is."""
    edges = [[0, *itertools.accumulate(lengths)][:-1] for lengths in array.chunks]
    for index, block in np.ndenumerate(array.to_delayed()):
        offsets = tuple(int(edges[dim][at]) for dim, at in enumerate(index))
        counts = tuple(int(array.chunks[dim][at]) for dim, at in enumerate(index))
        yield Box(offsets, counts), _Block(tuple(map(int, index)), block)


def dask_of(
    path: str,
    array: Any,
    dims: Sequence[str] | None,
    attrs: Mapping[str, Any] | None,
    replicas: int,
) -> DaskPlan:
    """Give the plan of an array of dask's.

    Raises
    ------
    ArgumentError
        If it is none, or the lengths of its blocks are not known.

    """
    if not isinstance(array, da.Array):
        raise ArgumentError(f"{path!r}: {type(array).__name__} is no array of dask's: use put()")
    if any(math.isnan(length) for lengths in array.chunks for length in lengths):
        raise ArgumentError(
            f"{path!r}: the lengths of its blocks are not known; compute_chunk_sizes() finds them"
        )
    boxes = [box for box, _ in _blocks(array) if all(box.counts)]
    plan = DaskPlan(path, tuple(map(int, array.shape)), array.dtype, boxes, dims, attrs, replicas)
    plan.array = array
    return plan


def _store_block(  # noqa: PLR0917 - as Dask passes them
    block: Any,
    number: int,
    index: tuple[int, ...],
    box: Box,
    cluster: Cluster,
    making: Making,
    dtype: np.dtype[Any],
    replicas: int,
) -> Made:
    what = f"block {index} of {making.path!r}"
    found = values.array_of(what, block)
    if found.shape != box.counts:
        raise ArgumentError(
            f"{what} has shape {found.shape}, and its array says {box.counts}: the function that "
            "makes it must give what the array says"
        )
    # Texts that are shorter than they may be lose nothing.
    is_shorter = found.dtype.kind == dtype.kind in "SU" and np.can_cast(found.dtype, dtype)
    if found.dtype != dtype and not is_shorter:
        raise ArgumentError(
            f"{what} has dtype {found.dtype}, and its array says {dtype}: give the function that "
            "makes it its real dtype or meta=, or convert the array with astype"
        )
    array = np.ascontiguousarray(found, dtype).reshape(found.shape)
    made: list[Made] = []
    part = Made(number, box, _holders(cluster, number, replicas), None)
    make_part(cluster, making, part, array, made)
    return made[0]


def _holders(cluster: Cluster, number: int, replicas: int) -> list[Holder]:
    """Give the node of this worker first, if it has one that is a member now."""
    try:
        own: Holder | None = cluster._native.own_holder()
    except (ArgumentError, FencedError):
        own = None
    if own is not None and replicas == 1:
        return [own]
    places = Places(cluster, replicas)
    return places.beside(own or places.all[number % len(places.all)])
