"""Attributes that are trees: they come back equal, are asked by path, and are stored whole."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
import tracemalloc
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import engram
from engram import _engram, attr, nested
from engram.formats import trees
from engram.zarr import view
from shell import run

if TYPE_CHECKING:
    from pathlib import Path

SOLVER = {
    "tol": 1e-6,
    "name": "gmres",
    "levels": [{"size": 10, "kind": "fine"}, {"size": 5, "kind": "coarse"}],
    "pre": {"kind": "ilu", "fill": 3, "on": True},
    "notes": None,
    "weights": [0.5, 0.25],
    "mixed": [1, "two", 3.0, None, [4, 5]],
    "empty": {},
    "none": [],
    "big": 2**80,
    "raw": b"\0\1\0",
}


def alike(found: Any, given: Any) -> bool:
    """Whether two trees are equal, arrays by their bytes; also of the same types."""
    if isinstance(given, dict):
        return (
            isinstance(found, dict)
            and list(found) == list(given)
            and all(alike(found[key], given[key]) for key in given)
        )
    if isinstance(given, list | tuple):
        same = isinstance(found, list) and len(found) == len(given)
        return same and all(alike(a, b) for a, b in zip(found, given, strict=True))
    if isinstance(given, np.ndarray):
        same = found.dtype == given.dtype and found.shape == given.shape
        return bool(same and found.tobytes() == given.tobytes())
    if isinstance(given, float) and math.isnan(given):
        return type(found) is float and math.isnan(found)
    return type(found) is type(given) and found == given


KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6).filter(lambda text: not text.endswith("\0"))
    | st.binary(max_size=4)
    | st.complex_numbers(allow_nan=False)
    | st.sampled_from(
        [
            np.float32(1.5),
            np.arange(6, dtype=">i2").reshape(2, 3),
            np.zeros((0, 2)),
            np.datetime64("2020-02-29T12", "h"),
            np.array(["a", "bc"]),
            np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
        ]
    )
)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)


@settings(max_examples=120)
@given(value=st.dictionaries(KEYS, TREES, max_size=5))
def test_any_tree_comes_back_equal(shared_pool: engram.Pool, value: dict[str, Any]) -> None:
    shared_pool.attrs["tree"] = value
    assert alike(shared_pool.attrs["tree"], value)
    assert alike(dict(shared_pool.attrs.items())["tree"], value)


@pytest.fixture(scope="module")
def shared_pool(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Give a pool for many examples."""
    path = tmp_path_factory.mktemp("nested") / "pool"
    with engram.create(path, size="64 MiB", force=True) as pool:
        yield pool


@pytest.mark.parametrize(
    "value",
    [
        [{"a": 1}, {"b": 2}],
        [[1], [2, 3]],
        [None],
        [1, None],
        ["a", 1],
        [2**70],
        [{}],
        [[], [1]],
        {"a": {"b": {}}},
    ],
    ids=str,
)
def test_lists_that_are_no_array_are_trees(pool: engram.Pool, value: Any) -> None:
    pool.attrs["x"] = value
    assert alike(pool.attrs["x"], value)


def test_lists_that_are_arrays_stay_arrays(pool: engram.Pool) -> None:
    day = dt.datetime(2020, 1, 1, 3)  # noqa: DTZ001 - numpy's have no zone
    for value in ([1, 2], [[1, 2], [3, 4]], ["a", "bc"], [day], [[day, day]]):
        pool.attrs["x"] = value
        assert isinstance(pool.attrs["x"], np.ndarray), value
    assert pool.attrs["x"].dtype == "M8[us]"


