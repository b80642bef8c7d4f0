"""`engram put` and `engram get`: values in and out."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import numpy as np
import typer

import engram
from engram.cli import output, terminal
from engram.cli.app import (
    IndexOption,
    NamespaceOption,
    PathArgument,
    PoolOrClusterArgument,
    app,
    examples,
    mode_of,
    object_path,
    opened,
)
from engram.cli.bar import Bar
from engram.cli.terminal import plain
from engram.errors import (
    AccessError,
    ArgumentError,
    EngramError,
    FormatError,
    NotFoundError,
)
from engram.formats.blocks import regions
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.group import Group

_MAGIC = np.lib.format.MAGIC_PREFIX
_PIECE = 8 << 20


@app.command(
    epilog=examples(
        "engram put /dev/shm/run run-17/T T.npy --dims y,x",
        "make-field | engram put /dev/shm/run run-17/T -",
        "engram put /dev/shm/run notes README.txt --blob --index none",
    )
)
def put(
    pool: PoolOrClusterArgument,
    path: PathArgument,
    file: Annotated[str, typer.Argument(metavar="FILE.npy|-", help="The file, or - for stdin.")],
    *,
    blob: Annotated[
        bool, typer.Option("--blob", help="Store the file's bytes as a blob, whatever they are.")
    ] = False,
    dims: Annotated[
        str | None, typer.Option(metavar="Y,X", help="Names of the dimensions.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an object of this name.")
    ] = False,
    index: IndexOption = None,
    scope: Annotated[
        str | None,
        typer.Option(
            metavar="private|shared", help="Who sees it; who sees its group, if not given."
        ),
    ] = None,
    namespace: NamespaceOption = "default",
) -> None:
    """Store an array from a NumPy file, or any bytes as a blob."""
    name = object_path(path)
    names = None if dims is None else tuple(dims.split(","))
    how: Any = {"overwrite": overwrite, "index": mode_of(index), "scope": scope}
    with opened(pool, namespace, "r+") as (_, root):
        if blob:
            with reading(file) as stream:
                value = stream.read()
                made: Any = root.create_blob(name, value, **how)
        else:
            more: Any = {"dims": names, **how}
            made = _put_array(root, name, file, more)
        what = "blob" if blob else f"{made.dtype} {' x '.join(map(str, made.shape)) or 'scalar'}"
        terminal.say(f"{made.path}: {what}, {human(made.nbytes)}")


@app.command(
    epilog=examples(
        "engram get /dev/shm/run run-17/T",
        "engram get /dev/shm/run run-17/T field.npy",
        "engram get /dev/shm/run run-17/T - | python3 analyse.py",
        "engram get /dev/shm/run co2/xco2 --decoded",
    )
)
def get(
    pool: PoolOrClusterArgument,
    path: PathArgument,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE.npy|-", help="Where to; the object's name here if none."),
    ] = None,
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file of this name.")
    ] = False,
    decoded: Annotated[
        bool,
        typer.Option(
            "--decoded",
            help="The values that are meant: unpacked, missing ones NaN, times as times.",
        ),
    ] = False,
    namespace: NamespaceOption = "default",
) -> None:
    """Write an array as a NumPy file, or a blob's bytes."""
    name = object_path(path)
    with opened(pool, namespace) as (_, root):
        member = root[name]
        if isinstance(member, engram.Table):
            message = (
                f"{plain(name)}: is a table, which a NumPy file cannot hold; read it in Python"
            )
            raise ArgumentError(message)
        if isinstance(member, engram.Group):
            message = (
                f"{plain(name)}: is a group; name one of its arrays (`engram ls {pool} {name}`)"
            )
            raise ArgumentError(message)
        if decoded and isinstance(member, engram.Blob):
            message = (
                f"{plain(name)}: is a blob, and its bytes are what is meant: leave --decoded out"
            )
            raise ArgumentError(message)
        values = None if isinstance(member, engram.Blob) else _values(member, decoded=decoded)
        nbytes = member.nbytes if values is None else values.nbytes
        target = file or member.name + ("" if isinstance(member, engram.Blob) else ".npy")
        with (
            output.writing(target, overwrite=overwrite) as stream,
            Bar(target, nbytes) as bar,
        ):
            if values is None:
                stream.write(member[...])
            else:
                counted: Any = _Counted(stream, bar)
                np.lib.format.write_array(counted, values, allow_pickle=False)
        if output.standard(target) is None:
            terminal.say(f"{target}: {human(nbytes)}")


