"""The command line's `doctor`: what a place gives, tried and not believed."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import engram
from engram import machine
from engram.cli.doctor import memory, mount
from engram.cli.doctor.place import Place
from shell import COMMAND, example, in_terminal, run

if TYPE_CHECKING:
    from pathlib import Path


def found_at(path: Path, *, code: int = 0) -> dict[str, dict[str, Any]]:
    """Return the findings of the first place, and of the process, by what they are of."""
    ended = run("doctor", path, "--json")
    assert (ended.code, ended.err) == (code, "")
    told = json.loads(ended.out)
    return {each["what"]: each for each in [*told["places"][0]["findings"], *told["process"]]}


def test_doctor_tells_of_a_folder_and_leaves_nothing_there(home: Path) -> None:
    found = found_at(home)
    for what in ("filesystem", "durability", "access", "DAX", "space", "memory", "huge pages"):
        assert found[what]["found"]
    for what in ("copying", "new space", "addresses", "open files", "mappings"):
        assert found[what]["verdict"] in {"good", "fair"}
    assert found["copying"]["warm"] > 0
    assert found["space"]["free"] <= found["space"]["total"]
    assert list(home.iterdir()) == []


def test_doctor_looks_at_each_device_of_a_pool(home: Path) -> None:
    (home / "two").mkdir()
    engram.create(home / "p", size="1 MiB", devices=[home / "two"]).close()
    told = json.loads(run("doctor", home / "p", "--json").out)
    assert [place["path"] for place in told["places"]] == [str(home / "p"), str(home / "two")]
    before = sorted(path.name for path in home.rglob("*"))
    run("doctor", home / "p")
    assert sorted(path.name for path in home.rglob("*")) == before


def test_doctor_promises_what_the_pool_has(home: Path) -> None:
    path = example(home)
    with engram.open(path) as pool:
        assert f'"{pool.durability}"' in found_at(path)["durability"]["found"]


def test_doctor_looks_at_the_nearest_folder_of_what_is_not_there(home: Path) -> None:
    told = json.loads(run("doctor", home / "not" / "yet", "--json").out)
    assert [place["path"] for place in told["places"]] == [str(home)]
    assert "there is no" in run("doctor", home / "not" / "yet").out
    (home / "file").touch()
    assert json.loads(run("doctor", home / "file", "--json").out)["places"][0]["path"] == str(home)


def test_doctor_looks_at_a_pool_that_does_not_open(home: Path) -> None:
    path = example(home)
    (path / "pool.toml").write_text("no toml = = =")
    code, out, _ = run("doctor", path)
    assert code == 0
    assert "does not open" in out


def test_doctor_says_that_proc_carries_no_pool() -> None:
    found = found_at(engram.paths.absolute("/proc"), code=1)
    assert found["filesystem"]["verdict"] == "fair"
    assert "tmpfs" in found["filesystem"]["remedy"]
    assert found["access"]["verdict"] == "wrong"
    assert "copying" not in found


@pytest.mark.parametrize(
    ("left", "verdict"), [(0, "wrong"), (600 << 20, "fair"), (3 << 30, "good")]
)
def test_doctor_says_how_near_a_cgroups_limit_is(
    home: Path, monkeypatch: pytest.MonkeyPatch, left: int, verdict: str
) -> None:
    limits = [(str(home / "memory.max"), 4 << 30, (4 << 30) - left)]
    monkeypatch.setattr(machine, "memory_limits", lambda: limits)
    found = found_at(home, code=int(verdict == "wrong"))["memory limit"]
    assert found["verdict"] == verdict
    assert (str(home / "memory.max") in found["remedy"]) == (verdict != "good")


@pytest.mark.parametrize(
    ("limit", "what", "verdict", "code"),
    [
        ("ulimit -n 100", "open files", "fair", 0),
        ("ulimit -f 2000000", "file size", "wrong", 1),
        ("ulimit -v 400000000", "addresses", "fair", 0),
        ("ulimit -v 40000000", "addresses", "wrong", 1),
        ("true", "addresses", "good", 0),
    ],
)
def test_doctor_sees_the_limits_of_its_process(
    home: Path, limit: str, what: str, verdict: str, code: int
) -> None:
    words = " ".join([*COMMAND, "doctor", str(home), "--json"])
    script = f"ulimit -v unlimited; ulimit -f unlimited; {limit} && exec {words}"
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, "")
    process = {each["what"]: each for each in json.loads(ended.stdout)["process"]}
    assert process[what]["verdict"] == verdict
    assert bool(process[what]["remedy"]) == (verdict != "good")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_doctor_fits_the_terminal(home: Path, columns: int) -> None:
    code, seen = in_terminal("doctor", home, columns=columns)
    assert code == 0
    assert max(map(len, seen.splitlines())) <= columns
    assert "filesystem" in seen
    assert "good" in seen.splitlines()[-1]


def test_doctor_tries_nothing_in_the_folder_of_a_pool(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []
    create = engram.create

    def watched(path: Path, **more: Any) -> engram.Pool:
        tried.append(path)
        return create(path, **more)

    monkeypatch.setattr(engram, "create", watched)
    path = example(home)
    tried.clear()
    assert run("doctor", path).code == 0
    assert [each.parent.parent for each in tried] == [home]


def on_tmpfs(home: Path, options: str) -> Place:
    """Return a place on a tmpfs with these mount options."""
    facts = {"filesystem": "tmpfs", "verdict": "allowed", "durable": False}
    standing = SimpleNamespace(**facts, mount="/m", options=options, free=1 << 40)
    return Place(home, "a place", cast("Any", standing), None)


@pytest.mark.parametrize(
    ("options", "quota"),
    [
        ("rw,relatime,size=24683656k", ""),
        ("rw,noquota", ""),
        ("rw,usrquota,usrquota_block_hardlimit=10G", "usrquota_block_hardlimit=10G"),
        ("rw,grpquota", "grpquota"),
        ("rw,prjquota", "prjquota"),
    ],
)
def test_doctor_tells_of_quotas(home: Path, options: str, quota: str) -> None:
    found = [each for each in mount.findings(on_tmpfs(home, options)) if each.what == "quota"]
    assert [quota in each.found for each in found] == ([True] if quota else [])
    assert all("/m" in each.remedy for each in found)


@pytest.mark.parametrize(
    ("nodes", "options", "told"),
    [
        (None, "rw", None),
        ("0", "rw", None),
        ("0-1", "rw", ("nodes 0-1", "mpol=interleave /m")),
        ("0,2", "rw,mpol=bind:2", ("mpol=bind:2", "")),
    ],
)
def test_doctor_tells_of_nodes_of_memory(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    nodes: str | None,
    options: str,
    told: tuple[str, str] | None,
) -> None:
    if nodes is not None:
        (home / "nodes").write_text(f"{nodes}\n")
    monkeypatch.setattr(memory, "_NODES", home / "nodes")
    found = [each for each in memory.findings(on_tmpfs(home, options)) if each.what == "NUMA"]
    assert len(found) == (told is not None)
    for each in found:
        assert told is not None
        what, remedy = told
        assert what in each.found
        assert remedy in each.remedy
        assert bool(remedy) == bool(each.remedy)
