"""Traces of mounts: known operations, and what the trace says of them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from engram.cli.trace.lines import Line, Trace
from mounted import EXCHANGE, allocate, begin, ended, names, needs_fuse, rename
from shell import piped
from support import BIG

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = needs_fuse

QUIET = {"stat", "getxattr", "listxattr"}
"""What the kernel asks for as it sees fit."""


def done(file: Path, *, since: int = 0) -> list[Line]:
    """Give the lines of a trace but those that the kernel decides upon."""
    return [each for each in Trace(file).lines() if each.operation not in QUIET][since:]


def words(lines: list[Line]) -> list[str]:
    """Give the operations and paths."""
    return [f"{each.operation} {each.place}" for each in lines if not each.is_low_level]


def by_calls(top: Path) -> list[tuple[Callable[[], object], list[str]]]:
    """Give calls, each with what it is to leave in a trace."""
    file, other = top / "d/file", top / "d/other"
    return [
        ((top / "d").mkdir, ["create /d/"]),
        (lambda: os.close(os.open(file, os.O_CREAT | os.O_WRONLY)), ["create /d/file"]),
        (lambda: os.truncate(file, 9), ["truncate /d/file"]),
        (lambda: file.chmod(0o600), ["setattr /d/file"]),
        (lambda: os.utime(file, (1, 2)), ["setattr /d/file"]),
        (lambda: os.link(file, other), ["link /d/file"]),
        (other.unlink, ["unlink /d/other"]),
        (lambda: file.rename(other), ["rename /d/file"]),
        (lambda: (top / "link").symlink_to("d/other"), ["create /link"]),
        ((top / "link").readlink, ["readlink /link"]),
        (lambda: rename(other, top / "link", EXCHANGE), ["exchange /d/other"]),
        (lambda: rename(other, top / "link", EXCHANGE), ["exchange /d/other"]),
        (lambda: os.mkfifo(top / "pipe"), ["create /pipe"]),
        (lambda: os.setxattr(other, "user.k", b"v"), ["setxattr /d/other"]),
        (lambda: os.removexattr(other, "user.k"), ["removexattr /d/other"]),
        (lambda: os.statvfs(other), ["statfs /d/other"]),
        (other.unlink, ["unlink /d/other"]),
        ((top / "d").rmdir, ["unlink /d/"]),
    ]


def test_each_call_leaves_its_line(pool: engram.Pool, point: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    with engram.mount(pool, point, cache="none", trace=file):
        for call, expected in by_calls(point):
            before = len(done(file))
            call()
            # A file that is closed is told of when the kernel comes to it.
            found = [each for each in words(done(file, since=before)) if "close" not in each]
            found = [each for each in found if each.split()[0] != "open" or "open" in expected]
            assert found == expected, expected
    lines = done(file)
    assert {each.pid for each in lines} == {os.getpid()}
    assert all(each.tid not in {0, os.getpid()} for each in lines)
    renamed = next(each for each in lines if each.operation == "rename")
    assert renamed.arguments == ("/d/other",)
    assert sum(each.operation == "close" for each in lines) == 1


def test_bytes_are_told_with_their_pieces_and_holes(
    pool: engram.Pool, point: Path, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    with engram.mount(pool, point, cache="none", trace=file):
        fd = os.open(point / "file", os.O_CREAT | os.O_RDWR)
        os.pwrite(fd, b"a" * 8192, 0)
        os.pwrite(fd, b"b" * 4096, 1 << 16)
        before = len(done(file))
        assert len(os.pread(fd, 1 << 17, 4096)) == (1 << 16)
        os.fsync(fd)
        allocate(fd, 0, 0, 100)
        os.lseek(fd, 0, os.SEEK_HOLE)
        os.close(fd)
    first, second, *_ = [each for each in done(file) if each.operation == "write"]
    assert [first.arguments, second.arguments] == [(0, 8192), (1 << 16, 4096)]
    read, *pieces = [each for each in done(file, since=before) if "read" in each.operation][:4]
    assert (read.operation, read.place, read.arguments) == ("read", "/file", (4096, 1 << 16))
    assert {each.place for each in pieces} == {str(pool.path)}
    assert {each.operation for each in pieces} == {"nvml_read"}
    assert sum(each.nbytes for each in pieces) == 1 << 16
    (hole,) = [each for each in pieces if each.arguments[0] == 0]
    assert hole.nbytes <= (1 << 16) - 8192
    rest = words(done(file, since=before))
    assert [each.split()[0] for each in rest if "read" not in each] == [
        *("fsync", "fallocate", "seek", "close"),
    ]


def test_folders_and_copies_and_what_is_shown(
    pool: engram.Pool, point: Path, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    pool["g/T"] = np.arange(1000.0)
    pool["g/from"] = BIG
    with engram.mount(pool, point, cache="none", trace=file):
        assert names(point / "g") == ["T", "from"]
        listed = [each.split()[0] for each in words(done(file)) if each.endswith(" /g")]
        assert listed[:2] == ["opendir", "readdir"]
        assert np.load(point / "g/T.npy").sum() == np.arange(1000.0).sum()
        with (point / "g/from").open("rb") as source, (point / "to").open("wb") as target:
            size = os.copy_file_range(source.fileno(), target.fileno(), len(BIG))
    lines = done(file)
    shown = [each for each in lines if each.place == "/g/T.npy" and each.operation == "read"]
    ends = (int(each.arguments[0]) + each.nbytes for each in shown)
    assert max(ends) == 8128, "numpy's header, and the array"
    moved = {
        (each.operation, each.place): each.nbytes
        for each in lines
        if each.place in {"/g/from", "/to"} and each.nbytes
    }
    assert moved == {("read", "/g/from"): size, ("write", "/to"): size}


def test_a_path_is_the_one_by_which_a_file_was_opened(
    pool: engram.Pool, point: Path, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    with (
        engram.mount(pool, point, cache="none", trace=file),
        (point / "a:b").open("wb", buffering=0) as opened,
    ):
        (point / "a:b").rename(point / "c")
        opened.write(b"x")
        (point / "c").unlink()
        opened.write(b"y")
        os.fstat(opened.fileno())
    lines = [each for each in done(file) if each.operation in {"write", "close"}]
    assert [each.place for each in lines] == ["/a:b"] * 3
    assert "/a%3Ab" in file.read_text(encoding="utf-8")


def test_a_process_is_told_by_its_own_number_and_not_its_threads(
    pool: engram.Pool, point: Path, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    script = """
