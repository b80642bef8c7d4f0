"""Servers of peers: started here, on this machine's loopback alone, and ended by their handles."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
PATIENCE_S = 30.0
PAUSE_S = 0.02


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a server in a folder; what it says goes to a file there."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


def start_redis(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start a Redis server that keeps all in memory, and nothing on disk.

    Raises
    ------
    FileNotFoundError
        If there is no Redis on this machine.

    """
    program = shutil.which("redis-server")
    if program is None:
        raise FileNotFoundError("redis-server is not installed")
    return start([program, "--save", "", "--appendonly", "no", "--dir", str(folder), *more], folder)


def listens(port: int) -> bool:
    """Whether somebody listens at a port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def wait_until(there: Callable[[], bool], server: subprocess.Popen[bytes]) -> None:
    """Wait for a server.

    Raises
    ------
    OSError
        If it ends, or takes too long.

    """
    deadline = time.monotonic() + PATIENCE_S
    while not there():
        if server.poll() is not None:
            raise OSError(f"{server.args!r} ended with {server.returncode}")
        if time.monotonic() > deadline:
            raise OSError(f"{server.args!r} is not ready after {PATIENCE_S:g} s")
        time.sleep(PAUSE_S)


def end(server: subprocess.Popen[bytes]) -> None:
    """End a server."""
    server.terminate()
    try:
        server.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
