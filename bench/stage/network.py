"""The white paper's Table 3 over a network: sshfs in several namespaces, through one slow link.

Nothing of it is fitted. Each job's node is a network namespace with a mount of its own; all of them
reach the server through one bridge, whose line to the server has a token bucket in each direction.
The server's files lie in memory, so that the line is what is scarce.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import engram
from bench.harness import Bound, Line, measure
from bench.own import rust
from bench.stage import paper
from bench.stage.made import MIB
from bench.stage.paper import AT_ONCE, DIRECT, IN_TURN, LOOKED_AT
from bench.stage.sftp import SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.setting import Setting
    from bench.stage.elsewhere import Elsewhere

JOBS, SIZE = (2, 3), 48 * MIB
ROUNDS, QUICK = 3, 1
RATE = ("rate", "400mbit", "burst", "256kb", "latency", "50ms")
PREFIX = "engram-link-"
HUB, SERVED = f"{PREFIX}hub", f"{PREFIX}server"
NETWORK, PORT = "10.201.77", 2200
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "sshfs": "sshfs"}
TOLD = "sshfs through a link"


def lines(setting: Setting, _elsewhere: Elsewhere) -> Iterator[Line]:
    """Measure two jobs, and three."""
    if (why := lacking()) is not None:
        setting.absent[TOLD] = why
        return
    rounds = QUICK if setting.quick else ROUNDS
    size = setting.scaled(SIZE)
    with linked(setting.folder / "link", max(JOBS)) as mounts:
        slots = setting.folder / "link-slots"
        engram.stage.set_slots(slots, 1)
        for count in JOBS:
            way = partial(paper.jobs, setting, mounts.__getitem__, count, size)
            bounds = [
                Bound(AT_ONCE, DIRECT, "time", 1.0),
                Bound(IN_TURN, AT_ONCE, "time", 1.0),
                Bound(LOOKED_AT, DIRECT, "show"),
            ]
            title = f"{count} jobs read and write {size // MIB} MiB each, sshfs through one link"
            yield measure(Line(title, "ms", bounds), paper.ways(way, slots), rounds)


def lacking() -> str | None:
    """Say what such a network lacks here; None: nothing."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"{program} is not installed: apt install {package}"
    if not SERVER.exists():
        return "there is no SFTP server: apt install openssh-sftp-server"
    try:
        remove()
        ip("netns", "add", HUB)
        ip("-n", HUB, "link", "add", "name", "try", "type", "bridge")
        tried = ("qdisc", "add", "dev", "try", "root", "tbf", *RATE)
        run("tc", "-n", HUB, *tried)
    except subprocess.CalledProcessError as error:
        return f"no namespace with a slow link can be made: {error.stderr.strip()}"
    finally:
        remove()
    return None


def ip(*words: str) -> None:
    """Run iproute2's `ip`."""
    run("ip", *words)


def run(*words: str | Path) -> str:
    """Run a program; give what it says."""
    words = (shutil.which(words[0]) or words[0], *words[1:])
    done = subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603 - ours
    return done.stdout


def remove() -> None:
    """Remove the namespaces of this benchmark, also those that a killed one has left."""
    for line in run("ip", "netns", "list").splitlines():
        if line.startswith(PREFIX):
            ip("netns", "delete", line.split()[0])


def inside(namespace: str, *words: str | Path) -> list[str]:
    """Give a command that runs in a network namespace."""
    return ["nsenter", f"--net=/run/netns/{namespace}", "--", *map(str, words)]


@contextmanager
def linked(folder: Path, count: int) -> Iterator[list[Path]]:
    """Serve a folder, and mount it in so many namespaces."""
    served = folder / "served"
    served.mkdir(parents=True)
    with ExitStack() as stack:
        stack.callback(remove)
        wire(count)
        words = (sys.executable, "-m", "bench.stage.sftp", f"{NETWORK}.1", str(PORT))
        server = subprocess.Popen(  # noqa: S603 - our own module
            inside(SERVED, *words), stdout=subprocess.PIPE, text=True, cwd=rust.ROOT
        )
        stack.callback(server.wait)
        stack.callback(server.terminate)
        assert server.stdout is not None  # noqa: S101 - it is a pipe
        if server.stdout.readline().strip() != "ready":
            raise OSError(f"{SERVED}: the SFTP server does not listen")
        mounts = []
        for number in range(count):
            mount = folder / f"mount-{number}"
            mount.mkdir()
            source = f"{NETWORK}.1:{served}"
            mounting = inside(node(number), "sshfs", "-o", f"directport={PORT}", source, mount)
            run(*mounting)
            stack.callback(run, "umount", mount)
            mounts.append(mount)
        yield mounts


def node(number: int) -> str:
    """Give the namespace of a job."""
    return f"{PREFIX}{number}"


def wire(count: int) -> None:
    """Make the namespaces, and what connects them."""
    ip("netns", "add", HUB)
    ip("-n", HUB, "link", "add", "name", "hub", "type", "bridge")
    ip("-n", HUB, "link", "set", "hub", "up")
    for place, name in enumerate([SERVED, *map(node, range(count))], 1):
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        port = f"port-{place}"
        end = ("type", "veth", "peer", "name", "line", "netns", name)
        ip("-n", HUB, "link", "add", "name", port, *end)
        ip("-n", HUB, "link", "set", port, "master", "hub", "up")
        ip("-n", name, "address", "add", f"{NETWORK}.{place}/24", "dev", "line")
        ip("-n", name, "link", "set", "line", "up")
    # What the server sends, and what it is sent.
    for namespace, device in ((SERVED, "line"), (HUB, "port-1")):
        run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *RATE)
    time.sleep(0.2)  # until the bridge forwards
