"""Locks of files below a prefix: of descriptions that processes share, and over `exec`."""

from __future__ import annotations

import fcntl
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import engram
import mounted
import native
import preloaded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = preloaded.needs_library

SHELLS, ROUNDS = 3, 200
COUNTING = """
for round in $(seq "$2"); do
    exec 9> "$1/lock"; flock 9
    read -r count < "$1/count"; echo $((count + 1)) > "$1/count"
    exec 9>&-
done
"""
HOLDER = 'exec 9>"$0"; flock 9; echo held; read -r'
"""A shell that holds a lock until a line comes."""
SHELL = r"""
lock=$1/lock
other() { flock -n "$lock" true; echo "$1: $?"; }
exec 9> "$lock"; flock 9; other "a shell has it"
bash -c 'exec 9> "$0"; flock -n 9; echo "another: $?"' "$lock"
flock -n 9; other "taken once more: $?"
exec 9>&-; other "closed"
(flock -n 9; other "a subshell has it") 9> "$lock"; other "it has ended"
{ flock -n 9; other "a group has it"; } 9> "$lock"; other "at its end"
exec 9> "$lock"; flock 9; flock -u 9; other "let go of by a child"
flock 9; (flock -u 9); other "let go of by a subshell"
flock 9; sleep 1000 & exec 9>&-; other "a child lives on"
kill $!; wait $! 2> /dev/null; other "killed"
exec 9> "$lock"; flock 9; sleep 1000 9>&- &
until read -r name < /proc/$!/comm && [ "$name" = sleep ]; do :; done
exec 9>&-; other "a child without it lives on"
kill $!; wait $! 2> /dev/null
exec 9> "$lock"; flock -s 9; flock -ns "$lock" true; echo "shared: $?"; other "shared"
exec 8>&9 9>&-; other "by another number"
exec 8>&-; other "closed"
coproc exec bash -c 'exec 9> "$0"; flock 9; echo held; read -r' "$lock"
read -r said <&"${COPROC[0]}"; other "$said by a shell"
kill -9 $COPROC_PID; wait $COPROC_PID 2> /dev/null; other "that was killed"
"""


@pytest.fixture
def prefix(pool: engram.Pool, home: Path) -> preloaded.Prefix:
    return preloaded.of(pool, home)


@contextmanager
def held(prefix: preloaded.Prefix, lock: Path) -> Iterator[None]:
    """Have a shell hold a lock that a child has taken for it."""
    shell = subprocess.Popen(
        ["bash", "-c", HOLDER, lock],
        env={**os.environ, **prefix.settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert shell.stdout is not None
    assert shell.stdout.readline() == "held\n"
    yield
    shell.communicate("\n")


def test_a_description_that_is_shared_has_one_lock(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "locks_shared")


def test_a_shell_locks_as_below_no_prefix(prefix: preloaded.Prefix, home: Path) -> None:
    native.need("flock")
    plain = home / "plain"
    plain.mkdir()
    expected = native.run("bash", "-c", SHELL, "bash", plain)
    assert expected.count(": 1\n") > 8
    assert prefix.run("bash", "-c", SHELL, "bash", prefix.path) == expected


def test_shells_count_under_a_lock(prefix: preloaded.Prefix, pool: engram.Pool) -> None:
    native.need("flock")
    pool.create_file("count")
    with pool.open_file("count", "rb+") as file:
        file.write(b"0\n")
    each = f"bash -c '{COUNTING}' bash \"$0\" {ROUNDS} &"
    prefix.run("bash", "-c", f"for shell in $(seq {SHELLS}); do {each} done; wait", prefix.path)
    assert bytes(pool["count"]) == f"{SHELLS * ROUNDS}\n".encode()


def test_a_shells_lock_and_pythons_exclude_each_other(
    prefix: preloaded.Prefix, pool: engram.Pool
) -> None:
    native.need("flock")
    pool.create_file("lock")
    lock, tried = prefix.path / "lock", 'exec 9> "$0"; flock -n 9'
    with pool.open_file("lock", "rb+") as file:
        with file.lock():
            prefix.run("bash", "-c", tried, lock, code=1)
        with held(prefix, lock), pytest.raises(engram.BusyError), file.lock(timeout=0.01):
            pass
        with file.lock(timeout=0):
            pass
    prefix.run("bash", "-c", tried, lock)


@mounted.needs_fuse
def test_a_shells_lock_keeps_out_programs_of_a_mount(
    prefix: preloaded.Prefix, pool: engram.Pool
) -> None:
    native.need("flock")
    pool.create_file("lock")
    lock, tried = prefix.path / "lock", 'exec 9> "$0"; flock -n 9'
    exclusive = fcntl.LOCK_EX | fcntl.LOCK_NB
    with mounted.place() as point, engram.mount(pool, point):
        with held(prefix, lock), (point / "lock").open("r+b") as file:
            assert mounted.code_of(fcntl.flock, file, exclusive) == "EAGAIN"
        with (point / "lock").open("r+b") as file:
            fcntl.flock(file, exclusive)
            prefix.run("bash", "-c", tried, lock, code=1)
            # The kernel tells a mount of the last close only after `close` has returned.
            fcntl.flock(file, fcntl.LOCK_UN)
        prefix.run("bash", "-c", tried, lock)
