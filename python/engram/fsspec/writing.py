"""A file that is open for writing: bytes of the process's own, put into the pool by its close.

Nothing of it is in the pool before. The close puts a new blob in the place of what was there, in
one commit, so others see the file as it was or as it is. The process that dies before, and the
with-block that raises, leave nothing behind.

**Which close is the end.** `close()` is called by all that end a file, with-blocks that fail too:
text wrappers, fsspec's own and pandas' call it for an exception without telling. So a file that is
closed while an exception is handled that was not when it was opened is not finished, and is given
up; and so is one that is dropped without a close. Both say so by a warning.

**Adding to a file.** An append, and a change of a part, put a new blob as well: what was there, and
what is new. They rely on what was there being there still. An append that finds something else adds
to that; so those of many processes lose nothing. A change of a part is refused then. The check is a
change of the object itself in the batch that puts the new one: if the object is gone by then, or
has changed, the batch is not applied.
"""

from __future__ import annotations

import io
import sys
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engram import _engram
from engram.batch import Batch
from engram.errors import ArgumentError, BusyError, EngramWarning, ExistsError, NotFoundError
from engram.fsspec.entry import BLOB, GROUP, bytes_at
from engram.fsspec.errors import (
    FileBusyError,
    FileReplacedError,
    FileTakenError,
    IsArrayError,
    IsGroupError,
    NoGroupError,
    NotEmptyError,
    Told,
)
from engram.member import new_member

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from numpy.typing import NDArray

    from engram.fsspec.place import Place

    How = Literal["replace", "create", "append", "change"]

PATIENCE = 10_000
"""How often what others were faster with is tried again, every millisecond."""

_WAIT = 0.001


@dataclass
class Change:
    """What a file's close does to the pool.

    Attributes
    ----------
    find
        Gives the place, in the pool as it is open then.
    how
        What becomes of what is there.
    data
        The bytes that are put, or added.
    base
        The object that a change of a part began with.
    attrs
        Attributes of the new blob; those that it has, for an append or a change.

    """

    find: Callable[[], Place]
    how: How
    data: bytes = b""
    base: int = 0
    attrs: Mapping[str, Any] | None = None

    def run(self) -> None:
        """Do it, again while others are faster."""
        again(self.apply)

    def apply(self) -> None:
        """Do it once, or as part of the batch that this thread runs."""
        place = self.find()
        with Told(place.path):
            if self.how == "append":
                self._append(place)
            elif self.how == "change":
                self._change(place)
            else:
                self._put(place, self.data, self.attrs, is_new=self.how == "create")

    def _append(self, place: Place) -> None:
        found = place.find()
        if found is None:
            try:
                self._put(place, self.data, self.attrs, is_new=True)
            except FileTakenError as error:
                raise FileBusyError(f"{place.path} was made by another meanwhile") from error
        elif self.data:
            before, now = bytes_at(place)
            data = np.empty(len(before) + len(self.data), np.uint8)
            data[: len(before)] = before
            data[len(before) :] = np.frombuffer(self.data, np.uint8)
            try:
                self._replace_same(place, now[1], data)
            except NotFoundError as error:
                raise FileBusyError(f"{place.path} was replaced while it grew") from error

    def _change(self, place: Place) -> None:
        try:
            self._replace_same(place, self.base, self.data)
        except NotFoundError as error:
            raise FileReplacedError(
                f"{place.path} was replaced or removed since it was opened, and what was written "
                "to it is not there: open it again"
            ) from error

    def _replace_same(self, place: Place, oid: int, data: Any) -> None:
        """Replace this very object: nothing is done if another one is there by then."""
        namespace = place.namespace
        kept = dict(_engram.attr_items(namespace, False, oid)) | dict(self.attrs or {})
        with Batch(namespace):
            _engram.attr_set(namespace, False, oid, {})  # the batch relies on it from here on
            found = place.find()
            if found is None or found[1] != oid:
                raise NotFoundError(f"{place.path} is another file now")
            self._put(place, data, kept, is_new=False)

    def _put(
        self, place: Place, data: Any, attrs: Mapping[str, Any] | None, *, is_new: bool
    ) -> None:
        check_writable(place)
        new = new_member(attrs=attrs, overwrite=not is_new)
        try:
            _engram.put_blob(place.namespace, place.namespace.root, place.inner, data, new)
        except ExistsError as error:
            check_writable(place)
            raise FileTakenError(f"{place.path} exists: mode 'wb' replaces it") from error


def again(act: Callable[[], None]) -> None:
    """Act again while others are faster; a thread's own batch ends it, which is for all of it."""
    for _ in range(PATIENCE):
        try:
            return act()
        except BusyError as error:
            if _engram.in_batch() or isinstance(error, FileReplacedError | NotEmptyError):
                raise
            time.sleep(_WAIT)
    return act()


def check_writable(place: Place) -> None:
    """Refuse what no file can be written over or below.

    Raises
    ------
    IsGroupError
        If a group is there.
    IsArrayError
        If an array is there.
    NoGroupError
        If the way leads through an object.

    """
    found = place.find()
    if found is None:
        check_way(place)
    elif found[0] == GROUP:
        raise IsGroupError(f"{place.path} is a group, and no file: write to a name in it")
    elif found[0] != BLOB:
        raise IsArrayError(
            f"{place.path} is an array, which is not written as a file: write to it as "
            "pool[name][...] = values, or remove it first"
        )


def check_way(place: Place) -> None:
    """Refuse a way that leads through an object."""
    way = place.inner.split("/")
    for length in range(1, len(way)):
        inner = "/".join(way[:length])
        found = _engram.find(place.namespace, place.namespace.root, inner)
        if found is None:
            return
        if found[0] != GROUP:
            above = place.path[: len(place.path) - len(place.inner)] + inner
            raise NoGroupError(f"{above} is no group: {place.path} cannot be in it")


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
