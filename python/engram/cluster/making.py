"""Making what is published together: parts at nodes, then one transaction, and nothing if it fails.

What a name is to be is a plan. Before anything is made, all plans are looked at: whether there are
hosts enough, and whether their manifests fit into one transaction. Then each makes its parts, where
nobody finds them, and all names are published at once. Where that fails, the parts are given back.
"""

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engram.cluster import values
from engram.cluster.boxes import Box, raw_of
from engram.cluster.natives import native
from engram.cluster.nodes import KEPT_S
from engram.errors import (
    ArgumentError,
    CoordinatorError,
    EngramError,
    ExistsError,
    NodeAwayError,
    NotFoundError,
    PoolFullError,
)

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster

Holder = tuple[str, int]
"""A node's uuid, and the member that it is."""
NAMES_MOST = 100
"""The most names of one publication."""
_CHECKSUM_MOST = 2**64 - 1


class Made(NamedTuple):
    """A part, as the manifest says of it."""

    number: int
    box: Box
    holders: list[Holder]
    checksum: int | None


class Making(NamedTuple):
    """As what the parts of a name are made."""

    path: str
    uuid: str
    maker: int
    begun: int

    def part(self, number: int, box: Box, dtype: np.dtype[Any]) -> native.NewPart:
        """Give a part, for natives."""
        at, counts = list(box.offsets), list(box.counts)
        text = values.dtype_text(dtype)
        return native.NewPart(
            self.path, self.uuid, number, self.maker, self.begun, text, at, counts
        )


