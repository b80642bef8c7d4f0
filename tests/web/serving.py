"""`engram serve` as a process of its own, and where its pools live."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import engram

PAGE = Path(engram.__file__).parent / "web/page/index.html"
AXE = Path(__file__).resolve().parents[2] / "web/node_modules/axe-core/axe.min.js"
PATIENCE = 60


@contextmanager
def folder(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder on tmpfs, if it can be written; it is gone afterwards."""
    if not os.access("/dev/shm", os.W_OK):
        yield factory.mktemp("web")
        return
    home = Path(tempfile.mkdtemp(prefix="engram-test-", dir="/dev/shm"))
    yield home
    shutil.rmtree(home, ignore_errors=True)


class Serving:
    """A server, and what it said first: the address of the page."""

    def __init__(self, *arguments: str | Path) -> None:
        command = [sys.executable, "-m", "engram", "serve", *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if line.startswith("http"):
                self.url = line.strip()
                return
        raise AssertionError(f"{command}: {''.join(said)}")

    def end(self) -> None:
        """End it as Ctrl-C does, and wait for it."""
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE)


@contextmanager
def served(*pools: str | Path, options: tuple[str, ...] = ("--port", "0")) -> Iterator[str]:
    """Serve pools within the block; give the address of the page."""
    server = Serving(*pools, *options)
    try:
        yield server.url
    finally:
        server.end()
