"""A cluster at work, one fault after another, and the check at the end.

Three hosts have nodes, three others an etcd: so a host may be cut off from the ones and not from
the others. Each fault is undone, and each user seen to get on, before the next one.
"""

from __future__ import annotations

import base64
import json
import random
import signal
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cluster.claims import wait_for
from cluster.etcd import Etcd
from cluster.faults import checker, histories, work
from cluster.hosts import Hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from cluster.faults.histories import Record
    from cluster.hosts import Host
    from cluster.process import Process

CLUSTER = "faults"
POOL = "/dev/shm/node"
POOL_SIZE = "64 MiB"
MEMORY = "224m"
NODES = 3
TTL_S = 4.0
PATIENCE_S = 90.0
PACKAGE = Path(work.__file__).parents[2]
USERS = {"write-1": 0, "write-2": 1, "read-1": 0, "read-2": 1, "read-3": 2, "keep": 1, "ask": 2}
"""The users, and on which host each is."""
VERIFY = """
import json, sys, engram
report = engram.verify(sys.argv[1])
print(json.dumps(report.problems))
"""


def is_wrong(last: Record) -> bool:
    """Whether somebody was not given what must be there; the checker judges what is lost."""
    return last.outcome not in {"done", "PartsLostError"}


def left_in(host: Host) -> list[str]:
    """Give what is in a host's memory but its pool."""
    return [path.name for path in host.shm.iterdir() if path.name != Path(POOL).name]


class Watch:
    """What the map says, again and again: when each member was seen to be none any more."""

    def __init__(self, store: Etcd) -> None:
        self._store = store
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.gone: dict[str, float] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        """Each node's row as it was seen last."""
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(0.1):
            for member in self._store.running():
                with suppress(OSError, ValueError, KeyError):
                    self._look(member.endpoint)
                    break

    def _look(self, endpoint: str) -> None:
        key, end = (
            base64.b64encode(f"/engram/{CLUSTER}/map/nodes{sign}".encode()).decode()
            for sign in "/0"
        )
        body = json.dumps({"key": key, "range_end": end}).encode()
        with self._opener.open(f"{endpoint}/v3/kv/range", body, timeout=1) as answer:
            told = json.load(answer)
        # It was so before the answer came: who begins later begins after.
        now = time.monotonic()
        nodes = dict(self.nodes)
        for row in told.get("kvs", ()):
            entry = json.loads(base64.b64decode(row["value"]))
            node, member = entry["node"], f"{entry['member']:x}"
            before = nodes.get(node)
            if before and (former := f"{before['member']:x}") != member:
                self.gone.setdefault(former, now)
            if entry["state"] != "serving":
                self.gone.setdefault(member, now)
            nodes[node] = entry
        self.nodes = nodes


