"""Tables: DuckDB scans one where it lies, beside Arrow's in memory and Parquet on tmpfs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import engram
from bench.harness import Bound, Contestant, Line, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

ROWS = 10_000_000
APPENDS = 200
ASKED = "select k, sum(a), avg(b), max(t) from {} where c > 0.5 group by k"


def lines(setting: Setting) -> Iterator[Line]:
    """Aggregate a large table, and append small ones."""
    yield from aggregated(setting)
    yield from appended(setting)


def columns(rows: int) -> pa.Table:
    """Return eight columns: numbers, keys, times and texts of few values."""
    rng = np.random.default_rng(1)
    made: dict[str, Any] = {name: rng.random(rows) for name in "abcd"}
    made |= {"k": rng.integers(0, 100, rows), "n": np.arange(rows, dtype="i4")}
    made["t"] = np.arange(rows).astype("M8[us]")
    made["s"] = pa.array(np.array(["one", "two", "three", "four"])[rng.integers(0, 4, rows)])
    return pa.table(made)


def aggregated(setting: Setting) -> Iterator[Line]:
    """Ask DuckDB for one aggregation of ten million rows of eight columns."""
    rows = ROWS // 10 if setting.quick else ROWS
    memory = columns(rows)
    pool = engram.create(setting.folder / "table", size="2 GiB")
    pool["t"] = memory
    file = setting.folder / "t.parquet"
    pq.write_table(memory, file)
    tables: dict[str, Any] = {"engram": pool["t"], "pyarrow": memory}

    def asked(name: str) -> Callable[[], float]:
        return lambda: timed(lambda: answer(f"'{file}'" if name == "Parquet" else tables[name]))

    bounds = [Bound("engram", "pyarrow", "speed", 0.9), Bound("engram", "Parquet", "speed", 3)]
    line = Line(f"{rows // 1_000_000} million rows x 8 columns to DuckDB", "ms", bounds)
    contestants = [Contestant(name, asked(name)) for name in ("engram", "pyarrow", "Parquet")]
    yield measure(line, contestants, setting.rounds)
    del tables["engram"]
    pool.close()
    engram.destroy(setting.folder / "table")
    file.unlink()


def answer(source: Any) -> list[Any]:
    """Ask DuckDB of a table, or of a file by its name in quotes."""
    found: list[Any] = duckdb.sql(
        ASKED.format(source if isinstance(source, str) else "source")
    ).fetchall()
    return found


def appended(setting: Setting) -> Iterator[Line]:
    """Append a hundred rows, many times, and read all."""
    few = columns(100)
    pool = engram.create(setting.folder / "few", size="256 MiB")
    folder = setting.folder / "parts"
    folder.mkdir()

    def ours() -> None:
        table = pool.create_table("t", schema=few.schema, overwrite=True)
        for _ in range(APPENDS):
            table.append(few)
        table.read().validate()

    def files() -> None:
        for place in range(APPENDS):
            pq.write_table(few, folder / f"{place}.parquet")
        pq.read_table(folder).validate()

    line = Line(f"{APPENDS} appends of 100 rows, read", "ms", [Bound("engram", "Parquet", "show")])
    contestants = [
        Contestant("engram", lambda: timed(ours)),
        Contestant("Parquet", lambda: timed(files)),
    ]
    yield measure(line, contestants, setting.rounds)
    pool.close()
    engram.destroy(setting.folder / "few")
