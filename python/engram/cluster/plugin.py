"""A plugin of Dask's workers, by which each takes part in serving its host's node pool."""

import threading
import time
from typing import Any

from distributed import WorkerPlugin

from engram.cluster import members
from engram.cluster.memory import spare_worker
from engram.cluster.nodes import ServedNode, address_of, serve
from engram.cluster.processes import leave_last

_LOOK_S = 0.5


class NodePlugin(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    """A plugin of Dask's workers: each takes part in serving its host's pool."""

    idempotent = True

    def __init__(
        self,
        cluster: str,
        pool: str,
        etcd: list[str],
        size: str | int | None,
        *,
        ttl: float,
        tls: str | None = None,
        joins: bool = False,
    ) -> None:
        self.name = f"engram-cluster-{cluster}"
        self._said = (cluster, pool, etcd, size, ttl, tls)
        self._joins = joins
        self._node: ServedNode | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_node": None}

    def setup(self, worker: Any) -> None:
        """Begin, when the worker does."""
        cluster, pool, etcd, size, ttl, tls = self._said
        host = worker.ip if hasattr(worker, "ip") else None
        spare_worker(worker)
        brings = False
        if self._joins:
            asked = ",".join(["3", *etcd])
            etcd, brings = members.ensure(cluster, asked, lambda: address_of(host), ttl, tls)
        self._node = serve(
            cluster, pool=pool, etcd=etcd, size=size, ttl=ttl, host=host, tls=tls
        ).wait()
        if brings:
            threading.Thread(target=_end_last, args=(cluster, self._node), daemon=True).start()

    def teardown(self, worker: Any) -> None:  # noqa: ARG002 - as Dask calls it
        """End, when the worker does."""
        if self._node is not None:
            self._node.stop()
            self._node = None


def _end_last(cluster: str, node: ServedNode) -> None:
    """End the member of etcd that was brought along, when the cluster is stopped."""
    while node.standing != "ended":
        time.sleep(_LOOK_S)
    leave_last(cluster)
