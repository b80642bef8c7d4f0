"""The file that HDF5 writes: a failure of the medium ends the export, not HDF5's library.

HDF5 cannot close a file that it cannot write to: it keeps it, tries again when the process ends,
and may crash there. So its writes go through here. The first that fails (no space, a limit, Ctrl-C)
is kept, and from then on writes are kept in memory, where HDF5 finds them again; it closes a file
that seems whole to it and is removed. `check` raises what was kept, after each piece and at the
end, so that little is written in vain.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self


class OutFile:
    """A new file as h5py's file driver wants one. A with-block closes it."""

    def __init__(self, path: Path) -> None:
        """Create the file at `path`, where nothing is."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._at = 0
        self._end = 0
        self._late: list[tuple[int, bytes]] = []
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        os.close(self._file)

    def check(self) -> None:
        """Raise what a write has failed of."""
        if self.error is not None:
            raise self.error

    # What h5py calls. Nothing may be raised into HDF5.

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a place in the file."""
        self._at = offset if whence == os.SEEK_SET else self._end + offset
        return self._at

    def tell(self) -> int:
        """Return the place in the file."""
        return self._at

    def write(self, data: memoryview) -> int:
        """Write at the place in the file."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view) and self.error is None:
            try:
                done += os.pwrite(self._file, view[done:], self._at + done)
            except BaseException as error:  # noqa: BLE001 - raised by `check`
                self.error = error
        if done < len(view):
            self._late.append((self._at + done, bytes(view[done:])))
        self._at += len(view)
        self._end = max(self._end, self._at)
        return len(view)

    def readinto(self, into: memoryview) -> int:
        """Read at the place in the file; zeros where nothing was written."""
        view = memoryview(into).cast("B")
        try:
            done = os.preadv(self._file, [view], self._at)
        except BaseException as error:  # noqa: BLE001 - raised by `check`
            self.error, done = self.error or error, 0
        view[done:] = bytes(len(view) - done)
        for start, data in self._late:
            first, last = max(start, self._at), min(start + len(data), self._at + len(view))
            if first < last:
                view[first - self._at : last - self._at] = data[first - start : last - start]
        self._at += len(view)
        return len(view)

    def truncate(self, size: int) -> int:
        """Set the file's length."""
        if self.error is None:
            try:
                os.ftruncate(self._file, size)
            except BaseException as error:  # noqa: BLE001 - raised by `check`
                self.error = error
        self._end = size
        return size

    def flush(self) -> None:
        """Do nothing: `save` brings the file onto the medium."""
