"""A cluster on the hosts of a Dask cluster: a plugin of its workers serves each host's pool."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engram.cluster import certificates, etcds, known, members
from engram.cluster.cluster import Cluster
from engram.cluster.cluster import open as open_cluster
from engram.cluster.nodes import address_of
from engram.errors import ArgumentError
from engram.extras import library


def start(
    client: Any,
    *,
    pool: str | os.PathLike[str],
    etcd: str | int | Sequence[str] = etcds.AUTO,
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
        `engram.cluster.stop` ends it. 3: its members are three: one is started beside this process,
        and one on each of two other hosts that have workers.
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
    known.check_ttl(ttl)
    given = None if tls is None else str(tls)
    _check_scheduler(client, given)
    endpoints, is_own = members.ensure(bare, etcd, lambda: address_of(host), ttl, given)
    joins = members.wanted(etcd).is_three
    try:
        client.register_plugin(
            NodePlugin(bare, str(pool), endpoints, size, ttl=ttl, tls=given, joins=joins)
        )
    except BaseException:
        if is_own:
            etcds.end(bare)
        raise
    folder = _folder_of(bare, given, endpoints)
    known.write(known.Known(bare, endpoints, ttl, folder))
    return open_cluster(bare, etcd=endpoints, tls=folder or certificates.NONE)


def security(name: str, *, tls: str | os.PathLike[str] | None = None) -> Any:
    """Give a cluster's certificates as Dask takes them, for its scheduler, workers and clients.

    ::

        security = engram.cluster.security("job")
        with LocalCluster(security=security, protocol="tls://") as dask:
            client = Client(dask, security=security)

    Parameters
    ----------
    name
        The cluster's name.
    tls
        The folder of a host's certificate; without it, this user's authority for the cluster, which
        is made if it is not there.

    Raises
    ------
    NotFoundError
        If there is no such folder.

    """
    distributed = library("distributed", "cluster", "engram.cluster.security")
    folder = certificates.of_node(name, certificates.OWN if tls is None else tls, "")
    if folder is None:
        raise ArgumentError('tls="none" has no certificates: name a folder of them')
    files = certificates.files_of(folder)
    kinds = ("scheduler", "worker", "client")
    named = {f"tls_{kind}_cert": str(files["cert"]) for kind in kinds}
    named |= {f"tls_{kind}_key": str(files["key"]) for kind in kinds}
    return distributed.Security(require_encryption=True, tls_ca_file=str(files["ca"]), **named)


def _check_scheduler(client: Any, tls: str | None) -> None:
    """Refuse a Dask cluster that anybody could have run anything, on the nodes' hosts."""
    address = str(client.scheduler.address)
    scheme, _, place = address.partition("://")
    host = place.rpartition(":")[0].strip("[]")
    if scheme != "tcp" or tls == certificates.NONE or certificates.is_loopback(host):
        return
    raise ArgumentError(
        f"the scheduler of Dask's at {address} runs whatever anybody sends it: start Dask with "
        'engram.cluster.security(name), or say tls="none" where nobody else reaches it'
    )


def _folder_of(name: str, tls: str | None, endpoints: Sequence[str]) -> str | None:
    """Give the folder from which this process has its certificate, as the nodes have theirs."""
    host = endpoints[0].rpartition("://")[2].rpartition(":")[0].strip("[]")
    folder = certificates.of_node(name, tls, host)
    return None if folder is None else str(folder)
