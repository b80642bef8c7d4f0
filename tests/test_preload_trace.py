"""What preloaded programs do is noted in a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

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


def test_a_pool_that_does_not_open_is_told(pool: engram.Pool, home: Path) -> None:
    trace, prefix = home / "trace", preloaded.of(pool, home)
    settings = {**os.environ, **prefix.settings, "ENGRAM_TRACE": str(trace)}
    settings["ENGRAM_RUN"] = f"{home}/none={prefix.path}"
    words = ["cat", str(prefix.path / "file")]
    ended = subprocess.run(words, env=settings, capture_output=True, text=True, check=False)
    assert "No such file or directory" in ended.stderr
    line = trace.read_text()
    assert ":refused:" in line
    assert "none" in line
    assert "`engram create" in line
