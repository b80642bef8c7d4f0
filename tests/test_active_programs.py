"""Executors of whole programs: how workers get the main module's classes, who ends with whom."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import engram
from engram.active.code.lines import lines_of
from engram.active.code.source import source_of
from test_active_executor import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPENING = """\
import dataclasses, os, signal, sys
import numpy as np
import engram
from engram import active
"""

CLASSES = """
LIMIT = 3

def limited(x):
    return min(x, LIMIT)

@dataclasses.dataclass
class Range:
    low: float
    high: float

class Base(engram.ActiveObject):
    n: int = 0

class Block(Base):
    data: np.ndarray
    range: Range | None = None
    other: 'Other | None' = None

    @engram.activemethod
    def settle(self, factor):
        np.zeros(1)
        self.n = limited(factor * 10)
        self.range = Range(self.data.min(), self.data.max())
        return self.range

    @engram.activemethod
    def others(self):
        return self.other.where()

    @engram.activemethod
    def shadow(self, limited):
        import dataclasses as np
        Range = LIMIT = np
        return limited, Range, LIMIT

    @engram.activemethod
    def keep(self):
        Base(n=1).make_persistent()

    @engram.activemethod
    def apply(self, function, value):
        return function(value), type(value).__name__

class Other(engram.ActiveObject):
    n: int = 5

    @engram.activemethod
    def where(self):
        return self.n, os.getpid()
"""

USE = """
with engram.open(sys.argv[1]) as pool, active.Executor(1) as executor:
    block = Block(data=np.arange(4.0), other=Other())
    block.make_persistent()
    assert block.settle.submit(2).result(100) == Range(0.0, 3.0)
    assert block.range == Range(0.0, 3.0)
    assert block.n == 3
    assert block.others.submit().result(100) == (5, executor.pids[0])
    assert block.apply.submit(limited, 9).result(100) == (3, "int")
    assert block.apply.submit(type, Block(data=np.zeros(1))).result(100) == (Block, "Block")
    Base(n=2).make_persistent()
    block.keep.submit().result(100)
    versions = pool[".active/classes"]
    assert all(list(versions[name]) == ["1"] for name in versions), pool.tree()
    print("done")
"""


@pytest.fixture
def path(home: Path) -> Path:
    with engram.create(home / "pool", size="64 MiB", force=True):
        return home / "pool"


def ran(*words: object, code: int = 0, stdin: str | None = None) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def script(folder: Path, text: str) -> Path:
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    return file


# Classes of the main module


def test_a_script_has_its_classes_in_workers_and_is_not_run_again(
    path: Path, tmp_path: Path
) -> None:
    said, _ = ran(script(tmp_path, OPENING + "print('once')\n" + CLASSES + USE), path)
    assert said == "once\ndone\n"


def test_a_module_that_is_run_has_them(path: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "more.py").write_text("FACTOR = 1\n", encoding="utf-8")
    text = OPENING + "from .more import FACTOR\nfrom . import more\n" + CLASSES + USE
    script(package, text.replace("factor * 10", "factor * 10 * FACTOR * more.FACTOR"))
    done = subprocess.run(
        [sys.executable, "-m", "package.program", str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_a_command_has_them(path: Path) -> None:
    said, _ = ran("-c", OPENING + CLASSES + USE, path)
    assert said == "done\n"


CELLS = """
import linecache

def cell(text):
    name = f"/tmp/ipykernel_1/{len(linecache.cache)}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), vars(sys.modules["__main__"]))

"""


def as_cells(text: str) -> str:
    """Make each paragraph of a program a notebook's cell, with lines numbered from one."""
    parts = ["", *text.split("\n\n")]
    whole: list[str] = []
    for part in parts:
        if part.startswith(("    ", "\n    ")) and whole:
            whole[-1] += "\n\n" + part
        else:
            whole.append(part)
    return "".join(f"cell({part + chr(10)!r})\n" for part in whole if part.strip())


def test_a_notebook_has_them_from_its_cells(path: Path) -> None:
    said, _ = ran("-c", OPENING + CELLS + as_cells(CLASSES) + USE, path)
    assert said == "done\n"


