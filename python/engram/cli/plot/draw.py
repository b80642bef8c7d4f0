"""Drawing what was chosen, with matplotlib: a line, an image, a map, points on a map."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import math
import textwrap
import warnings
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from engram.cli.pictures import LINE, STYLE
from engram.cli.terminal import plain
from engram.conventions import Role
from engram.errors import ArgumentError, EngramError
from engram.extras import library

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from engram.cli.plot.choose import Axis, Choice

_TAIL = 0.5
"""Per cent of the values at each end that may lie outside of the colours, if they lie far out."""
_FAR = 2.0
_BOTH_SIGNS = 0.25
"""Colours diverge from zero if the smaller side is at least this part of the larger."""
_WIDTH = 8.0
_PAD = 0.1
_FEW_POINTS = 60
_MARKS = 7
_STEPS = (
    *(n * 10.0**e for e in range(-6, 0) for n in (1, 2, 5)),
    *(1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0),
)
_KM = 1e5
"""From so many metres on, places on a projection are marked in kilometres."""
_TITLE_WIDTH = 90
_REACH = 100
"""Powers of ten beyond which matplotlib's arithmetic may fail."""
_LEAST_POWER = -300


def draw(choice: Choice, file: BinaryIO, form: str, dpi: int) -> None:
    """Draw a choice into a file.

    Raises
    ------
    UnsupportedError
        If matplotlib is not installed.
    ArgumentError
        If it cannot draw these values.

    """
    mpl = library("matplotlib", "plot", "drawing")
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 - likewise

    choice = _in_reach(choice)
    with mpl.rc_context(STYLE), _as_one_error(choice):
        room = ConstrainedLayoutEngine(compress=True, w_pad=_PAD, h_pad=_PAD)
        figure = Figure(layout=room)
        axes = figure.add_subplot()
        if choice.kind == "line":
            figure.set_size_inches(_WIDTH, 0.5 * _WIDTH)
            _draw_line(axes, choice)
        else:
            _draw_field(figure, axes, choice)
        _write_title(axes, choice)
        # A script that matplotlib's font lacks is drawn as boxes; there is nothing to be done.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(file, format=form, dpi=dpi)


@contextlib.contextmanager
def _as_one_error(choice: Choice) -> Iterator[None]:
    """Make one error of what matplotlib says of values that are too much for it."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            yield
        except EngramError:
            raise
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            message = f"{choice.title}: matplotlib cannot draw these values: {error}"
            raise ArgumentError(message) from error


def _in_reach(choice: Choice) -> Choice:
    """Return a choice with numbers that matplotlib can reckon with: a power of ten is told."""
    values, label = _scaled(choice.values, choice.label)
    axes = {}
    for name in ("x", "y"):
        axis = getattr(choice, name)
        if axis is not None and axis.times is None:
            places, told = _scaled(axis.values, axis.label)
            axes[name] = dataclasses.replace(axis, values=places, label=told)
    return dataclasses.replace(choice, values=values, label=label, **axes)


def _scaled(values: NDArray[Any], label: str) -> tuple[NDArray[Any], str]:
    """Return numbers that are very large, or all very small, in a power of ten."""
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    power = math.floor(math.log10(largest)) if largest else 0
    if abs(power) < _REACH:
        return values, label
    power = max(power, _LEAST_POWER)
    return values / 10.0**power, f"{label} (in 1e{power})"


def _write_title(axes: Axes, choice: Choice) -> None:
    """Write what is drawn, and which place of the other dimensions."""
    fixed = ", ".join(choice.fixed)
    if choice.step > 1:
        fixed += f"{'; ' if fixed else ''}one of every {choice.step} values"
    if not np.isfinite(choice.values).any():
        fixed += f"{'; ' if fixed else ''}every value is missing"
    lines = [*textwrap.wrap(choice.title, _TITLE_WIDTH)[:2], *textwrap.wrap(fixed, _TITLE_WIDTH)]
    axes.set_title("\n".join(map(_escaped, lines)))


def _draw_line(axes: Axes, choice: Choice) -> None:
    """Draw values against places."""
    x = _places(choice.x)
    marked = len(choice.values) <= _FEW_POINTS
    axes.plot(x, choice.values, color=LINE, lw=1.2, marker="o" if marked else None, ms=3)
    axes.set_ylabel(_escaped(choice.label))
    if choice.dated:
        axes.yaxis_date()
    axes.grid(visible=True, color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    _set_axis(axes, choice.x, "x")


def _draw_field(figure: Figure, axes: Axes, choice: Choice) -> None:
    """Draw values as colours, on a plane or on points."""
    from matplotlib import dates  # noqa: PLC0415
    from matplotlib.ticker import MultipleLocator, ScalarFormatter  # noqa: PLC0415

    y = choice.y
    assert y is not None, "only a line has no second axis"  # noqa: S101 - as `choose` makes it
    colours = _colours(choice.values, signed=not choice.dated)
    extend = colours.pop("extend")
    x_places, y_places = _places(choice.x), _places(y)
    if choice.x.role is Role.longitude:
        x_places = _unbroken(x_places)
    axes.set_facecolor("#e8e8e8")  # where values are missing
    if choice.kind == "points":
        order = np.argsort(~np.isnan(choice.values), kind="stable")  # missing ones below
        size = float(np.clip(20000 / max(len(order), 1), 2, 60))
        drawn: Any = axes.scatter(
            x_places[order], y_places[order], c=choice.values[order], s=size, **colours
        )
    else:
        drawn = axes.pcolormesh(
            x_places, y_places, choice.values, shading="nearest", rasterized=True, **colours
        )
    geographic = choice.kind in ("map", "points")
    flat = {choice.x.role, y.role} == {Role.x, Role.y}
    if geographic or flat:
        stretch = _stretch(y_places) if geographic else 1.0
        axes.set_aspect(stretch)
        ratio = float(np.ptp(y_places) * stretch / max(np.ptp(x_places), 1e-30))
    else:
        ratio = choice.whole[0] / choice.whole[1]
    ratio = float(np.clip(ratio, 0.35, 1.2))
    figure.set_size_inches(_WIDTH, _WIDTH * 0.82 * ratio + 1.0)
    below = ratio < 0.6  # noqa: PLR2004 - a wide picture has room below
    marks: Any = ScalarFormatter()
    marks.set_powerlimits((-3, 5))
    ticks = None
    if choice.dated:
        untyped: Any = dates
        ticks = untyped.AutoDateLocator()
        marks = untyped.ConciseDateFormatter(ticks)
    bar = figure.colorbar(
        drawn,
        ax=axes,
        extend=extend,
        location="bottom" if below else "right",
        shrink=0.8 if below else 1.0,
        aspect=40 if below else 25,
        format=marks,
        ticks=ticks,
    )
    bar.set_label(_escaped(choice.label))
    bar.outline.set_linewidth(0.6)
    if geographic:
        axes.grid(visible=True, color="white", lw=0.5, alpha=0.5)
        axes.xaxis.set_major_formatter(lambda value, _: _degrees(value, "E", "W"))
        axes.yaxis.set_major_formatter(lambda value, _: _degrees(value, "N", "S"))
        for axis, places in ((axes.xaxis, x_places), (axes.yaxis, y_places)):
            axis.set_major_locator(MultipleLocator(_step(float(np.ptp(places)))))
        return
    _set_axis(axes, choice.x, "x")
    _set_axis(axes, y, "y")


def _set_axis(axes: Axes, axis: Axis, which: str) -> None:
    """Label one direction, and turn it."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    drawn = axes.xaxis if which == "x" else axes.yaxis
    drawn.set_label_text(_escaped(axis.label))
    if axis.times is not None and not isinstance(axis.times[0], dt.datetime):
        # A calendar that matplotlib does not know: the places are indices, marked with times.
        drawn.set_major_locator(MaxNLocator(6, integer=True))
        times = axis.times

        def shown(value: float, _: object) -> str:
            outside = not axis.values[0] <= value <= axis.values[-1]
            place = int(np.abs(axis.values - value).argmin())
            return "" if outside else times[place].isoformat()[:10]

        drawn.set_major_formatter(shown)
    elif axis.label.endswith("(index)"):
        drawn.set_major_locator(MaxNLocator(8, integer=True))
    elif axis.label.endswith(" [m]") and np.abs(axis.values).max() >= _KM:
        drawn.set_label_text(_escaped(axis.label.removesuffix("[m]") + "[km]"))
        drawn.set_major_formatter(lambda value, _: f"{value / 1000:g}")
    if axis.down and which == "y":
        drawn.set_inverted(True)


