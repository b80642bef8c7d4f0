"""Several processes at once on a mount, and beside it: they append, cut, rename and look."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

import engram
from mounted import (
    APPENDER,
    EXCHANGE,
    INSIDE,
    LINES,
    NOREPLACE,
    all_ended,
    append,
    begin,
    check_appended,
    needs_fuse,
    place,
)
from support import PATIENCE

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = needs_fuse

LONG = 600.0
MIB = 1 << 20


@pytest.mark.parametrize("cache", ["job", "shared", "none"])
def test_two_processes_append_and_no_line_is_lost_torn_or_doubled(
    pool: engram.Pool, point: Path, cache: Any
) -> None:
    with engram.mount(pool, point, cache=cache):
        append((point / "log", point / "log"), LINES, LONG)
        check_appended((point / "log").read_bytes(), LINES)
    check_appended(bytes(pool["log"]), LINES)


@pytest.mark.parametrize("cache", ["shared", "none"])
def test_one_appends_on_the_mount_and_one_in_python(
    pool: engram.Pool, point: Path, cache: Any
) -> None:
    with engram.mount(pool, point, cache=cache):
        inside = begin(INSIDE, pool.path, "one", LINES, knows=True)
        outside = begin(APPENDER, point / "log", "two", LINES)
        all_ended(inside, outside, patience=LONG)
        check_appended(bytes(pool["log"]), LINES)
        fd = os.open(point / "log", os.O_RDONLY)
        with os.fdopen(fd, "rb") as file:
            check_appended(file.read(), LINES)


def test_two_append_in_python_while_the_mount_shows_it(pool: engram.Pool, point: Path) -> None:
    with engram.mount(pool, point):
        writers = [begin(INSIDE, pool.path, name, LINES, knows=True) for name in ("one", "two")]
        while any(writer.poll() is None for writer in writers):
            if (point / "log").exists():
                seen = (point / "log").read_bytes()
                assert all(len(line) == len(b"one 0000000") for line in seen.splitlines()[:-1])
        all_ended(*writers, patience=LONG)
        check_appended((point / "log").read_bytes(), LINES)


SAID = """
import ctypes, os, random, sys, time
libc = ctypes.CDLL(None, use_errno=True)
until = time.monotonic() + 3
def goes_on():
    return time.monotonic() < until
"""
"""What programs of this file begin with: they go on for three seconds."""

WORDS = 1 << 17
"""So many words of 8 bytes a file of `WRITER`'s has at most; each is its place, or 0."""

WRITER = (
    SAID
    + """
import struct
path, seed, words = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
while goes_on():
    first = random.randrange(words)
    count = min(random.choice((1, 7, 600, 5000)), words - first)
    data = struct.pack(f"<{count}Q", *range(first + 1, first + count + 1))
    assert os.pwrite(fd, data, first * 8) == len(data)
"""
)
CUTTER = (
    SAID
    + """
path, seed, words = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
wide = ctypes.c_int64
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
while goes_on():
    place = random.randrange(words) * 8
    match random.randrange(4):
        case 0:
            os.ftruncate(fd, place)
        case 1:
            os.truncate(path, place)
        case 2:
            assert libc.fallocate64(fd, 3, wide(place), wide(8 * 3000)) == 0
        case 3:
            os.close(os.open(path, os.O_RDWR | os.O_TRUNC))
"""
)
READER = (
    SAID
    + """
import array
path = sys.argv[1]
looked = 0
while goes_on():
    with open(path, "rb", buffering=0) as file:
        file.seek(random.randrange(1 << 17) * 8)
        first, data = file.tell() // 8, file.read(40000)
        words = array.array("Q", data[: len(data) // 8 * 8])
        for n, word in enumerate(words):
            assert word in (0, first + n + 1), (first + n, word)
        looked += len(words)
print(looked)
"""
)


def words_of(data: bytes) -> list[int]:
    assert len(data) % 8 == 0
    return memoryview(data).cast("Q").tolist()


