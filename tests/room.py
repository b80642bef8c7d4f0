"""What takes room, and what gives it back: what programs do to files by calls of the C library.

Run as a program, below a prefix, it does what it is asked to.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mounted import EXCHANGE, allocate, code_of, rename
from support import BIG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Act = Callable[[int], object]

MIB = 1 << 20
MUCH = 40 * MIB
"""More than there is room for, wherever there is none."""
KEPT = {
    "data": BIG,
    "small": b"s" * 1000,
    "sparse": b"x" * 4096 + bytes(4 * MIB - 4096),
    "old": b"old" * 1000,
    "new": b"new" * 1000,
    "cut": b"cut" * 1000,
    "grown": b"grown" * 1000,
    "pierced": b"p" * 65536,
}
"""Files that are there before there is no room any more, and their bytes."""
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
"""Flags of `fallocate`."""
UNBUFFERED = 2
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fopen.restype = ctypes.c_void_p


def _failed() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


@contextmanager
def stream(path: Path, mode: bytes) -> Iterator[ctypes.c_void_p]:
    """Open a stream of the C library's, and close it; what closing says is no matter here."""
    if (made := _libc.fopen(os.fsencode(path), mode)) is None:
        raise _failed()
    try:
        yield ctypes.c_void_p(made)
    finally:
        _libc.fclose(ctypes.c_void_p(made))


def printed(path: Path) -> None:
    """Print to a stream that keeps nothing back."""
    with stream(path, b"a") as file:
        _libc.setvbuf(file, None, UNBUFFERED, 0)
        if _libc.fprintf(file, b"%s", b"y" * 100) != 100:
            raise _failed()


def put_whole(path: Path) -> None:
    """Put more into a stream than it keeps back."""
    with stream(path, b"r+") as file:
        _libc.fseek(file, ctypes.c_long(0), os.SEEK_END)
        if _libc.fwrite(bytes(MUCH), 1, MUCH, file) != MUCH:
            raise _failed()


def flushed(path: Path) -> None:
    """Put into a stream what it keeps back; to flush it says what has become of it."""
    with stream(path, b"a") as file:
        assert _libc.fputs(b"y" * 100, file) >= 0
        if _libc.fflush(file) != 0:
            raise _failed()


def closed(path: Path) -> None:
    """Put into a stream what it keeps back; to close it says what has become of it."""
    file = ctypes.c_void_p(_libc.fopen(os.fsencode(path), b"a"))
    assert _libc.fputs(b"y" * 100, file) >= 0
    if _libc.fclose(file) != 0:
        raise _failed()


def repeated(move: Callable[[int], int], nbytes: int) -> None:
    """Move bytes until there are so many; `move` is told how many are missing."""
    while nbytes > 0:
        moved = move(nbytes)
        assert moved > 0
        nbytes -= moved


def copied(top: Path) -> None:
    """Copy within the file system, to the end of a file."""
    with (top / "filler").open("rb") as source, (top / "data").open("r+b") as target:
        to, at = target.fileno(), len(BIG)

        def move(missing: int) -> int:
            return os.copy_file_range(
                source.fileno(), to, min(missing, MIB), 0, at + MUCH - missing
            )

        repeated(move, MUCH)


def sent(top: Path) -> None:
    """Send a file of the kernel's to the end of a file."""
    with (top / "data").open("r+b") as target, tempfile.TemporaryFile() as source:
        target.seek(0, os.SEEK_END)
        source.truncate(MUCH)
        to, out = target.fileno(), source.fileno()
        repeated(lambda missing: os.sendfile(to, out, MUCH - missing, min(missing, MIB)), MUCH)


def spliced(top: Path) -> None:
    """Have the kernel move a pipe's bytes to a file."""
    out, into = os.pipe()
    fd = os.open(top / "data", os.O_WRONLY)
    try:
        place = len(BIG)
        while place < MUCH:
            missing = os.write(into, bytes(65536))
            while missing > 0:
                moved = os.splice(out, fd, missing, offset_dst=place)
                assert moved > 0
                place += moved
                missing -= moved
    finally:
        for each in (out, into, fd):
            os.close(each)


def temporary(top: Path) -> None:
    """Make a file whose name the C library chooses."""
    name = ctypes.create_string_buffer(os.fsencode(top / "created XXXXXX"))
    if (fd := _libc.mkstemp(name)) < 0:
        raise _failed()
    os.close(fd)


def cleared(top: Path) -> None:
    """Delete everything."""
    for path in list(top.iterdir()):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            continue
        for below in list(path.iterdir()):
            below.rmdir() if below.is_dir() else below.unlink()
        path.rmdir()
    assert list(top.iterdir()) == []


