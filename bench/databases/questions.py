"""What is asked, in Engram's language, in SQL, and of numpy's arrays.

The SQL is for a table `objects` with a column for each attribute, `id` (the object's place) and
`path`. SQLite finds parts of texts in FTS5 indexes of trigrams, so such a question has SQL of its
own for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.evaluation.questions import PART

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.databases.corpus import Corpus, Values

FEW = 10
SPAN = 180 * 0.0016
"""The range of `lat` that 0.16 % of the objects are in."""
CLUSTERED = 8
BIRD = "kestrel 8"


@dataclass(frozen=True)
class Question:
    """A question, and what the answer is: objects, objects in an order, or an average by key."""

    name: str
    text: str
    sql: str
    brute: Callable[[Corpus], Any]
    lite: str = ""
    order: str | None = None
    limit: int | None = None
    averages: bool = False

    @property
    def for_sqlite(self) -> str:
        """The SQL that SQLite answers fastest."""
        return self.lite or self.sql


def where(condition: str) -> str:
    """Return SQL for the objects that meet a condition."""
    return f"SELECT id FROM objects WHERE {condition}"  # noqa: S608 - of our own making


def places(mask: Values) -> Values:
    """Return where a mask is true."""
    return np.flatnonzero(mask)


def between(name: str, low: float, high: float) -> Question:
    """Ask for a range of `lat`."""

    def brute(corpus: Corpus) -> Values:
        lat = corpus.columns["lat"]
        return places((lat >= low) & (lat <= high))

    condition = f"lat between {low!r} and {high!r}"
    return Question(name, condition, where(condition), brute)


def point(corpus: Corpus, place: int) -> Question:
    """Ask for the objects that have an object's value of the key that is nearly unique."""
    value = float(corpus.columns["lat"][place])
    condition = f"lat = {value!r}"
    return Question(
        "point", condition, where(condition), lambda c: places(c.columns["lat"] == value)
    )


def clustered(corpus: Corpus, place: int) -> Question:
    """Ask for a few objects that were stored one after the other."""
    low, high = (float(corpus.columns["time"][at]) for at in (place, place + CLUSTERED - 1))
    condition = f"time between {low!r} and {high!r}"

    def brute(c: Corpus) -> Values:
        time = c.columns["time"]
        return places((time >= low) & (time <= high))

    return Question("clustered range", condition, where(condition), brute)


def four() -> Question:
    """Ask for what meets four conditions at once."""
    condition = (
        "region = 'region-03' and quality = 'quality-01' and beam = 1 and gain between 5 and 24"
    )

    def brute(corpus: Corpus) -> Values:
        has = corpus.columns
        mask = (has["region"] == b"region-03") & (has["quality"] == b"quality-01")
        return places(mask & (has["beam"] == 1) & (has["gain"] >= 5) & (has["gain"] <= 24))  # noqa: PLR2004

    return Question("conjunction of four", condition, where(condition), brute)


def part_of(name: str, field: str, column: str, part: str) -> Question:
    """Ask for a part of a text."""

    def brute(corpus: Corpus) -> Values:
        texts = corpus.paths if column == "path" else corpus.remarks
        return places(np.fromiter((part in text for text in texts), bool, len(texts)))

    return Question(
        name,
        f"{field} contains '{part}'",
        where(f"contains({column}, '{part}')"),
        brute,
        lite=f"SELECT rowid FROM {column}s WHERE {column}s MATCH '\"{part}\"'",  # noqa: S608
    )


def top() -> Question:
    """Ask for the first few in the order of a key."""
    return Question(
        f"top {FEW} by a key",
        "",
        f"SELECT id FROM objects ORDER BY lat, id LIMIT {FEW}",  # noqa: S608 - of our own making
        lambda corpus: np.argsort(corpus.columns["lat"], kind="stable")[:FEW],
        order="lat",
        limit=FEW,
    )


def average() -> Question:
    """Ask for the average of one key for each value of another."""

    def brute(corpus: Corpus) -> dict[str, float]:
        words, codes = np.unique(corpus.columns["source"], return_inverse=True)
        sums = np.bincount(codes, corpus.columns["lat"])
        means = sums / np.bincount(codes)
        return {word.decode(): float(mean) for word, mean in zip(words, means, strict=True)}

    return Question(
        "average by key",
        "mean(lat) group by source",
        "SELECT source, avg(lat) FROM objects GROUP BY source",
        brute,
        averages=True,
    )


def scan() -> Question:
    """Ask what every part of the index could answer: for threads."""
    condition = "(lat > 0 or source = 'source-01') and not (region = 'region-00')"

    def brute(corpus: Corpus) -> Values:
        has = corpus.columns
        mask = (has["lat"] > 0) | (has["source"] == b"source-01")
        return places(mask & (has["region"] != b"region-00"))

    return Question("scan", condition, where(condition), brute)


def selective(corpus: Corpus) -> list[Question]:
    """Return questions with a few hits, however many objects there are."""
    place = len(corpus) // 3
    return [point(corpus, place), clustered(corpus, place)]


def all_of(corpus: Corpus) -> list[Question]:
    """Return every question."""
    return [
        *selective(corpus),
        between("range, 0.16 %", 10.0, 10.0 + SPAN),
        between("range, 50 %", -90.0, 0.0),
        four(),
        part_of("contains, a text", "remark", "remark", BIRD),
        part_of("contains, a path", "@path", "path", PART),
        top(),
        average(),
        scan(),
    ]