@pytest.mark.parametrize("cache", ["job", "shared", "none"])
def test_a_file_is_cut_and_punched_beside_writers_and_each_word_is_its_own(
    pool: engram.Pool, point: Path, cache: Any
) -> None:
    with engram.mount(pool, point, cache=cache):
        path = point / "file"
        path.write_bytes(b"")
        working = [
            begin(WRITER, path, 1, WORDS),
            begin(WRITER, path, 2, WORDS),
            begin(CUTTER, path, 3, WORDS),
        ]
        *_, looked = all_ended(*working, begin(READER, path))
        assert int(looked) > 0
        seen = path.read_bytes()
        assert path.stat().st_size == len(seen) == pool["file"].nbytes
    assert bytes(pool["file"]) == seen
    assert all(word in {0, n + 1} for n, word in enumerate(words_of(seen)))
    assert engram.verify(pool.path).problems == []


EMPTIER = (
    SAID
    + """
path = sys.argv[1]
fd = os.open(path, os.O_RDWR)
while goes_on():
    os.ftruncate(fd, 0)
    time.sleep(0.001)
"""
)
NUMBERER = (
    SAID
    + """
path, name, n = sys.argv[1], sys.argv[2].encode(), 0
fd = os.open(path, os.O_WRONLY | os.O_APPEND)
while goes_on():
    line = b"%s %07d\\n" % (name, n)
    assert os.write(fd, line) == len(line)
    n += 1
print(n)
"""
)


@pytest.mark.parametrize("cache", ["job", "shared", "none"])
def test_a_log_is_emptied_beside_appenders_and_has_whole_lines(
    pool: engram.Pool, point: Path, cache: Any
) -> None:
    with engram.mount(pool, point, cache=cache):
        log = point / "log"
        log.write_bytes(b"")
        working = [begin(NUMBERER, log, "one"), begin(NUMBERER, log, "two")]
        emptier = begin(EMPTIER, log)
        looks = 0
        while any(process.poll() is None for process in working):
            numbered_lines(bytes(pool["log"]))
            looks += 1
        assert looks > 0
        one, two, _ = all_ended(*working, emptier)
        assert int(one) > 0 < int(two)
        last = {b"one": -1, b"two": -1}
        for name, number in numbered_lines(log.read_bytes()):
            assert number > last[name], (name, number)
            last[name] = number
    assert engram.verify(pool.path).problems == []


def numbered_lines(data: bytes) -> list[tuple[bytes, int]]:
    """Give the lines, and see that they are whole; a look may end within one.

    Their order says nothing of a look beside the emptier: behind what was written anew it may
    have lines of before, as on a disk.
    """
    lines = []
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            assert data.endswith(line)  # of a job mount: the kernel cuts it where a page ends
            break
        name, _, number = line.partition(b" ")
        assert len(line) == len(b"one 0000000\n"), line
        assert name in {b"one", b"two"}, line
        lines.append((name, int(number)))
    return lines


# Renaming


def test_what_renames_of_two_mounts_replace_gives_its_space_back(
    pool: engram.Pool, point: Path
) -> None:
    replacer = """
import os, sys
for n in range(60):
    with open(sys.argv[1], "wb") as file:
        file.write(bytes(1 << 20))
    os.replace(sys.argv[1], sys.argv[2])
"""
    with place() as other, engram.mount(pool, point), engram.mount(pool, other):
        all_ended(
            *(begin(replacer, at / f"new-{n}", at / "name") for n, at in enumerate((point, other)))
        )
        end = time.monotonic() + PATIENCE
        while pool.space.used > 4 * MIB:  # a mount keeps what it replaced for some seconds
            assert time.monotonic() < end
            time.sleep(0.2)


FOLDERS = ("", "a", "b", "a/c")
FILES = 24

