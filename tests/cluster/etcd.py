"""A real etcd: one member or several on hosts, or one on loopback, which needs no root.

It is the first in PATH that may decide for a cluster.

What it keeps lies in the memory of its host, and goes with it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import socket
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from cluster.claims import PREFIX, Claim, wait_for
from cluster.process import Process
from engram.cluster import etcds
from engram.errors import UnsupportedError
from native import PACKAGES, PATH, lacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

KIND = "etcd"
LOOPBACK = "127.0.0.1"
UNSUPPORTED = {"aarch64": ("env", "ETCD_UNSUPPORTED_ARCH=arm64")}
"""Machines on which this etcd starts only if it is told their name."""


def why_not() -> str:
    """Give the reason for which there can be no etcd here; "" if there can."""
    if missing := " ".join(PACKAGES[name] for name in lacking(("etcd", "etcdctl"))):
        return f"these are missing for etcd: {missing} (`make test` installs them)"
    try:
        etcds.find(PATH)
    except UnsupportedError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Tls:
    """Files by which members and clients know each other: all show `cert`, signed by `ca`."""

    cert: Path
    key: Path
    ca: Path

    def of_server(self) -> list[str]:
        """Return the options of a member: who cannot show a certificate is refused."""
        words = []
        for start in ("--", "--peer-"):
            words += [f"{start}cert-file={self.cert}", f"{start}key-file={self.key}"]
            words += [f"{start}trusted-ca-file={self.ca}", f"{start}client-cert-auth"]
        return words

    def of_client(self) -> list[str]:
        """Return the options of etcdctl."""
        return [f"--cert={self.cert}", f"--key={self.key}", f"--cacert={self.ca}"]


class Place(Protocol):
    """Where a member runs: a host, or this machine's loopback."""

    @property
    def address(self) -> str:
        """Return its address."""

    @property
    def memory(self) -> Path:
        """Return where its programs have their memory."""

    @property
    def shm(self) -> Path:
        """Return where the test's process sees that."""

    def start(self, command: Sequence[str | Path], *, log: str = "") -> Process:
        """Start a program."""


class Loopback:
    """The machine itself, under a number of its own, to which its ports belong."""

    address = LOOPBACK

    def __init__(self) -> None:
        self._claim = Claim(KIND, _clear, lambda number: _are_free(_ports(number)))
        self.ports = _ports(self._claim.number)
        self.memory = self.shm = _memory(self._claim.number)
        self.memory.mkdir(mode=0o700)

    def start(self, command: Sequence[str | Path], *, log: str = "") -> Process:
        """Start a program."""
        env = {**os.environ, "PATH": PATH}
        return Process([str(word) for word in command], self._claim.folder / log, env)

    def close(self) -> None:
        """Remove all that is here."""
        shutil.rmtree(self.memory)
        self._claim.release()


def _ports(number: int) -> tuple[int, int]:
    """Return two ports, below those that the kernel gives to clients."""
    return 23_790 + 2 * number, 23_791 + 2 * number


def _are_free(ports: Iterable[int]) -> bool:
    for port in ports:
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((LOOPBACK, port))
            except OSError:
                return False
    return True


def _memory(number: int) -> Path:
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK):
        place = Path("/tmp")
    return place / f"{PREFIX}{KIND}-{number}-data"


def _clear(number: int) -> None:
    """End the etcd that a killed run left under a number, and remove what it kept."""
    option = f"--data-dir={_memory(number)}/".encode()

    def none_is_left() -> bool:
        found = False
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and option in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True
        return not found

    wait_for("the etcd of a killed run ended", none_is_left)
    shutil.rmtree(_memory(number), ignore_errors=True)


class Member:
    """One of the servers, which may have ended and be started again."""

    def __init__(self, place: Place, name: str, ports: Sequence[int], scheme: str) -> None:
        self.place, self.name = place, name
        self.endpoint, self.peer = (f"{scheme}://{place.address}:{port}" for port in ports)
        self.process: Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self.process is not None and self.process.is_running

    def has_data(self) -> bool:
        """Whether what it kept is in its host's memory."""
        return (self.place.shm / self.name / "member").exists()

    def start(self, options: Sequence[str], cluster: Sequence[Member], state: str) -> None:
        """Start it; it takes part in a cluster of these that is `new`, or `existing`."""
        words = [
            f"--name={self.name}",
            f"--data-dir={self.place.memory / self.name}",
            f"--listen-client-urls={self.endpoint}",
            f"--advertise-client-urls={self.endpoint}",
            f"--listen-peer-urls={self.peer}",
            f"--initial-advertise-peer-urls={self.peer}",
            f"--initial-cluster={','.join(f'{each.name}={each.peer}' for each in cluster)}",
            f"--initial-cluster-state={state}",
            # Else members join and leave five seconds after the others have met, at the earliest.
            "--strict-reconfig-check=false",
        ]
        program = [*UNSUPPORTED.get(platform.machine(), ()), etcds.find(PATH)]
        self.process = self.place.start([*program, *words, *options], log=f"{self.name}.log")


