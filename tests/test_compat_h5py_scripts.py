"""Twenty programs for h5py, and h5py's names on a pool: the import line alone differs.

Each is run once with h5py on a file, and once with `engram.compat.h5py` on a pool. What they print
is the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "h5py_scripts").glob("*.py"))
LINE, OURS = "import h5py\n", "import engram.compat.h5py as h5py\n"


def run(program: str, path: Path) -> str:
    """Run a program on a file, or a pool, of this path, and return what it prints."""
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_twenty() -> None:
    assert len(SCRIPTS) == 20


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_program_prints_the_same(script: Path, home: Path) -> None:
    program = script.read_text(encoding="utf-8")
    assert program.count(LINE) == 1
    file, pool = home / "file" / "run.h5", home / "pool" / "run.h5"
    file.parent.mkdir()
    pool.parent.mkdir()
    expected = run(program, file)
    found = run(program.replace(LINE, OURS), pool)
    assert found == expected
    assert expected
    assert pool.is_dir()