class Places:
    """Where parts lie: the members by their hosts, in an order."""

    def __init__(self, cluster: "Cluster", replicas: int) -> None:
        """Look the members up.

        Raises
        ------
        NodeAwayError
            If none is there.
        ArgumentError
            If there are fewer hosts than replicas.

        """
        serving = [each for each in cluster.members if each.state == "serving"]
        if not serving:
            raise NodeAwayError(f"no node of the cluster {cluster.name!r} is there: start one")
        self.all: list[Holder] = [(each.node, int(each.id, 16)) for each in serving]
        self._hosts = {(each.node, int(each.id, 16)): each.host for each in serving}
        hosts = set(self._hosts.values())
        if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 1:
            raise ArgumentError(f"replicas {replicas!r}: give at how many hosts each part is to be")
        if replicas > len(hosts):
            raise ArgumentError(
                f"replicas={replicas}: the cluster {cluster.name!r} has nodes on {len(hosts)} "
                f"host(s) now, {sorted(hosts)}, and each part is to be at as many different ones"
            )
        self._replicas = replicas

    def spread(self, count: int) -> list[list[Holder]]:
        """Give the holders of so many parts: in order, as many on each node as on any other."""
        every = self.all
        return [self.beside(every[number * len(every) // count]) for number in range(count)]

    def instead(self, others: Sequence[Holder], full: Sequence[Holder]) -> Holder | None:
        """Give the next holder after those that are full, on no host of the others; None: none."""
        hosts = {self._hosts.get(holder, holder[0]) for holder in others}
        at = self.all.index(full[-1]) + 1 if full and full[-1] in self.all else 0
        for holder in [*self.all[at:], *self.all[:at]]:
            if holder not in full and self._hosts[holder] not in hosts:
                return holder
        return None

    def beside(self, first: Holder) -> list[Holder]:
        """Give a holder, and those of other hosts that have the same part."""
        at = self.all.index(first) if first in self.all else 0
        found = {self._hosts.get(first, first[0]): first}
        for holder in [*self.all[at:], *self.all[:at]]:
            if len(found) < self._replicas:
                found.setdefault(self._hosts[holder], holder)
        return list(found.values())


@dataclass
class Plan:
    """What a name is to be: nothing any more, if it is no more than this."""

    path: str


@dataclass
class ArrayPlan(Plan, ABC):
    """An array in parts."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    boxes: list[Box]
    dims: Sequence[str] | None = None
    attrs: Mapping[str, Any] | None = None
    replicas: int = 1
    sealed: bool = True
    places: list[list[Holder]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse what no manifest can say."""
        values.dtype_text(self.dtype)
        if self.dims is not None and (
            isinstance(self.dims, str) or not all(isinstance(dim, str) and dim for dim in self.dims)
        ):
            raise ArgumentError(f"dims {self.dims!r} are no names: give a tuple of str")
        if self.dims is not None and len(self.dims) != len(self.shape):
            raise ArgumentError(
                f"dims {list(self.dims)} name {len(self.dims)} of {len(self.shape)} dimensions"
            )
        self._attrs = values.encode(self.attrs)

    def place(self, cluster: "Cluster") -> None:
        """Choose the holders of the parts."""
        self.places = Places(cluster, self.replicas).spread(len(self.boxes))

    @abstractmethod
    def make(self, cluster: "Cluster", making: Making, made: list[Made]) -> None:
        """Make the parts: what is made is added, also where that fails."""

    def expected(self) -> list[Made]:
        """Give the parts as they will be, at the longest."""
        checksum = _CHECKSUM_MOST if self.sealed else None
        pairs = enumerate(zip(self.boxes, self.places, strict=True))
        return [Made(number, box, places, checksum) for number, (box, places) in pairs]

    def manifest(self, uuid: str, generation: int, made: Sequence[Made]) -> str:
        """Give the manifest of these parts."""
        holders = sorted({holder for each in made for holder in each.holders})
        at = {holder: place for place, holder in enumerate(holders)}
        found: dict[str, Any] = {
            "uuid": uuid,
            "generation": generation,
            "holders": [{"node": node, "member": member} for node, member in holders],
            "kind": "array",
            "dtype": values.dtype_text(self.dtype),
            "shape": list(self.shape),
            "attrs": self._attrs,
            "sealed": self.sealed,
            "replicas": self.replicas,
            "parts": [_told(each, at) for each in sorted(made, key=lambda each: each.number)],
        }
        if self.dims is not None:
            found["dims"] = list(self.dims)
        return json.dumps(found)


def _told(made: Made, at: Mapping[Holder, int]) -> dict[str, Any]:
    part: dict[str, Any] = {"o": list(made.box.offsets), "n": list(made.box.counts)}
    part["h"] = [at[holder] for holder in made.holders]
    if made.checksum is not None:
        part["c"] = made.checksum
    return part


@dataclass
class ValuePlan(ArrayPlan):
    """An array of this process, cut into parts."""

    value: Any = None

    def make(self, cluster: "Cluster", making: Making, made: list[Made]) -> None:
        """Send each part to its holders."""
        for number, (box, places) in enumerate(zip(self.boxes, self.places, strict=True)):
            # Of a value without dimensions the index alone would be a scalar, and numpy's scalars
            # of bytes have no zeros at their end.
            block = np.ascontiguousarray(self.value[(*box.slices, ...)])
            make_part(cluster, making, Made(number, box, places, None), block, made)


@dataclass
class EmptyPlan(ArrayPlan):
    """An array that is written in place: each part lies on one node, until it is published."""

    item: bytes = b""

    def place(self, cluster: "Cluster") -> None:
        """Choose one holder for each part; the others come when it is published."""
        places = Places(cluster, self.replicas).spread(len(self.boxes))
        self.places = [holders[:1] for holders in places]

    def make(self, cluster: "Cluster", making: Making, made: list[Made]) -> None:
        """Have each holder make its parts."""
        for number, (box, places) in enumerate(zip(self.boxes, self.places, strict=True)):
            part = making.part(number, box, self.dtype)

            def fill(holder: Holder, part: native.NewPart = part) -> None:
                cluster._native.fill_part(holder, part, self.item)

            at_holders(cluster, making, Made(number, box, places, None), made, fill)


def make_part(
    cluster: "Cluster", making: Making, part: Made, block: np.ndarray[Any, Any], made: list[Made]
) -> None:
    """Make one part at its holders of an array that lies in one piece."""
    new = making.part(part.number, part.box, block.dtype)

    def make(holder: Holder) -> int:
        return cluster._native.make_part(holder, new, raw_of(block))

    at_holders(cluster, making, part, made, make)


def at_holders(
    cluster: "Cluster",
    making: Making,
    part: Made,
    made: list[Made],
    make: Callable[[Holder], int | None],
) -> None:
    """Have each holder of a part make it; a node that is full gives way to the next.

    The part is added to what is made, with the holders that may have it.

    Raises
    ------
    PoolFullError
        If no node has room for it; it says how much each has.

    """
    made.append(part._replace(holders=[]))
    left, full = list(part.holders), list[Holder]()
    while left:
        holder = left.pop(0)
        there = made[-1].holders
        made[-1] = made[-1]._replace(holders=[*there, holder])
        try:
            checksum = make(holder)
        except PoolFullError:
            made[-1] = made[-1]._replace(holders=there)
            full.append(holder)
            other = Places(cluster, 1).instead([*there, *left], full)
            if other is None:
                raise _full(cluster, making, part, full) from None
            left.insert(0, other)
        else:
            made[-1] = made[-1]._replace(checksum=checksum)


def _full(cluster: "Cluster", making: Making, part: Made, full: Sequence[Holder]) -> PoolFullError:
    hosts = {each.node: each.host for each in cluster.members}
    rooms = [(hosts.get(node, node), cluster.space(node)) for node, _ in full]
    told = [
        f"{host} does not say" if room is None else f"{host} has {room.free:,} B free"
        for host, room in rooms
    ]
    return PoolFullError(
        f"no node of the cluster {cluster.name!r} has room for part {part.number} of "
        f"{making.path!r}, of counts {part.box.counts}: {'; '.join(told)}. What was replaced or "
        f"removed is freed {KEPT_S:g} s after that, if nothing else was said to `serve`, and when "
        "its last view on its node has gone: try again then, remove what is not needed, or start "
        "more nodes"
    )


def commit(cluster: "Cluster", plans: Sequence[Plan]) -> None:
    """Make what is planned, and publish it: all, or nothing.

    Raises
    ------
    ArgumentError
        If there are too many names, or their manifests do not fit into one transaction.
    NotFoundError
        If a name that is to be removed is not there.
    ConflictError
        If somebody else publishes one of the names meanwhile.
    ExistsError
        If an array is to have the name of a group.

    """
    if len(plans) > NAMES_MOST:
        raise ArgumentError(f"at most {NAMES_MOST} names are published at once, not {len(plans)}")
    draft = cluster._native.draft([plan.path for plan in plans])
    for plan, there in zip(plans, draft.there, strict=True):
        if not there and not isinstance(plan, ArrayPlan):
            raise NotFoundError(f"there is no {plan.path!r} in the cluster {cluster.name!r}")
        if there == "group" and isinstance(plan, ArrayPlan):
            raise ExistsError(
                f"{plan.path!r} is a group, and goes with all that is below it: remove it first "
                f"(`cluster.remove({plan.path!r})`), or give the array another name"
            )
    uuids = [native.Cluster.new_uuid() for _ in plans]
    arrays = [(p, uuid) for p, uuid in zip(plans, uuids, strict=True) if isinstance(p, ArrayPlan)]
    for plan, _ in arrays:
        plan.place(cluster)
    native.Cluster.check(
        [(p.path, p.manifest(uuid, draft.generation, p.expected())) for p, uuid in arrays]
    )
    made: dict[str, list[Made]] = {plan.path: [] for plan, _ in arrays}
    is_asked = False
    try:
        for plan, uuid in arrays:
            making = Making(plan.path, uuid, draft.maker, draft.begun)
            plan.make(cluster, making, made[plan.path])
        texts = {p.path: p.manifest(uuid, draft.generation, made[p.path]) for p, uuid in arrays}
        is_asked = True
        cluster._native.publish(draft, [texts.get(plan.path) for plan in plans])
    except BaseException as error:
        if is_asked and may_be_published(error):
            raise
        for plan, uuid in arrays:
            give_back(cluster, uuid, draft.maker, made[plan.path])
        raise


def may_be_published(error: BaseException) -> bool:
    """Whether a publication that ended with an error may have taken effect, or do so yet.

    A signal's error says nothing of what was asked before it.
    """
    return isinstance(error, CoordinatorError) or not isinstance(error, EngramError)


def give_back(cluster: "Cluster", uuid: str, maker: int, made: Sequence[Made]) -> None:
    """Give parts back that are not published; what cannot be asked for that frees them later."""
    for each in made:
        for holder in each.holders:
            with contextlib.suppress(Exception):
                cluster._native.give_back(holder, uuid, each.number, maker)
