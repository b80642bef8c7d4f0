"""Locks of files: between programs, mounts and Python."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import struct
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import engram
from mounted import begin, code_of, ended, needs_fuse, place
from support import PATIENCE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = needs_fuse

EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
SHARED = fcntl.LOCK_SH | fcntl.LOCK_NB
HOLDER = """
import fcntl, os, sys
path, how = sys.argv[1:3]
fd = os.open(path, os.O_RDWR)
if how == "flock":
    fcntl.flock(fd, fcntl.LOCK_EX)
elif how == "ofd":
    import struct
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 100, 50, 0))
else:
    fcntl.lockf(fd, fcntl.LOCK_EX, 50, 100)
print("held", flush=True)
sys.stdin.readline()
if how == "close":
    os.close(os.open(path, os.O_RDONLY))  # as POSIX says, that ends this process's locks
    print("closed", flush=True)
    sys.stdin.readline()
"""
WAITER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
print("waits", flush=True)
fcntl.lockf(fd, fcntl.LOCK_EX, 10, 100)
print("has it", flush=True)
"""
COUNTER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
for _ in range(int(sys.argv[2])):
    fcntl.lockf(fd, fcntl.LOCK_EX)
    number = int(os.pread(fd, 20, 0) or 0)
    os.pwrite(fd, b"%20d" % (number + 1), 0)
    fcntl.lockf(fd, fcntl.LOCK_UN)
"""


@contextmanager
def held(path: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """Have another process hold a lock of the file."""
    holder = begin(HOLDER, path, how)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        yield holder
    finally:
        holder.kill()
        holder.communicate()


@contextmanager
def waiting(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Have another process wait for a lock that somebody has."""
    waiter = begin(WAITER, path)
    try:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == "waits\n"
        time.sleep(0.05)  # it waits in the kernel by then, most often
        yield waiter
    finally:
        waiter.kill()
        waiter.communicate()


def tell(process: subprocess.Popen[str], said: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    print(file=process.stdin, flush=True)
    assert process.stdout.readline() == said


def soon(call: object, *arguments: object) -> None:
    """Call until it succeeds: the kernel tells of a death a moment later."""
    end = time.monotonic() + PATIENCE
    while code := code_of(call, *arguments):
        assert time.monotonic() < end, code
        time.sleep(0.01)


@pytest.fixture
def two(pool: engram.Pool, point: Path) -> Iterator[tuple[Path, Path]]:
    """Give a file of a pool by the paths of two mounts."""
    pool["file"] = b"x" * 5000
    with place() as other, engram.mount(pool, point), engram.mount(pool, other, cache="none"):
        yield point / "file", other / "file"
    assert engram.verify(pool.path).problems == []


@pytest.mark.parametrize("how", ["flock", "fcntl", "ofd"])
def test_a_lock_keeps_out_other_programs_mounts_and_python(
    pool: engram.Pool, two: tuple[Path, Path], how: str
) -> None:
    with held(two[0], how) as holder:
        for path in two:
            with path.open("r+b") as file:
                assert code_of(fcntl.lockf, file, EXCLUSIVE, 1, 149) == "EAGAIN"
                assert code_of(fcntl.lockf, file, SHARED, 1, 100) == "EAGAIN"
                assert code_of(fcntl.flock, file, EXCLUSIVE) == "EAGAIN"
                if how != "flock":
                    fcntl.lockf(file, EXCLUSIVE, 100, 0)
                    fcntl.lockf(file, EXCLUSIVE, 1, 150)
        with pool.open_file("file", "rb+") as file:
            refused = pytest.raises(engram.BusyError, match="locked by somebody else")
            with refused, file.lock(timeout=0.01):
                pass
        holder.kill()
        holder.wait()
        with two[1].open("r+b") as file:
            soon(fcntl.lockf, file, EXCLUSIVE)


def test_pythons_lock_keeps_out_programs(pool: engram.Pool, two: tuple[Path, Path]) -> None:
    with pool.open_file("file", "rb+") as file, two[0].open("r+b") as seen:
        with file.lock("r"):
            fcntl.flock(seen, SHARED)
            assert code_of(fcntl.flock, seen, EXCLUSIVE) == "EAGAIN"
            fcntl.flock(seen, fcntl.LOCK_UN)
        with file.lock():
            assert code_of(fcntl.flock, seen, SHARED) == "EAGAIN"
            with pytest.raises(engram.BusyError), file.lock("r", timeout=0):
                pass
        fcntl.flock(seen, EXCLUSIVE)
        for timeout in (-1, float("nan"), "1"):
            unfit = pytest.raises(engram.ArgumentError, match="no number of seconds")
            with unfit, file.lock(timeout=timeout):  # type: ignore[arg-type]
                pass
        refused = pytest.raises(engram.ArgumentError, match="'x' is unknown")
        with refused, file.lock("x"):  # type: ignore[arg-type]
            pass


def test_a_lock_tells_what_is_in_its_way(two: tuple[Path, Path]) -> None:
    with held(two[0], "fcntl"), two[1].open("r+b") as file:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        kind, _, start, length, _ = struct.unpack(
            "hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked)
        )
        assert (kind, start, length) == (fcntl.F_WRLCK, 100, 50)
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 100, 0)
        answer = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))
        assert answer[0] == fcntl.F_UNLCK


