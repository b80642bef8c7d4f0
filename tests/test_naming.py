"""Attributes that a query names and nothing has: who is told of them, what, and who is not."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from engram import _engram
from engram.naming import nearest
from shell import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def profiles(pool: engram.Pool) -> engram.Pool:
    """Give a pool whose groups have an orbit, and whose objects a step and a temperature."""
    group = pool.create_group("run", attrs={"orbit": 4, "odd name": 1})
    for step in range(3):
        group.create_array(f"a{step}", data=[1.0], attrs={"step": step, "temperature": -1.0})
    group.create_array("quiet", data=[1.0], attrs={"hidden": 1}, index="none")
    return pool


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("Step = 3", "no indexed object has an attribute 'Step': did you mean step?"),
        ("temprature < 0", "attribute 'temprature': did you mean temperature?"),
        ("not temprature < 0", "did you mean temperature?"),
        ("exists(temprature)", "did you mean temperature?"),
        ("orbit = 4", "'orbit', but groups above objects have: write group.orbit"),
        ("`odd name` = 4", "but groups above objects have: write group.`odd name`"),
        ("group.step = 4", "no group above an object has an attribute 'step', but objects have"),
        ("group.orbits = 4", "'orbits': did you mean group.orbit?"),
        ("name = 'a0'", "did you mean @name?"),
        ("pressure = 3", "'pressure': there are step, temperature"),
        ("hidden = 1", "no indexed object has an attribute 'hidden'"),
        ("step = 1 order by temprature", "did you mean temperature?"),
    ],
)
def test_a_key_that_nothing_has_is_told_of(profiles: engram.Pool, query: str, told: str) -> None:
    with pytest.warns(engram.EngramWarning) as caught:
        profiles.query(query)
    (warned,) = caught
    assert told in str(warned.message)
    assert warned.filename == __file__
    with pytest.raises(engram.QueryError, match=r"^column \d+: no "):
        profiles.query(query, strict=True)


def test_each_key_is_told_of_once_and_those_of_the_order_too(profiles: engram.Pool) -> None:
    with pytest.warns(engram.EngramWarning) as caught:
        profiles["run"].query(engram.attr("Step") > 1, order_by=["temprature desc", "Step"])
    assert len(caught) == 2


@pytest.mark.parametrize(
    "query",
    [
        "step = 1 and temperature < 0 and group.orbit = 4 and @name = 'a1'",
        "exists(marked)",
        "not exists(marked)",
        "exists(group.marked)",
        "under('nowhere') and step = 1",
    ],
)
def test_keys_that_are_there_or_only_asked_for_are_not_told_of(
    profiles: engram.Pool, query: str
) -> None:
    profiles.query(query).count()  # a warning would be an error


def test_a_pool_without_attributes_warns_nobody_and_refuses_if_asked_to(pool: engram.Pool) -> None:
    assert pool.query("step = 1").count() == 0
    pool.create_array("a", data=[1.0])
    assert pool.query("step = 1").count() == 0
    with pytest.raises(engram.QueryError, match=r"no indexed object has an attribute 'step'\n"):
        pool.query("step = 1", strict=True)


def test_a_refusal_points_at_the_key(profiles: engram.Pool) -> None:
    with pytest.raises(engram.QueryError) as refused:
        profiles.query("step = 1 and group.orbits > 3", strict=True)
    first, line, caret = str(refused.value).split("\n")
    assert first.startswith("column 14: no group above an object has")
    assert line[caret.index("^") :][: caret.count("^")] == "group.orbits"
    with pytest.raises(engram.QueryError) as refused:
        profiles.query("step = 1", order_by="step, temprature", strict=True)
    _, line, caret = str(refused.value).split("\n")
    assert line.strip() == "order by step, temprature"
    assert line[caret.index("^") :] == "temprature"
    assert profiles.query("step = 1", strict=True).names() == ["a1"]
    with pytest.raises(engram.ArgumentError, match="strict"):
        profiles.query("step = 1", strict="yes")  # type: ignore[arg-type]


def test_a_batch_knows_its_own_keys(profiles: engram.Pool) -> None:
    with profiles.batch():
        profiles.create_array("new", data=[1.0], attrs={"fresh": 1})
        assert profiles.query("fresh = 1", strict=True).names() == ["new"]


def test_keys_that_were_seen_are_not_looked_for_again(profiles: engram.Pool) -> None:
    query = _engram.Query("step = 1 and group.orbit = 4")
    namespace = profiles._namespace
    assert _engram.named_in_vain(query, namespace) == []
    for name in ("a0", "a1", "a2"):
        del profiles["run"][name]
    assert _engram.named_in_vain(query, namespace) == []
    mixed = _engram.Query("step = 1 and Step = 1 and exists(x) and (exists(y) or y = 1)")
    assert _engram.named_in_vain(mixed, namespace) == [
        (0, "Step", False), (0, "x", True), (0, "y", False),
    ]  # fmt: skip


def test_a_watch_waits_for_keys_to_come(profiles: engram.Pool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(profiles.watch("pressure > 3", timeout=0)) == []


def test_a_closed_pool_says_so_when_the_result_is_used(profiles: engram.Pool) -> None:
    group = profiles["run"]
    profiles.close()
    result = group.query("Step = 3")
    with pytest.raises(engram.ArgumentError, match="closed"):
        result.count()


def test_the_nearest_key_differs_in_case_alone_or_in_little() -> None:
    assert nearest("STEP", ["stop", "step", "Steps"]) == "step"
    assert nearest("temprature", ["pressure", "temperature"]) == "temperature"
    assert nearest("pressure", ["temperature", "step"]) is None
    assert nearest("x", []) is None


def test_the_command_line_notes_it_on_stderr_or_refuses(home: Path) -> None:
    path = home / "pool"
    with engram.create(path, size="64 MiB") as pool:
        pool.create_array("run/a", data=np.arange(3), attrs={"step": 3})
    ended = run("query", path, "Step = 3", "--count")
    assert (ended.code, ended.out) == (0, "0\n")
    assert ended.err == "engram: no indexed object has an attribute 'Step': did you mean step?\n"
    assert run("query", path, "step = 3", "--count", "--strict").out == "1\n"
    refused = run("query", path, "run = 1 or Step = 3", "--strict")
    assert refused.code == engram.QueryError.exit_code
    assert refused.out == ""
    assert "column 1: no indexed object has an attribute 'run'" in refused.err
    moved = run("share", path, "--where", "Step = 3")
    assert "did you mean step?" in moved.err


def test_a_column_that_nothing_has_is_told(profiles: engram.Pool) -> None:
    found = profiles.query("")
    assert len(found)
    for make in (found.to_pandas, found.to_arrow, found.to_numpy):
        with pytest.warns(engram.EngramWarning, match="did you mean temperature") as caught:
            make(["temprature", "step"])
        assert [told.filename for told in caught] == [__file__]
    with pytest.warns(engram.EngramWarning, match="no group above an object has an attribute 'no'"):
        found.to_pandas(["group.no"])
    # A result of no objects has nothing in any column.
    profiles.query("step < -1000").to_pandas(["temprature"])