def test_trees_are_on_all_that_has_attributes(pool: engram.Pool) -> None:
    made = [
        pool,
        pool.create_group("g", attrs={"solver": SOLVER}),
        pool.create_array("a", data=np.arange(3), attrs={"solver": SOLVER}),
        pool.create_blob("b", b"x", attrs={"solver": SOLVER}),
    ]
    pool.attrs.update(solver=OrderedDict(SOLVER))
    for member in made:
        assert alike(member.attrs["solver"], SOLVER), member
    copied = {"t": (1, "a", {"b": (2, 3)}), "when": dt.date(2020, 1, 1)}
    pool.attrs["x"] = copied
    assert pool.attrs["x"] == {"t": [1, "a", {"b": [2, 3]}], "when": np.datetime64("2020-01-01")}


def test_a_mesh_is_a_dict_of_arrays(pool: engram.Pool) -> None:
    points = np.random.default_rng(1).random((500, 3))
    cells = np.arange(2000, dtype="i4").reshape(500, 4)
    mesh = {"points": points, "cells": cells, "kind": "tetra", "bounds": {"least": [0.0, 0.0, 0.0]}}
    array = pool.create_array("T", data=points[:, 0], attrs={"mesh": mesh})
    assert alike(array.attrs["mesh"], mesh)
    assert pool.query("mesh.kind = 'tetra' and mesh.points contains 0.5").count() == 0
    assert pool.query("mesh.cells contains 1999 and mesh.bounds.least contains 0").names() == ["T"]
    assert pool["T"].attrs["mesh"]["points"].flags.writeable


@pytest.mark.parametrize("count", [1, 3])
def test_an_array_of_structures_is_asked_as_a_structure_is(pool: engram.Pool, count: int) -> None:
    inner = np.dtype([("p", "i4"), ("q", "f8", (2,))])
    found = np.zeros(count, np.dtype([("n", "i4"), ("inner", inner, (2,))]))
    found["n"], found["inner"]["p"] = np.arange(count), [[10, 20]] * count
    found["inner"]["q"][-1] = [[1.5, 2.5], [3.5, 4.5]]
    pool.create_array("a", data=[1.0], attrs={"s": found, "t": {"s": found, "deep": {"s": found}}})
    pool.create_array("b", data=[1.0], attrs={"s": found[:0], "t": {"s": found[:0]}})
    pool.create_group("g", attrs={"t": {"s": found}})["c"] = [1.0]
    for path in ("s", "t.s", "t.deep.s"):
        assert pool.query(f"{path}.n contains {count - 1}").names() == ["a"], path
        assert pool.query(f"{path}.n contains {count}").names() == [], path
        assert pool.query(f"{path}.inner.p contains 20").names() == ["a"], path
        assert pool.query(f"{path}.inner.q contains 4.5").names() == ["a"], path
        assert pool.query(f"{path}.inner.q contains 10").names() == [], path
        assert pool.query(f"{path}.inner.z contains 10").names() == [], path
    assert pool.query("group.t.s.inner.p contains 10").names() == ["c"]
    assert pool.query("t.s.n = 0").names() == ([] if count > 1 else ["a"])


def test_a_tree_whose_fields_do_not_say_so_is_damaged(pool: engram.Pool) -> None:
    made = nested.encode("t", {"a": 1, "b": [1, "x"]})
    fields: Any = made.dtype.fields
    for spoilt in ("a", "b"):
        titles = [f"{'Q' * (name == spoilt)}{fields[name][2]}" for name in ("a", "b")]
        formats = [made.dtype[name] for name in ("a", "b")]
        pool.attrs["x"] = made.view(
            np.dtype({"names": ["a", "b"], "formats": formats, "titles": titles})
        )
        with pytest.raises(engram.CorruptError, match=f"its field '{spoilt}' does not say"):
            pool.attrs["x"]


