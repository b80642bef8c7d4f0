"""`engram trace`: what a mount has noted of the files that programs use."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli import output, terminal
from engram.cli.app import JsonOption, app, examples, file_path
from engram.cli.pictures import form_of
from engram.cli.terminal import counted
from engram.cli.trace import sums
from engram.cli.trace.draw import PARTS, draw
from engram.cli.trace.lines import Trace, escaped
from engram.cli.trace.timeline import Timeline
from engram.errors import ArgumentError
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.cli.trace.lines import Line

_MICRO = 1_000_000
_LABEL = 28
_PARTS = 60
"""So many parts of the time JSON has, and a place that is no terminal."""
_NARROWEST = 10


TraceArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A trace, or a ring.", parser=file_path)
]


@app.command(
    epilog=examples(
        "engram trace run.trace",
        "engram trace run.trace --sum",
        "engram trace run.trace --timeline --plot run.png",
        "engram trace run.trace --unread",
        "engram trace run.trace --order > stage.list",
    )
)
def trace(
    file: TraceArgument,
    *,
    raw: Annotated[bool, typer.Option("--raw", help="Print the lines as they are.")] = False,
    by_sum: Annotated[
        bool, typer.Option("--sum", help="Count by file and operation, with bytes and times.")
    ] = False,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Draw which files were read and written when.")
    ] = False,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE.png|-", help="The time line as a picture: png, pdf, svg, jpg."),
    ] = None,
    unread: Annotated[
        bool, typer.Option("--unread", help="List files that were opened or made, and not read.")
    ] = False,
    order: Annotated[
        bool, typer.Option("--order", help="List files in the order of their first use.")
    ] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Leave damaged lines out, and say how many.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a picture of this name.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show what was done to the files of a mount: `engram mount ... --trace FILE` notes it.

    A line has the time, the process, the operation, the bytes and the path. With --json, each line
    is one of JSON. docs/guide/trace.md tells more.
    """
    wanted = {
        "--raw": raw,
        "--sum": by_sum,
        "--timeline": timeline or plot is not None,
        "--unread": unread,
        "--order": order,
    }
    if sum(wanted.values()) > 1:
        names = " and ".join(name for name, is_wanted in wanted.items() if is_wanted)
        message = f"{names} are different things: ask for one at a time"
        raise ArgumentError(message)
    found = Trace(file, skip_damaged=skip_damaged)
    if by_sum:
        _tell_sums(found, json=json)
    elif wanted["--timeline"]:
        if plot is not None:
            _draw_timeline(found, file, plot, overwrite=overwrite, json=json)
        if timeline or json:
            _tell_timeline(found, json=json)
    elif unread:
        _tell_unread(found, json=json)
    elif order:
        _tell_order(found, json=json)
    elif raw:
        _tell_raw(found, json=json)
    else:
        _tell_lines(found, json=json)
    if found.skipped:
        terminal.note(f"{counted(found.skipped, 'damaged line')} left out")


def _iso(at: int) -> str:
    """Return a time in local time, to the µs."""
    seconds, micros = divmod(at, _MICRO)
    when = dt.datetime.fromtimestamp(seconds, tz=dt.UTC) + dt.timedelta(microseconds=micros)
    return when.astimezone().isoformat(timespec="microseconds")


def _tell_raw(found: Trace, *, json: bool) -> None:
    for raw, _ in found.both():
        text = raw.decode()
        if json:
            terminal.print_json(text, indent=None)
        elif sys.stdout.isatty():
            terminal.print_lines([text])
        else:
            sys.stdout.write(f"{text}\n")


def _tell_lines(found: Trace, *, json: bool) -> None:
    if json:
        for line in found.lines():
            terminal.print_json(_facts(line), indent=None)
        return
    headings = ["time", "pid", "operation", "bytes", "at", "path"]
    rows = (
        [_clock(line.at), str(line.pid), line.operation, *_words(line)] for line in found.lines()
    )
    terminal.print_stream(headings, rows, key="path", right=("pid", "bytes", "at"))


def _facts(line: Line) -> dict[str, object]:
    """Return a line as plain values."""
    place = "backend" if line.is_low_level else "path"
    named = line.named()
    if "address" in named:
        named["address"] = hex(int(named["address"]))
    return {
        "time": _iso(line.at),
        "operation": line.operation,
        "pid": line.pid,
        "tid": line.tid,
        place: line.place,
        **named,
    }


def _clock(at: int) -> str:
    """Return the time of a day, to the µs."""
    return _iso(at).partition("T")[2][:15]


