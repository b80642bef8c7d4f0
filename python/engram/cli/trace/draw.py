"""The picture of a time line: a row for each file, and below how fast bytes were read, written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from engram.cli.pictures import INK, LINE, STYLE
from engram.cli.terminal import plain
from engram.extras import library

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from engram.cli.trace.timeline import Lane, Timeline

PARTS = 300
"""The picture has so many parts of the time."""
_WRITTEN = "#b2182b"
_USED = "#999999"
_WIDTH = 9.0
_ROW = 0.28
_DPI = 150
_LABEL = 48
_PAD = 0.1
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def draw(timeline: Timeline, title: str, file: BinaryIO, form: str) -> None:
    """Draw a time line into a file.

    Raises
    ------
    UnsupportedError
        If matplotlib is not installed.

    """
    mpl = library("matplotlib", "plot", "drawing")
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 - likewise

    with mpl.rc_context(STYLE):
        lanes_high = max(len(timeline.lanes), 1) * _ROW + 0.4
        figure = Figure(layout=ConstrainedLayoutEngine(w_pad=_PAD, h_pad=_PAD))
        figure.set_size_inches(_WIDTH, lanes_high + 2.4)
        rows, rates = figure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": [lanes_high, 1.7]}
        )
        _draw_rows(rows, timeline)
        rows.set_title(_escaped(title))
        _draw_rates(rates, timeline)
        figure.savefig(file, format=form, dpi=_DPI)


def _draw_rows(axes: Axes, timeline: Timeline) -> None:
    """Draw a row for each file: what was read above, what was written below, other use between."""
    for place, lane in enumerate(timeline.lanes.values()):
        for values, colour, low, high in _halves(lane):
            spans = [
                (part * timeline.seconds, timeline.seconds)
                for part, value in enumerate(values)
                if value
            ]
            axes.broken_barh(spans, (place + low, high), facecolors=colour, linewidth=0)
    axes.set_yticks(
        [place + 0.5 for place in range(len(timeline.lanes))],
        [_escaped(_shortened(path)) for path in timeline.lanes],
        fontsize=8,
    )
    axes.set_ylim(max(len(timeline.lanes), 1), 0)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlim(0, timeline.seconds * len(timeline.read))


def _halves(lane: Lane) -> list[tuple[list[int], str, float, float]]:
    """Return what is drawn of a file, in which colour, from where on and how high."""
    moved = [read + written for read, written in zip(lane.read, lane.written, strict=True)]
    idle = [0 if nbytes else used for nbytes, used in zip(moved, lane.used, strict=True)]
    return [
        (idle, _USED, 0.4, 0.2),
        (lane.read, LINE, 0.1, 0.38),
        (lane.written, _WRITTEN, 0.52, 0.38),
    ]


def _draw_rates(axes: Axes, timeline: Timeline) -> None:
    """Draw how fast bytes were read and written."""
    most = max(*timeline.rate("read"), *timeline.rate("written"))
    power = min(max((int(most).bit_length() - 1) // 10, 0), len(_UNITS) - 1)
    edges = [part * timeline.seconds for part in range(len(timeline.read) + 1)]
    for way, colour in (("read", LINE), ("written", _WRITTEN)):
        rates = [rate / 1024**power for rate in timeline.rate(way)]
        axes.stairs(rates, edges, color=colour, lw=1.2, label=way)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"{_UNITS[power]}/s")
    axes.set_xlabel("seconds since the first line")
    axes.grid(visible=True, color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    beside: Any = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0}
    axes.legend(frameon=False, labelcolor=INK, ncols=2, **beside)


def _shortened(path: str) -> str:
    """Return a path with its end, if it is long."""
    return path if len(path) <= _LABEL else f"…{path[-_LABEL + 1 :]}"


def _escaped(text: str) -> Any:
    """Return a text that matplotlib does not take for mathematics."""
    return plain(text).replace("$", r"\$")
