"""What preloaded programs do is noted in a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import native
import preloaded

if TYPE_CHECKING:
    from pathlib import Path

    import engram

pytestmark = preloaded.needs_library
SCRIPT = """
cd $1 && mkdir d && echo hello > d/a && cat d/a && mv d/a d/b && ln d/b d/c && ls d
truncate -s 100 d/b && rm d/b d/c && rmdir d
"""
DONE = [
    "create:/d/",
    "create:/d/a",
    "write:/d/a:0:6",
    "open:/d/a",
    "read:/d/a:0:6",
    "rename:/d/a:/d/b",
    "link:/d/b:/d/c",
    "opendir:/d",
    "readdir:/d",
    "closedir:/d",
    "open:/d/b",
    "truncate:/d/b",
    "unlink:/d/b",
    "unlink:/d/c",
    "unlink:/d/",
]
"""What the script does, in order; other lines stand between."""


def run(pool: engram.Pool, home: Path, *command: str, **more: str) -> str:
    """Run a program below a prefix, with more in its environment."""
    settings = {**os.environ, **preloaded.of(pool, home).settings, **more}
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=True).stdout


def told(line: str) -> str:
    """Give a line without its time and its process."""
    _, operation, _, _, rest = line.split(":", 4)
    return f"{operation}:{rest}"


def test_each_operation_of_all_processes_has_a_line(pool: engram.Pool, home: Path) -> None:
    trace, prefix = home / "trace", preloaded.of(pool, home)
    run(pool, home, "sh", "-c", SCRIPT, "sh", str(prefix.path), ENGRAM_TRACE=str(trace))
    lines = trace.read_text().splitlines()
    found = iter([told(line) for line in lines])
    assert [each for each in DONE if each not in found] == []
    assert len({line.split(":")[2] for line in lines}) > 3


def test_pieces_of_memory_and_holes_have_lines(pool: engram.Pool, home: Path) -> None:
    trace, prefix = home / "trace", preloaded.of(pool, home)
    file = str(prefix.path / "sparse")
    words = ("dd", "if=/dev/zero", f"of={file}", "bs=4096", "count=1")
    run(pool, home, *words, "seek=100", "conv=notrunc")
    run(pool, home, "cat", file, ENGRAM_TRACE=str(trace))
    low = [line.split(":") for line in trace.read_text().splitlines() if ":nvml_read:" in line]
    holes = sum(int(words[-1]) for words in low if words[-2] == "0x0")
    there = sum(int(words[-1]) for words in low if words[-2] != "0x0")
    assert (holes + there) == 101 * 4096
    assert there >= 4096


def test_a_refused_call_says_what_to_do(pool: engram.Pool, home: Path) -> None:
    trace, prefix = home / "trace", preloaded.of(pool, home)
    program = home / "watch.py"
    program.write_text(
        "import ctypes, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "watch = libc.inotify_init()\n"
        "print(libc.inotify_add_watch(watch, sys.argv[1].encode(), 2), ctypes.get_errno())\n"
    )
    path = str(prefix.path)
    said = run(pool, home, "python3", str(program), path, ENGRAM_TRACE=str(trace))
    assert said == "-1 95\n"
    refused = [line for line in trace.read_text().splitlines() if ":refused:" in line]
    assert len(refused) == 1
    assert "inotify_add_watch" in refused[0]
    assert "the mount" in refused[0]


REFUSED = """
import ctypes, fcntl, os, socket, sys
top = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)

def fails(call, *words):
    try:
        call(*words)
    except OSError as error:
        assert error.errno in {6, 22, 95}, (call, words, error)
    else:
        raise AssertionError((call, words))

os.chdir(top)
os.mkfifo("fifo")
open("file", "w").close()
fails(os.open, ".", os.O_TMPFILE | os.O_RDWR)
fails(os.open, "fifo", os.O_RDWR)
stream = socket.socket(socket.AF_UNIX)
fails(stream.bind, "socket")
fails(stream.connect, f"{top}/socket")
packet = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
fails(packet.sendto, b"x", f"{top}/socket")
fails(packet.sendmsg, [b"x"], [], 0, f"{top}/socket")
fails(os.setxattr, "file", "security.x", b"1")
with open("file") as file:
    fails(fcntl.fcntl, file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
assert libc.renameat2(-100, b"file", -100, b"other", 4) == -1
"""


def test_each_refused_call_has_a_line(pool: engram.Pool, home: Path) -> None:
    trace, prefix = home / "trace", preloaded.of(pool, home)
    words = ("python3", "-c", REFUSED, str(prefix.path))
    run(pool, home, *words, ENGRAM_TRACE=str(trace))
    refused = [line.split(":") for line in trace.read_text().splitlines() if ":refused:" in line]
    calls = ["open", "open", "bind", "connect", "sendto", "sendmsg", "setxattr", "fcntl"]
    assert [words[-2] for words in refused] == [*calls, "renameat2"]


def test_a_static_program_in_the_pool_has_a_line(pool: engram.Pool, home: Path) -> None:
    trace, prefix = home / "trace", preloaded.of(pool, home)
    source, program = home / "static.c", home / "static"
    source.write_text("int main(void) { return 0; }\n")
    native.run("cc", "-static", source, "-o", program)
    refused = f"cd {prefix.path}; {program} && exit 1; cd /; {program} > {prefix.path}/out"
    run(pool, home, "bash", "-c", refused, ENGRAM_TRACE=str(trace))
    lines = [line for line in trace.read_text().splitlines() if ":refused:" in line]
    assert [("mount of the pool" in line, "pipes" in line) for line in lines] == [
        (True, False),
        (False, True),
    ]


def test_a_ring_keeps_the_newest(pool: engram.Pool, home: Path) -> None:
    ring, prefix = home / "ring", preloaded.of(pool, home)
    loop = f"for i in $(seq 300); do echo $i > {prefix.path}/f$i; done"
    run(pool, home, "sh", "-c", loop, ENGRAM_TRACE_RING=f"{ring}:1MiB")
    assert ring.stat().st_size <= 1 << 20
    said = subprocess.run(
        [sys.executable, "-m", "engram", "trace", str(ring), "--raw"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ":write:" in said
    assert ":/f300" in said


@pytest.mark.parametrize(
    ("named", "what", "remedy"),
    [
        ("{home}/none={prefix}", "none", "`engram create"),
        ("{pool}:/absent={prefix}", '"absent"', "make that group"),
        ("garbage", '"garbage"', "write POOL[:PATH]=PREFIX"),
    ],
)
def test_a_pool_that_does_not_open_is_told_once(
    pool: engram.Pool, home: Path, named: str, what: str, remedy: str
) -> None:
    trace, prefix = home / "trace", preloaded.of(pool, home)
    settings = {**os.environ, **prefix.settings, "ENGRAM_TRACE": str(trace)}
    named = named.format(home=home, pool=pool.path, prefix=prefix.path)
    settings["ENGRAM_RUN"] = named
    words = ["cat", str(prefix.path / "file"), str(prefix.path / "other")]
    ended = subprocess.run(words, env=settings, capture_output=True, text=True, check=False)
    assert ended.stderr.count("No such file or directory") == 2
    told = [line for line in ended.stderr.splitlines() if line.startswith("engram: ")]
    assert len(told) == 1
    assert what in told[0]
    assert remedy in told[0]
    line = trace.read_text()
    assert ":refused:" in line
    assert remedy.replace(":", "%3A") in line
