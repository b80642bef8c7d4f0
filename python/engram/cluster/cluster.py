"""An open cluster: names that are looked up, made and removed."""

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self
from weakref import WeakSet

from numpy.typing import DTypeLike

from engram import later
from engram.active.places import far, placing
from engram.cluster import certificates, homes, known, plans
from engram.cluster.batch import Batch
from engram.cluster.boxes import Box, ClusterArray, check_box, decoded
from engram.cluster.calling import Caller
from engram.cluster.known import DEADLINE_S
from engram.cluster.making import Plan, commit
from engram.cluster.mapping import calls_of
from engram.cluster.names import checked
from engram.cluster.natives import native
from engram.cluster.queries import ArrayIndex, Hits, of_cluster
from engram.cluster.sealing import seal
from engram.cluster.space import Space, space_of
from engram.cluster.together import Ranks, Together
from engram.cluster.trees import ClusterGroup, create
from engram.cluster.verifying import ClusterReport, verify
from engram.errors import (
    ArgumentError,
    ConflictError,
    CoordinatorError,
    ExistsError,
    NodeAwayError,
    NotFoundError,
)
from engram.extras import library
from engram.paths import ClusterPath
from engram.pool import Pool
from engram.pool import open as open_pool
from engram.query import Asked

if TYPE_CHECKING:
    from xarray import Dataset


class Member(NamedTuple):
    """A node, as the map of the cluster has it."""

    node: str
    """Its uuid."""
    host: str
    address: str
    """Where its node server answers: `HOST:PORT`."""
    path: str
    """Its pool."""
    state: str
    """"serving", "away" (it may come back with all it had) or "lost"."""
    id: str
    """The member that it is, or was last: never used again."""
    since: datetime | None
    """Since when it is away."""
    weight: float
    """Its share of names, beside those of others."""


