"""mdtest and IOR themselves, where `$IOR_SRC` names a folder in which they were built.

They are run by Open MPI's `mpirun`. Where they are not, this folder's loops have their shape.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

BANDWIDTH = re.compile(r"^(write|read)\s+([\d.]+)\s", re.MULTILINE)
RATE = re.compile(r"^\s+(Directory|File) (creation|stat|removal)\s+([\d.]+)\s", re.MULTILINE)


def found(name: str) -> Path | None:
    """Return the program, if it was built and can be run."""
    folder = os.environ.get("IOR_SRC")
    if not folder or shutil.which("mpirun") is None:
        return None
    places = (Path(folder) / name, Path(folder) / "src" / name)
    return next((place for place in places if place.is_file()), None)


def run(ranks: int, program: Path, *words: str) -> str:
    """Run a program in so many processes, and return what it prints."""
    mpirun = ["mpirun", "--oversubscribe", "-n", str(ranks)]
    if os.geteuid() == 0:
        mpirun.insert(1, "--allow-run-as-root")
    done = subprocess.run(  # noqa: S603 - the programs are named by who runs this
        [*mpirun, str(program), *words], check=True, capture_output=True, text=True
    )
    return done.stdout
