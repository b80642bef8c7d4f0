"""`engram ls` and `engram info`: what is in a pool, at a glance."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import itertools
import pwd
import sys
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.columns import Columns
from rich.text import Text

import engram
from engram.cli import terminal
from engram.cli.app import JsonOption, NamespaceOption, PoolArgument, app, clean, examples, opened
from engram.cli.terminal import plain
from engram.errors import NotFoundError
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engram.group import Group
    from engram.pool import Pool

    Member = Group | engram.Array | engram.Blob

_FIRST_VALUES = 12
_SHOWN_ATTRIBUTE = 200
_AT_A_GLANCE = 200
"""Up to so many rows are laid out together; what is longer is printed as it comes."""

_HEADINGS = ("kind", "dtype", "shape", "bytes", "owner", "modified", "name")
_RIGHT = ("bytes",)

WhereArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="A group or object in the pool; the root if none.")
]


@app.command(
    epilog=examples(
        "engram ls /dev/shm/run",
        "engram ls -l /dev/shm/run run-17/step-0400",
        "engram ls -r --json /dev/shm/run",
    )
)
def ls(
    pool: PoolArgument,
    path: WhereArgument = "",
    *,
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Add dtype, shape, bytes, owner and time.")
    ] = False,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Go into groups.")] = False,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """List what is in a group."""
    where = clean(path)
    with opened(pool, namespace) as (_, root):
        start: Member = root[where] if where else root
        found = _members(start, where, recursive=recursive)
        if json:
            terminal.print_json([facts for _, facts in _told(found)])
        elif long:
            _print_long(found)
        else:
            _print_names(found)


@app.command(
    epilog=examples("engram info /dev/shm/run", "engram info /dev/shm/run run-17/step-0400/T")
)
def info(
    pool: PoolArgument,
    path: WhereArgument = "",
    *,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Show a pool, or a group, array or blob in it, with its attributes."""
    where = clean(path)
    with opened(pool, namespace) as (handle, root):
        if where:
            member: Member = root[where]
            shown = _facts(where, member)
            first = None if isinstance(member, engram.Group) else first_values(member)
        else:
            member, first = root, None
            shown = _pool_facts(handle) if namespace == "default" else _facts("/", root)
        attributes = dict(member.attrs.items())
        if json:
            terminal.print_json({**shown, "attributes": attributes})
            return
        console = terminal.out()
        console.print(terminal.facts(_readable(shown)))
        if attributes:
            console.print(Text("attributes", style="bold"))
            rows = {f"  {name}": attribute_text(value) for name, value in attributes.items()}
            console.print(terminal.facts(rows))
        if first is not None:
            console.print(Text("values", style="bold"))
            console.print(Text("\n".join(plain(line) for line in first.split("\n"))))


def first_values(member: engram.Array | engram.Blob) -> str:
    """Return the first values of an array, or bytes of a blob, as text."""
    if isinstance(member, engram.Blob):
        head = member[...][: 4 * _FIRST_VALUES]
        return f"{head!r}" + (" …" if member.nbytes > len(head) else "")
    if member.size == 0:
        return "none: a dimension is zero"
    if member.ndim == 0:
        return plain(member[()])
    region = (0,) * (member.ndim - 1) + (slice(0, _FIRST_VALUES),)
    line = np.asarray(member[region])
    text = np.array2string(line, max_line_width=terminal.text_width(), separator=" ")
    return text + (" …" if member.size > line.size else "")


def attribute_text(value: Any) -> str:
    """Return an attribute's value on one line, with its dtype where that is not plain."""
    if isinstance(value, str):
        shown, kind = value, ""
    else:
        array = np.asarray(value)
        shown = np.array2string(array, threshold=_FIRST_VALUES, separator=" ").replace("\n", "")
        kind = "" if array.dtype.kind in "TU" else f"  ({array.dtype})"
    if len(shown) > _SHOWN_ATTRIBUTE:
        shown = shown[:_SHOWN_ATTRIBUTE] + " …"
    return shown + kind


def _members(start: Member, path: str, *, recursive: bool) -> Iterator[tuple[str, Member]]:
    """Yield members with the names to show: relative to `start`, or of `start` if an object."""
    if not isinstance(start, engram.Group):
        yield path, start
        return
    waiting = [("", start)]
    while waiting:
        prefix, group = waiting.pop()
        below = []
        for name, member in group.items():
            shown = f"{prefix}{name}"
            yield shown, member
            if recursive and isinstance(member, engram.Group):
                below.append((f"{shown}/", member))
        waiting.extend(reversed(below))


def _kind(member: Member) -> str:
    """Return the word for what a member is."""
    if isinstance(member, engram.Group):
        return "group"
    return "blob" if isinstance(member, engram.Blob) else "array"


