"""An etcd of three members, which the starts of three hosts bring along.

The first host starts an etcd of one member. The second adds its own as a *learner*, which gets all
that there is and has no voice: with two voices, the loss of either would stop the cluster. The
third gives the second its voice, adds its own as a learner, and gives that a voice when it has all.
From then on the loss of one member stops nothing.

Etcd has one learner at most at a time, so two hosts that come at once join one after the other. A
member is called `engram-HOST`; by that a host that comes back finds its own, and processes of the
cluster know that they may ask etcd for its members (`cluster/driver/src/etcd.rs`). A host that has
lost the data of its member removes that, and joins as a new one.
"""

import contextlib
import json
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from engram.cluster import certificates, etcds, known
from engram.cluster.etcds import Endpoints, OwnEtcd
from engram.cluster.natives import native
from engram.errors import ArgumentError, CoordinatorError, NotFoundError

if TYPE_CHECKING:
    import subprocess

COUNT: Final = 3
"""So many members outlive the loss of one."""
_NAMED: Final = "engram-"
_ASK_S: Final = 5.0
_LOOK_S: Final = 0.1
_JOIN_S: Final = 90.0
"""So long others are waited for: the members that are there, and those that join just now."""
_TRIES: Final = 5
"""Somebody else may take a port between the look at it and its use."""


class EtcdMember(NamedTuple):
    """A member of an etcd, as the etcd has it."""

    id: str
    name: str
    """Its name; "": it was added, and has not started yet."""
    endpoint: str
    """The URL at which it answers; "" as above."""
    peer: str
    """The URL at which other members find it."""
    has_voice: bool
    """Whether it counts; a learner does not."""

    @property
    def host(self) -> str:
        """The host on which it runs."""
        return self.name.removeprefix(_NAMED)


class Wanted(NamedTuple):
    """The etcd that a start asks for."""

    is_three: bool
    """Whether this host is to have a member of an etcd of three."""
    endpoints: list[str] | None
    """Where etcd is; None: where it is known to be here, or is brought along."""


def wanted(etcd: str | int | Sequence[str]) -> Wanted:
    """Give the etcd that is meant: "auto", endpoints, 3, or 3 with the endpoints of the first.

    Raises
    ------
    ArgumentError
        If it is none of these.

    """
    words = [str(etcd)] if isinstance(etcd, str | int) else list(etcd)
    first, comma, rest = words[0].partition(",") if len(words) == 1 else ("", "", "")
    if first == str(COUNT):
        return Wanted(True, etcds.parse(rest) if comma else None)
    return Wanted(False, etcds.parse(etcd))


def ensure(
    cluster: str,
    etcd: str | int | Sequence[str],
    address: Callable[[], str],
    ttl: float = known.TTL_S,
    tls: str | None = None,
) -> Endpoints:
    """Do as `etcds.ensure`; with 3, have this host bring a member along if there are fewer.

    A host that has had a member starts it again, and with "auto", too.

    Raises
    ------
    ArgumentError
        If `etcd` names none, or the cluster's is not of three members.
    UnsupportedError
        If one is to be started, and no program may decide.
    CoordinatorError
        If the one that is started does not answer, or the other members do not.

    """
    want = wanted(etcd)
    own = etcds.read(cluster)
    had = own is not None and own.is_one_of_three
    if want.endpoints is not None and not want.is_three:
        return Endpoints(want.endpoints, started=False)
    if not want.is_three and not had:
        return etcds.ensure(cluster, etcds.AUTO, address, ttl, tls)
    here = address()
    starting = _Starting(cluster, here, certificates.of_node(cluster, tls, here))
    with etcds.locked(cluster, etcds.label_here()):
        endpoints = starting.ensured(want.endpoints)
        folder = None if starting.tls is None else str(starting.tls)
        known.write(known.Known(cluster, endpoints.endpoints, ttl, folder))
    return endpoints


def members(endpoints: Sequence[str], tls: Path | None) -> list[EtcdMember]:
    """Give the members of an etcd, if it was brought along by starts; else none.

    Raises
    ------
    CoordinatorError
        If it does not answer.

    """
    told = _asked(endpoints, "cluster/member/list", {}, tls)
    found = [_member(each) for each in told.get("members", [])]
    return found if all(each.name.startswith(_NAMED) or not each.name for each in found) else []


def _member(told: dict[str, Any]) -> EtcdMember:
    return EtcdMember(
        told["ID"],
        told.get("name", ""),
        next(iter(told.get("clientURLs", [])), ""),
        next(iter(told["peerURLs"]), ""),
        not told.get("isLearner", False),
    )


