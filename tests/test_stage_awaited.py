"""Files on their way into a pool: programs that open one wait until it is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import engram
import mounted
import preloaded
from support import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = 20
FRONTS = [pytest.param("mount", marks=mounted.needs_fuse), "run"]
INTERRUPTED = """
import signal, sys
class Alarm(Exception): pass
def handler(*_): raise Alarm
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    open(sys.argv[1])
except Alarm:
    print("interrupted")
"""


EACH = """
import sys, threading
missed = []
def look(paths):
    for path in paths:
        try:
            open(path).close()
        except OSError as error:
            missed.append(f"{path}: {error}")
paths = [f"{sys.argv[1]}/{number:03}" for number in range(int(sys.argv[2]))]
threads = [threading.Thread(target=look, args=[paths[at::8]]) for at in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(missed[:3] if missed else "all")
"""


class Front:
    """A pool as programs see it."""

    def __init__(self, name: str, pool: engram.Pool, home: Path, point: Path) -> None:
        self._prefix = preloaded.of(pool, home) if name == "run" else None
        self.folder = point if self._prefix is None else self._prefix.path

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin a program there."""
        settings = {} if self._prefix is None else self._prefix.settings
        return subprocess.Popen(
            words,
            env={**os.environ, "LC_ALL": "C", **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def said(program: subprocess.Popen[str]) -> str:
    """Give what a program says, which ends."""
    return program.communicate(timeout=PATIENCE)[0]


@pytest.fixture
def tree(home: Path) -> Path:
    """Give a folder with some files, the last of which is large."""
    (home / "from/deep").mkdir(parents=True)
    for number in range(FILES):
        (home / f"from/deep/f{number}").write_text(f"file {number}\n", encoding="utf-8")
    (home / "from/z").write_bytes(b"large\n" * 300_000)
    return home / "from"


@pytest.fixture(params=FRONTS)
def front(request: pytest.FixtureRequest, pool: engram.Pool, home: Path) -> Iterator[Front]:
    """Show a pool."""
    with mounted.place() as point:
        if request.param == "run":
            yield Front("run", pool, home, point)
            return
        with engram.mount(pool, point):
            yield Front("mount", pool, home, point)


def early(pool: engram.Pool, tree: Path, *words: str) -> int:
    """Begin a slow stage, of which the first file is there; give its process."""
    command = [sys.executable, "-m", "engram", "stage", "in", str(pool.path), str(tree)]
    more = [
        "--to",
        "in",
        "--early",
        "1files",
        "--order",
        "smallest",
        "--files-per-second",
        "1",
        "--name",
        "early",
        *words,
    ]
    subprocess.run([*command, *more], check=True, capture_output=True, timeout=PATIENCE)
    pid: int = engram.stage.status(pool, "early").pid
    return pid


def test_an_open_waits_for_what_is_on_its_way(front: Front, pool: engram.Pool, tree: Path) -> None:
    early(pool, tree)
    last = front.folder / "in/deep" / f"f{FILES - 1}"
    waiting = front.begin("cat", str(last))
    absent = front.begin("cat", str(front.folder / "in/deep/none"))
    assert "No such file" in said(absent), "what is not on its way is not waited for"
    with pytest.raises(engram.BusyError, match="on its way"):
        pool.open_file(f"in/deep/f{FILES - 1}")
    engram.stage.set_rate(pool, "early")
    assert said(waiting) == f"file {FILES - 1}\n"
    # Programs may append as soon as it is there, and what they remove is gone.
    appended = front.begin("sh", "-c", f"echo more >>{last} && cat {last} && rm {last}; cat {last}")
    told = said(appended)
    assert told.startswith(f"file {FILES - 1}\nmore\n")
    assert "No such file" in told
    large = front.begin("wc", "-c", str(front.folder / "in/z"))
    assert said(large).split()[0] == "1800000"


def test_nobody_waits_for_a_stage_that_is_gone(front: Front, pool: engram.Pool, tree: Path) -> None:
    stage = early(pool, tree, "--rate", "16KiB")
    waiting = front.begin("cat", str(front.folder / "in/z"))
    time.sleep(0.3)
    assert waiting.poll() is None
    os.kill(stage, signal.SIGKILL)
    assert "No such file" in said(waiting)
    # A program may make what will not come.
    made = front.begin("sh", "-c", f"echo own >{front.folder}/in/z && cat {front.folder}/in/z")
    assert said(made) == "own\n"
    left = engram.stage.resume(pool, "early").wait()
    assert left is not None
    assert [trouble.path for trouble in left.troubles] == [str(tree / "z")], (
        "it has not replaced it"
    )


def test_a_signal_ends_the_wait(front: Front, pool: engram.Pool, tree: Path) -> None:
    stage = early(pool, tree, "--rate", "16KiB")
    path = str(front.folder / "in/z")
    assert said(front.begin(sys.executable, "-c", INTERRUPTED, path)) == "interrupted\n"
    killed = front.begin("cat", path)
    time.sleep(0.2)
    killed.kill()
    said(killed)
    assert killed.returncode == -signal.SIGKILL
    os.kill(stage, signal.SIGKILL)


def test_a_stage_that_nobody_awaits_tells_nothing(
    front: Front, pool: engram.Pool, tree: Path
) -> None:
    with engram.stage.begin_in(
        pool, {str(tree): "in"}, files_per_second=1, order="smallest"
    ) as stage:
        while stage.progress().files < 1:
            time.sleep(0.01)
        assert "No such file" in said(front.begin("cat", str(front.folder / "in/z")))
        stage.set_rate(None)


def test_what_early_means_is_checked(pool: engram.Pool, tree: Path) -> None:
    for wrong in ("0files", "xfiles", "-1files", "much"):
        command = [sys.executable, "-m", "engram", "stage", "in", pool.path, str(tree)]
        done = subprocess.run(
            [*command, f"--early={wrong}"], capture_output=True, text=True, check=False
        )
        assert done.returncode == engram.ArgumentError.exit_code, done.stderr
        assert wrong in done.stderr


def many(folder: Path, count: int) -> Path:
    """Make a folder with so many files."""
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:03}").write_text(str(number), encoding="utf-8")
    return folder


def test_each_file_is_found_at_the_moment_it_comes(
    front: Front, pool: engram.Pool, home: Path
) -> None:
    many(home / "from/deep", 300)
    early(pool, home / "from")
    engram.stage.set_rate(pool, "early", files_per_second=100)
    looking = front.begin(sys.executable, "-c", EACH, str(front.folder / "in/deep"), "300")
    assert said(looking) == "all\n"


def test_two_stages_bring_files_to_one_folder(front: Front, pool: engram.Pool, home: Path) -> None:
    early(pool, many(home / "slow", 30))
    waiting = front.begin("cat", str(front.folder / "in/029"))
    quick = many(home / "quick", 3)
    for number in range(3):
        (quick / f"{number:03}").rename(quick / f"quick{number}")
    for _ in range(2):  # it has its own list, and then it ends
        report = engram.stage.bring_in(pool, {str(quick): "in"}, awaited=True)
        assert report.whole
        time.sleep(0.2)
        assert waiting.poll() is None, "the first one is still on its way"
    assert said(front.begin("cat", str(front.folder / "in/quick2"))) == "2"
    engram.stage.set_rate(pool, "early")
    assert said(waiting) == "29"


def test_each_call_on_a_name_waits(front: Front, pool: engram.Pool, home: Path) -> None:
    early(pool, many(home / "from", 30))
    folder = front.folder / "in"
    script = "mv 026 moved && cat moved; rm 027; mkdir 028 2>&1; ln -s x 029 2>&1; ls -l 025"
    working = front.begin("sh", "-c", f"cd {folder} && {script}")
    time.sleep(0.5)
    assert working.poll() is None
    engram.stage.set_rate(pool, "early")
    told = said(working)
    assert told.startswith("26")
    assert told.count("exists") == 2, told
    until_ended(pool)
    assert engram.stage.status(pool, "early").state == "whole"
    assert "027" not in pool["in"]


def until_ended(pool: engram.Pool) -> None:
    """Wait for the stage."""
    end = time.monotonic() + PATIENCE
    while engram.stage.status(pool, "early").state == "running":
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_older_state_of_a_file_is_not_seen(front: Front, pool: engram.Pool, home: Path) -> None:
    many(home / "from", 20)
    assert engram.stage.bring_in(pool, {str(home / "from"): "in"}).whole
    for number in range(20):
        (home / f"from/{number:03}").write_text(f"new {number}", encoding="utf-8")
    early(pool, home / "from")
    waiting = front.begin("cat", str(front.folder / "in/019"))
    time.sleep(0.3)
    assert waiting.poll() is None
    engram.stage.set_rate(pool, "early")
    assert said(waiting) == "new 19"
