"""No room: in the pool, in a namespace, on the filesystem below, whatever is done to files.

What is refused for want of room leaves all as it was, through a mount, below a prefix and in Python
alike. Deleting works, and what it gives back can be used.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import engram
import native
import preloaded
import room
from mounted import code_of, needs_fuse
from room import KEPT, MIB, MUCH
from support import BIG, PATIENCE, small_tmpfs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore:sealing the index failed:engram.EngramWarning")
"""Where nothing has room, the index has none, either, and says so."""

MANY = 20_000
"""So many names fill the catalog of a full filesystem, and more."""


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
    """Give everything that takes or frees room, done in Python; each is told which time it is."""

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
            file.allocate(0, MUCH)

    def truncate(path: str, size: int) -> None:
        with tree.open_file(path, "r+") as file:
            file.truncate(size)

    def clears(_: int) -> None:
        for name in list(tree):
            del tree[name]
        assert list(tree) == []

    def anew(nbytes: int) -> None:
        write("again", "wb", 0, bytes(nbytes))
        del tree["again"]

    return {
        "overwrite": overwrites,
        "extend": lambda _: write("data", "r+", len(BIG), bytes(MUCH)),
        "append": lambda _: write("data", "ab", 0, bytes(MUCH)),
        "fill a hole": lambda _: write("sparse", "r+", 2 * MIB, b"y" * MIB),
        "outgrow the record": lambda _: write("small", "r+", 1000, b"y" * 100_000),
        "allocate": allocates,
        "create": lambda n: tree.create_file(f"created {n}"),
        "mkdir": lambda n: tree.create_group(f"made {n}"),
        "link": lambda n: tree.link("data", f"link {n}"),
        "symlink": lambda n: tree.symlink("x" * 900, f"symbolic {n}"),
        "setxattr": lambda n: tree["data"].attrs.__setitem__(f"key {n}", "v" * 20_000),
        "rename": lambda _: tree.move("folder", "moved"),
        "grow": lambda _: truncate("grown", MUCH),
        "cut by opening": lambda _: tree.open_file("cut", "wb").close(),
        "cut": lambda _: truncate("data", 5000),
        "clear": clears,
        "write anew": anew,
    }


def below(of: Full, home: Path) -> preloaded.Prefix:
    """Give a prefix below which programs find a namespace."""
    named = {"ENGRAM_RUN_NAMESPACE": of.namespace}
    return preloaded.Prefix(str(of.pool), home / "seen", named)


@contextmanager
def through_prefix(of: Full, home: Path) -> Iterator[dict[str, Callable[[int], object]]]:
    """Give the same, done by a preloaded program, which begins where there is no room."""
    prefix = below(of, home)
    program = subprocess.Popen(
        [sys.executable, room.__file__, prefix.path],
        env={**os.environ, **prefix.settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        says, does = program.stdout, program.stdin
        assert says is not None
        assert does is not None

        def asked(what: str, n: int) -> None:
            does.write(f"{what} {n}\n")
            does.flush()
            said = says.readline()
            assert said.endswith("\n"), f"{what}: the program has ended"
            if name := said.strip():
                number = getattr(errno, name)
                raise OSError(number, os.strerror(number))

        yield {what: partial(asked, what) for what in room.by_calls(prefix.path)}
        does.close()
        assert program.wait(PATIENCE) == 0


NAMES = (
    *("create", "fopen", "mkstemp", "mkdir", "link", "symlink", "mkfifo", "mknod", "setxattr"),
)
"""What finds room in a catalog that may grow."""
CHANGES = (
    *("rename", "exchange", "replace", "chmod", "chown", "utimens", "grow", "pierce"),
    "cut by opening",
)
"""What takes no more room than what it frees, or nearly."""
FREES = ("cut", "clear", "write anew")
"""What is done with a full namespace in the end."""


def content(tree: Any, path: str) -> bytes:
    with tree.open_file(path) as file:
        return bytes(file.readall())


def check_kept(tree: Any, *, size_may_grow: bool) -> None:
    """See that what was there is as it was; what a write of several parts has added is zeros."""
    for path in ("data", "small", "sparse", "grown"):
        found, data = content(tree, path), KEPT[path]
        rest = found[len(data) :]
        assert found.startswith(data) or path == "sparse", path
        assert not rest or (size_may_grow and not rest.strip(b"\0y")), path
    sparse = content(tree, "sparse")
    written = sparse[2 * MIB : 3 * MIB]
    assert sparse[: 2 * MIB] + sparse[3 * MIB :] == KEPT["sparse"][: 3 * MIB]
    assert not written.strip(b"\0y")
    assert not written.lstrip(b"y").strip(b"\0"), "it is written up to some place"


def check_changed(tree: Any, done: dict[str, str]) -> None:
    """See that what was done is done, what was renamed has one name, and the rest is as it was."""
    assert ("folder" in tree, "moved" in tree) == ((done["rename"] != ""), (done["rename"] == ""))
    assert "inner" in tree["moved" if done["rename"] == "" else "folder"]
    assert content(tree, "cut") == (b"" if done["cut by opening"] == "" else KEPT["cut"])
    assert len(content(tree, "grown")) == (MUCH if done["grow"] == "" else len(KEPT["grown"]))
    is_pierced = done.get("pierce", "refused") == ""
    assert content(tree, "pierced")[:32768] == (b"\0" if is_pierced else b"p") * 32768
    assert content(tree, "pierced")[32768:] == b"p" * 32768
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


def refused_and_recovered(of: Full, acts: dict[str, Callable[[int], object]]) -> None:
    """Do all that takes room where there is none; then delete, and go on."""
    tree = of.tree
    done = {}
    for what, act in acts.items():
        if what in FREES:
            continue
        again = what in NAMES and not of.has_names
        done[what] = until_refused(act) if again else code(lambda: act(0))  # noqa: B023
        if what in CHANGES:
            expected = {"", "ENOSPC"}
        elif what == "overwrite" or (what in NAMES and of.has_names):
            expected = {""}
        else:
            expected = {"ENOSPC"}
        assert done[what] in expected, what
        check_kept(tree, size_may_grow=True)
    check_changed(tree, done)
    check_names(tree, of.has_names)
    acts["cut"](0)
    assert content(tree, "data") == BIG[:5000]
    used = tree.space.used
    acts["clear"](0)
    assert list(tree) == []
    for _ in range(2):
        acts["write anew"](used * 3 // 4)


@pytest.mark.parametrize("kind", ["bound", "namespace", "filesystem"])
def test_python_is_refused_where_there_is_no_room_and_nothing_is_torn(
    home: Path, kind: str
) -> None:
    with full(kind, home) as of:
        refused_and_recovered(of, through_python(of.tree))
        assert engram.verify(of.pool).problems == []


@needs_fuse
@pytest.mark.parametrize("cache", ["shared", "job", "none"])
@pytest.mark.parametrize("kind", ["bound", "namespace", "filesystem"])
def test_a_mount_refuses_where_there_is_no_room_and_nothing_is_torn(
    home: Path, point: Path, kind: str, cache: Any
) -> None:
    with full(kind, home) as of:
        with engram.mount(of.pool, point, namespace=of.namespace, cache=cache):
            refused_and_recovered(of, room.by_calls(point))
        assert engram.verify(of.pool).problems == []


@preloaded.needs_library
@pytest.mark.parametrize("kind", ["bound", "namespace", "filesystem"])
def test_a_preloaded_program_is_refused_where_there_is_no_room_and_nothing_is_torn(
    home: Path, kind: str
) -> None:
    with full(kind, home) as of:
        with through_prefix(of, home) as acts:
            refused_and_recovered(of, acts)
        assert engram.verify(of.pool).problems == []


STORER = """
import errno, mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    mapped = mmap.mmap(fd, 0)
    for at in range(int(sys.argv[2]), len(mapped), 4096):
        mapped[at] = 1
    mapped.flush()
    print("written")
