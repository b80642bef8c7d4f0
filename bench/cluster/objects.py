"""Small objects below groups of a cluster, and queries over all of its nodes."""

from __future__ import annotations

import http.client
import time
from typing import TYPE_CHECKING

import numpy as np

import engram
from bench.cluster.rig import Rig
from bench.harness import Bound, Contestant, Line, measure, timed
from engram.cluster.natives import native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting
    from engram import cluster as clusters

NODES = 4
OBJECTS = 100_000
PLACES = 20_000


def lines(setting: Setting) -> Iterator[Line]:
    """Measure on four nodes of this host."""
    count = setting.scaled(OBJECTS)
    with Rig(setting.folder, NODES, "1 GiB") as rig:
        cluster = rig.open(0)
        yield on_one_node(setting, cluster, count)
        yield spread(setting, rig.open(), setting.scaled(PLACES))
        yield found(setting, cluster, count)


def on_one_node(setting: Setting, cluster: clusters.Cluster, count: int) -> Line:
    """Compare puts and gets below a group of this node with those of a pool."""
    value = np.arange(8.0)
    line = Line(
        f"put and read {count:,} arrays of 64 bytes on this node",
        "us",
        [Bound("engram", "one-node pool", "speed", 0.95)],
    )
    numbers = iter(range(10**6))
    with engram.create(setting.folder / "alone", "1 GiB") as pool:

        def work(group: object) -> float:
            own: dict[str, np.ndarray] = group  # type: ignore[assignment]  # both are mappings

            def run() -> None:
                for number in range(count):
                    own[f"a{number}"] = value
                for number in range(count):
                    own[f"a{number}"][...]

            return timed(run, count)

        def here() -> float:
            name = f"mine{next(numbers)}"
            taken = work(cluster.create_group(name))
            cluster.remove(name)
            return taken

        def alone() -> float:
            name = f"mine{next(numbers)}"
            taken = work(pool.create_group(name))
            del pool[name]
            return taken

        rounds = 2 if setting.quick else 3
        measure(line, [Contestant("engram", here), Contestant("one-node pool", alone)], rounds)
    return line


def spread(setting: Setting, cluster: clusters.Cluster, count: int) -> Line:
    """Compare puts spread over four nodes with bare round trips to their servers."""
    value = np.arange(8.0)
    line = Line(
        f"put {count:,} arrays of 64 bytes, spread over {NODES} nodes",
        "us",
        [
            Bound("put", "HTTP round trip", "speed", 0.5),
            Bound("read", "HTTP round trip", "show"),
        ],
    )
    numbers = iter(range(10**6))
    group = cluster.create_group("spread", spread="hash")
    address = cluster.members[0].address

    def put() -> float:
        run_number = next(numbers)

        def run() -> None:
            for number in range(count):
                group[f"a{run_number}-{number}"] = value

        return timed(run, count)

    def read() -> float:
        return timed(lambda: [group[f"a0-{number}"][...] for number in range(count)], count)

    def round_trips() -> float:
        asked = http.client.HTTPConnection(address)

        def run() -> None:
            for _ in range(count):
                asked.request("GET", "/")
                asked.getresponse().read()

        taken = timed(run, count)
        asked.close()
        return taken

    contestants = [
        Contestant("put", put),
        Contestant("read", read),
        Contestant("HTTP round trip", round_trips),
    ]
    line.remarks.append("the round trips are made by Python's http.client, one after another")
    return measure(line, contestants, 2 if setting.quick else 3)


def found(setting: Setting, cluster: clusters.Cluster, count: int) -> Line:
    """Compare a query over four nodes with the nodes' own times, one after another."""
    group = cluster.create_group("found", spread="hash")
    draw = np.random.default_rng(3)
    members = {each.node: each for each in cluster.members}
    pools = {node: engram.open(members[node].path) for node in group.nodes}
    for number in range(count):
        node = group.nodes[group._tree.home(f"o{number}")]
        pools[node]["found"].create_array(
            f"o{number}", data=np.float64(0), attrs={"t": float(draw.normal()), "n": number}
        )
    for pool in pools.values():
        pool.drain_index()
    text, order, limit = "t < -1.5", "t", 10
    # What is private to the clients is warm for both.
    address = next(iter(members.values())).address

    def over_all() -> float:
        return timed(lambda: group.query(text, order_by=order, limit=limit).paths())

    def one_by_one() -> float:
        start = time.perf_counter()
        for pool in pools.values():
            pool["found"].query(text, order_by=order, limit=limit).paths()
        asked = http.client.HTTPConnection(address)
        for _ in range(5):
            asked.request("GET", "/")
            asked.getresponse().read()
        asked.close()
        return time.perf_counter() - start

    line = Line(
        f"first {limit} of {count:,} objects on {NODES} nodes, in order",
        "ms",
        [Bound("query", "nodes one by one + 5 round trips", "time", 1.0)],
    )
    contestants = [
        Contestant("query", over_all),
        Contestant("nodes one by one + 5 round trips", one_by_one),
    ]
    measure(line, contestants, setting.rounds)
    for pool in pools.values():
        pool.close()
    return line


def homes(setting: Setting) -> Line:
    """Compare the home of a name among 1,024 nodes with numpy's."""
    members, names = 1024, setting.scaled(20_000)
    seeds = np.random.default_rng(1).integers(1, 2**63, members, dtype=np.uint64)
    keys = np.random.default_rng(2).integers(1, 2**63, names, dtype=np.uint64)
    texts = [f"name{number}" for number in range(names)]
    nodes = [f"{number:032x}" for number in range(members)]
    line = Line(
        f"home of a name among {members:,} nodes",
        "us",
        [Bound("engram", "numpy", "time", 0.25)],
    )

    def ours() -> float:
        return timed(lambda: native.homes(nodes, texts), names)

    def numpys() -> float:
        return timed(
            lambda: [_scores(keys[at : at + 2048], seeds) for at in range(0, names, 2048)], names
        )

    return measure(line, [Contestant("engram", ours), Contestant("numpy", numpys)], setting.rounds)


def _mixed(x: np.ndarray) -> np.ndarray:
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def _scores(keys: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Weighted rendezvous as numpy does it: the place of the nearest node for each key."""
    mixed = _mixed(_mixed(keys.copy())[:, None] ^ _mixed(seeds.copy())[None, :])
    uniform = (mixed >> np.uint64(11)).astype(np.float64) / 2**53 + 2**-54
    nearest: np.ndarray = (1.0 / -np.log(uniform)).argmax(1)
    return nearest
