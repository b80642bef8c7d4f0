"""What is refused on a mount: by which errno, and that nothing is lost or changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from mounted import code_of, names, needs_fuse
from support import BIG, PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = needs_fuse


def written(path: Path, data: bytes = b"x") -> None:
    """Write to what is there, and does not grow by that."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def appended(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, b"x")
    finally:
        os.close(fd)


def changes(top: Path) -> dict[str, Callable[[], Any]]:
    """Give every way to change `g/file`, a blob, or what is in `g`."""
    file, new = top / "g/file", top / "g/new"
    return {
        "write": lambda: written(file),
        "append": lambda: appended(file),
        "truncate": lambda: os.truncate(file, 3),
        "empty": lambda: os.close(os.open(file, os.O_WRONLY | os.O_TRUNC)),
        "unlink": file.unlink,
        "rename": lambda: file.rename(new),
        "replace": lambda: (top / "other").rename(file),
        "setxattr": lambda: os.setxattr(file, b"user.k", b"v"),
        "removexattr": lambda: os.removexattr(file, b"user.kept"),
        "chmod": lambda: file.chmod(0o600),
        "chown": lambda: os.chown(file, 1, 1),
        "utime": lambda: os.utime(file, (1, 2)),
    }


def below(top: Path) -> dict[str, Callable[[], Any]]:
    """Give every way to make something in `g`."""
    new = top / "g/new"
    return {
        "create": lambda: new.write_bytes(b""),
        "mkdir": new.mkdir,
        "symlink": lambda: new.symlink_to("file"),
        "mkfifo": lambda: os.mkfifo(new),
        "link": lambda: os.link(top / "other", new),
        "rename in": lambda: (top / "other").rename(new),
        "rmdir": (top / "g/empty").rmdir,
    }


def prepare(pool: engram.Pool) -> None:
    pool.create_blob("g/file", BIG, attrs={"kept": "as it was"})
    pool["other"] = b"other"
    pool.create_group("g/empty")


def check(pool: Any, top: Path) -> None:
    """See that all is as `prepare` has made it."""
    assert (sorted(pool), sorted(pool["g"])) == (["g", "other"], ["empty", "file"])
    assert bytes(pool["g/file"]) == (top / "g/file").read_bytes() == BIG
    assert dict(pool["g/file"].attrs) == {"kept": "as it was"}
    assert bytes(pool["other"]) == b"other"


def codes(acts: dict[str, Callable[[], Any]]) -> dict[str, str]:
    return {what: code_of(act) for what, act in acts.items()}


def test_what_is_read_only_is_refused_by_erofs(pool: engram.Pool, seen: Path) -> None:
    prepare(pool)
    pool["g/file"].read_only = True
    assert set(codes(changes(seen)).items()) == {(what, "EROFS") for what in changes(seen)}
    check(pool, seen)
    pool["g/file"].read_only = False
    pool["g"].read_only = True
    acts = changes(seen) | below(seen)
    assert set(codes(acts).items()) == {(what, "EROFS") for what in acts}
    check(pool, seen)
    pool["g"].read_only = False
    assert code_of(lambda: written(seen / "g/file", BIG)) == ""


def test_what_is_published_is_refused_by_erofs(pool: engram.Pool, seen: Path) -> None:
    prepare(pool)
    engram.chmod(pool.path, 0o755)
    pool.publish("g")
    acts = changes(seen) | below(seen)
    del acts["rename in"]
    assert set(codes(acts).items()) == {(what, "EROFS") for what in acts}
    check(pool, seen)
    (seen / "other").rename(seen / "g/new")  # it keeps its scope, as with `move`
    assert pool["g/new"].scope == "shared"
    assert bytes(pool["g/new"]) == (seen / "g/new").read_bytes() == b"other"
    (seen / "g/new").rename(seen / "other")
    check(pool, seen)


def test_a_namespace_that_is_only_read_is_refused_by_erofs(pool: engram.Pool, point: Path) -> None:
    prepare(pool)
    with engram.mount(pool, point, read_only=True):
        acts = changes(point) | below(point)
        assert set(codes(acts).items()) == {(what, "EROFS") for what in acts}
        check(pool, point)


def test_names_that_cannot_be_are_refused_by_every_call(pool: engram.Pool, seen: Path) -> None:
    prepare(pool)
    long, wrong = b"n" * 256, b"\xff\xfe"
    top = os.fsencode(seen)
    for name, said in ((long, "ENAMETOOLONG"), (wrong, "EILSEQ")):
        bad = top + b"/" + name
        calls: list[tuple[Any, ...]] = [
            (os.open, bad, os.O_CREAT | os.O_WRONLY),
            (os.open, bad, os.O_RDONLY),
            (os.stat, bad),
            (os.mkdir, bad),
            (os.mkfifo, bad),
            (os.symlink, b"file", bad),
            (os.link, top + b"/other", bad),
            (os.rename, top + b"/other", bad),
            (os.rename, bad, top + b"/other"),
            (os.unlink, bad),
            (os.rmdir, bad),
        ]
        found = [code_of(call, *arguments) for call, *arguments in calls]
        assert found == [said] * len(calls)
    assert code_of(os.stat, "/".join([str(seen), *["d" * 250] * 17])) == "ENAMETOOLONG"
    check(pool, seen)


