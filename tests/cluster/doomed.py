"""Makers that die at a step: what they do, and the program whose forks they are.

A step is a call of a native that asks etcd or a node for something. A maker says which step it
takes, and at the one that is named to it, it ends itself by SIGKILL: before the call, or amid it,
when what it asks for is on its way. `main` reads one task a line, and has a fork of its process do
each: so none of them takes the time to load anything.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import traceback
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

import engram
from engram import cluster as clusters
from engram.cluster.natives import native

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.cluster import Cluster

SHAPE = (48, 1024)
PARTS = (2, 1)
GAVE_UP = 2
"""How a maker ends to whom etcd or a node does not answer in time, on a busy machine."""
NEW_NAMESPACE = 0x04000000
"""Of host names."""


class Thing(engram.ActiveObject):
    """What is moved: all of its items are its number."""

    number: int
    data: np.ndarray


def full(number: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Give an array whose items are all this number."""
    return np.full(SHAPE, number, "i8")


# What makers do below a name


def put(cluster: Cluster, name: str, number: int, replicas: int) -> None:
    """Put an array in parts."""
    attrs = {"v": number}
    cluster.put(f"{name}/a", full(number), parts=PARTS, attrs=attrs, replicas=replicas)


def seal(cluster: Cluster, name: str, number: int, replicas: int) -> None:
    """Seal an array that was made to be written in place; it is made if it is not there."""
    path, attrs = f"{name}/a", {"v": number}
    if path not in cluster:
        cluster.create_array(path, SHAPE, parts=PARTS, attrs=attrs, fill=number, replicas=replicas)
    cluster.publish(path)


def batch(cluster: Cluster, name: str, number: int, replicas: int) -> None:
    """Make a name, replace another, and remove a third, if it is there, all at once."""
    attrs = {"v": number}
    with cluster.batch() as made:
        made.put(f"{name}/a", full(number), parts=PARTS, attrs=attrs, replicas=replicas)
        made.create_array(f"{name}/b", SHAPE, parts=PARTS, attrs=attrs, fill=number)
        if f"{name}/old" in cluster:
            made.remove(f"{name}/old")


def group(cluster: Cluster, name: str, number: int, replicas: int) -> None:  # noqa: ARG001
    """Make a group over all nodes, and put something into it."""
    made = cluster.create_group(f"{name}/g", spread="hash", attrs={"v": number}, exist_ok=True)
    made.put("one", full(number)[0], attrs={"v": number})


def move(cluster: Cluster, name: str, number: int, replicas: int) -> None:  # noqa: ARG001
    """Move an object of this node to another one, or from that to the next."""
    thing = Thing.get_by_alias(name, pool=cluster)
    here = thing.get_location() or ""
    others = [each for each in cluster.members if each.node != cluster.node]
    thing.move(next(each for each in others if each.node not in here))


WORKS: dict[str, Callable[[Cluster, str, int, int], None]] = {
    "put": put,
    "seal": seal,
    "batch": batch,
    "group": group,
    "move": move,
}


# How makers die


class Steps:
    """Counts the steps of this process, and ends it at one."""

    def __init__(self, last: int | None, how: str) -> None:
        self._numbers = count()
        self._last, self._how = last, how

    def take(self, name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Take a step; it may be the last thing that this process does."""
        is_last = next(self._numbers) == self._last
        os.write(1, f"step {name}\n".encode())
        if is_last and self._how == "before":
            die()
        if is_last:
            goes = threading.Event()
            caller = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
            threading.Thread(target=die_while_it_waits, args=(goes, caller)).start()
            goes.set()
        try:
            return call(*args, **kwargs)
        finally:
            if is_last:
                die()


def die() -> NoReturn:
    """End this process by SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def die_while_it_waits(goes: threading.Event, caller: Path) -> None:
    """End this process when the thread that asks for something waits for the answer."""
    goes.wait()
    while caller.read_text().rpartition(")")[2].split()[0] == "R":
        pass
    die()


class Stepped:
    """A native whose calls are steps."""

    def __init__(self, inner: Any, steps: Steps) -> None:
        self.inner, self._steps = inner, steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return partial(self._steps.take, name, found) if callable(found) else found


def have_counted(cluster: Any, steps: Steps) -> None:
    """Have all calls of a cluster's natives be steps, and those of its groups' natives, too."""
    made = native.Tree

    def tree(of: Any, path: str, manifest: str) -> Stepped:
        return Stepped(made(getattr(of, "inner", of), path, manifest), steps)

    natives: Any = native
    natives.Tree = tree
    cluster._native = Stepped(cluster._native, steps)


def work(given: dict[str, Any]) -> NoReturn:
    """Do a task, in a fork, and end."""
    code = 1
    try:
        cluster = clusters.Cluster(
            given["cluster"],
            given["etcd"],
            pool=Path(given["pool"]),
            deadline=given["deadline"],
            ttl=given["ttl"],
            tls=given["tls"] and Path(given["tls"]),
        )
        have_counted(cluster, Steps(given["step"], given["how"]))
        WORKS[given["work"]](cluster, given["name"], given["number"], given["replicas"])
        cluster.close()
        code = 0
    except engram.BusyError:
        code = GAVE_UP
    except BaseException:  # noqa: BLE001 - the fork ends here, whatever it is
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def main() -> None:
    """Have a fork do each task, and say how it began and ended."""
    given = json.loads(sys.argv[1])
    if given["host"]:
        assert ctypes.CDLL(None).unshare(NEW_NAMESPACE) == 0, "no namespace of host names"
        socket.sethostname(given["host"])
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            work({**given, **json.loads(line)})
        os.write(1, f"begun {pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        os.write(1, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())