class Cluster:
    """An open cluster; as a with-block, it is closed at the end.

    Handles of it pickle as its name: a process that unpickles one opens the cluster itself.
    """

    def __init__(
        self,
        name: str,
        etcd: Sequence[str],
        *,
        pool: Path | None,
        deadline: float,
        ttl: float,
        tls: Path | None,
    ) -> None:
        self.name = name
        self.deadline = deadline
        self.is_open = True
        self._given = (list(etcd), tls)
        self.ttl = ttl
        self._native = native.Cluster(
            name, list(etcd), pool=pool, deadline=deadline, ttl=ttl, tls_folder=tls
        )
        self._path = pool
        self._pool: Pool | None = None
        self._trees: dict[str, ClusterGroup] = {}
        self._arrays: ArrayIndex | None = None
        self._caller = Caller(self)
        self._homes: dict[tuple[str, str], homes.NodeHome] = {}
        _all_open.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        etcd, tls = self._given
        if self.is_open:
            etcd = self._native.endpoints()  # some may have come since
        return reopened, (self.name, etcd, self.deadline, None if tls is None else str(tls))

    def __repr__(self) -> str:
        return f"<engram cluster engram://{self.name}>"

    def close(self) -> None:
        """Close it: what this process has made and not published is given back."""
        self.is_open = False
        _all_open.discard(self)
        self._caller.close()
        self._native.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if _opened.get(self.name) is self:
            del _opened[self.name]
        if self._arrays is not None:
            self._arrays.close()
            self._arrays = None

    def url(self, path: str = "") -> str:
        """Give the URL of a name."""
        return f"engram://{self.name}/{path}".rstrip("/")

    @property
    def members(self) -> list[Member]:
        """All nodes, as the map has them now."""
        return [_member(json.loads(text)) for text in self._native.nodes()]

    @property
    def epoch(self) -> int:
        """The revision at which a node came or went last, as this process knows."""
        return self._native.epoch

    @property
    def node(self) -> str | None:
        """The node of this host, if it has one."""
        return self._native.own_node

    def space(self, node: str) -> Space | None:
        """Give the room that a node's pool has, in bytes; None of a node that does not answer."""
        return space_of(self, node)

    @property
    def pool(self) -> Pool:
        """The pool of this host's node, opened by this process.

        Raises
        ------
        ArgumentError
            If this host has none.

        """
        if self._pool is None:
            if self._path is None or self.node is None:
                raise ArgumentError(f"this host has no node of the cluster {self.name!r}")
            self._pool = open_pool(self._path)
        return self._pool

    def __getitem__(self, path: str) -> Any:
        """Give what has this name: an array in parts, a group, or what lies below one.

        Raises
        ------
        NotFoundError
            If there is none.

        """
        name = checked(path)
        for root, group in list(self._trees.items()):
            if name.startswith(f"{root}/"):
                try:
                    return group[name[len(root) + 1 :]]
                except (NotFoundError, NodeAwayError):
                    # The group may have been replaced.
                    self._trees.pop(root, None)  # or another thread has
                    break
        found = self._find(name)
        if found is None:
            raise NotFoundError(f"there is no {path!r} in the cluster {self.name!r}")
        if isinstance(found, ClusterGroup) and found.path != name:
            self._trees[found.path] = found
            return found[name[len(found.path) + 1 :]]
        return found

    def __setitem__(self, path: str, value: Any) -> None:
        """Store a value: below a group at its home, else as an array in parts."""
        name = checked(path)
        found = self._find(name)
        if isinstance(found, ClusterGroup) and found.path != name:
            found[name[len(found.path) + 1 :]] = value
        else:
            self.put(name, value)

    def __delitem__(self, path: str) -> None:
        """Remove what has this name."""
        name = checked(path)
        found = self._find(name)
        if isinstance(found, ClusterGroup) and found.path != name:
            del found[name[len(found.path) + 1 :]]
        else:
            self.remove(name)

    def __contains__(self, path: str) -> bool:
        name = checked(path)
        found = self._find(name)
        if isinstance(found, ClusterGroup) and found.path != name:
            return name[len(found.path) + 1 :] in found
        return found is not None

    def create_group(
        self,
        path: str,
        *,
        spread: Literal["node", "hash"] = "node",
        node: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> ClusterGroup:
        """Make a group of which all below lies on one node, or is spread over all by its names.

        What lies below is no concern of etcd's: an object is made and found by one request to its
        node, and by none where that is this host's.

        Parameters
        ----------
        path
            The name.
        spread
            "node": all on one node. "hash": the first name below decides where a member lies.
        node
            The node's uuid or host; without it this host's, or if it has none, any.
        attrs
            Attributes of the group.
        exist_ok
            Give a group that is there already as it is.

        Raises
        ------
        ExistsError
            If something has the name, or a name above or below it.
        NodeAwayError
            If a node goes meanwhile, or none is there.

        """
        return create(self, checked(path), spread, node, attrs, exist_ok=exist_ok)

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
        """Find objects below all groups, and arrays in parts, by what a query says of them.

        Each node is asked at once, with the order and the limit; what they find is merged.

        Parameters
        ----------
        expr
            The query, as `Group.query` takes it; without one, all.
        order_by
            By what the hits are in order.
        limit
            How many at most.
        offset
            How many of the first are left out before these; it takes an order.
        params
            Values by the names of the query's parameters.
        partial
            Do without nodes that do not answer: they stand in `missing`.

        Raises
        ------
        PartialResultError
            If nodes have not answered, and `partial` is false.
        QueryError
            If the query cannot be read, or gives figures: these are of one pool.

        """
        asked = Asked(order_by, limit, offset, params)
        return of_cluster(self, expr, asked, partial=partial)

    def map(
        self, method: Any, objects: Iterable[Any], /, *args: Any, client: Any = None
    ) -> Iterator[Any]:
        """Run a method of each of several objects where it lies; give the results in their order.

        Parameters
        ----------
        method
            A method of their class, such as `Block.mean`.
        objects
            Active objects, on whichever nodes.
        args
            Further arguments, the same for all.
        client
            A client of Dask's: each call is a task of it, bound to the workers on the object's
            host. Without one, each node's own workers run them.

        """
        return calls_of(self, method, list(objects), args, client)

    def backend(self, node: str) -> placing.Backend:
        """Give a node, by its uuid or host, as a backend for active objects."""
        return placing.Backend(homes.home_of_node(self, node))

    def _is_decided_at(self, etcd: Sequence[str]) -> bool:
        """Tell whether one of these endpoints is of its etcd."""
        given, _ = self._given
        return etcd == given or not set(etcd).isdisjoint([*given, *self._native.endpoints()])

    def _nodes(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self._native.nodes()]

    def _has(self, home: Any) -> bool:
        """Tell whether a home is of this host's node; its pool is not opened for that."""
        if self._pool is not None:
            return bool(home.key[0] == self._pool.uuid)
        if self._path is None or self.node is None or home.is_far:
            return False
        try:
            return Path(home.pool_path).samefile(self._path)
        except OSError:
            return False

    def _serving_homes(self) -> list[Any]:
        return homes.serving_homes(self)

    def _place_of_alias(self, alias: str) -> tuple[Any, int]:
        return homes.place_of_alias(self, alias)

    def verify(self, *, checksums: bool = True) -> ClusterReport:
        """Look at each node's pool, and compare manifests with the parts that they name.

        A pool is walked where it lies on this host; those of other hosts are named with the command
        to run there. Each holder is asked for each part: whether it is there, and has its bytes;
        on this host, with its box, dtype and checksum, too. Parts that no manifest names are told,
        and are no damage. A group's holders are asked for the group.

        Parameters
        ----------
        checksums
            Whether all bytes of sealed arrays are read, from every holder, and compared.

        Raises
        ------
        CoordinatorError
            If etcd does not answer.

        """
        return verify(self, checksums=checksums)

    def _repr_html_(self) -> str:
        return later.card(self)

    def _array(self, path: str) -> ClusterArray:
        """Give the array that was published."""
        found = self[path]
        if not isinstance(found, ClusterArray):
            raise ConflictError(f"{path!r} is no array any more: somebody has replaced it")
        return found

    def _look_up(self, path: str) -> str | None:
        found = self._native.look_up(path)
        return None if found is None else found[0]

    def _find(self, path: str) -> ClusterArray | ClusterGroup | None:
        """Give the array or group of a name, or the group below which the name lies."""
        steps = path.split("/")
        above = ["/".join(steps[: end + 1]) for end in range(len(steps))]
        for root, found in zip(above, self._native.look_up_all(above), strict=True):
            if found is None:
                continue
            manifest, revision = found
            if json.loads(manifest)["kind"] != "array":
                return ClusterGroup(self, root, manifest)
            if root == path:
                return ClusterArray(self, path, *decoded(path, manifest, revision))
        return None

    def _check_free(self, path: str, found: ClusterArray | ClusterGroup | None) -> None:
        """Refuse a name for a group that something has, or a name above or below it."""
        if found is not None:
            raise ExistsError(f"{found.path!r} is there already in the cluster {self.name!r}")
        below = self.names(path)
        if below:
            raise ExistsError(
                f"{path!r} cannot be a group of its own: {below[0]!r} is there; remove it, or take "
                "another name"
            )

    @staticmethod
    def _uuid_of(manifest: str) -> str:
        return str(json.loads(manifest)["uuid"])

    @staticmethod
    def _manifest_text(
        draft: native.Draft, holders: Sequence[tuple[str, int]], content: Mapping[str, Any]
    ) -> str:
        manifest = {
            "uuid": native.Cluster.new_uuid(),
            "generation": draft.generation,
            "holders": [{"node": node, "member": member} for node, member in holders],
            **content,
        }
        return json.dumps(manifest)

    def _index_of_arrays(self) -> ArrayIndex:
        if self._arrays is None:
            self._arrays = ArrayIndex()
        return self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self, under: str = "") -> list[str]:
        """Give all names of the cluster, or those below a group, in their order."""
        prefix = f"{checked(under)}/" if under else ""
        return [path for path, _ in self._native.names(prefix)]

    def arrays(self, under: str = "") -> dict[str, ClusterArray]:
        """Give the arrays right below a group, by their names there: all as at one moment."""
        prefix = f"{checked(under)}/" if under else ""
        found = {}
        for path, text in self._native.names(prefix):
            manifest = json.loads(text)
            name = path.removeprefix(prefix)
            if "/" not in name and manifest["kind"] == "array":
                found[name] = ClusterArray(self, path, manifest, manifest["generation"])
        return found

    def _handles(self, under: str) -> Iterator[tuple[str, ClusterArray | ClusterGroup]]:
        """Give the names below a path, each with its handle: all as at one moment."""
        prefix = f"{checked(under)}/" if under else ""
        for path, text in self._native.names(prefix):
            manifest = json.loads(text)
            if manifest["kind"] == "array":
                yield path, ClusterArray(self, path, manifest, manifest["generation"])
            else:
                yield path, ClusterGroup(self, path, text)

    def open_xarray(self, group: str = "", **options: Any) -> "Dataset":
        """Open the arrays right below a group as a dataset, whose values are dask's.

        Parameters
        ----------
        group
            The group's path.
        options
            Those of `xarray.open_dataset`, such as `decode_times`.

        Raises
        ------
        NotFoundError
            If there are none.
        ArgumentError
            If two arrays differ in the length of a dimension.

        """
        xarray = library("xarray", "xarray", "Cluster.open_xarray")
        opened: Dataset = xarray.open_dataset(ClusterPath(self, group), engine="engram", **options)
        for name in set(opened.variables) - set(opened.indexes):
            # xarray wraps what an engine gives, and sees no blocks in it then.
            opened.variables[name].data = opened.variables[name].data
        return opened

    def remove(self, path: str) -> None:
        """Remove a name. The nodes free its parts when nobody can be given them any more.

        Raises
        ------
        NotFoundError
            If there is none.

        """
        commit(self, [Plan(checked(path))])

    def put(
        self,
        path: str,
        value: Any,
        *,
        parts: Sequence[int] | None = None,
        dims: Sequence[str] | None = None,
        attrs: Mapping[str, Any] | None = None,
        replicas: int = 1,
    ) -> ClusterArray:
        """Cut an array of this process into parts, send each to a node, and publish the name.

        Parts lie in order: neighbours on one node, and on each node as many as on any other.

        Parameters
        ----------
        path
            The name. What has it is replaced as a whole.
        value
            An array of any dtype of fixed width, or what numpy makes one of.
        parts
            Into how many parts each dimension is cut; without it the first one is, into one part
            for each node.
        dims
            The names of the dimensions.
        attrs
            Attributes.
        replicas
            At how many hosts each part is to be. Readers go on to another where one is away.

        Raises
        ------
        ArgumentError
            If there are fewer hosts, or the manifest is too large for etcd; or if the value has a
            mask, or names for its parts, as a DataArray or a table has.
        NodeAwayError
            If a node goes meanwhile, or none is there.
        ConflictError
            If somebody else publishes the name meanwhile.
        PoolFullError
            If a node has no room.

        """
        plan = plans.value_of(self, checked(path), value, parts, dims, attrs, replicas)
        commit(self, [plan])
        return self._array(path)

    def create_array(
        self,
        path: str,
        shape: int | Sequence[int],
        dtype: DTypeLike = "f8",
        *,
        parts: Sequence[int] | None = None,
        dims: Sequence[str] | None = None,
        attrs: Mapping[str, Any] | None = None,
        fill: Any = None,
        replicas: int = 1,
    ) -> ClusterArray:
        """Make an array that each node writes in place: its own parts, until it is published.

        ::

            t = c.create_array("run/U", (4096, 4096), parts=(8, 1))
            for part in t.local_parts():  # in a task on each node
                part.array[...] = compute(part.box)
            c.publish("run/U")

        Until then readers see what is written at that moment, and no checksum tells whether all of
        it came.

        Parameters
        ----------
        path
            The name. What has it is replaced as a whole.
        shape, dtype
            Its shape, and any dtype of fixed width.
        parts, dims, attrs
            As for `put`.
        fill
            What each item is at first; without it, zeros. One that the dtype would cut is refused.
        replicas
            At how many hosts each part is to be once it is published. Until then it is at one.

        Raises
        ------
        ArgumentError, NodeAwayError, ConflictError, PoolFullError
            As for `put`.

        """
        plan = plans.empty_of(self, checked(path), shape, dtype, parts, dims, attrs, fill, replicas)
        commit(self, [plan])
        return self._array(path)

    def publish(self, path: str, *, timeout: float = 2.0) -> ClusterArray:
        """Seal an array that was written in place: nothing of it is written again.

        Each holder sums up its parts. What is sealed already stays as it is. A part whose memory a
        process has for writing is waited for, for `timeout` seconds and 2 at least.

        Raises
        ------
        NotFoundError
            If there is no such name.
        BusyError
            If a process has a part's memory for writing by then; it says which part, and where.
        NodeAwayError
            If a holder is away.
        ConflictError
            If somebody else replaces the name meanwhile.

        """
        seal(self, checked(path), timeout)
        return self._array(path)

    def batch(self) -> Batch:
        """Give a with-block whose names are published together at its end: all, or none.

        ::

            with c.batch() as b:
                b.put("run/T", t)
                b.remove("run/old")
        """
        return Batch(self)

    def together(self, comm: Ranks) -> Together:
        """Give a with-block in which ranks of MPI store, each at its node, and publish together.

        Each rank of the communicator, one of mpi4py's, calls it::

            with c.together(MPI.COMM_WORLD) as ranks:
                ranks.array("run/T", shape=(1000 * size, 400), dtype="f8")
                ranks.store("run/T", block, (1000 * rank, 0))
        """
        return Together(self, comm)

    def from_dask(
        self,
        path: str,
        array: Any,
        *,
        dims: Sequence[str] | None = None,
        attrs: Mapping[str, Any] | None = None,
        replicas: int = 1,
    ) -> ClusterArray:
        """Store an array of dask's: each block on the node of the worker that computes it.

        Blocks of workers that are on no node go to the nodes in order. `replicas` is as for `put`.
        A block must have the dtype and shape that the array says, or the call is refused.

        Raises
        ------
        ArgumentError, NodeAwayError, ConflictError, PoolFullError
            As for `put`.

        """
        from engram.cluster.blocks import dask_of  # noqa: PLC0415 - dask is needed here alone

        commit(self, [dask_of(checked(path), array, dims, attrs, replicas)])
        return self._array(path)

    def retire(self, node: str, *, lost: bool = False) -> None:
        """Let a node go for good, whose parts other nodes have, too; or give it up as lost.

        No new copies are made of what it had.

        Parameters
        ----------
        node
            The node's uuid or host.
        lost
            It does not come back: who reads what it alone held is told `PartsLostError`, and waits
            no longer.

        Raises
        ------
        NotFoundError
            If there is no such node.
        ArgumentError
            If it alone holds something and `lost` is false, or it serves and `lost` is true; or if
            it is the last that serves, and an etcd that a start has brought along ends with it.
        BusyError
            If its processes do not end.
        ConflictError
            If something was published meanwhile that it alone holds.

        """
        from engram.cluster.operating import retire  # noqa: PLC0415 - which opens clusters

        retire(self, node, lost=lost)

    def _load(
        self, path: str, dtype: str, shape: Sequence[int], box: Box, out: Any
    ) -> tuple[str, int]:
        """Read a box of an array of this dtype and shape into memory of its bytes."""
        check_box(shape, box)
        where = (list(shape), list(box.offsets), list(box.counts))
        return self._native.load(path, dtype, *where, out)


