"""What tasks do in tests of Dask: functions that workers import, too."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import engram
import engram.dask
from engram.dask.reference import home_of

Value = NDArray[Any]


def view(path: str, name: str, key: Any = ...) -> Value:
    """Give a part of an array of a pool, on the pool's memory."""
    with engram.open(path, "r") as pool:
        found: Value = pool[name].view()[key]
        return found


def home(value: Any) -> str | None:
    """Give the namespace on whose memory an array lies."""
    found = home_of(value)
    return None if found is None else found.namespace


def total(value: Any) -> float:
    """Add up an array."""
    return float(np.asarray(value).sum())


def told(value: Any) -> tuple[Any, ...]:
    """Tell all of an array that an observer could see."""
    return type(value), value.dtype, value.shape, value.flags.writeable, value.tolist()


def ones(count: int, order: Any = "C") -> Value:
    """Make an array on this process's own memory."""
    return np.ones((count, 2), order=order)


def made(count: int) -> Value:
    """Make an array in the pool of results."""
    found = engram.dask.empty((count, 2))
    found[...] = 1
    return found[::-1]


def slow(block: Value, folder: str) -> Value:
    """Say that a block is at work, and take long."""
    (Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(600)
    return block


def slow_at_first(value: Value, folder: str) -> Value:
    """Be killed at the first try; give the value at the next."""
    mark = Path(folder) / "tried"
    if not mark.exists():
        mark.write_text(str(os.getpid()))
        time.sleep(600)
    return value


def dies_at_first(block: Value, folder: str) -> Value:
    """Kill the worker that computes the first block."""
    mark = Path(folder) / "died"
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return block
    os.kill(os.getpid(), signal.SIGKILL)
    return block


def broken(block: Value) -> Value:  # noqa: ARG001 - what each block is given to
    """Fail."""
    raise RuntimeError("this block fails")


def names_at(block: Value, path: str) -> Value:
    """Check that nothing of a name is there while it is written."""
    with engram.open(path, "r") as pool:
        assert "T" not in pool
        assert not [found.path for found in pool.query('@name = "T"')]
    return block


def sent(dask_worker: Any) -> list[int]:
    """Give how many bytes each answer to another worker has had."""
    return [one["compressed"] for one in dask_worker.transfer_outgoing_log if one["who"]]


def failures(dask_worker: Any) -> int:
    """Give how many answers of others this worker could not read."""
    return sum(one[0] == "gather-dep-failed" for one in dask_worker.state.log)


def pid() -> int:
    """Give the process that runs this."""
    return os.getpid()


def held(dask_worker: Any) -> list[str | None]:
    """Give on what memory the arrays lie that a worker holds."""
    return [home(one) for one in dask_worker.data.values() if isinstance(one, np.ndarray)]


def lose_next(path: str, name: str, dask_worker: Any) -> None:
    """Have an object deleted just before this worker looks for it by a reference."""
    family: Any = sys.modules["engram.dask.family"]

    del dask_worker
    original = family.resolve

    def deleted(reference: Any) -> Value:
        family.resolve = original
        with engram.open(path, "r+") as pool:
            del pool[name]
        found: Value = original(reference)
        return found

    family.resolve = deleted


def hide(dask_worker: Any) -> None:
    """Have this worker's process open no pool, as on another node."""
    from engram.dask.reference import Home  # noqa: PLC0415 - of the worker's process

    del dask_worker

    def absent(home: Any) -> None:
        raise engram.PoolNotFoundError(f"{home.path} is on another node")

    Home.seen = Home.open  # type: ignore[attr-defined]
    Home.open = absent  # type: ignore[assignment,method-assign]


def show(dask_worker: Any) -> None:
    """Take `hide` back."""
    from engram.dask.reference import Home  # noqa: PLC0415 - of the worker's process

    del dask_worker
    Home.open = Home.seen  # type: ignore[attr-defined,method-assign]
