"""Who answers: Engram, DuckDB, SQLite, numpy. Each gives the places of objects, or averages.

Engram gives OIDs. Objects were stored in the order of their places, so `places` of its answer are
the places of these OIDs among all; nobody is timed while that is worked out.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

import engram
from bench.databases.corpus import plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.databases.corpus import Corpus, Values
    from bench.databases.questions import Question

Policy: TypeAlias = Literal["fixed", "dynamic"]

VALUE = np.arange(4, dtype="f8")
ROWS = 100_000
INDEXES = {
    "by_lat": "lat",
    "by_time": "time",
    "by_four": "region, quality, beam, gain",
    "by_source": "source, lat",
}
TEXTS = {"remarks": "remark", "paths": "path"}


class AbsentError(Exception):
    """It cannot be asked this."""


class Side(Protocol):
    """One who answers."""

    def ask(self, question: Question) -> Any:
        """Return what is found."""

    def places(self, answer: Any) -> Values:
        """Return the places of the objects found."""

    def use(self, threads: int) -> None:
        """Use so many threads from now on."""


class Engram:
    """A pool of the corpus' objects."""

    def __init__(self, path: Path, corpus: Corpus, policy: Policy = "dynamic") -> None:
        self.pool = engram.create(path, size=f"{2 + len(corpus) // 500_000} GiB")
        self.pool.set_index(index_policy=policy)
        self.threads = 1
        for number, granule in enumerate(corpus.granules):
            rows = corpus.rows(number * len(corpus.names), len(corpus.names))
            with self.pool.batch():
                group = self.pool.create_group(granule)
                for name, attrs in zip(corpus.names, rows, strict=True):
                    group.create_array(name, data=VALUE, attrs=attrs)
        self.pool.drain_index()
        self.oids = self.pool.query().oids()

    def ask(self, question: Question) -> Any:
        """Ask through Python."""
        if question.averages:
            return self._averages(question.text)
        found = self.pool.query(
            question.text, order_by=question.order, limit=question.limit, threads=self.threads
        )
        return found.oids()

    def _averages(self, text: str) -> dict[str, float]:
        aggregate = getattr(self.pool, "aggregate", None)
        if aggregate is None:
            raise AbsentError("this version has no averages by key")
        try:
            rows = list(aggregate(text))
        except engram.QueryError as refusal:
            raise AbsentError(str(refusal).split("\n")[0]) from refusal
        pairs = (tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows)
        return {str(key): float(mean) for key, mean in pairs}

    def places(self, answer: Any) -> Values:
        """Return the places of OIDs."""
        return np.asarray(np.searchsorted(self.oids, answer))

    def use(self, threads: int) -> None:
        """Search with so many threads."""
        self.threads = threads

    def fill_tail(self, corpus: Corpus) -> int:
        """Store objects one by one until the tail is nearly full; return how many it has."""
        group = self.pool.require_group("tail")
        for number, attrs in enumerate(corpus.rows(0, 400)):
            if (tail := self.tail()) >= 250:  # noqa: PLR2004 - 256 are sealed
                return tail
            name = f"{number:03d}-{len(group):04d}"
            group.create_array(name, data=VALUE, attrs=attrs | {"lat": 91.0 + number, "time": 1.0})
        return self.tail()

    def tail(self) -> int:
        """Return how many objects wait to be sealed."""
        return int(self.pool.index_stats().tail)

    def close(self) -> None:
        """Remove the pool."""
        path = self.pool.path
        self.pool.close()
        engram.destroy(path)


class Duck:
    """A table in a file of DuckDB's; `ImportError` if it is not installed."""

    def __init__(self, path: Path, corpus: Corpus) -> None:
        import duckdb  # noqa: PLC0415 - a peer may be absent

        self.path = path
        self.connection = duckdb.connect(str(path))
        table: dict[str, Any] = {"id": np.arange(len(corpus)), "path": objects(corpus.paths)}
        table |= {
            name: objects(plain(column)) if column.dtype.kind == "S" else column
            for name, column in corpus.columns.items()
        }
        self.connection.register("corpus", table)
        self.connection.execute("CREATE TABLE objects AS SELECT * FROM corpus")
        self.connection.unregister("corpus")
        self.connection.execute("CHECKPOINT")
        self.use(1)

    def ask(self, question: Question) -> Any:
        """Ask through Python; the answer is arrays."""
        answer = self.connection.execute(question.sql).fetchnumpy()
        if question.averages:
            keys, means = answer.values()
            return dict(zip(keys.tolist(), means.tolist(), strict=True))
        return answer["id"]

    def places(self, answer: Any) -> Values:
        """Return them."""
        return np.asarray(answer)

    def use(self, threads: int) -> None:
        """Use so many threads."""
        self.connection.execute(f"SET threads = {threads}")

    def nbytes(self) -> int:
        """Return the bytes of the whole table, which is its own index."""
        return self.path.stat().st_size

    def close(self) -> None:
        """Remove it."""
        self.connection.close()
        self.path.unlink()


