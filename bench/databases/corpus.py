"""What is searched: granules of objects with twelve attributes, made from a seed.

Granules and names are those of `bench.evaluation.corpus`. Of the attributes, `lat` is nearly unique
and in no order, `time` ascends with the objects, `orbit` and `level` are constant in a granule,
`remark` is one of many texts, and the others come from small vocabularies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bench.evaluation.corpus import LEVELS, OBJECTS, SEED, granule_names, object_names

Values = np.ndarray[Any, Any]

TEXTS = {"surface": 6, "quality": 4, "region": 12, "source": 32}
NUMBERS = {"beam": 2, "gain": 50, "cloud": 5}
SHARED = 50
"""So many objects have the same remark, on average."""
BIRDS = ("kestrel", "heron", "osprey", "plover", "curlew", "dunlin", "avocet", "bittern")
STATES = ("calm", "gusty", "hazy", "clear", "frozen", "wet", "dusty")


@dataclass
class Corpus:
    """Columns by name, and the paths; an object is a place in all of them."""

    granules: list[str]
    names: list[str]
    columns: dict[str, Values]
    """Numbers, and texts as bytes of one width, which numpy compares quickly."""

    def __len__(self) -> int:
        return len(self.granules) * len(self.names)

    @cached_property
    def paths(self) -> list[str]:
        """The path of each object."""
        return [f"{granule}/{name}" for granule in self.granules for name in self.names]

    @cached_property
    def remarks(self) -> list[str]:
        """The remark of each object."""
        return texts_of(self.columns["remark"])

    def rows(self, first: int, count: int) -> list[dict[str, Any]]:
        """Return the attributes of some objects that follow each other."""
        part = {name: plain(column[first : first + count]) for name, column in self.columns.items()}
        return [dict(zip(part, row, strict=True)) for row in zip(*part.values(), strict=True)]


def plain(column: Values) -> list[Any]:
    """Return values as Python has them."""
    return texts_of(column) if column.dtype.kind == "S" else column.tolist()


def texts_of(column: Values) -> list[str]:
    """Return texts, each distinct one once in memory."""
    distinct, codes = np.unique(column, return_inverse=True)
    known = [text.decode() for text in distinct.tolist()]
    return [known[code] for code in codes.tolist()]


def generate(granules: int, objects: int = OBJECTS) -> Corpus:
    """Make so many granules of so many objects each."""
    random = np.random.default_rng(SEED)
    count = granules * objects
    columns: dict[str, Values] = {
        "orbit": np.repeat(1000 + 14 * np.arange(granules), objects),
        "level": of_vocabulary(LEVELS, np.repeat(random.integers(0, 5, granules), objects)),
    }
    for name, number in (TEXTS | NUMBERS).items():
        codes = np.minimum(random.exponential(number / 4, count), number - 1).astype("i8")
        words = [f"{name}-{code:02d}" for code in range(number)]
        columns[name] = of_vocabulary(words, codes) if name in TEXTS else codes
    columns["lat"] = np.round(random.uniform(-90, 90, count), 9)
    columns["time"] = 4e8 + np.cumsum(random.uniform(0.01, 0.05, count))
    distinct = max(count // SHARED, 1)
    remarks = [
        f"{BIRDS[place % 8]} {place}, {STATES[place % 7]} and {STATES[place // 8 % 7]}"
        for place in range(distinct)
    ]
    columns["remark"] = of_vocabulary(remarks, random.integers(0, distinct, count))
    return Corpus(granule_names(granules), object_names(objects), columns)


def of_vocabulary(words: Any, codes: Values) -> Values:
    """Return words by their numbers."""
    return np.array([word.encode() for word in words])[codes]
