"""Tables: what is put comes back equal, in place, and appends of many processes lose nothing."""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import os
import pickle
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engram
from engram.table import layout, reading
from support import in_child

DAY = dt.date(2014, 9, 28)
TYPES: dict[str, tuple[Any, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, True]),
    "int8": (pa.int8(), [-128, 0, 127]),
    "uint64": (pa.uint64(), [0, 1, 2**64 - 1]),
    "half": (pa.float16(), [np.float16(0.5), np.float16(1), np.float16(-2)]),
    "double": (pa.float64(), [0.5, float("inf"), -2.0]),
    "time": (pa.timestamp("us"), [dt.datetime(1960, 1, 1), dt.datetime.max, dt.datetime.min]),  # noqa: DTZ001,DTZ901
    "zone": (pa.timestamp("ns", "Europe/Oslo"), [pd.Timestamp(n, tz="UTC") for n in (1, 2, 3)]),
    "duration": (pa.duration("ms"), [dt.timedelta(milliseconds=n) for n in (-1, 0, 5)]),
    "date32": (pa.date32(), [DAY, DAY, DAY + dt.timedelta(1)]),
    "date64": (pa.date64(), [DAY, DAY, DAY + dt.timedelta(1)]),
    "time32": (pa.time32("s"), [dt.time(1), dt.time(2), dt.time(23, 59)]),
    "time64": (pa.time64("us"), [dt.time(1), dt.time(2), dt.time(23, 59, 1, 7)]),
    "interval": (pa.month_day_nano_interval(), [(1, 2, 3), (0, 0, 0), (4, 5, -6)]),
    "text": (pa.string(), ["", "ø", "long" * 9]),
    "large text": (pa.large_string(), ["", "ø", "long" * 9]),
    "text view": (pa.string_view(), ["", "ø", "long" * 9]),
    "binary": (pa.binary(), [b"", b"\0", b"long" * 9]),
    "binary view": (pa.binary_view(), [b"", b"\0", b"long" * 9]),
    "fixed": (pa.binary(3), [b"abc", b"\0\0\0", b"xyz"]),
    "decimal": (pa.decimal128(30, 2), [decimal.Decimal(n) / 4 for n in (-1, 2, 10**20)]),
    "decimal256": (pa.decimal256(60, 0), [decimal.Decimal(10**50), decimal.Decimal(0), None]),
    "category": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"]),
    "ordered": (pa.dictionary(pa.int32(), pa.large_string(), ordered=True), ["a", "b", "a"]),
    "list": (pa.list_(pa.int16()), [[], [1, None], [2, 3, 4]]),
    "large list": (pa.large_list(pa.string()), [[], ["a", None], ["b"]]),
    "vector": (pa.list_(pa.float32(), 2), [[1, 2], [3, 4], [5, 6]]),
    "struct": (pa.struct({"a": pa.int8(), "b": pa.list_(pa.string())}), [{"a": 1, "b": ["x"]}] * 3),
    "map": (pa.map_(pa.string(), pa.int8()), [[("k", 1)], [], [("a", 2), ("b", None)]]),
    "null": (pa.null(), [None, None, None]),
}


def column(name: str, *, missing: bool) -> Any:
    """Return a column of each type, with a value missing or not."""
    kind, values = TYPES[name]
    values = [*values[:2], None, values[2]] if missing else values
    if pa.types.is_dictionary(kind):
        plain = pa.array(values, kind.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            plain.indices.cast(kind.index_type), plain.dictionary, ordered=kind.ordered
        )
    return pa.array(values, kind)


def every(*, missing: bool) -> Any:
    """Return a table with a column of each type."""
    return pa.table({name: column(name, missing=missing) for name in TYPES})


def frame(rows: int = 4) -> pd.DataFrame:
    """Return a DataFrame with a column of each kind that pandas has."""
    half = rows // 2
    made = pd.DataFrame(
        {
            "int": np.arange(rows, dtype="i2"),
            "float": np.where(np.arange(rows) % 2, np.nan, 1.5),
            "truth": np.arange(rows) % 3 == 0,
            "text": ["ø", None] * half,
            "object text": pd.Series(["a", None] * half, dtype=object),
            "object int": pd.Series([1, None] * half, dtype=object),
            "bytes": pd.Series([b"\0x", b""] * half, dtype=object),
            "category": pd.Categorical(["b", "a"] * half, categories=["c", "b", "a"]),
            "ordered": pd.Categorical([2, 1] * half, categories=[1, 2], ordered=True),
            "time": pd.date_range("1960", periods=rows, unit="ns"),
            "zone": pd.date_range("2000", periods=rows, tz="Europe/Oslo"),
            "span": pd.to_timedelta(np.arange(rows), unit="s"),
            "Int": pd.array([1, None] * half, dtype="Int32"),
            "boolean": pd.array([True, None] * half, dtype="boolean"),
            "Float": pd.array([0.5, None] * half, dtype="Float32"),
            "period": pd.period_range("2000", periods=rows, freq="M"),
            "interval": pd.interval_range(0, rows),
            "date": pd.Series([DAY] * rows),
            "decimal": pd.Series([decimal.Decimal("1.5")] * rows),
            "list": pd.Series([[1, 2], [3]] * half),
            "dict": pd.Series([{"a": 1, "b": None}] * rows),
            "arrow": pd.array(["x", None] * half, dtype=pd.ArrowDtype(pa.string())),
        }
    )
    made.loc[1, "time"] = pd.NaT
    return made


def of_objects(*values: object) -> pd.DataFrame:
    """Return a DataFrame with a column of objects."""
    return pd.DataFrame({"z": pd.Series(values, dtype=object)})


def with_attr(value: object) -> pd.DataFrame:
    """Return a DataFrame with something in its `attrs`."""
    made = pd.DataFrame({"z": [1]})
    made.attrs["a"] = value
    return made


