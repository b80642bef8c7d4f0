"""The etcd of a cluster: which program may decide for one, and the one that a start brings along.

Where nobody gives endpoints, the first to start a cluster starts an etcd of one member beside
itself. Its data lie in the cluster's state folder (`known.place`), and so does `etcd.json`, which
says on which host it runs, at which port, and in which process. Whoever starts or ends it has the
lock of that folder, so two starters make one. Names of the cluster live in its data: these outlive
it, and the next start goes on with them.

An etcd of three members is brought along by the starts of three hosts (`members.py`). Each member
has a file and data of its own, `etcd-HOST.json` and `etcd-HOST`, by which hosts that share a home
tell theirs from others'.
"""

import contextlib
import fcntl
import json
import os
import platform
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from engram.cluster import certificates, known
from engram.cluster.natives import native
from engram.errors import ArgumentError, CoordinatorError, NotFoundError, UnsupportedError

AUTO = "auto"
ALONE = "etcd"
"""What the file and the data of an etcd of one member are called."""
LOOPBACK = "127.0.0.1"
_ENDPOINT = re.compile(r"(?:https?://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})/?")
_VERSION = re.compile(r"^etcd Version:\s*(\S+)", re.MULTILINE)
_VERSION_S = 20.0
_LOOK_S = 0.05
_BEGIN_S = 60.0
_END_S = 20.0
_TRIES = 5
"""Somebody else may take a port between the look at it and its use."""
_TOLD = 2000
"""So much of the end of its log is told where etcd does not start."""
_children: dict[int, "subprocess.Popen[bytes]"] = {}
"""The etcds that this process has started, by number."""


class Endpoints(NamedTuple):
    """Where the etcd of a cluster is."""

    endpoints: list[str]
    """Each `HOST:PORT`."""
    started: bool
    """Whether it was started just now, beside this process."""


class OwnEtcd(NamedTuple):
    """An etcd that a start has brought along, as its file says."""

    host: str
    """The name of the host on which it runs."""
    endpoint: str
    pid: int
    """Its process; 0: it was ended, or has not begun."""
    label: str = ALONE
    """What its file and its data are called."""
    peer: str = ""
    """Where other members find it; "": there are none."""

    @property
    def is_here(self) -> bool:
        """Whether it runs on this host, or is to."""
        return self.host == socket.gethostname()

    @property
    def is_one_of_three(self) -> bool:
        """Whether it is a member of an etcd of three, or is to be one."""
        return self.label != ALONE


def parse(etcd: str | int | Sequence[str]) -> list[str] | None:
    """Give the endpoints that are meant; None: those that are known here, or an own one.

    Raises
    ------
    ArgumentError
        If it is neither "auto" nor endpoints.

    """
    if etcd == AUTO:
        return None
    given = list(etcd) if isinstance(etcd, Sequence) and not isinstance(etcd, str) else None
    given = str(etcd).split(",") if given is None else given
    found = [_ENDPOINT.fullmatch(each) if isinstance(each, str) else None for each in given]
    if not given or not all(match and 0 < int(match[2]) < 1 << 16 for match in found):
        raise ArgumentError(
            f"{etcd!r} names no etcd: give auto, 3, or endpoints such as h1:2379 or "
            "http://h1:2379,http://h2:2379,http://h3:2379"
        )
    return [each.rstrip("/") for each in given]


def endpoints_of(etcd: str | Sequence[str]) -> list[str]:
    """Give the endpoints that are meant, of an etcd that is there.

    Raises
    ------
    ArgumentError
        If it names none.

    """
    with contextlib.suppress(ArgumentError):
        if found := parse(etcd if isinstance(etcd, str) else list(etcd)):
            return found
    given = etcd if isinstance(etcd, str) else ",".join(map(str, etcd))
    raise ArgumentError(
        f"{given!r} names no etcd: give its endpoints, such as h1:2379 or "
        "http://h1:2379,http://h2:2379,http://h3:2379"
    )


def find(path: str | None = None) -> Path:
    """Find the first program `etcd` that may decide for a cluster, in these folders, or in PATH.

    Raises
    ------
    UnsupportedError
        If there is none; versions that may lose what they acknowledged are named.

    """
    folders = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    refused = []
    for program in dict.fromkeys(Path(folder or ".", "etcd").resolve() for folder in folders):
        if not (program.is_file() and os.access(program, os.X_OK)):
            continue
        try:
            native.check_etcd_version(_version(program))
        except UnsupportedError as error:
            refused.append(f"{program}: {error}")
        else:
            return program
    remedy = "install Debian's etcd-server or another of 3.4.22, 3.5.6 or later, or give etcd=[…]"
    if refused:
        raise UnsupportedError(f"no etcd in PATH may be used ({'; '.join(refused)}): {remedy}")
    raise UnsupportedError(f"there is no program etcd in PATH: {remedy}")


