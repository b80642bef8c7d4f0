"""A snapshot is one commit: for look-ups, queries, listings, attributes and values."""

import multiprocessing
import pickle
import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import engram

LARGE = 100_000

PAIRS = """
import sys, numpy as np, engram
with engram.open(sys.argv[1]) as pool:
    print("open", flush=True)
    for n in range(int(sys.argv[2])):
        with pool.batch():
            pool["left"] = np.full(10, n)
            pool["right"] = np.full(30_000, n)
            pool.attrs["n"] = n
            for name in list(pool["members"]):
                del pool["members"][name]
            for k in range(n % 5):
                pool["members"].create_array(f"m{k}", data=np.full(3, n), attrs={"n": n})
"""


def fill(pool: engram.Pool) -> None:
    """Put some things."""
    pool.create_array("large", data=np.arange(LARGE), attrs={"v": 1})
    pool.create_array("gone", data=np.arange(LARGE) + 1, attrs={"v": 2})
    pool.create_array("run/small", data=np.arange(3), attrs={"v": 3})
    pool["text"] = np.array(["a", "bc"], np.dtypes.StringDType())
    pool["blob"] = b"bytes"
    pool.attrs["v"] = 0


def seen(group: engram.Group) -> list[object]:
    """Tell all that is there, by every way of looking."""
    found = group.query("v > 0", order_by="v")
    told: list[object] = [list(group), dict(group.attrs), found.paths(), found.oids().tolist()]
    told += [found.count(), found.attribute_keys(), "gone" in group, len(group)]

    def visit(path: str, member: Any) -> None:
        told.append((path, repr(member)))
        if isinstance(member, engram.Blob):
            told.append(member[...])
        if isinstance(member, engram.Array):
            told.append(member[...].tolist())
        told.append(dict(member.attrs))

    group.visititems(visit)
    return told


def change(pool: engram.Pool) -> None:
    """Change all of it."""
    pool["large"] = np.zeros(LARGE, int)
    del pool["gone"]
    pool.move("run", "walk")
    pool["walk/small"].attrs["v"] = 9
    pool["text"] = np.array(["other"], np.dtypes.StringDType())
    pool["blob"] = b"other"
    pool.attrs["v"] = 5
    pool["new"] = np.zeros(LARGE)
    del pool["new"]
    pool["newer"] = np.ones(LARGE)


def test_it_shows_one_commit(pool: engram.Pool) -> None:
    fill(pool)
    before = seen(pool)
    with pool.snapshot() as then:
        assert isinstance(then, engram.Snapshot)
        change(pool)
        assert seen(then) == before
        assert seen(pool) != before
        view, array = then["gone"].view(), then["large"]
        assert array == then["large"]
    np.testing.assert_array_equal(view, np.arange(LARGE) + 1)
    for look in (lambda: then["large"], lambda: array[...], lambda: list(then), then.attrs.keys):
        with pytest.raises(engram.ArgumentError, match="this snapshot has ended"):
            list(look())
    assert not then
    assert not array
    assert repr(then) == "<engram.Snapshot of 'default' (ended)>"
    then.close()
    assert pool["blob"][...] == b"other"


def test_nothing_is_written_through_it(pool: engram.Pool) -> None:
    fill(pool)
    with pool.snapshot() as then:
        array = then["large"]
        writes = [
            lambda: then.__setitem__("x", 1),
            lambda: then.__delitem__("large"),
            lambda: then.create_group("g"),
            lambda: array.__setitem__(0, 1),
            lambda: array.view("r+"),
            array.flush,
            lambda: array.attrs.__setitem__("k", 1),
            lambda: then.batch().__enter__(),
            lambda: then.scratch(3),
            lambda: array.lock("w").__enter__(),
        ]
        for write in writes:
            with pytest.raises(engram.ReadOnlyError):
                write()
        for move in (then.share, then.unshare, then.publish, then.unpublish):
            with pytest.raises(engram.ReadOnlyError, match=r"of a snapshot of .default"):
                move("large")
        with pytest.raises(engram.ArgumentError, match="of a snapshot already"):
            then.snapshot()
        for thing in (then, array, then["run"]):
            with pytest.raises(engram.ArgumentError, match="cannot be pickled"):
                pickle.dumps(thing)


def test_a_batch_does_not_show_in_it(pool: engram.Pool) -> None:
    pool["a"] = 1
    with pool.snapshot() as then, pool.batch():
        pool["a"] = 2
        assert (then["a"][()], pool["a"][()]) == (1, 2)
        with pytest.raises(engram.BusyError, match="outside of the batch"):
            pool.snapshot()


def test_threads_share_it(pool: engram.Pool) -> None:
    fill(pool)
    before = seen(pool)
    wrong: list[str] = []
    with pool.snapshot() as then:

        def look() -> None:
            wrong.extend("differs" for _ in range(20) if seen(then) != before)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for n in range(50):
            pool["large"] = np.full(10, n)
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_forked_child_is_told(pool: engram.Pool) -> None:
    fill(pool)
    ours, theirs = multiprocessing.Pipe()

    def child() -> None:
        try:
            then["large"]
        except engram.BusyError as error:
            with pool.snapshot() as own:
                theirs.send((str(error), own["large"][3]))

    with pool.snapshot() as then:
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        message, value = ours.recv()
        process.join()
        assert "forked" in message
        assert (value, then["large"][3]) == (3, 3)


def test_it_is_given_up_with_a_warning_first(pool: engram.Pool) -> None:
    fill(pool)
    with warnings.catch_warnings(record=True) as caught, pool.snapshot(max_growth="8 MiB") as then:
        warnings.simplefilter("always")
        while then:
            pool["hot"] = np.zeros(50)
        with pytest.raises(engram.BusyError, match=r"was given up: it kept \d+ bytes.*max_growth"):
            then["large"]
        pool["hot"] = np.zeros(50)
    told = [str(w.message) for w in caught if w.category is engram.EngramWarning]
    assert "is given up at 8388608" in told[0]
    assert "was given up" in told[1]
    assert len(told) == 2


def test_pairs_are_never_mixed(pool: engram.Pool) -> None:
    pool.create_group("members")
    command = [sys.executable, "-c", PAIRS, pool.path, "150"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        values = set()
        while writer.poll() is None:
            with pool.snapshot() as then:
                if "left" not in then:
                    continue
                n = int(then.attrs["n"])
                values.add(n)
                assert set(then["left"][...].tolist()) == {n}
                assert set(then["right"][...].tolist()) == {n}
                assert list(then["members"]) == [f"m{k}" for k in range(n % 5)]
                assert then.query(f"n = {n}").count() == n % 5
                assert then.query("exists(n)").count() == n % 5
        assert writer.returncode == 0
    assert len(values) > 1