def test_trees_are_asked_by_path_as_one_by_one(pool: engram.Pool) -> None:
    trees: dict[str, Any] = {
        f"o{n}": {
            "tol": 10.0**-n,
            "pre": {"kind": "ilu" if n % 2 else "none", "levels": list(range(n))},
            "steps": [{"n": n}, {"n": n + 1}],
            **({"only": n} if n > 5 else {}),
        }
        for n in range(9)
    }
    for name, tree in trees.items():
        pool.create_blob(name, b"", attrs={"solver": tree})
    pool.create_blob("flat", b"", attrs={"solver": "text", "solver.tol": 1.0})

    def of(judge: Any) -> list[str]:
        return [name for name, tree in trees.items() if judge(tree)]

    asked = {
        "solver.tol < 1e-5": of(lambda t: t["tol"] < 1e-5),
        "solver.pre.kind = 'ilu' and solver.tol > 1e-4": of(
            lambda t: t["pre"]["kind"] == "ilu" and t["tol"] > 1e-4
        ),
        "exists(solver.only)": of(lambda t: "only" in t),
        "solver.pre.levels contains 3": of(lambda t: 3 in t["pre"]["levels"]),
        "solver.steps.`1`.n = 5": of(lambda t: t["steps"][1]["n"] == 5),
        "not solver.only > 6": [*of(lambda t: not t.get("only", 0) > 6), "flat"],
        "`solver.tol` = 1.0": ["flat"],
    }
    for sealed in (False, True):
        if sealed:
            _engram.maintain(pool._namespace)
        for text, names in asked.items():
            assert sorted(pool.query(text).names()) == sorted(names), (text, sealed)
    ordered = pool.query("exists(solver.only) order by solver.only desc").names()
    assert ordered == ["o8", "o7", "o6"]
    assert pool.query(attr("solver")["pre"]["kind"] == "ilu").count() == 4
    assert pool.query(attr("solver")["steps"][1]["n"] == 5).names() == ["o4"]
    assert pool.aggregate("max(solver.tol) where solver.pre.kind = 'none'").item() == 1.0


class Kind(str, enum.Enum):  # noqa: UP042 - which prints as what it holds
    """A text that prints as something else."""

    X = "xyz"


class Small(enum.IntEnum):
    """A number that has a name."""

    ONE = 1


def test_trees_of_groups_are_asked_by_path(pool: engram.Pool) -> None:
    runs = pool.create_group("runs")
    runs.attrs["solver"] = {"pre": {"kind": "ilu", "fill": 2}, "tol": 1e-6, "steps": [{"n": 1}, 2]}
    for name in ("one", "other"):
        runs.create_group(name).create_array("a", data=np.zeros(3))
    runs["other"].attrs["solver"] = {"tol": 5.0}
    pool.create_array("beside", data=np.zeros(3))

    def found(query: Any) -> list[str]:
        return sorted(obj.path for obj in pool.query(query))

    assert found("group.solver.pre.kind = 'ilu'") == ["runs/one/a"]
    assert found("group.solver.tol < 1e-3") == ["runs/one/a"]
    assert found("exists(group.solver.tol)") == ["runs/one/a", "runs/other/a"]
    # The nearest group that has the attribute is the one that is asked.
    assert found("not exists(group.solver.pre.kind)") == ["beside", "runs/other/a"]
    assert found(engram.group_attr("solver")["steps"][0]["n"] == 1) == ["runs/one/a"]
    assert found("group.solver.nothing = 1 or group.nothing.tol = 1") == []
    best = pool.query("exists(group.solver.tol) order by group.solver.tol desc limit 1")
    assert [obj.path for obj in best] == ["runs/other/a"]
    table = pool.aggregate("count() group by group.solver.pre.kind")
    assert dict(table) == {None: 2, "ilu": 1}
    with pool.batch():
        runs.attrs["solver"] = {"tol": 7.0}
        assert found("group.solver.tol > 6") == ["runs/one/a"]
    pool.drain_index()
    assert found("group.solver.tol > 6") == ["runs/one/a"]


