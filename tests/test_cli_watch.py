"""The command line's `watch`."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

import engram
from shell import COMMAND, run

if TYPE_CHECKING:
    from pathlib import Path

LONG = 60.0


@pytest.fixture
def path(home: Path) -> Path:
    """Give a pool with an array that is there already."""
    with engram.create(home / "pool", size="32 MiB", force=True) as pool:
        pool.create_array("run/early", data=[1.0], attrs={"step": 0})
    return home / "pool"


def test_what_comes_is_printed_at_once(path: Path) -> None:
    words = [*COMMAND, "watch", str(path), "exists(step)", "--existing"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline() == "run/early\n"
        with engram.open(path) as pool:
            for step in range(3):
                pool.create_array(f"run/{step}", data=[1.0], attrs={"step": step})
                pool[f"bare-{step}"] = [1.0]
                assert watch.stdout.readline() == f"run/{step}\n"
        watch.send_signal(signal.SIGINT)
        assert watch.stdout.read() == ""
    assert watch.returncode in {-signal.SIGINT, 130}


def test_a_watch_ends_after_so_many_or_in_time(path: Path) -> None:
    assert run("watch", path, "--timeout", 0).out == ""
    assert run("watch", path, "--timeout", 0, "--existing").out == "run/early\n"
    assert run("watch", path, "--existing", "--count", 1).out == "run/early\n"
    below = ("--below", "run", "--existing", "--timeout", 0)
    assert run("watch", path, "step = 0", *below).out == "run/early\n"


def test_json_is_a_line_for_each(path: Path) -> None:
    with engram.open(path) as pool:
        pool.create_blob("log", b"x", attrs={"step": 1})
    lines = run("watch", path, "--existing", "--timeout", 0, "--json").out.splitlines()
    told = [json.loads(line) for line in lines]
    assert [each["path"] for each in told] == ["run/early", "log"]
    assert told[0]["attributes"] == {"step": 0}


def test_what_cannot_be_watched_is_an_error(path: Path) -> None:
    assert run("watch", path, "step >").code == 15
    assert run("watch", path, "step = 1 limit 2", "--timeout", 0).code != 0
    assert run("watch", path, "--below", "run/early").code != 0
    assert run("watch", path, "--timeout", -1).code == 2
