"""`engram stats`: what a pool or a group holds, and where its space is.

What is below is counted by walking it: of objects only the largest few are kept, so a pool of any
number of them is counted in the same memory.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import engram
from engram import machine
from engram.cli import describe, drawing, holders, metrics, terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PoolOrClusterArgument,
    WhereArgument,
    app,
    clean,
    examples,
    opened,
)
from engram.cli.bar import Bar
from engram.cli.terminal import counted
from engram.errors import ArgumentError, NotFoundError
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.cli.describe import Member
    from engram.namespace import Namespace
    from engram.pool import Pool

_BAR = 20
_HEADINGS = {"nbytes": "bytes"}


@dataclass
class _Counts:
    """What was counted so far."""

    groups: int = 0
    arrays: int = 0
    blobs: int = 0
    attributes: int = 0
    nbytes: int = 0
    number_by_dtype: Counter[str] = field(default_factory=Counter)
    bytes_by_dtype: Counter[str] = field(default_factory=Counter)
    largest: list[tuple[int, str, str]] = field(default_factory=list)
    """A heap of (bytes, path, dtype): its first is the smallest of the largest."""


@app.command(
    epilog=examples(
        "engram stats /dev/shm/run",
        "engram stats /dev/shm/run run-17 --top 3",
        "engram stats /dev/shm/run --json",
        "engram stats /dev/shm/run --prometheus > run.prom    # for node_exporter",
    )
)
def stats(
    ctx: typer.Context,
    pool: PoolOrClusterArgument,
    path: WhereArgument = "/",
    *,
    top: Annotated[
        int, typer.Option("--top", min=0, metavar="N", help="Show so many of the largest objects.")
    ] = 5,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
    prometheus: Annotated[
        bool,
        typer.Option("--prometheus", help="Print figures of all namespaces for Prometheus."),
    ] = False,
) -> None:
    """Count what is in a pool or a group: objects, attributes, bytes by dtype, space, processes."""
    if prometheus:
        _refuse_others(ctx)
        with engram.open(pool, mode="r") as handle:
            sys.stdout.write(metrics.text_of(handle))
        return
    where = clean(path)
    with opened(pool, namespace) as (handle, root):
        start: Member = root[where] if where else root
        with Bar("counting", None, unit="items") as bar:
            counts = _counted(start, where, top, bar)
        told = _told(counts)
        if not where:
            told |= {"space": _space(root), "devices": list(_devices(handle, root))}
            told["index"] = {k: v for k, v in root.index_stats().items() if k != "groups"}
            told["held"] = holders.told(root)
            told["processes"] = [{"pid": pid, "name": _process(pid)} for pid in root.space.pids]
    if json:
        terminal.print_json({"pool": str(pool), "namespace": namespace, "path": where, **told})
    else:
        _print(told)


def _refuse_others(ctx: typer.Context) -> None:
    """Refuse what says nothing beside `--prometheus`, which tells of the whole pool."""
    others = {"path": "PATH", "top": "--top", "namespace": "--namespace", "json": "--json"}
    for name, shown in others.items():
        source = ctx.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            message = f"--prometheus tells of the whole pool: leave out {shown}"
            raise ArgumentError(message)


def _counted(start: Member, where: str, top: int, bar: Bar) -> _Counts:
    """Count a member with all that is below it; what somebody deletes meanwhile is left out."""
    counts = _Counts()
    for path, member in _walk(start, where):
        with contextlib.suppress(NotFoundError):
            _count(counts, path, member, top)
        bar.advance(1)
    return counts


def _walk(start: Member, where: str) -> Iterator[tuple[str, Member]]:
    """Yield a member, unless it is the root, and all that is below it."""
    if where:
        yield where, start
    waiting = [(where, start)]
    while waiting:
        above, group = waiting.pop()
        if not isinstance(group, engram.Group):
            continue
        with contextlib.suppress(NotFoundError):
            for name, member in group.items():
                path = f"{above}/{name}" if above else name
                inner = member.as_group() if isinstance(member, engram.Table) else member
                yield path, inner
                if isinstance(inner, engram.Group):
                    waiting.append((path, inner))


def _count(counts: _Counts, path: str, member: Member, top: int) -> None:
    """Add one member."""
    attributes = len(member.attrs)
    if isinstance(member, engram.Group):
        counts.groups += 1
    else:
        nbytes = member.nbytes
        is_array = isinstance(member, engram.Array)
        dtype = describe.dtype_text(member.dtype) if isinstance(member, engram.Array) else "blob"
        counts.arrays += is_array
        counts.blobs += not is_array
        counts.nbytes += nbytes
        counts.number_by_dtype[dtype] += 1
        counts.bytes_by_dtype[dtype] += nbytes
        keep = heapq.heappush if len(counts.largest) < top else heapq.heappushpop
        if top:
            keep(counts.largest, (nbytes, path, dtype))
    counts.attributes += attributes


def _told(counts: _Counts) -> dict[str, Any]:
    """Return what was counted as plain values."""
    return {
        "groups": counts.groups,
        "arrays": counts.arrays,
        "blobs": counts.blobs,
        "attributes": counts.attributes,
        "nbytes": counts.nbytes,
        "dtypes": [
            {"dtype": dtype, "objects": counts.number_by_dtype[dtype], "nbytes": nbytes}
            for dtype, nbytes in counts.bytes_by_dtype.most_common()
        ],
        "largest": [
            {"path": path, "dtype": dtype, "nbytes": nbytes}
            for nbytes, path, dtype in sorted(counts.largest, key=lambda each: (-each[0], each[1]))
        ],
    }


def _space(root: Namespace) -> dict[str, int]:
    """Return where a namespace's bytes are."""
    space = root.space
    return {
        "size": space.size,
        "used": space.used,
        "free": space.free,
        "pending": space.pending,
        "vacant": space.vacant,
        "arena": space.arena,
        "largest_free": space.largest_free,
        "catalog": space.catalog,
    }


