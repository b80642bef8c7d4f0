"""The command line's `stats`: what is counted is what is there."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np

import engram
from shell import example, in_terminal, run

if TYPE_CHECKING:
    from pathlib import Path


def test_stats_counts_what_is_there(home: Path) -> None:
    path = example(home)
    found = json.loads(run("stats", path, "--json").out)
    assert (found["groups"], found["arrays"], found["blobs"]) == (3, 3, 1)
    assert found["attributes"] == 2
    by_dtype = {each["dtype"]: each for each in found["dtypes"]}
    assert set(by_dtype) == {"float32", "string", "blob"}
    assert by_dtype["float32"] == {"dtype": "float32", "objects": 2, "nbytes": 96}
    assert by_dtype["blob"]["nbytes"] == 5
    assert found["nbytes"] == sum(each["nbytes"] for each in found["dtypes"])
    assert [each["path"] for each in found["largest"]][:2] == [
        *("run-17/step-0400/T", "run-17/step-0500/T")
    ]


def test_stats_of_a_part_counts_it_alone(home: Path) -> None:
    path = example(home)
    found = json.loads(run("stats", path, "run-17/step-0400", "--json").out)
    assert (found["groups"], found["arrays"], found["attributes"]) == (1, 2, 2)
    assert "space" not in found
    found = json.loads(run("stats", path, "-n", "icesat", "--json").out)
    assert (found["groups"], found["arrays"]) == (0, 1)
    found = json.loads(run("stats", path, "log", "--json").out)
    assert (found["blobs"], found["nbytes"]) == (1, 5)


def test_stats_keeps_the_largest_in_order(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB") as pool, pool.batch():
        for i in (3, 1, 4, 15, 9, 2, 6):
            pool[f"g/{i}"] = np.zeros(i, "u1")
    found = json.loads(run("stats", home / "p", "--top", "3", "--json").out)
    assert [each["nbytes"] for each in found["largest"]] == [15, 9, 6]
    assert json.loads(run("stats", home / "p", "--top", "0", "--json").out)["largest"] == []


def test_stats_tells_of_space_devices_and_processes(home: Path) -> None:
    (home / "two").mkdir()
    with engram.create(home / "p", size="64 MiB", devices=[home / "two"]) as pool:
        pool["a"] = np.zeros(5 << 20, "u1")
        space = pool.space
        found = json.loads(run("stats", home / "p", "--json").out)
        assert found["space"]["used"] == space.used
        assert found["space"]["arena"] == space.arena
        assert [each["path"] for each in found["devices"]] == [
            str(home / "p"),
            *(str(device.path) for device in pool.devices[1:]),
        ]
        assert sum(each["nbytes"] for each in found["devices"]) == space.arena
        assert os.getpid() in [each["pid"] for each in found["processes"]]
        code, seen = in_terminal("stats", home / "p")
        assert code == 0
        for word in ("open in", f"{os.getpid()} (", "5 MiB", "uint8", "pending", "█"):
            assert word in seen
    assert "no other process" in in_terminal("stats", home / "p")[1]


def test_stats_of_nothing_is_zeros(home: Path) -> None:
    engram.create(home / "p", size="1 MiB").close()
    found = json.loads(run("stats", home / "p", "--json").out)
    assert (found["groups"], found["arrays"], found["nbytes"]) == (0, 0, 0)
    assert run("stats", home / "p").out.startswith("0 groups, 0 arrays, 0 blobs, 0 attributes")
    assert run("stats", home / "p", "nope").code == engram.NotFoundError.exit_code
