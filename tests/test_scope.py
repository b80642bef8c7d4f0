"""Scopes: private and shared members of one tree, through the package and the command line."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from shell import run

if TYPE_CHECKING:
    from pathlib import Path

    from engram.scope import Scope


def test_new_members_have_the_scope_of_their_group(pool: engram.Pool) -> None:
    pool.create_group("open")
    own = pool.create_group("own", scope="private")
    array = own.create_array("a", data=np.arange(3))
    assert (pool["open"].scope, own.scope, array.scope) == ("shared", "private", "private")
    blob = pool["open"].create_blob("b", b"...", scope="private")
    assert (blob.scope, blob.path) == ("private", "open/b")
    with pool.allocate("own/c", shape=(3,), dtype="f8") as buffer:
        buffer[...] = 1
    assert pool["own/c"].scope == "private"
    assert pool.require_group("own").scope == "private"
    assert pool.require_group("mine", scope="private").scope == "private"
    assert pool.require_array("x", (2,), "f4", scope="private").scope == "private"
    assert pool.scope == "shared"
    assert list(pool) == ["mine", "open", "own", "x"]


def test_a_private_name_shadows_a_shared_one(pool: engram.Pool) -> None:
    pool["x"] = np.arange(3)
    shared = pool["x"]
    pool.create_array("x", data=np.arange(5), scope="private")
    assert (pool["x"].shape, pool["x"].scope, len(pool)) == ((5,), "private", 1)
    assert list(shared[...]) == [0, 1, 2]
    pool["x"] = np.arange(7)
    assert pool["x"].scope == "private"
    del pool["x"]
    assert pool["x"] == shared


def test_queries_unite_what_is_seen(pool: engram.Pool) -> None:
    group = pool.create_group("g", attrs={"site": "north"})
    for number in range(10):
        scope: Scope = "private" if number % 2 else "shared"
        group.create_array(f"a{number}", data=np.zeros(2), attrs={"n": number}, scope=scope)
    assert pool.query("n >= 0").count() == 10
    assert pool.query('@scope = "private"', order_by="n desc", limit=2).names() == ["a9", "a7"]
    assert pool.query('group.site = "north" and n < 4', order_by="n").paths() == [
        "g/a0",
        "g/a1",
        "g/a2",
        "g/a3",
    ]
    assert [array.scope for array in pool.query("n in (0, 1)", order_by="n")] == [
        "shared",
        "private",
    ]
    assert pool.query("n > 0").attribute_keys() == {"n": 9}


def test_what_is_refused_says_why(pool: engram.Pool) -> None:
    own = pool.create_group("own", scope="private")
    with pytest.raises(engram.ArgumentError, match="cannot lie in a private group"):
        own.create_array("x", data=np.zeros(2), scope="shared")
    with pytest.raises(engram.ReadOnlyError, match="publish it then"):
        pool.create_array("x", data=np.zeros(2), scope="published")
    with pytest.raises(engram.ArgumentError, match="scope 'mine' is unknown"):
        pool.create_array("x", data=np.zeros(2), scope="mine")  # type: ignore[arg-type]
    with pytest.raises(engram.BusyError, match="one scope"), pool.batch():
        pool["a"] = np.zeros(2)
        pool.create_array("b", data=np.zeros(2), scope="private")
    assert list(pool) == ["own"]
    with pool.batch():
        pool.create_array("b", data=np.zeros(2), scope="private")
        own["c"] = np.zeros(2)
    assert [pool["b"].scope, own["c"].scope] == ["private", "private"]


def test_handles_of_private_objects_pickle(pool: engram.Pool) -> None:
    pool.create_array("x", data=np.arange(4), attrs={"k": 1}, scope="private")
    code = (
        "import pickle, sys; a = pickle.load(sys.stdin.buffer); "
        "assert list(a[...]) == [0, 1, 2, 3], a; assert a.scope == 'private'"
    )
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(pool["x"]), check=True)


def test_the_command_line_shows_and_sets_the_scope(pool: engram.Pool, tmp_path: Path) -> None:
    path = str(pool.path)
    np.save(tmp_path / "x.npy", np.arange(4))
    assert run("put", path, "own", str(tmp_path / "x.npy"), "--scope", "private").code == 0
    line = next(row for row in run("ls", "-l", path).out.splitlines() if row.endswith(" own"))
    assert "private" in line.split()
    facts = json.loads(run("info", "--json", path, "own").out)
    assert facts["scope"] == "private"
    assert run("put", path, "other", str(tmp_path / "x.npy"), "--scope", "mine").code != 0