class Etcd:
    """An etcd with a member on each of these hosts: healthy in the block, gone after it.

    A member is known by its place among the hosts. With `tls`, all of it is mutual TLS.
    """

    def __init__(
        self,
        hosts: Sequence[Place],
        *,
        tls: Tls | None = None,
        options: Sequence[str] = ("--heartbeat-interval=100", "--election-timeout=1000"),
        ports: tuple[int, int] = (2379, 2380),
    ) -> None:
        scheme = "https" if tls else "http"
        self._tls, self._options = tls, [*options, *(tls.of_server() if tls else ())]
        self.members = [
            Member(host, f"etcd-e{number}", ports, scheme) for number, host in enumerate(hosts, 1)
        ]

    @classmethod
    def alone(cls, *, tls: Tls | None = None, options: Sequence[str] = ()) -> Self:
        """Return an etcd of one member on loopback, at ports that are free: it needs no root."""
        place = Loopback()
        return cls([place], tls=tls, options=options, ports=place.ports)

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                member.start(self._options, self.members, "new")
            self.wait_until_healthy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all members, and remove what those keep whose hosts have power."""
        for member in self.members:
            if member.process:
                member.process.kill()
            with suppress(RuntimeError):
                shutil.rmtree(member.place.shm / member.name, ignore_errors=True)
        for member in self.members:
            if isinstance(member.place, Loopback):
                member.place.close()

    @property
    def endpoints(self) -> list[str]:
        """Return the URLs for clients, of all members."""
        return [member.endpoint for member in self.members]

    def running(self) -> list[Member]:
        """Return the members whose processes have not ended."""
        return [member for member in self.members if member.is_running]

    # Members

    def kill(self, place: int) -> None:
        """End a member by SIGKILL; what it kept stays."""
        process = self.members[place].process
        assert process is not None, f"{self.members[place].name} was not started"
        process.kill()

    def restart(self, place: int) -> None:
        """Start a member that has ended, and wait until it is healthy.

        If its memory is gone it joins as a new one, and is sent all that there is; a single one is
        empty then.
        """
        member = self.members[place]
        assert not member.is_running, f"{member.name} runs: kill it first"
        state = "new"
        if not member.has_data() and len(self.members) > 1:
            self._replace(member)
            state = "existing"
        member.start(self._options, self.members, state)
        self.wait_until_healthy()

    def _replace(self, member: Member) -> None:
        """Have the others know that a member has lost what it kept."""
        known = json.loads(self.ctl("member", "list", "--write-out=json"))["members"]
        for each in known:
            if member.peer in each["peerURLs"]:
                self.ctl("member", "remove", f"{each['ID']:x}")
        self.ctl("member", "add", member.name, f"--peer-urls={member.peer}")

    def wait_until_healthy(self) -> None:
        """Wait until each running member answers, by the consent of most."""

        def all_answer() -> bool:
            for member in self.members:
                if member.process and not member.is_running and member.process.has_failed:
                    raise AssertionError(f"{member.name} ended; it said:\n{member.process.said()}")
            return self._tried("endpoint", "health", patience="2s").returncode == 0

        wait_for("etcd healthy", all_answer)

    def leader(self) -> int:
        """Return which member leads, as most of all members see it; wait until one does."""
        found: list[int] = []

        def one_leads() -> bool:
            members = self.running()
            with ThreadPoolExecutor() as at_once:  # one that is cut off takes all of its time
                said = list(at_once.map(self._status, members))
            places = {own: self.members.index(m) for m, (own, _) in zip(members, said, strict=True)}
            for leader, count in Counter(leader for _, leader in said).items():
                if leader and leader in places and count > len(self.members) // 2:
                    found.append(places[leader])
            return bool(found)

        wait_for("a leader", one_leads)
        return found[0]

    def _status(self, member: Member) -> tuple[int, int]:
        """Return the id of a member, and of the leader as it sees it; 0 is none, or no answer."""
        words = ("endpoint", "status", "--write-out=json")
        done = self._tried(*words, endpoints=[member.endpoint], patience="1s")
        if done.returncode != 0:
            return 0, 0
        (status,) = (each["Status"] for each in json.loads(done.stdout))
        return int(status["header"]["member_id"]), int(status.get("leader", 0))

    # Clients

    def words(self, endpoints: Sequence[str] = (), patience: str = "5s") -> list[str]:
        """Return what stands before a command of etcdctl, from anywhere in the network."""
        known = endpoints or [member.endpoint for member in self.running()]
        tls = self._tls.of_client() if self._tls else []
        limits = [f"--dial-timeout={patience}", f"--command-timeout={patience}"]
        return ["etcdctl", f"--endpoints={','.join(known)}", *limits, *tls]

    def ctl(self, *words: str, endpoints: Sequence[str] = ()) -> str:
        """Run a command of etcdctl at the running members, or these; give what it said."""
        done = self._tried(*words, endpoints=endpoints)
        assert done.returncode == 0, f"etcdctl {' '.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout

    def _tried(
        self, *words: str, endpoints: Sequence[str] = (), patience: str = "5s"
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.words(endpoints, patience), *words],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": PATH, "ETCDCTL_API": "3"},
        )
