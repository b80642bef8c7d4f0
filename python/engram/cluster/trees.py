"""Subtrees: groups of which all below lies on one node, or is spread over several by its names.

Whoever has a subtree asks etcd no more: where a name below is at home is computed, and its node is
asked. On that node itself all is as in a pool: handles are those of the pool, memory and all.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from engram import _engram, later
from engram.cluster import values
from engram.cluster.far import FarArray, FarAttributes, FarBlob
from engram.cluster.making import may_be_published
from engram.cluster.natives import native
from engram.errors import (
    ArgumentError,
    ConflictError,
    NodeAwayError,
    NotFoundError,
)
from engram.group import Group
from engram.handle import makers
from engram.query import Asked

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster
    from engram.cluster.queries import Hits

T = TypeVar("T")
Spread = Literal["node", "hash"]
_PAGE = 1000


class ClusterGroup(MutableMapping[str, Any]):
    """A subtree of a cluster, or a group below one.

    It is used as a group of a pool is. What lies on this host's own node is given as the pool's own
    handles; what lies elsewhere as `FarArray` and `FarBlob`, which read and write over the network.
    """

    def __init__(self, cluster: Cluster, root: str, manifest: str, path: str | None = None) -> None:
        self.cluster = cluster
        self._root = root
        self._manifest = manifest
        self.path = root if path is None else path
        """Its name in the cluster."""
        self._tree = native.Tree(cluster._native, root, manifest)
        self._own: Group | None = None
        self._is_own = self._tree.nodes == [cluster.node]

    def __bool__(self) -> bool:
        return self.cluster.is_open

    def __reduce__(self) -> tuple[Any, ...]:
        return ClusterGroup, (self.cluster, self._root, self._manifest, self.path)

    def __repr__(self) -> str:
        nodes = self._tree.nodes
        where = "on one node" if len(nodes) == 1 else f"over {len(nodes)} nodes"
        return f"<engram group {self.cluster.url(self.path)} {where}>"

    def _repr_html_(self) -> str:
        return later.card(self)

    @property
    def root(self) -> str:
        """The name of the subtree that it is, or is below."""
        return self._root

    @property
    def nodes(self) -> list[str]:
        """The nodes on which it lies."""
        return self._tree.nodes

    @property
    def local(self) -> Group:
        """What of it lies on this host's node, as a group of the pool.

        Raises
        ------
        ArgumentError
            If nothing does.

        """
        if self.cluster.node not in self._tree.nodes:
            raise ArgumentError(f"{self.path!r} does not lie on this host's node")
        group = self._local()
        inside = self.below(self.path)
        return group if not inside else group.require_group(inside)

    @property
    def attrs(self) -> MutableMapping[str, Any]:
        """The attributes of the group: below the subtree's root those that its home has."""
        inside = self.below(self.path)
        if self._lies_here(inside):
            return self.local.attrs
        found = self.asked(lambda tree: tree.look(inside))
        known = {} if found is None else dict(_engram.unpacked(found[0])[4])
        return FarAttributes(self, known)

    def below(self, path: str) -> str:
        """Give a name of the cluster as one below the subtree's root."""
        return path[len(self._root) + 1 :]

    def inside(self, path: str) -> str:
        """Give a name of the cluster as one below this group."""
        return path[len(self.path) + 1 :]

    def home(self, path: str) -> str:
        """Give the node at which a name of the cluster below the subtree's root is at home."""
        return self._tree.nodes[self._tree.home(self.below(path))]

    def _inside(self, name: str) -> str:
        if not isinstance(name, str) or not name.strip("/"):
            raise ArgumentError(f"{name!r} is no name: give a str such as 'a' or 'run/T'")
        inside = self.below(self.path)
        return f"{inside}/{name.strip('/')}" if inside else name.strip("/")

    def _lies_here(self, below: str) -> bool:
        if self._is_own:
            return True
        own = self.cluster.node
        return own is not None and self._tree.nodes[self._tree.home(below)] == own

    def _local(self) -> Group:
        """Give the subtree's group in this host's pool: by its number, wherever it stands there."""
        if self._own is None:
            pool = self.cluster.pool
            try:
                sign = pool[f".cluster/parts/{self._uuid}/0"]
            except NotFoundError:
                raise NotFoundError(f"{self._root!r} was removed: look it up again") from None
            namespace = pool._namespace
            self._own = makers[0](namespace, int(bytes(sign[:])), None, None)
        return self._own

    @property
    def _uuid(self) -> str:
        return self.cluster._uuid_of(self._manifest)

    def asked(self, ask: Callable[[Any], T]) -> T:
        """Ask a node; where the subtree is no more what it was, look it up, and ask once more.

        What is asked may be done twice.
        """
        try:
            return ask(self._tree)
        except (NodeAwayError, NotFoundError) as error:
            if not self._looked_up_again():
                raise
            try:
                return ask(self._tree)
            except (NodeAwayError, NotFoundError) as again:
                raise again from error

    def _looked_up_again(self) -> bool:
        """Take the manifest and the nodes that are there now; whether any of it is new."""
        found = self.cluster._look_up(self._root)
        if found is None or self.cluster._uuid_of(found) != self._uuid:
            return False
        epoch = self.cluster.epoch
        self.cluster._native.nodes()
        if found == self._manifest:
            return self.cluster.epoch != epoch
        self._manifest = found
        self._tree = native.Tree(self.cluster._native, self._root, found)
        return True

    def __getitem__(self, name: str) -> Any:
        below = self._inside(name)
        if self._lies_here(below):
            found = self._local().get(below)
            if found is not None:
                return self._group(below) if isinstance(found, Group) else found
        else:
            seen = self.asked(lambda tree: tree.look(below))
            if seen is not None:
                return self._made(below, *seen)
        raise self._missing(name)

    def _missing(self, name: str) -> NotFoundError:
        where = f"the group {self.path!r} of the cluster {self.cluster.name!r}"
        return NotFoundError(f"there is no {name!r} in {where}")

    def _made(self, below: str, head: bytes, value: bytes | None = None) -> Any:
        kind = _engram.unpacked(head)[0]
        if kind == "group":
            return self._group(below)
        cls = FarBlob if kind == "blob" else FarArray
        return cls(self, f"{self._root}/{below}", head, value)

    def _group(self, below: str) -> ClusterGroup:
        return ClusterGroup(self.cluster, self._root, self._manifest, f"{self._root}/{below}")

    def __setitem__(self, name: str, value: Any) -> None:
        self.put(name, value)

    def put(
        self,
        name: str,
        value: Any,
        *,
        dims: Sequence[str] | None = None,
        attrs: Mapping[str, Any] | None = None,
        exist_ok: bool = True,
    ) -> None:
        """Store a value at its home: bytes as a blob, all else as an array.

        Raises
        ------
        ArgumentError
            If the value has a mask, or names for its parts, as a DataArray or a table has.
        ExistsError
            If something has the name, and `exist_ok` is false.
        PoolFullError
            If the node has no room.

        """
        below = self._inside(name)
        # One with coordinates would have them at its own home, where nobody looks for them.
        values.refuse_labelled(f"the value of {f'{self.path}/{name}'!r}", value)
        if self._lies_here(below):
            group = self._local()
            if dims is None and attrs is None and exist_ok:
                group[below] = value
            elif isinstance(value, bytes | bytearray | memoryview):
                group.create_blob(below, value, attrs=attrs, overwrite=exist_ok)
            else:
                group.create_array(below, data=value, dims=dims, attrs=attrs, overwrite=exist_ok)
            return
        given = bytes(value) if isinstance(value, bytearray | memoryview) else value
        head, data = _engram.packed(given, dims, attrs)
        if exist_ok:
            self.asked(lambda tree: tree.put(below, head, data, False))
        else:
            # Where the answer is lost, trying again would meet what was made.
            self._tree.put(below, head, data, True)

    def create_group(self, name: str) -> ClusterGroup:
        """Make a group below, or give the one that is there."""
        below = self._inside(name)
        if self._lies_here(below):
            self._local().require_group(below)
        else:
            self.asked(lambda tree: tree.make_group(below))
        return self._group(below)

    def __delitem__(self, name: str) -> None:
        below = self._inside(name)
        try:
            if self._lies_here(below):
                del self._local()[below]
            else:
                self._tree.remove(below)
        except NotFoundError:
            raise self._missing(name) from None

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not name.strip("/"):
            return False
        below = self._inside(name)
        if self._lies_here(below):
            return below in self._local()
        return self.asked(lambda tree: tree.look(below)) is not None

    def __iter__(self) -> Iterator[str]:
        """Give the names of members in byte order, from all nodes that have some."""
        inside = self.below(self.path)
        if inside or len(self._tree.nodes) == 1:
            return self._names(self._tree.home(inside), inside)
        return heapq.merge(*(self._names(at, "") for at in range(len(self._tree.nodes))))

    def _names(self, place: int, inside: str) -> Iterator[str]:
        if self._tree.nodes[place] == self.cluster.node:
            group: Any = self._local()
            yield from sorted(group[inside] if inside else group, key=str.encode)
            return
        after = ""
        while True:
            page = self._page(place, inside, after)
            yield from (name for name, _, _ in page)
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def listed(self, after: str = "") -> Iterator[tuple[str, Any]]:
        """Give members behind a name, each with its handle, in byte order of their names.

        What lies on other nodes is asked for a page at a time, and each page is of one moment.
        """
        inside = self.below(self.path)
        if inside or len(self._tree.nodes) == 1:
            return self._listed(self._tree.home(inside), inside, after)
        places = range(len(self._tree.nodes))
        return heapq.merge(*(self._listed(at, "", after) for at in places), key=_name_of)

    def _listed(self, place: int, inside: str, after: str) -> Iterator[tuple[str, Any]]:
        above = f"{inside}/" if inside else ""
        if self._tree.nodes[place] == self.cluster.node:
            group: Any = self._local()
            for name, member in sorted((group[inside] if inside else group).items(), key=_name_of):
                if name.encode() > after.encode():
                    is_group = isinstance(member, Group)
                    yield name, self._group(above + name) if is_group else member
            return
        while True:
            page = self._page(place, inside, after)
            yield from ((name, self._made(above + name, head)) for name, head, _ in page)
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def _page(self, place: int, inside: str, after: str) -> list[tuple[str, bytes, bytes]]:
        return self.asked(lambda tree: tree.list(place, inside, after, _PAGE))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def query(
        self,
        expr: Any = None,
        *,
        order_by: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        params: Mapping[str, Any] | None = None,
        partial: bool = False,
    ) -> Hits:
        """Find objects below the subtree's root; relative paths in the query begin there.

        See `Cluster.query`.
        """
        from engram.cluster.queries import of_tree  # noqa: PLC0415 - it makes these groups

        asked = Asked(order_by, limit, offset, params)
        return of_tree(self, expr, asked, partial=partial)


