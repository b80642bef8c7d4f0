"""Mounts: made and taken away by Python and on the command line, refused, killed, interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from mounted import APPENDER, begin, code_of, ended, mounts, names, needs_fuse
from shell import COMMAND, piped
from support import BIG, PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = needs_fuse


def wait_for(what: Callable[[], bool]) -> None:
    """Wait until something has happened."""
    until = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < until, "it has not happened"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    """Whether a process is there, and not only left for its parent to ask for."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return told.rpartition(")")[2].split()[0] not in {"Z", "X"}


def test_a_pool_is_a_folder_for_as_long_as_the_block_lasts(pool: engram.Pool, point: Path) -> None:
    pool["run/log"] = b"hello"
    with engram.mount(pool, point) as mount:
        assert mount.path == point
        assert os.fspath(mount) == str(point)
        assert repr(mount) == f"<engram.Mount {str(point)!r} served by {mount.pid}>"
        assert mounts()[point] == f"engram:{pool.path}@{mount.pid}"
        assert (point / "run/log").read_bytes() == b"hello"
        (point / "run/new").write_bytes(BIG)
    assert point not in mounts()
    assert not runs(mount.pid)
    assert list(point.iterdir()) == []
    assert bytes(pool["run/new"]) == BIG
    mount.unmount()  # it is gone: nothing is to be done
    assert engram.verify(pool.path).problems == []


def test_a_mount_goes_on_after_the_pool_is_closed_where_it_was_made(
    home: Path, point: Path
) -> None:
    with engram.create(home / "pool", size="64 MiB", force=True) as pool:
        mount = engram.mount(pool, point)
    with mount:
        (point / "later").write_bytes(b"later")
    with engram.open(home / "pool") as pool:
        assert bytes(pool["later"]) == b"later"


def test_a_read_only_mount_refuses_all_changes(pool: engram.Pool, point: Path) -> None:
    pool["a/file"] = b"as it was"
    with engram.mount(pool, point, read_only=True):
        file, made_anew = point / "a/file", point / "made_anew"
        changes: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
            (Path.write_bytes, (file, b"other")),
            (Path.write_bytes, (made_anew, b"new")),
            (Path.unlink, (file,)),
            (Path.mkdir, (made_anew,)),
            (Path.chmod, (file, 0o600)),
            (os.rename, (file, made_anew)),
            (os.link, (file, made_anew)),
            (os.symlink, ("a/file", made_anew)),
            (os.truncate, (file, 0)),
            (os.setxattr, (file, b"user.k", b"v")),
            (os.utime, (file,)),
        ]
        for change, arguments in changes:
            assert code_of(change, *arguments) == "EROFS", change
        assert file.read_bytes() == b"as it was"
    assert list(pool) == ["a"]


def test_another_namespace_can_be_mounted(pool: engram.Pool, point: Path) -> None:
    pool.create_namespace("other")["inside"] = b"of the other"
    pool["outside"] = b"of the first"
    with engram.mount(pool, point, namespace="other"):
        assert names(point) == ["inside"]
        (point / "made").write_bytes(b"here")
    assert bytes(pool.namespaces["other"]["made"]) == b"here"
    assert "made" not in pool


def test_two_namespaces_are_mounted_side_by_side(pool: engram.Pool, point: Path) -> None:
    pool.create_namespace("other")
    places = {"default": point / "../a", "other": point / "../b"}
    for place in places.values():
        place.mkdir()
    with (
        engram.mount(pool, places["default"]) as first,
        engram.mount(pool, places["other"], namespace="other") as second,
    ):
        assert first.path != second.path
        (first.path / "x").write_bytes(b"1")
        assert code_of(os.rename, first.path / "x", second.path / "x") == "EXDEV"
        (second.path / "x").write_bytes(b"2")
    assert bytes(pool["x"]) == b"1"
    assert bytes(pool.namespaces["other"]["x"]) == b"2"


def test_one_namespace_mounted_twice_is_the_same_files(pool: engram.Pool, point: Path) -> None:
    other = point.parent / "other"
    other.mkdir()
    with engram.mount(pool, point), engram.mount(pool, other):
        for n, (writes, reads) in enumerate([(point, other), (other, point)]):
            (writes / f"f{n}").write_bytes(BIG)
            assert (reads / f"f{n}").read_bytes() == BIG
            with (writes / f"f{n}").open("ab") as file:
                file.write(b"more")
            assert (reads / f"f{n}").read_bytes() == BIG + b"more"


@pytest.mark.parametrize(("size", "at_once"), [("64 KiB", 1 << 16), ("16 MiB", 1 << 24)])
def test_a_file_grows_by_the_segment_size_at_least(
    pool: engram.Pool, point: Path, size: str, at_once: int
) -> None:
    with engram.mount(pool, point, segment_size=size), (point / "file").open("wb") as file:
        for _ in range(2):  # the first space that a file gets is what it needs
            file.write(bytes(1 << 12))
            file.flush()
        assert pool["file"].nbytes == 1 << 13
        assert os.fstat(file.fileno()).st_blocks * 512 >= at_once


