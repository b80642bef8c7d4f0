"""How a process takes part in serving a node."""

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from engram import telemetry
from engram.cluster import certificates, known
from engram.cluster.natives import native
from engram.errors import (
    ArgumentError,
    BusyError,
    CoordinatorError,
    EngramError,
    ExistsError,
    FormatError,
    NotFoundError,
    UnsupportedError,
)
from engram.paths import POOL_FILE
from engram.pool import create, destroy
from engram.pool import open as open_pool
from engram.size import parse as parsed

if TYPE_CHECKING:
    from engram.cluster.running import Runner

_log = telemetry.Log("engram.cluster")

_LOOK_S = 0.02
_WATCH_S = 0.5
"""How often a served pool's files are looked at: only a write would tell that they are gone."""
_PATIENCE_S = 60.0
_MAKING_S = 5.0
"""For so long another process of the host is given to make the pool of both."""
_CREATING = "creating.toml"
"""What a pool has while it is made, in place of its description."""
_STANDS = {
    "waits": "waits: another process of this host serves it",
    "joins": "joins the cluster",
    "serves": "is served",
    "ended": "has ended",
}
KEPT_S = 60.0
"""How long parts that were replaced are kept, in seconds, if nothing else is said."""


class ServedNode:
    """A process's part in serving a node pool; as a with-block, it ends with the block.

    Of the processes of a host that take part one serves, and the others wait: when its process
    dies, another takes over within a second, as the same member. What serves are threads that never
    need the interpreter.
    """

    def __init__(self, driven: native.Node, cluster: str, pool: Path, runs: "_Runs") -> None:
        self.cluster = cluster
        self.pool = pool
        self._driven = driven
        self._runs = runs
        self._gone: str | None = None
        self._told = "joins"
        self._over = threading.Event()
        threading.Thread(
            target=_watch, args=(weakref.ref(self), self._over), name="engram-watch", daemon=True
        ).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<engram node of {self.cluster} at {self.pool}: {self.standing}>"

    @property
    def standing(self) -> Literal["waits", "joins", "serves", "ended"]:
        """How it stands: another process serves; it is about to serve; it serves; it has ended."""
        return self._driven.standing()[0]  # type: ignore[return-value]  # one of these

    @property
    def member(self) -> str | None:
        """The member that it serves as."""
        standing, said = self._driven.standing()
        return said if standing == "serves" else None

    @property
    def failure(self) -> str | None:
        """Why it has ended; None: it has not, or was stopped."""
        standing, said = self._driven.standing()
        return self._gone or (said if standing == "ended" else None)

    @property
    def etcd(self) -> list[str]:
        """The endpoints of etcd: those that were given, and those that it has told of."""
        return self._driven.endpoints()

    def wait(self, timeout: float = _PATIENCE_S) -> Self:
        """Wait until the node is served: by this process, or by another of the host.

        Raises
        ------
        CoordinatorError
            If it is not served in time, in seconds.
        BusyError
            If it has ended, with the reason.

        """
        until = time.monotonic() + timeout
        while (standing := self._driven.standing())[0] not in {"serves", "waits"}:
            if standing[0] == "ended":
                why = self.failure or "the cluster was stopped"
                raise BusyError(f"the node of {self.cluster!r} has ended: {why}")
            if time.monotonic() > until:
                raise CoordinatorError(
                    f"the node of {self.cluster!r} has not joined within {timeout:g} s: etcd does "
                    "not answer, or another host serves a copy of the pool"
                )
            time.sleep(_LOOK_S)
        self._tell()
        return self

    def stop(self) -> None:
        """End this process's part. What lies in the pool stays."""
        if not self._over.is_set():
            _log.info("%s: the node at %s ends", self.cluster, self.pool)
        self._over.set()
        self._driven.stop()
        self._runs.end()

    def _look(self) -> bool:
        """End where the pool's files were removed: its node is away then, and readers are told.

        Gives whether it goes on.
        """
        self._tell()
        if self.standing == "ended":
            return False
        if (self.pool / POOL_FILE).exists():
            return True
        self._gone = gone(self.pool, self.cluster)
        _log.warning("%s", self._gone)
        self.stop()
        return False

    def _tell(self) -> None:
        """Log how it stands, if that has changed."""
        now, before = self.standing, self._told
        if now == before:
            return
        self._told = now
        _log.info("%s: the node at %s %s", self.cluster, self.pool, _STANDS[now])
        if (why := self.failure) is not None:
            _log.warning("%s: the node at %s has failed: %s", self.cluster, self.pool, why)


def _watch(node: weakref.ref[ServedNode], over: threading.Event) -> None:
    """Look at a node's pool until it ends; the node is nobody's but its maker's."""
    while not over.wait(_WATCH_S):
        there = node()
        if there is None or not there._look():
            return
        del there


def gone(pool: Path, cluster: str) -> str:
    """Say that a pool's files were removed while it was served, and what to do."""
    return (
        f"the files of the pool {pool} were removed while it was served: what it alone held is "
        f"lost. `engram cluster retire {cluster} NODE --lost` gives its node up, which `engram "
        f"cluster status {cluster}` names; a start with this --pool makes a new one"
    )


