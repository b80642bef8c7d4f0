"""What is asked: the papers' queries, each in Engram's language and in SQL.

The SQL is for a table `objects` with a column for each key, `_id`, `_group`, `_path` and `_count`
(of attributes); SQLite's has an FTS5 trigram index `paths`, for DuckDB `plain` puts the search in
the path in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.evaluation.corpus import ABSENT, DATE

if TYPE_CHECKING:
    from pathlib import Path

    from bench.evaluation.corpus import Column, Corpus

PART = "9610/Inf"
MATCH = "_id IN (SELECT rowid FROM paths WHERE paths MATCH '\"{}\"')"
SEVEN = (
    "orbit_num", "sky_version", "processing_level", "date", "surface_type", "beam", "quality",
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """A query, and what is wanted: `objects`, or to count their `attributes`."""

    name: str
    text: str
    sql: str
    wanted: str = "objects"

    def plain(self) -> str:
        """Return the SQL without SQLite's index of paths."""
        start, _, rest = self.sql.partition(MATCH.split("{", maxsplit=1)[0])
        if not rest:
            return self.sql
        part, _, rest = rest.partition("\"')")
        return f"{start}contains(_path, '{part}'){rest}"


def where(condition: str) -> str:
    """Return SQL for the objects that meet a condition."""
    return f"SELECT _id FROM objects WHERE {condition}"  # noqa: S608 - of our own making


def papers(corpus: Corpus) -> list[Question]:
    """Q1 to Q5, and the conjunction of seven attributes."""
    group = corpus.granules[len(corpus.granules) // 2]
    there = ("orbit_num", "sky_version", "processing_level")
    both = ("d_lat", "d_lon")
    q5 = [f"exists({key})" for key in there] + [f"date = {DATE}"]
    q5 += [f"exists({key})" for key in both]
    q5_sql = [f"{key} IS NOT NULL" for key in (*there, *both)] + [f"date = {DATE}"]
    match = MATCH.format(PART)
    return [
        Question("Q1", f'@path contains "{PART}"', where(match)),
        Question("Q2", f'under("{group}")', where(f"_group = '{group}'")),
        Question(
            "Q3",
            f'under("{group}")',
            where(f"_group = '{group}'").replace("_id", "sum(_count)"),
            "attributes",
        ),
        Question(
            "Q4",
            f'exists(orbit_num) and @path contains "{PART}"',
            where(f"orbit_num IS NOT NULL AND {match}"),
        ),
        Question("Q5", " and ".join(q5), where(" AND ".join(q5_sql))),
        seven(corpus),
    ]


def seven(corpus: Corpus) -> Question:
    """Seven attributes equal to those of an object in the middle."""
    found = corpus.attributes(len(corpus) // 2)
    equal = [(key, found[key]) for key in SEVEN if key in found]
    return Question(
        "seven attributes",
        " and ".join(f"{key} = {literal(value, chr(34))}" for key, value in equal),
        where(" AND ".join(f"{key} = {literal(value, chr(39))}" for key, value in equal)),
    )


def more(corpus: Corpus) -> list[Question]:
    """Ranges, or, not, and a point query on a nearly unique value."""
    place = len(corpus) // 3
    questions = []
    columns = {column.name: column for column in corpus.columns}
    if "d_lat" in columns:
        point = literal(columns["d_lat"].of(place), "'")
        questions += [
            Question("point, d_lat", f"d_lat = {point}", where(f"d_lat = {point}")),
            both_ways("range, d_lat, 1 %", "d_lat between 10.0 and 10.9"),
        ]
    if "d_utc_time" in columns:
        questions.append(clustered(columns["d_utc_time"], place))
    if "gain" in columns:
        questions.append(both_ways("range, gain, vocabulary", "gain > 30"))
    if {"surface_type", "quality"} <= set(columns):
        a, b = "surface_type = 'surface_type-05'", "quality = 'quality-03'"
        questions.append(both_ways("or", f"{a} or {b}"))
        # SQL's `not` is true of no absent value, so both say that the key is there.
        questions.append(both_ways("not", "beam = 1 and not (quality = 'quality-00')"))
    return questions


def both_ways(name: str, condition: str) -> Question:
    """Return a question that reads the same in both languages."""
    return Question(name, condition, where(condition))


def clustered(column: Column, place: int) -> Question:
    """Return a range of a key that ascends with the objects, with up to 10 hits."""
    low = column.of(place)
    codes = column.codes[place : place + 8]
    high = max(column.values[code] for code in codes if code != ABSENT)
    condition = f"{column.name} between {literal(low, chr(39))} and {literal(high, chr(39))}"
    return both_ways("range, d_utc_time, clustered", condition)


def literal(value: float | str, quote: str) -> str:
    """Return a value as both languages write it."""
    return f"{quote}{value}{quote}" if isinstance(value, str) else repr(value)


def write(questions: list[Question], path: Path) -> None:
    """Write the file that the Rust program reads."""
    lines = (f"{q.name}\t{q.wanted}\t{q.text}\t{q.sql}\n" for q in questions)
    path.write_text("".join(lines), encoding="utf-8")