_opened: dict[str, Cluster] = {}
"""Clusters that handles of this process have opened."""
_all_open: "WeakSet[Cluster]" = WeakSet()
"""All clusters that this process has open."""


def _home_elsewhere(uuid: str, namespace: str) -> homes.NodeHome | None:
    for cluster in list(_all_open):
        # One whose etcd is away says nothing of another's nodes.
        with contextlib.suppress(CoordinatorError):
            found = homes.home_in(cluster, uuid, namespace)
            if found is not None:
                return found
    return None


def _has_node(cluster: Cluster, node: str) -> bool:
    with contextlib.suppress(CoordinatorError):
        return any(each["node"] == node for each in cluster._nodes())
    return False


def _home_named(backend: Any) -> Any:
    """Give the home that a member, a URL of a node or a cluster means as a backend."""
    if isinstance(backend, placing.Backend):
        return backend.home
    if isinstance(backend, Cluster):
        serving = [each["node"] for each in backend._nodes() if each["state"] == "serving"]
        if not serving:
            raise NodeAwayError(f"no node of the cluster {backend.name!r} serves: start one")
        return homes.home_of_node(backend, backend.node or serving[0])
    if isinstance(backend, Member):
        for cluster in list(_all_open):
            if _has_node(cluster, backend.node):
                return homes.home_of_node(cluster, backend.node)
        raise NotFoundError(f"no cluster that is open here has the node {backend.node}: open it")
    if isinstance(backend, str) and backend.startswith("engram://"):
        name, _, rest = backend.removeprefix("engram://").partition("/")
        node, _, namespace = rest.partition("?")
        there = [each for each in list(_all_open) if each.name == name]
        if not there:
            there = [reopened(name, None, DEADLINE_S)]
        if not node:
            return _home_named(there[0])
        return homes.home_of_node(there[0], node, namespace or "default")
    return None