def test_what_is_no_number_is_none_in_queries_and_tables(pool: engram.Pool) -> None:
    values: list[Any] = [2.5, None, {}, "text", 2**64 - 1]
    for n, value in enumerate(values):
        pool.create_blob(f"b{n}", b"", attrs={"s": {"x": value, "list": [n, "a"]}})
    assert pool.query("s.x < 10").names() == ["b0"]
    assert pool.query("s.x = 0 or s.x.nothing = 0").count() == 0
    assert pool.query("s.x = 18446744073709551615").names() == ["b4"]
    assert pool.aggregate("max(s.x) where s.x < 10").item() == 2.5
    frame = pool.query("exists(s)").to_pandas(["s.x", "s.list"])
    assert frame["s.x"].tolist()[0] == 2.5
    assert pool.query("s.x < 10").to_pandas(["s.x"])["s.x"].tolist() == [2.5]


def test_subclasses_are_what_they_hold(pool: engram.Pool) -> None:
    pool.attrs["x"] = {"a": Kind.X, "b": [Kind.X, None], "c": Small.ONE}
    assert pool.attrs["x"] == {"a": "xyz", "b": ["xyz", None], "c": 1}


@pytest.mark.parametrize("title", ["tree oak", "tree height of it", "tree dict x 0", "tree"])
def test_a_structure_of_a_users_own_is_no_tree(pool: engram.Pool, title: str) -> None:
    own = np.array((1, 2.0), [((title, "a"), "i4"), ("b", "f8")])[()]
    pool.attrs["x"] = own
    assert isinstance(pool.attrs["x"], np.void)
    assert pool.attrs["x"] == own


def test_a_change_of_a_tree_is_whole(pool: engram.Pool) -> None:
    array = pool.create_array("a", data=[1], attrs={"solver": SOLVER, "other": 1})
    array.attrs["solver"] = {"only": {"this": 1}}
    assert array.attrs["solver"] == {"only": {"this": 1}}
    assert pool.query("exists(solver.tol)").count() == 0
    del array.attrs["solver"]
    assert dict(array.attrs) == {"other": 1}


def deep(levels: int) -> Any:
    """Give a tree of so many levels."""
    tree: Any = 1
    for _ in range(levels):
        tree = {"a": tree}
    return tree


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (deep(16), "'x.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a' is a tree of more than 15 levels"),
        ({"a": {1: 2}}, "'x.a' has the key 1"),
        ({"a": {"": 2}}, "'x.a' has the key ''"),
        ({"a": [1, {"b": object}]}, "'x.a.1.b' is <class 'object'>, of the type type"),
        ({"a": {1, 2}}, "'x.a' is {1, 2}, of the type set"),
        ({"a": "b\0"}, "cannot end in NUL"),
        ({"a": np.array([object()])}, "an array of object"),
        ({"a": "\ud800"}, "has no UTF-8"),
        ({"a": dt.datetime.now(dt.UTC)}, "numpy's times have no zone"),
        ({"a": [None] * 1001}, "'x.a' has 1001 keys or items"),
        ({"a": dt.timedelta.max}, "'x.a' is datetime.timedelta"),
        ({"a": pd.Timestamp(1)}, "of the type Timestamp"),
        ({"a": np.ma.masked}, "'x.a' is masked"),
    ],
    ids=range(13),
)
def test_what_is_no_tree_is_refused_by_its_path(pool: engram.Pool, value: Any, said: str) -> None:
    pool.attrs["before"] = 1
    with pytest.raises(engram.ArgumentError) as caught:
        pool.attrs.update(after=1, x=value)
    assert said in str(caught.value)
    assert dict(pool.attrs) == {"before": 1}, "nothing of the commit was done"


def test_a_tree_of_the_greatest_depth_is_kept_and_one_within_itself_is_refused(
    pool: engram.Pool,
) -> None:
    for value in (deep(15), {"a": deep(13) | {"m": np.zeros((2, 2))}}):
        pool.attrs["x"] = value
        assert alike(pool.attrs["x"], value)
    ring: dict[str, Any] = {}
    ring["self"] = ring
    with pytest.raises(engram.ArgumentError, match="more than 15 levels"):
        pool.attrs["x"] = ring


