"""The command line's `query`, `index` and `reindex`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from engram.cli import completion
from shell import in_terminal, piped, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(home: Path) -> Path:
    """Give a pool with six objects, one of them not indexed, and a namespace."""
    where = home / "pool"
    with engram.create(where, size="64 MiB") as pool:
        group = pool.create_group("run", attrs={"orbit": 4})
        for n in range(5):
            group.create_array(
                f"a{n}", data=np.arange(n + 1.0), attrs={"t": n - 3.0, "label": f"n{n}"}
            )
        pool.create_blob("log", b"hello", attrs={"t": 9}, index="none")
        pool.create_namespace("other").create_array("x", data=[1], attrs={"t": 1})
    return where


def test_a_table_has_what_the_query_names(path: Path) -> None:
    ended = run("query", path, "t < -1 and group.orbit = 4 and @nbytes >= 8")
    assert ended.code == 0
    rows = [line.split() for line in ended.out.splitlines()]
    assert rows[0] == ["dtype", "shape", "t", "group.orbit", "@nbytes", "path"]
    assert rows[1] == ["float64", "1", "-3.0", "4", "8", "run/a0"]
    assert rows[2][-1] == "run/a1"
    assert len(rows) == 3
    code, seen = in_terminal("query", path, "t < -1")
    assert code == 0
    assert "run/a0" in seen
    assert run("query", path, "t > 99").out == "no objects\n"


def test_names_paths_and_counts_stand_alone(path: Path) -> None:
    assert run("query", path, "t < -1", "--names").out == "a0\na1\n"
    assert run("query", path, "t < -1", "--paths").out == "run/a0\nrun/a1\n"
    assert run("query", path, "--count").out == "6\n"
    assert run("query", path, "t < -1", "--count-attributes").out == "4\n"
    assert json.loads(run("query", path, "t < -1", "--paths", "--json").out) == ["run/a0", "run/a1"]
    assert json.loads(run("query", path, "--count", "--json").out) == 6
    assert run("query", path, "--names", "--limit", "0").out == ""


def test_json_has_all_of_each_object(path: Path) -> None:
    found = json.loads(run("query", path, "label = 'n2'", "--json").out)
    assert [each["path"] for each in found] == ["run/a2"]
    assert found[0]["attributes"] == {"label": "n2", "t": -1.0}
    assert found[0]["dtype"] == "float64"
    assert json.loads(run("query", path, "t > 99", "--json").out) == []


def test_order_limit_part_and_namespace_are_options(path: Path) -> None:
    words = ("query", path, "exists(label)", "--order-by", "t desc", "--limit", "2", "--names")
    assert run(*words).out == "a4\na3\n"
    assert run(*words, "--threads", "2", "--eventual").out == "a4\na3\n"
    ordered = run("query", path, "exists(t)", "--order-by", "t", "--order-by", "@path", "--paths")
    assert ordered.out.split() == [f"run/a{n}" for n in range(5)]
    assert run("query", path, "--below", "run", "--count").out == "5\n"
    assert run("query", path, "t = 1", "-n", "other", "--names").out == "x\n"
    wrong = run("query", path, "--below", "log", "--count")
    assert wrong.code == engram.ArgumentError.exit_code
    assert "no group" in wrong.err


def test_figures_offsets_and_parameters_are_taken(path: Path) -> None:
    ended = run("query", path, "count(), mean(t), max(label) group by group.orbit")
    assert ended.code == 0
    rows = [line.split() for line in ended.out.splitlines()]
    assert rows[0] == ["group.orbit", "count()", "mean(t)", "max(label)"]
    assert rows[1:] == [["4", "5", "-1.0", "n4"], ["-", "1", "-", "-"]]
    told = json.loads(run("query", path, "sum(t), count() where t < 0", "--json").out)
    assert told == [{"sum(t)": -6.0, "count()": 3}]
    refused = run("query", path, "count()", "--paths")
    assert refused.code == engram.ArgumentError.exit_code
    assert "--paths is of objects, and the query gives figures" in refused.err
    words = ("query", path, "t < :low and label != :label", "--order-by", "t desc", "--paths")
    given = ("--param", "low=2", "--param", "label=n1")
    assert run(*words, *given, "--offset", "1", "--limit", "2").out == "run/a3\nrun/a2\n"
    assert "no parameter label was given" in run(*words, "--param", "low=2").err
    assert "gives no value" in run(*words, "--param", "low").err
    listed = ("query", path, "t in :some and label in :labels", "--paths")
    given = ("--param", "some=[1, 2]", "--param", 'labels=["n2", "n3"]')
    plain = "t in (1, 2) and label in ('n2', 'n3')"
    assert run(*listed, *given).out == run("query", path, plain, "--paths").out
    assert run("query", path, "label = :label", "--count", "--param", 'label="2"').out == "0\n"
    assert run("query", path, "label = :label", "--count", "--param", 'label="n2"').out == "1\n"
    assert run("query", path, "label = :label", "--count", "--param", 'label="n2').out == "0\n"
    assert "there is none: give order_by" in run("query", path, "--offset", "1").err


def test_an_ill_formed_query_is_shown_with_a_caret(path: Path) -> None:
    ended = run("query", path, "t < 3 and and")
    assert ended.code == engram.QueryError.exit_code == 15
    first, line, caret = ended.err.rstrip("\n").split("\n")
    assert first.startswith("engram: ")
    assert line == "  t < 3 and and"
    assert caret.index("^") == len("  t < 3 and ")
    assert not ended.out
    told = json.loads(run("query", path, "t < 3 and and", "--json").err)["error"]
    assert told["kind"] == "QueryError"
    assert told["line"] == "t < 3 and and"
    assert told["caret"].index("^") == len("t < 3 and ")
    assert piped("query", path, "t <").returncode == 15


def test_ways_of_telling_exclude_each_other(path: Path) -> None:
    ended = run("query", path, "--count", "--paths")
    assert ended.code == engram.ArgumentError.exit_code
    assert "--count and --paths" in ended.err


def test_an_explanation_is_text_or_json(path: Path) -> None:
    assert "t < 0" in run("query", path, "t < 0", "--explain").out
    told = json.loads(run("query", path, "t < 0", "--explain", "--json").out)
    assert told["hits"] == 3
    assert {"query", "threads", "conditions", "segments", "records"} <= set(told)


def test_what_is_found_is_exported(path: Path, home: Path) -> None:
    assert run("query", path, "t < -1", "--export", home / "cold.h5").code == 0
    with engram.open(path) as pool:
        engram.import_file(home / "cold.h5", pool.create_group("again"))
        assert pool["again"].query().names() == ["a0", "a1"]


def test_the_queue_is_drained_and_figures_are_told(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB", index="async") as pool, pool.batch():
        for n in range(50):
            pool.create_array(f"a{n}", data=[n], attrs={"n": n})
    status = json.loads(run("index", home / "p", "--status", "--json").out)
    assert status["queued"] + status["tail"] + status["sealed"] >= 50
    done = json.loads(run("index", home / "p", "--json").out)
    assert done["queued"] == 0
    assert done["indexed"] <= 50
    again = run("index", home / "p")
    assert again.out.startswith("indexed 0 objects")
    assert "sealed" in again.out
    assert run("query", home / "p", "n < 3", "--eventual", "--count").out == "3\n"


def test_objects_stored_without_an_index_are_indexed_anew(path: Path) -> None:
    assert run("query", path, "t = 9", "--count").out == "0\n"
    assert "6 objects" in run("reindex", path).out
    assert run("query", path, "t = 9", "--paths").out == "log\n"
    told = json.loads(run("reindex", path, "run", "--index", "none", "--json").out)
    assert told == {"group": "run", "index": "none", "objects": 5}
    assert run("query", path, "exists(label)", "--count").out == "0\n"
    assert run("reindex", path, "--index", "later").code == engram.ArgumentError.exit_code
    assert run("reindex", path, "log").code == engram.ArgumentError.exit_code


def test_stats_tell_of_the_index(path: Path) -> None:
    told = json.loads(run("stats", path, "--json").out)["index"]
    assert told["unindexed"] == 1
    assert "groups" not in told
    assert "not indexed" in run("stats", path).out


def test_import_takes_a_mode(path: Path, home: Path) -> None:
    np.savez(home / "a.npz", x=np.arange(3))
    assert run("import", path, "in", home / "a.npz", "--index", "none").code == 0
    with engram.open(path, mode="r") as pool:
        assert pool["in/x"].index == "none"
    assert run("import", path, "no", home / "a.npz", "--index", "x").code == 20


def test_fields_are_completed(path: Path) -> None:
    class Typed:
        params = {"pool": path}
        args: tuple[str, ...] = ()

    run("index", path)
    assert "@nbytes" in completion.fields(Typed(), "@n")  # type: ignore[arg-type]


def test_a_mode_is_given_where_things_are_made_and_later(home: Path) -> None:
    where, file = home / "made", home / "x.npy"
    np.save(file, np.arange(3))
    assert run("create", where, "--size", "64MiB", "--index", "none").code == 0
    assert run("put", where, "run/a", file).code == 0
    assert run("put", where, "run/b", file, "--index", "async").code == 0
    assert run("put", where, "run/c", file, "--blob", "--index", "sync").code == 0
    assert run("index", where, "run", "--mode", "async").code == 0
    assert run("put", where, "run/d", file).code == 0
    with engram.open(where, "r") as pool:
        modes = [member.index for member in pool["run"].values()]
        assert modes == ["none", "async", "sync", "async"]
        assert pool["run"].index_settings == {"index": "async"}
    for words in (["put", where, "e", file], ["index", where]):
        option = "--index" if words[0] == "put" else "--mode"
        ended = run(*words, option, "later")
        assert ended.code != 0
        assert "sync" in ended.err
    assert run("index", where, "--mode", "none", "--status").code != 0
    assert "no group" in run("index", where, "run/a").err