def _location_of(home: Any) -> str | None:
    """Name a home of this host as other nodes of its cluster do."""
    for cluster in list(_all_open):
        if cluster.node is not None and cluster._has(home):
            return homes.location_of(cluster, cluster.node, home.key[1])
    return None


def _check_alias(home: Any, alias: str, gid: int | None) -> None:
    """Refuse an alias that another node of a home's cluster has; see `homes.check_alias`."""
    if home.key[1] != "default":  # aliases are looked for in this one alone
        return
    for cluster in list(_all_open):
        if cluster._has(home) or getattr(home, "cluster", None) is cluster:
            homes.check_alias(cluster, home, alias, gid)
            return


far.alias_checks.append(_check_alias)
far.locators.append(_location_of)
far.finders.append(_home_elsewhere)
far.namers.append(_home_named)


def open(  # noqa: A001 - as `engram.open`
    name: str,
    *,
    etcd: Sequence[str] | None = None,
    pool: str | Path | None = None,
    deadline: float = DEADLINE_S,
    tls: str | Path | None = None,
) -> Cluster:
    """Open a cluster.

    Parameters
    ----------
    name
        Its name, or its URL: `engram://job`.
    etcd
        The endpoints of etcd, each `HOST:PORT`; without them, those that are known on this host.
    pool
        The node pool of this host; without it, the one that is known, if there is one.
    deadline
        How long anything is waited for, in seconds.
    tls
        The folder of this process's certificate; "own": this user's authority for the cluster;
        "none": connections are plain; without it, what is known on this host. With a user's
        certificate, which reads alone, `etcd` are the addresses of nodes.

    Raises
    ------
    NotFoundError
        If nothing is known here of this cluster, and no `etcd` is given.
    ArgumentError
        If the name or the deadline cannot be.
    CoordinatorError
        If etcd does not answer.
    UnsupportedError
        If it is of a version that may lose what it acknowledged.

    """
    bare = known.check_name(name)
    known.check_deadline(deadline)
    try:
        found = known.read(bare)
    except NotFoundError:
        if etcd is None:
            raise
        found = known.Known(bare, list(etcd))
    own = Path(pool) if pool is not None else found.pool
    folder = certificates.of_user(bare, tls)
    return Cluster(bare, etcd or found.etcd, pool=own, deadline=deadline, ttl=found.ttl, tls=folder)