def _version(program: Path) -> str:
    """Ask a program for its version; "": it does not say one."""
    try:
        said = subprocess.run(  # noqa: S603 - the user's own program, no shell
            [program, "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERSION_S,
            env=_environment(),
        ).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    found = _VERSION.search(said)
    return found[1] if found else ""


def _environment() -> dict[str, str]:
    """Give the environment of an etcd, which takes its options from there, too."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
    if platform.machine() == "aarch64":
        env["ETCD_UNSUPPORTED_ARCH"] = "arm64"
    return env


def ensure(
    cluster: str,
    etcd: str | Sequence[str],
    address: Callable[[], str],
    ttl: float = known.TTL_S,
    tls: str | os.PathLike[str] | None = None,
) -> Endpoints:
    """Give the endpoints of a cluster's etcd: as given, as known here, or of one that is started.

    Parameters
    ----------
    cluster
        The cluster's name.
    etcd
        Endpoints, or "auto".
    address
        Gives this host's address, at which an etcd that is started answers.
    ttl
        How long leases run, in seconds.
    tls
        The certificates of an etcd that is started, as `engram.cluster.serve` takes them.

    Raises
    ------
    ArgumentError
        If `etcd` names none.
    UnsupportedError
        If one is to be started, and no program may decide.
    CoordinatorError
        If the one that is started does not answer.

    """
    given = parse(etcd)
    if given is not None:
        return Endpoints(given, started=False)
    with locked(cluster):
        own = read(cluster)
        with contextlib.suppress(NotFoundError):
            endpoints = known.read(cluster).etcd
            if own is None or own.endpoint not in endpoints:
                return Endpoints(endpoints, started=False)
        if own is not None and (runs(cluster, own) if own.is_here else own.pid):
            return Endpoints([own.endpoint], started=False)
        # One that was ended on another host, by whose home its data are here, goes on here.
        here = address()
        folder = certificates.of_node(cluster, tls, here)
        endpoint = _start_alone(cluster, here, own, folder)
        known.write(known.Known(cluster, [endpoint], ttl, None if folder is None else str(folder)))
        return Endpoints([endpoint], started=True)


def end(cluster: str) -> bool:
    """End the etcd that a start has left on this host; its data stay. Whether there was one."""
    if read(cluster) is None:
        return False
    with locked(cluster):
        own = read(cluster)
        if own is None or not is_running(cluster):
            return False
        until = time.monotonic() + _END_S
        os.kill(own.pid, signal.SIGTERM)
        while runs(cluster, own):
            if time.monotonic() > until:
                os.kill(own.pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
        if (child := _children.pop(own.pid, None)) is not None:
            child.wait()
        write(cluster, own._replace(pid=0))
        return True


def label_here() -> str:
    """Give what the file and the data are called of this host's member of an etcd of three."""
    return f"{ALONE}-{socket.gethostname()}"


def read(cluster: str) -> OwnEtcd | None:
    """Give what is said of the etcd that a start has brought along; None: none has.

    Of an etcd of three it is this host's member.
    """
    for label in (label_here(), ALONE):
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            text = (known.place(cluster) / f"{label}.json").read_text(encoding="utf-8")
            return OwnEtcd(**json.loads(text))
    return None


def is_running(cluster: str) -> bool:
    """Whether an etcd runs on this host that a start has left."""
    own = read(cluster)
    return own is not None and own.is_here and runs(cluster, own)


def version(endpoint: str, within: float, tls: Path | None = None) -> str:
    """Ask the etcd at an endpoint for its version, and whether it can decide.

    Raises
    ------
    CoordinatorError
        If it does not answer within so many seconds, or has no leader.
    UnsupportedError
        If it is of a version that may lose what it acknowledged.

    """
    return native.etcd_version([endpoint], within, tls_folder=tls)


@contextlib.contextmanager
def locked(cluster: str, label: str = ALONE) -> Iterator[None]:
    """Have the lock of the etcd of a cluster, or of one member, among processes that see it."""
    place = known.place(cluster)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (place / f"{label}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write(cluster: str, own: OwnEtcd) -> None:
    """Say what there is of the etcd that this host brings along."""
    path = known.place(cluster) / f"{own.label}.json"
    made = path.with_name(f".{path.name}")
    made.write_text(json.dumps(own._asdict()), encoding="utf-8")
    made.replace(path)


def data(cluster: str, label: str) -> Path:
    """Give the folder of an etcd's data."""
    return known.place(cluster) / label


def log(cluster: str, label: str) -> Path:
    """Give the log of an etcd."""
    return known.place(cluster) / f"{label}.log"


def runs(cluster: str, own: OwnEtcd) -> bool:
    """Whether the process is this cluster's etcd: numbers are used again."""
    try:
        words = Path(f"/proc/{own.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(f"--data-dir={data(cluster, own.label)}") in words


def begin(cluster: str, own: OwnEtcd, words: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Begin an etcd with these options; its file says that it runs."""
    with log(cluster, own.label).open("ab") as out:
        process = subprocess.Popen(  # noqa: S603 - the user's own program, no shell
            [find(), f"--data-dir={data(cluster, own.label)}", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=_environment(),
            cwd="/",
            start_new_session=True,
        )
    _children[process.pid] = process
    write(cluster, own._replace(pid=process.pid))
    return process


def abandon(cluster: str, own: OwnEtcd, process: "subprocess.Popen[bytes]") -> None:
    """End an etcd that is of no use."""
    process.kill()
    process.wait()
    _children.pop(process.pid, None)
    write(cluster, own._replace(pid=0))


def end_of_log(cluster: str, label: str) -> str:
    """Give what the log of an etcd ends with, for messages."""
    path = log(cluster, label)
    said = path.read_text(encoding="utf-8", errors="replace")[-_TOLD:]
    return f"see {path}, which ends: {' '.join(said.split())}"


def url_of(address: str, port: int, tls: Path | None) -> str:
    """Give an address as etcd is told it, and tells it."""
    bare = f"[{address}]" if ":" in address else address
    return f"http{'' if tls is None else 's'}://{bare}:{port}"


def _start_alone(cluster: str, address: str, former: OwnEtcd | None, tls: Path | None) -> str:
    """Start one, and wait until it answers; at the port of last time, if it is free.

    With certificates it speaks TLS, and to nobody but members of the cluster: at its port for other
    members of etcd as well, of which it has none.
    """
    program = find()
    for attempt in range(_TRIES):
        port = 0
        if former is not None and former.is_here and attempt == 0:
            port = int(former.endpoint.rpartition(":")[2])
        url = url_of(address, free_port(address, port), tls)
        endpoint = url if tls is not None else url.removeprefix("http://")
        peer = url_of(LOOPBACK, free_port(LOOPBACK, 0), tls)
        own = OwnEtcd(socket.gethostname(), endpoint, 0)
        words = words_of("engram", url, peer, address, tls)
        process = begin(cluster, own, [*words, f"--initial-cluster=engram={peer}"])
        if answers(process, endpoint, tls):
            return endpoint
        abandon(cluster, own, process)
    raise CoordinatorError(f"{program} does not start at {address}; {end_of_log(cluster, ALONE)}")


def words_of(name: str, url: str, peer: str, address: str, tls: Path | None) -> list[str]:
    """Give the options of an etcd, or of a member of one, but for who its members are."""
    return [
        f"--name={name}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        # What rows were an hour ago is asked for by nobody.
        "--auto-compaction-retention=1",
        *_secured(address, peer, tls),
    ]


def _secured(address: str, peer: str, tls: Path | None) -> list[str]:
    """Give the options of an etcd that speaks to members alone."""
    if tls is None:
        return []
    files = certificates.files_of(tls, host=address)
    words = []
    for start in ("--", "--peer-") if peer.startswith("https://") else ("--",):
        words += [f"{start}cert-file={files['cert']}", f"{start}key-file={files['key']}"]
        words += [f"{start}trusted-ca-file={files['ca']}", f"{start}client-cert-auth"]
    return words


def free_port(address: str, wanted: int) -> int:
    """Give a port that is free: this one, or any."""
    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in (wanted, 0):
        with socket.socket(kind) as tried, contextlib.suppress(OSError):
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((address, port))
            return int(tried.getsockname()[1])
    raise ArgumentError(f"{address} is no address of this host: give host= one that is")


def answers(process: "subprocess.Popen[bytes]", endpoint: str, tls: Path | None) -> bool:
    """Wait until an etcd answers; False: it has ended, or never does."""
    until = time.monotonic() + _BEGIN_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(CoordinatorError):
            version(endpoint, 1.0, tls)
            return True
        time.sleep(_LOOK_S)
    return False