def _name_of(member: tuple[str, Any]) -> str:
    return member[0]


def create(
    cluster: Cluster,
    path: str,
    spread: str,
    node: str | None,
    attrs: Mapping[str, Any] | None,
    *,
    exist_ok: bool,
) -> ClusterGroup:
    """Make a subtree: prepared at its holders, published, and moved to its name there."""
    if spread not in {"node", "hash"}:
        raise ArgumentError(f'spread {spread!r} is unknown: "node" or "hash"')
    if spread == "hash" and node is not None:
        raise ArgumentError(f'node {node!r} is given, but spread "hash" takes all nodes')
    found = cluster._find(path)
    if isinstance(found, ClusterGroup) and found.path == path and exist_ok:
        return found
    cluster._check_free(path, found)
    head = _engram.packed_attrs(attrs) if attrs else None
    draft = cluster._native.draft([path])
    holders = _holders(cluster, spread, node)
    manifest = _manifest_of(cluster, draft, spread, holders)
    tree = native.Tree(cluster._native, path, manifest)
    is_asked = False
    try:
        for place in range(len(holders)):
            tree.prepare(place, draft.maker, draft.begun)
        if head is not None:
            # Before it has its name: whoever finds the group finds it with its attributes.
            tree.set_attrs("", head)
        is_asked = True
        cluster._native.publish(draft, [manifest])
    except BaseException as error:
        if is_asked and may_be_published(error):
            raise  # it may have taken effect, or do so yet
        _give_back(tree, draft.maker)
        again = cluster._find(path) if isinstance(error, ConflictError) else None
        if exist_ok and isinstance(again, ClusterGroup) and again.path == path:
            return again
        raise
    for place in range(len(holders)):
        tree.settle(place)
    return ClusterGroup(cluster, path, manifest)


