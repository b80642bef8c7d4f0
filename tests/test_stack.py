"""Little stack for processes (`ulimit -s`): children work with enough of it, or it is named."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram

if TYPE_CHECKING:
    from pathlib import Path

_BEGIN = """
import resource, sys
from pathlib import Path
import engram
home = Path(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
resource.setrlimit(resource.RLIMIT_STACK, (65536, 65536 if sys.argv[2] == "hard" else hard))
"""
WORK = {
    "verify": "print(bool(engram.verify(home / 'p')))",
    "salvage": "print(bool(engram.salvage(home / 'p', home / 'saved')))",
    "import": """
with engram.open(home / "p") as pool:
    files = [home / "a.npy", home / "b.npy"]
    found = engram.import_files(files, pool.require_group("in"), workers=2)
    print(all(isinstance(one, engram.ImportReport) for one in found))
""",
}


@pytest.fixture
def begun(home: Path) -> Path:
    """Make a pool, and files to import."""
    with engram.create(home / "p", size="16 MiB") as pool:
        pool["g/x"] = np.arange(10_000.0)
    for name in "ab":
        np.save(home / f"{name}.npy", np.arange(10.0))
    return home


def run(work: str, home: Path, limit: str) -> tuple[str, str]:
    """Do work in a program that has set its limit; give what it says last, well or not."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + WORK[work], str(home), limit],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip(), (done.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize("work", WORK)
def test_a_program_with_a_small_stack_has_children_with_enough(begun: Path, work: str) -> None:
    assert run(work, begun, "soft") == ("True", "")


@pytest.mark.parametrize("work", ["verify", "salvage"])
def test_where_no_child_can_have_more_the_stack_is_named_and_not_the_pool(
    begun: Path, work: str
) -> None:
    said, told = run(work, begun, "hard")
    assert said == ""
    assert told.startswith("engram.errors.UnsupportedError: a process may have a stack of")
    assert "no more than 64 KiB" in told
    assert "begin again where it may have 8192 KiB" in told


def test_the_limit_is_what_it_was(begun: Path) -> None:
    text = _BEGIN + "engram.verify(home / 'p'); print(resource.getrlimit(resource.RLIMIT_STACK)[0])"
    words = [sys.executable, "-c", text, str(begun), "soft"]
    assert subprocess.check_output(words, text=True) == "65536\n"


def test_a_fork_beside_a_child_that_begins_keeps_neither_lock_nor_limit(home: Path) -> None:
    program = """
import os, resource, signal, sys, threading
from engram import _stack
hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, hard))
inside, done = threading.Event(), threading.Event()
def begin():
    with _stack.for_child():
        inside.set()
        done.wait()
beside = threading.Thread(target=begin)
beside.start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    own = resource.getrlimit(resource.RLIMIT_STACK)[0]
    with _stack.for_child():
        pass
    os._exit(0 if own == 1 << 20 else 3)
ended = os.waitpid(child, 0)[1]
done.set()
beside.join()
sys.exit(os.waitstatus_to_exitcode(ended))
"""
    assert subprocess.run([sys.executable, "-c", program], cwd=home, check=False).returncode == 0
