"""The command line's `tree`, `mv` and `ns`: what is where, and by which name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from shell import example, in_terminal, run

if TYPE_CHECKING:
    from pathlib import Path


def test_tree_shows_each_member_below_its_group_with_what_it_is(home: Path) -> None:
    lines = run("tree", example(home)).out.splitlines()
    assert [line.lstrip("│├└─ ").split("  ")[0].rstrip() for line in lines[1:]] == [
        *("log", "run-17/", "step-0400/", "T", "names", "step-0500/", "T")
    ]
    (line,) = (line for line in lines if "(y: 3, x: 4)" in line)
    assert line.startswith(("    │   ├── ", "│   │   ├── "))
    for word in ("T", "float32", "48 B"):
        assert word in line
    assert lines[0] == f"{home}/pool/"
    assert run("tree", home / "pool", "run-17/step-0400/T").out.startswith("run-17/step-0400/T")


def test_tree_counts_what_it_leaves_out(home: Path) -> None:
    path = example(home)
    with engram.open(path) as pool, pool.batch():
        for i in range(30):
            pool[f"many/{i:02}"] = np.int8(i)
    shown = run("tree", path, "--limit", "4").out
    assert "03" in shown
    assert "04  " not in shown
    assert "… and 26 more" in shown
    shown = run("tree", path, "--depth", "1").out
    assert "many/  30 members" in shown
    assert "step-0400" not in shown


def test_tree_json_nests_and_counts(home: Path) -> None:
    found = json.loads(run("tree", example(home), "run-17", "--json", "--limit", "1").out)
    assert (found["kind"], found["members"], found["left_out"]) == ("group", 2, 1)
    (step,) = found["below"]
    assert step["name"] == "step-0400"
    (array,) = step["below"]
    expected = {"name": "T", "kind": "array", "dtype": "float32", "shape": [3, 4], "nbytes": 48}
    assert array == expected | {"dims": ["y", "x"]}


def test_tree_goes_down_a_chain_of_groups_without_end(home: Path) -> None:
    path = example(home)
    with engram.open(path) as pool:
        pool.create_group("/".join(["deep"] * 300))
    code, out, err = run("tree", path)
    assert (code, err) == (0, "")
    assert out.count("deep/") == 64
    assert json.loads(run("tree", path, "--json").out)["left_out"] == 0


@pytest.mark.parametrize(
    ("old", "new", "now"),
    [
        ("log", "notes", "notes"),
        ("/log", "a/b/notes", "a/b/notes"),
        ("log", "run-17", "run-17/log"),
        ("log", "run-17/", "run-17/log"),
        ("log", "new/", "new/log"),
        ("run-17/step-0400/T", "/", "T"),
        ("run-17/step-0400", "first", "first"),
    ],
)
def test_mv_renames_and_moves_into_groups(home: Path, old: str, new: str, now: str) -> None:
    path = example(home)
    with engram.open(path) as pool:
        before = pool[old]
        code, out, _ = run("mv", path, old, new)
        assert (code, out) == (0, f"{old.strip('/')} is now {now}\n")
        assert before.path == now
        assert pool[now] == before
        assert old.strip("/") not in pool


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("log", "run-17/step-0400/T", engram.ExistsError),
        ("nope", "x", engram.NotFoundError),
        ("/", "x", engram.ArgumentError),
        ("run-17", "run-17/step-0400", engram.ArgumentError),
        ("log", "a//b", engram.InvalidNameError),
    ],
)
def test_mv_that_cannot_be_leaves_all_as_it_was(
    home: Path, old: str, new: str, error: type[engram.EngramError]
) -> None:
    path = example(home)
    before = run("ls", "-r", path).out
    code, out, err = run("mv", path, old, new)
    assert (code, out, err.count("\n")) == (error.exit_code, "", 1)
    assert run("ls", "-r", path).out == before


def test_ns_lists_makes_bounds_and_removes(home: Path) -> None:
    path = example(home)
    assert run("ns", path, "ice", "--create", "--mode", "700", "--size", "8 MiB").code == 0
    found = {each["name"]: each for each in json.loads(run("ns", path, "--json").out)}
    assert set(found) == {"default", "ice", "icesat"}
    assert found["ice"]["mode"] == "700"
    assert found["ice"]["size"] == 8 << 20
    assert found["icesat"]["members"] == 1
    shown = run("ns", path).out.splitlines()
    assert shown[0].split() == ["name", "owner", "group", "mode", "size", "used", "members"]
    assert [line.split()[0] for line in shown[1:]] == ["default", "ice", "icesat"]
    assert run("ns", path, "ice", "--size", "16 MiB").code == 0
    assert json.loads(run("ns", path, "ice", "--json").out)[0]["size"] == 16 << 20
    assert run("ns", path, "ice", "--remove", "--yes").code == 0
    assert "ice " not in run("ns", path).out


def test_ns_asks_before_it_removes(home: Path) -> None:
    path = example(home)
    code, _, err = run("ns", path, "icesat", "--remove")
    assert code == engram.ArgumentError.exit_code
    assert "--yes" in err
    code, seen = in_terminal("ns", path, "icesat", "--remove", typed=b"n\n", columns=200)
    assert (code, "its 1 member" in seen) == (1, True)
    assert "icesat" in run("ns", path).out
    assert in_terminal("ns", path, "icesat", "--remove", typed=b"y\n")[0] == 0
    assert "icesat" not in run("ns", path).out


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ("--create", engram.ArgumentError, "which namespace"),
        ("icesat --create", engram.ExistsError, "icesat"),
        ("icesat --create --remove", engram.ArgumentError, "exclude"),
        ("new --create --mode 9", engram.ArgumentError, "octal"),
        ("new --create --mode 77777", engram.ArgumentError, "mode"),
        ("new --create --group no-such", engram.NotFoundError, "no-such"),
        ("new --create --size lots", engram.ArgumentError, "lots"),
        ("icesat --mode 70", engram.ArgumentError, "0o700"),
        ("icesat --group root", engram.ArgumentError, "--create"),
        ("nope", engram.NotFoundError, "icesat"),
        ("nope --size 1GiB", engram.NotFoundError, "nope"),
        ("default --remove --yes", engram.ArgumentError, "default"),
    ],
)
def test_ns_says_what_cannot_be(
    home: Path, words: str, error: type[engram.EngramError], said: str
) -> None:
    code, out, err = run("ns", example(home), *words.split())
    assert (code, out) == (error.exit_code, "")
    assert said in err
    assert err.count("\n") == 1
