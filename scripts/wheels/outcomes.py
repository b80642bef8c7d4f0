"""How a step of a trial ends: well, skipped with a reason, or failed with what it said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PATIENCE = 3600


class SkippedError(Exception):
    """A trial needs what cannot be had here."""


class FailedError(Exception):
    """A wheel does not do what it should."""


def run(*words: str, cwd: Path = Path("/")) -> str:
    """Run a step with nothing of this process's Python; return what it says."""
    around = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "CARGO"))
    }
    ended = subprocess.run(
        words,
        cwd=cwd,
        env=around,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    if ended.returncode:
        raise FailedError(f"{' '.join(words[:5])} ended with {ended.returncode}\n{ended.stdout}")
    return ended.stdout