def test_closing_any_descriptor_ends_a_process_locks(two: tuple[Path, Path]) -> None:
    with held(two[0], "close") as holder, two[1].open("r+b") as file:
        assert code_of(fcntl.lockf, file, EXCLUSIVE) == "EAGAIN"
        tell(holder, "closed\n")
        fcntl.lockf(file, EXCLUSIVE)


def test_an_own_description_is_another_taker(two: tuple[Path, Path]) -> None:
    with two[0].open("r+b") as one, two[0].open("r+b") as two_:
        fcntl.flock(one, EXCLUSIVE)
        assert code_of(fcntl.flock, two_, SHARED) == "EAGAIN"
        fcntl.flock(one, fcntl.LOCK_UN)
        fcntl.lockf(one, EXCLUSIVE)
        fcntl.lockf(two_, EXCLUSIVE)  # the same process


def test_a_lock_that_is_waited_for_comes(two: tuple[Path, Path]) -> None:
    with held(two[0], "fcntl") as holder, waiting(two[1]) as waiter:
        holder.kill()
        assert ended(waiter) == "has it\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_waiting_program_can_be_killed(two: tuple[Path, Path], number: int) -> None:
    with held(two[0], "fcntl"), waiting(two[0]) as waiter:
        waiter.send_signal(number)
        assert waiter.wait(PATIENCE) == -number


INTERRUPTED = """
import fcntl, os, signal, sys, threading, time
heard = []
signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
def wait():
    fd = os.open(sys.argv[1], os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)
failed = []
threading.excepthook = lambda error: failed.append(error.exc_value)
threads = [threading.Thread(target=wait) for _ in range(4)]
for thread in threads:
    thread.start()
time.sleep(0.2)
print("waits", flush=True)
signal.setitimer(signal.ITIMER_REAL, 0.1)
wait()
for thread in threads:
    thread.join()
print(len(heard), failed, flush=True)
"""


def test_a_signal_that_one_thread_takes_is_no_error_of_the_others(two: tuple[Path, Path]) -> None:
    with held(two[0], "flock") as holder:
        waiter = begin(INTERRUPTED, two[0])
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == "waits\n"
        time.sleep(0.5)
        holder.kill()
        assert ended(waiter) == "1 []\n"


READER = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
end, stale, last = time.monotonic() + 2, 0, 0
while time.monotonic() < end:
    fcntl.lockf(fd, fcntl.LOCK_SH)
    number, again = (int(os.pread(fd, 20, at)) for at in (0, 4096))
    fcntl.lockf(fd, fcntl.LOCK_UN)
    stale += number != again or number < last
    last = number