def _places(axis: Axis) -> NDArray[Any]:
    """Return what matplotlib places points by."""
    if axis.times is not None and isinstance(axis.times[0], dt.datetime):
        return np.array(axis.times, dtype="M8[us]")
    return axis.values


def _colours(values: NDArray[Any], *, signed: bool) -> dict[str, Any]:
    """Return the colours and their range: diverging about zero, without what lies far out."""
    known = values[np.isfinite(values)]
    if not known.size:
        return {"cmap": "viridis", "vmin": 0.0, "vmax": 1.0, "extend": "neither"}
    low, high = float(known.min()), float(known.max())
    whole = bool(np.all(known == np.round(known)))  # codes and counts are all shown
    inner = np.percentile(known, [_TAIL, 100 - _TAIL])
    extend = "neither"
    if not whole and high - low > _FAR * (inner[1] - inner[0]) > 0:
        extend = {(True, True): "both", (True, False): "min", (False, True): "max"}[
            bool(low < inner[0]), bool(high > inner[1])
        ]
        low, high = float(inner[0]), float(inner[1])
    if signed and low < 0 < high and min(-low, high) > _BOTH_SIGNS * max(-low, high):
        limit = max(-low, high)
        return {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "extend": extend}
    if low == high:
        low, high = low - 0.5, high + 0.5
    return {"cmap": "viridis", "vmin": low, "vmax": high, "extend": extend}


def _unbroken(longitude: NDArray[Any]) -> NDArray[Any]:
    """Return longitudes without jumps of 360 degrees from one to the next of a grid."""
    if longitude.ndim == 1:
        return longitude
    return np.unwrap(np.unwrap(longitude, period=360, axis=1), period=360, axis=0)


def _stretch(latitude: NDArray[Any]) -> float:
    """Return how much longer a degree north is than a degree east, in the middle of a map."""
    if np.ptp(latitude) > 90:  # noqa: PLR2004 - a large part of the globe
        return 1.0
    middle = float(np.clip(latitude.min() / 2 + latitude.max() / 2, -80, 80))
    return float(1 / np.cos(np.deg2rad(middle)))


def _step(span: float) -> float:
    """Return the degrees from one mark to the next."""
    return next((step for step in _STEPS if span / step <= _MARKS), _STEPS[-1])


def _degrees(value: float, positive: str, negative: str) -> str:
    """Return a degree as maps have it: 30°N, 160°W."""
    if positive == "E":
        value = (value + 180) % 360 - 180
    shown = f"{abs(value):g}°"
    at_end = positive == "E" and abs(value) == 180  # noqa: PLR2004 - neither east nor west
    return shown if value == 0 or at_end else shown + (positive if value > 0 else negative)


def _escaped(text: str) -> str:
    """Return text that shows as it is: without mathematics, or what no font has a sign for."""
    return plain(text).replace("$", r"\$")
