"""Classes in a pool: their source in programs that lack the module, trust, changes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from engram import active
from engram.active.code import classes
from engram.active.stored.home import home_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MODEL = '''
"""A module that only one program has."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math as m
import os.path
from collections import Counter as Counting
from typing import TYPE_CHECKING

import numpy as np

import engram

if TYPE_CHECKING:
    from elsewhere import Secret

FACTOR = 2.5
ENDLESS = (float("inf"), [float("-inf")], {"x": float("nan")})
EMPTY: list[int] = []
NAMES = {"a": [1, 2], "b": (3,)}
scale = 10
made = object()


class Kind(enum.Enum):
    """An enumeration."""

    PLAIN = 1


@dataclasses.dataclass
class Range:
    """A dataclass."""

    low: float
    high: float = ENDLESS[0]


def halved(value):
    return value / HALF


HALF = 2


def times(number):
    def wrap(function):
        @functools.wraps(function)
        def inner(self, *args):
            return number * function(self, *args)
        return inner
    return wrap


@functools.lru_cache(maxsize=None)
def remembered(value):
    return value + 1


class Base(engram.ActiveObject):
    """A base of the same module."""

    data: np.ndarray
    label: str = "none"

    @engram.activemethod
    def total(self) -> float:
        return float(self.data.sum()) * FACTOR


class Block(Base):
    """What is shipped."""

    range: Range | None = None
    kind: "Kind" = Kind.PLAIN
    others: "list['Block']" = []

    @engram.activemethod
    @times(3)
    def tripled(self) -> float:
        return halved(self.total())

    @engram.activemethod
    def scaled(self, scale: float) -> float:
        return scale * m.pi

    @engram.activemethod
    def by_module_scale(self) -> float:
        return scale

    @engram.activemethod
    def nested(self) -> list:
        def inside():
            return [NAMES[key] for key in NAMES if key != "b"]
        return [inside(), EMPTY, Counting("aab"), (lambda: os.path.basename("a/b"))()]

    @engram.activemethod
    def cached(self) -> int:
        return remembered(1)

    @engram.activemethod
    def typed(self, given: "Secret", value: Kind = Kind.PLAIN) -> "Range":
        return Range(1.0)

    @engram.activemethod
    def lost(self) -> object:
        return made
