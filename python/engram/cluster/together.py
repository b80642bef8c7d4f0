"""What ranks of MPI store in a cluster, each at its own node, and publish together.

    with c.together(MPI.COMM_WORLD) as ranks:
        ranks.array("step-1/T", shape=(1000 * size, 400), dtype="f8")
        ranks.store("step-1/T", block, (1000 * rank, 0))

*Protocol*. The first rank begins a publication, and the others join it. Each stores into the pool
of its own host's node, and nobody is asked. At the end of the block the first rank draws up a plan
of what all have stored. Each seals its parts as the plan numbers them. Then the first rank
publishes. An error of one rank is raised on all of them, and nothing is published.

The communicator is only asked for `Get_rank`, `bcast`, `scatter`, `gather` and `allgather`, as
mpi4py has them: this module knows no MPI.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, SupportsIndex

import numpy as np

from engram import errors
from engram.cluster import values
from engram.cluster.boxes import raw_of
from engram.cluster.names import checked
from engram.cluster.natives import native
from engram.errors import ArgumentError, EngramError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from numpy.typing import ArrayLike, DTypeLike

    from engram.cluster.cluster import Cluster


class Ranks(Protocol):
    """What a communicator of mpi4py can do, as far as it is asked for."""

    def Get_rank(self) -> int: ...  # noqa: D102, N802 - MPI's own name
    def bcast(self, obj: Any, root: int = 0) -> Any: ...  # noqa: D102
    def scatter(self, sendobj: Any, root: int = 0) -> Any: ...  # noqa: D102
    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None: ...  # noqa: D102
    def allgather(self, sendobj: Any) -> list[Any]: ...  # noqa: D102


class Together:
    """A rank's share in what all ranks of a communicator publish together, in a with-block."""

    def __init__(self, cluster: Cluster, comm: Ranks) -> None:
        self._cluster, self._comm = cluster, comm
        self._rank = comm.Get_rank()
        self._share: native.Together | None = None
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Publish, unless a rank has met an error: then nothing is, and all ranks know of it."""
        if self._share is None:
            return  # an error has ended it on all ranks
        try:
            self._all_well(error)
            self._publish()
        except BaseException:
            self._end(is_published=False)
            if error is None:
                raise  # the rank that has met it raises its own

    def array(
        self,
        path: str,
        shape: SupportsIndex | Sequence[SupportsIndex],
        dtype: DTypeLike,
        *,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        """Say what array is to be of a name. One rank is enough; all that say it say the same.

        Parameters
        ----------
        path
            The array's name in the cluster.
        shape
            How long the array is in each dimension, over all ranks.
        dtype
            The dtype of its items.
        attrs
            Its attributes; those of the first rank that gives some count.

        Raises
        ------
        ExistsError
            If this rank has said another shape of it.
        ArgumentError
            If this rank has said another dtype, or it has items of no fixed size.

        """
        lengths = _numbers(shape)
        if any(length < 0 for length in lengths):
            raise ArgumentError(f"shape {shape!r} of {path!r}: give lengths of 0 or more")
        text = values.dtype_text(np.dtype(dtype))
        self._own.array(checked(path), text, lengths, json.dumps(values.encode(attrs)))

    def store(
        self, path: str, data: ArrayLike, offsets: SupportsIndex | Sequence[SupportsIndex] = ()
    ) -> None:
        """Store a box of an array in the pool of this host's node.

        Parameters
        ----------
        path
            The array's name in the cluster.
        data
            The values: their shape is the box's.
        offsets
            Where the box begins along each dimension.

        Raises
        ------
        ArgumentError
            If the box is not within the array, or partly over one that this rank has stored; or the
            values are of another dtype than the array.
        PoolFullError
            If the node's pool has no room for it.

        """
        given = values.array_of(f"the value of {path!r}", data)
        block = np.ascontiguousarray(given).reshape(given.shape)
        begins = _numbers(offsets)
        if len(begins) != block.ndim or any(at < 0 for at in begins):
            raise ArgumentError(
                f"offsets {offsets!r} for values of shape {block.shape}: give where the box of "
                f"{path!r} begins along each dimension"
            )
        text = values.dtype_text(block.dtype)
        self._own.store(checked(path), text, begins, list(block.shape), raw_of(block))

    def put(self, path: str, value: ArrayLike) -> None:
        """Store an array, or a single value, as a whole. Of several ranks the first one's counts.

        Raises
        ------
        ArgumentError
            If its items have no fixed size.
        PoolFullError
            If the node's pool has no room for it.

        """
        given = values.array_of(f"the value of {path!r}", value)
        block = np.ascontiguousarray(given).reshape(given.shape)
        text = values.dtype_text(block.dtype)
        self._own.put(checked(path), text, list(block.shape), raw_of(block))

    def publish(self) -> None:
        """Publish what all ranks have stored, and go on; all ranks call it together.

        An error, of this rank or of another one, ends the block: nothing more can be stored in it.

        Raises
        ------
        ArgumentError
            If boxes of several ranks overlap, nobody has said the shape of an array, or one that is
            there has values that nobody has stored again.
        ExistsError
            If ranks have said different shapes, or an array of another shape or dtype is there.
        NodeAwayError
            If a node has left the cluster since it was stored into.

        """
        try:
            self._publish()
        except BaseException:
            self._end(is_published=False)
            raise
        self._begin()

    @property
    def _own(self) -> native.Together:
        if self._share is None:
            raise ArgumentError("these ranks have ended: begin anew with c.together(comm)")
        return self._share

    def _begin(self) -> None:
        token = ""
        cluster = self._cluster._native

        def begin() -> None:
            nonlocal token
            token, self._share = native.Together.begin(cluster)

        self._each(begin if self._rank == 0 else _nothing)
        token = self._comm.bcast(token)
        if self._rank > 0:
            self._share = native.Together.join(cluster, token, self._rank)

    def _publish(self) -> None:
        own, said = self._own, {"told": "", "plan": "", "line": "", "sealed": ""}

        def tell() -> None:
            said["told"] = own.told()

        def plan() -> None:
            said["plan"] = own.plan(told)

        def seal() -> None:
            said["sealed"] = own.seal(said["line"])

        def publish() -> None:
            own.publish(told, said["plan"], sealed)

        self._each(tell)
        told = self._comm.gather(said["told"]) or []
        self._each(plan if self._rank == 0 else _nothing)
        lines = said["plan"].splitlines() if self._rank == 0 else None
        said["line"] = self._comm.scatter(lines)
        self._each(seal)
        sealed = self._comm.gather(said["sealed"]) or []
        try:
            self._each(publish if self._rank == 0 else _nothing)
        except BaseException:
            # It may be published: its holders know whether it has a name.
            self._end(is_published=True)
            raise
        self._end(is_published=True)

    def _end(self, *, is_published: bool) -> None:
        if self._share is not None:
            self._share.end(is_published)
            self._share = None

    def _each(self, work: Callable[[], None]) -> None:
        """Do something on this rank; what one of them meets is raised on all."""
        met: BaseException | None = None
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it is raised below, on all ranks
            met = error
        self._all_well(met)

    def _all_well(self, met: BaseException | None) -> None:
        """Raise on all ranks what one of them has met, the lowest if there are several."""
        told = None if met is None else (type(met).__name__, str(met))
        for rank, said in enumerate(self._comm.allgather(told)):
            if said is not None:
                name, text = said
                kind = getattr(errors, name, None)
                if isinstance(kind, type) and issubclass(kind, EngramError):
                    raise kind(f"rank {rank}: {text}") from met
                raise EngramError(f"rank {rank}: {name}: {text}") from met


def _numbers(given: SupportsIndex | Sequence[SupportsIndex]) -> list[int]:
    if isinstance(given, Sequence | np.ndarray):
        return [operator.index(each) for each in given]
    return [operator.index(given)]


def _nothing() -> None:
    """Do nothing: the first rank does it."""
