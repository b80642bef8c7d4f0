"""What a store must be able to do to be measured: Engram and each peer behind the same methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    Values = np.ndarray[Any, np.dtype[np.float64]]


class Peer(Protocol):
    """A store in a folder of its own, open; `replaces` if a put can take an array's place."""

    name: str
    replaces: bool

    def __init__(self, folder: Path) -> None:
        """Open an empty store in `folder`."""

    def reset(self) -> None:
        """Throw everything away and begin again, empty; not part of any time."""

    def put(self, name: str, values: Values) -> None:
        """Create a large array, contiguous, not compressed."""

    def total(self, name: str) -> float:
        """Find a large array by its name and add up its values."""

    def create(self, name: str, values: Values) -> None:
        """Create a small array, on its own."""

    def create_many(self, names: Sequence[str], values: Values) -> None:
        """Create many small arrays, in one transaction if the store has such."""

    def read(self, name: str) -> Values:
        """Find a small array by its name and copy it out."""

    def close(self) -> None:
        """Close the store."""