'''


def python(folder: Path, code: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder whose modules it has."""
    given = [path for path in sys.path if path and path != os.fspath(folder)]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.fspath(folder), *given])},
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )


def said(folder: Path, code: str, *words: object) -> list[str]:
    done = python(folder, code, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def shipped(home: Path) -> Path:
    """Give the path of a pool with an object of a class of a module that is gone."""
    home.chmod(0o755)
    (home / "only_here.py").write_text(MODEL, encoding="utf-8")
    made = home / "pool"
    said(
        home,
        """
        import sys, engram, numpy as np
        from only_here import Block, Range
        with engram.create(sys.argv[1], size="32 MiB", force=True):
            block = Block(np.ones(4), "first", Range(1.0))
            block.others = [Block(np.ones(2))]
            block.make_persistent("b")
        """,
        made,
    )
    (home / "only_here.py").unlink()
    return made


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Forget what classes a test has entered."""
    ours, modules = dict(classes._ours), dict(sys.modules)
    yield
    classes._ours.clear()
    classes._ours.update(ours)
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]


# Shipping


def test_a_program_without_the_module_uses_the_class_by_alias(shipped: Path, home: Path) -> None:
    found = said(
        home,
        """
        import sys, engram, logging
        from engram import active
        with engram.open(sys.argv[1]) as pool:
            try:
                active.ActiveObject.get_by_alias("b")
            except active.ClassUnknownError as error:
                print(error)
            Block = active.load_class("only_here.Block")
            block = Block.get_by_alias("b")
            print(block.total(), block.tripled(), block.label, block.range, block.kind.name)
            print(round(block.scaled(2), 3), block.by_module_scale(), block.nested())
            print(block.cached(), block.typed(None), type(block.others[0]) is Block)
            print(block.others[0].total(), block.range.high)
            block.label = "second"
            Block(block.data, "third").make_persistent("c")
            home = active.stored.home.home_of(pool)
            print(len(active.code.classes.stored_names(home)))
            print(active.code.classes.stored_class(home, "only_here.Block").version)
            print("only_here" in sys.modules)
        """,
        shipped,
    )
    assert "does not have: import its module" in found[0]
    assert "engram.active.load_class('only_here.Block')" in found[0]
    assert found[1] == "10.0 15.0 first Range(low=1.0, high=inf) PLAIN"
    assert found[2] == "6.283 10 [[[1, 2]], [], Counter({'a': 2, 'b': 1}), 'b']"
    assert found[3] == "2 Range(low=1.0, high=inf) True"
    assert found[4:] == ["5.0 inf", "1", "1", "False"]


def test_what_cannot_be_taken_is_named(shipped: Path) -> None:
    with engram.open(shipped) as pool:
        stored = classes.stored_class(home_of(pool), "only_here.Block")
        assert stored.missing == ["Secret", "made"]
        assert stored.fields["range"].kind == "None | only_here.Range"
        assert [method.partition("(")[0] for method in stored.methods] == sorted(
            ["by_module_scale", "cached", "lost", "nested", "scaled", "total", "tripled", "typed"]
        )


def test_what_is_missing_is_missed_when_it_is_needed_alone(shipped: Path, home: Path) -> None:
    done = python(
        home,
        """
        import sys, engram
        with engram.open(sys.argv[1]):
            engram.active.load_class("only_here.Block").get_by_alias("b").lost()
        """,
        shipped,
    )
    assert "NameError: name 'made' is not defined" in done.stderr


def test_a_loaded_class_goes_on_to_other_pools_with_its_source(
    shipped: Path, home: Path, forgetful: None
) -> None:
    del forgetful
    with (
        engram.open(shipped) as pool,
        engram.create(home / "next", size="16 MiB", force=True) as following,
    ):
        block = active.load_class("only_here.Block", pool).get_by_alias("b", pool=pool)
        source = classes.stored_class(home_of(pool), "only_here.Block").source
        block.move(following)
        copied = classes.stored_class(home_of(following), "only_here.Block")
        assert copied.source == source
        assert copied.missing == ["Secret", "made"]


def test_nothing_of_a_pool_is_run_without_being_asked_for(home: Path) -> None:
    witness = home / "witness"
    (home / "rude.py").write_text(
        "import engram, pathlib\n\n\n"
        f"def leave() -> None:\n    pathlib.Path({str(witness)!r}).write_text('run')\n\n\n"
        "class Rude(engram.ActiveObject):\n    n: int = leave() or 0\n",
        encoding="utf-8",
    )
    path = home / "pool"
    said(
        home,
        "import sys, engram, rude\n"
        "with engram.create(sys.argv[1], size='16 MiB', force=True):\n"
        "    rude.Rude().make_persistent('r')\n",
        path,
    )
    witness.unlink()
    (home / "rude.py").unlink()
    done = said(
        home,
        """
        import sys, engram
        from engram import active, cli
        with engram.open(sys.argv[1]) as pool:
            home = active.stored.home.home_of(pool)
            try:
                active.ActiveObject.get_by_alias("r")
            except active.ClassUnknownError:
                print("unknown")
            active.gc(pool), active.unreachable(pool)
            active.code.classes.stored_class(home, "rude.Rude")
        for words in (["ls"], ["classes"], ["gc"]):
            try:
                cli.main(["active", words[0], sys.argv[1]])
            except SystemExit as end:
                assert end.code in {0, None}
        """,
        path,
    )
    assert done[0] == "unknown"
    assert not witness.exists()
    said(
        home,
        "import sys, engram\nengram.active.load_class('rude.Rude', engram.open(sys.argv[1]))\n",
        path,
    )
    assert witness.exists()


# Trust


def test_loading_says_what_it_runs(
    shipped: Path, caplog: pytest.LogCaptureFixture, forgetful: None
) -> None:
    del forgetful
    with engram.open(shipped) as pool, caplog.at_level("WARNING", "engram.active"):
        active.load_class("only_here.Block", pool)
        (record,) = caplog.records
        source = classes.stored_class(home_of(pool), "only_here.Block").source
    import hashlib  # noqa: PLC0415 - of this test alone

    told = record.getMessage()
    assert told.startswith("running the source of class only_here.Block, version 1, of pool")
    assert hashlib.sha256(source.encode()).hexdigest()[:16] in told
    assert str(shipped) in told


def test_a_class_that_is_not_there_is_told_with_those_that_are(shipped: Path) -> None:
    with (
        engram.open(shipped) as pool,
        pytest.raises(active.ClassUnknownError, match=r"no class 'no\.Such'.*only_here\.Block"),
    ):
        active.load_class("no.Such", pool)


@pytest.mark.parametrize("part", ["", "ns/default", "ns/default/shared"])
def test_a_pool_in_which_others_may_write_is_not_trusted(
    shipped: Path, part: str, caplog: pytest.LogCaptureFixture, forgetful: None
) -> None:
    del forgetful
    folder = shipped / part
    folder.chmod(0o770)
    with engram.open(shipped) as pool:
        with pytest.raises(active.UntrustedCodeError, match="others may write") as raised:
            active.load_class("only_here.Block", pool)
        assert "engram active classes" in str(raised.value)
        for trust in (1, "yes"):
            with pytest.raises(active.UntrustedCodeError):
                active.load_class("only_here.Block", pool, trust=trust)  # type: ignore[arg-type]
        assert not caplog.records
        assert active.load_class("only_here.Block", pool, trust=True).get_by_alias("b", pool=pool)


ALICE, BOB = 40_001, 40_002


def as_user(uid: int, work: Callable[[], object]) -> int:
    """Do something in a process that has become this user; give how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            work()
        except BaseException:  # noqa: BLE001 - it is shown, and the process ends
            import traceback  # noqa: PLC0415 - only who fails needs it

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


class Theirs(engram.ActiveObject):
    """What Alice stores."""

    n: int = 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_pool_of_another_user_is_not_trusted_not_even_by_root(home: Path) -> None:
    home.chmod(0o755)
    folder = home / "alice"
    folder.mkdir()
    os.chown(folder, ALICE, ALICE)
    path = folder / "pool"

    def alice() -> None:
        with engram.create(path, size="16 MiB", mode=0o755, force=True) as pool:
            Theirs().make_persistent("t")
            active.load_class(f"{__name__}.Theirs", pool)
            pool.publish(".active")

    def other() -> None:
        with engram.open(path, mode="r") as pool:
            with pytest.raises(active.UntrustedCodeError, match=r"belongs to .*, not to you"):
                active.load_class(f"{__name__}.Theirs", pool)
            assert Theirs.get_by_alias("t", pool=pool).n == 1

    assert as_user(ALICE, alice) == 0
    assert as_user(BOB, other) == 0
    other()


# Changes


def define(body: str, name: str = "Changing", **more: Any) -> type[engram.ActiveObject]:
    """Define a class of the same name once more, as a changed module does."""
    space: dict[str, Any] = {"engram": engram, "np": np, "Any": Any, "__name__": "changing", **more}
    text = f"class {name}(engram.ActiveObject):\n{textwrap.indent(body, '    ')}"
    exec(text, space)  # noqa: S102 - of our own making
    made: type[engram.ActiveObject] = space[name]
    return made


def test_a_changed_class_is_told_with_its_fields(pool: engram.Pool, forgetful: None) -> None:
    del forgetful
    define("a: int\nb: str = ''\nc: list[int] = []\nd: float = 0.0")(1).make_persistent("x")
    changed = define("a: str\nb: 'str' = ''\nc: list[str] = []\ne: dict[str, int]")
    with pytest.raises(active.ClassChangedError) as raised:
        changed.get_by_alias("x")
    told = str(raised.value)
    assert "a: was int, is str" in told
    assert "c: was list[int], is list[str]" in told
    assert "e: dict[str, int] is new, and has no default" in told
    assert "b:" not in told
    assert "d:" not in told
    assert "version=1) has the stored class" in told
    assert pool


def test_fields_with_a_default_may_come_and_any_may_go(pool: engram.Pool, forgetful: None) -> None:
    del forgetful
    define("a: int\nold: str = 'x'")(1).make_persistent("x")
    body = """
    a: int
    text: str = "default"
    tags: list = ["one"]
    large: list = [0] * 5000
    data: np.ndarray = np.arange(3)
    nothing: Any = None

    @engram.activemethod
    def look(self):
        return [self.text, self.tags, sum(self.large), self.data.sum(), self.nothing]

    @engram.activemethod
    def change(self):
        self.tags.append("two")
        self.large[0] = 7
        self.data[0] = 9
    """
    changed: Any = define(textwrap.dedent(body))
    found = changed.get_by_alias("x")
    assert found.text == "default"
    assert (found.tags, found.nothing, found.data.tolist()) == (["one"], None, [0, 1, 2])
    found.tags.append("not stored: a copy")
    before = pool.used
    assert found.look() == ["default", ["one"], 0, 3, None]
    assert pool.used == before
    found.change()
    assert (found.tags, found.large[0], found.data.tolist()) == (["one", "two"], 7, [9, 1, 2])
    assert changed(2).tags == ["one"]
    assert not hasattr(found, "old")
    path = pool.path
    pool.close()
    with engram.open(path, mode="r") as reading:
        again = changed.get_by_alias("x", pool=reading)
        assert again.look() == ["default", ["one", "two"], 7, 12, None]
        version = again.get_properties()
        assert version["text"] == "default"


def test_a_deleted_field_has_its_default_again(pool: engram.Pool, forgetful: None) -> None:
    del forgetful
    kind: Any = define("a: int = 5\nb: int")
    made = kind(1, 2)
    for _ in range(2):
        del made.a, made.b
        assert made.a == 5
        with pytest.raises(AttributeError, match="b has no value yet"):
            _ = made.b
        made.a, made.b = 1, 2
        made.make_persistent()
    assert pool


def test_a_name_that_was_not_known_yet_is_no_change(pool: engram.Pool, forgetful: None) -> None:
    del forgetful
    define("a: 'Later | None' = None")().make_persistent("x")
    later = define("n: int = 0", "Later")
    changed = define("a: 'Later | None' = None", Later=later)
    assert changed.get_by_alias("x")
    assert pool


def test_each_version_of_a_class_is_kept_and_loaded(home: Path, forgetful: None) -> None:
    del forgetful
    path = home / "pool"
    engram.create(path, size="16 MiB", force=True).close()
    for number, (kind, body) in enumerate(
        (("int", "self.a"), ("int", "-self.a"), ("str", "self.a"))
    ):
        (home / "grows.py").write_text(
            "import engram\n\n\nclass Grows(engram.ActiveObject):\n"
            f"    a: {kind}\n\n    @engram.activemethod\n"
            f"    def get(self):\n        return {body}\n",
            encoding="utf-8",
        )
        for again in range(2):  # the same class once more is no other version
            said(
                home,
                "import sys, engram, grows\n"
                "with engram.open(sys.argv[1]):\n"
                f"    grows.Grows({kind}(7)).make_persistent('{number} {again}')\n",
                path,
            )
    (home / "grows.py").unlink()
    with engram.open(path) as pool:
        found = []
        for version in (1, 2, 3):
            cls: Any = active.load_class("grows.Grows", pool, version=version)
            found.append(cls.get_by_alias(f"{version - 1} 0").get())
        assert found == [7, -7, "7"]
        assert classes.stored_class(home_of(pool), "grows.Grows").version == 3
        with pytest.raises(active.ClassUnknownError, match="grows"):
            active.load_class("grows.Grows", pool, version=4)


# Scripts and notebooks


SCRIPT = """
import sys, engram

class Job(engram.ActiveObject):
    n: int = 1

    @engram.activemethod
    def twice(self):
        return 2 * self.n

if __name__ == "__main__":
    with engram.create(sys.argv[1], size="16 MiB", force=True):
        Job(4).make_persistent("job")
        print(Job.get_by_alias("job").twice())
"""


@pytest.mark.parametrize("as_module", [True, False])
def test_a_script_s_own_class_is_the_one_that_is_imported(home: Path, as_module: bool) -> None:
    (home / "job.py").write_text(SCRIPT, encoding="utf-8")
    how = ["-m", "job"] if as_module else [str(home / "job.py")]
    path = home / "pool"
    done = subprocess.run(
        [sys.executable, *how, str(path)],
        cwd=home,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["8"]
    code = "import sys, engram, job\nwith engram.open(sys.argv[1]):\n    {}\n"
    assert said(home, code.format("print(job.Job.get_by_alias('job').twice())"), path) == ["8"]
    (home / "job.py").unlink()
    loaded = "import sys, engram\nwith engram.open(sys.argv[1]) as pool:\n    {}\n"
    line = "print(engram.active.load_class('job.Job', pool).get_by_alias('job').twice())"
    assert said(home, loaded.format(line), path) == ["8"]


def test_a_class_typed_once_more_takes_the_place_of_the_first(
    pool: engram.Pool, forgetful: None
) -> None:
    del forgetful
    first: Any = define("n: int = 1")
    held = first(5)
    held.make_persistent("x")
    first(6).make_persistent("y")
    second: Any = define("n: int = 1\n@engram.activemethod\ndef get(self):\n    return self.n")
    assert second.get_by_alias("x").get() == 5
    assert active.ActiveObject.get_by_alias("x").get() == 5  # type: ignore[attr-defined]
    assert second.get_by_alias("x") is second.get_by_alias("x")
    assert held.n == 5
    assert pool