import os, sys, threading
def read():
    with open(sys.argv[1], "rb") as file:
        file.read()
thread = threading.Thread(target=read)
thread.start()
thread.join()
print(os.getpid())
"""
    pool["file"] = BIG
    with engram.mount(pool, point, cache="none", trace=file):
        pid = int(ended(begin(script, point / "file")))
    used = {each.pid for each in done(file) if each.operation in {"open", "read", "close"}}
    assert used == {pid}


def test_a_ring_has_the_newest_lines(pool: engram.Pool, point: Path, tmp_path: Path) -> None:
    file = tmp_path / "ring"
    with engram.mount(pool, point, cache="none", trace_ring=f"{file}:1MiB"):
        with (point / "file").open("wb", buffering=0) as opened:
            for _ in range(9000):
                opened.write(b"0123456789")
        lines = done(file)
        assert file.stat().st_size <= 1 << 20
        writes = [each for each in lines if each.operation == "write"]
        assert 1000 < len(writes) < 9000
        assert writes[-1].arguments == (89_990, 10)
        offsets = [each.arguments[0] for each in writes]
        assert offsets == sorted(offsets)
    shown = piped("trace", file, "--sum")
    assert shown.returncode == 0
    # It goes on in the same ring, whose size need not be said.
    with engram.mount(pool, point, cache="none", trace_ring=file):
        (point / "file").read_bytes()
    assert done(file)[-1].operation in {"close", "read"}


def test_two_mounts_write_one_trace_and_one_is_killed(
    pool: engram.Pool, point: Path, tmp_path: Path
) -> None:
    file, other = tmp_path / "trace", point.parent / "other"
    other.mkdir()
    with engram.mount(pool, point, cache="none", trace=file):
        killed = engram.mount(pool, other, cache="none", trace=file)
        (other / "b").write_bytes(BIG)
        subprocess.run(["kill", "-9", str(killed.pid)], check=True)
        engram.unmount(other)
        (point / "a").write_bytes(BIG)
    written = {each.place: each.arguments for each in done(file) if each.operation == "write"}
    assert set(written) == {"/a", "/b"}, "what was answered is there"


def test_a_trace_that_cannot_be_is_refused_before_anything_is_mounted(
    pool: engram.Pool, point: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"not a trace\n")
    for options, what in [
        ({"trace": data}, "is no trace"),
        ({"trace_ring": data}, "is no ring"),
        ({"trace": tmp_path / "no/such/folder"}, "No such file"),
        ({"trace": point / "trace"}, "would lie below"),
        ({"trace_ring": f"{tmp_path / 'r'}:4096"}, "a ring has 1048576 to"),
        ({"trace": tmp_path / "t", "trace_ring": tmp_path / "r"}, "give trace or trace_ring"),
    ]:
        with pytest.raises(engram.EngramError, match=what):
            engram.mount(pool, point, **options)  # type: ignore[arg-type]
    assert data.read_bytes() == b"not a trace\n"
    assert not os.path.ismount(point)


def test_the_command_line_traces_and_shows_it(
    pool: engram.Pool, point: Path, tmp_path: Path
) -> None:
    pool["in/a"] = BIG
    made = piped("mount", pool.path, point, "--trace", tmp_path / "t")
    assert made.returncode == 0, made.stderr
    try:
        ended(begin("import sys; open(sys.argv[1]).close()", point / "in/a"))
        subprocess.run(["cp", point / "in/a", point / "b"], check=True)
    finally:
        assert piped("unmount", point).returncode == 0
    order = piped("trace", tmp_path / "t", "--order")
    assert order.stdout.decode().splitlines() == ["/in/a"]
    unread = piped("trace", tmp_path / "t", "--unread")
    assert unread.stdout.decode().split()[-1] == "/b"
