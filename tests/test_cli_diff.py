"""The command line's `diff`: what differs between pools, groups, and dumps of such."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from engram.cli import blocks
from engram.namespace import Namespaces
from shell import COMMAND, example, piped, run
from support import spoil

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


def test_of_long_texts_the_first_difference_is_shown(home: Path) -> None:
    one, other = two(home)
    values = np.arange(3000)
    for path in (one, other):
        with engram.open(path) as pool:
            pool["log"].attrs["tree"] = {"kept": 1, "a": values}
        values[2000] = 77777
    code, out, _ = run("diff", one, other)
    assert code == 1
    assert len(out) < 400
    old, new = out.split(" -> ")
    assert "1999, 2000, 2001" in old
    assert "1999, 77777, 2001" in new
    (told,) = json.loads(run("diff", one, other, "--json").out)
    assert len(told["old"]) > 10_000


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
    script = f'{" ".join(COMMAND)} diff <(cat "$1") "$2"'
    words = ["bash", "-c", script, "bash", str(files[one]), str(one)]
    assert subprocess.run(words, check=False, capture_output=True).returncode == 0


def test_damage_is_told_of_wherever_it_is(home: Path) -> None:
    sound, damaged = home / "sound", home / "damaged"
    for path in (sound, damaged):
        with engram.create(path, size="64 MiB", checksums=True) as pool:
            pool["both"], pool["same"] = np.arange(20_000.0), np.arange(5000)
            pool["longer"] = np.arange(30_000 if path == sound else 30_001, dtype="u4") * 3
            if path == damaged:
                pool["new"] = np.arange(20_000, dtype="u2") * 3
    spoil(damaged, np.arange(9000.0, 9010.0).tobytes())
    spoil(damaged, (np.arange(9000, 9010, dtype="u4") * 3).tobytes())
    spoil(damaged, (np.arange(9000, 9010, dtype="u2") * 3).tobytes())
    expected = run("diff", sound, damaged)
    code, out, err = expected
    assert (code, err.count("\n")) == (TROUBLE, 1)
    assert "3 members could not be read" in err
    lines = out.splitlines()
    assert lines[0].startswith('unreadable  /both  in B: "')
    assert lines[-2:][0] == "added    /new  array uint16 [20000]"
    told = [line.split()[1] for line in lines if line.startswith("unreadable ")]
    assert told == ["/both", "/longer", "/new"]
    found = json.loads(run("diff", damaged, sound, "--json").out)
    (both,) = (each for each in found if each["path"] == "/both")
    assert "check" in both["old"]
    assert both["new"] is None
    for path in (sound, damaged):
        run("dump", path, "-o", home / f"{path.name}.txt")
    assert run("diff", home / "sound.txt", home / "damaged.txt") == expected
    code, out, _ = run("diff", f"{damaged}:/", f"{damaged}:/")
    assert (code, out.count("unreadable ")) == (TROUBLE, 3)


def test_whole_pools_differ_in_settings_too(home: Path) -> None:
    one = example(home)
    files = {name: home / f"{name}.txt" for name in ("one", "other")}
    (home / "elsewhere").mkdir()
    other = example(home / "elsewhere")
    for path, file in zip((one, other), files.values(), strict=True):
        run("dump", path, "--all-namespaces", "-o", file)
    assert files["one"].read_bytes() == files["other"].read_bytes()
    assert run("diff", one, other, "--all-namespaces") == (0, "", "")
    with engram.open(other) as pool:
        pool.namespaces["icesat"].resize("32 MiB")
        pool.namespaces["icesat"].attrs["orbit"] = 4
        pool.create_namespace("new")["x"] = 1
        del pool["log"]
    device = home / "device"
    device.mkdir()
    with engram.open(other) as pool:
        pool.add_device(device, force=True)
    run("dump", other, "--all-namespaces", "--overwrite", "-o", files["other"])
    expected = run("diff", one, other, "--all-namespaces")
    assert (expected.code, expected.err) == (1, "")
    assert expected.out.splitlines() == [
        "changed  /  devices: 1 -> 2",
        "removed  /default/log  blob 5 bytes",
        f"changed  /icesat  size: {64 << 20} -> {32 << 20}",
        "changed  /icesat  attr orbit: (none) -> int64 4",
        "added    /new  namespace",
        "added    /new/x  array int64 []",
    ]
    assert run("diff", one, other) == (1, "removed  /log  blob 5 bytes\n", "")
    for a in (one, files["one"]):  # a dump says itself that it is of all
        assert run("diff", a, files["other"]) == expected
    ended = piped("diff", "-", other, "--all-namespaces", stdin=files["one"].read_bytes())
    assert (ended.returncode, ended.stdout.decode()) == expected[:2]


def test_one_namespace_is_not_compared_with_all(home: Path) -> None:
    path = example(home)
    run("dump", path, "-o", home / "one.txt")
    run("dump", path, "--all-namespaces", "-o", home / "all.txt")
    cases: list[tuple[list[object], str]] = [
        ([home / "one.txt", path, "--all-namespaces"], "is a dump of one namespace"),
        ([home / "one.txt", home / "all.txt"], "is a dump of one namespace"),
        ([home / "all.txt", path, "-n", "icesat"], "is a dump of all namespaces"),
        ([f"{path}:run-17", path, "--all-namespaces"], "run-17 is a group"),
        ([path, path, "--all-namespaces", "-n", "icesat"], "exclude each other"),
    ]
    for words, said in cases:
        told = run("diff", *map(str, words))
        assert (told.code, told.out, told.err.count("\n")) == (TROUBLE, "", 1)
        assert said in told.err


def test_members_that_are_left_out_are_not_taken_for_equal(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = example(home)
    (home / "elsewhere").mkdir()
    other = example(home / "elsewhere")
    with engram.open(other) as pool:
        pool.namespaces["icesat"]["inside"][0] = 5
        pool.namespaces["icesat"]["more"] = 1
    whole = home / "whole.txt"
    run("dump", one, "--all-namespaces", "-o", whole)
    real = Namespaces.__getitem__

    def opened(spaces: Namespaces, name: str) -> engram.Namespace:
        if name == "icesat":
            raise engram.AccessError("not here")
        return real(spaces, name)

    monkeypatch.setattr(Namespaces, "__getitem__", opened)
    code, out, err = run("diff", one, other, "--all-namespaces")
    assert (code, out.count("\n")) == (TROUBLE, 1)
    assert out.startswith("unreadable  /icesat  in A and B: its members are left out")
    assert "the members of 1 namespace are left out" in err
    closed = home / "closed.txt"
    assert run("dump", other, "--all-namespaces", "-o", closed).code == 0
    for a, b, where in ((one, closed, "A and B"), (closed, closed, "A and B"), (whole, one, "B")):
        code, out, _ = run("diff", a, b, "--all-namespaces")
        assert (code, out.count("\n")) == (TROUBLE, 1)
        assert out.startswith(f"unreadable  /icesat  in {where}: its members are left out")
    (told,) = json.loads(run("diff", whole, closed, "--json").out)
    assert (told["change"], told["path"], told["what"]) == ("unreadable", "/icesat", "members")
    assert told["old"] is None


@pytest.mark.parametrize("words", [[], ["--all-namespaces"]])
def test_a_dump_without_sums_compares_no_values_out_of_a_pipe_either(
    home: Path, words: list[str]
) -> None:
    path = example(home)
    bare = run("dump", path, "--no-values", *words).out.encode()
    for sides in (["-", path], [path, "-"]):
        ended = piped("diff", *sides, *words, stdin=bare)
        assert (ended.returncode, ended.stdout) == (0, b"")
        assert b"- has no sums of values: values are not compared" in ended.stderr
    ended = piped("diff", "-", path, stdin=bare)  # it says itself that it is of all
    assert (ended.returncode, ended.stdout) == (0, b"")
    (home / "bare.txt").write_bytes(bare)
    script = f'{" ".join(COMMAND)} diff <(cat "$1") "$2"'
    command = ["bash", "-c", script, "bash", str(home / "bare.txt"), str(path)]
    told = subprocess.run(command, check=False, capture_output=True)
    assert (told.returncode, told.stdout) == (0, b"")


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