# What is put comes back


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_each_type_of_arrows_comes_back(pool: engram.Pool, name: str, *, missing: bool) -> None:
    given_ = pa.table({"x": column(name, missing=missing)})
    pool["t"] = given_
    found = pool["t"].read()
    found.validate(full=True)
    assert found.schema.equals(given_.schema, check_metadata=True)
    assert found.equals(given_)
    assert pool["t"].append(given_.slice(1, 2)) == 2
    pool["t"].append(given_.slice(0, 0))
    both = pa.concat_tables([given_, given_.slice(1, 2)])
    assert pool["t"].read().equals(both)
    assert pool["t"][1:4].equals(both.slice(1, 3))
    assert pool["t"].compact() == 1
    assert pool["t"].read().to_pylist() == both.to_pylist()
    assert pool["t"].read().schema.equals(given_.schema, check_metadata=True)


def test_all_types_lie_in_one_part(pool: engram.Pool) -> None:
    for missing in (False, True):
        pool["t"] = every(missing=missing)
        assert pool["t"].num_parts == 1
        assert pool["t"].read().equals(every(missing=missing))
        names = [*TYPES][::-3]
        assert pool["t"].read(names).equals(every(missing=missing).select(names))


@pytest.mark.parametrize(
    "index",
    [
        None,
        pd.RangeIndex(10, 18, 2, name="n"),
        pd.Index([3.5, 1, 2, 9], name="x"),
        pd.Index(["a", "b", "c", "d"]),
        pd.date_range("2000", periods=4, tz="UTC"),
        pd.MultiIndex.from_product([["x", "y"], [1, 2]], names=["a", None]),
        pd.CategoricalIndex(["a", "b", "a", "b"], name="c"),
        pd.Index([DAY, None, DAY, DAY], dtype=object, name="o"),
        pd.Index([2**60 + 1, None, 3, 4], dtype="Int64"),
        pd.Index(["a", "b", None, "d"], dtype="string"),
        pd.MultiIndex.from_arrays([pd.array([1, 2, 3, 4], "Int8"), [*"abcd"]], names=["n", "t"]),
    ],
    ids=lambda index: type(index).__name__,
)
def test_a_dataframe_comes_back_equal(pool: engram.Pool, index: pd.Index | None) -> None:
    given_ = frame() if index is None else frame().set_axis(index)
    given_.attrs = {"title": "weather"}
    pool["t"] = given_
    found = pool["t"].to_pandas()
    pd.testing.assert_frame_equal(found, given_, check_freq=False)
    assert found.attrs == given_.attrs
    assert pool["t"].append(given_) == 4
    again = pd.concat([given_, given_], ignore_index=index is None)
    if isinstance(index, pd.RangeIndex):  # the numbers go on
        again.index = pd.RangeIndex(10, 26, 2, name="n")
    pd.testing.assert_frame_equal(pool["t"].to_pandas(), again)
    pd.testing.assert_frame_equal(pool["t"].to_pandas(rows=slice(3, 7)), again.iloc[3:7])
    pd.testing.assert_frame_equal(pool["t"].to_pandas(["int", "dict"]), again[["int", "dict"]])
    pool["t"].compact()
    pd.testing.assert_frame_equal(pool["t"].to_pandas(), again)


@pytest.mark.parametrize(
    "given_",
    [
        pd.DataFrame(),
        pd.DataFrame({"x": []}),
        pd.DataFrame(index=[1, 2]),
        pd.DataFrame({1: [1], 2: [2]}),
        pd.DataFrame({("a", 1): [1], ("b", 2): ["x"]}),
        pd.DataFrame({"": [1], "a/b": [2], "..": [3], ".7": [4], "ø" * 200: [5]}),
        pd.DataFrame([[1, 2]], columns=pd.Index(["a", "b"], name="letters")),
        pd.DataFrame({"t": pd.Series([dt.time(1), None])}),
        pd.DataFrame({"x": pd.array([[1], None], pd.ArrowDtype(pa.list_(pa.int8())))}),
        pd.DataFrame({"x": pd.array(["a"], pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string())))}),
        pd.DataFrame({"x": pd.array([{"a": 1}], pd.ArrowDtype(pa.struct({"a": pa.int8()})))}),
        pd.DataFrame({"x": pd.array([DAY], pd.ArrowDtype(pa.date32()))}),
        pd.DataFrame({"x": [1, 2]}, index=pd.Index([1, 2], dtype=object)),
        pd.DataFrame({"x": [1, 2]}, index=pd.Index(["a", None], dtype=object)),
    ],
    ids=range(14),
)
def test_odd_dataframes_come_back_equal(pool: engram.Pool, given_: pd.DataFrame) -> None:
    pool["t"] = given_
    pd.testing.assert_frame_equal(pool["t"].to_pandas(), given_)


def test_a_column_of_objects_comes_back_as_such(pool: engram.Pool) -> None:
    for values in ([1, 2], ["a", "b"], [1.5, None], [True, None], [b"a", b""], [[1], None]):
        given_ = pd.DataFrame({"x": pd.Series(values, dtype=object)})
        pool["t"] = given_
        assert pool["t"].to_pandas()["x"].tolist() == values
        assert pool["t"].to_pandas()["x"].dtype == object


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (pd.DataFrame({"z": [1j]}), "column z with type complex128"),
        (pd.DataFrame({"z": [1, "a"]}), "column z"),
        (pd.DataFrame({"z": pd.arrays.SparseArray([0, 1])}), "column z"),
        (pd.DataFrame({"z": [b"a", "s"]}), "'z' has 's', which would come back as b's'"),
        (pd.DataFrame({"z": pd.Series([1, 2.5], dtype=object)}), "'z' has 1, which would"),
        (pd.DataFrame({"z": [{"a": 1}, {"b": 2}]}), "'z' has {'a': 1}, which would come back as"),
        (pd.DataFrame({"z": [(1, 2), {3}]}), "'z' has {3}, which would"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns 'a'"),
        (pd.DataFrame({"z": [object()]}), "column z"),
        (pd.DataFrame({"z": pd.Series([2**70], dtype=object)}), "too large"),
        (pd.DataFrame({"z": pd.cut([1, 2, 3], 2)}), "convert column 'z' to plain values"),
        (
            pd.DataFrame({"z": pd.Categorical(pd.date_range("2000", periods=2, tz="UTC"))}),
            "column 'z' of dtype CategoricalDtype",
        ),
        (of_objects(pd.Timestamp(1)), "Timestamp('1970-01-01 00:00:00.000000001'), which would"),
        (of_objects(pd.Timedelta(1)), "00:00:00.000000001'), which would"),
        (of_objects(DAY, dt.datetime(2000, 1, 1, 5)), "datetime.datetime(2000, 1, 1, 5, 0)"),  # noqa: DTZ001
        (
            of_objects(dt.datetime(2000, 1, 1), dt.datetime(2000, 1, 1, tzinfo=dt.UTC)),  # noqa: DTZ001
            "tzinfo=datetime.timezone.utc), which would come back",
        ),
        (pd.DataFrame({"z": [1]}, index=pd.Index([{1}])), "the index has {1}, which would"),
        (pd.DataFrame([[1, 2]], columns=[True, False]), "[True, False] would come back as"),
        (pd.DataFrame([[1, 2]], columns=[1, "1x"]), "[1, '1x'] would come back as ['1', '1x']"),
        (pd.DataFrame({"z": [1]}, index=pd.Index([1], name=7)), "index's name 7 would come back"),
        (pd.DataFrame({"z": [1]}).set_flags(allows_duplicate_labels=False), "duplicate_labels"),
        (with_attr((1, 2)), "attrs['a'] of the DataFrame is (1, 2)"),
        (with_attr({1: 2}), "attrs['a'] of the DataFrame is {1: 2}"),
        (with_attr(np.float32(1)), "attrs['a'] of the DataFrame is np.float32(1.0)"),
        (pd.DataFrame(index=range(3)), "3 rows and no column"),
    ],
    ids=range(25),
)
def test_what_would_not_come_back_is_refused(
    pool: engram.Pool, bad: pd.DataFrame, said: str
) -> None:
    with pytest.raises(engram.ArgumentError) as refusal:
        pool["t"] = bad
    assert said in str(refusal.value)
    assert not len(pool)


