"""The command line's `diff`: what differs between pools, groups, and dumps of such."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from engram.cli import blocks
from shell import example, piped, run

if TYPE_CHECKING:
    from pathlib import Path

TROUBLE = 2


def refused(member: engram.Array) -> str:
    raise engram.EngramError(f"{member.path} was read")


def two(home: Path) -> tuple[Path, Path]:
    """Make two pools of the same contents."""
    one = example(home)
    other = home / "other"
    with engram.open(one) as pool:
        pool["run-17/two\nlines"] = [1.5]
        pool.backup(other)
    return one, other


def changed(path: Path) -> None:
    """Change a pool in each way that there is."""
    with engram.open(path) as pool:
        del pool["log"]
        pool["new"] = b"abc"
        pool["a b/ö"] = np.zeros((2, 3), "f4")
        step = pool["run-17/step-0400"]
        step.attrs["orbit"] = np.int32(4)
        step["T"].attrs.update({"units": "two\nlines", "nan": np.nan})
        step["T"][0, 0] = -0.0
        step["names"] = np.array(["a", "o"], object)
        pool.create_array("run-17/step-0500/T", data=np.arange(4.0), dims=["x"], overwrite=True)
        pool["run-17/two\nlines"][0] = 2.5
        pool.create_group("run-17/step-0600", index="async")


LINES = r"""
added    "/a b"  group
added    "/a b/ö"  array float32 [2, 3]
removed  /log  blob 5 bytes
added    /new  blob 3 bytes
changed  /run-17/step-0400  attr orbit: int16 4 -> int32 4
changed  /run-17/step-0400/T  attr nan: (none) -> float64 nan
changed  /run-17/step-0400/T  attr units: str "K" -> str "two\nlines"
changed  /run-17/step-0400/T  values: sha256 # -> sha256 #
changed  /run-17/step-0400/names  nbytes: # -> #
changed  /run-17/step-0500/T  dims: (none) -> ["x"]
changed  /run-17/step-0500/T  dtype: float32 -> float64
changed  /run-17/step-0500/T  nbytes: 48 -> 32
changed  /run-17/step-0500/T  shape: [3, 4] -> [4]
added    /run-17/step-0600  group
changed  "/run-17/two\nlines"  values: sha256 # -> sha256 #
"""


def masked(text: str) -> list[str]:
    """Return lines without what stands for values."""
    lines = []
    for line in text.strip().splitlines():
        words = line.split(" ")
        for n, word in enumerate(words[:-1]):
            if word == "sha256":
                assert words[n + 1] == "#" or len(words[n + 1]) == 12
                words[n + 1] = "#"
        if "names  nbytes" in line:
            words[-3] = words[-1] = "#"
        lines.append(" ".join(words))
    return lines


def test_equal_pools_differ_in_nothing(home: Path) -> None:
    one, other = two(home)
    assert run("diff", one, other) == (0, "", "")
    assert run("diff", one, other, "--json") == (0, "[]\n", "")
    assert run("diff", one, other, "-n", "icesat") == (0, "", "")


def test_each_difference_is_a_line_in_the_order_of_paths(home: Path) -> None:
    one, other = two(home)
    changed(other)
    code, out, err = run("diff", one, other)
    assert (code, err) == (1, "")
    assert masked(out) == masked(LINES)
    code, out, _ = run("diff", other, one)
    assert code == 1
    assert "removed  /new  blob 3 bytes\n" in out
    assert "attr orbit: int32 4 -> int16 4\n" in out


def test_json_has_all_of_each_difference(home: Path) -> None:
    one, other = two(home)
    changed(other)
    code, out, _ = run("diff", one, other, "--json")
    found: list[dict[str, Any]] = json.loads(out)
    assert code == 1
    assert len(found) == len(masked(LINES))
    assert found[0] == {
        "change": "added",
        "path": "/a b",
        "what": "group",
        "old": None,
        "new": "group",
    }
    (values,) = (each for each in found if each["path"] == "/run-17/two\nlines")
    assert (values["change"], values["what"]) == ("changed", "values")
    assert [len(values[side]) for side in ("old", "new")] == [71, 71]


def test_dumps_stand_for_their_pools(home: Path) -> None:
    one, other = two(home)
    changed(other)
    files = {path: home / f"{path.name}.txt" for path in (one, other)}
    for path, file in files.items():
        assert run("dump", path, "-o", file).code == 0
        assert run("diff", file, path) == (0, "", "")
    expected = run("diff", one, other)
    for a in (one, files[one]):
        for b in (other, files[other]):
            assert run("diff", a, b) == expected
    ended = piped("diff", "-", other, stdin=files[one].read_bytes())
    assert (ended.returncode, ended.stdout.decode()) == (1, expected.out)
    run("dump", one, "--all", "-o", home / "all.txt")
    assert run("diff", home / "all.txt", one) == (0, "", "")


def test_groups_of_one_pool_are_compared(home: Path) -> None:
    path = example(home)
    code, out, _ = run("diff", f"{path}:run-17/step-0400", f"{path}:/run-17/step-0500/")
    assert code == 1
    lines = out.splitlines()
    assert lines[:2] == [
        "changed  /  attr orbit: int16 4 -> (none)",
        'changed  /T  dims: ["y", "x"] -> (none)',
    ]
    assert lines[2] == 'changed  /T  attr units: str "K" -> (none)'
    assert lines[3].startswith("changed  /T  values: ")
    assert lines[4:] == ["removed  /names  array string [2]"]
    with engram.open(path) as pool:
        pool.backup(home / "a:b")
    assert run("diff", f"{home}/a:b:run-17", f"{path}:run-17") == (0, "", "")


def test_without_values_none_are_read_or_compared(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two(home)
    with engram.open(other) as pool:
        pool["run-17/two\nlines"][0] = 2.5
    assert run("diff", one, other).code == 1
    run("dump", one, "--no-values", "-o", home / "bare.txt")

    monkeypatch.setattr(blocks, "sum_of", refused)
    assert run("diff", one, other, "--no-values") == (0, "", "")
    code, out, err = run("diff", home / "bare.txt", other)
    assert (code, out) == (0, "")
    assert "bare.txt has no sums of values: values are not compared" in err


def test_values_are_read_only_where_dtype_and_size_agree(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, data in (("one", np.arange(4)), ("other", np.arange(4.0))):
        with engram.create(home / name, size="64 MiB") as pool:
            pool["x"] = data
            pool["y"] = np.arange(3 if name == "one" else 4)

    monkeypatch.setattr(blocks, "sum_of", refused)
    code, out, _ = run("diff", home / "one", home / "other")
    assert code == 1
    assert [line.split()[2] for line in out.splitlines()] == ["dtype:", "nbytes:", "shape:"]


def test_a_group_that_has_become_an_array_is_told_with_what_was_in_it(home: Path) -> None:
    one, other = two(home)
    with engram.open(other) as pool:
        del pool["run-17/step-0500"]
        pool["run-17/step-0500"] = 1
    code, out, _ = run("diff", one, other, "--no-values")
    assert code == 1
    assert out.startswith("changed  /run-17/step-0500  kind: group -> array\n")
    assert out.endswith("removed  /run-17/step-0500/T  array float32 [3, 4]\n")


@pytest.mark.parametrize(
    ("a", "said"),
    [
        ("{home}/nope", "there is no pool"),
        ("{home}/pool:nope", "no 'nope'"),
        ("{home}/pool:log", "is no group"),
        ("", "empty"),
        ("engram://job", "is a cluster"),
        ("{home}/empty.txt", "is no dump"),
        ("{home}/other.txt", "is no dump"),
        ("{home}/newer.txt", "version 2"),
        ("{home}/cut.txt", "is cut off after line"),
        ("{home}/cut2.txt", "is cut off after line"),
        ("{home}/order.txt", "order of paths"),
        ("{home}/field.txt", "is no field"),
        ("{home}/head.txt", "line 5 is none of a dump"),
        ("{home}/bytes.txt", "is no dump"),
    ],
)
def test_what_cannot_be_compared_is_told_and_exits_with_2(home: Path, a: str, said: str) -> None:
    path = example(home)
    whole = run("dump", path).out
    texts = {
        "empty": "",
        "other": "hello\n",
        "newer": whole.replace("dump 1", "dump 2"),
        "cut": whole[: len(whole) // 2],
        "cut2": whole.removesuffix("# end\n"),
        "order": whole.replace("blob /log", "blob /zoo"),
        "field": whole.replace("  scope shared", "  scope", 1),
        "head": whole.replace("group /\n", "group\n", 1),
    }
    for name, text in texts.items():
        (home / f"{name}.txt").write_text(text, encoding="utf-8")
    (home / "bytes.txt").write_bytes(whole.encode().replace(b"/log", b"/\xff"))
    code, _, err = run("diff", a.format(home=home), path)
    assert (code, err.count("\n")) == (TROUBLE, 1)
    assert said in err
    told = run("diff", a.format(home=home), path, "--json").err
    assert json.loads(told)["error"]["kind"] != "UsageError"


def test_both_cannot_be_stdin() -> None:
    assert run("diff", "-", "-").code == TROUBLE