@pytest.mark.parametrize("cache", ["job", "shared", "none"])
def test_what_another_process_writes_is_seen(pool: engram.Pool, point: Path, cache: Any) -> None:
    with engram.mount(pool, point, cache=cache):
        pool["new"] = b"first"
        assert (point / "new").read_bytes() == b"first"
        if cache != "job":  # that is for pools which nobody else changes
            with pool.open_file("new", "r+") as file:
                file.write(b"other")
            assert (point / "new").read_bytes() == b"other"


def test_the_command_line_mounts_and_unmounts(pool: engram.Pool, point: Path) -> None:
    made = piped("mount", pool.path, point, "--cache", "job", "--segment-size", "1MiB")
    assert made.returncode == 0, made.stderr
    said = made.stdout.decode() + made.stderr.decode()
    found = re.search(r"served by process (\d+)", " ".join(said.split()))
    assert found is not None, said
    assert runs(int(found[1]))
    (point / "file").write_bytes(b"by the command line")
    gone = piped("unmount", point)
    assert gone.returncode == 0, gone.stderr
    assert not runs(int(found[1]))
    assert bytes(pool["file"]) == b"by the command line"


def test_the_command_line_mounts_for_reading(pool: engram.Pool, point: Path) -> None:
    assert piped("mount", pool.path, point, "--read-only").returncode == 0
    assert code_of((point / "x").write_bytes, b"") == "EROFS"
    assert piped("unmount", point).returncode == 0


@pytest.mark.parametrize("way", ["SIGINT", "SIGTERM", "unmount"])
def test_in_the_foreground_it_is_served_until_it_is_told_to_end(
    pool: engram.Pool, point: Path, way: str
) -> None:
    words = [*COMMAND, "mount", pool.path, str(point), "--foreground"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as served:
        wait_for(lambda: point in mounts() or served.poll() is not None)
        assert served.poll() is None
        (point / "file").write_bytes(BIG)
        if way == "unmount":
            assert piped("unmount", point).returncode == 0
        else:
            served.send_signal(signal.Signals[way])
        said, _ = served.communicate(timeout=PATIENCE)
    assert point not in mounts()
    assert b"is served at" in said
    assert b"Traceback" not in said
    assert served.returncode == (130 if way == "SIGINT" else 0), said
    assert bytes(pool["file"]) == BIG


def test_a_mount_in_use_is_not_taken_away(pool: engram.Pool, point: Path) -> None:
    with engram.mount(pool, point) as mount:
        with (point / "file").open("wb") as file:
            file.write(b"kept")
            with pytest.raises(engram.BusyError, match="is in use: somebody has files of it open"):
                engram.unmount(point)
            refused = piped("unmount", point)
            assert refused.returncode == engram.BusyError.exit_code
            assert b"fuser -vm" in refused.stderr
        assert runs(mount.pid)
        assert (point / "file").read_bytes() == b"kept"


def test_a_busy_mount_that_is_told_to_end_goes_with_its_last_user(
    pool: engram.Pool, point: Path
) -> None:
    mount = engram.mount(pool, point)
    with (point / "file").open("wb") as file:
        os.kill(mount.pid, signal.SIGTERM)
        file.write(b"to the end")
        file.flush()
        os.fsync(file.fileno())
    mount.unmount()
    assert bytes(pool["file"]) == b"to the end"


def test_nothing_is_mounted_over_a_mount(pool: engram.Pool, point: Path) -> None:
    with (
        engram.mount(pool, point),
        pytest.raises(engram.BusyError, match="has something mounted upon it already"),
    ):
        engram.mount(pool, point)
    assert point not in mounts()


def refusal(point: Path, pool: object, **options: Any) -> tuple[str, str]:
    """Give the class and the message of the error that a mount is refused with."""
    with pytest.raises(engram.EngramError) as refused:
        engram.mount(pool, point, **options)  # type: ignore[arg-type] # a wrong one
    assert point not in mounts()
    return type(refused.value).__name__, str(refused.value)


def test_what_is_missing_or_wrong_is_said(pool: engram.Pool, point: Path) -> None:
    kind, said = refusal(point / "no", pool)
    assert kind == "NotFoundError"
    assert str(point / "no") in said
    assert "make the folder first" in said
    file = point / "file"
    file.write_bytes(b"")
    kind, said = refusal(file, pool)
    assert kind == "ArgumentError"
    assert "is no folder" in said
    kind, said = refusal(point, point / "nothing")
    assert issubclass(getattr(engram, kind), engram.NotFoundError)
    assert str(point / "nothing") in said
    kind, said = refusal(point, pool, namespace="nowhere")
    assert issubclass(getattr(engram, kind), engram.NotFoundError)
    assert "nowhere" in said
    kind, said = refusal(point, pool, cache="much")
    assert kind == "ArgumentError"
    assert "job, shared, none" in said
    kind, said = refusal(point, pool, colour="red")
    assert kind == "ArgumentError"
    assert "'colour' is no option of a mount" in said
    with pytest.raises(engram.NotFoundError, match="no pool is mounted at"):
        engram.unmount(point)
    refused = piped("mount", pool.path, point / "no")
    assert refused.returncode == engram.NotFoundError.exit_code
    assert b"make the folder first" in b" ".join(refused.stderr.split())
    assert b"Traceback" not in refused.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="of root's mounts alone")
