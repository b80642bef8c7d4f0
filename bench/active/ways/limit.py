"""The limit: private arrays of this process and nothing else; what no store can be faster than."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.active import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.active.kernels import Values


class Tally:
    """A counter, and an object that does nothing."""

    def __init__(self) -> None:
        self.value = 0

    def increment(self) -> None:
        """Add one."""
        self.value += 1

    def nothing(self) -> None:
        """Do nothing."""


class Limit:
    """A handle is the array, which nobody else may change."""

    name = "limit"

    def __init__(self, folder: Path) -> None:
        del folder

    def put(self, values: Values) -> Values:
        return values

    def put_many(self, many: Sequence[Values]) -> list[Values]:
        return [self.put(values) for values in many]

    def get(self, handle: Values) -> Values:
        return handle

    def ask(self, method: str, own: Values, *others: Any) -> Any:
        return kernels.run(method, own, *others)

    def keep(self, method: str, own: Values, *others: Any) -> Values:
        kept: Values = kernels.run(method, own, *others)
        return kept

    def change(self, method: str, own: Values, *others: Any) -> None:
        kernels.run(method, *others, out=own)

    def drop(self, handles: Sequence[Values]) -> None:
        """Nothing: who made them lets go of them."""

    def spent(self) -> float:
        return kernels.spent()

    def counter(self) -> Callable[[], object]:
        return Tally().increment

    def make_small(self, count: int) -> None:
        self.made = [Tally() for _ in range(count)]

    def nothing(self) -> Callable[[], object]:
        return Tally().nothing

    def close(self) -> None:
        """Nothing is open."""
