"""Pools that copy at the pace of persistent memory, for evaluation."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
import shell

if TYPE_CHECKING:
    from pathlib import Path

NBYTES = 64 << 20
WRITTEN = NBYTES / 8e9
READ = NBYTES / 30e9


@pytest.fixture
def emulating(home: Path) -> engram.Pool:
    return engram.create(home / "emulating", size="256 MiB", emulate="pmem")


def seconds_of(work: object) -> float:
    start = time.monotonic()
    assert callable(work)
    work()
    return time.monotonic() - start


def test_copying_takes_at_least_as_long_as_on_the_device_and_is_labelled(
    emulating: engram.Pool,
) -> None:
    values = np.arange(NBYTES // 8, dtype="f8")
    with emulating as pool:
        assert pool.emulated == "pmem"
        assert "emulated persistent memory" in repr(pool)
        shortest = min(seconds_of(lambda: pool.update({"a": values})) for _ in range(5))
        assert shortest >= WRITTEN
        assert min(seconds_of(lambda: pool["a"][...]) for _ in range(5)) >= READ
        assert np.array_equal(pool["a"].view(), values)
        path = pool.path
    assert '"emulated": "pmem"' in shell.run("info", path, "--json").out
    with engram.open(path) as pool:
        assert pool.emulated == "pmem"
    engram.destroy(path)


def test_a_copy_of_it_is_a_pool_like_others(emulating: engram.Pool, home: Path) -> None:
    with emulating as pool:
        pool["a"] = np.arange(10)
        pool.backup(home / "copy")
    with engram.open(home / "copy") as copy:
        assert copy.emulated is None
        assert "emulated" not in repr(copy)


def test_what_cannot_be_emulated_is_refused(home: Path) -> None:
    with pytest.raises(engram.ArgumentError, match="emulate='cxl' is unknown"):
        engram.create(home / "other", emulate="cxl")
    assert not (home / "other").exists()