class Campaign:
    """The hosts and all that runs on them; a seed decides what happens, and when."""

    def __init__(
        self, seed: int, *, users: Sequence[str] = tuple(USERS), ttl: float = TTL_S
    ) -> None:
        self.seed = seed
        self.names, self.ttl = list(users), ttl
        self.draw = random.Random(seed)  # noqa: S311 - a seed decides
        self.rig = Hosts(2 * NODES, shm=MEMORY)
        self.nodes: list[Host] = self.rig[:NODES]
        self.store = Etcd(self.rig[NODES:])
        self.servers: dict[str, list[Process]] = {}
        self.users: dict[str, Process] = {}
        self.power_failed: list[float] = []
        self._begun = 0
        self._more: list[Process] = []
        self._groups = 0
        self._logs: dict[str, list[Path]] = {name: [] for name in self.names}

    def __enter__(self) -> Self:
        self.rig.__enter__()
        try:
            self.store.__enter__()
            self.watch = Watch(self.store)
            for host in self.nodes:
                self.servers[host.name] = [self._serve(host), self._serve(host)]
            for host in self.nodes:
                wait_for(f"{host.name} served", partial(self.serving, host), PATIENCE_S)
            for name in self.names:
                self.start(name)
            self.settle("beginning", 0.0)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if hasattr(self, "watch"):
            self.watch.end()
        self.store.close()
        self.rig.close()

    # Processes

    def _run(self, host: Host, role: str, name: str, **more: Any) -> Process:
        self._begun += 1
        log = host.folder / f"{name}-{self._begun}.log"
        given = {
            "role": role,
            "log": str(log),
            "seed": self.draw.getrandbits(32),
            "first": self._begun * 1_000_000,
            "cluster": CLUSTER,
            "pool": POOL,
            "size": POOL_SIZE,
            "address": host.address,
            "etcd": [url.removeprefix("http://") for url in self.store.endpoints],
            "ttl": self.ttl,
            **more,
        }
        if name in self._logs:
            self._logs[name].append(log)
        package = str(Path(sys.modules["engram"].__file__ or "").parents[1])
        env = {
            "PYTHONPATH": f"{PACKAGE}:{package}",
            "XDG_STATE_HOME": str(host.folder / "state"),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "cluster.faults.work", json.dumps(given)]
        return host.start(command, log=f"{name}-{self._begun}.said", env=env)

    def _serve(self, host: Host) -> Process:
        return self._run(host, "serve", "serve")

    def start(self, name: str) -> None:
        """Start a user."""
        host, role = self.nodes[USERS[name]], name.partition("-")[0]
        self._groups += role == "keep"
        elsewhere = self.nodes[(USERS[name] + 1) % NODES].name
        self.users[name] = self._run(host, role, name, number=self._groups, elsewhere=elsewhere)

    def start_more(self, name: str) -> None:
        """Start a writer beside the two, which is ended when the fault is undone."""
        self._logs[name] = []
        self._more.append(self._run(self.nodes[-1], "write", name))

    def serving(self, host: Host) -> Process | None:
        """Give the process that serves a host's node, by what it said last."""
        for process in self.servers.get(host.name, ()):
            lines = process.said().splitlines()
            if process.is_running and lines and lines[-1].startswith("serves "):
                return process
        return None

    def start_what_ended(self) -> None:
        """Start all again that does not run: servers, members of etcd, users."""
        while self._more:
            self._more.pop().end(2 * work.DEADLINE_S)
        for host in self.nodes:
            own = [each for each in self.servers[host.name] if each.is_running]
            self.servers[host.name] = own + [self._serve(host) for _ in range(2 - len(own))]
        for place, member in enumerate(self.store.members):
            if not member.is_running:
                self.store.restart(place)
        for name, process in self.users.items():
            if not process.is_running:
                self.start(name)

    def lose_power(self, host: Host) -> None:
        """Have a host lose its power, and boot; the groups that lay on it are given up."""
        host.kill()
        self.power_failed.append(time.monotonic())
        self.wait_until_struck(host)
        host.boot()
        self.servers[host.name] = []
        self.users["keep"].kill()

    # What is waited for

    def let_pass(self, seconds: float) -> None:
        """Let everybody be at work for so long."""
        until = time.monotonic() + seconds
        wait_for(f"{seconds} s", lambda: time.monotonic() >= until, PATIENCE_S)

    def entry(self, host: Host) -> dict[str, Any]:
        """Give the row of the node that a host has now, or had last."""
        own = [entry for entry in self.watch.nodes.values() if entry["host"] == host.name]
        there = [entry for entry in own if entry["state"] != "lost"]
        assert len(there) < 2, f"{host.name} has several nodes: {there}"
        return there[0] if there else {}

    def wait_until_struck(self, host: Host) -> None:
        """Wait until a host's node is no member any more."""
        member = f"{self.entry(host)['member']:x}"
        wait_for(f"{host.name} struck", lambda: member in self.watch.gone, PATIENCE_S)

    def records(self, name: str) -> list[Record]:
        """Give what a user has done."""
        paths = [path for path in self._logs[name] if path.exists()]
        return [record for path in paths for record in histories.read(path)]

    def wait_until_done(self, name: str, do: Sequence[str], since: float) -> None:
        """Wait until a user got each of these done that was begun after a moment."""

        def all_done() -> bool:
            process = self.users[name]
            assert process.is_running, f"{name} has ended; it said:\n{process.said()}"
            own = histories.read(self._logs[name][-1]) if self._logs[name][-1].exists() else []
            done = {each.do for each in own if each.is_done and each.begin > since}
            return done.issuperset(do)

        wait_for(f"{name} gets on with {', '.join(do)}", all_done, PATIENCE_S)

    def settle(self, what: str, since: float) -> None:
        """Wait until all nodes serve, and each user has got on since a moment."""
        for host in self.nodes:

            def serves(host: Host = host) -> bool:
                entry = self.entry(host)
                return entry.get("state") == "serving" and bool(entry["entered"])

            wait_for(f"{host.name} serves after {what}", serves, PATIENCE_S)
        for name in self.names:
            does = {"write": ["put"], "read": ["read"], "keep": ["put", "read"], "ask": ["query"]}
            self.wait_until_done(name, does[name.partition("-")[0]], since)

    # The whole

    def run(self, faults: Sequence[Callable[[Campaign], None]]) -> None:
        """Have one fault after another, each undone before the next; then check all."""
        for fault in faults:
            self.let_pass(self.draw.random())
            begun = time.monotonic()
            fault(self)
            self.rig.unblock_all()
            self.start_what_ended()
            undone = time.monotonic()
            self.settle(fault.__name__, undone)
            took = f"{undone - begun:.1f} s, undone in {time.monotonic() - undone:.1f} s"
            print(f"    {fault.__name__}: {took}", flush=True)  # noqa: T201 - how far it is
        self.check()

    def check(self) -> None:
        """End the users, look at what is left, and judge what they have seen."""
        for process in self.users.values():
            process.signal(signal.SIGTERM)
        for process in self.users.values():
            process.end(2 * work.DEADLINE_S)
        found = self._last_look()
        records = [record for name in self._logs for record in self.records(name)]
        found += [
            f"not there at the end: {each}" for each in self.records("last") if is_wrong(each)
        ]
        found += checker.troubles(records, self.watch.gone, self.power_failed)
        told = "\n  ".join(found[:20])
        assert not found, f"seed {self.seed}: {len(found)} troubles:\n  {told}"

    def _last_look(self) -> list[str]:
        """Read each name whole, then end the servers and verify each pool."""
        host = self.nodes[0]
        self._logs["last"] = []
        last = self._run(host, "last", "last")
        found = [] if last.wait() == 0 else [f"the last look: {last.said()}"]
        servers = [process for host in self.nodes for process in self.servers[host.name]]
        for process in servers:
            process.signal(signal.SIGTERM)
        for process in servers:
            process.end()
        for host in self.nodes:
            command = [sys.executable, "-c", VERIFY, POOL]
            problems = json.loads(host.run(command).splitlines()[-1])
            found += [f"{host.name}: {problem}" for problem in problems]
            found += [f"{host.name} has {left} left" for left in left_in(host)]
        return found
