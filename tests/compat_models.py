"""Models of dataClay programs, old and new, that several tests and their children work with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from engram.compat.dataclay import (
    DataClayObject,
    activemethod,
    dclayEmptyMethod,
    dclayMethod,
)
from engram.compat.dataclay.annotated import LocalOnly, PropertyTransformer
from engram.compat.dataclay.config import get_runtime
from engram.compat.dataclay.contrib.nvm import InNVM


class Person(DataClayObject):
    """Somebody, who may have a friend."""

    name: str
    age: int
    friend: Person | None

    @activemethod
    def __init__(self, name: str, age: int) -> None:
        self.name = name
        self.age = age
        self.friend = None

    @activemethod
    def add_year(self) -> None:
        self.age += 1

    @activemethod
    def child(self, name: str) -> Person:
        for _ in range(3):
            Person("nobody", 0)
        return Person(name, 0)

    @activemethod
    def child_says(self) -> tuple[bool, str | None]:
        child = Person("child", 0)
        return child.is_persistent, child.getID()

    @activemethod
    def make_and_fail(self, made: list[Person]) -> None:
        made.append(Person("lost", 0))
        raise RuntimeError(self.name)

    @activemethod
    def meet(self, other: Person) -> str:
        return other.name

    @activemethod
    def where(self) -> Any:
        runtime = get_runtime()
        assert runtime is not None
        return runtime.backend_id, runtime.is_backend

    @activemethod
    def __str__(self) -> str:
        return f"{self.name}, {self.age}"

    def describe(self) -> str:
        """Tell of it; not an active method."""
        return f"{self.name} is {self.age}"

    @activemethod
    async def grow(self, years: int) -> int:
        for _ in range(years):
            self.age += 1
            await asyncio.sleep(0)
        return self.age


class Doubled(PropertyTransformer):
    """Stores twice what is assigned."""

    def setter(self, value: Any) -> Any:
        return 2 * value

    def getter(self, value: Any) -> Any:
        return value + 1


class Odd(DataClayObject):
    """Fields with more to them than a type."""

    kept: int
    cache: Annotated[dict[str, int], LocalOnly()]
    number: Annotated[int, Doubled()]
    array: Annotated[np.ndarray, InNVM()]


class Reader(DataClayObject):
    """Has something open that no pool holds, and makes it anew."""

    filename: str
    line: int

    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.line = 0
        self.file = object()

    @activemethod
    def read(self) -> tuple[int, bool]:
        self.line += 1
        return self.line, self.file is not None

    def __getstate__(self) -> dict[str, Any]:
        return {"filename": self.filename, "line": self.line}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.filename = state["filename"]
        self.line = state["line"]
        self.file = object()


class Stats(DataClayObject):
    """How often which word occurs."""

    counts: dict[str, int]

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    @activemethod
    def merge(self, other: Stats) -> None:
        for word, count in other.counts.items():
            self.counts[word] = self.counts.get(word, 0) + count

    @activemethod
    def most(self, number: int) -> list[tuple[str, int]]:
        return sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))[:number]


class Text(DataClayObject):
    """A text's words."""

    words: list[str]

    def __init__(self, text: str) -> None:
        self.words = text.lower().split()

    @activemethod
    def count(self) -> Stats:
        counts: dict[str, int] = {}
        for word in self.words:
            counts[word] = counts.get(word, 0) + 1
        return Stats(counts)


class Collection(DataClayObject):
    """Texts."""

    texts: list[Text]

    @activemethod
    def __init__(self) -> None:
        self.texts = []

    @activemethod
    def add(self, text: str) -> None:
        self.texts.append(Text(text))


class Block(DataClayObject):
    """A block of a matrix, as a dataClay 2 program declares it.

    @dclayImport math
    @dclayImportFrom itertools import count as counter
    @ClassField block numpy.ndarray
    @ClassField label str
    """

    if TYPE_CHECKING:
        label: str

    @dclayMethod()
    def __init__(self) -> None:
        self.block: Any = None

    @dclayMethod(rows="int", columns="int", seed="int")
    def initialize_random(self, rows: int, columns: int, seed: int) -> None:
        self.block = np.random.default_rng(seed).random((rows, columns))

    @dclayMethod(rows="int", columns="int")
    def initialize_zeros(self, rows: int, columns: int) -> None:
        self.block = np.zeros((rows, columns))

    @dclayMethod(a="model.block.Block", b="model.block.Block")
    def add_product(self, a: Block, b: Block) -> None:
        self.block += a.block @ b.block

    @dclayMethod(return_="anything")
    def imported(self) -> Any:
        return math.sqrt(4), next(counter(7))  # type: ignore[name-defined] # noqa: F821

    @dclayMethod(return_="str", _local=True)
    def local(self) -> str:
        return "here"

    @dclayEmptyMethod
    def elsewhere(self) -> None:
        pass


class OldStats(DataClayObject):
    """How often which word occurs.

    @ClassField current_word_count anything
    """

    @dclayMethod(counts="anything")
    def __init__(self, counts: dict[str, int]) -> None:
        self.current_word_count = counts

    @dclayMethod(target="demo.classes.OldStats")
    def merge_word_counts(self, target: OldStats) -> None:
        for word, count in target.current_word_count.items():
            self.current_word_count[word] = self.current_word_count.get(word, 0) + count

    @dclayMethod(num_words=int, return_="anything")
    def get_summary(self, num_words: int) -> list[tuple[str, int]]:
        pairs = sorted(self.current_word_count.items(), key=lambda pair: (-pair[1], pair[0]))
        return pairs[:num_words]


class OldText(DataClayObject):
    """A text's words.

    @ClassField words list<str>
    """

    @dclayMethod(words="anything")
    def add_words(self, words: list[str]) -> None:
        self.words = words

    @dclayMethod(return_="demo.classes.OldStats")
    def word_count(self) -> OldStats:
        counts: dict[str, int] = {}
        for word in self.words:
            counts[word] = counts.get(word, 0) + 1
        return OldStats(counts)


class OldCollection(DataClayObject):
    """Texts.

    @ClassField texts list<demo.classes.OldText>
    """

    @dclayMethod()
    def __init__(self) -> None:
        self.texts: list[OldText] = []

    @dclayMethod(text="str")
    def add_text(self, text: str) -> None:
        made = OldText()
        made.make_persistent()
        made.add_words(text.lower().split())
        self.texts.append(made)