@contextlib.contextmanager
def reading(file: str) -> Iterator[BinaryIO]:
    """Open a file, or stdin, for reading bytes."""
    if file == output.STDIO:
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - closed below; only opening may be refused
    except FileNotFoundError:
        message = f"{file}: no such file; check the path"
        raise NotFoundError(message) from None
    except PermissionError:
        message = f"{file}: this user may not read it"
        raise AccessError(message) from None
    except IsADirectoryError:
        message = f"{file}: is a directory; name a file"
        raise FormatError(message) from None
    with stream:
        yield stream


def _put_array(
    root: Group,
    name: str,
    file: str,
    more: dict[str, Any],
) -> Any:
    """Copy a NumPy file straight into the pool's memory, or a NumPy stream through ours.

    `more` is given where the array is made: dims, overwrite, index.
    """
    value = load(file)
    if value.nbytes < _PIECE:
        return root.create_array(name, data=value, **more)
    with (
        Bar(file, value.nbytes) as bar,
        root.allocate(name, shape=value.shape, dtype=value.dtype, **more) as memory,
    ):
        for region in regions(value.shape, None, value.itemsize, _PIECE):
            memory[region] = value[region]
            bar.advance(memory[region].nbytes)
    return root[name]


def load(file: str) -> np.ndarray[Any, Any]:
    """Return the array of a NumPy file, as it lies in the file where that is large."""
    with reading(file) as stream:
        try:
            if file == output.STDIO:
                plain: Any = _Plain(stream)
                return np.lib.format.read_array(plain, allow_pickle=False)
            _require_magic(stream, file)
            large = Path(file).stat().st_size >= _PIECE
            return np.asarray(np.load(file, mmap_mode="r" if large else None, allow_pickle=False))
        except EngramError:
            raise
        except (ValueError, EOFError, SyntaxError) as error:
            message = f"{file}: cannot be read as a NumPy file: {error}"
            raise FormatError(message) from None


def _require_magic(stream: BinaryIO, file: str) -> None:
    """Refuse what is not a NumPy file."""
    head = stream.read(len(_MAGIC))
    if head != _MAGIC:
        remedy = "use `engram import` for netCDF and HDF5, or --blob to store its bytes"
        message = f"{file}: not a NumPy file: it begins with {head!r}; {remedy}"
        raise FormatError(message)


def _values(member: engram.Array, *, decoded: bool) -> np.ndarray[Any, Any]:
    """Return an array's values: the pool's own memory, or strings of the longest's width."""
    value = np.asarray(member.decoded() if decoded else member)
    if value.dtype.hasobject and value.dtype.kind == "O":
        message = (
            f"{plain(member.path)}: its calendar ({member.attrs.get('calendar')}) has days that a "
            "NumPy file cannot hold: leave --decoded out, and take the numbers"
        )
        raise ArgumentError(message)
    if value.dtype.kind == "T":
        width = max((len(v) for v in value.flat), default=1) or 1
        return value.astype(f"U{width}")
    return value


class _Plain:
    """A stream that numpy does not take for a file on disk, in which it would want to seek."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, nbytes: int = -1) -> bytes:
        """Read a piece."""
        return self._stream.read(nbytes)


class _Counted:
    """A stream that tells a bar how much has been written to it."""

    def __init__(self, stream: BinaryIO, bar: Bar) -> None:
        self._stream = stream
        self._bar = bar

    def write(self, piece: bytes) -> int:
        """Write a piece."""
        self._bar.advance(len(piece))
        return self._stream.write(piece)
