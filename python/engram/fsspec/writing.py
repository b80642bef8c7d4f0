"""A file that is open for writing: bytes of the process's own, put into the pool by its close.

Nothing of it is in the pool before. The close puts a new blob in the place of what was there, in
one commit, so others see the file as it was or as it is. The process that dies before, and the
with-block that raises, leave nothing behind.

**Which close is the end.** `close()` is called by all that end a file, with-blocks that fail too:
text wrappers, fsspec's own and pandas' call it for an exception without telling. So a file that is
closed while an exception is handled that was not when it was opened is not finished, and is given
up; and so is one that is dropped without a close. Both say so by a warning.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.errors import ArgumentError, EngramWarning

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from numpy.typing import NDArray

    from engram.fsspec.change import Change
    from engram.fsspec.place import Place


class WriteFile(io.BytesIO):
    """A file of a pool, open for writing, which is there once it is closed."""

    blocksize = 1 << 22

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        fs: Any,
        path: str,
        mode: str,
        content: NDArray[np.uint8],
        change: Change,
        autocommit: bool,
    ) -> None:
        super().__init__(content.data)
        self.fs = fs
        self.path = path
        self.mode = mode  # type: ignore[misc]  # a constant of others
        self.autocommit = autocommit
        self._change = change
        self._reads = "+" in mode
        self._handled = sys.exception()
        self._pid = os.getpid()
        self._before = 0
        self._as_opened = content
        self._kept: bytes | None = None
        self._is_over = False

    @property
    def name(self) -> str:
        """The path of the file."""
        return self.path

    @property
    def size(self) -> int:
        """The bytes that it will have."""
        return self._before + (len(self._kept or b"") if self.closed else len(self.getbuffer()))

    @property
    def full_name(self) -> str:
        """The URL of the file."""
        return str(self.fs.unstrip_protocol(self.path))

    @property
    def is_given_up(self) -> bool:
        """Whether nothing of it is to come into the pool."""
        return self.closed and self._kept is None

    def place(self) -> Place:
        """Give where it will be, in the pool as it is open now."""
        return self._change.find()

    def begin_at(self, before: int) -> None:
        """Count places from the end of what is there: the file is appended to."""
        self._before = before

    def readable(self) -> bool:
        return self._reads and not self.closed

    def read(self, size: int | None = -1, /) -> bytes:
        self._may_read()
        return super().read(size)

    def read1(self, size: int | None = -1, /) -> bytes:
        self._may_read()
        return super().read1(size)

    def readinto(self, into: Any, /) -> int:
        self._may_read()
        return super().readinto(into)

    def readline(self, size: int | None = -1, /) -> bytes:
        self._may_read()
        return super().readline(size)

    def readlines(self, size: int | None = -1, /) -> list[bytes]:
        self._may_read()
        return super().readlines(size)

    def __next__(self) -> bytes:
        self._may_read()
        return super().__next__()

    def _may_read(self) -> None:
        if not self._reads and not self.closed:
            message = f"{self.path} is open for writing alone: open it with mode 'w+b' or 'r+b'"
            raise io.UnsupportedOperation(message)

    def write(self, data: Any, /) -> int:
        if self._change.how == "append":
            super().seek(0, io.SEEK_END)
        return super().write(data)

    def writelines(self, lines: Iterable[Any], /) -> None:
        for line in lines:
            self.write(line)

    def tell(self) -> int:
        return super().tell() + self._before

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_SET:
            if offset < self._before:
                message = f"{self.path} is appended to, and begins at {self._before} here"
                raise io.UnsupportedOperation(message)
            offset -= self._before
        return super().seek(offset, whence) + self._before

    def truncate(self, size: int | None = None, /) -> int:
        if size is None:
            return super().truncate() + self._before
        if size < self._before:
            message = f"{self.path} is appended to, and is not cut: open it with mode 'r+b'"
            raise io.UnsupportedOperation(message)
        length = size - self._before
        if length > len(self.getbuffer()):
            at = super().tell()
            super().seek(length - 1)
            super().write(b"\0")
            super().seek(at)
        return super().truncate(length) + self._before

    def close(self) -> None:
        """End the file: it is there now; within a transaction, at its end."""
        if self.closed:
            return
        error = sys.exception()
        if sys.is_finalizing() or (error is not None and error is not self._handled):
            why = "as the program ends" if error is None else f"while {error!r} was handled"
            self._give_up(f"was closed {why}")
        else:
            self._finish()

    def commit(self) -> None:
        """Put the file into the pool: a transaction does it."""
        self.keep()
        self.change().run()
        self.settled()

    def discard(self) -> None:
        """Give the file up: nothing of it comes into the pool."""
        self._is_over = True
        self._kept = None
        super().close()

    def keep(self) -> None:
        """End the writing, and keep what was written for a commit."""
        if self._kept is None and not self._is_over:
            self._kept = self.getvalue()
            super().close()

    def change(self) -> Change:
        """Give what the commit does."""
        if self._kept is None:
            raise ArgumentError(f"{self.path} was given up, or is committed: write it again")
        self._change.data = self._kept
        return self._change

    def settled(self) -> None:
        """Let go of what was committed."""
        self._is_over = True
        self._kept = None

    def _finish(self) -> None:
        self._handled = None
        self.keep()
        if self.autocommit:
            try:
                if not self._is_as_opened():
                    self.change().run()
            finally:
                self.settled()

    def _is_as_opened(self) -> bool:
        """Whether a part was to be changed, and is what it was."""
        kept = np.frombuffer(self._kept or b"", np.uint8)
        return self._change.how == "change" and np.array_equal(kept, self._as_opened)

    def _give_up(self, why: str) -> None:
        self._handled = None
        self.discard()
        if os.getpid() != self._pid:  # a forked child's copy of what its parent writes
            return
        text = (
            f"{self.path} {why}, so it is not written: to have it, close it when that is over, or "
            "leave its with-block"
        )
        warnings.warn(text, EngramWarning, stacklevel=3)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.closed:
            return
        if kind is None:
            self._finish()
        else:
            self.discard()

    def __del__(self) -> None:
        if not self.closed:
            self._give_up("was dropped without a close")

    def __reduce__(self) -> Any:
        message = f"{self.path} is open for writing, which is of this process alone: close it"
        raise ArgumentError(message)

    def __repr__(self) -> str:
        return f"<engram.fsspec.WriteFile {self.full_name!r} ({self.mode})>"


class TextFile(io.TextIOWrapper):
    """Text of a file that is open for writing: given up with it."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _leave(self, kind)

    def __del__(self) -> None:
        # Its own end would close the file, which is not finished if it is dropped.
        if not self.closed:
            self.detach()


class CompressedFile(io.BufferedIOBase):
    """What is written to a file, on its way through a compressor."""

    def __init__(self, compressor: Any, file: WriteFile) -> None:
        self._compressor = compressor
        self._file = file

    def __getattr__(self, name: str) -> Any:
        """Give what the file has."""
        return getattr(self._file, name)

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._compressor.write(data)
        return memoryview(data).nbytes

    def tell(self) -> int:
        return int(self._compressor.tell())

    def flush(self) -> None:
        if not self.closed:
            self._compressor.flush()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        if not self.closed:
            self._compressor.close()
            self._file.close()

    def discard(self) -> None:
        self._file.discard()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _leave(self, kind)

    def __del__(self) -> None:
        pass  # the file's own end says that it was dropped


def _leave(file: Any, kind: type[BaseException] | None) -> None:
    """Leave a with-block around what stands before a file."""
    if kind is None:
        file.close()
        return
    inner = file
    while not isinstance(inner, WriteFile):
        inner = inner.buffer if isinstance(inner, io.TextIOWrapper) else inner._file
    inner.discard()
