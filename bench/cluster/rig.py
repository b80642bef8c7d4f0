"""Nodes of a cluster on loopback: an etcd, and a process for each node pool."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from engram import cluster as clusters
from engram.cluster import certificates

if TYPE_CHECKING:
    from pathlib import Path

TTL_S = 6.0
PATIENCE_S = 60.0
SERVE = """
import ctypes, socket, sys, engram.cluster
pool, size, etcd, ttl, name, tls = sys.argv[1:]
if name:
    assert ctypes.CDLL(None).unshare(0x04000000) == 0, "no namespace of host names"
    socket.sethostname(name)
node = engram.cluster.serve(
    "bench", pool=pool, size=size, etcd=[etcd], host="127.0.0.1", ttl=float(ttl),
    tls=tls)
node.wait()
print(node.standing, flush=True)
sys.stdin.read()
node.stop()
"""


class Rig:
    """An etcd and the nodes of the cluster "bench", which end with the block."""

    def __init__(
        self, folder: Path, nodes: int, size: str, host: str = "", *, secure: bool = False
    ) -> None:
        """Say how many nodes; with `host`, which takes root, each is on a host of that name.

        Those that are `secure` have an authority, and all connections are mutual TLS.
        """
        self.folder, self._count, self._size, self._host = folder, nodes, size, host
        self._last = contextlib.ExitStack()
        self.etcd = ""
        self.tls = folder / "tls" if secure else None
        self.nodes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        with self._last:
            if self.tls is not None:
                certificates.make_authority("bench", self.tls)
            self.etcd = self._start_etcd()
            self._last.callback(os.environ.pop, "XDG_STATE_HOME", None)
            os.environ["XDG_STATE_HOME"] = str(self.folder / "state")
            for number in range(self._count):
                self.nodes.append(self._serve(number))
            self._last = self._last.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._last.close()

    def pool(self, number: int) -> Path:
        """Return where the pool of a node lies."""
        return self.folder / f"node{number}"

    def open(self, number: int | None = None) -> clusters.Cluster:
        """Open the cluster as a process of a node does, or as one beside them all."""
        if number is None:
            opened = clusters.Cluster(
                "bench", [self.etcd], pool=None, deadline=PATIENCE_S, ttl=TTL_S, tls=self.tls
            )
        else:
            opened = clusters.open(
                "bench", etcd=[self.etcd], pool=self.pool(number), tls=self._tls()
            )
        self._last.callback(opened.close)
        return opened

    def _tls(self) -> str:
        return "none" if self.tls is None else str(self.tls)

    def _start_etcd(self) -> str:
        program = shutil.which("etcd", path="/usr/bin:/usr/local/bin") or shutil.which("etcd")
        if program is None:
            raise OSError("etcd is not installed (Debian's etcd-server)")
        client, peer = (f"127.0.0.1:{_free_port()}" for _ in range(2))
        scheme, files = "http", []
        if self.tls is not None:
            given = certificates.files_of(self.tls)
            scheme = "https"
            files = [
                *("--trusted-ca-file", given["ca"], "--client-cert-auth"),
                *("--cert-file", given["cert"], "--key-file", given["key"]),
            ]
        words = [
            *(program, "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync"),
            *("--listen-client-urls", f"{scheme}://{client}"),
            *("--advertise-client-urls", f"{scheme}://{client}"),
            *map(str, files),
            *("--listen-peer-urls", f"http://{peer}"),
            *("--initial-advertise-peer-urls", f"http://{peer}"),
            *("--initial-cluster", f"default=http://{peer}"),
        ]
        log = self._last.enter_context((self.folder / "etcd.log").open("wb"))
        process = subprocess.Popen(words, stdout=log, stderr=log)  # noqa: S603 - our own words
        self._last.callback(_end, process)
        host, port = client.split(":")
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
                return client
            time.sleep(0.02)
        raise OSError(f"etcd does not answer at {client}: {self.folder / 'etcd.log'} says why")

    def _serve(self, number: int) -> subprocess.Popen[str]:
        host = f"{self._host}{number}" if self._host else ""
        words = [str(self.pool(number)), self._size, self.etcd, str(TTL_S), host, self._tls()]
        process = subprocess.Popen(  # noqa: S603 - our own words
            [sys.executable, "-c", SERVE, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._last.callback(_end, process)
        said: Any = process.stdout
        if said.readline().strip() != "serves":
            raise OSError(f"node {number} does not serve")
        return process


def _end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
