"""What a stage takes of memory, what it copies again after a kill, and how it keeps a rate."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import engram
from bench.harness import Bound, Line
from bench.stage import made
from bench.stage.made import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting
    from bench.stage.elsewhere import Elsewhere

FILES, SIZE = 8, 512 * MIB
MEMORY_LIMIT = 300 * MIB
PART = 64 * MIB
RATE = 100 * MIB
SECONDS = 10
RATE_LIMIT = 5.0
LOOK_S = 0.01


def lines(setting: Setting, _elsewhere: Elsewhere) -> Iterator[Line]:
    """Measure with 4 GiB."""
    size = setting.scaled(SIZE)
    source = made.files(setting.folder / "large", FILES, size)
    nbytes = FILES * size
    with made.pool(setting.folder / "pause.pool", 2 * nbytes) as path:
        yield from killed(path, source, nbytes)
    with made.pool(setting.folder / "pause.pool", 2 * nbytes) as path:
        yield kept(path, source, setting)
    shutil.rmtree(source)


def begun(path: Path, source: Path, *options: str) -> subprocess.Popen[bytes]:
    """Begin a stage-in in a process of its own."""
    words = ["stage", "in", str(path), str(source), "--to", "in", "--name", "in", *options]
    return subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-m", "engram", *words], stdout=subprocess.DEVNULL
    )


def anonymous(pid: int) -> int:
    """Return how much memory of its own a process has, in bytes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def killed(path: Path, source: Path, nbytes: int) -> Iterator[Line]:
    """Kill a stage when it has read half of the bytes, and see what the next one reads again."""
    stage, most, first = begun(path, source), 0, 0
    while stage.poll() is None and first < nbytes // 2:
        most, first = max(most, anonymous(stage.pid)), read_bytes(stage.pid)
        time.sleep(LOOK_S)
    stage.send_signal(signal.SIGSTOP)
    first = read_bytes(stage.pid)
    stage.send_signal(signal.SIGKILL)
    stage.wait()
    before = read_bytes(os.getpid())
    made.whole(engram.stage.bring_in(path, {str(source): "in"}, name="in"))
    second = read_bytes(os.getpid()) - before
    workers = min(max(os.cpu_count() or 2, 2), 8)
    again = Line(
        "read again after a kill at half",
        "MiB",
        [Bound("engram", "", "value", float(workers * PART))],
        {"engram": [float(max(first + second - nbytes, 0))]},
    )
    again.remarks.append(
        f"{workers} workers; {first // MIB} MiB read before, with what Python reads at its start, "
        f"and {second // MIB} MiB afterwards"
    )
    yield again
    yield Line(
        "anonymous memory of a stage-in",
        "MiB",
        [Bound("engram", "", "value", float(MEMORY_LIMIT))],
        {"engram": [float(most)]},
    )


def read_bytes(pid: int) -> int:
    """Return how many bytes a process has read by system calls."""
    text = Path(f"/proc/{pid}/io").read_text(encoding="utf-8")
    found = re.search(r"rchar: (\d+)", text)
    return int(found[1]) if found else 0


def kept(path: Path, source: Path, setting: Setting) -> Line:
    """Compare a rate with what moves in ten seconds."""
    seconds = SECONDS // 5 if setting.quick else SECONDS
    with engram.stage.begin_in(path, {str(source): "in"}, rate=RATE) as stage:
        while stage.progress().nbytes == 0:
            time.sleep(LOOK_S)
        first, start = stage.progress().nbytes, time.perf_counter()
        time.sleep(seconds)
        moved, taken_s = stage.progress().nbytes - first, time.perf_counter() - start
        stage.set_rate(None)
    off = abs(moved / taken_s / RATE - 1)
    return Line(
        f"off a rate of {RATE // MIB} MiB/s over {seconds} s",
        "%",
        [Bound("engram", "", "value", RATE_LIMIT / 100)],
        {"engram": [off]},
    )