def test_the_command_line_shows_trees(pool: engram.Pool) -> None:
    pool.create_blob("b", b"", attrs={"solver": SOLVER, "mesh": {"points": np.zeros((2, 3))}})
    path = str(pool.path)
    shown = run("attr", path, "b", "--json")
    assert shown.code == 0, shown.err
    found = json.loads(shown.out)
    assert found["solver"]["pre"] == SOLVER["pre"]
    assert found["mesh"]["points"] == [[0.0] * 3] * 2
    assert "gmres" in run("info", path, "b").out
    assert "gmres" in run("attr", path, "b").out
    before = run("dump", path, "--text").out
    assert "gmres" in before
    pool["b"].attrs["solver"] = SOLVER | {"name": "bicg"}
    assert "bicg" in run("dump", path, "--text").out
    text = json.dumps({"tol": 1e-6, "pre": {"kind": "ilu"}, "list": [1, "a"]})
    assert run("attr", path, "b", f"set={text}").code == 0
    assert pool["b"].attrs["set"] == json.loads(text)


FILES = {
    "hdf5": "x.h5",
    "hdf5 with scales": "x.h5",  # which is read as netCDF-4 is
    "netcdf4": "x.nc",
    "netcdf4-classic": "x.nc",
    "netcdf3": "x.nc",
    "zarr": "x.zarr",
}


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=40)
@given(
    value=st.dictionaries(KEYS, TREES, max_size=5)
    | st.lists(TREES, max_size=3).map(lambda items: [None, *items])
)
def test_any_tree_comes_back_from_a_file(
    shared_pool: engram.Pool, tmp_path_factory: pytest.TempPathFactory, kind: str, value: Any
) -> None:
    path = tmp_path_factory.mktemp("files") / FILES[kind]
    for name in {"in", "back"} & set(shared_pool):
        del shared_pool[name]
    attrs = {"tree": value, "n": 1}
    group = shared_pool.create_group("in", attrs=attrs)
    dims = ["x"] if kind != "hdf5" else None
    group.create_array("x", data=np.arange(3.0), dims=dims, attrs=attrs)
    assert not engram.export_file(group, path, format=kind.partition(" ")[0]).left_out
    back = shared_pool.create_group("back")
    report = engram.import_file(path, back)
    assert not report.left_out
    assert not report.noted
    for member in (back, back["x"]):
        assert alike(member.attrs["tree"], value)
        assert set(member.attrs) == {"tree", "n"}


def written(pool: engram.Pool, path: Path, tree: Any) -> engram.ExportReport:
    """Export an array that has a tree."""
    pool.create_array("T", data=np.arange(3.0), attrs={"solver": tree}, overwrite=True)
    return engram.export_file(pool, path)


def again(pool: engram.Pool, path: Path) -> Any:
    """Import it, and give the attribute."""
    engram.import_file(path, pool.require_group("again"), overwrite=True)
    return pool["again/T"].attrs["solver"]


def test_other_programs_read_a_tree_in_a_file(pool: engram.Pool, tmp_path: Path) -> None:
    tree = {
        "tol": 1e-6,
        "pre": {"kind": "ilu", "list": [1, None, "x"]},
        "points": np.eye(2),
        "when": np.datetime64("2020-02-29"),
        "wide": {"inf": math.inf, "row": np.array([1, math.nan], "f4"), "raw": b"\0\xff"},
    }
    plain = {
        **tree,
        "points": [[1.0, 0.0], [0.0, 1.0]],
        "when": "2020-02-29",
        "wide": {"inf": "Infinity", "row": [1.0, "NaN"], "raw": "AP8="},
    }
    assert written(pool, tmp_path / "a.zarr", tree).noted == ()
    said = json.loads((tmp_path / "a.zarr/T/zarr.json").read_text(encoding="utf-8"))
    assert said["attributes"]["solver"] == plain
    for kind in ("netcdf4", "netcdf3"):
        report = engram.export_file(pool, tmp_path / f"{kind}.nc", format=kind)
        assert [e.why for e in report.noted if "solver" in e.what] == [trees.AS_TEXT]
        with netCDF4.Dataset(tmp_path / f"{kind}.nc") as file:
            assert json.loads(file["T"].solver) == plain


