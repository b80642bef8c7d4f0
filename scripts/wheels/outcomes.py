"""How a step ends: well, skipped with a reason, or failed with what it said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE = 3600
MOST_SAID = 8000
"""As many of the last characters of what a step said are shown."""


class SkippedError(Exception):
    """A step needs what cannot be had here."""


class FailedError(Exception):
    """A wheel cannot be built, or does not do what it should."""


def tools() -> dict[str, str]:
    """Return an environment that has the programs of this Python's environment first."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def apart() -> dict[str, str]:
    """Return an environment with nothing of this process's Python."""
    names = (name for name in os.environ if not name.startswith(("PYTHON", "CARGO")))
    return {name: os.environ[name] for name in names}


def run(*words: str, cwd: Path = Path("/"), around: Mapping[str, str] | None = None) -> str:
    """Run a step, apart from this process's Python unless `around` says where; return what it says.

    Raises
    ------
    FailedError
        It did not end well, or not at all, or cannot be started.

    """
    name = " ".join(words[:5])
    try:
        ended = subprocess.run(
            words,
            cwd=cwd,
            env=apart() if around is None else around,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FailedError(f"{name}: {error}") from None
    if ended.returncode:
        said = ended.stdout[-MOST_SAID:]
        raise FailedError(f"{name} ended with {ended.returncode}\n{said}")
    return ended.stdout