except OSError as error:
    print(errno.errorcode[error.errno])
"""

Run = Callable[..., str]
FRONTS = [
    pytest.param("mount", marks=needs_fuse),
    pytest.param("prefix", marks=preloaded.needs_library),
]


@contextmanager
def shown(of: Full, front: str, point: Path) -> Iterator[tuple[Path, Run]]:
    """Give a folder with what is in a namespace, and what runs programs that find it there."""
    if front == "mount":
        with engram.mount(of.pool, point, namespace=of.namespace):
            yield point, native.run
    else:
        prefix = below(of, point)
        yield prefix.path, prefix.run


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("kind", ["bound", "namespace", "filesystem"])
def test_who_stores_into_a_map_where_there_is_no_room_is_told_so_and_not_killed(
    home: Path, point: Path, kind: str, front: str
) -> None:
    with full(kind, home) as of:
        with shown(of, front, point) as (top, run):

            def stored(path: str, start: int) -> str:
                return run(sys.executable, "-I", "-c", STORER, top / path, str(start)).strip()

            assert stored("sparse", MIB) == "ENOSPC"
            # The kernel has pages of its own for a mount's files.
            assert stored("small", 0) == ("written" if front == "mount" else "ENOSPC")
            run("rm", top / "filler")
            assert [stored("sparse", MIB), stored("small", 0)] == ["written", "written"]
        found = content(of.tree, "sparse")
        assert found[:MIB] == KEPT["sparse"][:MIB]
        assert found[MIB::4096] == b"\1" * (3 * MIB // 4096)
        assert content(of.tree, "small") == b"\1" + KEPT["small"][1:]
        assert engram.verify(of.pool).problems == []


STARTER = """
import errno, os, subprocess, sys
top = sys.argv[1]
fd = os.open(f"{top}/data", os.O_RDWR)