def test_hdf5_has_trees_as_structures(pool: engram.Pool, tmp_path: Path) -> None:
    tree = {"tol": 1e-6, "pre": {"kind": "ilu", "list": [1, None, "x"]}, "points": np.eye(2)}
    report = written(pool, tmp_path / "a.h5", tree)
    assert ["as a structure" in e.why for e in report.noted if "solver" in e.what] == [True]
    with h5py.File(tmp_path / "a.h5") as file:
        kept = file["T"].attrs["solver"]
        assert (kept["tol"], kept["pre"]["kind"], kept["points"].tolist()) == (
            1e-6,
            "ilu",
            [[1.0, 0.0], [0.0, 1.0]],
        )


@pytest.mark.parametrize(
    "tree",
    [
        {"r": 1.0, "i": 2.0},
        {"none": np.zeros((0, 3))},
        {f"key {n}": {"n": n, "text": "x"} for n in range(500)},
        {"own": np.array([(1, 2)], [(("title", "a"), "i4"), ("b", "f8")])},
    ],
    ids=["as complex numbers are", "without elements", "of a long type", "with titles of its own"],
)
def test_what_hdf5_would_not_give_back_is_json_text_there(
    pool: engram.Pool, tmp_path: Path, tree: Any
) -> None:
    report = written(pool, tmp_path / "a.h5", tree)
    assert [e.why for e in report.noted if "solver" in e.what] == [trees.AS_TEXT]
    assert alike(again(pool, tmp_path / "a.h5"), tree)


def test_long_types_and_long_values_are_structures_still(pool: engram.Pool, tmp_path: Path) -> None:
    tree = {f"key {n}": n for n in range(600)} | {"row": np.arange(7000.0)}
    report = written(pool, tmp_path / "a.h5", tree)
    assert ["as a structure" in e.why for e in report.noted if "solver" in e.what] == [True]
    assert alike(again(pool, tmp_path / "a.h5"), tree)


def test_what_another_program_has_changed_is_what_it_says(
    pool: engram.Pool, tmp_path: Path
) -> None:
    tree = {"n": np.int16(1), "text": np.str_("ab"), "row": np.arange(3), "more": [1, {}]}
    written(pool, tmp_path / "a.zarr", tree)
    document = tmp_path / "a.zarr/T/zarr.json"
    told = json.loads(document.read_text(encoding="utf-8"))
    solver = told["attributes"]["solver"]
    solver |= {"n": 70_000, "text": "abc", "row": "none", "more": [1, {"new": None}]}
    document.write_text(json.dumps(told), encoding="utf-8")
    assert alike(again(pool, tmp_path / "a.zarr"), solver)
    for changed in (3, "text", [1, 2]):
        told["attributes"]["solver"] = changed
        document.write_text(json.dumps(told), encoding="utf-8")
        assert np.all(again(pool, tmp_path / "a.zarr") == changed)
    written(pool, tmp_path / "a.nc", tree)
    with h5py.File(tmp_path / "a.nc", "a") as file:
        file["T"].attrs["solver"] = "no JSON"
    assert again(pool, tmp_path / "a.nc") == "no JSON"


