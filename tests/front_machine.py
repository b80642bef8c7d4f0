"""A state machine of files that are reached by every front of one pool at once.

Each step is done by one of them, and by its twin in a plain folder: both have the same outcome, to
the errno, and after each step some front sees all that is in the folder as the kernel has it there.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import engram
import fronts
from mounted import EXCHANGE, NOREPLACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from preloaded import Prefix

FOLDER_MODE, FILE_MODE = 0o700, 0o600
"""Of what Python makes, if it says nothing."""
FORGOTTEN = 1.1
"""Seconds after which the kernel keeps nothing of names and attributes, with `--cache shared`."""
PATIENCE = 5.0
"""Seconds within which the kernel has told a mount of a description that was closed."""
STEPS = 50
HANDLES, MAPS = 12, 4
KEEP, PUNCH = 1, 3
STALE = {"no": "ESTALE"}
EMPTY: dict[str, list[str]] = {"ok": []}
LOCKING = {"lock", "hold"}

NAMES = ("a", "b", "d")
PATHS = ("a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a")
RELATIVE = ("./a", "./b", "./e/a", "./../c")
TARGETS = ("a", "d", "d/a", "../a", "nothing", ".", "../f", "b")
CREATE = os.O_RDWR | os.O_CREAT
FLAGS = (
    *(os.O_RDONLY, os.O_RDWR, os.O_WRONLY, CREATE, CREATE | os.O_TRUNC, CREATE | os.O_EXCL),
    *(CREATE | os.O_APPEND, os.O_RDONLY | os.O_DIRECTORY, os.O_RDWR | os.O_NOFOLLOW),
)
PLACES = (0, 1, 100, 1000, 1024, 4095, 4096, 5000, 65536, 100_000, 300_000)
SIZES = (1, 10, 1023, 1025, 4096, 9000, 70_000)

who = st.sampled_from(("mount", "preload", "child", "inside"))
programs = st.sampled_from(("mount", "preload", "child"))
paths = st.sampled_from((*PATHS, *RELATIVE))
places = st.sampled_from(PLACES)
sizes = st.sampled_from(SIZES)
modes = st.sampled_from((0o600, 0o644, 0o755, 0o4711))
picks = st.integers(0, 63)


@dataclass
class Stage:
    """The fronts of a pool, and their twins."""

    pool: engram.Pool
    cache: str
    real: dict[str, Any]
    twins: dict[str, Any]
    examples: int = 0
    numbers: dict[int, int] = field(default_factory=dict)
    """The numbers of files in the pool, by those of the twins' files."""

    def pair(self, front: str) -> tuple[Any, Any]:
        """Give a front, and its twin; of a child that is not, those of its parent."""
        front = self.name(front)
        if front == "child":
            return self.real["preload"].child, self.twins["preload"].child
        return self.real[front], self.twins[front]

    def name(self, front: str) -> str:
        """Give the name of who answers for a front."""
        return "preload" if front == "child" and self.real["preload"].child is None else front

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Give all of them."""
        for front in self.real:
            yield self.pair(front)


@contextmanager
def stage(pool: engram.Pool, point: Path, prefix: Prefix, cache: str) -> Iterator[Stage]:
    """Begin the fronts of a pool, and mount it; the twins are in a folder beside the pool."""
    folder = prefix.path.parent
    plain = folder / "plain"
    plain.mkdir()
    with ExitStack() as stack:
        stack.enter_context(engram.mount(pool, point, cache=cache))  # type: ignore[arg-type]

        def begin(name: str, top: Path, env: dict[str, str]) -> fronts.Program:
            made = fronts.Program(folder, name, top, settings=env)
            stack.callback(made.close)
            return made

        real: dict[str, Any] = {
            "mount": begin("mount", point, {}),
            "preload": begin("preload", prefix.path, prefix.settings),
            "inside": fronts.Inside(pool),
        }
        twins = {name: begin(f"twin-{name}", plain, {}) for name in real}
        yield Stage(pool, cache, real, twins)


@dataclass
class Open:
    """What a front has open: a file or a folder, how, and whether Python holds its lock.

    What a child has of its parent is shared: its locks are those of who takes them.
    """

    kind: str
    flags: int
    held: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Map:
    """A map of a file: the file's number, how many bytes of it are shared, and who may write."""

    number: int
    size: int
    writes: bool


def run(pool: engram.Pool, point: Path, prefix: Prefix, cache: str, examples: int) -> None:
    """Run so many examples of the machine; a mount is at `point` meanwhile."""
    with stage(pool, point, prefix, cache) as made:
        machine = type("Fronts", (Machine,), {"stage": made})
        told = settings(max_examples=examples, stateful_step_count=STEPS, deadline=None)
        run_state_machine_as_test(machine, settings=told)


