"""A place for a job in tests: its tree outside, its description, its memory, its results."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from mounted import mounts, take_away
from support import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COMMAND = [sys.executable, "-m", "engram.cli"]
MIB = 1 << 20


class Place:
    """Where a job's files are: its tree outside, its memory, its results."""

    def __init__(self, home: Path) -> None:
        self.root, self.memory, self.mount = home / "root", home / "memory", home / "mnt"
        self.results, self.config, self.log = home / "results", home / "job.yaml", home / "log"
        self.state = home / "notes"
        self.memory.mkdir()
        (self.root / "in").mkdir(parents=True)
        (self.root / "in/small").write_bytes(b"small")
        (self.root / "in/large").write_bytes(os.urandom(2 * MIB + 17))
        (self.root / "state").write_bytes(b"old\n")

    def write(self, *resources: dict[str, str], **settings: Any) -> Path:
        """Write a description; of the usual resources if none are given."""
        usual = (
            {"path": "in", "flags": "temporary"},
            {"path": "state", "flags": "persistent"},
            {"path": "out", "flags": "persistent"},
        )
        capacity = settings.pop("capacity", "64 MiB")
        backends = settings.pop("backends", None) or [
            {"id": "b", "type": "DRAM", "capacity": capacity, "daxfs": str(self.memory)}
        ]
        said = {
            "global-settings": {
                "root-dir": str(self.root),
                "mount-dir": str(self.mount),
                "results-dir": str(self.results),
                "log-file": str(self.log),
                **{key.replace("_", "-"): value for key, value in settings.items()},
            },
            "backends": backends,
            "resources": [
                {"backend": "b"} | one | {"path": str(self.root / one["path"])}
                for one in resources or usual
            ],
        }
        self.config.write_text(json.dumps(said))  # JSON is YAML
        return self.config

    def pool(self) -> Path | None:
        """Give the job's pool, if it is there."""
        found = [path for path in self.memory.iterdir() if path.name.startswith("engram-")]
        assert len(found) < 2
        return found[0] if found else None

    def begin(self, *words: object) -> subprocess.Popen[str]:
        """Begin `engram WORD...`."""
        return subprocess.Popen(
            [*COMMAND, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def script(self, *lines: str) -> list[str]:
        """Give a program that does this where its files are."""
        return ["sh", "-ec", "\n".join(['cd "$ENGRAM_MOUNT"', *lines])]


@contextlib.contextmanager
def placed(home: Path) -> Iterator[Place]:
    """Give a place for a job; nothing of it stays mounted, and no pool is noted elsewhere."""
    made = Place(home)
    before = os.environ.get("ENGRAM_STATE")
    os.environ["ENGRAM_STATE"] = str(made.state)
    try:
        yield made
    finally:
        del os.environ["ENGRAM_STATE"]
        if before is not None:
            os.environ["ENGRAM_STATE"] = before
        with contextlib.suppress(OSError, ValueError):  # what a test that failed has left
            os.kill(int((made.root / "pid").read_text()), signal.SIGKILL)
        if made.mount in mounts():
            take_away(made.mount)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Give how a command ended, and what it said."""
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        pytest.fail(f"it hangs: {said}")
    return process.returncode, said


def until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    ends = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < ends
        time.sleep(0.01)
