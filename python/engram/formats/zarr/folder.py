"""A folder that chunks are written to, and that can be told to take no more.

zarr writes several chunks at once, and does not wait for the others when one fails: they would go
on, and make anew the folders of an export that is being removed. So each write is counted while it
is under way, none begins after `stop`, and `stop` returns once the last has ended.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from zarr.storage import LocalStore

if TYPE_CHECKING:
    from pathlib import Path


class Folder(LocalStore):  # type: ignore[misc] # mypy does not read zarr
    """A store of Zarr's, for writing one array."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._changed = threading.Condition()
        self._under_way = 0
        self._stopped = False

    async def set(self, key: str, value: Any) -> None:
        """Write a chunk."""
        with self._changed:
            if self._stopped:
                message = f"{self.root}: another chunk could not be written"
                raise OSError(message)
            self._under_way += 1
        try:
            await super().set(key, value)
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def stop(self) -> None:
        """Let no write begin any more, and wait for those under way."""
        with self._changed:
            self._stopped = True
            self._changed.wait_for(lambda: self._under_way == 0)
