"""DuckDB: one table with a column for each key, in memory, one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.evaluation.corpus import ABSENT

if TYPE_CHECKING:
    from bench.evaluation.corpus import Column, Corpus
    from bench.evaluation.questions import Question

FORMS = {"int": "i8", "float": "f8", "text": "O"}


class Duck:
    """A corpus in DuckDB; `ImportError` if it is not installed."""

    def __init__(self, corpus: Corpus) -> None:
        import duckdb  # noqa: PLC0415 - a peer may be absent

        self.connection = duckdb.connect(":memory:")
        self.connection.execute("SET threads = 1")
        paths = [corpus.path(place) for place in range(len(corpus))]
        counts = sum((column.codes != ABSENT).astype("i8") for column in corpus.columns)
        table: dict[str, Any] = {
            "_id": np.arange(len(corpus)),
            "_group": np.array([path.rpartition("/")[0] for path in paths], "O"),
            "_path": np.array(paths, "O"),
            "_count": counts,
        }
        table |= {column.name: array_of(column) for column in corpus.columns}
        self.connection.register("corpus", table)
        self.connection.execute("CREATE TABLE objects AS SELECT * FROM corpus")
        self.connection.unregister("corpus")

    def ask(self, question: Question) -> int:
        """Return the number of objects found, or of attributes."""
        answer = self.connection.execute(question.plain()).fetchnumpy()
        (values,) = answer.values()
        return int(values[0]) if question.wanted == "attributes" else len(values)

    def close(self) -> None:
        """Close it."""
        self.connection.close()


def array_of(column: Column) -> np.ndarray[Any, Any]:
    """Return a column's values, one for each object; masked where there is none."""
    values = np.array(column.values, FORMS[column.kind])
    there = column.codes != ABSENT
    filled = values[np.where(there, column.codes, 0)]
    return filled if there.all() else np.ma.masked_array(filled, ~there)
