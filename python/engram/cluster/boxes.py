"""An array in parts: boxes of it, each in the pool of a node."""

from __future__ import annotations

import itertools
import json
import math
import operator
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from engram import later
from engram.cluster import values
from engram.cluster.alike import AlikeArray
from engram.errors import ArgumentError, BusyError, NotFoundError, ReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engram.array import Array
    from engram.cluster.cluster import Cluster


class Box(NamedTuple):
    """A box of an array: where it begins along each dimension, and how long it is."""

    offsets: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as an index of numpy's."""
        pairs = zip(self.offsets, self.counts, strict=True)
        return tuple(slice(at, at + count) for at, count in pairs)


class PartRef(NamedTuple):
    """A part, by what finds it: the uuid of its manifest, its number, and who holds it."""

    path: str
    uuid: str
    number: int
    box: Box
    nodes: tuple[str, ...]
    nbytes: int

    @property
    def node(self) -> str:
        """Its first holder."""
        return self.nodes[0]


class ClusterArray(AlikeArray):
    """An array of a cluster, in the generation that was looked up.

    `t[...]` reads what is asked for, wherever it lies, in the generation that the name has then.
    """

    def __init__(
        self, cluster: Cluster, path: str, manifest: dict[str, Any], revision: int
    ) -> None:
        self.cluster = cluster
        self.path = path
        self._manifest = manifest
        self._revision = revision
        self.shape: tuple[int, ...] = tuple(manifest["shape"])
        self._dtype_text: str = manifest["dtype"]
        self.dtype = values.dtype_of(manifest["dtype"])

    def __reduce__(self) -> tuple[Any, ...]:
        return ClusterArray, (self.cluster, self.path, self._manifest, self._revision)

    def __repr__(self) -> str:
        place = f"engram://{self.cluster.name}/{self.path}"
        return f"<engram array {place} {self.dtype} {self.shape} in {len(self.parts)} parts>"

    def _sign(self) -> tuple[Any, ...]:
        return self.cluster.name, self.path, self._manifest.get("made", self._manifest["uuid"])

    @property
    def nbytes(self) -> int:
        """Bytes of the value."""
        return self.dtype.itemsize * self.size

    @property
    def chunks(self) -> None:
        """None: an array in parts has no chunks; `parts` has the boxes that it lies in."""
        return

    @property
    def dims(self) -> tuple[str, ...] | None:
        """The names of the dimensions, if they have some."""
        dims = self._manifest.get("dims")
        return None if dims is None else tuple(dims)

    @property
    def attrs(self) -> PublishedAttributes:
        """The attributes, as they were published."""
        return PublishedAttributes(self.path, values.decode(self._manifest.get("attrs", {})))

    @property
    def generation(self) -> int:
        """A number that grows with each publication of the name."""
        return int(self._manifest["generation"])

    @property
    def parts(self) -> list[PartRef]:
        """The parts, in the order of their numbers."""
        holders = self._manifest["holders"]
        uuid = self._manifest.get("made", self._manifest["uuid"])
        return [
            PartRef(
                path=self.path,
                uuid=uuid,
                number=number,
                box=Box(tuple(part["o"]), tuple(part["n"])),
                nodes=tuple(holders[at]["node"] for at in part["h"]),
                nbytes=math.prod(part["n"]) * self.dtype.itemsize,
            )
            for number, part in enumerate(self._manifest["parts"])
        ]

    @property
    def sealed(self) -> bool:
        """Whether nothing of it is ever written again; else each node writes its own parts."""
        return bool(self._manifest["sealed"])

    @property
    def replicas(self) -> int:
        """At how many hosts each part was to be."""
        return int(self._manifest["replicas"])

    def holders(self) -> dict[str, list[Box]]:
        """Give each node's boxes, by the node's uuid."""
        found: dict[str, list[Box]] = {}
        for part in self.parts:
            for node in part.nodes:
                found.setdefault(node, []).append(part.box)
        return found

    def local_parts(self) -> list[LocalPart]:
        """Give the parts that lie on this host's node, whose memory is this process's, too.

        As long as the array is not sealed, the node's own processes write their parts in place.
        """
        own = self.cluster.node
        return [LocalPart(self, part) for part in self.parts if own in part.nodes]

    def publish(self, *, timeout: float = 2.0) -> ClusterArray:
        """Seal what was written in place; see `Cluster.publish`."""
        return self.cluster.publish(self.path, timeout=timeout)

    def view(self, box: Box | tuple[slice, ...] | None = None) -> np.ndarray[Any, Any]:
        """Give a box as memory of this host's pool, read-only, without a copy.

        Raises
        ------
        ArgumentError
            If no part of this host's node covers the box; it says which would.
        NotFoundError
            If the array was replaced meanwhile.

        """
        asked = self._box(box)
        check_box(self.shape, asked)
        for part in self.local_parts():
            if _covers(part.box, asked):
                pairs = zip(asked.offsets, part.box.offsets, asked.counts, strict=True)
                inside = tuple(slice(at - begin, at - begin + n) for at, begin, n in pairs)
                return part.view()[inside] if inside else part.view()
        covering = [part for part in self.parts if _covers(part.box, asked)]
        if covering:
            hosts = {each.node: each.host for each in self.cluster.members}
            at = covering[0]
            raise ArgumentError(
                f"the box {_shown(asked)} of {self.path!r} does not lie on this host: part "
                f"{at.number} on {hosts.get(at.node, at.node)} has it. t[…] fetches it"
            )
        meets = [part.number for part in self.parts if _meets(part.box, asked)]
        raise ArgumentError(
            f"the box {_shown(asked)} of {self.path!r} lies in the parts {meets}: no one covers "
            "it. t[…] puts it together"
        )

    def _box(self, box: Box | tuple[slice, ...] | None) -> Box:
        if box is None:
            return Box((0,) * self.ndim, self.shape)
        if isinstance(box, Box):
            return box
        offsets, counts = [], []
        index = box if isinstance(box, tuple) else (box,)
        if len(index) > self.ndim:
            raise ArgumentError(f"{len(index)} indices for {self.ndim} dimensions: {box!r}")
        for dim in range(self.ndim):
            one = index[dim] if dim < len(index) else slice(None)
            if not isinstance(one, slice):
                raise ArgumentError(f"a box has a slice for each dimension, not {one!r}")
            start, stop, step = one.indices(self.shape[dim])
            if step != 1:
                raise ArgumentError(f"a box has no steps: {one!r}")
            offsets.append(start)
            counts.append(max(stop - start, 0))
        return Box(tuple(offsets), tuple(counts))

    def __getitem__(self, key: Any) -> Any:
        """Read what numpy's index asks for: the smallest box that has it, and of that the rest."""
        box, rest = bounding(self.shape, key)
        return self.read(box)[0][rest]

    def read(self, box: Box) -> tuple[np.ndarray[Any, Any], str]:
        """Read a box, in the generation that the name has now: its items, and the parts' uuid."""
        out = np.empty(box.counts, self.dtype)
        text, _ = self.cluster._load(self.path, self._dtype_text, self.shape, box, raw_of(out))
        found = json.loads(text)
        return out, found.get("made", found["uuid"])

    def _repr_html_(self) -> str:
        return later.card(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Refuse: nothing of an array in parts is written by whoever has its name.

        Raises
        ------
        ArgumentError
            Always.

        """
        del value
        self._check_written(key)

    def _check_written(self, key: Any) -> NoReturn:
        raise ArgumentError(
            f"[{key}] of {self.path!r} cannot be written: an array in parts is replaced as a "
            f"whole, with put({self.path!r}, values), or, if it was made with create_array, each "
            "node writes its own parts (local_parts) until it is published"
        )

    def __dask_tokenize__(self) -> object:
        """By what name dask knows the values: the same one once nothing of them is written."""
        return self._sign() if self.sealed else super().__dask_tokenize__()

    def dask(self) -> Any:
        """Give it as an array of dask's, whose blocks are its parts: each is read where it lies."""
        from engram.cluster.blocks import array_of  # noqa: PLC0415 - dask is needed here alone

        return array_of(self)


class PublishedAttributes(dict[str, Any]):
    """The attributes of an array in parts: they are of its manifest, and change with it alone."""

    def __init__(self, path: str, known: dict[str, Any]) -> None:
        super().__init__(known)
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return PublishedAttributes, (self._path, dict(self))

    def __missing__(self, key: object) -> NoReturn:
        names = ", ".join(repr(name) for name in list(self)[:8])
        there = f"it has {names}" if names else "it has none"
        raise NotFoundError(f"there is no attribute {key!r} of {self._path!r}: {there}")

    def _refuse(self, *given: Any, **more: Any) -> NoReturn:
        del given, more
        raise ArgumentError(
            f"attributes of {self._path!r}, an array in parts, are published with it, and not "
            "changed: put the array anew, with attrs="
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = pop = popitem = setdefault = clear = _refuse


class LocalPart:
    """A part that lies in the pool of this host's node."""

    def __init__(self, whole: ClusterArray, part: PartRef) -> None:
        self._whole = whole
        self.ref = part

    def __repr__(self) -> str:
        return f"<engram part {self.number} of {self._whole.path!r} at {_shown(self.box)}>"

    @property
    def number(self) -> int:
        """Its number in the array."""
        return self.ref.number

    @property
    def box(self) -> Box:
        """The box that it is."""
        return self.ref.box

    @property
    def node(self) -> str:
        """The node of this host."""
        return str(self._whole.cluster.node)

    def view(self) -> np.ndarray[Any, Any]:
        """Give its memory, read-only, without a copy.

        Raises
        ------
        NotFoundError
            If the array was replaced meanwhile.

        """
        return self._kept().view()

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """Its memory, to be written in place, and read-only if the array is sealed.

        As long as any array on this memory lives, in any process, the part cannot be sealed.

        Raises
        ------
        NotFoundError
            If the array was replaced meanwhile.
        BusyError
            If the part is being sealed.

        """
        if self._whole.sealed:
            return self.view()
        kept = self._kept()
        writes = kept.lock("r", timeout=0)
        writes.__enter__()
        try:
            found = kept.view("r+")
        except ReadOnlyError:
            writes.__exit__(None, None, None)
            raise BusyError(
                f"part {self.number} of {self._whole.path!r} is sealed, or about to be: look it up "
                "again; t.publish() ends a publication that was broken off"
            ) from None
        except BaseException:
            writes.__exit__(None, None, None)
            raise
        top = found
        while isinstance(top.base, np.ndarray):
            top = top.base
        weakref.finalize(top, writes.__exit__, None, None, None).atexit = False
        return found

    def _kept(self) -> Array:
        part = self.ref
        try:
            found: Array = self._whole.cluster.pool[f".cluster/parts/{part.uuid}/{part.number}"]
        except NotFoundError:
            raise NotFoundError(
                f"{part.path!r} was replaced or removed: look it up again"
            ) from None
        return found


def raw_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Give the bytes of an array that lies in one piece, without a copy."""
    if not array.nbytes:
        return np.empty(0, np.uint8)
    return array.reshape(-1).view(np.uint8)


def decoded(path: str, manifest: str, revision: int) -> tuple[dict[str, Any], int]:
    """Give a manifest as a dictionary, if it is of an array.

    Raises
    ------
    ArgumentError
        If it is of a subtree.

    """
    found = json.loads(manifest)
    if found["kind"] != "array":
        raise ArgumentError(f"{path!r} is a group of the cluster, and no array: name an array")
    return found, revision


_PARTS_MOST = 16_384
"""What a manifest has room for."""


def boxes_of(shape: Sequence[int], parts: Sequence[int] | None, nodes: int) -> list[Box]:
    """Cut an array into boxes that have items, by how many each dimension is cut into.

    Raises
    ------
    ArgumentError
        If `parts` has not one number above 0 for each dimension, or they are too many.

    """
    if parts is None:
        parts = [min(nodes, shape[0] or 1), *[1] * (len(shape) - 1)] if shape else []
    if isinstance(parts, int | np.integer):
        parts = (int(parts),)
    try:
        parts = [operator.index(number) for number in parts]
    except TypeError:
        raise ArgumentError(f"parts {parts!r}: give a whole number for each dimension") from None
    if len(parts) != len(shape) or any(number < 1 for number in parts):
        raise ArgumentError(
            f"parts {list(parts)}: give for each of the {len(shape)} dimensions of shape "
            f"{tuple(shape)} into how many it is cut"
        )
    count = math.prod(map(min, parts, shape))
    if count > _PARTS_MOST:
        raise ArgumentError(
            f"parts {list(parts)}: a manifest has at most {_PARTS_MOST} parts, not {count}: give "
            "fewer, each larger"
        )
    cuts = []
    for length, number in zip(shape, parts, strict=True):
        edges = [length * step // number for step in range(number + 1)]
        cuts.append([(a, b - a) for a, b in itertools.pairwise(edges)])
    return [
        Box(tuple(at for at, _ in cut), tuple(n for _, n in cut))
        for cut in itertools.product(*cuts)
        if all(n for _, n in cut)
    ]


def check_box(shape: Sequence[int], box: Box) -> None:
    """Refuse a box that is not within an array.

    Raises
    ------
    ArgumentError
        If it is not.

    """
    fits = len(box.offsets) == len(box.counts) == len(shape) and all(
        at >= 0 and n >= 0 and at + n <= length
        for at, n, length in zip(box.offsets, box.counts, shape, strict=True)
    )
    if not fits:
        raise ArgumentError(f"the box {_shown(box)} is not within shape {tuple(shape)}")


def bounding(shape: tuple[int, ...], key: Any) -> tuple[Box, Any]:
    """Give the smallest box that has what an index asks for, and the index within it."""
    index = key if isinstance(key, tuple) else (key,)
    # A bool is an int, and as an index it is a mask.
    plain = all(
        (isinstance(one, slice | int | np.integer) and not isinstance(one, bool)) or one is Ellipsis
        for one in index
    )
    if not plain or sum(one is Ellipsis for one in index) > 1:
        # What numpy does with lists, masks and new axes it does with the whole.
        return Box((0,) * len(shape), shape), key
    given = [one for one in index if one is not Ellipsis]
    if len(given) > len(shape):
        raise IndexError(f"{len(given)} indices for {len(shape)} dimensions")
    missing = [slice(None)] * (len(shape) - len(given))
    place = next((at for at, one in enumerate(index) if one is Ellipsis), len(given))
    full = [*given[:place], *missing, *given[place:]]
    offsets: list[int] = []
    counts: list[int] = []
    rest: list[Any] = []
    for one, length in zip(full, shape, strict=True):
        if not isinstance(one, slice):
            at = int(one) + length * (int(one) < 0)
            if not 0 <= at < length:
                raise IndexError(f"index {int(one)} is out of bounds for a length of {length}")
            offsets.append(at)
            counts.append(1)
            rest.append(0)
            continue
        reach = range(*one.indices(length))
        first = min(reach[0], reach[-1]) if reach else 0
        offsets.append(first)
        counts.append(max(reach[0], reach[-1]) - first + 1 if reach else 0)
        step = slice(None, None, reach.step) if reach else slice(None)
        rest.append(step)
    if len(given) < len(index):
        rest.append(Ellipsis)  # with it numpy gives an array, where it would give a single item
    return Box(tuple(offsets), tuple(counts)), tuple(rest)


def _covers(box: Box, asked: Box) -> bool:
    return all(
        begin <= at and at + n <= begin + length
        for begin, length, at, n in zip(*box, *asked, strict=True)
    )


def _meets(box: Box, asked: Box) -> bool:
    return all(
        max(begin, at) < min(begin + length, at + n)
        for begin, length, at, n in zip(*box, *asked, strict=True)
    )


def _shown(box: Box) -> str:
    pairs = zip(box.offsets, box.counts, strict=False)
    return "[" + ", ".join(f"{at}:{at + n}" for at, n in pairs) + "]"