RENAMER = (
    SAID
    + """
import errno
top, seed, flags = sys.argv[1], int(sys.argv[2]), [int(word) for word in sys.argv[3].split()]
random.seed(seed)
names = sys.argv[4].split(",")
allowed = {errno.ENOENT, errno.EEXIST, errno.EINVAL, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR}
if sys.argv[5] == "True":  # a folder that another mount has replaced
    allowed.add(errno.ESTALE)
done = 0
def anywhere():
    folder = random.choice(("", "a/", "b/", "a/c/", "b/a/", "c/", "b/c/", "a/b/"))
    return f"{top}/{folder}{random.choice(names)}".encode()
while goes_on():
    if libc.renameat2(-100, anywhere(), -100, anywhere(), random.choice(flags)) == 0:
        done += 1
    else:
        number = ctypes.get_errno()
        assert number in allowed, (errno.errorcode[number], flags)
print(done)
"""
)
LOOKER = (
    SAID
    + """
import errno, json
top, known, names = sys.argv[1], json.loads(sys.argv[2]), set(sys.argv[3].split(","))
looked = 0
def look(path):
    global looked
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno == errno.ESTALE and sys.argv[4] == "True":
            return
        raise
    try:
        about = os.fstat(fd)
        content = os.read(fd, 20000)
    except IsADirectoryError:
        return
    finally:
        os.close(fd)
    assert known[str(about.st_ino)] == content[:10].decode(), path
    assert content == content[:10] * (about.st_size // 10), path
    looked += 1
while goes_on():
    for folder in ("", "a", "b", "a/c", "b/a", "c", "b/c", "a/b"):
        try:
            listed = os.listdir(f"{top}/{folder}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == errno.ESTALE and sys.argv[4] == "True":
                continue
            raise
        assert len(set(listed)) == len(listed)
        if folder == "":
            assert "still" in listed
        for name in listed:
            assert name in names or name == "still", name
            try:
                look(f"{top}/{folder}/{name}")
            except NotADirectoryError:
                pass
print(looked)
"""
)


def renamed_meanwhile(
    tops: tuple[Path, Path], flags: tuple[int, ...]
) -> tuple[dict[int, str], list[subprocess.Popen[str]]]:
    """Make files in folders, and have processes rename these and look at them."""
    known = {}
    for folder in FOLDERS:
        (tops[0] / folder).mkdir(exist_ok=True)
    for n in range(FILES):
        path = tops[0] / FOLDERS[n % len(FOLDERS)] / f"f{n}"
        path.write_bytes(b"number %03d" % n * (1 + n % 2 * 1000))  # in the record, and not
        known[path.stat().st_ino] = f"number {n:03}"
    (tops[0] / "still").write_bytes(b"still here")
    known[(tops[0] / "still").stat().st_ino] = "still here"
    names = ",".join(["a", "b", "c", *(f"f{n}" for n in range(FILES))])
    words = " ".join(map(str, flags))
    told = "{" + ", ".join(f'"{ino}": "{text}"' for ino, text in known.items()) + "}"
    others = tops[0] != tops[1]
    working = [begin(RENAMER, tops[seed % 2], seed, words, names, others) for seed in range(3)]
    working += [begin(LOOKER, top, told, names, others) for top in tops]
    return known, working


def found_below(top: Path) -> dict[int, bytes]:
    """Give the files of a tree, by their numbers: the first bytes of each."""
    found: dict[int, bytes] = {}
    for folder, _, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)  # noqa: PTH118 - it is text
            number = os.stat(path).st_ino  # noqa: PTH116
            assert number not in found
            with open(path, "rb") as file:  # noqa: PTH123
                found[number] = file.read()[:10]
    return found


@pytest.mark.parametrize("both", [False, True], ids=["one mount", "two mounts"])
def test_what_is_exchanged_and_not_replaced_is_all_there(
    pool: engram.Pool, point: Path, both: bool
) -> None:
    other = point.parent / "other"
    other.mkdir()
    with engram.mount(pool, point), engram.mount(pool, other):
        tops = (point, other if both else point)
        known, working = renamed_meanwhile(tops, (EXCHANGE, NOREPLACE, EXCHANGE))
        assert all(int(said) > 0 for said in all_ended(*working))
    with engram.mount(pool, point):
        found = found_below(point)
        assert {number: data.decode() for number, data in found.items()} == known
    assert engram.verify(pool.path).problems == []


