"""The classes of dataClay's objects; its backend imports this module, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataclay import DataClayObject, activemethod

from bench.active import kernels

if TYPE_CHECKING:
    import numpy as np


def plain(argument: Any) -> Any:
    """Return a block's values; what is no block stays as it is."""
    return argument.data if isinstance(argument, Block) else argument


class Block(DataClayObject):  # type: ignore[misc]
    """An array, and whatever kernels do to it."""

    data: np.ndarray[Any, Any]

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.data = data

    @activemethod  # type: ignore[untyped-decorator]
    def ask(self, method: str, others: tuple[Any, ...]) -> Any:
        """Return what a kernel returns."""
        return kernels.run(method, self.data, *map(plain, others))

    @activemethod  # type: ignore[untyped-decorator]
    def keep(self, method: str, others: tuple[Any, ...]) -> Block:
        """Store what a kernel returns."""
        return Block(self.ask(method, others))

    @activemethod  # type: ignore[untyped-decorator]
    def change(self, method: str, others: tuple[Any, ...]) -> None:
        """Let a kernel change the array."""
        kernels.run(method, *map(plain, others), out=self.data)

    @activemethod  # type: ignore[untyped-decorator]
    def spent(self) -> float:
        """Tell how long kernels took in the backend."""
        return kernels.spent()


class Tally(DataClayObject):  # type: ignore[misc]
    """A counter, and an object that does nothing."""

    value: int

    def __init__(self) -> None:
        self.value = 0

    @activemethod  # type: ignore[untyped-decorator]
    def increment(self) -> None:
        """Add one."""
        self.value += 1

    @activemethod  # type: ignore[untyped-decorator]
    def nothing(self) -> None:
        """Do nothing."""