def _words(line: Line) -> tuple[str, str, str]:
    """Return the bytes of a line, where they are, and the path with what belongs to it."""
    named = line.named()
    size = str(named["size"]) if "size" in named else ""
    at = hex(int(named["address"])) if "address" in named else str(named.get("offset", ""))
    path = line.place or "(no name)"
    if "to" in named:
        path = f"{path} -> {named['to']}"
    if "name" in named:
        path = f"{path} {named['name']}"
    if "call" in named:
        path = f"{path}: {named['call']}: {named['remedy']}"
    if "lines" in named:
        path = f"({counted(int(named['lines']), 'line')} could not be written)"
    return size, at, path


def _tell_sums(found: Trace, *, json: bool) -> None:
    told = sums.Sums(found.lines())
    rows = sorted(told.by_place.items())
    if json:
        terminal.print_json(
            {
                "lines": told.count,
                "pids": told.pids,
                "first": _iso(told.first) if told.count else None,
                "last": _iso(told.last) if told.count else None,
                "sums": [
                    {
                        "backend" if operation.startswith("nvml_") else "path": place,
                        "operation": operation,
                        "count": each.count,
                        "nbytes": each.nbytes,
                        "first": _iso(each.first),
                        "last": _iso(each.last),
                    }
                    for (place, operation), each in rows
                ],
            }
        )
        return
    since = f" in {_seconds(told.last - told.first)} s from {_iso(told.first)}" if rows else ""
    terminal.say(
        f"{counted(told.count, 'line')} of {len(told.pids)} "
        f"process{'' if len(told.pids) == 1 else 'es'}{since}"
    )
    headings = ["operation", "count", "bytes", "from", "to", "path"]
    shown = (
        [
            operation,
            str(each.count),
            human(each.nbytes) if each.nbytes else "",
            _seconds(each.first - told.first),
            _seconds(each.last - told.first),
            place or "(no name)",
        ]
        for (place, operation), each in rows
    )
    terminal.print_stream(headings, shown, key="path", right=("count", "bytes", "from", "to"))


def _seconds(micros: int) -> str:
    return f"{micros / _MICRO:.3f}"


def _tell_unread(found: Trace, *, json: bool) -> None:
    files = sums.unread(found.lines())
    if json:
        told = [{"path": each.path, "made": each.is_new, "written": each.written} for each in files]
        terminal.print_json(told)
        return
    rows = (["made" if each.is_new else "opened", human(each.written), each.path] for each in files)
    terminal.print_stream(["was", "written", "path"], rows, key="path", right=("written",))


def _tell_order(found: Trace, *, json: bool) -> None:
    paths = sums.order(found.lines())
    if json:
        terminal.print_json(paths)
    else:
        # As they stand in a trace, so that each is one line.
        sys.stdout.writelines(f"{escaped(path)}\n" for path in paths)


def _draw_timeline(found: Trace, file: Path, target: str, *, overwrite: bool, json: bool) -> None:
    form = form_of(target)
    drawn = Timeline(found, PARTS)
    with output.writing(target, overwrite=overwrite) as opened:
        draw(drawn, f"{file.name}: files over time", opened, form)
    if not json and output.standard(target) is None:
        terminal.say(f"{target}: the time line of {counted(len(drawn.lanes), 'file')}")


def _tell_timeline(found: Trace, *, json: bool) -> None:
    shown = Timeline(found, _PARTS if json else _width())
    if json:
        told = shown.told()
        terminal.print_json({**told, "first": _iso(shown.first), "last": _iso(shown.last)})
    else:
        terminal.print_lines(_drawn(shown))


def _width() -> int:
    """Return how many parts of the time fit beside the paths."""
    if not sys.stdout.isatty():
        return _PARTS - _LABEL // 2
    return max(terminal.text_width() - _LABEL - 2, _NARROWEST)


def _drawn(shown: Timeline) -> Iterator[str]:
    """Yield the lines of a time line."""
    for path, row in shown.rows():
        yield f"{_fitted(path)} {row}".rstrip()
    if shown.left_out:
        yield f"({counted(shown.left_out, 'file')} of which less was read and written: left out)"
    for way in ("read", "written"):
        peak = human(int(max(shown.rate(way))))
        label = f"{way}, {peak}/s at most"
        yield f"{_fitted(label)} {shown.levels(way)}".rstrip()
    yield f"{_fitted('')} {_scale(shown)}"
    yield "r is read, w written, x both; capitals are much; . is other use"


def _fitted(label: str) -> str:
    label = terminal.plain(label)
    return label.ljust(_LABEL) if len(label) <= _LABEL else f"…{label[-_LABEL + 1 :]}"


def _scale(shown: Timeline) -> str:
    """Return the line below: where the time begins, and how long it is."""
    end = f"{shown.seconds * len(shown.read):.3f} s"
    return f"0 s{end.rjust(len(shown.read) - 3)}"
