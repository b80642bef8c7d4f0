"""Arrays of a pool as Dask's, and Dask's arrays written to a pool: whole, by many processes."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("dask.array")

import dask
import dask.array as da
import dask.multiprocessing

import dask_work
import engram
import engram.dask
from engram.dask import janitor, staging
from support import DTYPES, PATIENCE, TEXT, assert_exactly, filled, in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHAPE = (120, 50)
BLOCKS = (30, 20)
SCHEDULERS = ["sync", "threads", "processes"]
LAYOUTS: list[dict[str, Any]] = [{}, {"chunks": (30, 10), "codec": "lz4"}, {"chunks": (7, 9)}]


@pytest.fixture(scope="module", autouse=True)
def _processes() -> Iterator[None]:
    """Have dask use the same processes for all tests: each takes a second to begin."""
    with (
        ProcessPoolExecutor(2, get_context("spawn")) as pool,
        mock.patch.dict(
            dask.base.named_schedulers,
            processes=partial(dask.multiprocessing.get, pool=pool),
        ),
    ):
        yield


def values() -> np.ndarray[Any, Any]:
    return np.arange(6000.0).reshape(SHAPE)


def to_pool(*given: Any, **said: Any) -> Any:
    """Write, as `engram.dask.to_pool` does: what it gives is of either kind."""
    return engram.dask.to_pool(*given, **said)


def left(pool: engram.Namespace) -> list[str]:
    """Give what a write has left in a pool."""
    gc.collect()
    janitor.settle()
    return [name for name in pool if name.startswith(staging.PREFIX)]


def block_of(x: Any, scheduler: str = "sync") -> Any:
    """Compute the first block, and give it as its task has."""
    kept = x.blocks[(0,) * x.ndim].persist(scheduler=scheduler)
    (found,) = kept.dask.values()
    return getattr(found, "value", found)


def test_a_block_is_a_view(pool: engram.Pool) -> None:
    pool["T"] = values()
    found = block_of(engram.dask.from_pool(pool["T"], chunks=BLOCKS))
    assert np.shares_memory(found, pool["T"].view())
    assert not found.flags.writeable
    assert_exactly(found, values()[:30, :20])
    pool["one"] = np.zeros(5000)
    whole = block_of(engram.dask.from_pool(pool["one"])[10:4000:3])
    assert np.shares_memory(whole, pool["one"].view())


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_written_is_read(pool: engram.Pool, layout: Any, scheduler: str) -> None:
    x = da.from_array(values(), chunks=BLOCKS) + 1
    attrs = {"units": "K", "levels": [1, 2]}
    written = to_pool(x, pool, "new/T", dims=("y", "x"), attrs=attrs, scheduler=scheduler, **layout)
    assert written == pool["new/T"]
    assert_exactly(written[...], values() + 1)
    assert written.dims == ("y", "x")
    assert written.attrs["units"] == "K"
    assert written.attrs["levels"].tolist() == [1, 2]
    assert written.chunks == layout.get("chunks")
    again = engram.dask.from_pool(pool["new/T"])
    assert_exactly(again.compute(scheduler=scheduler), values() + 1)
    assert_exactly(again[3:90:7, ::-1].compute(scheduler=scheduler), values()[3:90:7, ::-1] + 1)
    assert float(again.sum().compute(scheduler=scheduler)) == float((values() + 1).sum())
    assert left(pool) == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_written_and_read(pool: engram.Pool, dtype: np.dtype[Any]) -> None:
    given = filled(dtype, (7, 3))
    x = da.from_array(given, chunks=(2, 2), asarray=False)
    assert_exactly(to_pool(x, pool, "T", scheduler="sync")[...], given)
    found = engram.dask.from_pool(pool["T"], chunks=(3, 3))
    assert_exactly(found.compute(scheduler="sync"), given)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1,)])
def test_the_smallest_shapes_are_written_and_read(pool: engram.Pool, shape: Any) -> None:
    given = np.full(shape, 3.0)
    found = to_pool(da.from_array(given), pool, "T", scheduler="sync")
    assert_exactly(found[...], given)
    assert_exactly(np.asarray(engram.dask.from_pool(pool["T"]).compute()), given)


def test_blocks_are_of_whole_chunks(pool: engram.Pool) -> None:
    pool.create_array("T", data=np.zeros((1000, 1000)), chunks=(100, 30), codec="lz4")
    with dask.config.set({"array.chunk-size": "64 KiB"}):
        found = engram.dask.from_pool(pool["T"])
    assert found.npartitions > 1
    assert all(end % 100 == 0 for end in np.cumsum(found.chunks[0])[:-1])
    assert all(end % 30 == 0 for end in np.cumsum(found.chunks[1])[:-1])
    own = engram.dask.from_pool(pool["T"], chunks=True)
    assert (own.chunks[0][0], own.chunks[1][0]) == (100, 30)
    with pytest.warns(engram.EngramWarning, match="split the array's chunks of 100"):
        engram.dask.from_pool(pool["T"], chunks=(50, 30))


def test_a_path_leads_to_an_array_and_to_a_group(pool: engram.Pool) -> None:
    pool.create_namespace("more")["g/T"] = values()
    found = engram.dask.from_pool(f"{pool.path}/g/T", chunks=BLOCKS, namespace="more")
    to_pool(found * 2, pool.path, "U", scheduler="threads")
    assert_exactly(pool["U"][...], values() * 2)
    to_pool(found, f"{pool.path}/g", "U", namespace="more", scheduler="threads")
    assert_exactly(pool.namespaces["more"]["g/U"][...], values())
    with pytest.raises(engram.ArgumentError, match="goes with a path"):
        engram.dask.from_pool(pool["U"], namespace="more")
    with pytest.raises(engram.ArgumentError, match="goes with a path"):
        to_pool(found, pool, "V", namespace="more")


def test_names_are_of_what_cannot_change(pool: engram.Pool) -> None:
    pool["T"] = values()
    assert engram.dask.from_pool(pool["T"]).name != engram.dask.from_pool(pool["T"]).name
    pool.publish("T", closed=True)
    known = engram.dask.from_pool(pool["T"], chunks=BLOCKS).name
    assert engram.dask.from_pool(pool["T"], chunks=BLOCKS).name == known
    assert engram.dask.from_pool(pool["T"], chunks=(60, 50)).name != known
    assert engram.dask.from_pool(pool["T"], name="mine").name == "mine"


def test_texts_are_read(pool: engram.Pool) -> None:
    pool["names"] = np.array(["a", "longer", "Ø"] * 4, TEXT)
    for scheduler in ("sync", "processes"):
        found = engram.dask.from_pool(pool["names"], chunks=5).compute(scheduler=scheduler)
        assert found.tolist() == ["a", "longer", "Ø"] * 4


def test_an_array_that_has_become_shorter_is_told(pool: engram.Pool) -> None:
    array = pool.create_array("a", data=np.arange(20.0).reshape(10, 2), chunks=(5, 2))
    lazy = engram.dask.from_pool(array, chunks=(5, 2))
    array.resize((20, 2))
    assert lazy.sum().compute(scheduler="sync") == 190
    for shape in ((7, 2), (3, 2), (10, 1)):
        array.resize(shape)
        for part in (lazy, lazy[5:], lazy[-1, 1]):
            with pytest.raises(engram.NotFoundError, match=r"had the shape \(10, 2\), and has"):
                part.compute(scheduler="sync")


def test_a_graph_needs_no_pool_before_it_computes(pool: engram.Pool) -> None:
    pool["T"] = values()
    x = engram.dask.from_pool(pool["T"], chunks=BLOCKS)
    delayed = to_pool(x, pool, "U", compute=False)
    kept = pickle.dumps((x, delayed))
    path = Path(pool.path)
    pool.close()
    aside = path.with_name("aside")
    path.rename(aside)
    again, writing = pickle.loads(kept)
    for lazy in (again, writing):
        with pytest.raises(engram.PoolNotFoundError, match=f"process {os.getpid()} on .* cannot"):
            lazy.compute(scheduler="sync")
    aside.rename(path)
    assert_exactly(again.compute(scheduler="sync"), values())


def test_a_closed_pool_is_told(pool: engram.Pool) -> None:
    pool["T"] = values()
    x = engram.dask.from_pool(pool["T"])
    pool.close()
    with pytest.raises(engram.EngramError, match="closed"):
        x.compute(scheduler="sync")


def test_a_snapshot_is_read_here_and_pickled_nowhere(pool: engram.Pool) -> None:
    pool.create_array("T", data=values(), chunks=BLOCKS)
    with pool.snapshot() as then:
        x = engram.dask.from_pool(then["T"])
        pool["T"][...] = 0
        assert_exactly(x.compute(scheduler="sync"), values())
        with pytest.raises(engram.ArgumentError, match="snapshot"):
            pickle.dumps(x)


def test_nothing_has_the_name_before_all_of_it_is_there(pool: engram.Pool) -> None:
    x = da.from_array(values(), chunks=BLOCKS).map_blocks(
        dask_work.names_at, str(pool.path), meta=np.empty((0, 0))
    )
    to_pool(x, pool, "T", scheduler="threads", attrs={"units": "K"})
    assert_exactly(pool["T"][...], values())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_what_fails_leaves_nothing(pool: engram.Pool, layout: Any, scheduler: str) -> None:
    pool["T"] = np.arange(3)
    used = pool.space.used
    x = da.from_array(values(), chunks=BLOCKS).map_blocks(dask_work.broken, meta=np.empty((0, 0)))
    with pytest.raises(RuntimeError, match="this block fails"):
        to_pool(x, pool, "T", overwrite=True, scheduler=scheduler, **layout)
    assert left(pool) == []
    assert pool["T"][...].tolist() == [0, 1, 2]
    assert pool.space.used == used


KILLED = """
import sys
import dask.array as da, numpy as np
import dask_work, engram, engram.dask
if __name__ == "__main__":
    path, folder, scheduler = sys.argv[1:]
    x = da.ones((400, 1000), chunks=(100, 1000))
    last = x.map_blocks(dask_work.slow, folder, meta=np.empty((0, 0)))
    whole = da.concatenate([x, last])
    engram.dask.to_pool(whole, path, "T", overwrite=True, scheduler=scheduler, num_workers=2)
