"""Files of a pool: blobs that grow and shrink while programs have them open.

`group.open_file(path)` gives what the library `io` calls a raw file: whatever takes a binary file
takes it. A file that a program wrote through a mount, one that Python made, and a blob that was put
whole are the same thing.
"""

import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from engram import _engram
from engram.arguments import whole_number
from engram.blob import Blob
from engram.errors import ArgumentError, BusyError, EngramError, ExistsError, NotFoundError
from engram.member import new_member

__all__ = ["File", "create_file", "link", "open_file", "symlink"]

_BYTE = np.dtype(np.uint8)
_PERMISSIONS = 0o7777
_NEW = new_member()
_MODES = {"r", "r+", "w", "w+", "a", "a+", "x", "x+"}


class File(io.RawIOBase):
    """A file of a pool that is open, without a buffer of its own.

    Every read and write is the pool's at once: what another process has written is read, and what
    is written here is seen by all, without a flush. Small reads and writes are cheaper through
    `io.BufferedReader(f)` or `io.BufferedWriter(f)`, lines of text through `io.TextIOWrapper`.
    Deleting the file takes only its name away while anybody has it open. Of two processes that
    write the same bytes at once, the bytes may mix; what several append comes whole.
    """

    def __init__(self, blob: Blob, mode: str) -> None:
        self._blob = blob
        self._mode = mode
        self._reads = "r" in mode or "+" in mode
        self._writes = mode != "r"
        self._at = 0
        try:
            self._file = _engram.File(blob._namespace, blob.oid, self._writes)
        except EngramError:
            super().close()  # nor does the interpreter close it, when it collects it
            raise

    @property
    def name(self) -> str:
        """The path in the namespace; of a file that was deleted, its number."""
        try:
            return self._blob.path
        except NotFoundError:
            return hex(self._blob.oid)

    @property
    def mode(self) -> str:
        """As it was opened, such as "rb+"."""
        return self._mode[0] + "b" + self._mode[1:]

    @property
    def blob(self) -> Blob:
        """The blob that it is."""
        return self._blob

    def readable(self) -> bool:
        """Whether it can be read."""
        return self._reads

    def writable(self) -> bool:
        """Whether it can be written to."""
        return self._writes

    def seekable(self) -> bool:
        """Whether it has places: always."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer from the current place on; give how many bytes there were."""
        self._check(self._reads, "reading")
        into = _bytes_of(buffer)
        count = self._file.read_into(self._at, into)
        self._at += count
        return count

    def readall(self) -> bytes:
        """Read from the current place to the end."""
        self._check(self._reads, "reading")
        parts = []
        while part := self.read(max(self._file.size() - self._at, 1)):
            parts.append(part)
        return b"".join(parts)

    def write(self, data: Any, /) -> int:
        """Write all of the data, at the current place; behind the end, if it was opened so."""
        self._check(self._writes, "writing")
        given = _bytes_of(data)
        if not given.size:
            return 0
        at = self._file.write(None if self._mode[0] == "a" else self._at, given)
        self._at = at + given.size
        return given.size

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place: from the beginning, from here, from the end; or to the next data or hole.

        Raises
        ------
        ArgumentError
            If it is before the beginning, or there is no data behind it (`os.SEEK_DATA`).

        """
        self._check(True, "")
        offset = whole_number("offset", offset, least=-(2**63))
        if whence in {os.SEEK_DATA, os.SEEK_HOLE}:
            found = self._file.seek(whence == os.SEEK_DATA, offset) if offset >= 0 else None
            if found is None:
                raise ArgumentError(f"{self.name!r} has nothing from {offset} on")
            self._at = found
            return found
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}
        if whence not in {*base, os.SEEK_END}:
            raise ArgumentError(
                f"whence {whence} is unknown: use os.SEEK_SET or another of its kind"
            )
        at = offset + (self._file.size() if whence == os.SEEK_END else base[whence])
        if at < 0:
            raise ArgumentError(f"{offset} leads to {at}, before the beginning of {self.name!r}")
        self._at = at
        return at

    def tell(self) -> int:
        """Give the current place."""
        self._check(True, "")
        return self._at

    def truncate(self, size: int | None = None, /) -> int:
        """Give it another size: the current place, if none is given. What is added is a hole."""
        self._check(self._writes, "writing")
        size = self._at if size is None else whole_number("size", size)
        if size < 0:
            raise ArgumentError(f"{self.name!r} cannot have {size} bytes")
        self._file.set_size(size)
        return size

    def sync(self) -> None:
        """Make what anybody has written to it as durable as the pool is, as `os.fsync` does."""
        self._check(True, "")
        self._file.sync()

    def allocate(self, offset: int, nbytes: int) -> None:
        """See to it that a range has space, as `os.posix_fallocate` does.

        Raises
        ------
        PoolFullError
            If there is no room.

        """
        self._check(self._writes, "writing")
        self._file.allocate(whole_number("offset", offset), whole_number("nbytes", nbytes))

    def punch(self, offset: int, nbytes: int) -> None:
        """Make a range a hole: it reads as zeros, and its space goes back. The size stays."""
        self._check(self._writes, "writing")
        self._file.punch(whole_number("offset", offset), whole_number("nbytes", nbytes))

    @contextmanager
    def lock(
        self, mode: Literal["r", "w"] = "w", *, timeout: float | None = None
    ) -> Iterator[None]:
        """Lock it for a with-block, against programs on a mount, and others that lock it so.

        It is the lock that `flock` takes on a mount with `--cache shared` or `none`: "w" excludes
        all others, "r" those who ask for "w". Ranges that programs lock by `fcntl` are in its way,
        too. Every block is a taker of its own: within another one of the same file it waits. The
        kernel drops it with the process, however that ends, and with the children that it has
        forked meanwhile. `timeout` is in seconds; None waits for
        ever, until Ctrl-C. The lock of the object (`pool["x"].lock()`) is another one.

        Raises
        ------
        BusyError
            If it could not be had in time.

        """
        self._check(True, "")
        if mode not in {"r", "w"}:
            raise ArgumentError(f'mode {mode!r} is unknown: lock a file with "r" or "w"')
        locks = self._file.range_locks()
        try:
            _wait_for(lambda: locks.try_lock(mode == "w"), timeout, self.name)
            yield
        finally:
            locks.release()

    def view(self, mode: str = "r") -> NDArray[np.uint8]:
        """Give its bytes as an array on the pool's own memory, as `Blob.view` does."""
        self._check(True, "")
        return self._blob.view(mode)

    @property
    def segments(self) -> Sequence[tuple[int, int]]:
        """Where it has bytes: (offset, bytes) of each piece of memory, in order."""
        self._check(True, "")
        return self._file.segments()

    def fileno(self) -> int:
        """Refuse: the kernel has no number for it.

        Raises
        ------
        io.UnsupportedOperation
            Always; a program that needs one opens the file through a mount (`engram.mount`).

        """
        raise io.UnsupportedOperation(
            "a file of a pool has no number of the kernel's: open it through a mount for that"
        )

    def close(self) -> None:
        """Let go of it; the space of a deleted file goes with the last that has it open."""
        if not self.closed:
            self._file.close()
        super().close()

    def __enter__(self) -> Self:
        self._check(True, "")
        return self

    def _check(self, may: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not may:
            raise io.UnsupportedOperation(
                f"{self.name!r} was opened as {self.mode!r}, not for {what}"
            )

    def __repr__(self) -> str:
        state = " (closed)" if self.closed else ""
        return f"<engram.File {self._blob.oid:#x} {self.mode!r}{state}>"


def _wait_for(taken: Callable[[], bool], timeout: float | None, name: str) -> None:
    """Ask again and again, in steps that grow to some milliseconds."""
    if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
        raise ArgumentError(f"timeout {timeout!r} is no number of seconds: give 0 or more, or None")
    end = None if timeout is None else time.monotonic() + timeout
    step = 0.0002
    while not taken():
        if end is not None and time.monotonic() >= end:
            raise BusyError(
                f"the file {name!r} is locked by somebody else, and was for {timeout} s: try "
                "again later"
            )
        time.sleep(step)
        step = min(step * 2, 0.01)


def _bytes_of(buffer: Any) -> NDArray[np.uint8]:
    if isinstance(buffer, np.ndarray) and buffer.dtype.hasobject:
        raise ArgumentError(
            f"an array of dtype {buffer.dtype} holds references, not bytes: write what "
            "pickle.dumps makes of it"
        )
    # Not through a memoryview, which knows neither records nor dates.
    return np.frombuffer(buffer, _BYTE)


def _parsed(mode: str) -> str:
    plain = mode.replace("b", "", 1) if isinstance(mode, str) else ""
    # "r+b" and "rb+" are the same to `open`.
    if plain not in _MODES:
        raise ArgumentError(
            f'mode {mode!r} is unknown: use "rb", "rb+", "wb", "ab" or "xb"; a file of text is '
            "io.TextIOWrapper(io.BufferedReader(file))"
        )
    return plain


def open_file(namespace: _engram.Namespace, gid: int, path: str, mode: str) -> File:
    """See `Group.open_file`."""
    mode = _parsed(mode)
    if _engram.in_batch():  # before anything is made
        raise BusyError(
            "this thread runs a batch, which cannot undo what is written to a file: end it first"
        )
    start = namespace.root if isinstance(path, str) and path.startswith("/") else gid
    tried, gone = False, None
    while True:
        is_group_there = True
        try:
            oid, parent, name = _engram.follow(namespace, start, path)
        except NotFoundError:  # nor is the group: it is made with the file
            is_group_there, oid, parent, name = False, None, gid, path
        _check_mode(namespace, gid, path, mode, oid)
        if oid is None:
            try:
                oid = create_file(namespace, parent, name, None)
            except ExistsError:  # made by another meanwhile; or a link that leads into no group
                if tried and not is_group_there:
                    raise NotFoundError(
                        f"{path!r} is a symbolic link into a group that is not there: make it first"
                    ) from None
                tried = True
                continue
        try:
            file = File(Blob(namespace, oid, None, (0,)), mode)
        except NotFoundError:
            if oid == gone:
                raise
            gone = oid  # since it was found; another may have the name by now
            continue
        if mode[0] == "w":
            file.truncate(0)
        return file


def _check_mode(
    namespace: _engram.Namespace, gid: int, path: str, mode: str, oid: int | None
) -> None:
    """Refuse to read what is not there, and to make what is."""
    if oid is None and mode[0] == "r":
        raise NotFoundError(f"there is no file {path!r}: open it with mode 'wb' to make it")
    if mode[0] == "x" and (oid is not None or _is_taken(namespace, gid, path)):
        raise ExistsError(f"there is {path!r} already: open it with mode 'wb' to replace it")


def _is_taken(namespace: _engram.Namespace, gid: int, path: str) -> bool:
    """Whether there is a member, a symbolic link that leads to nothing among them."""
    with suppress(EngramError):  # a path through links or .., which was followed without an error
        return _engram.find(namespace, gid, path) is not None
    return False


def create_file(namespace: _engram.Namespace, gid: int, path: str, mode: int | None) -> int:
    """See `Group.create_file`; give the OID."""
    if mode is not None:
        mode = whole_number("mode", mode)
        if not 0 <= mode <= _PERMISSIONS:
            raise ArgumentError(f"mode {mode:#o} is none: give permissions such as 0o640")
    return _engram.create_file(namespace, gid, path, mode, _NEW)


def link(namespace: _engram.Namespace, gid: int, old: str, new: str) -> None:
    """See `Group.link`."""
    found = _engram.find(namespace, gid, old)
    if found is None:
        raise NotFoundError(f"there is no {old!r} to give a further name")
    kind, oid, _, _ = found
    if kind == 0:
        raise ArgumentError(f"{old!r} is a group, which has one name: use symlink")
    parent, name = _above(namespace, gid, new)
    _engram.link(namespace, oid, parent, name)


def symlink(namespace: _engram.Namespace, gid: int, target: str, path: str) -> int:
    """See `Group.symlink`; give the OID."""
    parent, name = _above(namespace, gid, path)
    return _engram.symlink(namespace, parent, name, target)


def _above(namespace: _engram.Namespace, gid: int, path: str) -> tuple[int, str]:
    """Give the group that a new name is to be in, made if it is not there, and the name."""
    above, _, name = path.rpartition("/")
    if not above:
        return (namespace.root if path.startswith("/") else gid), name
    return _engram.create_group(namespace, gid, above, None, b"", True), name