@pytest.mark.parametrize("both", [False, True], ids=["one mount", "two mounts"])
def test_what_is_renamed_over_others_is_what_it_was(
    pool: engram.Pool, point: Path, both: bool
) -> None:
    other = point.parent / "other"
    other.mkdir()
    with engram.mount(pool, point), engram.mount(pool, other):
        tops = (point, other if both else point)
        known, working = renamed_meanwhile(tops, (0, EXCHANGE))
        assert all(int(said) > 0 for said in all_ended(*working))
    with engram.mount(pool, point):
        for number, data in found_below(point).items():
            assert known[number] == data.decode()
    assert engram.verify(pool.path).problems == []


REPLACER = (
    SAID
    + """
top, name, n = sys.argv[1], sys.argv[2], 0
while goes_on():
    with open(f"{top}/{name}.new", "wb") as file:
        file.write(b"%s %07d\\n" % (name.encode(), n) * 500)
    os.rename(f"{top}/{name}.new", f"{top}/current")
    n += 1
print(n)
"""
)
FOLLOWER = (
    SAID
    + """
path, looked = sys.argv[1], 0
while goes_on():
    with open(path, "rb", buffering=0) as file:  # it is there at each moment
        content = file.read()
    assert content == content[:12] * 500, content[:40]
    looked += 1
print(looked)
"""
)


def test_a_name_that_is_replaced_again_and_again_is_always_there_and_whole(
    pool: engram.Pool, point: Path
) -> None:
    with engram.mount(pool, point):
        (point / "current").write_bytes(b"one 0000000\n" * 500)
        working = [begin(REPLACER, point, name) for name in ("one", "two")]
        working += [begin(FOLLOWER, point / "current") for _ in range(2)]
        assert all(int(said) > 0 for said in all_ended(*working))
    assert list(pool) == ["current"]
    assert engram.verify(pool.path).problems == []


def test_what_a_rename_replaces_gives_its_space_back_at_once(home: Path, point: Path) -> None:
    with engram.create(home / "small", size="20 MiB", force=True) as pool:
        with engram.mount(pool, point):
            for _ in range(30):
                (point / "new").write_bytes(bytes(5 * MIB))
                (point / "new").rename(point / "current")
                with (point / "current").open("ab") as file:
                    file.write(bytes(6 * MIB))
        assert pool.space.used < 12 * MIB
    assert engram.verify(home / "small").problems == []


# Files without a name

HOLDER = """
import os, sys
fds = []
for n in range(4):
    path = f"{sys.argv[1]}/{n}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 10 << 20)
    os.write(fd, b"mine")
    os.unlink(path)
    assert os.pread(fd, 4, 0) == b"mine"
    fds.append(fd)
print("held", flush=True)
input()
"""
INSIDE_HOLDER = """
import sys, engram
pool = engram.open(sys.argv[1])
files = []
for n in range(4):
    file = pool.open_file(f"{n}", "w+")
    file.allocate(0, 10 << 20)
    del pool[f"{n}"]
    files.append(file)
print("held", flush=True)
input()
"""


@pytest.mark.parametrize("who", ["program", "mount", "python"])
def test_files_without_a_name_of_who_was_killed_give_their_space_back(
    home: Path, point: Path, who: str
) -> None:
    with engram.create(home / "small", size="64 MiB", force=True) as pool:
        mount = engram.mount(pool, point)
        for _ in range(3):  # each takes more than half of the pool
            if who == "python":
                holder = begin(INSIDE_HOLDER, pool.path, knows=True)
            else:
                holder = begin(HOLDER, point)
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert list(pool) == []
            with pytest.raises(engram.PoolFullError):
                pool["other"] = bytes(40 * MIB)
            if who == "mount":
                os.kill(mount.pid, signal.SIGKILL)
            holder.kill()
            holder.communicate(timeout=PATIENCE)
            if who == "mount":
                mount.unmount()
                mount = engram.mount(pool, point)
            (point / "whole").write_bytes(bytes(40 * MIB))
            (point / "whole").unlink()
        mount.unmount()
        assert pool.space.used < MIB
    assert engram.verify(home / "small").problems == []
