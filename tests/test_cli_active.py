"""`engram active` and `engram gc`: what they list, call and collect, and how they refuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest

import engram
from engram import active
from engram.active.code import classes
from shell import piped, run
from support import PATIENCE, in_child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODEL = '''
import engram
import numpy as np


class Field(engram.ActiveObject):
    """What is called."""

    data: np.ndarray
    label: str = "cold"
    other: "Field | None" = None

    @engram.activemethod
    def mean(self) -> float:
        return float(self.data.mean())

    @engram.activemethod
    def scale(self, factor: float, offset: float = 0.0) -> None:
        self.data *= factor
        self.data += offset

    @engram.activemethod
    def rename(self, label: str) -> str:
        self.label = label
        return label

    @engram.activemethod
    def given(self, *args, **kwargs):
        return [list(args), kwargs]

    @engram.activemethod
    def array(self):
        return self.data[:2]

    @engram.activemethod
    def fail(self):
        raise RuntimeError("no fuel")

    @engram.activemethod
    def odd(self):
        return object

    def plain(self):
        return 1
'''


@pytest.fixture
def path(home: Path) -> Iterator[Path]:
    """Give a closed pool with two objects of a class whose module is in `modules` beside it."""
    (home / "modules").mkdir()
    (home / "modules" / "fielding.py").write_text(MODEL, encoding="utf-8")
    made = home / "pool"
    in_child(
        textwrap.dedent(
            """
            import sys
            sys.path.insert(0, sys.argv[2])
            import engram, numpy as np, fielding
            with engram.create(sys.argv[1], size="16 MiB", force=True):
                field = fielding.Field(np.arange(4.0), other=fielding.Field(np.ones(2)))
                field.make_persistent("T")
                field.add_alias("temperature")
            """
        ),
        made,
        home / "modules",
    )
    before = dict(classes._ours)
    yield made
    classes._ours.clear()
    classes._ours.update(before)


def listed(path: Path, *words: str) -> list[dict[str, Any]]:
    ended = run("active", "ls", path, "--json", *words)
    assert ended.code == 0
    found: list[dict[str, Any]] = json.loads(ended.out)
    return found


# ls, classes


def test_ls_lists_aliases_classes_ids_and_bytes(path: Path) -> None:
    ended = run("active", "ls", path)
    assert ended.code == 0
    head, line = ended.out.splitlines()
    assert head.split() == ["alias", "class", "id", "bytes"]
    assert line.startswith("T, temperature")
    assert "fielding.Field@1" in line
    assert line.endswith("32 B")
    (fact,) = listed(path)
    assert fact.pop("id") in line
    assert fact == {"class": "fielding.Field@1", "aliases": ["T", "temperature"], "nbytes": 32}
    everything = listed(path, "--all")
    assert [each["aliases"] for each in everything].count([]) == 1
    assert len(everything) == 2


def test_ls_of_none_is_empty_and_of_another_namespace_its_own(path: Path) -> None:
    with engram.open(path) as pool:
        pool.create_namespace("other")
    assert listed(path, "--namespace", "other") == []
    assert run("active", "ls", path, "--namespace", "other").code == 0
    ended = run("active", "ls", path, "--namespace", "nowhere")
    assert ended.code == engram.NotFoundError.exit_code
    assert "nowhere" in ended.err
    assert run("active", "ls", path / "none").code == engram.PoolNotFoundError.exit_code


def test_ls_says_where_what_has_moved_is(path: Path, home: Path) -> None:
    with engram.open(path) as pool, engram.create(home / "far", size="16 MiB", force=True) as far:
        active.load_class("fielding.Field", pool).get_by_alias("T", pool=pool).move(far)
    (here,) = listed(path)
    assert str(home / "far") in here["class"]
    (there,) = listed(home / "far")
    assert there["class"] == "fielding.Field@1"
    ended = run("active", "call", path, "T", "mean")
    assert (ended.code, ended.out) == (0, "1.5\n")


def test_classes_tells_fields_methods_and_author_and_prints_the_source(path: Path) -> None:
    ended = run("active", "classes", path)
    assert ended.code == 0
    assert "fielding.Field, version 1" in ended.out
    assert "data: numpy.ndarray" in ended.out
    assert "scale(self, factor: 'float', offset: 'float' = 0.0)" in ended.out.replace(
        "\n", " "
    ) or ("scale(self, factor: float, offset: float = 0.0)" in ended.out.replace("\n", " "))
    (fact,) = json.loads(run("active", "classes", path, "--json").out)
    assert fact["name"] == "fielding.Field"
    assert fact["fields"]["label"] == "str"
    assert fact["missing"] == []
    assert "source" not in fact
    (fact,) = json.loads(run("active", "classes", path, "fielding.Field", "--source", "--json").out)
    assert "class Field(engram.ActiveObject):" in fact["source"]
    printed = run("active", "classes", path, "--source").out
    assert printed.splitlines() == fact["source"].splitlines()


def test_a_class_that_is_not_there_is_told(path: Path) -> None:
    ended = run("active", "classes", path, "no.Such")
    assert ended.code == active.ClassUnknownError.exit_code
    assert "it keeps: fielding.Field" in ended.err


# call


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["mean"], "1.5\n"),
        (["scale", "2"], ""),
        (["scale", "2", "offset=1.5"], ""),
        (["rename", '"warm"'], "warm\n"),
        (["rename", "label=warm"], "warm\n"),
        (["rename", "ünïcode"], "ünïcode\n"),
        (["given", "1", "1.5", "true", "null", "[1, 2]", "text", "x=3"],
         "[[1, 1.5, True, None, [1, 2], 'text'], {'x': 3}]\n"),
        (["array"], "[0. 1.]\n"),
    ],
)  # fmt: skip
def test_call_runs_a_method_with_arguments_and_prints_its_result(
    path: Path, words: list[str], printed: str
) -> None:
    ended = run("active", "call", path, "T", *words)
    assert (ended.code, ended.out) == (0, printed)


def test_what_a_call_changes_stays(path: Path) -> None:
    assert run("active", "call", path, "T", "scale", "3", "1").code == 0
    assert run("active", "call", path, "temperature", "mean").out == "5.5\n"
    (fact,) = listed(path)
    assert run("active", "call", path, fact["id"], "mean").out == "5.5\n"


def test_call_prints_json_if_so_asked(path: Path) -> None:
    for method, result in (("array", [0.0, 1.0]), ("mean", 1.5), ("scale", None)):
        words = ["1"] if method == "scale" else []
        ended = run("active", "call", path, "T", method, *words, "--json")
        assert json.loads(ended.out) == result
    assert json.loads(run("active", "call", path, "T", "odd", "--json").out) == "<class 'object'>"


def test_call_imports_a_module_and_then_runs_nothing_of_the_pool(path: Path, home: Path) -> None:
    model = (home / "modules" / "fielding.py").read_text(encoding="utf-8")
    (home / "modules" / "fielding.py").write_text(
        model.replace("self.data.mean()", "-1"), encoding="utf-8"
    )
    os.environ["PYTHONPATH"], before = str(home / "modules"), os.environ.get("PYTHONPATH")
    try:
        os.environ["PYTHONPATH"] += os.pathsep + os.pathsep.join(filter(None, sys.path))
        ended = piped("active", "call", path, "T", "mean", "--module", "fielding")
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"-1.0\n", b"")
        ended = piped("active", "call", path, "T", "mean")
        assert (ended.returncode, ended.stdout) == (0, b"1.5\n")
        assert b"running the source of class fielding.Field" in ended.stderr
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        (["none", "mean"], active.AliasNotFoundError, "no object has the alias 'none'"),
        (["dead", "mean"], active.AliasNotFoundError, "no object has the alias 'dead'"),
        (["T", "nothing"], engram.ArgumentError, "no active method of 'T': it has"),
        (["T", "plain"], engram.ArgumentError, "'plain' is no active method"),
        (["T", "label"], engram.ArgumentError, "'label' is no active method"),
        (["T", "scale"], engram.ArgumentError, "missing a required argument: 'factor'"),
        (["T", "scale", "1", "2", "3"], engram.ArgumentError, "too many positional arguments"),
        (["T", "scale", "1", "more=2"], engram.ArgumentError, "unexpected keyword argument"),
        (["T", "fail"], active.MethodError, "fail of 'T' failed: RuntimeError: no fuel"),
        (["T", "mean", "--module", "no.such"], engram.NotFoundError, "'no.such' was not imported"),
    ],
)
def test_wrong_calls_are_told(
    path: Path, words: list[str], error: type[engram.EngramError], told: str
) -> None:
    ended = run("active", "call", path, *words)
    assert ended.code == error.exit_code
    assert told in " ".join(ended.err.split())
    assert ended.out == ""
    assert run("active", "call", path, "T", "mean").out == "1.5\n"


def test_a_source_that_others_may_have_written_is_not_run_without_trust(path: Path) -> None:
    path.chmod(0o777)
    ended = run("active", "call", path, "T", "mean")
    assert ended.code == active.UntrustedCodeError.exit_code
    assert "others may write" in ended.err
    assert run("active", "call", path, "T", "mean", "--trust").out == "1.5\n"


# gc


@pytest.mark.parametrize("verb", [["gc"], ["active", "gc"]])
def test_gc_collects_what_no_alias_leads_to(path: Path, verb: list[str]) -> None:
    def did(*words: object) -> str:
        ended = run(*verb, path, *words)
        assert ended.code == 0, ended.err
        return ended.out + ended.err

    assert "collected: 0 objects (0 B); reachable: 2" in did()
    with engram.open(path) as pool, active.use(pool):
        active.ActiveObject.delete_alias("T")
        active.ActiveObject.delete_alias("temperature")
    assert "would go: 2 objects (48 B); reachable: 0" in did("--dry-run")
    assert "kept 2 unreachable ones" in did("--older-than", "3600")
    told = json.loads(did("--dry-run", "--json"))
    assert told == {"objects": 2, "nbytes": 48, "kept": 0, "reachable": 0}
    assert json.loads(did("--json")) == told
    assert listed(path, "--all") == []
    assert json.loads(did("--json"))["objects"] == 0


def test_gc_goes_on_until_it_is_interrupted(path: Path) -> None:
    with engram.open(path, mode="r+") as pool, active.use(pool):
        active.ActiveObject.delete_alias("T")
        active.ActiveObject.delete_alias("temperature")
    words = ("gc", str(path), "--every", "0.1", "--older-than", "0", "--json")
    with subprocess.Popen(
        [sys.executable, "-m", "engram", *words], stdout=subprocess.PIPE, text=True
    ) as verb:
        end = time.monotonic() + PATIENCE
        while listed(path, "--all"):
            assert time.monotonic() < end
        verb.send_signal(signal.SIGINT)
        out, _ = verb.communicate(timeout=PATIENCE)
    told = json.loads(out)
    assert (told["objects"], told["nbytes"], told["error"]) == (2, 48, None)


def test_gc_refuses_what_makes_no_sense(path: Path) -> None:
    assert run("gc", path, "--every", "1", "--dry-run").code == 2
    ended = run("gc", path, "--every", "0")
    assert ended.code == engram.ArgumentError.exit_code
    assert "every 0.0 is no time" in " ".join(ended.err.split())
    for words in (["--older-than", "-1"], ["--older-than", "soon"], ["more"]):
        assert run("gc", path, *words).code == 2
    assert run("gc", path / "none").code == engram.PoolNotFoundError.exit_code