def test_polars_comes_back_equal(pool: engram.Pool) -> None:
    given_ = pl.DataFrame(
        {
            "a": ["x", None, "long" * 9],
            "c": pl.Series(["u", "v", "u"], dtype=pl.Categorical),
            "e": pl.Series(["u", "v", "u"], dtype=pl.Enum(["v", "u"])),
            "n": [[1], [2, None], None],
            "s": [{"p": 1, "q": "x"}] * 3,
            "t": pl.Series([1, 2, 3], dtype=pl.Datetime("ms", "Asia/Tokyo")),
            "d": pl.Series([decimal.Decimal("1.25")] * 3),
            "b": [True, None, False],
            "f": [1.0, float("nan"), None],
            "i": pl.Series([1, 2, 3], dtype=pl.UInt8),
        }
    )
    pool["t"] = given_
    assert pool["t"].to_polars().equals(given_)
    assert pool["t"].to_polars().schema == given_.schema
    pool["t"].append(given_)
    assert pool["t"].to_polars().equals(pl.concat([given_, given_]))
    assert (
        pool["t"]
        .to_polars(["b", "a"], slice(2, 4))
        .equals(pl.concat([given_, given_])[2:4].select("b", "a"))
    )
    lazy = pool["t"].to_polars(lazy=True)
    pool["t"].append(given_)
    assert lazy.filter(pl.col("i") > 1).select(pl.col("i").sum()).collect().item() == 15
    assert lazy.select("a", "f").head(4).collect().height == 4
    assert pool["t"].to_polars(["f", "i"], slice(1, 3), lazy=True).collect()["i"].to_list() == [
        2,
        3,
    ]


def test_whatever_streams_columns_is_taken(pool: engram.Pool, tmp_path: Path) -> None:
    import pyarrow.dataset as ds  # noqa: PLC0415 - of this test alone
    import pyarrow.parquet as pq  # noqa: PLC0415

    plain = pa.table({"x": np.arange(10.0), "s": [str(n) for n in range(10)]})
    pq.write_table(plain, tmp_path / "f.parquet", row_group_size=3)
    pool["kept"] = plain
    relation = duckdb.sql("select * from plain")
    for name, source in {
        "batch": plain.to_batches()[0],
        "reader": plain.to_reader(max_chunksize=3),
        "dataset": ds.dataset(tmp_path / "f.parquet"),
        "scanner": ds.dataset(tmp_path / "f.parquet").scanner(),
        "relation": relation,
        "table": pool["kept"],
        "result": pool.query("@name = 'x'"),
    }.items():
        pool[name] = source
        assert isinstance(pool[name], engram.Table)
        if name != "result":
            assert pool[name].read().equals(plain), name
    assert set(pool["result"]["@name"].to_pylist()) == {"x"}
    made = pool.create_table("dict", {"a": [1, None], "b": ["x", "y"]}, attrs={"units": "K"})
    assert made.read().to_pydict() == {"a": [1, None], "b": ["x", "y"]}
    assert made.attrs["units"] == "K"


def test_a_long_stream_becomes_parts_at_once(pool: engram.Pool) -> None:
    def batches() -> Any:
        for n in range(40):
            assert "t" not in pool
            yield pa.record_batch({"x": np.full(500_000, float(n))})

    schema = pa.schema({"x": pa.float64()})
    pool["t"] = pa.RecordBatchReader.from_batches(schema, batches())
    assert 2 <= pool["t"].num_parts <= 4
    assert len(pool["t"]) == 20_000_000
    assert pool["t"]["x"].to_numpy().sum() == 500_000 * 780

    def failing() -> Any:
        yield from (pa.record_batch({"x": np.zeros(500_000)}) for _ in range(20))
        raise OSError("the source went")

    used = pool.space.used
    with pytest.raises(OSError, match="the source went"):
        pool["t"].append(pa.RecordBatchReader.from_batches(schema, failing()))
    assert len(pool["t"]) == 20_000_000
    gc.collect()
    assert pool.space.used == used


# What is read lies in the pool


def memory_of(pool: engram.Pool) -> list[tuple[int, int]]:
    """Return the addresses at which spans of a pool are mapped."""
    found = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if pool.path in line and "span" in line:
            low, high = line.split()[0].split("-")
            found.append((int(low, 16), int(high, 16)))
    return found