def _manifest_of(
    cluster: Cluster, draft: native.Draft, spread: str, holders: Sequence[tuple[str, int, float]]
) -> str:
    content: dict[str, Any] = {"kind": spread}
    if spread == "hash":
        content["weights"] = [weight for _, _, weight in holders]
    who = [(node, member) for node, member, _ in holders]
    return cluster._manifest_text(draft, who, content)


def _give_back(tree: Any, maker: int) -> None:
    """Give a group back that is not published; a node that cannot be asked frees it later."""
    for place in range(len(tree.nodes)):
        with contextlib.suppress(Exception):
            tree.give_back(place, maker)


def _holders(cluster: Cluster, spread: str, node: str | None) -> list[tuple[str, int, float]]:
    serving = [each for each in cluster.members if each.state == "serving"]
    if spread == "hash":
        if not serving:
            raise NodeAwayError(f"no node of the cluster {cluster.name!r} is there: start one")
        return [(each.node, int(each.id, 16), each.weight) for each in serving]
    wanted = node or cluster.node
    if wanted is None:
        # This host has no node: the one that serves the fewest is not known, so names decide.
        wanted = serving[np.random.default_rng().integers(len(serving))].node if serving else ""
    for each in serving:
        if wanted in {each.node, each.host}:
            return [(each.node, int(each.id, 16), 1.0)]
    known = ", ".join(f"{each.node} ({each.host})" for each in serving) or "none"
    raise NodeAwayError(f"node {wanted!r} does not serve now: those that do are {known}")
