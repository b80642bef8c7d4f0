"""Several users on one mount: modes, owners and groups are obeyed as a tmpfs obeys them.

Root makes the mount; others act in processes that have become them for good. What private members
somebody has is shown to nobody, and who is no root mounts for himself alone.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import engram
from mounted import begin, code_of, ended, needs_fuse, place
from support import BIG, PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    needs_fuse,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else"),
]

SHM = Path("/dev/shm")


class User(NamedTuple):
    """Who acts: a user, its group, and further groups."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


ROOT, NOBODY, DAEMON = User(0, 0), User(65534, 65534), User(1, 1)
FRIEND = User(1, 1, (65534,))
"""Daemon, who is in nobody's group besides."""
USERS = {"root": ROOT, "nobody": NOBODY, "daemon": DAEMON, "friend": FRIEND}


def become(user: User) -> None:
    """Become a user for good."""
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)


def acting(user: User, act: Callable[[], Any]) -> Any:
    """Do something in a process that has become this user; give what it gives, if JSON has it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            become(user)
            said = json.dumps(act())
        except BaseException:  # noqa: BLE001 - it is told
            said = json.dumps({"raised": traceback.format_exc()})
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        given = json.loads(pipe.read())
    os.waitpid(child, 0)
    assert not isinstance(given, dict) or "raised" not in given, given["raised"]
    return given


def tries(user: User, *calls: tuple[Any, ...]) -> list[str]:
    """Have a user make some calls, and give the name of the errno that each fails with."""
    codes: list[str] = acting(
        user, lambda: [code_of(call, *arguments) for call, *arguments in calls]
    )
    return codes


def about(path: Path) -> tuple[int, int, str]:
    told = path.lstat()
    return told.st_uid, told.st_gid, oct(told.st_mode)


def opened(path: Path, flags: int) -> None:
    os.close(os.open(path, flags))


def appended(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, b"more")
    finally:
        os.close(fd)


def made(path: Path, mode: int, user: User, *, folder: bool = False) -> Path:
    if folder:
        path.mkdir()
    else:
        path.write_bytes(b"content")
    os.chown(path, user.uid, user.gid)
    path.chmod(mode)
    return path


def who_may_do_what_with_files(top: Path) -> list[Any]:
    """Try what is done to files of many modes, as every user."""
    told: list[Any] = []
    for mode in (0o000, 0o400, 0o040, 0o004, 0o600, 0o620, 0o666, 0o640, 0o604, 0o755, 0o4755):
        for owner in (NOBODY, DAEMON):
            path = made(top / f"{mode:o}-{owner.uid}", mode, owner)
            for name, user in USERS.items():
                done = tries(
                    user,
                    (opened, path, os.O_RDONLY),
                    (opened, path, os.O_WRONLY),
                    (opened, path, os.O_RDWR | os.O_APPEND),
                    (os.truncate, path, 3),
                    (os.utime, path),
                    (os.utime, path, (1, 2)),
                    (os.setxattr, path, b"user.k", b"v"),
                )
                runs = acting(user, partial(os.access, path, os.X_OK))
                told.append((path.name, name, done, runs))
    return told


def who_may_change_whom(top: Path) -> list[Any]:
    """Change modes, owners and groups, as every user."""
    told = []
    for n, owner in enumerate((NOBODY, DAEMON)):
        for name, user in USERS.items():
            for what, call in {
                "chmod": (os.chmod, 0o640),
                "setgid": (os.chmod, 0o2755),
                "setuid": (os.chmod, 0o4755),
                "give away": (os.chown, 1, -1),
                "take": (os.chown, user.uid, -1),
                "group of nobody": (os.chown, -1, 65534),
                "group of daemon": (os.chown, -1, 1),
                "group of root": (os.chown, -1, 0),
            }.items():
                for mode in (0o644, 0o6755):
                    path = made(top / f"{n} {name} {what} {mode:o}", mode, owner)
                    done = tries(user, (call[0], path, *call[1:]))
                    told.append((path.name, done, about(path)))
    # Who writes to a program of another's takes its rights away. (0o2767 gives none.)
    for mode in (0o6777, 0o2777, 0o4722):
        for name, user in USERS.items():
            path = made(top / f"written by {name} {mode:o}", mode, NOBODY)
            told.append((path.name, tries(user, (Path.write_bytes, path, b"other")), about(path)))
            path.chmod(mode)
            told.append((name, tries(user, (appended, path)), about(path)))
    return told


def who_may_do_what_in_folders(top: Path) -> list[Any]:
    """Make, rename, link and remove in folders of many modes, as every user."""
    told: list[Any] = []
    for mode in (0o700, 0o711, 0o744, 0o755, 0o777, 0o1777, 0o770, 0o1770, 0o2775, 0o2777):
        for name, user in USERS.items():
            folder = made(top / f"{mode:o} {name}", 0o777, NOBODY, folder=True)
            for n, owner in enumerate((ROOT, NOBODY, DAEMON)):
                made(folder / f"file{n}", 0o644, owner)
                made(folder / f"inner{n}", 0o755, owner, folder=True)
            folder.chmod(mode)
            done = acting(user, partial(code_of, os.listdir, folder))
            calls: list[tuple[Any, ...]] = [
                (os.stat, folder / "file0"),
                (Path.write_bytes, folder / "new", b""),
                (Path.mkdir, folder / "newer"),
                (Path.symlink_to, folder / "symbolic", "file0"),
                (os.mkfifo, folder / "fifo"),
                (os.link, folder / "file1", folder / "link"),
                (os.rename, folder / "file0", folder / "renamed"),
                (os.rename, folder / "file2", folder / "file1"),
                (os.rename, folder / "inner2", folder / "inner2 renamed"),
                (os.unlink, folder / "file1"),
                (os.rmdir, folder / "inner0"),
                (os.rmdir, folder / "inner1"),
                (os.rmdir, folder / "inner2"),
            ]
            codes = tries(user, *calls)
            left = {path.name: about(path) for path in sorted(folder.iterdir())}
            told.append((folder.name, done, codes, left))
    return told


@contextmanager
def beside() -> Iterator[Path]:
    """Give a folder on a tmpfs that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="engram-test-", dir=SHM) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("cache", ["shared", "job", "none"])