def reopened(
    name: str,
    etcd: list[str] | None,
    deadline: float,
    tls: str | None = None,
    pool: str | None = None,
) -> Cluster:
    """Give this process's opening of a cluster, for handles that are unpickled: one for all."""
    there = _there(name, etcd)
    if there is None:
        with _opening:
            there = _there(name, etcd)
            if there is None:
                # Another host may have its certificates elsewhere.
                folder = tls if tls is not None and Path(tls).is_dir() else None
                there = open(name, etcd=etcd, deadline=deadline, tls=folder, pool=pool)
                _opened[name] = there
    return there


def _there(name: str, etcd: list[str] | None) -> Cluster | None:
    """Give an opening of a cluster that this process has; of that name there may be several."""
    for cluster in (*_opened.values(), *_all_open):
        if not cluster.is_open or cluster.name != name:
            continue
        if etcd is None or cluster._is_decided_at(etcd):
            return cluster
    return None


_opening = threading.Lock()


def _member(entry: dict[str, Any]) -> Member:
    away = entry["state"] != "serving"
    since = datetime.fromtimestamp(entry["since"], UTC) if away else None
    return Member(
        node=entry["node"],
        host=entry["host"],
        address=entry["address"],
        path=entry["path"],
        state=entry["state"],
        id=f"{entry['member']:x}",
        since=since,
        weight=entry["weight"],
    )