def test_a_cell_that_is_run_again_is_what_workers_run_then(path: Path) -> None:
    program = """
cell("SIZE = 1")
cell("def scaled(x): return SIZE * x")
class_cell = '''
class Block(engram.ActiveObject):
    n: int = 1

    @engram.activemethod
    def value(self):
        return self.n * scaled(10), VERSION
'''
cell("VERSION = 'first'")
cell(class_cell)
with engram.open(sys.argv[1]) as pool, active.Executor(1) as executor:
    block = Block()
    block.make_persistent("block")
    def value():
        return block.value.submit().result(100)
    print(value())
    cell("SIZE = 2")
    print(value())
    cell("def scaled(x): return x + 1")
    print(value())
    cell(class_cell.replace("VERSION", "'second'"))
    try:
        block.value.submit()
    except active.ClassUnknownError as error:
        print(error)
    block = Block.get_by_alias("block")
    print(value())
"""
    said, _ = ran("-c", OPENING + CELLS + program, path)
    assert said.splitlines() == [
        "(10, 'first')",
        "(20, 'first')",
        "(11, 'first')",
        "Block was defined again since this object was got: get the object again",
        "(11, 'second')",
    ]


def test_a_class_without_source_is_an_error_that_says_so(path: Path) -> None:
    use = """
with engram.open(sys.argv[1]), active.Executor(1) as executor:
    block = Block(data=np.zeros(1))
    block.make_persistent()
    try:
        block.settle.submit(1)
    except active.ClassUnknownError as error:
        print(error)
    class Here(engram.ActiveObject):
        n: int = 0
        @engram.activemethod
        def nothing(self): pass
    def inner():
        class Inner(Here): pass
        return Inner()
    here = inner()
    here.make_persistent()
    try:
        here.nothing.submit()
    except active.ClassUnknownError as error:
        print(error)
"""
    typed, local = ran("-", path, stdin=OPENING + CLASSES + use)[0].splitlines()
    assert typed.startswith("workers cannot have 'Block': its source is not known")
    assert local.startswith("workers cannot find 'inner.<locals>.Inner', which is defined within")


def test_what_cannot_be_sent_is_named_where_it_is_missed(path: Path, tmp_path: Path) -> None:
    text = """
table = np.zeros(3)
class Block(engram.ActiveObject):
    n: int = 0
    @engram.activemethod
    def look(self): return table[self.n]
with engram.open(sys.argv[1]), active.Executor(1):
    block = Block()
    block.make_persistent()
    try:
        block.look.submit().result(100)
    except NameError as error:
        print(error, error.__notes__)
"""
    said, _ = ran(script(tmp_path, OPENING + text), path)
    assert "name 'table' is not defined" in said
    assert "workers have no 'table'" in said


def test_a_module_is_found_where_the_program_finds_it(path: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import engram\nclass Model(engram.ActiveObject):\n    n: int = 1\n"
        "    @engram.activemethod\n    def value(self): return 'before'\n",
        encoding="utf-8",
    )
    text = """
import importlib, pathlib
with engram.open(sys.argv[1]), active.Executor(1) as executor:
    class First(engram.ActiveObject):
        n: int = 0
        @engram.activemethod
        def nothing(self): pass
    first = First()
    first.make_persistent()
    first.nothing.submit().result(100)
    sys.path.append(sys.argv[2])
    import model
    made = model.Model()
    made.make_persistent("m")
    print(made.value.submit().result(100))
    file = pathlib.Path(model.__file__)
    file.write_text(file.read_text().replace("before", "reloaded"))
    importlib.reload(model)
    print(model.Model.get_by_alias("m").value.submit().result(100))
"""
    said, _ = ran("-B", "-c", OPENING + text, path, tmp_path)
    assert said == "before\nreloaded\n"


