"""Names that are published together: all of them, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from engram.cluster import plans
from engram.cluster.making import NAMES_MOST, Plan, commit
from engram.cluster.names import checked
from engram.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from numpy.typing import DTypeLike

    from engram.cluster.cluster import Cluster


class Batch:
    """A with-block. What it is told it does when it ends, and nothing of it if the block raises.

    Values are taken then, too: an array that is changed inside the block is published as it is at
    the end.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._plans: dict[str, Plan] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        planned, self._plans = list(self._plans.values()), {}
        if kind is None and planned:
            commit(self._cluster, planned)

    def put(
        self,
        path: str,
        value: Any,
        *,
        parts: Sequence[int] | None = None,
        dims: Sequence[str] | None = None,
        attrs: Mapping[str, Any] | None = None,
        replicas: int = 1,
    ) -> None:
        """Have an array of this process published, as `Cluster.put` does.

        Raises
        ------
        ArgumentError
            If the batch has this name already, or as many as can be published together.

        """
        name = self._free(path)
        plan = plans.value_of(self._cluster, name, value, parts, dims, attrs, replicas)
        self._plans[name] = plan

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
    ) -> None:
        """Have an array made that is written in place, as `Cluster.create_array` does.

        Raises
        ------
        ArgumentError
            As for `put`.

        """
        name = self._free(path)
        plan = plans.empty_of(self._cluster, name, shape, dtype, parts, dims, attrs, fill, replicas)
        self._plans[name] = plan

    def remove(self, path: str) -> None:
        """Have a name removed.

        Raises
        ------
        ArgumentError
            As for `put`.

        """
        name = self._free(path)
        self._plans[name] = Plan(name)

    def _free(self, path: str) -> str:
        name = checked(path)
        if name in self._plans:
            raise ArgumentError(f"the batch has {name!r} already: say once what it is to be")
        if len(self._plans) >= NAMES_MOST:
            raise ArgumentError(
                f"at most {NAMES_MOST} names are published at once, and {name!r} would be one more"
            )
        return name