def _facts(name: str, member: Member) -> dict[str, Any]:
    """Return what is to be told of a member, as plain values."""
    about = member._info()
    shown: dict[str, Any] = {"name": name, "path": member.path, "kind": _kind(member)}
    if isinstance(member, engram.Group):
        shown["members"] = len(member)
    else:
        if isinstance(member, engram.Array):
            shown["dtype"] = dtype_text(member.dtype)
            shown["shape"] = list(member.shape)
            shown["dims"] = None if member.dims is None else list(member.dims)
        shown["nbytes"] = member.nbytes
        shown["oid"] = member.oid
    shown["owner"] = _user(about.owner)
    shown["created"] = _time(about.created)
    shown["modified"] = _time(about.modified)
    return shown


def _told(found: Iterable[tuple[str, Member]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield members' names and facts, without those that somebody deletes meanwhile."""
    for name, member in found:
        with contextlib.suppress(NotFoundError):
            yield name, _facts(name, member)


@functools.cache
def _user(uid: int) -> str:
    """Return a user's name, or the uid's digits where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _time(nanoseconds: int) -> str:
    """Return a time since 1970 as ISO 8601 in local time, to the second."""
    return terminal.iso(dt.datetime.fromtimestamp(nanoseconds // 10**9, dt.UTC))


def _pool_facts(pool: Pool) -> dict[str, Any]:
    """Return what is to be told of a pool, as plain values."""
    return {
        "path": str(pool.path),
        "kind": "pool",
        "uuid": pool.uuid,
        "size": pool.size,
        "used": pool.used,
        "durability": pool.durability,
        "devices": [
            {"path": str(d.path), "filesystem": d.filesystem, "free": d.free} for d in pool.devices
        ],
        "namespaces": list(pool.namespaces),
        "members": len(pool),
    }


def _readable(shown: dict[str, Any]) -> dict[str, str]:
    """Return facts as people read them."""
    rows = {}
    for name, value in shown.items():
        if value is None or (name == "name" and shown.get("path") == value):
            continue
        if name in ("size", "used"):
            rows[name] = human(value)
        elif name == "nbytes":
            rows["bytes"] = human(value) + (f" ({value})" if value >= 1 << 10 else "")
        elif name == "shape":
            rows[name] = shape_text(value)
        elif name == "devices":
            rows[name] = "; ".join(
                f"{d['path']} ({d['filesystem']}, {human(d['free'])} free)" for d in value
            )
        elif isinstance(value, list):
            rows[name] = ", ".join(str(v) for v in value)
        else:
            rows[name] = str(value)
    return rows


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype as people write it: float32, >i4, string."""
    return "string" if dtype.kind == "T" else str(dtype)


def shape_text(shape: list[int]) -> str:
    """Return a shape as people write it: 3 x 4, or scalar."""
    return " x ".join(str(n) for n in shape) if shape else "scalar"


def _print_names(found: Iterable[tuple[str, Member]]) -> None:
    """Print names alone: in columns on a terminal, else one a line, as they come."""
    names = (plain(name) + ("/" if isinstance(m, engram.Group) else "") for name, m in found)
    first = list(itertools.islice(names, _AT_A_GLANCE + 1)) if sys.stdout.isatty() else []
    if 0 < len(first) <= _AT_A_GLANCE:
        terminal.out().print(Columns([Text(n) for n in first], column_first=True, padding=(0, 2)))
        return
    for name in itertools.chain(first, names):
        sys.stdout.write(f"{name}\n")


def _print_long(found: Iterable[tuple[str, Member]]) -> None:
    """Print a line of facts for each: fitted to a terminal if they are few, else as they come."""
    rows = _rows(found)
    first = list(itertools.islice(rows, _AT_A_GLANCE + 1))
    if sys.stdout.isatty() and len(first) <= _AT_A_GLANCE:
        table = terminal.table(*_HEADINGS, right=_RIGHT)
        for row in first:
            table.add_row(*(Text(word) for word in row))
        terminal.out().print(table)
        return
    # The first rows say how wide the columns are; a later one that is wider sticks out.
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *first, strict=True)]
    for row in itertools.chain([_HEADINGS], first, rows):
        words = [
            word.rjust(width) if heading in _RIGHT else word.ljust(width)
            for word, width, heading in zip(row[:-1], widths, _HEADINGS, strict=False)
        ]
        sys.stdout.write(" ".join([*words, row[-1]]) + "\n")


def _rows(found: Iterable[tuple[str, Member]]) -> Iterator[tuple[str, ...]]:
    """Yield what `ls -l` shows of each; what somebody deletes meanwhile is left out."""
    for name, member in found:
        with contextlib.suppress(NotFoundError):
            about = member._info()
            is_group = isinstance(member, engram.Group)
            row = (
                _kind(member),
                dtype_text(member.dtype) if isinstance(member, engram.Array) else "-",
                shape_text(list(member.shape)) if isinstance(member, engram.Array) else "-",
                "-" if isinstance(member, engram.Group) else human(member.nbytes),
                _user(about.owner),
                _time(about.modified),
                name + ("/" if is_group else ""),
            )
            yield tuple(map(plain, row))
