"""What happens to hosts, processes and wires, each for as long as it takes to be felt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cluster.claims import wait_for
from cluster.faults.campaign import NODES, PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.faults.campaign import Campaign
    from cluster.hosts import Host
    from cluster.process import Process

FILL = """
import os
room = os.statvfs("/dev/shm")
file = os.open("/dev/shm/ballast", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(file, 0, room.f_bavail * room.f_frsize)
import engram
pool = engram.open("/dev/shm/node")
size = 32 << 20
while size >= 16384:
    try:
        pool[f"ballast/{size}-{len(pool.get('ballast') or ())}"] = bytes(size)
    except engram.PoolFullError:
        size //= 2
"""
EMPTY = """
import os, engram
del engram.open("/dev/shm/node")["ballast"]
os.unlink("/dev/shm/ballast")
"""


def _any_host(campaign: Campaign) -> Host:
    return campaign.draw.choice(campaign.nodes)


def _server(campaign: Campaign, host: Host) -> Process:
    found = campaign.serving(host)
    assert found is not None, f"nobody serves {host.name}"
    return found


def server_killed(campaign: Campaign) -> None:
    """End the process that serves a node: another of the host takes over, as the same member.

    Where a busy machine takes longer for that than the lease runs, it is another member.
    """
    host = _any_host(campaign)
    member = campaign.entry(host)["member"]
    _server(campaign, host).kill()
    wait_for(f"{host.name} served again", lambda: campaign.serving(host), PATIENCE_S)
    assert campaign.entry(host)["member"] == member or f"{member:x}" in campaign.watch.gone


def node_killed(campaign: Campaign) -> None:
    """End all processes that serve a node; its pool stays."""
    host = _any_host(campaign)
    for process in campaign.servers[host.name]:
        process.kill()
    campaign.wait_until_struck(host)


def power_lost(campaign: Campaign) -> None:
    """End all processes of a host together with its memory."""
    campaign.lose_power(_any_host(campaign))


def writer_killed(campaign: Campaign) -> None:
    """End a writer, wherever it is."""
    campaign.users[campaign.draw.choice(["write-1", "write-2"])].kill()


def etcd_member_killed(campaign: Campaign) -> None:
    """End a member of etcd that does not lead: nobody may notice."""
    leader = campaign.store.leader()
    others = [place for place in range(NODES) if place != leader]
    campaign.store.kill(campaign.draw.choice(others))
    _all_get_on(campaign)


def etcd_leader_killed(campaign: Campaign) -> None:
    """End the member of etcd that leads: another does then."""
    leader = campaign.store.leader()
    campaign.store.kill(leader)
    wait_for("another leader", lambda: campaign.store.leader() != leader, PATIENCE_S)
    _all_get_on(campaign)


def etcd_memory_lost(campaign: Campaign) -> None:
    """Have the host of a member of etcd lose its power."""
    place = campaign.draw.randrange(NODES)
    campaign.rig[NODES + place].kill()
    _all_get_on(campaign)
    campaign.rig[NODES + place].boot()


def link_down(campaign: Campaign) -> None:
    """Pull the wire of a host until its node is struck."""
    host = _any_host(campaign)
    host.cut()
    campaign.wait_until_struck(host)
    host.heal()


def one_way(campaign: Campaign) -> None:
    """Lose all that one host sends to another, and nothing else."""
    source, target = campaign.draw.sample(campaign.nodes, 2)
    campaign.rig.block(source, target)
    campaign.let_pass(campaign.ttl)


def peers_away(campaign: Campaign) -> None:
    """Cut a host off from the other nodes, and not from etcd: its lease runs on."""
    host = _any_host(campaign)
    member = campaign.entry(host)["member"]
    campaign.rig.split([host], [each for each in campaign.nodes if each is not host])
    campaign.let_pass(1.5 * campaign.ttl)
    assert campaign.entry(host)["member"] == member


def etcd_away(campaign: Campaign) -> None:
    """Cut a host off from etcd, and not from the other nodes, until it is struck."""
    host = _any_host(campaign)
    campaign.rig.split([host], list(campaign.rig[NODES:]))
    campaign.wait_until_struck(host)


def stopped_shortly(campaign: Campaign) -> None:
    """Stop the process that serves a node for half of its lease."""
    process = _server(campaign, _any_host(campaign))
    process.stop()
    campaign.let_pass(campaign.ttl / 2)
    process.cont()


def stopped_for_long(campaign: Campaign) -> None:
    """Stop the process that serves a node for two leases: it was struck when it goes on."""
    host = _any_host(campaign)
    process = _server(campaign, host)
    process.stop()
    campaign.let_pass(2 * campaign.ttl)
    campaign.wait_until_struck(host)
    process.cont()


def host_stopped(campaign: Campaign) -> None:
    """Stop all processes of a host for two leases, as when a virtual machine is suspended."""
    host = _any_host(campaign)
    host.pause()
    campaign.let_pass(2 * campaign.ttl)
    campaign.wait_until_struck(host)
    host.resume()


def slow_wire(campaign: Campaign) -> None:
    """Have the wire of a host carry 1 Mbit/s for a lease, and until all have got on."""
    host = _any_host(campaign)
    host.slow("1mbit")
    campaign.let_pass(campaign.ttl)
    _all_get_on(campaign)
    host.slow_no_more()


def full_node(campaign: Campaign) -> None:
    """Leave a node no room: new parts go to the others, and all get on; then make some."""
    host = _any_host(campaign)
    host.python(FILL)
    _all_get_on(campaign)
    host.python(EMPTY)


def full_nodes(campaign: Campaign) -> None:
    """Leave no node any room, until somebody was told so; then make some."""
    begun = time.monotonic()
    for host in campaign.nodes:
        host.python(FILL)

    def told() -> bool:
        users = ("write-1", "write-2", "keep")
        records = [each for user in users for each in campaign.records(user)]
        return any(each.begin > begun and each.outcome == "PoolFullError" for each in records)

    wait_for("somebody told that the pools are full", told, PATIENCE_S)
    for host in campaign.nodes:
        host.python(EMPTY)


def one_name(campaign: Campaign) -> None:
    """Have one more client publish the names of the two others, until one was in the way."""
    begun = time.monotonic()
    campaign.start_more("write-3")

    def met() -> bool:
        users = ("write-1", "write-2", "write-3")
        records = [each for user in users for each in campaign.records(user)]
        return any(each.begin > begun and each.outcome == "ConflictError" for each in records)

    wait_for("two have published one name", met, PATIENCE_S)


def _all_get_on(campaign: Campaign) -> None:
    since = time.monotonic()
    for name in campaign.users:
        campaign.wait_until_done(name, [], since)
    for name in campaign.users:
        if name.startswith("write"):
            campaign.wait_until_done(name, ["put"], since)


ALL: tuple[Callable[[Campaign], None], ...] = (
    server_killed,
    node_killed,
    power_lost,
    writer_killed,
    etcd_member_killed,
    etcd_leader_killed,
    etcd_memory_lost,
    link_down,
    one_way,
    peers_away,
    etcd_away,
    stopped_shortly,
    stopped_for_long,
    host_stopped,
    slow_wire,
    full_node,
    full_nodes,
    one_name,
)
SAMPLE = (server_killed, power_lost, etcd_leader_killed, stopped_for_long, etcd_away)