def _asked(endpoints: Sequence[str], verb: str, what: dict[str, Any], tls: Path | None) -> Any:
    said = native.etcd_asked(
        list(endpoints), f"/v3/{verb}", json.dumps(what), _ASK_S, tls_folder=tls
    )
    return json.loads(said)


def follows(endpoint: str, tls: Path | None) -> str | None:
    """Give the version of a member that knows a leader; None: it does not, or does not answer."""
    with contextlib.suppress(CoordinatorError):
        told = _asked([endpoint], "maintenance/status", {}, tls)
        if int(told.get("leader", 0)):
            return str(told["version"])
    return None


def _voices(found: Sequence[EtcdMember]) -> list[str]:
    return [each.endpoint for each in found if each.has_voice and each.endpoint]


class _Starting:
    """The start of this host's member; whoever has one has the lock of the member."""

    def __init__(self, cluster: str, address: str, tls: Path | None) -> None:
        self.cluster, self.address, self.tls = cluster, address, tls
        self.name = f"{_NAMED}{socket.gethostname()}"
        self.label = etcds.label_here()
        self._until = time.monotonic() + _JOIN_S

    def ensured(self, given: Sequence[str] | None) -> Endpoints:
        """See to it that this host's member runs, if there is to be one."""
        own = etcds.read(self.cluster)
        if own is not None and not own.is_one_of_three:
            raise ArgumentError(
                f"the etcd of {self.cluster!r} has one member, at {own.endpoint}: leave "
                f"etcd={COUNT} away, which goes on with it, or start another cluster"
            )
        if own is not None and etcds.runs(self.cluster, own):
            return Endpoints(self._known() or [own.endpoint], started=False)
        if own is not None and (etcds.data(self.cluster, self.label) / "member").exists():
            return Endpoints(self._again(own), started=True)
        with etcds.locked(self.cluster):
            there = list(given) if given is not None else self._known()
            if not there:
                return Endpoints(self._first(), started=True)
            return self._joined(there)

    def _known(self) -> list[str]:
        with contextlib.suppress(NotFoundError):
            return known.read(self.cluster).etcd
        return []

    def _urls(self) -> OwnEtcd:
        """Choose where a new member answers."""
        ports = [etcds.free_port(self.address, 0) for _ in range(2)]
        url, peer = (etcds.url_of(self.address, port, self.tls) for port in ports)
        return OwnEtcd(socket.gethostname(), url, 0, self.label, peer)

    def _begin(
        self, own: OwnEtcd, others: Sequence[EtcdMember], state: str
    ) -> "subprocess.Popen[bytes]":
        words = etcds.words_of(self.name, own.endpoint, own.peer, self.address, self.tls)
        named = [f"{each.name}={each.peer}" for each in others if each.name]
        whole = ",".join([*named, f"{self.name}={own.peer}"])
        words += [f"--initial-cluster={whole}", f"--initial-cluster-state={state}"]
        return etcds.begin(self.cluster, own, words)

    def _abandon(self, own: OwnEtcd, process: "subprocess.Popen[bytes]") -> None:
        """End a member that has never answered; it has nothing to lose."""
        etcds.abandon(self.cluster, own, process)
        shutil.rmtree(etcds.data(self.cluster, self.label), ignore_errors=True)

    def _fail(self, what: str) -> CoordinatorError:
        return CoordinatorError(f"{what}; {etcds.end_of_log(self.cluster, self.label)}")

    # The first member

    def _first(self) -> list[str]:
        for _ in range(_TRIES):
            own = self._urls()
            process = self._begin(own, [], "new")
            if etcds.answers(process, own.endpoint, self.tls):
                return [own.endpoint]
            self._abandon(own, process)
        raise self._fail(f"etcd does not start at {self.address}")

    # The others

    def _joined(self, there: list[str]) -> Endpoints:
        """Join the etcd that is there, unless it has members enough."""
        found = self._others(there)
        if len(found) >= COUNT:
            return Endpoints(_voices(found), started=False)
        for _ in range(_TRIES):
            own = self._urls()
            etcds.write(self.cluster, own)
            self._tried(partial(self._add, there, own.peer))
            found = members(there, self.tls)
            others = [each for each in found if each.peer != own.peer]
            if len(others) == len(found):  # others were faster
                return Endpoints(_voices(found), started=False)
            process = self._begin(own, others, "existing")
            if self._comes(own, process):
                if len(found) == COUNT:
                    self._give_voice(there, own.peer)
                return Endpoints(_voices(members(there, self.tls)), started=True)
            self._abandon(own, process)
            self._remove(there, own.peer)
        raise self._fail(f"the member of etcd at {self.address} does not join {', '.join(there)}")

    def _others(self, there: Sequence[str]) -> list[EtcdMember]:
        """Give the members that there are; one of this host that has lost its data is removed."""
        found = members(there, self.tls)
        if not found:
            raise ArgumentError(
                f"the etcd at {', '.join(there)} was not started with etcd={COUNT}: leave that "
                "away, or start a cluster of another name with it on all hosts"
            )
        others = []
        for each in found:
            is_own = each.name == self.name
            is_left = not each.name and self._has_added(each)
            if is_own and follows(each.endpoint, self.tls) is not None:
                raise ArgumentError(
                    f"the member {each.name} of etcd runs at {each.endpoint}, and nothing is known "
                    "of it here: does another host have this one's name?"
                )
            if is_own or is_left:
                self._remove(there, each.peer)
            else:
                others.append(each)
        return others

    def _has_added(self, member: EtcdMember) -> bool:
        """Tell whether this host has added a member that has not started."""
        own = etcds.read(self.cluster)
        if own is not None and own.peer == member.peer:
            return True
        is_shared = certificates.is_loopback(self.address)
        return urlsplit(member.peer).hostname == self.address and not is_shared

    def _add(self, there: Sequence[str], peer: str) -> None:
        """Add a learner, if there are too few members; one that is there gets a voice before."""
        found = members(there, self.tls)
        if len(found) >= COUNT or any(each.peer == peer for each in found):
            return
        for each in found:
            if not each.has_voice:
                _asked(there, "cluster/member/promote", {"ID": each.id}, self.tls)
        _asked(there, "cluster/member/add", {"peerURLs": [peer], "isLearner": True}, self.tls)

    def _give_voice(self, there: Sequence[str], peer: str) -> None:
        """Have a learner count, once it has all that there is."""

        def give() -> None:
            for each in members(there, self.tls):
                if each.peer == peer and not each.has_voice:
                    _asked(there, "cluster/member/promote", {"ID": each.id}, self.tls)

        self._tried(give)

    def _remove(self, there: Sequence[str], peer: str) -> None:
        def remove() -> None:
            for each in members(there, self.tls):
                if each.peer == peer:
                    _asked(there, "cluster/member/remove", {"ID": each.id}, self.tls)

        self._tried(remove)

    def _tried(self, work: Callable[[], None]) -> None:
        """Do something that etcd refuses as long as its members have not met."""
        while True:
            try:
                work()
            except CoordinatorError:
                if time.monotonic() > self._until:
                    raise
            else:
                return
            time.sleep(_LOOK_S)

    def _comes(self, own: OwnEtcd, process: "subprocess.Popen[bytes]") -> bool:
        """Wait until a member knows a leader; False: it has ended, or does not."""
        while process.poll() is None and time.monotonic() < self._until:
            if follows(own.endpoint, self.tls) is not None:
                return True
            time.sleep(_LOOK_S)
        return False

    # A member that comes back

    def _again(self, own: OwnEtcd) -> list[str]:
        """Start the member that this host has had, where it was if its ports are free."""
        others = [each for each in self._known() if each != own.endpoint]
        ports = [urlsplit(each).port or 0 for each in (own.endpoint, own.peer)]
        url, peer = (
            etcds.url_of(self.address, etcds.free_port(self.address, port), self.tls)
            for port in ports
        )
        if peer != own.peer:
            self._tried(partial(self._tell_peer, others, peer))
        own = own._replace(endpoint=url, peer=peer)
        process = self._begin(own, [], "existing")
        if not self._comes(own, process):
            if process.poll() is not None:
                etcds.abandon(self.cluster, own, process)
                raise self._fail(f"the member of etcd at {url} has ended")
            raise CoordinatorError(
                f"the member of etcd at {url} runs, and finds no other one: start those of the "
                "other hosts, too, and then this again"
            )
        found = members([url, *others], self.tls)
        if len(found) == COUNT and not all(each.has_voice for each in found):
            self._give_voice(_voices(found), own.peer)
            found = members([url, *others], self.tls)
        return _voices(found) or [url]

    def _tell_peer(self, others: Sequence[str], peer: str) -> None:
        for each in members(others, self.tls):
            if each.name == self.name:
                what = {"ID": each.id, "peerURLs": [peer]}
                _asked(others, "cluster/member/update", what, self.tls)
