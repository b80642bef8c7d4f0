"""A damaged Zarr store: refused with its array, and nothing of it imported."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
import zarr

import engram
from stores import NUMBERS, STORED, edited, made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def truncate(store: Path) -> None:
    chunk = store / "a/v/c/1/1"
    chunk.write_bytes(chunk.read_bytes()[:-3])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing array": lambda s: (s / "a/v/zarr.json").unlink(),
    "missing group": lambda s: (s / "a/zarr.json").unlink(),
    "no JSON": lambda s: (s / "a/v/zarr.json").write_text("{"),
    "no object": lambda s: (s / "a/v/zarr.json").write_text("[]"),
    "other version": lambda s: edited(s, "a/v", lambda d: d.update(zarr_format=4)),
    "other node": lambda s: edited(s, "a/v", lambda d: d.update(node_type="table")),
    "no shape": lambda s: edited(s, "a/v", lambda d: d.pop("shape")),
    "negative": lambda s: edited(s, "a/v", lambda d: d.update(shape=[-1, 3])),
    "other rank": lambda s: edited(s, "a/v", lambda d: d.update(shape=[10])),
    "unknown dtype": lambda s: edited(s, "a/v", lambda d: d.update(data_type="int31")),
    "unknown codec": lambda s: edited(s, "a/v", lambda d: d["codecs"].append({"name": "rot13"})),
    "unknown grid": lambda s: edited(s, "a/v", lambda d: d["chunk_grid"].update(name="hexagonal")),
    "transformer": lambda s: edited(
        s, "a/v", lambda d: d.update(storage_transformers=[{"name": "x"}])
    ),
    "no attributes": lambda s: edited(s, "a/v", lambda d: d.update(attributes="x")),
    "no attributes of a group": lambda s: edited(s, "a", lambda d: d.update(attributes=[1])),
    "empty chunks": lambda s: edited(
        s, "a/v", lambda d: d["chunk_grid"]["configuration"].update(chunk_shape=[0, 5])
    ),
    "nested": lambda s: (s / "a/v/zarr.json").write_text("[" * 100_000),
    "no UTF-8": lambda s: (s / "a/v/zarr.json").write_bytes(b'"\xff"'),
    "unknown word": lambda s: edited(s, "a/v", lambda d: d.update(word=3)),
    "truncated chunk": truncate,
    "empty chunk": lambda s: (s / "a/v/c/1/1").write_bytes(b""),
}


@pytest.mark.parametrize("how", STORED)
def test_a_truncated_chunk_is_refused_by_name(pool: engram.Pool, tmp_path: Path, how: str) -> None:
    arguments = {"data": NUMBERS, "chunks": (4, 5), **STORED[how]}
    store = made(tmp_path / "x.zarr", v=arguments, w=[1])
    chunks = [f for f in (store / "v").rglob("*") if f.is_file() and f.name != "zarr.json"]
    assert chunks
    chunk = max(chunks)
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with pytest.raises(engram.FormatError, match=r"x\.zarr: /v: .*chunk"):
        engram.import_file(store, pool)
    assert (list(pool), pool.used) == ([], 0)


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_store_is_refused_by_name(pool: engram.Pool, tmp_path: Path, how: str) -> None:
    said = {"data": NUMBERS, "chunks": (4, 5)}
    store = made(tmp_path / "x.zarr", **{"0": [1], "a/v": said, "b": [2]})
    DAMAGE[how](store)
    with pytest.raises(engram.FormatError, match=r"x\.zarr: /a"):
        engram.import_file(store, pool)
    assert (list(pool), pool.used) == ([], 0)


def test_a_node_that_consolidated_metadata_name_must_be_there(
    pool: engram.Pool, tmp_path: Path
) -> None:
    store = made(tmp_path / "x.zarr", v=[1], w=[2])
    with pytest.warns(UserWarning, match="Consolidated"):
        zarr.consolidate_metadata(store)
    shutil.rmtree(store / "w")
    with pytest.raises(engram.FormatError, match=r"/w: its zarr\.json is missing"):
        engram.import_file(store, pool)
    assert not list(pool)


def test_consolidated_metadata_that_are_stale_are_told(pool: engram.Pool, tmp_path: Path) -> None:
    store = made(tmp_path / "x.zarr", v=[1], w=[2])
    with pytest.warns(UserWarning, match="Consolidated"):
        zarr.consolidate_metadata(store)
    assert not engram.import_file(store, pool.create_group("a")).noted
    edited(store, "v", lambda d: d.update(attributes={"a": 1}))
    report = engram.import_file(store, pool.create_group("b"))
    assert [(e.path, e.what) for e in report.noted] == [("/v", "consolidated metadata")]
    assert dict(pool["b/v"].attrs) == {"a": 1}


def test_a_damaged_archive_is_refused(pool: engram.Pool, tmp_path: Path) -> None:
    (tmp_path / "x.zarr.zip").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(engram.FormatError, match=r"x\.zarr\.zip.*zip"):
        engram.import_file(tmp_path / "x.zarr.zip", pool)


def test_a_store_that_changes_while_it_is_read_is_refused(
    pool: engram.Pool, tmp_path: Path
) -> None:
    store = made(tmp_path / "x.zarr", v=NUMBERS, w=NUMBERS)

    def change(_: object) -> None:
        os.utime(store / "w/c/0/0", ns=(1, 1))

    with pytest.raises(engram.BusyError, match="changed while"):
        engram.import_file(store, pool, progress=change)
    assert not list(pool)


def test_links_that_lead_nowhere_or_up_are_told(pool: engram.Pool, tmp_path: Path) -> None:
    store = made(tmp_path / "x.zarr", **{"a/v": [1]})
    for name, target in (("dangling", "nowhere"), ("loop", "."), ("up", ".."), ("out", "../..")):
        (store / "a" / name).symlink_to(target)
    (store / "b").symlink_to("a/v")
    report = engram.import_file(store, pool)
    left = [entry.path for entry in report.left_out]
    assert left == ["/a/dangling", "/a/loop", "/a/out", "/a/up"]
    assert pool["b"][...].tolist() == [1]


def test_an_array_larger_than_the_pool_leaves_nothing(pool: engram.Pool, tmp_path: Path) -> None:
    store = edited(made(tmp_path / "x.zarr", v=[1]), "v", lambda d: d.update(shape=[10**17]))
    with pytest.raises(engram.PoolFullError, match=r"x\.zarr: /v"):
        engram.import_file(store, pool)
    assert (list(pool), pool.used) == ([], 0)
