"""Many processes write, read and die over the files of one pool: each file is seen whole."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import fsspec
import pytest

import engram
from support import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Begin = Callable[..., subprocess.Popen[str]]

SEED = 20240229
STEPS = 6

WRITER = """
import random, sys, fsspec
top, me, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
fs, rng = fsspec.filesystem("engram"), random.Random(seed)

def value(n):
    return b"%s-%06d\\n" % (me.encode(), n) * rng.choice([1, 20, 3000, 60_000])

n = 0
while True:
    way = rng.randrange(5)
    if way == 0:
        fs.pipe(f"{top}/files/{rng.randrange(4)}", value(n))
    elif way == 1:
        with fs.open(f"{top}/files/{rng.randrange(4)}", "wb") as file:
            content = value(n)
            for at in range(0, len(content), 50_000):
                file.write(content[at : at + 50_000])
    elif way == 2:
        content = value(n)
        with fs.transaction:
            fs.pipe(f"{top}/pair/a", content)
            with fs.open(f"{top}/pair/b", "wb") as file:
                file.write(content)
    elif way == 3:
        fs.pipe(f"{top}/new/{me}", value(n))
        fs.mv(f"{top}/new/{me}", f"{top}/files/{rng.randrange(4)}")
    else:
        fs.pipe(f"{top}/gone/{me}/deep/{n}", value(n))
        fs.rm(f"{top}/gone/{me}", recursive=True)
    with fs.open(f"{top}/log", "ab") as file:
        file.write(b"%s %06d\\n" % (me.encode(), n))
    print(n, flush=True)
    n += 1
"""

READER = """
import sys, select, fsspec
fs, top = fsspec.filesystem("engram", pool_mode=sys.argv[2]), sys.argv[1]

def whole(content):
    line = content[: content.index(b"\\n") + 1]
    assert content == line * (len(content) // len(line)), content[:100]
    return content

seen, told_to_stop = 0, False
while not told_to_stop:
    told_to_stop = bool(select.select([sys.stdin], [], [], 0)[0])
    for entry in fs.ls(f"{top}/files"):
        whole(fs.cat(entry["name"]))
        with fs.open(entry["name"]) as file:
            assert len(whole(b"".join(file))) == file.size
        seen += 1
    if fs.exists(f"{top}/pair"):
        first, other, again = (fs.cat(f"{top}/pair/{name}") for name in "aba")
        assert first != again or first == other, (first[:20], other[:20])
    for line in fs.cat(f"{top}/log").splitlines(keepends=True):
        assert len(line) == 9 and line.endswith(b"\\n"), line
print(seen)
"""


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begin processes apart; those that a failed test leaves are ended."""
    with contextlib.ExitStack() as left:

        def begin(code: str, *arguments: object) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", code, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            left.callback(end, process)
            return process

        yield begin


def end(process: subprocess.Popen[str]) -> None:
    """End a process that may have ended, and let go of its pipes."""
    if process.poll() is None:
        process.kill()
        process.communicate()
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


def killed_after(writer: subprocess.Popen[str], turns: int) -> int:
    """Kill a writer once it has acknowledged so many turns; return the last that it has."""
    assert writer.stdout is not None
    acknowledged = -1
    while acknowledged < turns:
        line = writer.stdout.readline()
        assert line, writer.communicate()[1]
        acknowledged = int(line)
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read()
    writer.communicate(timeout=PATIENCE)
    whole = rest[: rest.rfind("\n") + 1].split()  # a line that was cut short was not acknowledged
    return int(whole[-1]) if whole else acknowledged


def test_files_are_whole_whoever_writes_reads_and_dies(pool: engram.Pool, begin: Begin) -> None:
    fs = fsspec.filesystem("engram")
    top = pool.path
    fs.pipe({f"{top}/files/0": b"old\n", f"{top}/log": b""})
    readers = [begin(READER, top, mode) for mode in ("r", "r+")]
    rng = random.Random(SEED)  # noqa: S311 - when to kill
    done: dict[str, int] = {}
    for step in range(STEPS):
        writers = {name: begin(WRITER, top, name, step) for name in (f"{step}", chr(97 + step))}
        for name, writer in writers.items():
            done[name] = killed_after(writer, rng.randrange(3, 25))
    for reader in readers:
        output, errors = reader.communicate("stop\n", timeout=PATIENCE)
        assert reader.returncode == 0, errors
        assert int(output) > 0
    lines = fs.cat(f"{top}/log").decode().splitlines()
    for name, last in done.items():
        own = [int(line.split()[1]) for line in lines if line.split()[0] == name]
        # What follows the last acknowledged may be there too.
        assert own in (list(range(last + 1)), list(range(last + 2)))
    fs.close()
    assert engram.verify(top).problems == []
    for name in ("files", "pair", "new", "gone"):
        pool.pop(name, None)
    del pool["log"]
    pool["all"] = bytes(pool.size - (16 << 20))  # what the dead had reserved has come back


@pytest.mark.parametrize("when", ["open", "written", "within a transaction"])
def test_a_writer_that_is_killed_in_mid_write_leaves_what_was_there(
    pool: engram.Pool, begin: Begin, when: str
) -> None:
    code = (
        "import fsspec, sys\n"
        "fs = fsspec.filesystem('engram')\n"
        "if sys.argv[2] == 'within a transaction':\n"
        "    fs.start_transaction()\n"
        "    fs.pipe(sys.argv[1] + '/new', b'1')\n"
        "file = fs.open(sys.argv[1] + '/f', 'wb')\n"
        "if sys.argv[2] != 'open':\n"
        "    file.write(bytes(10_000_000))\n"
        "if sys.argv[2] == 'within a transaction':\n"
        "    file.close()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    pool["f"] = b"old"
    writer = begin(code, pool.path, when)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    writer.kill()
    writer.communicate()
    assert pool["f"][...] == b"old"
    assert list(pool) == ["f"]
    assert engram.verify(pool.path).problems == []


def test_two_that_move_files_to_one_name_both_succeed(pool: engram.Pool, begin: Begin) -> None:
    code = """
import sys, fsspec
fs, top, me = fsspec.filesystem("engram"), sys.argv[1], sys.argv[2]
sys.stdin.readline()
for n in range(400):
    fs.pipe(f"{top}/new/{me}", b"%d" % n)
    fs.mv(f"{top}/new/{me}", f"{top}/files/one")
    try:
        fs.rm(f"{top}/files/one")
    except FileNotFoundError:
        pass
"""
    movers = [begin(code, pool.path, name) for name in "ab"]
    for mover in movers:
        assert mover.stdin is not None
        mover.stdin.write("go\n")
        mover.stdin.flush()
    for mover in movers:
        _, errors = mover.communicate(timeout=PATIENCE)
        assert mover.returncode == 0, errors


def test_another_user_is_refused_by_the_kernel(
    pool: engram.Pool, begin: Begin, tmp_path: Path
) -> None:
    import os  # noqa: PLC0415 - only here

    if os.getuid() != 0:
        pytest.skip("it takes root to be another user")
    pool["f"] = b"mine"
    assert tmp_path
    code = (
        "import sys, os, fsspec, engram.fsspec\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "fs = fsspec.filesystem('engram')\n"
        "try:\n"
        "    fs.cat(sys.argv[1] + '/f')\n"
        "except PermissionError as error:\n"
        "    print('refused', error.errno)\n"
        "print(fs.exists(sys.argv[1] + '/f'))\n"
    )
    other = begin(code, pool.path)
    output, errors = other.communicate(timeout=PATIENCE)
    assert output.splitlines() == ["refused 13", "False"], errors