class _Runs:
    """Runs methods that other nodes call: what that takes is loaded with the first of them."""

    def __init__(
        self, facts: tuple[str, list[str], float, str | None, str], workers: int | None
    ) -> None:
        self._facts = facts
        self._workers = workers
        self._runner: Runner | None = None
        self._lock = threading.Lock()

    def __call__(self, method: str, number: str, body: bytes) -> bytes | bool:
        if self._runner is None:
            from engram.cluster.cluster import reopened  # noqa: PLC0415 - as above
            from engram.cluster.running import Runner  # noqa: PLC0415

            with self._lock:
                if self._runner is None:
                    pool = Path(self._facts[-1])
                    self._runner = Runner(reopened, self._facts, pool, self._workers)
        return self._runner(method, number, body)

    def end(self) -> None:
        """Take no more."""
        if self._runner is not None:
            self._runner.end()


def serve(
    name: str,
    *,
    pool: str | os.PathLike[str],
    etcd: Sequence[str],
    size: str | int | None = None,
    host: str | None = None,
    ttl: float = known.TTL_S,
    weight: float = 1.0,
    kept: float = KEPT_S,
    tls: str | os.PathLike[str] | None = None,
    workers: int | None = None,
) -> ServedNode:
    """Take part in serving this host's node pool, from threads of this process.

    Parameters
    ----------
    name
        The cluster's name.
    pool
        The node pool; it is made if it is not there.
    etcd
        The endpoints of etcd, each `HOST:PORT`.
    size
        The size of a pool that is made, such as "64 GiB".
    host
        The name or address at which others find this host; without it, the host's name.
    ttl
        How long the member's lease runs without being renewed, in seconds.
    weight
        The node's share of names, beside those of others.
    kept
        How long parts that were replaced are kept for those who have looked them up, in seconds.
    tls
        The folder of this host's certificate; "own": this user's authority for the cluster, which
        is made if it is not there; "none": connections are plain, and whoever reaches them does
        what they like. Without it, "own" beyond loopback.
    workers
        How many processes run methods that other nodes call; without it, one for each processor.

    Raises
    ------
    ArgumentError
        If the pool is of another cluster, or of this process already, or a value cannot be.
    NotFoundError, FormatError
        If the pool can be neither opened nor made.
    CoordinatorError
        If etcd does not answer. A pool that was made for this call is gone then, too.
    UnsupportedError
        If etcd is of a version that may lose what it acknowledged, or the host has no address.

    """
    bare, path = known.check_name(name), Path(pool).absolute()
    known.check_ttl(ttl)
    check_pool(path, size)
    address = address_of(host)
    with _made_for_good(path, size):
        folder = certificates.of_node(bare, tls, address)
        said = None if folder is None else str(folder)
        runs = _Runs((bare, list(etcd), known.DEADLINE_S, said, str(path)), workers)
        how: Any = {"ttl": ttl, "host": address, "weight": weight, "kept": kept, "caller": runs}
        driven = native.Node(bare, path, list(etcd), tls_folder=folder, **how)
    known.write(known.Known(bare, list(etcd), ttl, said, {socket.gethostname(): str(path)}))
    return ServedNode(driven, bare, path, runs)


def address_of(host: str | None) -> str:
    """Give the address of this host by the name at which others find it.

    Raises
    ------
    UnsupportedError
        If it has none.

    """
    given = host or socket.gethostname()
    try:
        return str(socket.getaddrinfo(given, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise UnsupportedError(
            f"the host's name {given!r} has no address ({error}): give host= an address at which "
            "other nodes find this one"
        ) from None


def check_pool(path: Path, size: str | int | None) -> None:
    """Refuse what can be no node pool, before anything is started for it.

    Raises
    ------
    ArgumentError
        If the size cannot be that of a pool.
    NotFoundError
        If there is no folder in which it could be made.
    FormatError, CorruptError
        If something else is in its place: the engine says what, and what to do.

    """
    if size is not None and parsed(size) == 0:
        raise ArgumentError(f'size {size!r} leaves no room for data: give for example "4 GiB"')
    if path.is_dir():
        _wait_until_made(path)
        if not (path / POOL_FILE).exists():
            _check_opens(path)
    elif path.exists():
        raise FormatError(
            f"{path} is a file, and no pool: name a pool, or a path that does not exist, where one "
            "is made"
        )
    elif not path.parent.is_dir():
        raise NotFoundError(f"the folder above {path} does not exist: make it first")


def _wait_until_made(path: Path) -> None:
    """Wait for a pool that another process of the host may be making; it may have died of it."""
    until = time.monotonic() + _MAKING_S
    while (path / _CREATING).exists() and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _check_opens(path: Path) -> None:
    """Refuse a folder that is no pool, or only half of one, with what the engine says of it."""
    try:
        open_pool(path, mode="r").close()  # another process of the host may have made it by now
    except EngramError as error:
        raise type(error)(
            f"{error}; or name a path where nothing is: a pool is made there"
        ) from None


@contextlib.contextmanager
def _made_for_good(path: Path, size: str | int | None) -> Iterator[None]:
    """Make the pool if it is not there; where the block fails, take away what was made here."""
    is_ours = not path.exists() and _make(path, size)
    if not is_ours:
        _wait_until_made(path)
    try:
        yield
    except BaseException:
        if is_ours:
            with contextlib.suppress(EngramError):  # another process of the host has it by now
                destroy(path)
        raise


def _make(path: Path, size: str | int | None) -> bool:
    """Make a pool; False: another process of the host was faster."""
    try:
        made = create(path, size) if size is not None else create(path)
    except ExistsError:
        return False
    made.close()
    return True
