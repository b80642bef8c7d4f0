"""How a cluster stands, how it is stopped, and how a node leaves it for good."""

import json
import socket
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from engram.cluster import certificates, etcds, known, members
from engram.cluster.cluster import Cluster, Member
from engram.cluster.known import DEADLINE_S
from engram.errors import (
    ArgumentError,
    BusyError,
    ConflictError,
    CoordinatorError,
    EngramError,
    NotFoundError,
)

_LOOK_S = 0.1
_NODE_FILE = "cluster.toml"
"""The file in a node pool that says of which cluster it is, and which node."""
_ANSWER_S = 5.0
_AT_ONCE = 32
_NAMES = 5
"""So many names are told of many."""
_LEASES = 3
"""So many leases a node is waited for that is to leave: it looks thrice in each."""


class NodeStatus(NamedTuple):
    """A node, and whether it answers."""

    node: str
    """Its uuid."""
    host: str
    address: str
    """Where its node server answers: `HOST:PORT`."""
    path: str
    """Its pool."""
    state: str
    """"serving", "away" or "lost", as the map has it."""
    since: datetime | None
    """Since when it is away."""
    answers: bool
    """Whether its node server answers as a member of the cluster."""


class EtcdStatus(NamedTuple):
    """An endpoint of etcd, and whether it answers."""

    endpoint: str
    version: str | None
    """None: it does not answer."""
    host: str | None = None
    """The host of the member, if etcd was brought along with several."""
    has_voice: bool = True
    """Whether it counts: a member that waits for the third does not yet."""


class Status(NamedTuple):
    """How a cluster stands."""

    name: str
    epoch: int | None
    """The revision at which a node came or went last; None: etcd does not answer."""
    nodes: list[NodeStatus]
    etcd: list[EtcdStatus]
    troubles: list[str]
    """What is wrong, and what to do."""


class Stopped(NamedTuple):
    """What was stopped."""

    hosts: list[str]
    """The hosts of the nodes that have left."""
    etcd_ended: bool
    """Whether the etcd that a start had left on this host has ended."""


def opened(name: str, etcd: Sequence[str] | None, deadline: float = DEADLINE_S) -> Cluster:
    """Open a cluster without the pool of this host."""
    if etcd is not None:
        found = known.Known(known.check_name(name), etcds.endpoints_of(etcd))
    else:
        found = known.read(name)
    tls = certificates.of_user(found.name, None)
    return Cluster(found.name, found.etcd, pool=None, deadline=deadline, ttl=found.ttl, tls=tls)


def status(name: str, *, etcd: Sequence[str] | None = None) -> Status:
    """Say how a cluster stands: its nodes, its etcd, what is wrong and what to do.

    Parameters
    ----------
    name
        The cluster's name.
    etcd
        The endpoints of etcd, each `HOST:PORT`; without them, those that are known on this host.

    Raises
    ------
    NotFoundError
        If nothing is known here of this cluster, and no `etcd` is given.

    """
    bare = known.check_name(name)
    endpoints = known.read(bare).etcd if etcd is None else etcds.endpoints_of(etcd)
    troubles: list[str] = []
    told = _of_members(bare, endpoints, troubles)
    told = told or [_of_etcd(bare, each, troubles) for each in endpoints]
    answering = [each.endpoint for each in told if each.version is not None and each.has_voice]
    if not answering:
        return Status(bare, None, [], told, troubles)
    with opened(bare, answering) as cluster, ThreadPoolExecutor(_AT_ONCE) as at_once:
        members = cluster.members
        asked = at_once.map(lambda each: _asked(cluster, each), members)
        nodes = []
        for member, why in zip(members, asked, strict=True):
            nodes.append(_of_node(member, answers=why == ""))
            troubles += _trouble_of(bare, member, why)
        if not nodes:
            troubles.append(
                f"no node has joined: `engram cluster start {bare} --pool PATH` on each host "
                "starts one"
            )
        return Status(bare, cluster.epoch, nodes, told, troubles)


