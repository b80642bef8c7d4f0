"""pjdfstest, as tests and `make posix-suites` run it."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from native import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SETTINGS = ROOT / "tests/posix/pjdfstest.toml"
_RUNS = "a program of a pool runs from a copy in memory, so its file can be written meanwhile"
PRELOADED = {
    "open::etxtbsy": _RUNS,
    "truncate::etxtbsy": _RUNS,
    "rmdir::ebusy": "nothing is mounted below a prefix, as the test does",
}
"""What ends otherwise under preload than on a tmpfs, and why.

So do tests of a socket's node: `bind` makes one, which only the kernel can, and is refused.
"""


def is_known(name: str) -> bool:
    """Whether a test may end otherwise under preload."""
    return name in PRELOADED or "socket" in name


def outcomes(
    program: str | Path,
    folder: Path,
    settings: Mapping[str, str] | None = None,
    only: tuple[str, ...] = (),
) -> dict[str, str]:
    """Run pjdfstest in a folder; give how each of its tests ended."""
    command = [str(program), "-c", str(_SETTINGS), "-p", str(folder), *only]
    environment = {**os.environ, **(settings or {})}
    said = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    found = dict(re.findall(r"^(\S+::\S+)\s+(ok|skipped|FAILED)$", said.stdout, re.MULTILINE))
    assert found, f"pjdfstest has not run: {said.stdout[-500:]}{said.stderr[-500:]}"
    return found
