"""The classes of Engram's objects; its workers import this module, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import engram
from bench.active import kernels

if TYPE_CHECKING:
    import numpy as np


def plain(argument: Any) -> Any:
    """Return a block's values; what is no block stays as it is."""
    return argument.data if isinstance(argument, Block) else argument


class Block(engram.ActiveObject):
    """An array, and whatever kernels do to it."""

    data: np.ndarray[Any, Any]

    @engram.activemethod
    def ask(self, method: str, others: tuple[Any, ...]) -> Any:
        """Return what a kernel returns."""
        return kernels.run(method, self.data, *map(plain, others))

    @engram.activemethod
    def keep(self, method: str, others: tuple[Any, ...]) -> Block:
        """Store what a kernel returns."""
        made = Block(data=kernels.run(method, self.data, *map(plain, others)))
        made.make_persistent()
        return made

    @engram.activemethod
    def change(self, method: str, others: tuple[Any, ...]) -> None:
        """Let a kernel change the array, where it lies."""
        kernels.run(method, *map(plain, others), out=self.data)

    @engram.activemethod
    def spent(self) -> float:
        """Tell how long kernels took in the process that runs this."""
        return kernels.spent()


class Copied(Block):
    """The same, with methods that copy arrays to private memory first."""

    @engram.activemethod(pre_copy=True)
    def ask(self, method: str, others: tuple[Any, ...]) -> Any:
        """Return what a kernel returns."""
        return kernels.run(method, self.data, *map(plain, others))

    @engram.activemethod(pre_copy=True)
    def keep(self, method: str, others: tuple[Any, ...]) -> Block:
        """Store what a kernel returns."""
        made = Copied(data=kernels.run(method, self.data, *map(plain, others)))
        made.make_persistent()
        return made

    @engram.activemethod(pre_copy=True)
    def change(self, method: str, others: tuple[Any, ...]) -> None:
        """Let a kernel change a copy of the array, and store that."""
        values = self.data
        kernels.run(method, *map(plain, others), out=values)
        self.data = values


class Tally(engram.ActiveObject):
    """A counter, and an object that does nothing."""

    value: int = 0

    @engram.activemethod
    def increment(self) -> None:
        """Add one."""
        self.value += 1

    @engram.activemethod
    def nothing(self) -> None:
        """Do nothing."""
