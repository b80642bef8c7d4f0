"""The operator of the cluster `job`, who starts nodes of it by the command line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram.cluster import etcds
from shell import COMMAND, run

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 90.0


class Operator:
    """Starts nodes of the cluster `job`; what it has started ends with the test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.begun: list[subprocess.Popen[str]] = []
        self.left: list[int] = []
        self.states: set[Path] = set()

    def pool(self, number: int) -> Path:
        return self.home / f"node{number}"

    def begin(
        self, number: int, *words: str, host: str = "", state: Path | None = None
    ) -> subprocess.Popen[str]:
        """Begin to start a node, and do not wait; where a host is named, on one of that name.

        Where a folder of state is named, that host shares no home with others.
        """
        options = ("--pool", str(self.pool(number)), "--size", "64MiB", "--ttl", "3")
        command = [*COMMAND, "cluster", "start", "job", *options, "--host", "127.0.0.1", *words]
        if host:
            command = [
                "unshare",
                "--uts",
                "sh",
                "-c",
                f'hostname {host} && exec "$@"',
                "-",
                *command,
            ]
        env = dict(os.environ) if state is None else {**os.environ, "XDG_STATE_HOME": str(state)}
        begun = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        )
        self.states.add(Path(env["XDG_STATE_HOME"]))
        self.begun.append(begun)
        return begun

    def left_by(self, begun: subprocess.Popen[str]) -> int:
        """Give the process that a start has left in the background."""
        said = begun.communicate(timeout=PATIENCE_S)[0]
        found = re.search(r"process (\d+)(?: waits)?; see .*\.log$", said.strip())
        assert begun.returncode == 0, said
        assert found, said
        self.left.append(int(found[1]))
        return self.left[-1]

    def leave(self, number: int, *words: str) -> int:
        return self.left_by(self.begin(number, "--detach", *words))

    def serve(
        self, number: int, *words: str, host: str = "", state: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start a node in the foreground, and wait until it serves."""
        begun = self.begin(number, *words, host=host, state=state)
        assert begun.stdout is not None
        assert re.match(
            r".* is served as a node of job, member [0-9a-f]+$", begun.stdout.readline()
        )
        return begun

    def end(self) -> None:
        for pid in self.left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for begun in self.begun:
            begun.kill()
            begun.communicate()
        etcds.end("job")
        for pid in filter(None, self.etcds().values()):
            os.kill(pid, signal.SIGKILL)

    def etcds(self) -> dict[str, int]:
        """Give the etcds that starts have brought along, by host; 0: it does not run."""
        files = [file for each in self.states for file in each.rglob("job.d/etcd*.json")]
        found = [etcds.OwnEtcd(**json.loads(file.read_text())) for file in files]
        data = [f"--data-dir={file.with_suffix('')}" for file in files]
        return {
            own.host: own.pid if own.pid and option in words_of(own.pid) else 0
            for own, option in zip(found, data, strict=True)
        }

    def kill_etcd(self, host: str) -> None:
        """End the etcd of a host by SIGKILL."""
        pid = self.etcds()[host]
        os.kill(pid, signal.SIGKILL)
        wait_for("it is gone", lambda: is_gone(pid))


def wait_for(what: str, holds: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < until, f"it does not come to hold: {what}"
        time.sleep(0.05)
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waits for has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def words_of(pid: int) -> list[str]:
    """Give the words with which a process was started; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def told(*words: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(run("cluster", "status", "job", "--json", *words).out)
    return said
