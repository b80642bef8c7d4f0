"""No room: in the pool, in a namespace, on the filesystem below, whatever is done to files.

What is refused for want of room leaves all as it was, through a mount and in Python alike. Deleting
works, and what it gives back can be used.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import engram
from mounted import EXCHANGE, allocate, begin, code_of, needs_fuse, rename
from support import BIG, PATIENCE, small_tmpfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
MANY = 20_000
"""So many names fill the catalog of a full filesystem, and more."""
KEPT = {
    "data": BIG,
    "small": b"s" * 1000,
    "sparse": b"x" * 4096 + bytes(4 * MIB - 4096),
    "old": b"old" * 1000,
    "new": b"new" * 1000,
}
"""Files that are there before there is no room any more, and their bytes."""


class Full(NamedTuple):
    """A namespace without room."""

    tree: engram.Pool | engram.Namespace
    pool: Path
    namespace: str
    has_names: bool
    """Whether names find room all the same: the catalog grows as the filesystem has room."""


def code(call: Callable[[], object]) -> str:
    """Give the name of the errno that a call fails with; "ENOSPC" of the store's own error."""
    try:
        return code_of(call)
    except engram.PoolFullError:
        return "ENOSPC"


def until_refused(act: Callable[[int], object]) -> str:
    """Do something again and again, until it is refused; give the errno's name."""
    for n in range(MANY):
        if (said := code(lambda: act(n))) != "":  # noqa: B023 - it is called at once
            return said
    return ""


def use_up(tree: engram.Pool | engram.Namespace, *, names: bool) -> None:
    """Write to a file until nothing more goes in; the same with names, where they are refused."""
    with tree.open_file("filler", "ab") as file:
        for data in (bytes(MIB), bytes(4096), b"\0"):
            act = partial(file.write, data)
            assert until_refused(lambda _: act()) == "ENOSPC"  # noqa: B023
    if names:
        tree.create_group("filling")
        filled = until_refused(lambda n: tree.__setitem__(f"filling/{n}", bytes(1000)))
        assert filled == "ENOSPC"


@contextmanager
def full(kind: str, home: Path) -> Iterator[Full]:
    """Give a namespace with some files, and without room."""

    def prepared(pool: engram.Pool, name: str = "default", *, has_names: bool = True) -> Full:
        tree = pool if name == "default" else pool.namespaces[name]
        for path, data in KEPT.items():
            with tree.open_file(path, "wb") as file:
                file.write(data.rstrip(b"\0"))
                file.truncate(len(data))
        tree.create_group("folder/inner")
        use_up(tree, names=not has_names)
        return Full(tree, Path(pool.path), name, has_names)

    if kind == "filesystem":
        with small_tmpfs(64) as mount, engram.create(mount / "p", size="1 GiB", force=True) as pool:
            about = os.statvfs(mount)
            with (mount / "other").open("wb") as file:
                free = about.f_bavail * about.f_frsize
                os.posix_fallocate(file.fileno(), 0, free - 24 * MIB)
            yield prepared(pool, has_names=False)
    elif kind == "namespace":
        with engram.create(home / "p", size="256 MiB", force=True) as pool:
            pool.create_namespace("bounded", size=16 * MIB)
            yield prepared(pool, "bounded")
            pool["beside"] = bytes(64 * MIB)  # the others have room
    else:
        with engram.create(home / "p", size="16 MiB", force=True) as pool:
            yield prepared(pool)


def through_python(tree: Any) -> dict[str, Callable[[int], object]]:
    """Give everything that takes room, done in Python; each is told which time it is."""

    def write(path: str, mode: str, at: int, data: bytes) -> None:
        with tree.open_file(path, mode) as file:
            file.seek(at)
            file.write(data)

    def overwrites(_: int) -> None:
        write("data", "r+", 100, b"Z" * 9000)
        assert content(tree, "data")[100:9100] == b"Z" * 9000
        write("data", "r+", 100, BIG[100:9100])

    def allocates(_: int) -> None:
        with tree.open_file("data", "r+") as file:
            file.allocate(0, 40 * MIB)

    return {
        "overwrite": overwrites,
        "extend": lambda _: write("data", "r+", len(BIG), bytes(40 * MIB)),
        "append": lambda _: write("data", "ab", 0, bytes(40 * MIB)),
        "fill a hole": lambda _: write("sparse", "r+", 2 * MIB, b"y" * MIB),
        "outgrow the record": lambda _: write("small", "r+", 1000, b"y" * 100_000),
        "allocate": allocates,
        "create": lambda n: tree.create_file(f"created {n}"),
        "mkdir": lambda n: tree.create_group(f"made {n}"),
        "link": lambda n: tree.link("data", f"link {n}"),
        "symlink": lambda n: tree.symlink("x" * 900, f"symbolic {n}"),
        "setxattr": lambda n: tree["data"].attrs.__setitem__(f"key {n}", "v" * 20_000),
        "rename": lambda _: tree.move("folder", "moved"),
    }


