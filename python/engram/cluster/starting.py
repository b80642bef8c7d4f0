"""A cluster on the hosts of a Dask cluster: a plugin of its workers serves each host's pool."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engram.cluster import known
from engram.cluster.cluster import Cluster
from engram.cluster.cluster import open as open_cluster
from engram.cluster.memory import spare_worker
from engram.cluster.nodes import ServedNode, serve


def start(
    client: Any,
    *,
    pool: str | os.PathLike[str],
    etcd: Sequence[str],
    name: str | None = None,
    size: str | int | None = None,
    ttl: float = known.TTL_S,
) -> Cluster:
    """Serve the pool of each host that has a worker, and open the cluster that they are.

    Workers that join later take part, too. Of several workers of a host one serves, and another
    takes over when it dies.

    Parameters
    ----------
    client
        A client of Dask's.
    pool
        Where each host's node pool lies; it is made where it is not there.
    etcd
        The endpoints of etcd, each `HOST:PORT`.
    name
        The cluster's name; without it, that of the pool's folder.
    size
        The size of a pool that is made.
    ttl
        How long a member's lease runs without being renewed, in seconds.

    """
    bare = known.check_name(name or Path(pool).name)
    client.register_plugin(NodePlugin(bare, str(pool), list(etcd), size, ttl))
    known.write(known.Known(bare, list(etcd), ttl))
    return open_cluster(bare, etcd=etcd)


class NodePlugin:
    """A plugin of Dask's workers: each takes part in serving its host's pool."""

    idempotent = True

    def __init__(
        self, cluster: str, pool: str, etcd: list[str], size: str | int | None, ttl: float
    ) -> None:
        self.name = f"engram-cluster-{cluster}"
        self._said = (cluster, pool, etcd, size, ttl)
        self._node: ServedNode | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_node": None}

    def setup(self, worker: Any) -> None:
        """Begin, when the worker does."""
        cluster, pool, etcd, size, ttl = self._said
        host = worker.ip if hasattr(worker, "ip") else None
        spare_worker(worker)
        self._node = serve(cluster, pool=pool, etcd=etcd, size=size, ttl=ttl, host=host).wait()

    def teardown(self, worker: Any) -> None:  # noqa: ARG002 - as Dask calls it
        """End, when the worker does."""
        if self._node is not None:
            self._node.stop()
            self._node = None
