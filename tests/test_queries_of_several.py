"""Queries over several namespaces: as those of each one, put together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ("default", "ice", "ocean")


@pytest.fixture
def pool(home: Path) -> Iterator[engram.Pool]:
    rng = np.random.default_rng(3)
    with engram.create(home / "pool", "64 MiB") as made:
        for name in NAMES[1:]:
            made.create_namespace(name)
        for number, name in enumerate(NAMES):
            namespace = made.namespaces[name]
            for nth in range(40 + number):
                attrs: dict[str, Any] = {"t": rng.integers(0, 9), "level": f"l{nth % 3}"}
                if nth % 5:
                    attrs["x"] = rng.random()
                if name == "ice":
                    attrs["cold"] = nth
                scope: Any = "private" if nth % 7 == 0 else None
                namespace.create_array(
                    f"g{nth % 2}/a{nth:02}", data=[nth], attrs=attrs, scope=scope
                )
        yield made


def each(pool: engram.Pool, text: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Ask one namespace after the other."""
    return [
        (name, member.path, dict(member.attrs))
        for name in NAMES
        for member in pool.namespaces[name].query(text)
    ]


def test_without_an_order_they_come_namespace_by_namespace(pool: engram.Pool) -> None:
    found = pool.namespaces.query("t > 4")
    wanted = each(pool, "t > 4")
    assert [(a.namespace, a.path) for a in found] == [hit[:2] for hit in wanted]
    assert found.paths() == [hit[:2] for hit in wanted]
    assert found.namespaces() == [hit[0] for hit in wanted]
    assert len(found) == found.count() == len(wanted)
    assert pool.namespaces.query("t > 4").count() == len(wanted)
    assert found.left_out == {}
    assert found[3] == list(found)[3]
    assert [a.path for a in found[2:5]] == [hit[1] for hit in wanted[2:5]]
    keys = found.attribute_keys()
    assert keys["t"] == len(wanted)
    assert sum(keys.values()) == found.count_attributes() == sum(len(h[2]) for h in wanted)


@pytest.mark.parametrize(("limit", "offset"), [(None, None), (7, None), (7, 5), (500, 90), (0, 0)])
@pytest.mark.parametrize("descending", [False, True])
def test_an_order_a_limit_and_an_offset_are_of_all(
    pool: engram.Pool, limit: int | None, offset: int | None, *, descending: bool
) -> None:
    order = ["t desc" if descending else "t", "@path"]
    found = pool.namespaces.query("t >= 2", order_by=order, limit=limit, offset=offset)
    wanted = sorted(each(pool, "t >= 2"), key=lambda hit: (hit[1], NAMES.index(hit[0])))
    wanted.sort(key=lambda hit: -hit[2]["t"] if descending else hit[2]["t"])
    begin = offset or 0
    end = None if limit is None else begin + limit
    part = [hit[:2] for hit in wanted[begin:end]]
    again = pool.namespaces.query("t >= 2", order_by=order, limit=limit, offset=offset)
    assert again.count() == len(part)
    assert found.paths() == part


def test_those_that_lack_what_orders_them_come_last(pool: engram.Pool) -> None:
    found = pool.namespaces.query("", order_by="x", names=["ocean", "ice"])
    values = [member.attrs.get("x") for member in found]
    there = [value for value in values if value is not None]
    assert there == sorted(there)
    assert values[len(there) :] == [None] * (len(values) - len(there))
    assert len(values) == 83
    assert found.namespaces()[len(there) :] == sorted(
        found.namespaces()[len(there) :], reverse=True
    )


def test_figures_are_of_all_together(pool: engram.Pool) -> None:
    hits = each(pool, "t > 1")
    values = [hit[2]["x"] for hit in hits if "x" in hit[2]]
    (row,) = pool.namespaces.aggregate("count(), mean(x), max(x), distinct(t) where t > 1")
    assert row[0] == len(hits)
    assert row[1] == pytest.approx(np.mean(values))
    assert row[2:] == (max(values), len({int(hit[2]["t"]) for hit in hits}))
    table = pool.namespaces.aggregate("count()", group_by="level", order_by="count() desc, level")
    wanted = {
        level: sum(hit[2]["level"] == level for hit in each(pool, ""))
        for level in ["l0", "l1", "l2"]
    }
    assert dict(iter(table)) == wanted
    assert [row[1] for row in table] == sorted(wanted.values(), reverse=True)
    by_group = pool.namespaces.aggregate("count()", group_by="@group", names=["ice", "ocean"])
    assert dict(iter(by_group)) == {"g0": 42, "g1": 41}
    last = pool.namespaces.aggregate("count() group by level order by level limit 1 offset 1")
    assert last[0] == ("l1", wanted["l1"])


