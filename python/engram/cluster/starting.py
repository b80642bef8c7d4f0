"""A cluster on the hosts of a Dask cluster: a plugin of its workers serves each host's pool."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engram.cluster import certificates, etcds, known
from engram.cluster.cluster import Cluster
from engram.cluster.cluster import open as open_cluster
from engram.cluster.nodes import address_of


def start(
    client: Any,
    *,
    pool: str | os.PathLike[str],
    etcd: str | Sequence[str] = etcds.AUTO,
    name: str | None = None,
    size: str | int | None = None,
    host: str | None = None,
    ttl: float = known.TTL_S,
    tls: str | os.PathLike[str] | None = None,
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
        The endpoints of etcd, each `HOST:PORT`. "auto": those that are known on this host, or if
        there are none, those of an etcd that is started beside this process, and outlives it:
        `engram.cluster.stop` ends it.
    name
        The cluster's name; without it, that of the pool's folder.
    size
        The size of a pool that is made.
    host
        The name or address at which workers find an etcd that is started; without it, the name of
        this host.
    ttl
        How long a member's lease runs without being renewed, in seconds.
    tls
        The certificates, as `serve` takes them: a folder that each host has at this path, "own" or
        "none". Without it, they are this user's own where an address is beyond loopback.

    Raises
    ------
    ArgumentError
        If `etcd` names none, or a pool is of another cluster.
    UnsupportedError
        If no etcd may be used.
    CoordinatorError
        If etcd does not answer.

    """
    from engram.cluster.plugin import NodePlugin  # noqa: PLC0415 - dask is needed here alone

    bare = known.check_name(name or Path(pool).name)
    given = None if tls is None else str(tls)
    endpoints, is_own = etcds.ensure(bare, etcd, lambda: address_of(host), ttl, given)
    try:
        client.register_plugin(NodePlugin(bare, str(pool), endpoints, size, ttl=ttl, tls=given))
    except BaseException:
        if is_own:
            etcds.end(bare)
        raise
    folder = _folder_of(bare, given, endpoints)
    known.write(known.Known(bare, endpoints, ttl, folder))
    return open_cluster(bare, etcd=endpoints, tls=folder or certificates.NONE)


def _folder_of(name: str, tls: str | None, endpoints: Sequence[str]) -> str | None:
    """Give the folder from which this process has its certificate, as the nodes have theirs."""
    host = endpoints[0].rpartition("://")[2].rpartition(":")[0].strip("[]")
    folder = certificates.of_node(name, tls, host)
    return None if folder is None else str(folder)
