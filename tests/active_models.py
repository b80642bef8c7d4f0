"""Classes of active objects that several tests, and the processes that they start, work with."""

from __future__ import annotations

import os
import signal

import numpy as np  # noqa: TC002 - annotations are looked up

import engram


class Block(engram.ActiveObject):
    """An array with a name, tags, and another block."""

    data: np.ndarray
    label: str = ""
    tags: list[str] = []
    next: Block | None = None

    @engram.activemethod
    def mean(self) -> float:
        return float(self.data.mean())

    @engram.activemethod
    def scale(self, factor: float) -> None:
        self.data *= factor

    @engram.activemethod
    def fill(self, value: float) -> None:
        self.data[...] = value

    @engram.activemethod
    def add_tag(self, tag: str) -> int:
        self.tags.append(tag)
        return len(self.tags)

    @engram.activemethod
    def rename_and_fail(self, label: str) -> None:
        self.label = label
        self.tags.append(label)
        self.data[0] = -1
        raise RuntimeError(label)

    @engram.activemethod
    def rename_in_spite(self, label: str) -> list[str]:
        self.tags.append("mine")
        try:
            self.rename_and_fail(label)
        except RuntimeError:
            return list(self.tags)
        raise AssertionError

    @engram.activemethod
    def nothing(self) -> None:
        pass


class Account(engram.ActiveObject):
    """Two numbers whose sum stays."""

    left: int = 1000
    right: int = 0
    moves: list[int] = []

    @engram.activemethod
    def transfer(self, amount: int) -> None:
        self.left -= amount
        self.moves.append(amount)
        self.right += amount

    @engram.activemethod
    def transfer_and_die(self, amount: int) -> None:
        self.left -= amount
        os.kill(os.getpid(), signal.SIGKILL)
        self.right += amount


class Tally(engram.ActiveObject):
    """A counter."""

    n: int = 0

    @engram.activemethod
    def increment(self) -> int:
        self.n += 1
        return self.n

    @engram.activemethod(locks=False)
    def increment_after(self, meanwhile: object) -> None:
        before = self.n
        meanwhile()  # type: ignore[operator]
        self.n = before + 1