def test_a_group_is_looked_for_in_each(pool: engram.Pool) -> None:
    pool.namespaces["ice"].create_group("only")["z"] = np.arange(2)
    assert pool.namespaces.query("", below="only").paths() == [("ice", "only/z")]
    assert pool.namespaces.query("", below="g0").count() == 20 + 21 + 21
    assert pool.namespaces.aggregate("count()", below="/").item() == 40 + 41 + 42 + 1
    with pytest.raises(engram.NotFoundError, match="nope"):
        pool.namespaces.query("", below="nope")
    with pytest.raises(engram.ArgumentError, match="no group"):
        pool.namespaces.query("", below="only/z")


def test_names_that_are_not_so_are_told(pool: engram.Pool) -> None:
    with pytest.raises(engram.NotFoundError, match="nope"):
        pool.namespaces.query("", names=["ice", "nope"])
    with pytest.raises(engram.ArgumentError, match="twice"):
        pool.namespaces.query("", names=["ice", "ice"])
    with pytest.raises(engram.ArgumentError, match="no namespace"):
        pool.namespaces.query("", names=[])
    with pytest.raises(engram.QueryError, match="figures"):
        pool.namespaces.query("count()")
    with pytest.raises(engram.QueryError, match="objects"):
        pool.namespaces.aggregate("t > 1")
    assert pool.namespaces.query("cold > 3", strict=True).count() == 37  # one namespace has it
    with pytest.raises(engram.QueryError, match="warmth"):
        pool.namespaces.query("warmth > 3", strict=True)
    with pytest.warns(engram.EngramWarning, match="warmth"):
        assert pool.namespaces.query("warmth > 3").count() == 0


def test_what_is_deleted_meanwhile_is_left_out(pool: engram.Pool) -> None:
    found = pool.namespaces.query("", order_by="@path")
    assert found[0].path == "g0/a00"
    for name in NAMES:
        del pool.namespaces[name]["g0/a00"]
    assert len(found.paths()) == len(found) - 3
    assert len(list(found)) == len(found) - 3
    with pytest.raises(engram.NotFoundError, match="ask again"):
        found[0]
    pytest.importorskip("pandas")
    table = found.to_pandas()
    assert len(table) == len(found) - 3


def test_a_table_says_where_each_object_is(pool: engram.Pool) -> None:
    pytest.importorskip("pandas")
    found = pool.namespaces.query("t > 3", order_by="t desc, @path")
    table = found.to_pandas()
    assert list(zip(table["@namespace"], table["@path"], strict=True)) == found.paths()
    assert table["t"].tolist() == [member.attrs["t"] for member in found]
    assert str(table["cold"].dtype) == "Int64"
    assert set(table["@namespace"][table["cold"].notna()]) == {"ice"}
    some = found.to_pandas(["t", "level"])
    assert list(some.columns) == ["@namespace", "t", "level"]
    assert pool.namespaces.query("t > 99").to_pandas(["t"]).empty


def test_the_command_line_asks_several(pool: engram.Pool) -> None:
    pool.close()
    path = pool.path
    both = ("--namespace", "ice", "--namespace", "ocean")
    with engram.open(path, "r") as again:
        some = again.namespaces.query("t > 6", names=["ice", "ocean"]).paths()
        every = again.namespaces.query("t > 6", order_by="t, @path", limit=5).paths()
    assert run("query", path, "t > 6", *both, "--count").out == f"{len(some)}\n"
    assert run("query", path, "t > 6", *both, "--paths").out.split() == [":".join(s) for s in some]
    ended = run(
        *("query", path, "t > 6", "--all-namespaces", "--order-by", "t"),
        *("--order-by", "@path", "--limit", "5", "--json"),
    )
    assert [(hit["namespace"], hit["path"]) for hit in json.loads(ended.out)] == every
    ended = run("query", path, "count(), max(t) group by level", "--all-namespaces", "--json")
    assert len(json.loads(ended.out)) == 3
    table = run("query", path, "t > 6", *both).out
    assert "namespace" in table.splitlines()[0]
    assert run("query", path, "t > 6", "-n", "ice", "--count").code == 0
    assert run("query", path, "", *both, "--explain").code == engram.ArgumentError.exit_code
    ended = run("query", path, "", "-n", "ice", "--all-namespaces")
    assert ended.code == engram.ArgumentError.exit_code
    ended = run("query", path, "", *both, "-n", "nope")
    assert ended.code == engram.NotFoundError.exit_code