"""


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_what_is_killed_leaves_nothing(pool: engram.Pool, home: Path, scheduler: str) -> None:
    pool["T"] = np.arange(3)
    used = pool.space.used
    folder, program = home / "begun", home / "killed.py"
    folder.mkdir()
    program.write_text(KILLED)
    child = subprocess.Popen(
        [sys.executable, str(program), str(pool.path), str(folder), scheduler],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        start_new_session=True,
    )
    try:
        wait_for(lambda: len([*folder.iterdir()]) >= 2)
        assert left(pool) != []
        assert pool["T"][...].tolist() == [0, 1, 2]
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    to_pool(da.ones(3), pool, "next", scheduler="sync")
    del pool["next"]
    assert left(pool) == []
    assert pool["T"][...].tolist() == [0, 1, 2]
    assert pool.space.used == used


def wait_for(done: Callable[[], object]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def test_a_delayed_has_its_space_and_gives_it_back(pool: engram.Pool) -> None:
    x = da.from_array(values(), chunks=BLOCKS)
    delayed = to_pool(x, pool, "T", compute=False, attrs={"units": "K"})
    assert "T" not in pool
    assert len(left(pool)) == 1
    to_pool(x, pool, "other", scheduler="sync")  # which sweeps, and leaves it
    assert len(left(pool)) == 1
    del delayed
    assert left(pool) == []
    assert list(pool) == ["other"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_delayed_is_computed(pool: engram.Pool, layout: Any, scheduler: str) -> None:
    x = da.from_array(values(), chunks=BLOCKS)
    attrs = {"units": "K"}
    delayed = to_pool(x, pool, "T", compute=False, attrs=attrs, **layout)
    for _ in range(2):
        found = delayed.compute(scheduler=scheduler)
        assert found == pool["T"]
        assert_exactly(found[...], values())
        assert dict(pool["T"].attrs) == attrs
        assert left(pool) == []


def test_two_delayed_are_computed_together(pool: engram.Pool) -> None:
    x = da.from_array(values(), chunks=BLOCKS)
    both = [to_pool(x * n, pool, f"T{n}", compute=False) for n in (1, 2)]
    dask.compute(*both, scheduler="threads")
    assert_exactly(pool["T2"][...], values() * 2)


def test_an_array_is_replaced_by_what_is_made_of_it(pool: engram.Pool) -> None:
    pool["T"] = values()
    with pytest.raises(engram.ExistsError, match="overwrite=True"):
        to_pool(engram.dask.from_pool(pool["T"]), pool, "T")
    old = pool["T"]
    x = engram.dask.from_pool(old, chunks=BLOCKS)
    to_pool(x[::-1] + 1, pool, "T", overwrite=True, scheduler="threads")
    assert_exactly(pool["T"][...], values()[::-1] + 1)
    with pytest.raises(engram.NotFoundError):
        old[...]


def test_a_name_that_is_taken_meanwhile_is_refused(pool: engram.Pool) -> None:
    x = da.from_array(values(), chunks=BLOCKS)
    delayed = to_pool(x, pool, "T", compute=False)
    replacing = to_pool(x, pool, "U", compute=False, overwrite=True)
    pool["T"] = np.arange(3)
    pool["U"] = np.arange(3)
    with pytest.raises(engram.ExistsError):
        delayed.compute(scheduler="sync")
    assert pool["T"][...].tolist() == [0, 1, 2]
    replacing.compute(scheduler="sync")
    assert_exactly(pool["U"][...], values())
    del delayed
    assert left(pool) == []


def test_a_group_that_goes_meanwhile_is_told(pool: engram.Pool) -> None:
    x = da.from_array(values(), chunks=BLOCKS)
    delayed = to_pool(x, pool.create_group("g"), "T", compute=False)
    del pool["g"]
    with pytest.raises(engram.NotFoundError):
        delayed.compute(scheduler="sync")
    del delayed
    assert left(pool) == []
    assert list(pool) == []


def test_a_group_that_is_renamed_meanwhile_gets_it(pool: engram.Pool) -> None:
    x = da.from_array(values(), chunks=BLOCKS)
    delayed = to_pool(x, pool.create_group("g"), "T", compute=False)
    pool.move("g", "h")
    delayed.compute(scheduler="sync")
    assert_exactly(pool["h/T"][...], values())


def test_what_was_being_written_and_is_gone_is_told(pool: engram.Pool) -> None:
    x = da.from_array(values(), chunks=BLOCKS)
    delayed = to_pool(x, pool, "T", compute=False)
    del pool[left(pool)[0]]
    with pytest.raises((engram.NotFoundError, engram.BusyError)):
        delayed.compute(scheduler="sync")
    assert list(pool) == []


def test_a_private_group_gets_private_arrays(pool: engram.Pool) -> None:
    x = da.from_array(values(), chunks=BLOCKS)
    draft = pool.create_group("draft", scope="private")
    assert to_pool(x, draft, "T", scheduler="sync").scope == "private"
    assert to_pool(x, pool, "T", scheduler="sync").scope == "shared"
    assert left(pool) == []


UNFIT: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (np.ones(3), {}, engram.ArgumentError, "no dask array: put it with group"),
    (da.ones(9, chunks=3)[da.ones(9, chunks=3) > 0], {}, engram.ArgumentError, "compute_chunk"),
    (da.ma.masked_equal(da.ones(3), 1), {}, engram.ArgumentError, "fill it first"),
    (da.ones(3).astype(object), {}, engram.ArgumentError, "no fixed size"),
    (da.ones(3).astype(TEXT), {}, engram.ArgumentError, "no fixed size"),
    (da.ones(3), {"dims": ("y", "x")}, engram.ArgumentError, "one name for each"),
    (da.ones(3), {"attrs": {"a": object()}}, engram.ArgumentError, "attribute 'a'"),
    (da.ones(3), {"chunks": (2, 2)}, engram.ArgumentError, "one length"),
    (da.ones(3), {"chunks": 2, "codec": "zip"}, engram.ArgumentError, 'no codec "zip"'),
    (da.ones(3), {"dtype": "nonsense"}, TypeError, "nonsense"),
    (da.ones(3), {"name": ""}, engram.ArgumentError, "is no name"),
    (da.ones(3), {"name": "g"}, engram.ExistsError, "is a group"),
    (da.ones(3), {"name": "g", "overwrite": True}, engram.ExistsError, "is a group"),
    (da.ones(3), {"group": 7}, engram.ArgumentError, "7 is no group"),
    (da.ones(3), {"group": "/nowhere/at/all"}, engram.PoolNotFoundError, "no pool is at"),
    (da.ones((1 << 40,), chunks=1 << 30), {}, engram.PoolFullError, "no room for 8 TiB"),
]


@pytest.mark.parametrize(("x", "said", "kind", "message"), UNFIT, ids=[one[3] for one in UNFIT])
def test_what_cannot_be_is_told_before_anything_is_done(
    pool: engram.Pool, x: Any, said: Any, kind: type[Exception], message: str
) -> None:
    pool.create_group("g")
    before = pool.space.used
    with pytest.raises(kind, match=message):
        to_pool(x, **{"group": pool, "name": "T", **said})
    assert list(pool) == ["g"]
    assert pool.space.used == before


def test_a_pool_that_is_full_is_told_before_anything_is_computed(pool: engram.Pool) -> None:
    pool["ballast"] = np.zeros(200 << 17)
    x = da.ones((100 << 17,), chunks=1 << 20).map_blocks(dask_work.broken, meta=np.empty(0))
    with pytest.raises(engram.PoolFullError, match="no room for 100 MiB"):
        to_pool(x, pool, "T")
    assert list(pool) == ["ballast"]


def test_a_mask_that_dask_does_not_know_of_is_refused(pool: engram.Pool) -> None:
    x = da.ones(6, chunks=3).map_blocks(lambda b: np.ma.masked_equal(b, 1), meta=np.empty(0))
    with pytest.raises(engram.ArgumentError, match="fill it first"):
        to_pool(x, pool, "T", scheduler="sync")
    assert list(pool) == []


@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_a_block_that_is_not_what_was_said_is_refused(pool: engram.Pool, layout: Any) -> None:
    x = da.ones(SHAPE, chunks=BLOCKS, dtype="i8")
    none = np.empty((0, 0), "i8")
    for work in (lambda block: block[:1, :1], lambda block: block + 0.5):
        wrong = x.map_blocks(work, dtype="i8", meta=none)
        with pytest.raises(
            engram.ArgumentError, match=r"a block of x has the shape .* \(30, \d0\)"
        ):
            engram.dask.to_pool(wrong, pool, "x", scheduler="sync", **layout)
    assert not len(pool)


def test_what_is_read_only_is_refused(pool: engram.Pool) -> None:
    kept = pool.create_group("kept", read_only=True)
    with pytest.raises(engram.ReadOnlyError):
        to_pool(da.ones(3), kept, "T")
    with engram.open(pool.path, "r") as reader, pytest.raises(engram.ReadOnlyError):
        to_pool(da.ones(3), reader, "T")
    assert left(pool) == []


def test_a_batch_is_refused(pool: engram.Pool) -> None:
    with pool.batch(), pytest.raises(engram.ArgumentError, match="outside of it"):
        to_pool(da.ones(3), pool, "T")
    assert list(pool) == []


@pytest.mark.parametrize(("library", "said"), [("dask", ""), ("distributed", ".install")])
def test_a_library_that_is_missing_is_named(library: str, said: str) -> None:
    told = in_child(
        "import sys\n"
        f"sys.modules[{library!r}] = None\n"
        "import engram\n"
        "try:\n"
        "    import engram.dask\n"
        "    engram.dask.install(None)\n"
        "except engram.UnsupportedError as error:\n"
        "    print(error)\n"
    )
    assert told.startswith(f"engram.dask{said} needs {library}, which ")
    assert told.endswith("pip install 'engram[dask]'")


def test_a_forked_child_removes_nothing(pool: engram.Pool) -> None:
    delayed = to_pool(da.ones(3), pool, "T", compute=False)
    child = os.fork()
    if child == 0:
        del delayed
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(left(pool)) == 1
    delayed.compute(scheduler="sync")
    assert pool["T"][...].tolist() == [1, 1, 1]


def test_the_end_of_a_program_gives_space_back(pool: engram.Pool) -> None:
    in_child(
        "import sys, dask.array as da, engram.dask\n"
        "kept = engram.dask.to_pool(da.ones(9000), sys.argv[1], 'T', compute=False)\n",
        pool.path,
    )
    assert list(pool) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_are_whole_where_checksums_are_kept(tmp_path: Path, layout: Any) -> None:
    with engram.create(
        tmp_path / "p", size="64 MiB", force=True, durability="system", checksums=True
    ) as made:
        x = da.from_array(values(), chunks=BLOCKS)
        to_pool(x, made, "T", scheduler="threads", **layout)
        assert_exactly(made["T"][...], values())
    assert not engram.verify(tmp_path / "p").problems
