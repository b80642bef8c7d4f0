"""The process that serves a mount is killed in the middle of each kind of change.

Whoever changes something says so once the change has returned. What was said is there when the pool
is mounted again, and beside it at most the one change that was going on.
"""

from __future__ import annotations

import os
import signal
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import engram
from mounted import begin, needs_fuse
from support import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = needs_fuse

KIB = 1 << 10
SLOTS, SLOT = 32, 8000

CHANGER = """
import ctypes, mmap, os, sys
top, n = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
path = f"{top}/file"
fd = os.open(path, os.O_RDWR)
def exchange(one, other):
    names = [os.fsencode(f"{top}/{name}") for name in (one, other)]
    if libc.renameat2(-100, names[0], -100, names[1], 2):
        raise OSError(ctypes.get_errno(), "renameat2")
def fallocate(mode, at, count):
    if libc.fallocate64(fd, mode, ctypes.c_int64(at), ctypes.c_int64(count)):
        raise OSError(ctypes.get_errno(), "fallocate")
def write(data, at):
    if os.pwrite(fd, data, at) != len(data):
        raise OSError("a part alone was taken")
def done():
    global n
    print(n, flush=True)
    n += 1
try:
    while True:
        CHANGE
        done()
except OSError:
    pass
"""


class Kind(NamedTuple):
    """A kind of change."""

    content: bytes
    """Of the file that is changed."""
    change: str
    """Change number n, as the program does it that makes such changes."""
    check: Callable[[Path, int], bool]
    """Whether the mount shows what it does after change n."""


def slots(path: Path) -> list[set[int]]:
    data = path.read_bytes()
    return [set(data[at : at + SLOT]) for at in range(0, SLOTS * SLOT, SLOT)]


def overwritten(top: Path, n: int) -> bool:
    """Say whether each slot has the number of who wrote it last; one may be half written."""
    for slot, found in enumerate(slots(top / "file")):
        last = n - (n - slot) % SLOTS
        expected = {last % 251 if last >= 0 else 0}
        if slot == (n + 1) % SLOTS:
            expected |= {(n + 1) % 251}
        if not found <= expected:
            print(f"slot {slot} has {found}, not {expected}, after {n}")  # noqa: T201 - if it fails
            return False
    return True


def extended(top: Path, n: int) -> bool:
    """Say whether the records are there that were written; of the next the kernel may send a part.

    It cuts what it sends where a page ends.
    """
    data = (top / "file").read_bytes()
    written = b"".join(b"%09d\n" % k * 300 for k in range(n + 1))
    return data.startswith(written) and (written + b"%09d\n" % (n + 1) * 300).startswith(data)


def in_hole(top: Path, n: int) -> bool:
    """Say whether what was written lies between zeros, as far as it was."""
    with (top / "file").open("rb") as file:
        for k in range(n + 3):
            file.seek(k * 64 * KIB)
            data = file.read(64 * KIB).ljust(64 * KIB, b"\0")
            whole = (b"%09d\n" % k * 500).ljust(64 * KIB, b"\0")
            if data != whole and not (k > n and data in {bytes(64 * KIB), whole}):
                return False
    return True


def punched(top: Path, n: int) -> bool:
    """Say whether pages are holes, as far as they were made so, and others are not."""
    data = (top / "file").read_bytes()
    holes = [not data[at : at + 4096].strip(b"\0") for at in range(0, len(data), 4096)]
    return all(holes[: n + 1]) and not any(holes[n + 1 :]) and len(data) == 4096 * 4096


def numbers(top: Path, kind: Callable[[int], bool]) -> set[int]:
    """Give the numbers of all names but the file's; each is of this kind."""
    found = [path for path in top.iterdir() if path.name != "file"]
    assert all(kind(path.lstat().st_mode) for path in found)
    return {int(path.name) for path in found}


def exchanged(top: Path, n: int) -> bool:
    """Say whether two of three names have been exchanged so many times, by turns."""
    names = ["0", "1", "2"]
    for k in range(n + 1):
        first = k % 2
        names[first], names[first + 1] = names[first + 1], names[first]
    return [(top / str(k)).read_text() for k in range(3)] == names