def said(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]

child = os.fork()
if child == 0:
    print("fork:", said(os.pwrite, fd, b"by fork", 100), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
words = [sys.executable, "-I", "-c", sys.argv[2], str(fd), top]
beside = subprocess.run(words, pass_fds=[fd], capture_output=True, text=True)
print("beside:", beside.stdout.strip() + beside.stderr, flush=True)
os.set_inheritable(fd, True)
os.execv(sys.executable, words)
"""
STARTED = """
import errno, os, sys
fd, top = int(sys.argv[1]), sys.argv[2]
try:
    assert os.path.samestat(os.fstat(fd), os.stat(f"{top}/data"))
    print(os.pwrite(fd, b"started", 200))
except OSError as error:
    print(errno.errorcode[error.errno])
"""


@preloaded.needs_library
@pytest.mark.parametrize("kind", ["bound", "namespace", "filesystem"])
def test_children_begin_where_there_is_no_room(home: Path, kind: str) -> None:
    """On a full filesystem one process at a time finds room for its own part of the pool."""
    with full(kind, home) as of:
        prefix = below(of, home)
        said = prefix.run(sys.executable, "-I", "-c", STARTER, prefix.path, STARTED)
        beside = "7" if of.has_names else "ENOSPC"
        assert said.splitlines() == [f"fork: {beside}", f"beside: {beside}", "7"]
        expected = bytearray(BIG)
        expected[100:107] = b"by fork" if of.has_names else BIG[100:107]
        expected[200:207] = b"started"
        assert content(of.tree, "data") == expected
        assert engram.verify(of.pool).problems == []


OPENER = """
import errno, os, resource, signal, sys
top, most = sys.argv[1], resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
fd = os.open(f"{top}/file", os.O_RDWR)

def opened(wanted):
    for n in range(wanted):
        try:
            last = os.open(f"{top}/file", os.O_RDWR)
        except OSError as error:
            return n, errno.errorcode[error.errno]
    return n + 1, last

others, left = [], 65535
while left >= 0:
    out, into = os.pipe()
    if (child := os.fork()) == 0:
        n, last = opened(min(left + 1, most - 100))
        os.write(into, b"%d %s" % (n, str(last).encode()))
        signal.pause()
    n, said = os.read(out, 100).split()
    others.append(child)
    left -= int(n) or 1
print(said.decode(), left)
os.mkdir(f"{top}/folder")
os.rename(f"{top}/folder", f"{top}/moved")
assert os.pwrite(fd, b"full", 0) == 4
print(*opened(1))
if (child := os.fork()) == 0:
    os.pwrite(fd, b"fork", 4)
    os._exit(0 if opened(1) == (0, "ENFILE") else 1)
assert os.waitpid(child, 0)[1] == 0
for other in others:
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
print(opened(1)[0])
"""


@preloaded.needs_library
def test_who_opens_more_files_than_there_are_descriptions_is_told_so(
    pool: engram.Pool, home: Path
) -> None:
    pool.create_file("file")
    prefix = preloaded.of(pool, home)
    said = prefix.run(sys.executable, "-I", "-c", OPENER, prefix.path)
    assert said == "ENFILE -1\n0 ENFILE\n1\n"
    assert (list(pool), bytes(pool["file"])) == (["file", "moved"], b"fullfork")