print(stale)
"""


def test_readers_of_one_mount_read_under_a_lock_what_another_wrote(
    pool: engram.Pool, two: tuple[Path, Path]
) -> None:
    two[0].write_bytes((b"%20d" % 0).ljust(4096) * 2)
    readers = [begin(READER, two[0]) for _ in range(3)]
    number = 0
    with pool.open_file("file", "rb+") as file:
        while any(reader.poll() is None for reader in readers):
            number += 1
            with file.lock():
                for at in (0, 4096):
                    file.seek(at)
                    file.write(b"%20d" % number)
    assert number > 1
    assert [ended(reader) for reader in readers] == ["0\n"] * 3


def test_counting_under_locks_of_two_mounts_loses_nothing(two: tuple[Path, Path]) -> None:
    two[0].write_bytes(b"%20d" % 0)
    counters = [begin(COUNTER, path, 200) for path in (*two, *two)]
    for counter in counters:
        ended(counter)
    assert int(two[1].read_bytes()) == 800


def test_locks_leave_nothing_behind(pool: engram.Pool, two: tuple[Path, Path]) -> None:
    stand_ins = Path(pool.path) / "ns/default/shared/file-locks"
    with two[0].open("r+b") as file:
        fcntl.flock(file, EXCLUSIVE)
        assert len(list(stand_ins.iterdir())) == 1
    end = time.monotonic() + PATIENCE
    while list(stand_ins.iterdir()):  # the kernel tells of the last close a moment later
        assert time.monotonic() < end
        time.sleep(0.01)


def test_two_mounts_share_a_database(two: tuple[Path, Path]) -> None:
    paths = [path.with_name("data.sqlite") for path in two]
    with closing(sqlite3.connect(paths[0])) as made:
        made.execute("create table t (n integer)")
    writer = """
import sqlite3, sys
for n in range(50):
    base = sqlite3.connect(sys.argv[1], timeout=60)
    with base:
        base.execute("insert into t values (?)", (n,))
    base.close()
"""
    for process in [begin(writer, path) for path in paths]:
        ended(process)
    with closing(sqlite3.connect(paths[1])) as base:
        assert base.execute("pragma integrity_check").fetchone() == ("ok",)
        assert base.execute("select count(*), sum(n) from t").fetchone() == (100, 2 * 1225)


def test_a_mount_for_reading_shares_locks(pool: engram.Pool, point: Path) -> None:
    pool["file"] = b"x" * 200
    reading = engram.mount(pool, point, read_only=True)
    with place() as other, reading, engram.mount(pool, other), held(other / "file", "flock"):
        file = os.open(point / "file", os.O_RDONLY)
        assert code_of(fcntl.flock, file, SHARED) == "EAGAIN"
        os.close(file)


def test_what_is_published_is_locked_within_a_mount(pool: engram.Pool, point: Path) -> None:
    pool["file"] = b"x"
    pool.publish("file", closed=True)
    with engram.mount(pool, point), (point / "file").open("rb") as file:
        fcntl.flock(file, SHARED)
        with (point / "file").open("rb") as other:
            assert code_of(fcntl.flock, other, EXCLUSIVE) == "EAGAIN"


def test_a_job_mount_locks_by_the_kernel(pool: engram.Pool, point: Path) -> None:
    pool["file"] = b"x" * 200
    with engram.mount(pool, point, cache="job"):
        with held(point / "file", "fcntl"), (point / "file").open("r+b") as file:
            fcntl.flock(file, EXCLUSIVE)  # the two kinds do not meet
            assert code_of(fcntl.lockf, file, EXCLUSIVE) == "EAGAIN"
        assert not (Path(pool.path) / "ns/default/shared/file-locks").exists()


def test_a_range_is_copied_from_file_to_file(pool: engram.Pool, seen: Path) -> None:
    data = os.urandom(3_000_000)
    (seen / "from").write_bytes(data)
    with (seen / "from").open("r+b") as source, (seen / "to").open("w+b") as target:
        copied = 0
        while count := os.copy_file_range(
            source.fileno(), target.fileno(), len(data), copied + 5, copied
        ):
            copied += count
        assert copied == len(data) - 5
        assert os.pread(target.fileno(), len(data), 0) == data[5:]
        code = code_of(os.copy_file_range, source.fileno(), source.fileno(), 100, 0, 50)
        assert code == "EINVAL"
        assert os.copy_file_range(source.fileno(), source.fileno(), 100, 0, 200) == 100
    assert bytes(pool["from"]) == data[:200] + data[:100] + data[300:]
