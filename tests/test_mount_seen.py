"""What a mount shows of what others do, and they of what it does."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from mounted import append, check_appended, needs_fuse
from support import BIG

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_fuse


def test_times_of_a_file_that_nobody_has_open_are_set(pool: engram.Pool, seen: Path) -> None:
    path = seen / "file"
    path.write_bytes(BIG)  # more than is inline: it has a head
    pool.stats()
    os.utime(path, ns=(10**18 + 1, 2 * 10**18 + 3))
    assert (path.stat().st_atime_ns, path.stat().st_mtime_ns) == (10**18 + 1, 2 * 10**18 + 3)


def test_a_hole_is_found_by_who_only_reads(seen: Path) -> None:
    path = seen / "sparse"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"x" * 100_000, 0)
    os.pwrite(fd, b"x" * 100_000, 1 << 21)
    os.close(fd)
    fd = os.open(path, os.O_RDONLY)
    assert os.lseek(fd, 0, os.SEEK_HOLE) < 1 << 20
    os.close(fd)


def test_a_blob_tells_its_segments_without_being_read(pool: engram.Pool) -> None:
    with pool.open_file("file", "w+") as file:
        for _ in range(8):
            file.write(bytes(1 << 20))
    assert sum(count for _, count in pool["file"].segments) >= 8 << 20


def test_a_file_that_has_grown_is_as_long_as_it_is_when_it_is_opened(
    pool: engram.Pool, seen: Path
) -> None:
    with pool.open_file("log", "ab") as log:
        for n in range(1, 20):
            log.write(b"x" * 1000)
            assert (seen / "log").stat().st_size > 0
            assert len((seen / "log").read_bytes()) == n * 1000


@pytest.mark.parametrize("grown", [False, True])
def test_what_python_writes_through_a_view_is_seen_where_the_file_is_opened_next(
    pool: engram.Pool, seen: Path, grown: bool
) -> None:
    pool["f"] = b"x" * 100_000
    if grown:
        with pool.open_file("f", "ab") as file:
            file.write(b"x" * 100_000)
    for letter in b"abc":
        assert (seen / "f").read_bytes()[0] in b"xab"
        blob = pool["f"]
        assert isinstance(blob, engram.Blob)
        blob.view("r+")[0] = letter
        blob.flush()
        assert (seen / "f").read_bytes()[0] == letter


def test_what_python_writes_into_an_array_is_seen_where_it_is_opened_next(
    pool: engram.Pool, seen: Path
) -> None:
    pool["T"] = np.arange(60_000.0)
    for n in range(3):
        pool["T"][0] = n
        assert np.load(seen / "T.npy")[0] == n
        assert np.fromfile(seen / "T")[0] == n


def test_what_python_writes_after_the_mount_has_closed_a_file_is_seen(
    pool: engram.Pool, seen: Path
) -> None:
    for n in range(50):
        (seen / "file").write_bytes(b"a" * 70_000)
        with pool.open_file("file", "r+") as file:
            file.write(b"%03d" % n)
        assert (seen / "file").read_bytes()[:3] == b"%03d" % n


def test_two_mounts_append_to_one_file_and_both_read_it(pool: engram.Pool, point: Path) -> None:
    other = point.parent / "other"
    other.mkdir()
    with engram.mount(pool, point), engram.mount(pool, other):
        append((point / "log", other / "log"), 2000)
        time.sleep(1.1)  # so long the kernel keeps what it knows of a file's size
        check_appended((point / "log").read_bytes(), 2000)
        check_appended((other / "log").read_bytes(), 2000)


def test_space_of_deleted_files_is_told_to_be_free(seen: Path) -> None:
    before = os.statvfs(seen)
    (seen / "file").write_bytes(bytes(32 << 20))
    (seen / "file").unlink()
    (seen / "touch").write_bytes(b"")
    assert (before.f_bavail - os.statvfs(seen).f_bavail) * before.f_frsize < 1 << 20


@pytest.mark.parametrize("way", ["shared"])
def test_a_missing_pool_is_refused_as_everywhere_else(point: Path, way: str) -> None:
    with pytest.raises(engram.PoolNotFoundError):
        engram.mount(point / "nothing", point, cache=way)  # type: ignore[arg-type]