def buffers(table: Any) -> list[Any]:
    """Return all buffers of a table, those of dictionaries too."""
    found = []
    for chunk in (chunk for column in table.columns for chunk in column.chunks):
        found += chunk.buffers()
        if pa.types.is_dictionary(chunk.type):
            found += chunk.dictionary.buffers()
    return [buffer for buffer in found if buffer is not None and buffer.size]


@pytest.mark.parametrize("missing", [False, True])
def test_every_buffer_is_memory_of_the_pool(pool: engram.Pool, *, missing: bool) -> None:
    pool["t"] = pa.concat_tables([every(missing=missing).drop(["null"])] * 1000)
    pool["t"].append(pool["t"])
    table = pool["t"].read()
    spans = memory_of(pool)
    assert spans
    # Arrow makes the views of texts that are longer than 12 bytes anew for none of them.
    for buffer in buffers(table):
        assert any(low <= buffer.address < high for low, high in spans)
    stream = pa.RecordBatchReader.from_stream(pool["t"]).read_all()
    for buffer in buffers(stream):
        assert any(low <= buffer.address < high for low, high in spans)
    array = pool["t"]["double"].chunk(0)
    if not missing:
        assert not array.to_numpy().flags.writeable


def test_plain_columns_are_arrays_that_queries_find(pool: engram.Pool) -> None:
    pool.create_table("run/t", frame(), attrs={"orbit": 4})
    pool["run/t"].append(frame())
    found = list(pool.query("group.orbit = 4 and @name = 'int'"))
    assert [array[...].tolist() for array in found] == [[0, 1, 2, 3]] * 2
    assert np.isnan(pool.query("@name = 'float'")[0][...]).tolist() == [False, True, False, True]
    assert np.isnat(pool.query("@name = 'time'")[0][...]).tolist() == [False, True, False, False]
    assert pool.query("@name = 'Int'")[0][...].tolist() == [1, 0, 1, 0]


def test_what_was_read_stays_whatever_becomes_of_the_table(pool: engram.Pool) -> None:
    rows = 200_000
    pool["t"] = pa.table({"x": np.arange(rows), "s": [f"s{n}" for n in range(rows)]})
    for _ in range(5):
        pool["t"].append(pool["t"][:10])
    reader = pa.RecordBatchReader.from_stream(pool["t"])
    first = reader.read_next_batch()
    taken = pool["t"].read()
    expected = taken.to_pydict()
    pool["t"].compact()
    pool["t"].clear()
    del pool["t"]
    for n in range(8):
        pool[f"over{n}"] = np.full(rows, -1)  # what would take the space, if it were free
    assert pool.space.pending > 0
    rest = reader.read_all()
    assert [*first["x"].to_pylist(), *rest["x"].to_pylist()] == expected["x"]
    assert taken.to_pydict() == expected
    del reader, first, rest, taken
    gc.collect()
    pool["poke"] = 1
    assert pool.space.views == 0