def test_an_array_keeps_its_size_whatever_is_tried(pool: engram.Pool, seen: Path) -> None:
    data = np.arange(40_000.0)
    pool["T"] = data
    pool.create_array("chunked", data=data, chunks=(1000,))
    for act in (
        lambda: appended(seen / "T"),
        lambda: os.truncate(seen / "T", 8),
        lambda: os.truncate(seen / "T", 1 << 20),
        lambda: os.close(os.open(seen / "T", os.O_WRONLY | os.O_TRUNC)),
        lambda: written(seen / "chunked"),
        lambda: os.truncate(seen / "chunked", 8),
        lambda: written(seen / "T.npy"),
    ):
        assert code_of(act) in {"EPERM", "EACCES"}
    assert np.array_equal(pool["T"][...], data)
    assert (seen / "chunked").read_bytes() == data.tobytes()


def test_a_member_that_is_on_its_way_is_busy(pool: engram.Pool, seen: Path) -> None:
    prepare(pool)
    with pool.open_file("other"), pytest.raises(engram.BusyError, match="is open"):
        pool.publish("other", closed=True)
    with (seen / "other").open("rb") as file:
        with pytest.raises(engram.BusyError, match="is open"):
            pool.publish("other", closed=True)
        assert file.read() == b"other"
    assert pool["other"].scope == "shared"


def test_a_batch_of_python_and_a_mount_do_not_wait_for_each_other(
    pool: engram.Pool, seen: Path
) -> None:
    prepare(pool)
    with pool.batch():
        pool["in the batch"] = b"x"
        (seen / "g/new").write_bytes(BIG)
        assert names(seen / "g") == ["empty", "file", "new"]
        assert not (seen / "in the batch").exists()
        with pytest.raises(engram.BusyError, match="batch"):
            pool.open_file("g/new")
    assert (seen / "in the batch").read_bytes() == b"x"


def test_a_pool_that_is_destroyed_under_a_mount_is_stale(home: Path, point: Path) -> None:
    with engram.create(home / "gone", size="64 MiB", force=True) as pool:
        prepare(pool)
    mount = engram.mount(home / "gone", point)
    fd = os.open(point / "g/file", os.O_RDWR)
    shutil.rmtree(home / "gone")
    time.sleep(0.1)  # the engine looks every 10 ms whether a pool is there
    found = {
        "create": code_of(lambda: (point / "new").write_bytes(b"x")),
        "mkdir": code_of((point / "newer").mkdir),
        "unlink": code_of((point / "other").unlink),
        "extend": code_of(lambda: os.pwrite(fd, b"x" * 100_000, len(BIG))),
    }
    assert set(found.values()) == {"ESTALE"}, found
    os.close(fd)
    mount.unmount()
    assert list(point.iterdir()) == []


def test_who_has_open_what_was_deleted_in_python_goes_on(pool: engram.Pool, seen: Path) -> None:
    prepare(pool)
    with (seen / "g/file").open("r+b", buffering=0) as file:
        assert file.read(10) == BIG[:10]
        pool.clear()
        file.write(b"more")
        file.seek(0)
        assert file.read() == BIG[:10] + b"more" + BIG[14:]
    deadline = {"ENOENT", "ESTALE"}  # the kernel may keep the name for a second
    assert code_of(os.open, seen / "g/file", os.O_RDONLY) in deadline
    assert code_of(os.unlink, seen / "g/file") in deadline


def test_a_loop_of_links_and_a_path_through_a_file_are_told(pool: engram.Pool, seen: Path) -> None:
    prepare(pool)
    (seen / "one").symlink_to("two")
    (seen / "two").symlink_to("one")
    assert code_of(os.open, seen / "one", os.O_RDONLY) == "ELOOP"
    assert code_of(os.stat, seen / "other/below") == "ENOTDIR"
    assert code_of(os.mkdir, seen / "none/below") == "ENOENT"
    assert code_of(os.open, seen / "g", os.O_WRONLY) == "EISDIR"
    assert code_of(os.rmdir, seen / "g") == "ENOTEMPTY"


# Before there is a mount

APART = """
import os, stat, subprocess, sys
import engram
pool, point = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev"], check=True)
os.mknod("/dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
try:
    engram.mount(pool, point)
except engram.EngramError as error:
    print(type(error).__name__, error)
"""


@contextmanager
def root_alone() -> Iterator[None]:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root, and unshare")
    yield


def test_a_machine_without_fuse_is_told_so(pool: engram.Pool, point: Path) -> None:
    with root_alone():
        done = subprocess.run(
            ["unshare", "--mount", sys.executable, "-c", APART, pool.path, str(point)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("UnsupportedError there is no /dev/fuse")
        assert "--device /dev/fuse" in done.stdout
        assert done.stdout.count("\n") == 1


def test_a_mount_point_that_is_hidden_or_taken_is_told(pool: engram.Pool, point: Path) -> None:
    with root_alone(), pytest.raises(engram.BusyError, match="has something mounted upon it"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", point], check=True)
        try:
            engram.mount(pool, point)
        finally:
            subprocess.run(["umount", point], check=True)
    with engram.mount(pool, point), (point / "file").open("wb"):
        with pytest.raises(engram.BusyError) as busy:
            engram.unmount(point)
        assert f"fuser -vm {point}" in str(busy.value).replace("`", "")
        assert (point / "file").exists()