def test_root_does_not_show_what_it_keeps_in_private(pool: engram.Pool, point: Path) -> None:
    pool.create_group("mine", scope="private")["secret"] = b"mine"
    kind, said = refusal(point, pool)
    assert kind == "AccessError"
    assert "private members of root's" in said


def kill(mount: engram.Mount) -> None:
    """Kill the process that serves a mount."""
    os.kill(mount.pid, signal.SIGKILL)
    wait_for(lambda: code_of(os.stat, mount.path) == "ENOTCONN")


def test_a_killed_mount_is_taken_away_and_nothing_is_lost(pool: engram.Pool, point: Path) -> None:
    mount = engram.mount(pool, point)
    (point / "closed").write_bytes(BIG)
    (point / "folder").mkdir()
    (point / "folder/link").symlink_to("closed")
    fd = os.open(point / "synced", os.O_WRONLY | os.O_CREAT)
    os.write(fd, BIG)
    os.fsync(fd)
    kill(mount)
    assert code_of(os.write, fd, b"more") == "ENOTCONN"
    assert code_of(os.close, fd) == "ENOTCONN"
    with pytest.raises(engram.BusyError, match=r"its process was killed.*engram unmount"):
        engram.mount(pool, point)
    assert piped("unmount", point).returncode == 0
    assert point not in mounts()
    assert bytes(pool["closed"]) == bytes(pool["synced"]) == BIG
    with engram.mount(pool, point):
        assert (point / "folder/link").readlink() == Path("closed")
        assert (point / "synced").read_bytes() == BIG
    assert engram.verify(pool.path).problems == []


def test_a_killed_mount_is_taken_away_while_somebody_stands_in_it(
    pool: engram.Pool, point: Path
) -> None:
    mount = engram.mount(pool, point)
    standing = begin("import os, sys; os.chdir(sys.argv[1]); print(flush=True); input()", point)
    assert standing.stdout is not None
    standing.stdout.readline()
    with pytest.raises(engram.BusyError, match="stands in it"):
        engram.unmount(point)
    kill(mount)
    engram.unmount(point)
    assert point not in mounts()
    assert standing.poll() is None
    standing.communicate("\n", timeout=PATIENCE)


ACKNOWLEDGER = """
import os, sys
folder, n = sys.argv[1], 0
try:
    while True:
        with open(f"{folder}/{n}.part", "wb") as file:
            file.write(b"%07d\\n" % n * (1 + n % 3 * 5000))
            if n % 2:
                file.flush()
                os.fsync(file.fileno())
        os.rename(f"{folder}/{n}.part", f"{folder}/{n}")
        print(n, flush=True)
        n += 1
except OSError:
    pass
"""


@pytest.mark.parametrize("nth", range(3))
def test_what_was_acknowledged_is_there_after_a_kill_in_the_middle(
    pool: engram.Pool, point: Path, nth: int
) -> None:
    mount = engram.mount(pool, point)
    writers = []
    for name in ("a", "b"):
        (point / name).mkdir()
        writers.append(begin(ACKNOWLEDGER, point / name))
    for writer in writers:
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < 20 + 7 * nth:
            pass
    kill(mount)
    for name, writer in zip("ab", writers, strict=True):
        last = (ended(writer).split() or ["20"])[-1]
        for n in range(int(last) + 1):
            assert bytes(pool[f"{name}/{n}"]) == b"%07d\n" % n * (1 + n % 3 * 5000)
    mount.unmount()
    assert engram.verify(pool.path).problems == []


def test_an_appender_goes_on_where_a_killed_mount_left_off(pool: engram.Pool, point: Path) -> None:
    mount = engram.mount(pool, point)
    (point / "log").write_bytes(b"")
    writer = begin(APPENDER, point / "log", "one", 10_000_000)
    wait_for(lambda: (point / "log").stat().st_size > 30_000)
    kill(mount)
    assert writer.communicate(timeout=PATIENCE)[0]
    assert writer.returncode != 0
    mount.unmount()
    there = bytes(pool["log"]).splitlines(keepends=True)
    assert there == [b"one %07d\n" % n for n in range(len(there))]
    with engram.mount(pool, point):
        ended(begin(APPENDER, point / "log", "two", 10))
        assert (point / "log").read_bytes().count(b"two") == 10
    assert engram.verify(pool.path).problems == []


def test_what_python_holds_and_what_the_mount_shows_is_one(pool: engram.Pool, point: Path) -> None:
    pool["T"] = np.arange(1000.0)
    with engram.mount(pool, point):
        with (point / "T").open("r+b") as file:
            file.write(np.float64(41.0).tobytes())
        assert pool["T"][0] == 41
        pool["T"][1] = 42
        assert np.fromfile(point / "T")[:2].tolist() == [41, 42]