def through_mount(top: Path) -> dict[str, Callable[[int], object]]:
    """Give everything that takes room, done on a mount; each is told which time it is."""

    def write(path: str, flags: int, at: int, data: bytes) -> None:
        fd = os.open(top / path, os.O_WRONLY | flags)
        try:
            os.lseek(fd, at, os.SEEK_SET)
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def overwrites(_: int) -> None:
        write("data", 0, 100, b"Z" * 9000)
        assert (top / "data").read_bytes()[100:9100] == b"Z" * 9000
        write("data", 0, 100, BIG[100:9100])

    def allocates(_: int) -> None:
        with (top / "data").open("r+b") as file:
            allocate(file.fileno(), 0, 0, 40 * MIB)

    def creates(n: int) -> None:
        os.close(os.open(top / f"created {n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    return {
        "overwrite": overwrites,
        "extend": lambda _: write("data", 0, len(BIG), bytes(40 * MIB)),
        "append": lambda _: write("data", os.O_APPEND, 0, bytes(40 * MIB)),
        "fill a hole": lambda _: write("sparse", 0, 2 * MIB, b"y" * MIB),
        "outgrow the record": lambda _: write("small", 0, 1000, b"y" * 100_000),
        "allocate": allocates,
        "create": creates,
        "mkdir": lambda n: (top / f"made {n}").mkdir(),
        "link": lambda n: os.link(top / "data", top / f"link {n}"),
        "symlink": lambda n: (top / f"symbolic {n}").symlink_to("x" * 900),
        "mkfifo": lambda n: os.mkfifo(top / f"fifo {n}"),
        "setxattr": lambda n: os.setxattr(top / "data", f"user.key {n}", b"v" * 20_000),
        "rename": lambda _: (top / "folder").rename(top / "moved"),
        "exchange": lambda _: rename(top / "old", top / "new", EXCHANGE),
        "replace": lambda _: (top / "old").rename(top / "new"),
    }


TAKEN = ("extend", "append", "fill a hole", "outgrow the record", "allocate")
"""What takes room for bytes."""
NAMES = ("create", "mkdir", "link", "symlink", "mkfifo", "setxattr")
"""What finds room in a catalog that may grow."""
MOVES = ("rename", "exchange", "replace")
"""What takes no more room than what it frees, or nearly."""


def content(tree: Any, path: str) -> bytes:
    with tree.open_file(path) as file:
        return bytes(file.readall())


def check_kept(tree: Any, *, size_may_grow: bool) -> None:
    """See that what was there is as it was; what a write of several parts has added is zeros."""
    for path in ("data", "small", "sparse"):
        found, data = content(tree, path), KEPT[path]
        rest = found[len(data) :]
        assert found.startswith(data) or path == "sparse", path
        assert not rest or (size_may_grow and not rest.strip(b"\0y")), path
    sparse = content(tree, "sparse")
    written = sparse[2 * MIB : 3 * MIB]
    assert sparse[: 2 * MIB] + sparse[3 * MIB :] == KEPT["sparse"][: 3 * MIB]
    assert not written.strip(b"\0y")
    assert not written.lstrip(b"y").strip(b"\0"), "it is written up to some place"


def check_moved(tree: Any, done: dict[str, str]) -> None:
    """See that what was renamed has one name, and what was refused has its own."""
    assert ("folder" in tree, "moved" in tree) == ((done["rename"] != ""), (done["rename"] == ""))
    assert "inner" in tree["moved" if done["rename"] == "" else "folder"]
    old, new = KEPT["old"], KEPT["new"]
    if done.get("exchange", "refused") == "":
        old, new = new, old
    if done.get("replace", "refused") == "":
        assert "old" not in tree
        assert content(tree, "new") == old
    else:
        assert (content(tree, "old"), content(tree, "new")) == (old, new)


def check_names(tree: Any, has_names: bool) -> None:
    """See that every name leads to what it should; what was made is there whole."""
    for name in tree:
        if name.startswith("symbolic "):
            assert bytes(tree[name]) == b"x" * 900
        elif name.startswith("link "):
            assert tree[name].oid == tree["data"].oid
        elif name.startswith("created "):
            assert bytes(tree[name]) == b""
        elif name.startswith("made "):
            assert isinstance(tree[name], engram.Group)
    assert all(value == "v" * 20_000 for value in tree["data"].attrs.values())
    assert tree["data"].nlink == 1 + sum(name.startswith("link ") for name in tree)
    if not has_names:
        for name in tree["filling"]:
            assert bytes(tree[f"filling/{name}"]) == bytes(1000)


def clear(tree: Any, top: Path | None) -> None:
    """Delete everything, through the mount, if there is one."""
    for name in list(tree):
        if top is None:
            del tree[name]
        elif not (top / name).is_symlink() and (top / name).is_dir():
            for below in list((top / name).iterdir()):
                below.rmdir() if below.is_dir() else below.unlink()
            (top / name).rmdir()
        else:
            (top / name).unlink()
    assert list(tree) == []


def refused_and_recovered(
    of: Full, acts: dict[str, Callable[[int], object]], top: Path | None
) -> None:
    """Do all that takes room where there is none; then delete, and go on."""
    tree = of.tree
    done = {}
    for what, act in acts.items():
        again = what in NAMES and not of.has_names
        done[what] = until_refused(act) if again else code(lambda: act(0))  # noqa: B023
        if again or what in TAKEN:
            expected = {"ENOSPC"}
        else:
            expected = {"", "ENOSPC"} if what in MOVES else {""}
        assert done[what] in expected, what
        check_kept(tree, size_may_grow=True)
    check_moved(tree, done)
    check_names(tree, of.has_names)
    with tree.open_file("data", "r+") as file:
        file.truncate(5000)
    assert content(tree, "data") == BIG[:5000]
    used = tree.space.used
    clear(tree, top)
    for _ in range(2):
        with tree.open_file("again", "wb") as file:
            file.write(bytes(used * 3 // 4))
        del tree["again"]


@pytest.mark.parametrize("kind", ["bound", "namespace", "filesystem"])
def test_python_is_refused_where_there_is_no_room_and_nothing_is_torn(
    home: Path, kind: str
) -> None:
    with full(kind, home) as of:
        refused_and_recovered(of, through_python(of.tree), None)
        assert engram.verify(of.pool).problems == []


@needs_fuse
@pytest.mark.parametrize("cache", ["shared", "job", "none"])
@pytest.mark.parametrize("kind", ["bound", "namespace", "filesystem"])
def test_a_mount_refuses_where_there_is_no_room_and_nothing_is_torn(
    home: Path, point: Path, kind: str, cache: Any
) -> None:
    with full(kind, home) as of:
        with engram.mount(of.pool, point, namespace=of.namespace, cache=cache):
            refused_and_recovered(of, through_mount(point), point)
        assert engram.verify(of.pool).problems == []


STORER = """
import errno, mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
mapped = mmap.mmap(fd, 0)
for at in range(1 << 20, len(mapped), 4096):
    mapped[at] = 1
try:
    mapped.flush()
    print("written")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


@needs_fuse
@pytest.mark.parametrize("kind", ["bound", "namespace", "filesystem"])
def test_who_stores_into_a_map_where_there_is_no_room_is_told_so_and_not_killed(
    home: Path, point: Path, kind: str
) -> None:
    with full(kind, home) as of:
        with engram.mount(of.pool, point, namespace=of.namespace):
            storer = begin(STORER, point / "sparse")
            said, _ = storer.communicate(timeout=PATIENCE)
            assert (storer.returncode, said) == (0, "ENOSPC\n")
            (point / "filler").unlink()
            storer = begin(STORER, point / "sparse")
            assert storer.communicate(timeout=PATIENCE)[0] == "written\n"
            found = (point / "sparse").read_bytes()
            assert found[MIB::4096] == b"\1" * (3 * MIB // 4096)
        assert content(of.tree, "sparse") == found
        assert engram.verify(of.pool).problems == []