class Sqlite:
    """A table in a file of SQLite's with the index that is best for each question."""

    def __init__(self, path: Path, corpus: Corpus) -> None:
        self.path = path
        self.connection = connect(path)
        names = list(corpus.columns)
        self.connection.execute(
            f"CREATE TABLE objects (id INTEGER PRIMARY KEY, path, {', '.join(names)})"
        )
        marks = ", ".join("?" * (len(names) + 2))
        for first in range(0, len(corpus), ROWS):
            part = (plain(corpus.columns[name][first : first + ROWS]) for name in names)
            ids = range(first, min(first + ROWS, len(corpus)))
            rows = zip(ids, corpus.paths[first : first + ROWS], *part, strict=True)
            self.connection.executemany(f"INSERT INTO objects VALUES ({marks})", rows)  # noqa: S608
        self.connection.commit()
        bare = self._size()
        for name, keys in INDEXES.items():
            self.connection.execute(f"CREATE INDEX {name} ON objects ({keys})")
        for name, column in TEXTS.items():
            self.connection.execute(
                f"CREATE VIRTUAL TABLE {name} USING fts5({column}, content='objects', "
                "content_rowid='id', tokenize='trigram case_sensitive 1')"
            )
            self.connection.execute(f"INSERT INTO {name} ({name}) VALUES ('rebuild')")  # noqa: S608
        self.connection.execute("ANALYZE")
        self.connection.commit()
        self.index_bytes = self._size() - bare

    def _size(self) -> int:
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        (each,) = self.connection.execute("PRAGMA page_size").fetchone()
        return int(pages * each)

    def ask(self, question: Question) -> Any:
        """Ask through Python; the answer is an array, made of rows."""
        found = self.connection.execute(question.for_sqlite)
        if question.averages:
            return dict(found.fetchall())
        return np.fromiter((id_ for (id_,) in found), "i8")

    def places(self, answer: Any) -> Values:
        """Return them in order, where no order was asked for."""
        return np.asarray(answer)

    def use(self, threads: int) -> None:
        """Use one thread, as always."""

    def close(self) -> None:
        """Remove it."""
        self.connection.close()
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink()


class Brute:
    """Every object is looked at: numpy's arrays, and texts one by one."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def ask(self, question: Question) -> Any:
        """Look at all."""
        return question.brute(self.corpus)

    def places(self, answer: Any) -> Values:
        """Return them."""
        return np.asarray(answer)

    def use(self, threads: int) -> None:
        """Use one thread, as always."""


def connect(path: Path) -> sqlite3.Connection:
    """Open a file of SQLite's: memory-mapped, never synced, readers beside a writer."""
    connection = sqlite3.connect(path, timeout=60)
    for pragma in ("journal_mode = WAL", "synchronous = OFF", f"mmap_size = {1 << 40}"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def objects(values: list[Any]) -> Values:
    """Return an array of Python objects."""
    made = np.empty(len(values), "O")
    made[:] = values
    return made


def same(question: Question, mine: tuple[Side, Any], theirs: tuple[Side, Any]) -> bool:
    """Return whether two have answered alike; objects are in order only where that was asked."""
    answers: list[Any] = [answer for _, answer in (mine, theirs)]
    if question.averages:
        return close(*answers)
    first, second = (side.places(answer) for side, answer in (mine, theirs))
    if question.order is None:
        first, second = np.sort(first), np.sort(second)
    return np.array_equal(first, second)


def close(first: Mapping[str, float], second: Mapping[str, float]) -> bool:
    """Return whether averages of the same keys differ by no more than rounding."""
    return first.keys() == second.keys() and all(
        np.isclose(first[key], second[key], rtol=1e-9, atol=1e-12) for key in first
    )