@dataclass(frozen=True)
class Files:
    """Files below a folder."""

    top: Path

    def to(self, path: str, flags: int, act: Callable[[int], object]) -> None:
        """Do something with an open file."""
        fd = os.open(self.top / path, flags, 0o644)
        try:
            act(fd)
        finally:
            os.close(fd)

    def write(self, path: str, flags: int, at: int, data: bytes) -> None:
        """Write all of some bytes."""

        def all_of(fd: int) -> None:
            os.lseek(fd, at, os.SEEK_SET)
            repeated(lambda missing: os.write(fd, data[len(data) - missing :]), len(data))

        self.to(path, os.O_WRONLY | flags, all_of)

    def overwrite(self) -> None:
        """Write where there are bytes, and what was there again."""
        self.write("data", 0, 100, b"Z" * 9000)
        assert (self.top / "data").read_bytes()[100:9100] == b"Z" * 9000
        self.write("data", 0, 100, BIG[100:9100])

    def at_end(self, put: Callable[[int, int, bytes], int]) -> None:
        """Write behind a file's end, by a call that is told where."""
        end, piece = len(BIG), bytes(MIB)

        def all_of(fd: int) -> None:
            repeated(lambda missing: put(fd, end + MUCH - missing, piece), MUCH)

        self.to("data", os.O_WRONLY, all_of)

    def space(self, path: str, mode: int, nbytes: int) -> None:
        """See to space, or free it, from a file's beginning on."""
        self.to(path, os.O_RDWR, lambda fd: allocate(fd, mode, 0, nbytes))

    def create(self, name: str) -> None:
        """Make a file."""
        self.to(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, lambda _: None)

    def create_stream(self, name: str) -> None:
        """Make a file by a stream."""
        with stream(self.top / name, b"w"):
            pass

    def write_anew(self, nbytes: int) -> None:
        """Write a file of this size, and delete it."""
        self.write("again", os.O_CREAT | os.O_TRUNC, 0, bytes(nbytes))
        (self.top / "again").unlink()


def parts(fd: int, at: int, piece: bytes) -> int:
    """Write a piece twice, at a place."""
    os.lseek(fd, at, os.SEEK_SET)
    return os.writev(fd, [piece, piece])


def by_calls(top: Path) -> dict[str, Act]:
    """Give everything that takes or frees room, done below a folder.

    Each is told which time it is.
    """
    files = Files(top)
    return {
        "overwrite": lambda _: files.overwrite(),
        "extend": lambda _: files.write("data", 0, len(BIG), bytes(MUCH)),
        "append": lambda _: files.write("data", os.O_APPEND, 0, bytes(MUCH)),
        "pwrite": lambda _: files.at_end(lambda fd, at, piece: os.pwrite(fd, piece, at)),
        "writev": lambda _: files.at_end(parts),
        "pwritev": lambda _: files.at_end(lambda fd, at, piece: os.pwritev(fd, [piece] * 2, at)),
        "sendfile": lambda _: sent(top),
        "copy_file_range": lambda _: copied(top),
        "splice": lambda _: spliced(top),
        "fill a hole": lambda _: files.write("sparse", 0, 2 * MIB, b"y" * MIB),
        "outgrow the record": lambda _: files.write("small", 0, 1000, b"y" * 100_000),
        "allocate": lambda _: files.space("data", 0, MUCH),
        "allocate behind the end": lambda _: files.space("data", KEEP_SIZE, MUCH),
        "allocate and clear": lambda _: files.space("sparse", ZERO_RANGE, MUCH),
        "posix_fallocate": lambda _: files.to(
            "data", os.O_WRONLY, lambda fd: os.posix_fallocate(fd, 0, MUCH)
        ),
        "fwrite": lambda _: put_whole(top / "data"),
        "fprintf": lambda _: printed(top / "small"),
        "fflush": lambda _: flushed(top / "small"),
        "fclose": lambda _: closed(top / "small"),
        "create": lambda n: files.create(f"created {n}"),
        "fopen": lambda n: files.create_stream(f"created as a stream {n}"),
        "mkstemp": lambda _: temporary(top),
        "mkdir": lambda n: (top / f"made {n}").mkdir(),
        "link": lambda n: os.link(top / "data", top / f"link {n}"),
        "symlink": lambda n: (top / f"symbolic {n}").symlink_to("x" * 900),
        "mkfifo": lambda n: os.mkfifo(top / f"fifo {n}"),
        "mknod": lambda n: os.mknod(top / f"created as a node {n}"),
        "setxattr": lambda n: os.setxattr(top / "data", f"user.key {n}", b"v" * 20_000),
        "rename": lambda _: (top / "folder").rename(top / "moved"),
        "exchange": lambda _: rename(top / "old", top / "new", EXCHANGE),
        "replace": lambda _: (top / "old").rename(top / "new"),
        "chmod": lambda _: (top / "data").chmod(0o600),
        "chown": lambda _: os.chown(top / "data", os.getuid(), os.getgid()),
        "utimens": lambda _: os.utime(top / "data", ns=(10**18, 10**18)),
        "grow": lambda _: os.truncate(top / "grown", MUCH),
        "pierce": lambda _: files.space("pierced", PUNCH_HOLE | KEEP_SIZE, 32768),
        "cut by opening": lambda _: files.to("cut", os.O_WRONLY | os.O_TRUNC, lambda _: None),
        "cut": lambda _: os.truncate(top / "data", 5000),
        "clear": lambda _: cleared(top),
        "write anew": files.write_anew,
    }


def serve(top: Path) -> None:
    """Do what the standard input asks for, a line each; say what errno it fails with."""
    acts: dict[str, Any] = by_calls(top)
    for line in sys.stdin:
        what, _, n = line.rstrip("\n").rpartition(" ")
        sys.stdout.write(code_of(partial(acts[what], int(n))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
