"""A folder that chunks are written to, and that can be told to take no more.

zarr writes several chunks at once, and does not wait for the others when one fails: they would go
on, make anew the folders of an export that is being removed, and cry out when the process ends. So
a chunk that cannot be written fails nothing in zarr. The folder keeps the error, takes no more, and
raises it once zarr has come to its end with that piece; so it is with an interrupt, too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from zarr.storage import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Folder(LocalStore):  # type: ignore[misc] # mypy does not read zarr
    """A store of Zarr's, for writing one array."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._error: Exception | None = None
        self._stopped = False

    async def set(self, key: str, value: Any) -> None:
        """Write a chunk; none any more after one that could not be written."""
        if self._stopped:
            return
        try:
            await super().set(key, value)
        except Exception as error:  # noqa: BLE001 - it is raised by `write`, whatever it is
            self._error = self._error or error
            self._stopped = True

    def write(self, call: Callable[[], None]) -> None:
        """Call what makes zarr write, and return when nothing is under way any more.

        Raises
        ------
        OSError
            A chunk could not be written.

        """
        # In another thread, since an interrupt would leave zarr's call before its chunks are done.
        with ThreadPoolExecutor(1) as thread:
            try:
                thread.submit(call).result()
            except BaseException:
                self._stopped = True
                raise
        if self._error is not None:
            raise self._error