def test_a_class_that_came_from_the_pool_goes_on_to_workers(path: Path, tmp_path: Path) -> None:
    use = USE.replace("block.make_persistent()", "block.make_persistent('b')")
    ran(script(tmp_path, OPENING + CLASSES + use), path)
    text = """
with engram.open(sys.argv[1]) as pool, active.Executor(1) as executor:
    for name in ("Other", "Block"):
        Block = active.load_class(f"program.{name}", pool)
    block = Block.get_by_alias("b")
    print(block.others.submit().result(100) == (5, executor.pids[0]))
"""
    said, _ = ran("-c", OPENING + text, path)
    assert said == "True\n"


def test_definitions_of_cells_stand_where_they_are_needed(path: Path) -> None:
    program = """
cell("\\n\\n\\n\\ndef twice(f): return f")
cell("\\n\\nclass Late(engram.ActiveObject):\\n    n: int = 1")
cell("class First(Late):\\n    m: int = 2\\n    @twice\\n    def f(self): return last()")
cell("def last(): return 1")
from engram.active.code.source import source_of
scope = {}
exec(source_of(First).text, scope)
print(scope["First"]._fields.keys(), source_of(First).missing)
"""
    said, _ = ran("-c", OPENING + CELLS + program, path)
    assert said == "dict_keys(['n', 'm']) ()\n"


def test_numbers_that_have_no_literal_are_written_out() -> None:
    source = source_of(uses_infinity)
    assert source.missing == ()
    assert 'NO_LITERAL = float("inf")' in source.text
    assert lines_of(uses_infinity)[0][0].startswith("def uses_infinity")


NO_LITERAL = float("inf")


def uses_infinity() -> float:
    return NO_LITERAL


# Who ends with whom

ENDING = """
class Block(engram.ActiveObject):
    n: int = 0

    @engram.activemethod
    def hold(self, fifo):
        with open(fifo) as file:
            file.read()

    @engram.activemethod
    def add(self):
        self.n += 1

pool = engram.open(sys.argv[1])
block = Block()
block.make_persistent("block")
executor = active.Executor(2)
"""


@pytest.fixture
def held(path: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Give a program one of whose workers runs a method for ever, and both workers' pidfds."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    text = """
with executor:
    block.add.submit().result(100), executor.submit(block.add).result(100)
    future = executor.submit(block.hold, sys.argv[2])
    if sys.argv[3] == "fork" and os.fork() == 0:
        os.close(1)
        signal.pause()
    print(*executor.pids, flush=True)
    future.result()
"""
    file = script(tmp_path, OPENING + ENDING + text)
    mode = "fork" if "fork" in os.environ["PYTEST_CURRENT_TEST"] else ""
    program = subprocess.Popen(
        [sys.executable, file, path, fifo, mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    with fifo.open("w", encoding="utf-8"):
        workers = [os.pidfd_open(int(pid)) for pid in program.stdout.readline().split()]
        assert len(workers) == 2
        try:
            yield program, workers
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.communicate()


@pytest.mark.parametrize("children", ["none", "fork"])
def test_workers_end_with_the_program_whatever_they_do(
    held: tuple[subprocess.Popen[str], list[int]], children: str
) -> None:
    assert children
    program, workers = held
    program.kill()
    for worker in workers:
        wait_for(worker)


def test_ctrl_c_ends_the_program_and_its_workers_with_one_traceback(
    held: tuple[subprocess.Popen[str], list[int]],
) -> None:
    program, workers = held
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=100)
    for worker in workers:
        wait_for(worker)
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_what_was_submitted_is_done_before_a_program_ends_without_shutdown(
    path: Path, tmp_path: Path
) -> None:
    text = "for _ in range(20): executor.submit(block.add)\nprint(*executor.pids)\n"
    said, errors = ran(script(tmp_path, OPENING + ENDING + text), path)
    assert errors == ""
    for pid in said.split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    with engram.open(path) as pool:
        (group,) = pool[".active/objects"].values()
        assert group.attrs["n"] == 20


def test_workers_speak_where_the_program_does(path: Path, tmp_path: Path) -> None:
    text = ENDING.replace("self.n += 1", "print('from a worker')") + (
        "executor.submit(block.add).result(100)\nprint('from the program')\n"
    )
    said, _ = ran(script(tmp_path, OPENING + text), path)
    assert said == "from a worker\nfrom the program\n"