@pytest.mark.parametrize(
    "mark",
    ["no JSON", "[1]", '{"solver": 1}', '{"other": {}}', '{"solver": ["dict", ["digits"]]}'],
)
def test_a_mark_that_fits_nothing_marks_nothing(
    pool: engram.Pool, tmp_path: Path, mark: str
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("T", data=np.arange(3.0))
        made.attrs["solver"] = np.array((1.5,), [("a", "f8")])[()]
        made.attrs[trees.MARK] = mark
    assert again(pool, tmp_path / "a.h5")["a"] == 1.5
    assert pool["again/T"].attrs[trees.MARK] == mark


def marked(pool: engram.Pool, path: Path, told: Any, mark: Any) -> engram.Array:
    """Import an array whose attribute `a` is told by a mark, both JSON, of a file of this name."""
    if path.suffix == ".zarr":
        made = zarr.create_array(path, shape=(3,), dtype="f8")
        made.attrs.update({"a": told, trees.MARK: mark})
    else:
        with h5py.File(path, "w", libver="latest") as file:
            made = file.create_dataset("T", data=np.arange(3.0), track_order=True)
            made.attrs["a"], made.attrs[trees.MARK] = json.dumps(told), json.dumps(mark)
    engram.import_file(path, pool.create_group(path.suffix[1:]))
    (found,) = pool[path.suffix[1:]].values()
    assert isinstance(found, engram.Array)
    return found


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize(
    ("told", "types"),
    [
        (["q"] * 5, ["U400000000", [5]]),
        (["q"] * 5, ["S400000000", [5]]),
        (["q"] * 5, ["(100000,1000)U4", [5]]),
        (["q"] * 5, ["U16000000", [1]]),
        ("q", ["U16777217", []]),
        ("", ["<U1", ["ab", 10**9], "base64"]),
        ("", ["S0", [10**9], "base64"]),
        ("", ["V0", [10**9], "base64"]),
    ],
    ids=str,
)
def test_a_mark_takes_no_more_memory_than_attributes_have(
    pool: engram.Pool, tmp_path: Path, suffix: str, told: Any, types: Any
) -> None:
    tracemalloc.start()
    try:
        array = marked(pool, tmp_path / f"a{suffix}", {"x": told}, {"a": {"x": types}})
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    assert array.attrs["a"] == {"x": told}


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_many_marked_arrays_take_no_more_memory_than_one(
    pool: engram.Pool, tmp_path: Path, suffix: str
) -> None:
    told = {f"k{n}": "q" for n in range(100)}
    mark = {"a": {key: ["U5000000", []] for key in told}}
    tracemalloc.start()
    try:
        array = marked(pool, tmp_path / f"a{suffix}", told, mark)
        assert tracemalloc.get_traced_memory()[1] < 1 << 29
    finally:
        tracemalloc.stop()
    assert array.attrs["a"] == told


def test_a_mark_of_long_words_makes_no_titles_of_them() -> None:
    dtype = np.dtype([("a", "i4")])
    for said in (["x" * 100, ["int"]], ["dict", ["x" * 100]]):
        with pytest.raises(ValueError, match="no dict or list"):
            nested.titled(dtype, said)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize(
    ("told", "types"),
    [
        ("////fw==", ["<U1", [], "base64"]),
        ("f////w==", [">U1", [1], "base64"]),
        ("AQAAAP///38=", ["[('n', '<i4'), ('t', '<U1')]", [], "base64"]),
    ],
    ids=str,
)
def test_bytes_that_are_no_characters_are_no_text(
    pool: engram.Pool, tmp_path: Path, suffix: str, told: str, types: Any
) -> None:
    array = marked(pool, tmp_path / f"a{suffix}", {"x": told}, {"a": {"x": types}})
    assert array.attrs["a"] == {"x": told}


def test_a_structure_of_what_are_no_characters_is_no_tree(
    pool: engram.Pool, tmp_path: Path
) -> None:
    written(pool, tmp_path / "a.h5", {"text": "y", "n": 1})
    content = (tmp_path / "a.h5").read_bytes()
    value = b"y\0\0\0" + (1).to_bytes(8, "little")
    assert content.count(value) == 1
    (tmp_path / "a.h5").write_bytes(content.replace(value, b"\xff\xff\xff\x7f" + value[4:]))
    assert not isinstance(again(pool, tmp_path / "a.h5"), dict)
    assert trees.MARK in pool["again/T"].attrs


def test_text_of_half_a_pair_comes_back_as_any(pool: engram.Pool, tmp_path: Path) -> None:
    tree = {"row": np.array(["\ud800", "b"]), "n": 1}
    for name in ("a.h5", "a.nc", "a.zarr"):
        written(pool, tmp_path / name, tree)
        assert alike(again(pool, tmp_path / name), tree), name


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize(
    "told",
    [
        {"\ud800": 1},
        {"x": {"x" * 70_000: 1}},
        {f"k{n}": {f"m{m}": m for m in range(300)} for n in range(10)},
    ],
    ids=["no UTF-8", "a long key", "a long dtype"],
)
def test_a_marked_tree_that_no_pool_holds_stays_as_the_file_says(
    pool: engram.Pool, tmp_path: Path, suffix: str, told: Any
) -> None:
    array = marked(pool, tmp_path / f"a{suffix}", told, {"a": {}})
    assert json.loads(array.attrs["a"]) == told
    assert json.loads(array.attrs[trees.MARK]) == {"a": {}}


def test_a_mark_that_names_itself_stays(pool: engram.Pool, tmp_path: Path) -> None:
    for name in ("a.h5", "a.zarr"):
        array = marked(pool, tmp_path / name, "text", {trees.MARK: {}})
        assert json.loads(array.attrs[trees.MARK]) == {trees.MARK: {}}


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr"])
@pytest.mark.parametrize("kind", [str, np.array], ids=["str", "array"])
def test_text_that_would_come_back_as_a_tree_is_told_or_stays(
    pool: engram.Pool, tmp_path: Path, name: str, kind: Any
) -> None:
    attrs = {"solver": kind('{"x": 1}'), trees.MARK: kind('{"solver": {}}')}
    pool.create_array("T", data=np.arange(3.0), attrs=attrs)
    if name != "a.zarr":
        with pytest.raises(engram.FormatError, match="what it would make trees of"):
            engram.export_file(pool, tmp_path / name)
    engram.export_file(pool, tmp_path / name, lossy=True)
    assert str(again(pool, tmp_path / name)) == '{"x": 1}'


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr"])
def test_the_name_of_the_mark_is_free_where_there_is_no_tree(
    pool: engram.Pool, tmp_path: Path, name: str
) -> None:
    pool.create_array("T", data=np.arange(3.0), attrs={trees.MARK: "mine", "solver": 1.5})
    engram.export_file(pool, tmp_path / name)
    assert again(pool, tmp_path / name) == 1.5
    assert pool["again/T"].attrs[trees.MARK] == "mine"
    del pool["again"]
    pool["T"].attrs["solver"] = {"a": 1}
    with pytest.raises(engram.FormatError, match="engram_trees stands beside trees"):
        engram.export_file(pool, tmp_path / name, overwrite=True)
    engram.export_file(pool, tmp_path / name, overwrite=True, lossy=True)
    assert again(pool, tmp_path / name) == {"a": 1}


def test_zarr_sees_trees_as_they_are(pool: engram.Pool) -> None:
    tree = {"points": np.eye(2), "ragged": [[1], [2, 3]]}
    pool.create_array("T", data=np.arange(3.0), attrs={"mesh": tree, "ragged": tree["ragged"]})
    shown = zarr.open_array(view(pool), path="T", mode="r")
    plain = {"points": [[1.0, 0.0], [0.0, 1.0]], "ragged": [[1], [2, 3]]}
    assert dict(shown.attrs) == {"mesh": plain, "ragged": plain["ragged"]}
