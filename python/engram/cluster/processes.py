"""The process that serves a node until it is stopped: here, or in the background.

In the background it says "ready" on standard output once the node is served, and how it stands
itself, or, as JSON, why the node is not; what it says after that is in the log of its host, in the
cluster's state folder.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from engram import mounts
from engram.cluster import etcds, known, members
from engram.cluster.natives import native
from engram.cluster.nodes import ServedNode, address_of, check_pool, gone, serve
from engram.cluster.operating import wait_until_left
from engram.errors import BusyError, CoordinatorError, EngramError, PoolGoneError
from engram.jobs.signals import Signals
from engram.paths import POOL_FILE

_LOOK_S = 0.1
_SEEN_S = 1.0
"""So long etcd goes on once all have left: who asked for it looks, too."""
_READY = "ready"


class Start(NamedTuple):
    """What a process is to serve."""

    cluster: str
    pool: str
    """The node pool; it is made if it is not there."""
    size: str | None
    """The size of a pool that is made."""
    etcd: str | Sequence[str]
    """The endpoints of etcd, "auto", or "3"."""
    host: str | None
    """The name or address at which others find this host; None: the host's name."""
    ttl: float = known.TTL_S
    """How long the member's lease runs without being renewed, in seconds."""
    tls: str | None = None
    """The certificates, as `engram.cluster.serve` takes them."""


class Left(NamedTuple):
    """A process that a start has left in the background."""

    pid: int
    serves: bool
    """Whether it serves; else it waits, and another process of the host does."""


def run(start: Start, ready: Callable[[ServedNode], None], *, is_left: bool = False) -> None:
    """Serve a node's pool until a signal comes, or the cluster is stopped.

    An etcd that is started for that ends with this process, or if `is_left`, when the cluster is
    stopped.

    Parameters
    ----------
    start
        What is served.
    ready
        Called once the node is served, by this process or by another of the host.
    is_left
        Whether nobody waits for this process.

    Raises
    ------
    ArgumentError
        If the pool is of another cluster, or `etcd` names none.
    NotFoundError
        If the folder above the pool is not there.
    FormatError
        If something else is in the pool's place.
    UnsupportedError
        If no etcd may be used, or the host has no address.
    CoordinatorError
        If etcd does not answer.
    PoolGoneError
        If the pool's files are removed meanwhile.
    BusyError
        If the node ends for another reason.

    """
    name, pool = known.check_name(start.cluster), Path(start.pool).absolute()
    known.check_ttl(start.ttl)
    check_pool(pool, start.size)
    native.check_pool(pool, name)
    address = address_of(start.host)
    with Signals() as signals:
        endpoints, is_own = members.ensure(name, start.etcd, lambda: address, start.ttl, start.tls)
        ends_etcd = is_own
        try:
            with serve(
                name,
                pool=pool,
                etcd=endpoints,
                size=start.size,
                host=address,
                ttl=start.ttl,
                tls=start.tls,
            ) as node:
                node.wait()
                ends_etcd = is_own and not is_left
                ready(node)
                while node.standing != "ended" and not signals.came():
                    endpoints = _told(name, node, endpoints)
                    _check_is_there(pool, name)
                    time.sleep(_LOOK_S)
                is_stopped, why = node.standing == "ended", node.failure
            if why is not None:
                _check_is_there(pool, name)
                raise BusyError(f"the node of {name!r} has ended: {why}")
            if is_stopped:
                leave_last(name)
        finally:
            if ends_etcd:
                etcds.end(name)


def _check_is_there(pool: Path, cluster: str) -> None:
    """Refuse to go on with a pool whose files were removed: what writes to it fails anyway."""
    if not (pool / POOL_FILE).exists():
        raise PoolGoneError(gone(pool, cluster))


def _told(cluster: str, node: ServedNode, before: list[str]) -> list[str]:
    """Have it known here where etcd is, if that has changed; give it."""
    now = node.etcd
    if set(now) <= set(before):
        return before
    known.learn(cluster, now)
    return now


def leave_last(cluster: str) -> None:
    """End the etcd that a start has left on this host, when all nodes have left."""
    own = etcds.read(cluster)
    if own is None or not etcds.is_running(cluster):
        return
    with contextlib.suppress(BusyError):  # another has ended it, or a node does not leave
        try:
            wait_until_left(cluster)
        except CoordinatorError:
            if not own.is_one_of_three:  # else other members have ended, as this one is to
                raise
        time.sleep(_SEEN_S)
        etcds.end(cluster)


def log_of(cluster: str) -> Path:
    """Give the log of what serves in the background on this host."""
    return known.place(cluster) / f"{socket.gethostname()}.log"


def leave(start: Start) -> Left:
    """Serve a node's pool in the background; give the process once the node is served.

    Raises
    ------
    EngramError
        As `run` does.

    """
    log = log_of(start.cluster)
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            [sys.executable, "-m", "engram.cluster.processes", json.dumps(start._asdict())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=out,
            start_new_session=True,
            text=True,
        )
    line = ""
    if process.stdout is not None:
        with process.stdout as said:
            line = said.readline()
    word, _, standing = line.strip().partition(" ")
    if word != _READY:
        raise mounts.told_by(line, process.wait(), Path(start.pool))
    return Left(process.pid, serves=standing == "serves")


def main(words: list[str]) -> int:
    """Serve what the first word says, as JSON, until it is stopped."""
    start = Start(**json.loads(words[0]))

    def tell(what: str) -> None:
        sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {os.getpid()}: {what}\n")
        sys.stderr.flush()

    is_ready = False

    def ready(node: ServedNode) -> None:
        nonlocal is_ready
        is_ready = True
        sys.stdout.write(f"{_READY} {node.standing}\n")
        sys.stdout.flush()
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        tell(f"{node.pool} of {node.cluster}: {node.standing} {node.member or ''}".rstrip())

    try:
        run(start, ready, is_left=True)
    except EngramError as error:
        if not is_ready:
            json.dump({"error": type(error).__name__, "message": str(error)}, sys.stdout)
        tell(str(error))
        return error.exit_code
    tell("ended")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
