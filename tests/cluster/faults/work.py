"""What runs on a host: a process that serves its node, or one of the users who are at work.

Each operation is written down twice, when it begins and when it ends, by the clock that all hosts
have: they are one machine. Where the second line is missing, nobody knows how the operation ended.
Values are numbers that no other operation writes, and every item of an array has the same one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import engram
from engram import cluster as clusters
from engram.cluster.boxes import Box

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHAPE = {"run/a": (24, 16), "run/b": (24, 16), "run/large": (96, 128)}
"""The names, and the shapes of their arrays: all but the last are small."""
PARTS = ((1, 1), (3, 1), (3, 2), (4, 1))
KEYS = tuple(f"k{number}" for number in range(6))
DEADLINE_S = 6.0
PACE_S = 0.03
"""Between two operations of a user: all of them share few processors."""
LOOK_S = 0.05


class Log:
    """What a user does, on its way into a file."""

    def __init__(self, path: str, draw: random.Random) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._count = 0
        self.draw = draw
        self.stops = threading.Event()

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps({**line, "at": time.monotonic()}).encode() + b"\n")

    @contextmanager
    def operation(self, do: str, name: str, value: int | None = None) -> Iterator[dict[str, Any]]:
        """Write an operation down; the block fills in what it saw. An error is its outcome."""
        self._count += 1
        said: dict[str, Any] = {"outcome": "done"}
        self._write({"op": self._count, "do": do, "name": name, "value": value})
        try:
            yield said
        except Exception as error:  # noqa: BLE001 - which are promised is for the checker to say
            said = {"outcome": type(error).__name__, "text": str(error)[:400]}
        self._write({"op": self._count, **said})
        self.stops.wait(PACE_S * self.draw.uniform(0.5, 1.5))


def of_one(values: Any) -> Any:
    """Give the number that all items are; all that there are where they are a mix."""
    found = np.unique(values).tolist()
    return found[0] if len(found) == 1 else found


def write(cluster: clusters.Cluster, log: Log, given: dict[str, Any]) -> None:
    """Publish names, replace and remove them."""
    value = given["first"]
    while not log.stops.is_set():
        value += 1
        name = log.draw.choices(list(SHAPE), (4, 4, 1))[0]
        if log.draw.random() < 0.12:
            with log.operation("remove", name):
                cluster.remove(name)
            continue
        with log.operation("put", name, value):
            data = np.full(SHAPE[name], value, "i8")
            cluster.put(name, data, parts=log.draw.choice(PARTS), attrs={"v": value})


def read(cluster: clusters.Cluster, log: Log, given: dict[str, Any]) -> None:  # noqa: ARG001
    """Read names whole, and boxes of them."""
    while not log.stops.is_set():
        name = log.draw.choices(list(SHAPE), (4, 4, 1))[0]
        with log.operation("read", name) as said:
            if log.draw.random() < 0.3:
                said["value"] = of_one(cluster[name][...])
                continue
            box = box_of(log.draw, SHAPE[name])
            out = np.empty(box.counts, "i8")
            # As `t[…]` does it, which does not say who has answered.
            manifest, _ = cluster._load(
                name, "<i8", SHAPE[name], box, out.reshape(-1).view(np.uint8)
            )
            said.update(of_manifest(json.loads(manifest), box, cluster.node))
            said["value"] = of_one(out)


def box_of(draw: random.Random, shape: tuple[int, ...]) -> Box:
    """Give a box, or often enough the whole."""
    if draw.random() < 0.4:
        return Box((0,) * len(shape), shape)
    ends = [sorted(draw.sample(range(length + 1), 2)) for length in shape]
    return Box(tuple(a for a, _ in ends), tuple(b - a for a, b in ends))


def of_manifest(manifest: dict[str, Any], box: Box, own: str | None) -> dict[str, Any]:
    """Give the generation that was read, its own value, and who has answered for the box."""
    answered = set()
    for part in manifest["parts"]:
        pairs = zip(part["o"], part["n"], *box, strict=True)
        if all(max(o, at) < min(o + n, at + length) for o, n, at, length in pairs):
            holder = manifest["holders"][part["h"][0]]
            # What lies on the reader's own node it reads in place, whoever serves it.
            if holder["node"] != own:
                answered.add(f"{holder['member']:x}")
    return {"generation": manifest["generation"], "members": sorted(answered)}


def keep(cluster: clusters.Cluster, log: Log, given: dict[str, Any]) -> None:
    """Put, get and delete objects below groups that no other user writes to."""
    value, number = given["first"], given["number"]
    groups = {}
    for name in [name for name in cluster.names() if name.startswith("objects")]:
        with log.operation("drop", name):
            cluster.remove(name)
    for name, spread, node in (
        (f"objects-hash-{number}", "hash", None),
        (f"objects-node-{number}", "node", given["elsewhere"]),
    ):
        while name not in groups and not log.stops.is_set():
            with log.operation("make", name):
                how: Any = {"spread": spread, "node": node, "exist_ok": True}
                groups[name] = cluster.create_group(name, **how)
    while not log.stops.is_set():
        group = groups[log.draw.choice(list(groups))]
        key = log.draw.choice(KEYS)
        name, do = f"{group.path}/{key}", log.draw.choices(("put", "read", "remove"), (4, 4, 1))[0]
        value += 1
        with log.operation(do, name, value if do == "put" else None) as said:
            if do == "put":
                group.put(key, np.full(8, value), attrs={"v": value})
            elif do == "read":
                said["value"] = of_one(np.asarray(group[key][...]))
            else:
                del group[key]
            said["members"] = members_of(group, name, cluster.node)


def members_of(group: Any, name: str, own: str | None) -> list[str]:
    """Give who has answered for what has a name below a group; nobody where it lies here."""
    home = group.home(name)
    holders = json.loads(group._manifest)["holders"]
    return [f"{each['member']:x}" for each in holders if each["node"] == home != own]


def ask(cluster: clusters.Cluster, log: Log, given: dict[str, Any]) -> None:  # noqa: ARG001
    """Query all that there is."""
    while not log.stops.is_set():
        with log.operation("query", "") as said:
            hits = cluster.query("v >= 0")
            said["value"] = {hit.path: int(hit.attrs["v"]) for hit in hits}


def look(cluster: clusters.Cluster, log: Log, given: dict[str, Any]) -> None:  # noqa: ARG001
    """Read once whatever has a name, whole."""
    for name in cluster.names():
        if not name.startswith("objects"):
            with log.operation("read", name) as said:
                said["value"] = of_one(cluster[name][...])
            continue
        for key in cluster[name]:
            with log.operation("read", f"{name}/{key}") as said:
                said["value"] = of_one(np.asarray(cluster[name][key][...]))
    log.stops.set()


USERS: dict[str, Callable[[clusters.Cluster, Log, dict[str, Any]], None]] = {
    "write": write,
    "read": read,
    "keep": keep,
    "ask": ask,
    "last": look,
}


def serve(given: dict[str, Any], stops: threading.Event) -> None:
    """Take part in serving the host's node; what is said is how it stands, and as which member."""
    node = clusters.serve(
        given["cluster"],
        pool=given["pool"],
        size=given["size"],
        etcd=given["etcd"],
        host=given["address"],
        ttl=given["ttl"],
        tls="none",
    )
    said: tuple[str, str | None] | None = None
    while not stops.is_set():
        if (now := (node.standing, node.member)) != said:
            said = now
            print(*now, flush=True)  # noqa: T201 - the campaign reads it
        stops.wait(LOOK_S)
    node.stop()


def main() -> None:
    """Do what the argument says until SIGTERM."""
    given = json.loads(sys.argv[1])
    log = Log(given["log"], random.Random(given["seed"]))  # noqa: S311 - a seed decides
    signal.signal(signal.SIGTERM, lambda *_: log.stops.set())
    if given["role"] == "serve":
        serve(given, log.stops)
        return
    pool = given["pool"] if Path(given["pool"]).exists() else None
    while not log.stops.is_set():
        try:
            cluster = clusters.open(
                given["cluster"], etcd=given["etcd"], pool=pool, deadline=DEADLINE_S, tls="none"
            )
        except engram.BusyError:
            log.stops.wait(PACE_S)  # etcd is away for the moment
            continue
        with cluster:
            USERS[given["role"]](cluster, log, given)


if __name__ == "__main__":
    main()
