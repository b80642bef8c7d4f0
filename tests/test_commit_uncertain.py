"""A commit whose last sync fails says that it may be durable; one that fails before does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import engram

if TYPE_CHECKING:
    from pathlib import Path

FAILING = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
static long left;
void fail_in(long calls) { left = calls; }
int msync(void *at, size_t len, int flags) {
    if (left > 0 && --left == 0) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_msync, at, len, flags);
}
"""

WORK = """
import ctypes, sys
import engram
pool = engram.open(sys.argv[1])
pool["warm"] = b"ids are at hand"
ctypes.CDLL(None).fail_in(int(sys.argv[2]))
try:
    pool["new"] = b"a value that lies in its row"
except engram.EngramError as error:
    ctypes.CDLL(None).fail_in(0)
    print(type(error).__name__, error.exit_code, getattr(error, "errno", None), error)
else:
    print("done")
"""


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    """Give a library whose `msync` stands before the C library's, and fails when it is told to."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("it needs a C compiler")
    source, library = tmp_path / "failing.c", tmp_path / "failing.so"
    source.write_text(FAILING)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def test_only_a_commit_whose_last_sync_failed_is_uncertain(failing: Path, tmp_path: Path) -> None:
    """Its change is seen by the process that opens the pool next, and nothing else is."""
    told = {syncs: told_by(failing, tmp_path / f"pool{syncs}", syncs) for syncs in range(1, 5)}
    kinds = [what.split()[0] for what, _ in told.values()]
    assert kinds.count("CommitUncertainError") == 1
    assert "done" in kinds  # every sync of it has failed once
    assert kinds.index("CommitUncertainError") == kinds.index("done") - 1
    for what, is_there in told.values():
        assert is_there == (what.split()[0] in {"CommitUncertainError", "done"}), what
    uncertain = next(what for what, _ in told.values() if what.startswith("CommitUncertain"))
    assert uncertain.startswith("CommitUncertainError 23 5 ")
    for word in ("last sync", "Input/output error", "engram verify", "repeat"):
        assert word in uncertain


def told_by(failing: Path, path: Path, syncs: int) -> tuple[str, bool]:
    """Have a process put a value while a sync fails: what it says, and if the value is there."""
    try:
        engram.create(path, size="16MiB", durability="system").close()
    except engram.UnsupportedError as refusal:
        pytest.skip(f"it needs a disk: {refusal}")
    words = [sys.executable, "-c", WORK, str(path), str(syncs)]
    env = os.environ | {"LD_PRELOAD": str(failing)}
    done = subprocess.run(words, env=env, check=True, capture_output=True, text=True)
    engram.verify(path)
    with engram.open(path) as pool:
        is_there = "new" in pool
        pool["new"] = b"written again"
        assert bytes(pool["new"][...]) == b"written again"
    return done.stdout, is_there
