"""A damaged Zarr store: refused with its array, and nothing of it imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zarr

import engram
from stores import NUMBERS, STORED, edited, made
from support import in_child

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


@pytest.mark.parametrize("place", ["filters", "compressor"])
def test_pickles_are_refused_unread(pool: engram.Pool, tmp_path: Path, place: str) -> None:
    trap = tmp_path / "sprung"
    chunk = b"cpathlib\nPath\n(V" + str(trap).encode() + b"\ntRp0\n0cpathlib\nPath.touch\n(g0\ntR."
    store = tmp_path / "x.zarr"
    array = zarr.create_array(store, shape=(1,), dtype="i8", zarr_format=2, compressors=None)
    array[...] = 1
    document = json.loads((store / ".zarray").read_bytes())
    pickled = {"id": "pickle", "protocol": 0}
    document["dtype"] = "|O"
    document[place] = [pickled] if place == "filters" else pickled
    (store / ".zarray").write_text(json.dumps(document))
    (store / "0").write_bytes(chunk)
    with pytest.raises(engram.FormatError, match=r"x\.zarr: /: .*it is a pickle"):
        engram.import_file(store, pool)
    assert not trap.exists()
    assert not list(pool)


NO_ZARR = """
import sys, engram
sys.modules["zarr"] = None
with engram.create(sys.argv[1], size="16 MiB", force=True) as pool:
    pool["v"] = [1]
    for work in (
        lambda: engram.import_file(sys.argv[2], pool),
        lambda: engram.export_file(pool, sys.argv[2] + ".zarr"),
    ):
        try: work()
        except engram.UnsupportedError as error: print(error)
    print(list(pool))
"""


def test_no_folder_is_made_under_an_archives_name(pool: engram.Pool, tmp_path: Path) -> None:
    pool["x"] = [1, 2]
    with pytest.raises(engram.ArgumentError, match=r"as a folder.*end the name with \.zarr"):
        engram.export_file(pool, tmp_path / "x.zarr.zip")
    with pytest.raises(engram.ArgumentError, match="as a folder"):
        engram.export_file(pool, tmp_path / "x.zip", format="zarr")
    with pytest.raises(engram.ArgumentError, match="says no format") as refused:
        engram.export_file(pool, tmp_path / "x.unknown")
    assert ".zarr" in str(refused.value)
    assert ".zip" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_without_zarr_it_is_told_what_to_install(home: Path, tmp_path: Path) -> None:
    store = made(tmp_path / "x.zarr", v=[1])
    told = in_child(NO_ZARR, home / "pool", store).splitlines()
    assert len(told) == 3
    assert all("pip install 'engram[zarr]'" in line for line in told[:2])
    assert told[2] == "['v']"
    assert [found.name for found in tmp_path.iterdir()] == ["x.zarr"]


NO_ROOM = """
import resource, sys, engram
with engram.create(sys.argv[1], size="64 MiB", force=True) as pool:
    engram.import_file(sys.argv[2], pool)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    try: engram.export_file(pool, sys.argv[3])
    except engram.EngramError as error: print(error)
"""


def test_a_chunk_that_cannot_be_written_leaves_nothing(home: Path, tmp_path: Path) -> None:
    data = np.zeros((64, 1 << 14))  # the first chunk does not fit, sixty-three others do
    data[0] = np.random.default_rng(0).random(1 << 14)
    made(tmp_path / "x.zarr", v={"data": data, "chunks": (1, 1 << 14), "fill_value": 1.0})
    for n in range(3):
        told = in_child(NO_ROOM, home / f"pool{n}", tmp_path / "x.zarr", tmp_path / "y.zarr")
        assert "y.zarr" in told
        assert "File too large" in told
        assert [found.name for found in tmp_path.iterdir()] == ["x.zarr"]


FULL = """
import asyncio, errno, os, signal, sys, zarr, engram
tried = []

async def fail(self, key, value):
    tried.append(key)
    if sys.argv[3] == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0)
    raise OSError(errno.ENOSPC, "No space left on device")

with engram.open(sys.argv[1], "r") as pool:
    zarr.storage.LocalStore.set = fail
    try: engram.export_file(pool, sys.argv[2])
    except (engram.EngramError, KeyboardInterrupt) as error: print(type(error).__name__, error)
    print(len(tried))
"""


@pytest.mark.parametrize("how", ["full", "interrupt"])
def test_after_the_first_chunk_that_fails_no_other_is_written_and_nothing_else_is_said(
    home: Path, tmp_path: Path, how: str
) -> None:
    data = np.random.default_rng(0).random((64, 1 << 14))
    made(tmp_path / "x.zarr", v={"data": data, "chunks": (1, 1 << 14)})
    with engram.create(home / "pool", size="64 MiB", force=True) as pool:
        engram.import_file(tmp_path / "x.zarr", pool)
    for _ in range(3):
        words = [sys.executable, "-c", FULL, str(home / "pool"), str(tmp_path / "y.zarr"), how]
        ended = subprocess.run(words, capture_output=True, check=False, text=True)
        assert (ended.returncode, ended.stderr) == (0, "")
        raised, tried = ended.stdout.splitlines()
        told = "y.zarr: /v: cannot be written: No space left on device. Nothing is left of it"
        assert raised.split(" ", 1)[0] == (
            "PoolFullError" if how == "full" else "KeyboardInterrupt"
        )
        assert raised.endswith(told if how == "full" else "KeyboardInterrupt ")
        assert 1 <= int(tried) <= 10  # those that zarr had begun already
        assert [found.name for found in tmp_path.iterdir()] == ["x.zarr"]