class Machine(RuleBasedStateMachine):
    """Files of one folder, by all fronts."""

    stage: ClassVar[Stage]

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.open: dict[tuple[str, int], Open] = {}
        self.maps: dict[tuple[str, int], Map] = {}
        self.unclear: set[int] = set()
        """Files whose time of change is not known: maps have changed them."""
        self.changed = False
        """Whether another front than the mount has changed what the kernel may keep."""
        self.tree: dict[str, Any] = {}
        """What there is, as the kernel has it."""
        self.name = f"e{self.stage.examples}"
        self.stage.examples += 1
        self.all_do("new", self.name, by=[self.stage.pair("preload")])
        self.all_do("begin", self.name, by=self.stage.all())
        for folder in ("d", "d/e"):
            self.do("preload", "mkdir", folder, 0o755)
        for path in ("a", "b", "d/a"):
            self.do("inside", "put", path, path * 600, FILE_MODE)

    # How a step is done

    def do(self, front: str, name: str, *arguments: Any) -> Any:
        """Have a front and its twin do something; give the outcome, which is the same."""
        real, twin = self.stage.pair(front)
        self.settle(front)
        expected = twin.do(name, *arguments)
        found = real.do(name, *arguments)
        if name in LOCKING and "ok" in expected:
            found = self.patient(found, real, name, *arguments)
        if front == "mount" and found == STALE and ("no" in expected or expected == EMPTY):
            return expected  # the kernel does not know that another front has removed the folder
        assert self.alike(found, expected), f"{front}: {name}{arguments}: {found}, not {expected}"
        return expected

    def all_do(self, name: str, *arguments: Any, by: Iterable[tuple[Any, Any]]) -> None:
        """Have these fronts and their twins do what succeeds."""
        for pair in by:
            for worker in pair:
                said = worker.do(name, *arguments)
                assert said == {"ok": None}, f"{name}{arguments}: {said}"

    def settle(self, front: str) -> None:
        """Wait until the kernel has forgotten what others have changed meanwhile."""
        if front != "mount":
            self.changed = True
        elif self.changed and self.stage.cache == "shared":
            time.sleep(FORGOTTEN)
            self.changed = False

    def patient(self, found: Any, real: Any, name: str, *arguments: Any) -> Any:
        """Ask again for a lock: the kernel tells a mount of what was closed a moment later."""
        end = time.monotonic() + PATIENCE
        while "no" in found and time.monotonic() < end:
            time.sleep(0.001)
            found = real.do(name, *arguments)
        return found

    def alike(self, found: Any, expected: Any) -> bool:
        """Whether two outcomes are the same, but for what files are numbered by."""
        if not isinstance(found, dict) or not isinstance(expected, dict):
            return bool(found == expected)
        if "ino" in expected and "ino" in found:
            number = self.stage.numbers.setdefault(expected["ino"], found["ino"])
            other = {"ino", "mtime"} if expected["ino"] in self.unclear else {"ino"}
            found = {key: value for key, value in found.items() if key not in other}
            found["ino"] = number
            expected = {key: value for key, value in expected.items() if key not in other}
            expected["ino"] = number
        same = (self.alike(found[key], expected[key]) for key in found if key in expected)
        return found.keys() == expected.keys() and all(same)

    def kind(self, path: str) -> str:
        """Give the kind of what has a name; "" if nothing has it."""
        return str(self.tree.get(f"./{path}", {"kind": ""})["kind"])

    def is_inside(self, front: str, *given: str) -> bool:
        """Whether Python's own names lead where the kernel's do: through no links."""
        return front != "inside" or all(
            not path.startswith("./")
            and ("/" not in path or self.kind(path.rpartition("/")[0]) == "folder")
            for path in given
        )

    def number(self, front: str, name: str, *arguments: Any) -> int:
        """Give the number of a twin's file; -1 if there is none."""
        said = self.stage.pair(front)[1].do(name, *arguments)
        return int(said["ok"]["ino"]) if "ok" in said else -1

    def given_up(self, number: int) -> None:
        """Forget of maps what the file gives up: it stays there as it was."""
        for key, one in self.maps.items():
            if one.number == number:
                self.maps[key] = Map(number, 0, writes=one.writes)

    def one(self, pick: int, front: str | None = None, kind: str = "") -> tuple[str, int] | None:
        """Choose something that is open."""
        found = [
            key
            for key, what in self.open.items()
            if front in {None, key[0]} and kind in {"", what.kind}
        ]
        return found[pick % len(found)] if found else None

    # Open files

    @rule(front=who, path=paths, flags=st.sampled_from(FLAGS), mode=modes, below=picks)
    def opens(self, front: str, path: str, flags: int, mode: int, below: int) -> None:
        folder = None
        front = self.stage.name(front)
        if front == "inside":
            absent = self.kind(path) == "" and flags & os.O_CREAT
            if flags not in fronts.MODES or not (absent or self.kind(path) == "file"):
                return
            mode = FILE_MODE
        elif below % 4 == 0 and (key := self.one(below, front, "folder")):
            folder, path = key[1], NAMES[below % len(NAMES)]
        if len(self.open) >= HANDLES or not self.is_inside(front, path):
            return
        cuts = bool(flags & os.O_TRUNC) and folder is None
        number = self.number(front, "stat", path, True) if cuts else -1
        self.count += 1
        said = self.do(front, "open", self.count, path, flags, mode, folder)
        if "no" in said:
            return
        if cuts:
            self.given_up(number)
        is_folder = bool(flags & os.O_DIRECTORY)
        if front != "inside" and not flags & os.O_ACCMODE:
            about = self.do(front, "fstat", self.count)
            is_folder = about["ok"]["kind"] == "folder"
        self.open[front, self.count] = Open("folder" if is_folder else "file", flags)

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def closes(self, pick: int) -> None:
        if key := self.one(pick):
            if self.open.pop(key).held:
                self.do(key[0], "let_go", key[1])
            self.do(key[0], "close", key[1])

    @precondition(lambda self: self.open)
    @rule(pick=picks, place=places, size=sizes, way=st.sampled_from(("at", "here", "behind")))
    def writes(self, pick: int, place: int, size: int, way: str) -> None:
        if (key := self.one(pick)) is None:
            return
        self.count += 1
        data = (chr(65 + self.count % 26) + chr(self.count % 256)) * (size // 2) + "." * (size % 2)
        if way == "at" or key[0] == "inside":
            if key[0] != "inside" or self.open[key].flags & os.O_ACCMODE:
                self.do(key[0], "write_at", key[1], place, data)
            return
        # A place in a folder means something where the kernel has given it, and nothing elsewhere.
        if way == "here" and self.open[key].kind == "file":
            self.do(key[0], "seek", key[1], place, os.SEEK_SET)
        self.do(key[0], "write", key[1], data)

    @precondition(lambda self: self.open)
    @rule(pick=picks, place=places, size=sizes, at=st.booleans())
    def reads(self, pick: int, place: int, size: int, at: bool) -> None:
        if (key := self.one(pick)) is None:
            return
        if at or key[0] == "inside":
            self.do(key[0], "read_at", key[1], place, size)
        else:
            self.do(key[0], "read", key[1], size)
            self.do(key[0], "seek", key[1], 0, os.SEEK_CUR)

    @precondition(lambda self: self.open)
    @rule(pick=picks, size=places)
    def cuts(self, pick: int, size: int) -> None:
        if (key := self.one(pick, kind="file")) and self.may_write(key):
            self.given_up(self.number(key[0], "fstat", key[1]))
            self.do(key[0], "cut", key[1], size)

    @rule(front=programs, path=paths, size=places)
    def truncates(self, front: str, path: str, size: int) -> None:
        self.given_up(self.number(front, "stat", path, True))
        self.do(front, "truncate", path, size)

    @precondition(lambda self: self.open)
    @rule(pick=picks, place=places, size=sizes, mode=st.sampled_from((0, KEEP, PUNCH)))
    def allocates(self, pick: int, place: int, size: int, mode: int) -> None:
        key = self.one(pick, kind="file")
        if key is None or not self.may_write(key) or (key[0] == "inside" and mode == KEEP):
            return
        if mode == PUNCH:
            self.given_up(self.number(key[0], "fstat", key[1]))
        self.do(key[0], "allocate", key[1], mode, place, size)

    @precondition(lambda self: len(self.open) > 1)
    @rule(pick=picks, other=picks, place=places, to=places, size=sizes)
    def copies(self, pick: int, other: int, place: int, to: int, size: int) -> None:
        source = self.one(pick, kind="file")
        target = self.one(other, source[0], "file") if source else None
        if source and target and source[0] != "inside":
            self.do(source[0], "copy", source[1], target[1], size, place, to)

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def syncs(self, pick: int) -> None:
        if key := self.one(pick):
            self.do(key[0], "sync", key[1])

    def may_write(self, key: tuple[str, int]) -> bool:
        """Whether it is asked at all: Python's own files refuse otherwise than by an errno."""
        return key[0] != "inside" or bool(self.open[key].flags & os.O_ACCMODE)

    # Names

    @rule(front=who, old=paths, new=paths, flags=st.sampled_from((0, NOREPLACE, EXCHANGE)))
    def renames(self, front: str, old: str, new: str, flags: int) -> None:
        if front == "inside":
            flags = NOREPLACE
            if old == new or new.startswith(f"{old}/") or not self.is_inside(front, old, new):
                return
        self.do(front, "rename", old, new, flags)

    @rule(front=who, old=paths, new=paths)
    def links(self, front: str, old: str, new: str) -> None:
        if self.is_inside(front, old, new) and self.kind(old) not in {"", "folder"}:
            self.do(front, "link", old, new)

    @rule(front=who, to=st.sampled_from(TARGETS), path=paths)
    def points(self, front: str, to: str, path: str) -> None:
        if self.is_inside(front, path):
            self.do(front, "symlink", to, path)

    @rule(front=who, path=paths)
    def unlinks(self, front: str, path: str) -> None:
        if self.is_inside(front, path) and (front != "inside" or self.kind(path) != "folder"):
            self.do(front, "unlink", path)

    @rule(front=who, path=paths, mode=modes)
    def makes_folder(self, front: str, path: str, mode: int) -> None:
        if self.is_inside(front, path):
            self.do(front, "mkdir", path, FOLDER_MODE if front == "inside" else mode)

    @rule(front=programs, path=paths)
    def removes_folder(self, front: str, path: str) -> None:
        self.do(front, "rmdir", path)

    @rule(front=who, path=st.sampled_from(PATHS))
    def clears(self, front: str, path: str) -> None:
        if self.is_inside(front, path) and self.kind(path) == "folder":
            self.do(front, "clear", path)

    @rule(path=st.sampled_from(PATHS), size=sizes)
    def stores(self, path: str, size: int) -> None:
        if self.is_inside("inside", path) and self.kind(path) in {"", "file"}:
            self.do("inside", "put", path, "=" * size, FILE_MODE)

    # What is known of them

    @rule(front=programs, path=paths, mode=modes)
    def changes_mode(self, front: str, path: str, mode: int) -> None:
        self.do(front, "chmod", path, mode)

    @precondition(lambda self: self.open)
    @rule(pick=picks, mode=modes)
    def changes_mode_of_open(self, pick: int, mode: int) -> None:
        if (key := self.one(pick)) and key[0] != "inside":
            self.do(key[0], "fchmod", key[1], mode)

    @rule(front=programs, path=paths, when=st.integers(0, 10**17), follow=st.booleans())
    def sets_time(self, front: str, path: str, when: int, follow: bool) -> None:
        number = self.number(front, "stat", path, follow)
        if "ok" in self.do(front, "utime", path, when, follow):
            self.unclear.discard(number)

    @rule(front=who, path=paths, key=st.sampled_from("kl"), value=st.sampled_from(("", "x", "é")))
    def sets_attribute(self, front: str, path: str, key: str, value: str) -> None:
        if front != "inside" or (self.is_inside(front, path) and self.has_attributes(path)):
            self.do(front, "set_attribute", path, key, value, self.count % 3 * (front != "inside"))

    @rule(front=who, path=paths, key=st.sampled_from("kl"))
    def drops_attribute(self, front: str, path: str, key: str) -> None:
        there = self.tree.get(f"./{path}", {}).get("attributes", {})
        if front != "inside" or (self.is_inside(front, path) and key in there):
            self.do(front, "drop_attribute", path, key)

    def has_attributes(self, path: str) -> bool:
        return self.kind(path) in {"file", "folder"}

    @rule(front=who, path=paths, follow=st.booleans())
    def looks(self, front: str, path: str, follow: bool) -> None:
        if self.is_inside(front, path):
            self.do(front, "stat", path, follow and front != "inside")

    @rule(front=programs, path=paths)
    def goes_to(self, front: str, path: str) -> None:
        self.do(front, "chdir", path)

    # Locks

    @precondition(lambda self: self.open)
    @rule(
        pick=picks,
        kind=st.sampled_from(("process", "description", "flock")),
        mode=st.sampled_from("rwwu"),
        start=st.sampled_from((0, 10, 100)),
        count=st.sampled_from((0, 5, 50)),
    )
    def locks(self, pick: int, kind: str, mode: str, start: int, count: int) -> None:
        key = self.one(pick, kind="file")
        if key is None or self.open[key].flags & os.O_ACCMODE != os.O_RDWR:
            return
        if key[0] != "inside":
            kind = "process" if self.open[key].shared else kind
            self.do(key[0], "lock", key[1], kind, mode, start, count)
        elif self.open[key].held:
            self.open[key].held = False
            self.do(key[0], "let_go", key[1])
        elif mode != "u":
            self.open[key].held = "ok" in self.do(key[0], "hold", key[1], mode)

    # Maps

    @precondition(lambda self: self.open and len(self.maps) < MAPS)
    @rule(pick=picks, write=st.booleans())
    def maps_file(self, pick: int, write: bool) -> None:
        key = self.one(pick, ("preload", "child")[pick % 2], "file")
        if key is None:
            return
        about = self.stage.pair(key[0])[1].do("fstat", key[1])["ok"]
        if about["size"]:
            self.count += 1
            said = self.do(key[0], "map", self.count, key[1], about["size"], write)
            if "ok" in said:
                self.maps[key[0], self.count] = Map(about["ino"], about["size"], writes=write)

    @precondition(lambda self: self.maps)
    @rule(pick=picks, place=places, size=sizes)
    def writes_to_map(self, pick: int, place: int, size: int) -> None:
        (front, number), one = sorted(self.maps.items())[pick % len(self.maps)]
        place = min(place, max(one.size - size, 0))
        if one.writes and one.size:
            self.unclear.add(one.number)
            self.do(front, "poke", number, place, "m" * min(size, one.size - place))

    @precondition(lambda self: self.maps)
    @rule(pick=picks)
    def unmaps(self, pick: int) -> None:
        front, number = sorted(self.maps)[pick % len(self.maps)]
        del self.maps[front, number]
        self.do(front, "unmap", number)

    # Children

    @rule()
    def forks(self) -> None:
        real, twin = self.stage.real["preload"], self.stage.twins["preload"]
        if real.child is not None:
            self.reap()
            return
        for worker in (real, twin):
            worker.fork()
        for key, what in self.open.items():
            what.shared = what.shared or key[0] == "preload"
        for front, number in [key for key in self.open if key[0] == "preload"]:
            self.open["child", number] = copy(self.open[front, number])
        for front, number in [key for key in self.maps if key[0] == "preload"]:
            self.maps["child", number] = self.maps[front, number]

    def reap(self) -> None:
        """Have the children end."""
        for worker in (self.stage.real["preload"], self.stage.twins["preload"]):
            worker.reap()
        self.open = {key: what for key, what in self.open.items() if key[0] != "child"}
        self.maps = {key: what for key, what in self.maps.items() if key[0] != "child"}

    # What is so after each step

    @invariant()
    def all_is_as_the_kernel_has_it(self) -> None:
        seen = ["preload", "inside", "child"]
        if self.stage.cache == "none":
            seen.append("mount")  # one that keeps names is asked by rules
        self.tree = self.stage.twins["mount"].do("survey")["ok"]
        front = seen[self.count % len(seen)]
        self.count += 1
        found = self.stage.pair(front)[0].do("survey")["ok"]
        assert self.alike(found, self.tree), difference(front, found, self.tree)
        for key, one in self.maps.items():
            there = [about for about in self.tree.values() if about["ino"] == one.number]
            if there and (count := min(one.size, there[0]["size"])):
                self.do(key[0], "peek", key[1], count)

    def teardown(self) -> None:
        """See that each front has all alike, close everything, and remove the folder."""
        try:
            if self.tree:
                self.ends()
        finally:
            self.clean()

    def ends(self) -> None:
        """See that each front has all alike, and all that it has open."""
        for front in ("mount", "preload", "child", "inside"):
            self.settle(front)
            found = self.stage.pair(front)[0].do("survey")["ok"]
            assert self.alike(found, self.tree), difference(front, found, self.tree)
        for (front, handle), what in self.open.items():
            if what.kind == "folder":
                self.do(front, "names", handle)
            elif what.flags & os.O_ACCMODE != os.O_WRONLY:
                self.do(front, "contents", handle)

    def clean(self) -> None:
        """Close all that is open."""
        if self.stage.real["preload"].child is not None:
            self.reap()
        self.all_do("finish", by=self.stage.all())
        self.all_do("empty", by=[self.stage.pair("preload")])


def difference(front: str, found: dict[str, Any], expected: dict[str, Any]) -> str:
    """Say what is not alike."""
    lines = [
        f"{path}: {found.get(path)}, not {expected.get(path)}"
        for path in sorted(found.keys() | expected.keys())
        if found.get(path, {}) | {"ino": 0} != expected.get(path, {}) | {"ino": 0}
    ]
    return "\n".join((f"{front} sees:", *lines))
