"""Which classes fit what is stored: widened ones, those of spawned processes, and of a source."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

import engram
from engram import active
from engram.active.code.classes import stored_class
from engram.active.stored.home import home_of
from shell import run
from test_active_classes import define, forgetful, said

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["forgetful"]

WIDER = [
    ("int", "int | None"),
    ("int", "int | str"),
    ("int", "float"),
    ("int", "float | None"),
    ("int", "Any"),
    ("int", "object"),
    ("int | None", "str | None | int"),
    ("dict[str, int | None]", "dict[str, int | None] | None"),
    ("list[int]", "list"),
    ("list[int]", "list | None"),
]

OTHERS = [
    ("int | None", "int"),
    ("float", "int"),
    ("int", "str | None"),
    ("list[int]", "list[str]"),
    ("dict[str, int | None]", "dict[str, int] | None"),
    ("list", "list[int]"),
    ("Any", "int"),
]


@pytest.mark.parametrize(("before", "after"), WIDER)
def test_a_field_may_hold_more(pool: engram.Pool, forgetful: None, before: str, after: str) -> None:
    del forgetful
    define(f"a: {before} = 1")().make_persistent("x")
    assert define(f"a: {after} = 2").get_by_alias("x", pool=pool).get_properties() == {"a": 1}


@pytest.mark.parametrize(("before", "after"), OTHERS)
def test_a_field_that_holds_less_or_something_else_is_told(
    pool: engram.Pool, forgetful: None, before: str, after: str
) -> None:
    del forgetful
    define(f"a: {before} = 1")().make_persistent("x")
    with pytest.raises(active.ClassChangedError, match="a: was"):
        define(f"a: {after} = 2").get_by_alias("x", pool=pool)


# Sources

SHIPS = """
import collections
import enum
import logging
import typing
from typing import NamedTuple, NewType, Optional, TypeVar, Union

import engram

Alias = dict[str, "Speed"]
Many: typing.TypeAlias = Union[int, list[int]]
Speed = NewType("Speed", int)
Pt = collections.namedtuple("Pt", "x y")
Kind = enum.Enum("Kind", "SAIL STEAM")
T = TypeVar("T")
log = logging.getLogger("ships")
LIMIT = 10
twice = lambda value: min(2 * value, LIMIT)
opened = open(__file__, "rb")


def plain(value: T) -> T:
    return value


other_name = plain


class Ship(engram.ActiveObject):
    al: Alias
    p: Optional[Pt] = None
    many: Many = 0
    kind: Kind = Kind.SAIL

    @engram.activemethod
    def work(self):
        log.warning("works")
        return twice(plain(3)), twice(9), other_name(1), Pt(1, 2).y, Kind.STEAM.value

    @engram.activemethod
    def lost(self):
        return opened
"""

LOAD = """
import sys, engram, logging
logging.basicConfig(stream=sys.stdout, format="%(name)s %(message)s")
with engram.open(sys.argv[1]) as pool:
    ship = engram.active.load_class("ships.Ship").get_by_alias("s")
    print(ship.al, ship.p, ship.p.x, ship.many, ship.kind.name, ship.work())
"""


@pytest.fixture
def shipped(home: Path) -> Path:
    """Give the path of a pool with an object of a class whose module is gone."""
    home.chmod(0o755)
    (home / "ships.py").write_text(SHIPS, encoding="utf-8")
    code = """
    import sys, engram
    from ships import *
    with engram.create(sys.argv[1], size="16 MiB", force=True):
        Ship({"a": Speed(1)}, Pt(3, 4), [1], Kind.STEAM).make_persistent("s")
    """
    said(home, code, home / "pool")
    (home / "ships.py").unlink()
    return home / "pool"


def test_what_statements_name_goes_along_with_the_source(shipped: Path, home: Path) -> None:
    *told, found = said(home, LOAD, shipped)
    assert found == "{'a': 1} Pt(x=3, y=4) 3 [1] STEAM (6, 10, 1, 2, 2)"
    assert told[-1] == "ships works"


def test_what_does_something_is_not_taken_and_loading_warns_of_it(
    shipped: Path, forgetful: None, caplog: pytest.LogCaptureFixture
) -> None:
    del forgetful
    with engram.open(shipped) as pool, caplog.at_level(logging.WARNING, "engram.active"):
        assert stored_class(home_of(pool), "ships.Ship").missing == ["opened"]
        active.load_class("ships.Ship", pool)
    assert "; it lacks opened" in caplog.text


def test_a_source_whose_module_is_missing_says_which(home: Path) -> None:
    home.chmod(0o755)
    (home / "only_there.py").write_text("VALUE = 1\n", encoding="utf-8")
    (home / "needs.py").write_text(
        "import only_there, engram\n\n\nclass Needs(engram.ActiveObject):\n    n: int = 0\n\n"
        "    @engram.activemethod\n    def get(self):\n        return only_there.VALUE\n",
        encoding="utf-8",
    )
    code = """
    import sys, engram, needs
    with engram.create(sys.argv[1], size="16 MiB", force=True):
        needs.Needs().make_persistent("n")
    """
    said(home, code, home / "pool")
    with (
        engram.open(home / "pool") as pool,
        pytest.raises(active.ClassUnknownError, match="No module named 'only_there'"),
    ):
        active.load_class("needs.Needs", pool)
    ended = run("active", "call", home / "pool", "n", "get")
    assert ended.code == active.ClassUnknownError.exit_code
    assert "No module named 'only_there'" in ended.err
    assert "Traceback" not in ended.err
    assert "PYTHONPATH" in ended.err


# Spawned processes

SCRIPT = """
import multiprocessing
import sys

import engram


class Count(engram.ActiveObject):
    n: int = 0

    @engram.activemethod
    def add(self) -> int:
        self.n += 1
        return self.n


def work(count):
    return count.add()


def make(number):
    with engram.open(sys.argv[1]):
        Count(number).make_persistent("made")


if __name__ == "__main__":
    method = multiprocessing.get_context(sys.argv[2])
    with engram.create(sys.argv[1], size="16 MiB", force=True):
        count = Count()
        count.make_persistent("count")
        with method.Pool(1) as pool:
            print(pool.map(work, [count, count]))
        child = method.Process(target=make, args=(7,))
        child.start()
        child.join()
        found = Count.get_by_alias("made")
        print(child.exitcode, count.n, found.n, type(found) is Count)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("as_module", [False, True])
def test_a_script_s_class_is_the_same_in_spawned_processes(
    home: Path, method: str, as_module: bool
) -> None:
    (home / "counting.py").write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    how = ["-m", "counting"] if as_module else [str(home / "counting.py")]
    done = subprocess.run(
        [sys.executable, *how, str(home / "pool"), method],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        cwd=home,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.splitlines() == ["[1, 2]", "0 2 7 True"], done.stderr