def _of_members(cluster: str, endpoints: Sequence[str], troubles: list[str]) -> list[EtcdStatus]:
    """Say how the members stand of an etcd that starts of several hosts have brought along."""
    tls = certificates.of_user(cluster, None)
    try:
        found = [each for each in members.members(endpoints, tls) if each.endpoint]
    except EngramError:
        return []  # each endpoint is told of by itself
    told = []
    for each in found:
        version = members.follows(each.endpoint, tls)
        told.append(EtcdStatus(each.endpoint, version, each.host, each.has_voice))
        if version is None:
            troubles.append(
                f"the member of etcd on {each.host} does not answer at {each.endpoint}: `engram "
                f"cluster start {cluster} --pool PATH` there starts it again"
            )
    if found and len(found) < members.COUNT:
        troubles.append(
            f"etcd has {len(found)} of {members.COUNT} members, and does not outlive the loss of "
            f"one yet: `engram cluster start {cluster} --pool PATH --etcd {members.COUNT}` on "
            "another host brings one along"
        )
    return told


def _of_etcd(cluster: str, endpoint: str, troubles: list[str]) -> EtcdStatus:
    try:
        tls = certificates.of_user(cluster, None)
        return EtcdStatus(endpoint, etcds.version(endpoint, _ANSWER_S, tls))
    except EngramError as error:
        own = etcds.read(cluster)
        remedy = "start it again"
        if own is not None and own.endpoint == endpoint:
            remedy = f"`engram cluster start {cluster} --pool PATH` on {own.host} starts it again"
        if own is not None and not own.pid:
            troubles.append(f"the cluster and its etcd at {endpoint} are stopped: {remedy}")
        else:
            troubles.append(f"etcd at {endpoint} is of no use: {error}; {remedy}")
        return EtcdStatus(endpoint, None)


def _asked(cluster: Cluster, member: Member) -> str:
    """Ask a node what it is; "": the member that the map has, else what is wrong."""
    try:
        said = json.loads(cluster._native.describe(member.address, _ANSWER_S))
    except (EngramError, ValueError) as error:
        return str(error)
    if said.get("node") != member.node:
        return f"another node answers there, {said.get('node')}"
    if said.get("member") != member.id:
        return "it is no member for the moment: etcd does not answer it, perhaps"
    return ""


def _of_node(member: Member, *, answers: bool) -> NodeStatus:
    return NodeStatus(
        member.node,
        member.host,
        member.address,
        member.path,
        member.state,
        member.since,
        answers,
    )


def _trouble_of(cluster: str, member: Member, why: str) -> list[str]:
    who = f"node {member.node} on {member.host}"
    starts = f"`engram cluster start {cluster} --pool {member.path}` there brings it back"
    if member.state != "lost" and _has_lost_its_pool(member):
        what = f"{who} has no pool any more: {member.path} was removed, or is another's"
        gives_up = f"`engram cluster retire {cluster} {member.node} --lost`, once no process serves"
        doctor = f"`engram doctor {Path(member.path).parent}` says what removes files there"
        return [f"{what}. {gives_up} it, gives up what it alone held; {doctor}"]
    if member.state == "away":
        since = f"{member.since:%Y-%m-%d %H:%M:%S} UTC"
        gives_up = f"`engram cluster retire {cluster} {member.node} --lost`"
        return [f"{who} is away since {since}: {starts}; {gives_up} gives up what it alone holds"]
    if member.state == "serving" and why:
        what = f"{who} does not answer at {member.address} ({why}): it is slow, cut off or dead"
        return [f"{what}; where its process has ended, {starts}"]
    return []