def test_a_table_outlives_its_closing(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB") as pool:
        pool["t"] = pa.table({"x": np.arange(100_000.0)})
        column = pool["t"]["x"]
    assert column[99_999].as_py() == 99_999.0


# Who else reads it


def test_duckdb_scans_a_table_where_it_lies(pool: engram.Pool) -> None:
    n = 300_000
    pool["t"] = pa.table(
        {"k": np.arange(n) % 7, "x": np.arange(n) * 0.5, "s": ["a", "b", "c"] * (n // 3)}
    )
    pool["t"].append(pool["t"][:n])
    pool["names"] = pa.table({"k": [0, 1, 2], "name": ["zero", "one", None]})
    t, names = pool["t"], pool["names"]
    assert (len(t), len(names)) == (2 * n, 3)
    found = duckdb.sql(
        "select name, count(*), max(x) from t join names using (k) where s = 'b' group by name "
        "order by name nulls last"
    ).fetchall()
    x = np.arange(n) * 0.5
    k, s = np.arange(n) % 7, np.arange(n) % 3
    for row, (key, name) in zip(found, [(1, "one"), (0, "zero"), (2, None)], strict=True):
        chosen = x[(k == key) & (s == 1)]
        assert row == (name, 2 * len(chosen), chosen.max())
    assert duckdb.sql("select count(*) from t").fetchall() == [(2 * n,)]
    relation = duckdb.sql("select max(x) from t")
    t.append(pa.table({"k": [1], "x": [1e9], "s": ["a"]}))
    assert relation.fetchall() == [(1e9,)]


def test_hits_of_a_query_are_scanned(pool: engram.Pool) -> None:
    for n in range(12):
        pool.create_array(f"a{n}", data=np.zeros(n), attrs={"orbit": n % 3, "level": "low"})
    hits = pool.query("orbit < 2", order_by="orbit")
    asked = 'select orbit, count(*), sum("@nbytes")::int from hits group by orbit order by orbit'
    assert duckdb.sql(asked).fetchall() == [(0, 4, 8 * 18), (1, 4, 8 * 22)]
    assert pl.DataFrame(hits).height == 8
    assert pa.table(hits).equals(hits.to_arrow())
    assert pa.schema(hits).equals(hits.to_arrow().schema)


def test_a_requested_schema_leaves_columns_out(pool: engram.Pool) -> None:
    pool["t"] = every(missing=True)
    asked = pa.schema({"text": pa.large_string(), "int8": pa.int8()})
    found = pa.RecordBatchReader.from_stream(pool["t"], schema=asked).read_all()
    assert found.schema == asked
    assert found["int8"].to_pylist() == [-128, 0, None, 127]
    assert pa.schema(pool["t"]).equals(every(missing=True).schema)


def test_columns_and_rows_are_selected_as_lists_are(pool: engram.Pool) -> None:
    whole = pa.table({"x": np.arange(10), "s": [str(n) for n in range(10)]})
    t = pool.create_table("t", schema=whole.schema)
    for n in range(0, 10, 3):
        t.append(whole.slice(n, 3))
    for part in (
        slice(None),
        slice(2, 5),
        slice(-3, None),
        slice(4, 4),
        slice(8, 99),
        slice(1, 9, 3),
    ):
        assert t[part].to_pydict() == {name: whole[name].to_pylist()[part] for name in ("x", "s")}
    assert t["s"].to_pylist() == whole["s"].to_pylist()
    assert t[["s"]].column_names == ["s"]
    assert t[[]].num_columns == 0
    assert (len(t), t.shape, t.num_columns, t.column_names) == (10, (10, 2), 2, ["x", "s"])
    assert list(t) == ["x", "s"]
    assert "x" in t
    assert t.nbytes >= 80
    assert t._ipython_key_completions_() == ["x", "s"]
    for bad in (3, ("x", 2), None, 1.5):
        with pytest.raises(engram.ArgumentError, match="cannot be indexed by"):
            t[bad]
    with pytest.raises(engram.ArgumentError, match="go backwards"):
        t[::-1]
    with pytest.raises(engram.NotFoundError, match="no column 'y' in this table: it has 'x', 's'"):
        t["y"]
    with pytest.raises(engram.ArgumentError, match=r"columns 'x' is one name"):
        t.read("x")
    with pytest.raises(engram.ArgumentError, match="a table is no array"):
        np.asarray(t)
    with pytest.raises(engram.ArgumentError, match="rows 3 are no slice"):
        t.read(rows=3)  # type: ignore[arg-type]


def test_columns_of_one_name_are_kept_apart(pool: engram.Pool) -> None:
    twice = pa.table([[1, 2], ["a", "b"], [3, 4]], names=["x", "s", "x"])
    pool["t"] = twice
    pool["t"].append(twice)
    assert pool["t"].read().equals(pa.concat_tables([twice, twice]))
    with pytest.raises(engram.ArgumentError, match="2 columns 'x'"):
        pool["t"]["x"]


# What is refused


def test_single_columns_are_refused_with_what_to_put(pool: engram.Pool) -> None:
    for value, said in {
        "pandas Series": pd.Series([1, 2]),
        "pandas RangeIndex": pd.Index([1, 2]).to_series().reset_index(drop=True).index,
        "polars Series": pl.Series([1, 2]),
        "pyarrow Int64Array": pa.array([1, 2]),
        "pyarrow ChunkedArray": pa.chunked_array([[1, 2]]),
    }.items():
        with pytest.raises(engram.ArgumentError, match=f"cannot be a {value}.*to_numpy"):
            pool["x"] = said
        with pytest.raises(engram.ArgumentError, match=f"cannot be a {value}"):
            pool.create_table("x", said)
        with pytest.raises(engram.ArgumentError, match=f"attribute 'x' is a {value}"):
            pool.attrs["x"] = said
    with pytest.raises(engram.ArgumentError, match="attribute 'x' is a pandas DataFrame"):
        pool.attrs.update(y=1, x=frame())
    assert not len(pool.attrs)
    with pytest.raises(engram.ArgumentError, match=r"pandas\.DataFrame\({name: it}\)"):
        pool["x"] = pd.array([1, None])
    with pytest.raises(engram.ArgumentError, match=r"lazy\.collect"):
        pool["x"] = pl.LazyFrame({"a": [1]})
    for table in (frame(), pl.DataFrame({"a": [1]}), pa.table({"a": [1]})):
        with pytest.raises(engram.ArgumentError, match=r"use create_table\(name, data\)"):
            pool.create_array("x", data=table)
    with pytest.raises(engram.ArgumentError, match="to_numpy"):
        pool.create_array("x", data=pd.Series([1.5, 2]))
    assert not len(pool)


def test_masked_values_in_a_list_are_refused_and_a_masked_column_has_nulls(
    pool: engram.Pool,
) -> None:
    masked = np.ma.masked_array([1, 2], [False, True])
    with pytest.raises(engram.ArgumentError, match=r"column 'x' has masked values.*filled"):
        pool.create_table("t", {"x": [masked]})
    assert list(pool) == []
    pool.create_table("t", {"x": masked})
    assert pool["t"].to_arrow()["x"].to_pylist() == [1, None]


def test_an_append_of_another_schema_names_the_column_and_both_types(pool: engram.Pool) -> None:
    schema = pa.schema(
        {"x": pa.float64(), "s": pa.string(), "c": pa.dictionary(pa.int8(), pa.string())}
    )
    t = pool.create_table("t", schema=schema)
    row: dict[str, Any] = {"x": [1.0], "s": ["a"], "c": pa.array(["u"]).dictionary_encode()}
    cases = {
        "column 'x' is int64, and double in the table": {**row, "x": [1]},
        "column 's' is missing, which is string in the table": {"x": [1.0], "c": row["c"]},
        "column 'y' .int64. is none of the table's": {**row, "y": [1]},
        "column 's' is int8, and string": {**row, "s": pa.array([1], pa.int8())},
        "column 'c' is string, and dictionary<values=string, indices=int8": {**row, "c": ["u"]},
        "column 'c' .* cannot be had as dictionary<values=string, indices=int8": {
            name: values * 300
            if isinstance(values, list)
            else pa.array(map(str, range(300))).dictionary_encode()
            for name, values in row.items()
        },
    }
    for said, given_ in cases.items():
        with pytest.raises(engram.ArgumentError, match=said):
            t.append(pa.table(given_))
    with pytest.raises(engram.ArgumentError, match=r"'__index_level_0__' .* reset_index"):
        pool["f"] = frame()
        pool["f"].append(frame().set_axis(list("abcd")))
    with pytest.raises(engram.ArgumentError, match=r"builtins\.int is no table"):
        t.append(5)
    assert len(t) == 0
    # These tell the same values.
    alike = {"s": pa.array(["a"], pa.string_view()), "x": pa.nulls(1)}
    t.append(pa.table({**row, **alike}))
    t.append(pl.DataFrame({"c": pl.Series(["u"], dtype=pl.Categorical), "x": [2.0], "s": ["b"]}))
    assert t.read().to_pydict() == {"x": [None, 2.0], "s": ["a", "b"], "c": ["u", "u"]}
    assert t.schema == schema
    strict = pool.create_table("n", schema=pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    with pytest.raises(engram.ArgumentError, match="'x' has 1 missing values"):
        strict.append(pa.table({"x": [1, None]}))


DAWN = dt.datetime(2000, 1, 1, 5)  # noqa: DTZ001
CHANGED: dict[str, tuple[Any, Any, str]] = {
    "a fraction": (pa.int64(), [2.5], "where 2.5 would be 2"),
    "a fraction of an object": (pa.int64(), np.array([2.5], object), "where 2.5 would be 2"),
    "a fraction of a list": (pa.list_(pa.int8()), [[2.5]], r"where \[2.5\] would be \[2\]"),
    "half of the digits": (pa.float32(), np.array([0.1]), "is double, and float in the table"),
    "an hour": (pa.date32(), [DAWN], "would be datetime.date"),
    "an hour of numpy": (pa.date32(), np.array([DAWN], "M8[s]"), "is timestamp.s., and date32"),
    "nanoseconds": (pa.timestamp("us"), [pd.Timestamp(1)], "would be datetime.datetime"),
    "a zone": (
        pa.timestamp("us"),
        [DAWN.replace(tzinfo=dt.UTC)],
        "timezone.utc. would be datetime",
    ),
    "no zone": (pa.timestamp("us", "UTC"), [DAWN], "would be datetime.datetime"),
    "a field": (pa.struct({"a": pa.int8()}), [{"a": 1, "b": 2}], "would be {'a': 1}"),
    "bytes": (pa.string(), [b"a"], "where b'a' would be 'a'"),
    "truth": (pa.float64(), [True], "where True would be 1.0"),
    "an index": (pa.int64(), pd.Series([1], index=["a"]), "is a pandas Series with an index"),
}
TAKEN: dict[str, tuple[Any, Any, list[Any]]] = {
    "Python's numbers": (pa.float32(), [0.5, 1, None], [0.5, 1.0, None]),
    "whole numbers": (pa.int64(), [1, 2.0], [1, 2]),
    "a short dtype": (pa.int64(), np.array([1], "i1"), [1]),
    "an iterator": (pa.int8(), iter([1, 2]), [1, 2]),
    "a mask": (pa.int8(), np.ma.array([1, 2], mask=[False, True]), [1, None]),
    "a series": (pa.int8(), pd.Series([1, 2]), [1, 2]),
    "a dict as a map": (pa.map_(pa.string(), pa.int8()), [{"a": 1}], [[("a", 1)]]),
    "texts as categories": (pa.dictionary(pa.int8(), pa.string()), ["a", None], ["a", None]),
    "nanoseconds": (pa.timestamp("ns"), [np.datetime64(1, "ns")], [pd.Timestamp(1)]),
    "vectors": (pa.list_(pa.int8()), [np.array([1, 2]), None], [[1, 2], None]),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_dict_that_a_schema_would_change_is_refused(pool: engram.Pool, name: str) -> None:
    kind, values, said = CHANGED[name]
    schema = pa.schema({"x": kind})
    t = pool.create_table("t", schema=schema)
    with pytest.raises(engram.ArgumentError, match=said):
        t.append({"x": values})
    with pytest.raises(engram.ArgumentError, match=said):
        pool.create_table("u", {"x": values}, schema=schema)
    assert (len(t), "u" in pool) == (0, False)


@pytest.mark.parametrize("name", TAKEN)
def test_a_dict_of_the_same_values_is_taken(pool: engram.Pool, name: str) -> None:
    kind, values, kept = TAKEN[name]
    t = pool.create_table("t", schema=pa.schema({"x": kind}))
    t.append({"x": values})
    assert t["x"].to_pylist() == kept


def test_a_dict_has_all_columns_and_no_others(pool: engram.Pool) -> None:
    t = pool.create_table("t", {"x": [1], "y": [2]})
    for given_, said in (
        ({"x": [1], "y": [2], "z": [3]}, "'z' is none of the table's"),
        ({"x": [1]}, "'y' is missing, which is int64"),
    ):
        with pytest.raises(engram.ArgumentError, match=said):
            t.append(given_)
    assert len(t) == 1


def test_categories_of_an_order_are_those_of_the_table(pool: engram.Pool) -> None:
    def levels(values: list[str | None], order: list[str]) -> pd.DataFrame:
        return pd.DataFrame({"c": pd.Categorical(values, categories=order, ordered=True)})

    pool["t"] = levels(["hi"], ["lo", "hi"])
    t = pool["t"]
    for order in (["lo", "mid", "hi"], ["hi", "lo"]):
        with pytest.raises(engram.ArgumentError, match=r"ordered categories \['.*\['lo', 'hi'\]"):
            t.append(levels(["hi"], order))
    t.append(levels(["lo", None], ["lo", "hi"]))
    t.append(levels([None], ["other"]))
    assert t.to_pandas()["c"].max() == "hi"
    parts = [levels(["b"], ["a", "b"]), levels(["b"], ["b", "a"])]
    batches = [pa.RecordBatch.from_pandas(part) for part in parts]
    with pytest.raises(engram.ArgumentError, match="ordered categories"):
        pool["u"] = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    assert "u" not in pool


def test_categories_of_polars_are_those_of_the_schema(pool: engram.Pool) -> None:
    def of(value: str) -> pl.DataFrame:
        return pl.DataFrame({"e": pl.Series([value], dtype=pl.Enum([value]))})

    t = pool.create_table("t", schema=pa.schema(of("a").to_arrow().schema))
    with pytest.raises(engram.ArgumentError, match="'e' has other categories than polars' Enum"):
        t.append(of("c"))
    t.append(of("a"))
    assert t.to_polars()["e"].to_list() == ["a"]


def test_what_polars_alone_has_is_refused(pool: engram.Pool) -> None:
    for dtype, said in ((pl.Object, "'x' is of polars' dtype Object"), (pl.Int128, "_pli128")):
        with pytest.raises(engram.ArgumentError, match=f"{said}.*leave it out"):
            pool["t"] = pl.DataFrame({"x": pl.Series([1], dtype=dtype)})
    assert not len(pool)


def test_classes_made_from_pandas_own_are_known(pool: engram.Pool) -> None:
    made = type("Frame", (pd.DataFrame,), {}), type("Column", (pd.Series,), {})
    with pytest.raises(engram.ArgumentError, match=r"'z' has {1}"):
        pool["t"] = made[0]({"z": pd.Series([{1}], dtype=object)})
    with pytest.raises(engram.ArgumentError, match="to_frame"):
        pool["t"] = made[1]([1, 2], index=["a", "b"])
    assert not len(pool)


def test_rows_without_columns_are_refused(pool: engram.Pool) -> None:
    with pytest.raises(engram.ArgumentError, match="2 rows, and no column"):
        pool["t"] = pa.table({"x": [1, 2]}).select([])
    assert not len(pool)


def test_an_append_is_in_the_order_of_columns_of_one_name(pool: engram.Pool) -> None:
    pool["t"] = pa.table([[1], [2], [3]], names=["x", "x", "y"])
    with pytest.raises(engram.ArgumentError, match="of one name: give them in its order"):
        pool["t"].append(pa.table([[1], [2], [3]], names=["x", "y", "x"]))


@pytest.mark.parametrize("name", TYPES)
def test_every_second_row_is_read(pool: engram.Pool, name: str) -> None:
    pool["t"] = pa.table({"x": column(name, missing=True)})
    pool["t"].append(pool["t"].read())
    found = pool["t"][1:8:2]
    found.validate(full=True)
    assert found.schema == pool["t"].schema
    assert found["x"].to_pylist() == pool["t"]["x"].to_pylist()[1:8:2]


def test_what_stands_in_the_way_is_told(pool: engram.Pool) -> None:
    t = pool.create_table("t", {"x": [1]})
    pool.create_group("g")
    for name, said in {"t": "'t' is taken", "g": "'g' is taken"}.items():
        with pytest.raises(engram.ExistsError, match=said):
            pool.create_table(name, {"x": [1]})
    with pytest.raises(engram.ExistsError, match="'g' is a group"):
        pool["g"] = frame()
    with pytest.raises(engram.ArgumentError, match="'n' has no columns"):
        pool.create_table("n")
    with pytest.raises(engram.ArgumentError, match=r"schema {'a': 'zzz'} is none .*zzz"):
        pool.create_table("n", schema={"a": "zzz"})
    assert pool.require_table("t", {"x": "int64"}) == t
    assert len(pool.require_table("r", {"x": "int64"})) == 0
    with pytest.raises(
        engram.ArgumentError, match="column 0 of the table 't' is 'x' of int64, not"
    ):
        pool.require_table("t", {"x": "int8"})
    with pytest.raises(engram.ArgumentError, match="'g' is no table"):
        pool.require_table("g", {"x": "int8"})
    t.read_only = True
    for change in (lambda: t.append({"x": [1]}), t.clear, t.compact):
        with pytest.raises(engram.ReadOnlyError, match="'t' is read-only"):
            change()
    t.read_only = False
    with pytest.raises(engram.PoolFullError):
        t.append({"x": np.zeros(40_000_000, int)})
    with pytest.raises(engram.PoolFullError):
        pool["big"] = pa.table({"x": np.zeros(40_000_000)})
    assert sorted(pool) == ["g", "r", "t"]
    assert len(t) == 1
    del pool["t"]
    for use in (lambda: len(t), t.read, lambda: t.append({"x": [1]}), t.compact):
        with pytest.raises(engram.NotFoundError):
            use()
    assert "gone" in repr(t)


def test_a_closed_pool_and_one_for_reading_refuse(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB") as pool:
        t = pool.create_table("t", frame())
    with pytest.raises(engram.ArgumentError, match="closed"):
        t.read()
    with pytest.raises(engram.ArgumentError, match="closed"):
        t.append(frame())
    with engram.open(home / "p", "r") as pool:
        pd.testing.assert_frame_equal(pool["t"].to_pandas(), frame(), check_freq=False)
        for change in (
            lambda: pool["t"].append(frame()),
            lambda: pool.create_table("u", frame()),
            pool["t"].compact,
            pool["t"].clear,
        ):
            with pytest.raises(engram.ReadOnlyError):
                change()


def test_a_schema_or_part_that_was_spoilt_is_told(pool: engram.Pool) -> None:
    pool["t"] = frame()
    t = pool["t"]
    (part,) = reading.parts(pool._namespace, t._id)
    del t.as_group()[part.name]["int"]
    with pytest.raises(engram.CorruptError, match="lacks 'int': somebody has deleted it"):
        t.read()
    assert t["float"].null_count == 2
    t.as_group()[layout.MARK] = b"not a schema"
    with pytest.raises(engram.CorruptError, match=r"'\.table' of this table is no schema"):
        t.read()


def test_without_pyarrow_a_table_is_found_and_its_content_named(home: Path) -> None:
    with engram.create(home / "p", size="64 MiB") as pool:
        pool["t"] = frame()
    code = (
        "import sys\n"
        "for name in ('pyarrow', 'pandas', 'polars'): sys.modules[name] = None\n"
        "import engram\n"
        "with engram.open(sys.argv[1]) as pool:\n"
        "    t = pool['t']\n"
        "    print(repr(t), len(t), t.num_parts, pool.tree() and '')\n"
        "    for use in (t.read, lambda: t.append({}), lambda: pool.create_table('u', {})):\n"
        "        try: use()\n"
        "        except engram.UnsupportedError as error: print(error)\n"
        "    pool.move('t', 'u'); del pool['u']; print(list(pool))\n"
    )
    said = in_child(code, home / "p")
    assert "<engram.Table 't' (4 rows)> 4 1" in said
    assert said.count("needs pyarrow, which is not installed: pip install 'engram[pyarrow]'") == 3
    assert said.endswith("[]")


# Where it stands


def test_tables_and_others_take_each_others_names(pool: engram.Pool) -> None:
    for value in (np.arange(3), b"bytes", "text", pool.create_array("a", data=[1])):
        pool["x"] = frame()
        assert isinstance(pool["x"], engram.Table)
        pool["x"] = value
        assert not isinstance(pool["x"], engram.Table)
        pool["x"] = frame()
        assert len(pool["x"]) == 4
    pool.create_table("x", {"a": [1]}, overwrite=True)
    assert pool["x"].column_names == ["a"]
    deep = pool.create_table("not/there/yet", {"a": [1]})
    assert deep.path == "not/there/yet"
    assert deep.parent.path == "not/there"
    with pytest.raises(engram.ExistsError, match="'x' is a table, and no group"):
        pool.require_group("x")
    assert pool.require_group("not/there").path == "not/there"


def test_a_table_is_one_thing_in_its_group(pool: engram.Pool) -> None:
    pool["g/t"] = frame()
    t = pool["g/t"]
    seen: list[str] = []
    pool.visititems(lambda path, _: seen.append(path))
    assert seen == ["g", "g/t"]
    assert "table of 4 rows" in str(pool.tree())
    assert "Rows" in t._repr_html_()
    assert "engram-card" in t._repr_html_()
    assert repr(t) == "<engram.Table 'g/t' (4 rows, 22 columns)>"
    with pytest.raises(engram.NotFoundError, match="'g/t' is a table, whose columns are pool"):
        pool["g/t/int"]
    pool.move("g/t", "u")
    assert (t.path, len(t)) == ("u", 4)
    assert pickle.loads(pickle.dumps(t)).read().equals(t.read())
    assert pickle.loads(pickle.dumps(t)) == t
    assert isinstance(pool["u"].as_group().parent, engram.Group)
    t.append(frame())
    t.clear()
    assert (len(t), t.num_parts, len(t.schema)) == (0, 0, 22)
    assert t.to_pandas().dtypes.astype(str).tolist() == frame().dtypes.astype(str).tolist()


def test_batches_snapshots_and_scopes_hold(pool: engram.Pool) -> None:
    t = pool.create_table("t", {"x": [0]})
    with pool.batch():
        for n in (1, 2, 3):
            t.append({"x": [n]})
        assert t["x"].to_pylist() == [0, 1, 2, 3]
        assert in_child(f"import engram; print(len(engram.open({pool.path!r}, 'r')['t']))") == "1"
    with pytest.raises(KeyError), pool.batch():
        t.append({"x": [9]})
        raise KeyError
    assert t["x"].to_pylist() == [0, 1, 2, 3]
    with pool.snapshot() as then:
        t.append({"x": [4]})
        t.compact()
        assert then["t"]["x"].to_pylist() == [0, 1, 2, 3]
    assert t["x"].to_pylist() == [0, 1, 2, 3, 4]
    mine = pool.create_table("mine", {"x": [1]}, scope="private")
    mine.append({"x": [2]})
    assert {mine.scope, *(array.scope for array in pool.query("@path contains 'mine/'"))} == {
        "private"
    }
    mine.compact()
    pool.share("mine")
    mine.append({"x": [3]})
    assert (mine.scope, mine["x"].to_pylist()) == ("shared", [1, 2, 3])
    pool.publish("mine", closed=True)
    assert pool["mine"]["x"].to_pylist() == [1, 2, 3]
    with pytest.raises(engram.ReadOnlyError):
        pool["mine"].append({"x": [4]})
    with pytest.raises(engram.ReadOnlyError):
        pool["mine"].compact()


def test_an_append_takes_no_lock_that_users_take(pool: engram.Pool) -> None:
    t = pool.create_table("t", {"x": [0]})
    with t.lock("r"):
        t.append({"x": [1]})
        code = "import sys, engram; engram.open(sys.argv[1])['t'].append({'x': [2]})"
        in_child(code, pool.path)
    assert t["x"].to_pylist() == [0, 1, 2]


def test_files_and_the_command_line_know_tables(
    pool: engram.Pool, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from engram.cli import main  # noqa: PLC0415 - of this test alone

    pool["g/t"] = frame()
    pool["g/a"] = np.arange(3)
    engram.export_file(pool, home / "f.h5")
    engram.import_file(home / "f.h5", pool.create_group("back"))
    pd.testing.assert_frame_equal(pool["back/g/t"].to_pandas(), frame())
    del pool["back"]
    outputs = {}
    for verb in ("ls -l g", "ls -r", "tree", "info g/t", "info --json g/t", "stats"):
        name, *words = verb.split()
        flags = [word for word in words if word.startswith("-")]
        places = [word for word in words if not word.startswith("-")]
        with pytest.raises(SystemExit) as end:
            main([name, *flags, pool.path, *places])
        outputs[verb] = capsys.readouterr().out
        assert end.value.code in (0, None), verb
    assert "table" in outputs["ls -l g"]
    assert outputs["ls -r"].split() == ["g/", "g/a", "g/t"]
    assert "4 rows" in outputs["tree"]
    assert "int: 0" in outputs["info g/t"]
    assert '"rows": 4' in outputs["info --json g/t"]
    with pytest.raises(SystemExit):
        main(["get", pool.path, "g/t"])
    assert "is a table" in capsys.readouterr().err


def test_datasets_stand_beside_tables(pool: engram.Pool) -> None:
    import xarray as xr  # noqa: PLC0415 - of this test alone

    from engram.xarray import register  # noqa: PLC0415

    register()

    pool["t"] = frame()
    xr.Dataset({"a": ("x", [1, 2])}).engram.to_pool(pool, mode="w")
    with xr.open_dataset(pool) as found:
        assert list(found.variables) == ["a"]
    assert len(pool["t"]) == 4


# Whatever is done


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_appends_compactions_and_clearings_are_those_of_a_list(data: st.DataObject) -> None:
    folder = Path("/dev/shm", f"engram-tables-{os.getpid()}")
    with engram.create(folder, size="64 MiB", force=True) as pool:
        try:
            t = pool.create_table("t", schema={"x": "int32", "s": "string", "c": "bool"})
            rows: list[dict[str, Any]] = []
            row = st.fixed_dictionaries(
                {
                    "x": st.none() | st.integers(-9, 9),
                    "s": st.none() | st.text(max_size=4),
                    "c": st.none() | st.booleans(),
                }
            )
            for _ in range(data.draw(st.integers(1, 8))):
                what = data.draw(st.sampled_from(["append", "append", "compact", "clear", "read"]))
                if what == "append":
                    more = data.draw(st.lists(row, max_size=6))
                    assert t.append(pa.Table.from_pylist(more, t.schema)) == len(more)
                    rows += more
                elif what == "read":
                    start, stop = data.draw(st.integers(-3, 20)), data.draw(st.integers(-3, 20))
                    assert t[start:stop].to_pylist() == rows[start:stop]
                else:
                    getattr(t, what)()
                    rows = rows if what == "compact" else []
                assert t.read().to_pylist() == rows
                assert len(t) == len(rows)
                assert t["s"].to_pylist() == [one["s"] for one in rows]
        finally:
            pool.close()
            engram.destroy(folder)
