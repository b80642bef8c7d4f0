"""Classes of active objects whose methods tests hand to workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np  # noqa: TC002 - annotations are looked up

import engram


class NoPickleError(Exception):
    """An exception that does not pickle."""

    def __reduce__(self) -> Any:
        raise TypeError("never")


class TwoWordsError(Exception):
    """An exception that pickles, and cannot be made again of its pickle by being called."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)
        self.second = second


class NoWayBack:
    """What pickles in a worker, and cannot be unpickled anywhere."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


class Job(engram.ActiveObject):
    """What a worker can be asked to do."""

    data: np.ndarray
    n: int = 0
    other: Job | None = None

    @engram.activemethod
    def nothing(self) -> None:
        pass

    @engram.activemethod
    def pid(self) -> int:
        return os.getpid()

    @engram.activemethod
    def echo(self, value: Any, *more: Any, **named: Any) -> Any:
        return (value, more, named) if more or named else value

    @engram.activemethod
    def total(self) -> float:
        return float(self.data.sum())

    @engram.activemethod
    def add(self, n: int = 1) -> int:
        self.n += n
        return self.n

    @engram.activemethod
    def fill(self, value: float, array: np.ndarray | None = None) -> None:
        self.data[...] = value if array is None else array

    @engram.activemethod
    def put(self, value: float, out: np.ndarray | None = None) -> None:
        (self.data if out is None else out)[...] = value

    @engram.activemethod
    def n_of(self, other: Job) -> int:
        return other.n

    @engram.activemethod
    def add_and_raise(self, error: str) -> None:
        self.n += 1
        if error == "value":
            raise ValueError(error)
        if error == "no pickle":
            raise NoPickleError(error)
        raise TwoWordsError("two", " words")

    @engram.activemethod
    def add_and_give(self, what: str) -> Any:
        self.n += 1
        return (lambda: 0) if what == "a function" else NoWayBack()

    @engram.activemethod
    def add_and_die(self, number: int) -> None:
        self.n += 1
        if number:
            os.kill(os.getpid(), number)
            signal.pause()
        os._exit(3)

    @engram.activemethod
    def hold(self, fifo: str) -> str:
        return Path(fifo).read_text(encoding="utf-8")

    @engram.activemethod
    def hold_for(self, seconds: float) -> None:
        time.sleep(seconds)

    @engram.activemethod
    def say(self, fifo: str, word: str) -> None:
        Path(fifo).write_text(word, encoding="utf-8")

    @engram.activemethod
    def make(self, alias: str) -> Job:
        made = Job(data=self.data, n=7)
        made.make_persistent(alias)
        return made

    @engram.activemethod
    def n_seen_here_and_by(self, executor: Any, reader: Job) -> tuple[int, int]:
        self.n += 1
        return self.n, executor.submit(reader.n_of, self).result()
