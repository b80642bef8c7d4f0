"""The index from Python: modes, settings, figures, indexing anew; no answer depends on them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from engram.index import MODES
from engram.index_stats import AttributeGroup, row_of

if TYPE_CHECKING:
    from pathlib import Path


def fill(group: engram.Group, count: int = 40, **more: Any) -> None:
    """Make so many arrays, with a key that few have, one that is constant and one that is not."""
    for n in range(count):
        attrs = {"n": n, "kind": "few" if n % 7 == 0 else "many", "same": 4}
        attrs |= {"rare": n} if n % 10 == 0 else {}
        group.create_array(f"a{n:03}", data=[n], attrs=attrs, **more)


def test_a_mode_is_the_objects_own_or_its_groups_or_the_pools(home: Path) -> None:
    with engram.create(home / "p", size="32 MiB", index="async") as pool:
        quiet = pool.create_group("quiet", index="none")
        assert pool.create_array("a", data=[1]).index == "async"
        assert quiet.create_array("b", data=[1]).index == "none"
        assert quiet.create_array("deep/er/c", data=[1]).index == "none"
        assert quiet.create_array("d", data=[1], index="sync").index == "sync"
        assert quiet.create_blob("e", b"1", index="async").index == "async"
        with quiet.allocate("f", shape=2, index="sync") as buf:
            buf[...] = 1
        assert quiet["f"].index == "sync"
        with quiet.allocate("g", shape=2) as buf:
            buf[...] = 1
        assert quiet["g"].index == "none"
        assert quiet.require_array("h", 3, index="sync").index == "sync"
        quiet["i"] = 5
        assert quiet["i"].index == "none"


@pytest.mark.parametrize("wrong", ["later", "", 5, b"sync", True])
def test_what_is_no_mode_is_refused(pool: engram.Pool, wrong: Any) -> None:
    with pytest.raises(engram.ArgumentError, match=r"sync.*async.*none"):
        pool.create_array("a", data=[1], index=wrong)
    with pytest.raises(engram.ArgumentError, match=r"sync.*async.*none"):
        pool.set_index(index=wrong)
    with pytest.raises(engram.ArgumentError, match=r"sync.*async.*none"):
        pool.create_group("g", index=wrong)
    with pytest.raises(engram.ArgumentError, match=r"sync.*async.*none"):
        engram.import_files([], pool, index=wrong)
    assert list(pool) == []


def test_settings_are_given_changed_and_forgotten(pool: engram.Pool) -> None:
    group = pool.create_group("g", attributes_per_group=None, split_on=("t", -0.5))
    assert group.index_settings == {"attributes_per_group": None, "split_on": ("t", -0.5)}
    group.set_index(index_policy="fixed", split_threshold=7)
    assert group.index_settings == {
        "attributes_per_group": None,
        "split_on": ("t", -0.5),
        "index_policy": "fixed",
        "split_threshold": 7,
    }
    group.set_index(split_on=("t", "b"), attributes_per_group=2)
    assert group.index_settings["split_on"] == ("t", "b")
    group.set_index(reset=True, index="async")
    assert group.index_settings == {"index": "async"}
    group.set_index(reset=True)
    assert group.index_settings == pool.index_settings == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"attributes_per_group": -1},
        {"split_threshold": 0},
        {"split_threshold": "many"},
        {"split_on": "t"},
        {"split_on": ("t", float("nan"))},
        {"index_policy": "lazy"},
        {"segment_rows": 1 << 40},
        {"colour": "blue"},
    ],
)
def test_what_is_no_setting_is_refused_and_changes_nothing(
    home: Path, pool: engram.Pool, wrong: dict[str, Any]
) -> None:
    with pytest.raises(engram.ArgumentError, match=next(iter(wrong))):
        pool.create_group("g", **wrong)
    assert "g" not in pool
    with pytest.raises(engram.ArgumentError, match=next(iter(wrong))):
        pool.set_index(**wrong)
    assert pool.index_settings == {}
    with pytest.raises(engram.ArgumentError, match=next(iter(wrong))):
        pool.create_namespace("ns", **wrong)
    assert "ns" not in pool.namespaces
    with pytest.raises(engram.ArgumentError, match=next(iter(wrong))):
        engram.create(home / "other", size="16 MiB", **wrong)
    assert not (home / "other").exists()


def test_modes_and_settings_change_no_answer(home: Path) -> None:
    questions = ["n < 13", "kind = 'few' and same = 4", "exists(rare)", "not n between 3 and 30"]
    layouts: list[dict[str, Any]] = [
        {},
        {"index": "async"},
        {"index_policy": "fixed", "attributes_per_group": None},
        {"attributes_per_group": 1, "segment_rows": 4, "tail_rows": 2},
        {"split_on": ("n", 20), "segment_rows": 4, "tail_rows": 2, "split_threshold": 2},
    ]
    answers = []
    for place, layout in enumerate(layouts):
        with engram.create(home / f"p{place}", size="32 MiB", **layout) as pool:
            fill(pool)
            found = [pool.query(text, order_by="@path").names() for text in questions]
            pool.drain_index()
            assert found == [pool.query(text, order_by="@path").names() for text in questions]
            answers.append(found)
        assert engram.verify(home / f"p{place}")
    assert answers == [answers[0]] * len(layouts)
    assert [len(found) for found in answers[0]] == [13, 6, 4, 12]


def test_queued_objects_are_found_at_once_or_when_they_are_indexed(home: Path) -> None:
    with engram.create(home / "p", size="32 MiB", index="async") as pool:
        with pool.batch():
            fill(pool, 20)
        assert pool.query("n < 5").count() == 5
        pool.drain_index()
        assert pool.drain_index() == 0
        assert pool.query("n < 5", consistency="eventual").count() == 5
        assert pool.index_stats().queued == 0


def test_attributes_of_mode_none_stay_on_the_object_alone(pool: engram.Pool) -> None:
    group = pool.create_group("g", attrs={"orbit": 4}, index="none")
    fill(group, 3)
    assert pool.query("exists(n)").count() == 0
    assert pool.query("not exists(n)").count() == 3
    assert pool.query("@name = 'a001' and group.orbit = 4").count() == 1
    assert group["a001"].attrs["n"] == 1
    assert pool.query("@name = 'a001'").count_attributes() == 0
    used = pool.query("@name = 'a001'")
    assert len(used) == 1
    assert used.attribute_keys() == {}
    assert pool.index_stats().unindexed == 3
    assert pool.reindex("g") == 3
    assert pool.query("n >= 1").names() == ["a001", "a002"]
    assert group["a001"].index == "sync"
    assert group.reindex(index="none") == 3
    assert pool.query("exists(n)").count() == 0
    with pytest.raises(engram.ArgumentError, match="no group"):
        pool.reindex("g/a001")


def test_annotation_after_storage_is_found(pool: engram.Pool) -> None:
    fill(pool, 30)
    pool["a003"].attrs["reviewed"] = np.datetime64("2026-11-21")
    pool["a004"].attrs.update({"n": -1, "kind": "few"})
    del pool["a005"].attrs["n"]
    assert pool.query("reviewed >= '2026-01-01'").names() == ["a003"]
    assert pool.query("n < 0").names() == ["a004"]
    assert pool.query("n = 4 or n = 5").count() == 0
    pool.move("a006", "elsewhere/b")
    assert pool.query("n = 6").paths() == ["elsewhere/b"]
    pool.create_array("a007", data=[1], overwrite=True, attrs={"n": 700})
    assert pool.query("n = 7").count() == 0
    assert pool.query("n = 700").names() == ["a007"]


def test_figures_tell_of_groups_keys_and_bytes(home: Path) -> None:
    with engram.create(home / "p", size="32 MiB", segment_rows=16, tail_rows=8) as pool:
        fill(pool, 40)
        tagged = pool.create_group("tagged", attributes_per_group=2)
        fill(tagged, 24)
        stats = pool.index_stats()
        assert stats.tail + stats.sealed - stats.dead == 64
        assert stats.segments >= 2
        assert stats.seals >= 2
        assert stats.nbytes == sum(stats.tables.values()) > 0
        assert stats["tail"] == stats.tail
        assert dict(stats)["groups"] == stats.groups
        with pytest.raises(KeyError):
            stats["nothing"]
        for group in stats.groups:
            assert group.sf == len(group.keys)
            assert group.kind in {"columns", "runs"}
            assert all(0 < count <= group.objects for count in group.keys.values())
        assert {key for group in stats.groups for key in group.keys} >= {"n", "kind", "same"}
        inside = tagged.index_stats()
        assert inside.groups
        assert {group.tag for group in inside.groups} == {"tagged"}
        assert all(group.sf <= 2 for group in inside.groups)
        for word in ("sealed", "family", "SF", "kind", "tagged"):
            assert word in repr(stats)


def test_hints_of_queries_are_seen_to_and_set_nothing(home: Path) -> None:
    with engram.create(home / "p", size="32 MiB", segment_rows=16, tail_rows=16) as pool:
        fill(pool, 60)
        pool.drain_index()
        kept = pool.index_settings
        found = pool.query("n < 20", split_on=("n", 20), split_threshold=50, merge=True)
        assert found.count() == 20
        pool.drain_index()
        assert pool.index_settings == kept
        stats = pool.index_stats()
        assert (stats.splits, stats.tail) == (1, 0)
        assert {bound for group in stats.groups for bound in group.bounds} == {"n < 20", "n >= 20"}
    with engram.open(home / "p", mode="r") as pool:
        assert pool.query("n < 2", split_on=("n", 2), merge=True).count() == 2
        assert pool.index_settings == kept
        with pytest.raises(engram.ReadOnlyError):
            pool.drain_index()
        with pytest.raises(engram.ReadOnlyError):
            pool.set_index(index="none")


def test_maintenance_is_refused_inside_a_batch(pool: engram.Pool) -> None:
    with pool.batch():
        for call in (pool.drain_index, pool.reindex):
            with pytest.raises(engram.BusyError, match="batch"):
                call()


def test_imported_arrays_have_the_mode_that_is_asked_for(home: Path, pool: engram.Pool) -> None:
    fill(pool.create_group("out"), 3)
    engram.export_file(pool["out"], home / "a.h5")
    modes: list[Any] = list(MODES)
    for mode in modes:
        engram.import_file(home / "a.h5", pool.create_group(mode), index=mode)
        assert {member.index for member in pool[mode].values()} == {mode}
    reports = engram.import_files([home / "a.h5"], pool, workers=1, index="none")
    assert reports[0].group == "a"
    assert pool["a/a001"].index == "none"
    assert pool.query("n = 1").count() == 3


def test_a_required_group_is_made_with_settings_and_keeps_those_it_has(pool: engram.Pool) -> None:
    made = pool.require_group("a/b", index="none", split_on=("t", 4))
    assert made.index_settings == {"index": "none", "split_on": ("t", 4)}
    assert pool.require_group("a/b", index="async").index_settings == made.index_settings
    with pytest.raises(engram.ArgumentError, match="no setting of the index"):
        pool.require_group("a/b", colour=4)  # type: ignore[call-arg]
    pool["x"] = 1
    with pytest.raises(engram.ExistsError):
        pool.require_group("x", index="async")


def test_none_forgets_one_setting(pool: engram.Pool) -> None:
    group = pool.create_group("g", index="async", split_on=("t", 4), split_threshold=7)
    group.set_index(split_on=None)
    assert group.index_settings == {"index": "async", "split_threshold": 7}
    nothing: Any = None
    group.set_index(index=nothing, attributes_per_group=None)
    assert group.index_settings == {"split_threshold": 7, "attributes_per_group": None}


@pytest.mark.parametrize("wrong", [0, True, False])
def test_attribute_groups_of_no_keys_are_refused(pool: engram.Pool, wrong: Any) -> None:
    with pytest.raises(engram.ArgumentError, match="from 1 on, or None"):
        pool.set_index(attributes_per_group=wrong)


def test_objects_are_split_at_what_queries_compare_with(pool: engram.Pool) -> None:
    pool.set_index(split_on=("day", np.datetime64("2020-01-01")))
    assert pool.index_settings == {"split_on": ("day", "2020-01-01")}
    pool.set_index(split_on=("day", b"noon"))
    assert pool.index_settings == {"split_on": ("day", "noon")}
    assert pool.query("day > '2019'", split_on=("day", np.datetime64("2019-01-01"))).count() == 0
    assert pool.index_settings == {"split_on": ("day", "noon")}
    with pytest.raises(engram.ArgumentError, match="NaT"):
        pool.set_index(split_on=("day", np.datetime64("NaT")))


def test_figures_are_shown_in_few_digits(pool: engram.Pool) -> None:
    group = AttributeGroup(
        family=1,
        group=2,
        tag=None,
        kind="columns",
        keys={"t": 3},
        sf=1,
        objects=3,
        blocks=1,
        nbytes=10,
        bounds=(
            'when >= "2017-09-01T12:00:00.123456789"',
            "t < -14.999999999999998",
            "t >= 1e-160",
        ),
    )
    shown = row_of(group)[-1]
    assert shown.endswith('[when >= "2017-09-01T12:00:00.123456789" and t < -15 and t >= 1e-160]')
    assert row_of(replace(group, bounds=("t < 123456", "t >= 2.5")))[-1].endswith(
        "[t < 123456 and t >= 2.5]"
    )
    assert "1.23457e+300" in row_of(replace(group, bounds=("t < 1.2345678e300",)))[-1]
    fill(pool, 300)
    pool.drain_index()
    (line,) = (
        line
        for line in str(pool.query(engram.attr("n").isin(range(500))).explain()).split("\n")
        if line.startswith("by")
    )
    assert line.startswith("by        n in (0, 1, 2")
    assert " … " in line
    assert "498, 499)" in line
    assert len(line) < 200


def test_counts_of_what_was_done_never_fall(pool: engram.Pool) -> None:
    group = pool.create_group("g")
    group.set_index(split_threshold=2)

    def counts() -> tuple[int, int, int]:
        pool.drain_index()
        stats = pool.index_stats()
        assert all(len(each.bounds) <= 2 for each in stats.groups)
        return stats.seals, stats.splits, stats.merges

    with pool.batch():
        for n in range(40_000):
            group.create_array(f"x{n}", data=[1.0], attrs={"t": n / 7})
    done = [counts()]
    assert done[0][1] > 1
    with pool.batch():
        for n in range(39_000):
            del group[f"x{n}"]
    done.append(counts())
    del pool["g"]
    done.append(counts())
    assert pool.index_stats().families <= 1
    for before, after in itertools.pairwise(done):
        assert all(now >= then for then, now in zip(before, after, strict=True)), done