@pytest.mark.parametrize(
    "story", [who_may_do_what_with_files, who_may_change_whom, who_may_do_what_in_folders]
)
def test_users_may_do_what_they_may_on_a_tmpfs(
    pool: engram.Pool, point: Path, story: Callable[[Path], list[Any]], cache: Any
) -> None:
    with beside() as theirs:
        expected = story(theirs)
    with engram.mount(pool, point, cache=cache):
        point.chmod(0o755)
        found = story(point)
    assert len(found) == len(expected)
    for mine, other in zip(found, expected, strict=True):
        assert mine == other
    assert engram.verify(pool.path).problems == []


SECRETS = """
import os, sys, time
end = time.monotonic() + 3
print("makes", flush=True)
while time.monotonic() < end:
    try:
        fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        continue
    os.write(fd, b"secret")
    os.close(fd)
    try:
        os.unlink(sys.argv[1])
    except FileNotFoundError:
        pass
"""


def test_a_file_that_another_has_just_made_is_opened_by_its_mode(
    pool: engram.Pool, point: Path
) -> None:
    with place() as other, engram.mount(pool, point), engram.mount(pool, other):
        point.chmod(0o777)
        name = point / "name"

        def create() -> int:
            end, others = time.monotonic() + 2, 0
            while time.monotonic() < end:
                with suppress(OSError):
                    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
                    others += os.fstat(fd).st_uid != NOBODY.uid
                    os.close(fd)
                    name.unlink()
            return others

        maker = begin(SECRETS, other / "name")
        assert maker.stdout is not None
        assert maker.stdout.readline() == "makes\n"
        assert acting(NOBODY, create) == 0
        ended(maker)


def test_what_a_user_makes_is_his_in_the_pool(pool: engram.Pool, seen: Path) -> None:
    seen.chmod(0o755)
    made(seen / "open", 0o2777, DAEMON, folder=True)
    calls = [
        (Path.write_bytes, seen / "open/small", b"small"),
        (Path.write_bytes, seen / "open/big", BIG),
        (Path.mkdir, seen / "open/folder"),
    ]
    assert tries(NOBODY, *calls) == ["", "", ""]
    for name in ("small", "big", "folder"):
        told = pool[f"open/{name}"].posix
        assert (told.uid, told.gid) == (NOBODY.uid, DAEMON.gid), name
    assert pool["open/folder"].posix.mode & stat.S_ISGID


def test_what_others_keep_in_private_is_not_reached_through_a_mount(point: Path) -> None:
    with beside() as home:
        home.chmod(0o777)
        path = home / "pool"
        with engram.create(path, size="64 MiB", force=True, mode=0o770) as pool:
            pass
        engram.chmod(path, 0o770)
        subprocess.run(["chown", "-R", ":65534", path], check=True)
        with engram.open(path, force=True) as pool:

            def keep() -> list[str]:
                with engram.open(path, force=True) as mine:
                    mine.create_group("mine", scope="private")["secret"] = BIG
                    return sorted(mine)

            assert acting(NOBODY, keep) == ["mine"]
            pool["shared"] = b"of all"
            with engram.mount(pool, point):
                assert [each.name for each in point.iterdir()] == ["shared"]
                assert code_of(os.stat, point / "mine/secret") == "ENOENT"
                (point / "mine").mkdir()  # the name is free for others
                assert list((point / "mine").iterdir()) == []