KINDS = {
    "overwrite": Kind(
        bytes(SLOTS * SLOT),
        f"write(bytes([n % 251]) * {SLOT}, n % {SLOTS} * {SLOT})",
        overwritten,
    ),
    "map": Kind(
        bytes(SLOTS * SLOT),
        f"""at = n % {SLOTS} * {SLOT}
        if n == first: mapped = mmap.mmap(fd, {SLOTS * SLOT})
        mapped[at : at + {SLOT}] = bytes([n % 251]) * {SLOT}
        mapped.flush()""",
        overwritten,
    ),
    "small": Kind(
        b"",
        'write(b"%09d\\n" % n * 90, 0)',
        lambda top, n: (top / "file").read_bytes() == b"%09d\n" % n * 90,
    ),
    "extend": Kind(b"", 'write(b"%09d\\n" % n * 300, n * 3000)', extended),
    "hole": Kind(bytes(5000), 'write(b"%09d\\n" % n * 500, n * 65536)', in_hole),
    "resize": Kind(
        bytes(5000),
        "os.ftruncate(fd, 5000 + n * 7919 % 300000)",
        lambda top, n: (top / "file").stat().st_size == 5000 + n * 7919 % 300_000,
    ),
    "allocate": Kind(
        bytes(5000),
        "os.posix_fallocate(fd, n * 8192, 8192)",
        lambda top, n: (top / "file").stat().st_size == (n + 1) * 8192,
    ),
    "punch": Kind(b"x" * (4096 * 4096), "fallocate(3, n * 4096, 4096)", punched),
    "mkdir": Kind(
        b"",
        'os.mkdir(f"{top}/{n}")',
        lambda top, n: numbers(top, stat.S_ISDIR) == set(range(n + 1)),
    ),
    "mkfifo": Kind(
        b"",
        'os.mkfifo(f"{top}/{n}")',
        lambda top, n: numbers(top, stat.S_ISFIFO) == set(range(n + 1)),
    ),
    "symlink": Kind(
        b"",
        'os.symlink(str(n) * 100, f"{top}/{n}")',
        lambda top, n: (
            numbers(top, stat.S_ISLNK) == set(range(n + 1))
            and all((top / str(k)).readlink().name == str(k) * 100 for k in (0, n))
        ),
    ),
    "link": Kind(
        b"",
        'os.link(path, f"{top}/{n}")',
        lambda top, n: (
            numbers(top, stat.S_ISREG) == set(range(n + 1))
            and (top / "file").stat().st_nlink == n + 2
        ),
    ),
    "rmdir": Kind(
        b"",
        """for k in range(n, n + 4000) if n == first else ():
            os.makedirs(f"{top}/{k}", exist_ok=True)
        os.rmdir(f"{top}/{n}")""",
        lambda top, n: min(numbers(top, stat.S_ISDIR)) == n + 1,
    ),
    "exchange": Kind(
        b"",
        """for k in range(3) if n == 0 else ():
            with open(f"{top}/{k}", "w") as file: file.write(str(k))
        exchange(str(n % 2), str(n % 2 + 1))""",
        exchanged,
    ),
    "attribute": Kind(
        b"",
        'os.setxattr(fd, "user.n:i8", str(n).encode())',
        lambda top, n: int(os.getxattr(top / "file", "user.n")) == n,
    ),
    "mode": Kind(
        b"",
        "os.fchmod(fd, n % 0o1000)",
        lambda top, n: stat.S_IMODE((top / "file").stat().st_mode) == n % 0o1000,
    ),
    "times": Kind(
        b"x" * 5000,
        "os.utime(fd, ns=(n, 2 * n))",
        lambda top, n: (top / "file").stat().st_mtime_ns == 2 * n,
    ),
}


def killed(mount: engram.Mount, changer: Any, enough: int) -> int:
    """Kill the mount once so many changes were said; give the last one that was."""
    assert changer.stdout is not None
    while int(last := changer.stdout.readline()) < enough:
        pass
    os.kill(mount.pid, signal.SIGKILL)
    said = changer.stdout.read()
    changer.communicate(timeout=PATIENCE)
    assert changer.returncode == 0, said
    return int((said.split() or [last])[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_said_to_be_done_is_there_after_a_kill(
    pool: engram.Pool, point: Path, kind: str
) -> None:
    content, change, check = KINDS[kind]
    script = CHANGER.replace("CHANGE", change).replace("def done", "first = n\ndef done", 1)
    following = 0
    for nth in range(3):
        mount = engram.mount(pool, point)
        if nth == 0:
            (point / "file").write_bytes(content)
        last = killed(mount, begin(script, point, following), following + 15 + 6 * nth)
        mount.unmount()
        with engram.mount(pool, point):
            assert check(point, last) or check(point, last + 1), last
            following = last + 1 if check(point, last) else last + 2
        assert engram.verify(pool.path).problems == []