def _devices(pool: Pool, root: Namespace) -> Iterator[dict[str, Any]]:
    """Yield each device, with the spans that the namespace has on it."""
    for device in pool.devices:
        folder = Path(device.path, pool.uuid, root.namespace, "shared")
        sizes = []
        with contextlib.suppress(OSError):
            sizes = [span.stat().st_size for span in folder.glob("span-*")]
        nbytes = sum(sizes)
        spans: int | None = len(sizes)
        if device.filesystem == "devdax":  # ranges of one node, which has no files
            nbytes, spans = machine.standing(device.path).free - device.free, None
        yield {
            "path": str(device.path),
            "filesystem": device.filesystem,
            "medium": device.medium,
            "durable": device.durable,
            "free": device.free,
            "spans": spans,
            "nbytes": nbytes,
        }


def _process(pid: int) -> str | None:
    """Return a process's name; None if it cannot be seen."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return None


def _print(told: dict[str, Any]) -> None:
    """Print it for people."""
    words = [counted(told[f"{what}s"], what) for what in ("group", "array", "blob", "attribute")]
    terminal.say(f"{', '.join(words)}; values {human(told['nbytes'])}")
    if told["dtypes"]:
        _table(told["dtypes"], "nbytes", "objects", "dtype", title="by dtype")
    if told["largest"]:
        _table(told["largest"], "nbytes", "dtype", "path", title="largest")
    if "space" in told:
        _print_space(told["space"])
        _print_index(told["index"])
        _table(
            told["devices"],
            *("filesystem", "medium", "free", "spans", "nbytes", "path"),
            title="devices",
        )
        holders.show(told["held"])
        others = [each for each in told["processes"] if each["pid"] != os.getpid()]
        names = [f"{each['pid']} ({each['name'] or 'not seen'})" for each in others]
        drawing.print_title("open in")
        terminal.say(f"  {', '.join(names) or 'no other process'}")


def _print_space(space: dict[str, int]) -> None:
    """Print where the space is, with a bar of what is used."""
    drawing.print_title("space")
    filled = math.ceil(_BAR * space["used"] / max(space["size"], 1))
    rows = {
        "used": f"{'█' * filled}{'░' * (_BAR - filled)} "
        f"{human(space['used'])} of {human(space['size'])}",
        "allocated": f"{human(space['arena'])}: {human(space['used'])} used, "
        f"{human(space['free'])} free (largest piece {human(space['largest_free'])}), "
        f"{human(space['pending'])} pending"
        + (f", {human(space['vacant'])} given back to the filesystem" if space["vacant"] else ""),
        "catalog": human(space["catalog"]),
    }
    drawing.print_facts(rows, indent=2)


def _print_index(index: dict[str, Any]) -> None:
    """Print what the index is made of, in short."""
    drawing.print_title("index")
    rows = {
        "sealed": f"{counted(index['sealed'] - index['dead'], 'object')} in "
        f"{counted(index['segments'], 'segment')}",
        "waiting": f"{index['tail']} to be sealed, {index['queued']} to be indexed",
        "not indexed": counted(index["unindexed"], "object"),
        "bytes": human(index["nbytes"]),
    }
    drawing.print_facts(rows, indent=2)


def _table(rows: list[dict[str, Any]], *columns: str, title: str) -> None:
    """Print rows under a title."""
    drawing.print_title(title)
    drawing.print_table(
        [_HEADINGS.get(column, column) for column in columns],
        [
            [
                human(row[c]) if c in ("nbytes", "free") else "" if row[c] is None else row[c]
                for c in columns
            ]
            for row in rows
        ],
        key=columns[-1],
        right=("objects", "bytes", "free", "spans"),
        indent=2,
    )