def test_what_root_keeps_in_private_later_is_not_shown(pool: engram.Pool, seen: Path) -> None:
    pool["shared"] = b"of all"
    assert (seen / "shared").read_bytes() == b"of all"
    pool.create_group("later", scope="private")["secret"] = BIG
    assert "later" in pool
    assert [each.name for each in seen.iterdir()] == ["shared"]
    assert code_of(os.stat, seen / "later/secret") == "ENOENT"
    (seen / "made").write_bytes(BIG)
    assert pool["made"].scope == "shared"


# Mounts of who is not root

ORDINARY = """
import codecs, os, subprocess, sys, time
from pathlib import Path
import engram, engram.mounts
from test_mount_users import NOBODY, acting, become

for name in ("unicode_escape", "latin-1"):  # who is to come may not enter Python's folder
    codecs.lookup(name)

home, how = Path(sys.argv[1]), sys.argv[2]
pool, point = home / "pool", home / "mount"

def serves():
    with engram.create(pool, size="64 MiB", force=True) as made:
        made["before"] = b"as it was"
    try:
        engram.mounts.serve(pool, point)
    except engram.EngramError as error:
        return [type(error).__name__, str(error)]
    return ["served", ""]

def acts():
    (point / "file").write_bytes(b"x" * 100_000)
    (point / "file").chmod(0o600)
    (point / "folder").mkdir()
    os.rename(point / "file", point / "folder/file")
    about = (point / "folder/file").stat()
    return [about.st_uid, about.st_size, (point / "before").read_text(), oct(about.st_mode)]

def is_mounted():
    return f" {point} " in Path("/proc/self/mountinfo").read_text()

if how == "served":
    child = os.fork()
    if child == 0:
        become(NOBODY)
        serves()
        os._exit(0)
    until = time.monotonic() + 60
    while not is_mounted() and os.waitpid(child, os.WNOHANG) == (0, 0):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert is_mounted()
    try:
        assert acting(NOBODY, acts) == [65534, 100_000, "as it was", "0o100600"]
        try:
            os.listdir(point)
        except PermissionError:
            print("root is kept out")
        acting(NOBODY, lambda: engram.unmount(point))
    finally:
        if is_mounted():
            os.system(f"umount -l {point}")
    os.waitpid(child, 0)
    assert not is_mounted()
    with engram.open(pool, force=True) as opened:
        assert bytes(opened["folder/file"]) == b"x" * 100_000
    assert engram.verify(pool).problems == []
else:
    if how == "without fusermount3":
        for folder in {os.path.realpath(folder) for folder in ("/bin", "/usr/bin")}:
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    print(*acting(NOBODY, serves), sep="\\n")
"""

APART = """
set -e
mount -t tmpfs -o dev,mode=755 tmpfs "$1/devices"
mknod -m "$2" "$1/devices/fuse" c 10 229
mount --bind "$1/devices/fuse" /dev/fuse
shift 2
exec "$@"
"""
"""Gives the program a /dev/fuse of its own, of this mode: in a mount namespace of its own."""


@contextmanager
def ordinary() -> Iterator[Path]:
    """Give a folder where nobody may make a pool and a mount."""
    with beside() as home:
        for name in ("devices", "mount"):
            (home / name).mkdir()
            os.chown(home / name, NOBODY.uid, NOBODY.gid)
        os.chown(home, NOBODY.uid, NOBODY.gid)
        yield home


def apart(home: Path, how: str, mode: str) -> str:
    """Run `ORDINARY` with a /dev/fuse of this mode; give what it said."""
    for program in ("unshare", "mknod"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    words = ["unshare", "--mount", "sh", "-c", APART, "sh", str(home), mode]
    done = subprocess.run(
        [*words, sys.executable, "-c", ORDINARY, str(home), how],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if "unshare failed" in done.stderr or "mknod" in done.stderr:
        pytest.skip(f"no /dev/fuse of its own can be made here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_ordinary_user_mounts_for_himself_alone() -> None:
    if shutil.which("fusermount3") is None:
        pytest.skip("needs fusermount3 (fuse3)")
    with ordinary() as home:
        assert apart(home, "served", "666") == "root is kept out\n"


def test_who_may_not_use_fuse_is_told_so() -> None:
    with ordinary() as home:
        kind, said = apart(home, "refused", "600").splitlines()
        assert kind == "UnsupportedError"
        assert "/dev/fuse closed to this user" in said
        assert str(home / "mount") in said


def test_who_lacks_fusermount3_is_told_what_to_install() -> None:
    with ordinary() as home:
        kind, said = apart(home, "without fusermount3", "666").splitlines()
        assert kind == "UnsupportedError"
        assert "fusermount3 is missing" in said
        assert "install fuse3" in said