def _has_lost_its_pool(member: Member) -> bool:
    """Tell of a node of this host whether its pool was removed; of those of others nobody can."""
    if member.host != socket.gethostname():
        return False
    try:
        found = tomllib.loads((Path(member.path) / _NODE_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False  # it is there, and what it says is no matter of this
    return found.get("node") != member.node


def stop(name: str, *, etcd: Sequence[str] | None = None, timeout: float | None = None) -> Stopped:
    """Have all nodes leave, on all hosts, and the processes end that serve them.

    What lies in the pools stays. An etcd that a start has left on this host ends last; its data
    stay, too, so a later start with the same pools has all names again. Members of an etcd of three
    end on the other hosts, too, where a process serves that a start has left.

    Parameters
    ----------
    name
        The cluster's name.
    etcd
        The endpoints of etcd, each `HOST:PORT`; without them, those that are known on this host.
    timeout
        How long nodes are waited for, in seconds; without it, three leases and half a minute.

    Raises
    ------
    NotFoundError
        If nothing is known here of this cluster, and no `etcd` is given.
    CoordinatorError
        If etcd does not answer.
    BusyError
        If a node has not left in time.

    """
    bare = known.check_name(name)
    own = etcds.read(bare)
    was_alone = own is not None and not own.is_one_of_three
    if etcd is None and own and was_alone and not own.pid and own.endpoint in known.read(bare).etcd:
        return Stopped([], etcd_ended=False)  # it was stopped before
    with opened(bare, etcd) as cluster:
        hosts = [json.loads(text)["host"] for text in cluster._native.serving()]
        cluster._native.ask_to_stop()
        _wait_until_left(cluster, lambda _: True, timeout)
    return Stopped(hosts, etcds.end(bare))


def wait_until_left(name: str) -> None:
    """Wait until no node serves, as long as the etcd runs that a start has left on this host.

    Raises
    ------
    CoordinatorError
        If etcd does not answer.
    BusyError
        If one does not leave.

    """
    with opened(name, known.read(name).etcd) as cluster:
        _wait_until_left(cluster, lambda _: True, None, lambda: not etcds.is_running(name))


def _wait_until_left(
    cluster: Cluster,
    is_meant: Callable[[str], bool],
    timeout: float | None,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until none of these nodes serves, or etcd does not answer and that is over."""
    patience = _LEASES * cluster.ttl + DEADLINE_S if timeout is None else timeout
    until = time.monotonic() + patience
    while True:
        try:
            found = [json.loads(text) for text in cluster._native.serving()]
        except CoordinatorError:
            if is_over() or time.monotonic() > until:
                raise
        else:
            left = [each for each in found if is_meant(each["node"])]
            if not left:
                return
            if time.monotonic() > until:
                who = ", ".join(f"{each['node']} on {each['host']}" for each in left)
                raise BusyError(
                    f"{who} of {cluster.name!r} has not left within {patience:g} s, though it was "
                    "asked to: is its process stopped, or its host away? End the process, and try "
                    "again"
                )
        time.sleep(_LOOK_S)


def retire(cluster: Cluster, node: str, *, lost: bool = False) -> Member:
    """Do what `Cluster.retire` says; give the node as it stood."""
    natives = cluster._native
    member = _found(cluster, node)
    if not lost:
        _check_not_alone(cluster, member, ArgumentError)
        if member.state == "serving":
            _check_not_last(cluster, member)
            natives.ask_to_stop(member.node)
            _wait_until_left(cluster, lambda each: each == member.node, None)
        # Nothing can be published of it any more; what was until then counts.
        _check_not_alone(cluster, member, ConflictError)
    natives.give_up(member.node)
    return member


def _found(cluster: Cluster, node: str) -> Member:
    members = cluster.members
    found = [each for each in members if node == each.node] or [
        each for each in members if node == each.host and each.state != "lost"
    ]
    if not found:
        known_ = ", ".join(f"{each.node} ({each.host})" for each in members) or "none"
        raise NotFoundError(f"{node!r} is no node of {cluster.name!r}: there are {known_}")
    if len(found) > 1:
        uuids = ", ".join(each.node for each in found)
        raise ArgumentError(f"{node!r} has several nodes of {cluster.name!r}: name one of {uuids}")
    return found[0]


def _check_not_last(cluster: Cluster, member: Member) -> None:
    """Refuse to stop the last node that serves, if an etcd ends with it that a start has left.

    Nobody could be told then that the node is gone for good.
    """
    own = etcds.read(cluster.name)
    others = [each for each in cluster.members if each.state == "serving"]
    if own is None or [each.node for each in others] != [member.node]:
        return
    if own.endpoint.rpartition("://")[2] in {
        each.rpartition("://")[2] for each in cluster._native.endpoints()
    }:
        raise ArgumentError(
            f"node {member.node} on {member.host} is the last that serves {cluster.name!r}, whose "
            f"etcd would end with it: `engram cluster stop {cluster.name}` ends both, and the pool "
            "stays; or start another node first"
        )


def _check_not_alone(
    cluster: Cluster, member: Member, kind: type[ArgumentError | ConflictError]
) -> None:
    """Refuse to go on where a node alone holds something."""
    names = cluster._native.names_only_at(member.node)
    if names:
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        raise kind(
            f"node {member.node} on {member.host} alone holds something of "
            f"{', '.join(map(repr, names[:_NAMES]))}{more}: copy or remove that first, or give "
            "lost=True, with which it is lost"
        )
