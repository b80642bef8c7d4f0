"""The command line's `attr`: attributes listed, set and deleted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from shell import example, run

if TYPE_CHECKING:
    from pathlib import Path

T = "run-17/step-0400/T"


def test_attributes_are_listed_one_a_line_exactly(home: Path) -> None:
    path = example(home)
    values = {
        "a = b": 1,
        "be": np.array(4, ">i4"),
        "bytes": b"a\0b",
        "complex": -0.0 - 1j,
        "empty": np.zeros((0, 3)),
        "nan": np.float32("nan"),
        "new\nline": "two\nlines\x1b\u202e",
        "other nan": np.array(0x7FC00001, "u4").view("f4"),
        "precise": np.float64(0.1) + 0.2,
        "structure": np.array([(1, 0.5)], [("n", "i2"), ("x", "f4")]),
        "time": np.datetime64("2017-09-05T12", "h"),
        "words": np.array(["a", "ö"], np.dtypes.StringDType()),
        "zero": -0.0,
        "öl": True,
    }
    with engram.open(path) as pool:
        pool.attrs.update(values)
    code, out, err = run("attr", path, "/")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        '"a = b" = int64 1',
        "be = >i4 4",
        "bytes = |S3 0x610062",
        "complex = complex128 [-0.0, -1.0]",
        "empty = float64[0, 3] []",
        "nan = float32 nan",
        '"new\\nline" = str "two\\nlines\\u001b\\u202e"',
        '"other nan" = float32 nan:7fc00001',
        "precise = float64 0.30000000000000004",
        """structure = [('n', '<i2'), ('x', '<f4')][1] [{"n": 1, "x": 0.5}]""",
        "time = datetime64[h] 2017-09-05T12",
        'words = string[2] ["a", "ö"]',
        "zero = float64 -0.0",
        "öl = bool true",
    ]
    assert run("attr", path, "log") == (0, "", "")
    assert json.loads(run("attr", path, T, "--json").out) == {"units": "K"}


def test_values_are_json_where_they_are_and_text_otherwise(home: Path) -> None:
    path = example(home)
    words = ["n=3", "x=-1.5e3", "ok=true", "t=01:30", "v=[1, 2.5]", "s=[]", "e=", "nan=NaN"]
    words += ['year="2017"', "month=2017-09", "eq=a=b", '"a=b"=1', "ö=ä\nö"]
    assert run("attr", path, T, *words) == (0, "", "")
    with engram.open(path) as pool:
        found = pool[T].attrs
        expected = {"n": 3, "x": -1500.0, "ok": True, "t": "01:30", "e": "", "year": "2017"}
        expected |= {"month": "2017-09", "eq": "a=b", "a=b": 1, "ö": "ä\nö", "units": "K"}
        for key, value in expected.items():
            assert found[key] == value
            assert isinstance(value, str) == isinstance(found[key], str)
        assert found["ok"].dtype == bool
        assert found["n"].dtype == np.int64
        assert np.isnan(found["nan"])
        assert found["v"].tolist() == [1.0, 2.5]
        assert found["s"].shape == (0,)
        assert len(found) == len(expected) + 3


def test_objects_are_trees_and_brackets_in_quotes_are_text(home: Path) -> None:
    path = example(home)
    words = ['solver={"tol": 1e-6}', 'range="[0, 1)"', "set={}"]
    assert run("attr", path, "log", *words) == (0, "", "")
    refused = run("attr", path, "log", "n=1", "c={bad json}").err
    (_, as_text, _) = refused.split("'")[-3:]
    assert run("attr", path, "log", as_text) == (0, "", "")
    found = json.loads(run("attr", path, "log", "--json").out)
    expected = {"solver": {"tol": 1e-6}, "range": "[0, 1)", "set": {}}
    assert found == expected | {"c": "{bad json}"}
    shown = run("attr", "--help").out
    assert """'solver={"tol":1e-6}'""" in shown  # as a shell leaves it


@pytest.mark.parametrize(
    ("change", "dtype", "expected"),
    [
        ("x=4", "int16", np.int16(4)),
        ("x=0.1", "f4", np.float32(0.1)),
        ("x=[1,2]", ">i4", np.array([1, 2], ">i4")),
        ("x=2017-09-05", "M8[D]", np.datetime64("2017-09-05", "D")),
        ("x=ab", "U4", np.array("ab", "U4")[()]),
        ("x=1", "bool", np.bool_(True)),
    ],
)
def test_a_dtype_is_kept(home: Path, change: str, dtype: str, expected: np.ndarray) -> None:
    path = example(home)
    assert run("attr", path, "log", change, "--dtype", dtype).code == 0
    with engram.open(path) as pool:
        found = np.asarray(pool["log"].attrs["x"])
    np.testing.assert_array_equal(found, expected)
    if dtype != "U4":  # one text is a str
        assert found.dtype == np.asarray(expected).dtype


def test_setting_and_deleting_are_one_commit(home: Path) -> None:
    path = example(home)
    told = run("attr", path, T, "level=3", "--delete", "units", "--json")
    assert (told.code, json.loads(told.out)) == (0, {"level": 3})
    refused = run("attr", path, T, "level=4", "--delete", "levels")
    assert (refused.code, refused.out) == (engram.NotFoundError.exit_code, "")
    assert "'levels' to delete: did you mean 'level'?" in refused.err
    assert json.loads(run("attr", path, T, "--json").out) == {"level": 3}


def test_the_namespace_is_chosen_and_groups_have_attributes(home: Path) -> None:
    path = example(home)
    assert run("attr", path, "/", "title=ice", "-n", "icesat").code == 0
    assert run("attr", path, "inside", "n=1", "-n", "icesat").code == 0
    assert run("attr", path, "/").out == ""
    assert run("attr", path, "run-17/step-0400").out == "orbit = int16 4\n"
    with engram.open(path, mode="r") as pool:
        assert pool.namespaces["icesat"].attrs["title"] == "ice"
        assert pool.namespaces["icesat"]["inside"].attrs["n"] == 1


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["nope", "a=1"], engram.NotFoundError, "nope"),
        (["log", "units"], engram.ArgumentError, "'units' sets no attribute: write KEY=VALUE"),
        (["log", ""], engram.ArgumentError, "sets no attribute"),
        (["log", "=3"], engram.ArgumentError, "sets no attribute"),
        (["log", '"a=3'], engram.ArgumentError, "sets no attribute"),
        (["log", "a=1", "a=2"], engram.ArgumentError, "set twice"),
        (["log", "a=1", "-d", "a"], engram.ArgumentError, "set and deleted"),
        (["log", "a=null"], engram.ArgumentError, "--delete a"),
        (["log", 'a={"": 1}'], engram.ArgumentError, "'a' has the key ''"),
        (["log", '["a", 1]'], engram.ArgumentError, "sets no attribute"),
        (["log", "a={bad json}"], engram.ArgumentError, "as an object of JSON does, and is none"),
        (["log", "a={bad json}"], engram.ArgumentError, "double quotes at character 2"),
        (["log", "a={bad json}"], engram.ArgumentError, """text with 'a="{bad json}"'"""),
        (["log", "a=[1,2"], engram.ArgumentError, "as a list of JSON does, and is none"),
        (["log", "a= [1,2] m"], engram.ArgumentError, "Extra data at character 8"),
        (["log", '"a b"=[0, 1)'], engram.ArgumentError, """text with '"a b"="[0, 1)"'"""),
        (["log", f"a={'[' * 10**5}"], engram.ArgumentError, f"'{'[' * 60}...'"),
        (["log", f"a={10**30}"], engram.ArgumentError, "64-bit"),
        (["log", 'a={"k": {"x": 1, "x": 2}}'], engram.ArgumentError, "has the key 'x' twice"),
        (["log", "a=1e400"], engram.ArgumentError, "1e400, which is beyond float64"),
        (["log", "a=[1.0, -1e400]"], engram.ArgumentError, "-1e400, which is beyond float64"),
        (["log", "a=70000", "--dtype", "i2"], engram.ArgumentError, "70000 as int16"),
        (["log", "a=3.5", "--dtype", "i2"], engram.ArgumentError, "3.5 as int16"),
        (["log", "a=abcd", "--dtype", "U2"], engram.ArgumentError, "abcd"),
        (["log", "a=1", "--dtype", "O"], engram.ArgumentError, "as object"),
        (["log", "a=1", "--dtype", "number"], engram.ArgumentError, "'number' is no dtype"),
        (["log", "--dtype", "i2"], engram.ArgumentError, "give KEY=VALUE"),
        (["log", "-d", "a"], engram.NotFoundError, "it has none"),
        (["run-17/step-0400", "-d", "x"], engram.NotFoundError, "it has 'orbit'"),
        (["log", "a=1", "-n", "no"], engram.NotFoundError, "icesat"),
    ],
)
def test_what_cannot_be_set_is_refused_and_changes_nothing(
    home: Path, words: list[str], error: type[engram.EngramError], said: str
) -> None:
    path = example(home)
    code, out, err = run("attr", path, *words)
    assert (code, out, err.count("\n")) == (error.exit_code, "", 1)
    assert said in err
    assert run("attr", path, "log").out == ""


def test_no_command_is_proposed_that_would_store_a_part_of_a_value(home: Path) -> None:
    path = example(home)
    text = "[see above] " + "x" * 100
    told = run("attr", path, "log", f"note={text}").err
    assert f"cannot be '{text[:60]}...'" in told
    assert 'note="' not in told
    assert "as text in double quotes" in told
    quoted = f'"{text}"'
    assert run("attr", path, "log", f"note={quoted}").code == 0
    assert run("attr", path, "log").out == f"note = str {quoted}\n"


def test_what_is_read_only_is_listed_and_not_changed(home: Path) -> None:
    path = example(home)
    run("protect", path, "run-17")
    assert run("attr", path, T, "a=1").code == engram.ReadOnlyError.exit_code
    assert run("attr", path, T, "-d", "units").code == engram.ReadOnlyError.exit_code
    assert run("attr", path, T).out == 'units = str "K"\n'
