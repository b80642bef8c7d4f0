"""Nodes on one host, each served by a process of its own, and a real etcd beside them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from cluster.etcd import Etcd, Tls, why_not
from engram import cluster as clusters
from engram.cluster import certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 60.0
TTL_S = 4.0
SERVE = """
import ctypes, socket, sys, engram.cluster
name, pool, size, etcd, ttl, kept, host, tls, workers = sys.argv[1:]
if host:
    assert ctypes.CDLL(None).unshare(0x04000000) == 0, "no namespace of host names"
    socket.sethostname(host)
node = engram.cluster.serve(
    name, pool=pool, size=size, etcd=etcd.split(","), host="127.0.0.1", ttl=float(ttl),
    kept=float(kept), tls=tls, workers=int(workers))
node.wait()
print(node.standing, flush=True)
{more}
sys.stdin.read()
node.stop()
"""


class Rig:
    """An etcd and the processes that serve nodes."""

    def __init__(
        self, etcd: list[str], folder: Path, last: contextlib.ExitStack, tls: Path | None = None
    ) -> None:
        self.etcd, self.folder, self._last = etcd, folder, last
        self.tls = "none" if tls is None else str(tls)
        self.processes: list[subprocess.Popen[str]] = []

    def serve(
        self,
        number: int,
        more: str = "",
        *,
        size: str = "64 MiB",
        kept: float = 60.0,
        host: str = "",
        workers: int = 2,
    ) -> subprocess.Popen[str]:
        """Start a process that takes part with this node's pool; it stands as it says.

        With a name of a host of its own, which takes root, it is on that host.
        """
        if host and os.geteuid() != 0:
            pytest.skip("hosts of other names are made by root alone")
        command = [sys.executable, "-c", SERVE.format(more=more)]
        pool = self.folder / f"node{number}"
        said = ["job", str(pool), size, ",".join(self.etcd), str(TTL_S), str(kept), host]
        said += [self.tls, str(workers)]
        process = subprocess.Popen(
            [*command, *said],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._last.callback(end, process)
        assert process.stdout is not None
        assert process.stdout.readline().strip() in {"serves", "waits"}
        self.processes.append(process)
        return process

    def open(self, number: int | None = None) -> clusters.Cluster:
        """Open the cluster as a process of this node, or of none."""
        pool = None if number is None else self.folder / f"node{number}"
        opened = clusters.open("job", etcd=self.etcd, pool=pool, tls=self.tls)
        self._last.callback(opened.close)
        return opened


def end(process: subprocess.Popen[str]) -> None:
    """End a process that was started here."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@contextlib.contextmanager
def rigged(folder: Path, *, secure: bool = False) -> Iterator[Rig]:
    """Give a rig whose pools lie in a folder; all of it has ended after the block.

    A secure one has an authority, and all connections are mutual TLS, those to etcd, too.
    """
    if why := why_not():
        pytest.skip(why)
    with contextlib.ExitStack() as last:
        if not secure:
            etcd = last.enter_context(Etcd.alone())
            yield Rig([each.removeprefix("http://") for each in etcd.endpoints], folder, last)
            return
        authority = certificates.make_authority("job", folder / "tls")
        etcd = last.enter_context(Etcd.alone(tls=Tls(**certificates.files_of(authority))))
        yield Rig(etcd.endpoints, folder, last, authority)


def wait_for(holds: Any) -> Any:
    """Wait until something holds, and give it."""
    until = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < until, "it does not come to hold"
        time.sleep(0.02)
    return found
