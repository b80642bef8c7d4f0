"""Zarr: a group as a store, beside zarr's own stores in a folder of tmpfs and in memory."""

from __future__ import annotations

import multiprocessing
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.storage import LocalStore, MemoryStore

import engram
from bench.harness import Bound, Contestant, Line, measure, timed
from engram.zarr import Store, view

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from bench.setting import Setting

CHUNKS = 10_000
CHUNK_BYTES = 64 << 10
FOLDER = Bound("engram", "LocalStore", "speed", 1.5)
MEMORY = Bound("engram", "MemoryStore", "speed", 0.7)


def lines(setting: Setting) -> Iterator[Line]:
    """Write and read many chunks, by one process and by two; show an array as Zarr's."""
    count = setting.scaled(CHUNKS)
    place = setting.folder / "store"
    with engram.create(place, size=3 * count * CHUNK_BYTES + (256 << 20)) as pool:
        stores = {
            "engram": Store(pool.create_group("zarr")),
            "LocalStore": LocalStore(setting.folder / "local.zarr"),
            "MemoryStore": MemoryStore(),
        }
        arrays = {name: made(store, count) for name, store in stores.items()}
        yield from by_one(setting, arrays, count)
        del arrays["MemoryStore"], stores["MemoryStore"]
        yield from by_two(setting, arrays, count)
        yield from shown(setting, pool)
    engram.destroy(place)


def made(store: Any, count: int) -> zarr.Array[Any]:
    """Make an array of as many chunks."""
    shape, chunks = (count, CHUNK_BYTES), (1, CHUNK_BYTES)
    return zarr.create_array(
        store, name="T", shape=shape, chunks=chunks, dtype="u1", compressors=None
    )


def values(first: int, last: int) -> np.ndarray[Any, Any]:
    """Return some chunks, of which none is like another, nor zeros."""
    rows = np.arange(first, last, dtype="u4").reshape(-1, 1) + 1
    return np.repeat(rows, CHUNK_BYTES // 4, axis=1).view("u1")


def write(array: zarr.Array[Any], first: int, given: np.ndarray[Any, Any]) -> None:
    """Write some chunks."""
    array[first : first + len(given)] = given


def by_one(setting: Setting, arrays: dict[str, zarr.Array[Any]], count: int) -> Iterator[Line]:
    """Write and read all chunks in this process."""
    given = values(0, count)
    contestants = [
        Contestant(name, partial(timed, partial(write, array, 0, given), count))
        for name, array in arrays.items()
    ]
    title = f"zarr writes {count:,} chunks of 64 KiB, each"
    yield measure(Line(title, "us", [FOLDER, MEMORY]), contestants, setting.rounds)
    contestants = [
        Contestant(name, partial(timed, partial(array.__getitem__, ...), count))
        for name, array in arrays.items()
    ]
    title = f"zarr reads {count:,} chunks of 64 KiB, each"
    yield measure(Line(title, "us", [FOLDER, MEMORY]), contestants, setting.rounds)
    assert np.array_equal(arrays["engram"][-1], given[-1])  # noqa: S101 - what was measured is true


def by_two(setting: Setting, arrays: dict[str, zarr.Array[Any]], count: int) -> Iterator[Line]:
    """Write and read halves of the chunks in two processes at once."""
    with ExitStack() as stack:
        pairs = {name: stack.enter_context(pair(array, count)) for name, array in arrays.items()}
        for what in ("writes", "reads"):
            title = f"two processes: zarr {what} {count:,} chunks of 64 KiB, each"
            contestants = [
                Contestant(name, partial(timed, partial(do, both, what), count))
                for name, both in pairs.items()
            ]
            yield measure(Line(title, "us", [FOLDER]), contestants, setting.rounds)


@contextmanager
def pair(array: zarr.Array[Any], count: int) -> Iterator[list[Connection[Any, Any]]]:
    """Give the ends of pipes to two processes, which work on a half of an array each."""
    context = multiprocessing.get_context("spawn")
    both, processes = [], []
    for first, last in ((0, count // 2), (count // 2, count)):
        ours, theirs = context.Pipe()
        process = context.Process(target=half, args=(array, first, last, theirs))
        process.start()
        both.append(ours)
        processes.append(process)
    for end in both:
        end.recv()
    yield both
    for end in both:
        end.send("")
    for process in processes:
        process.join()


def do(both: list[Connection[Any, Any]], what: str) -> None:
    """Have two processes do something, and wait for both."""
    for end in both:
        end.send(what)
    for end in both:
        end.recv()


def half(array: zarr.Array[Any], first: int, last: int, end: Connection[Any, Any]) -> None:
    """Do what is asked for on a half of an array."""
    given = values(first, last)
    end.send(None)
    while what := end.recv():
        if what == "writes":
            write(array, first, given)
        else:
            array[first:last]
        end.send(None)


def shown(setting: Setting, pool: engram.Pool) -> Iterator[Line]:
    """Read what lies in a pool through a view, and from a folder of the same chunks."""
    given = np.random.default_rng(1).random((16, 512, 1024))  # 64 MiB
    pool["T"] = given
    way = zarr.open_group(view(pool, chunk_bytes="4 MiB"), mode="r")["T"]
    folder = setting.folder / "plain.zarr"
    plain = zarr.create_array(folder, data=given, chunks=(1, 512, 1024), compressors=None)
    line = Line("zarr reads 64 MiB that lie in a pool", "ms", [Bound("engram", "folder", "show")])
    contestants = [
        Contestant("engram", lambda: timed(lambda: way[...])),
        Contestant("folder", lambda: timed(lambda: plain[...])),
        Contestant("numpy.copy", lambda: timed(given.copy)),
    ]
    yield measure(line, contestants, setting.rounds)
