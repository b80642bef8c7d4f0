"""The picture of the main job: the last field, and how its energy went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engram.demo.layout import CHANNEL, DIAGNOSTICS, STRIPS, array, gather
from engram.demo.shallow_water import relative_vorticity

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    import engram

DAY_S = 86400.0
INK = "#333333"
KILL = "#c1272d"


def draw(pool: engram.Pool, step: int, killed: tuple[str, int], path: Path) -> None:
    """Draw the vorticity at `step` and the time series that the observer left in the pool.

    `killed` names the strip and the step at which its first writer died.
    """
    import matplotlib as mpl  # noqa: PLC0415 - only the demo needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"font.size": 9, "axes.edgecolor": INK, "axes.linewidth": 0.8}):
        figure = Figure(figsize=(10.0, 7.4), dpi=150, layout="constrained")
        field, series = figure.subplots(2, 1, height_ratios=(2.6, 1.0))
        draw_field(field, pool, step)
        draw_series(series, pool, step, killed)
        figure.savefig(path)


def draw_field(axes: Axes, pool: engram.Pool, step: int) -> None:
    """Draw relative vorticity over the Coriolis parameter, the strips' border and the thickness."""
    state = gather(pool, slice(0, CHANNEL.ny), step)
    spin = relative_vorticity(state, CHANNEL) / CHANNEL.coriolis_s
    width_km, height_km = CHANNEL.nx * CHANNEL.cell_m / 1e3, CHANNEL.ny * CHANNEL.cell_m / 1e3
    extent = (0.0, width_km, 0.0, height_km)
    limit = float(np.ceil(np.abs(spin).max() * 2) / 2)
    image = axes.imshow(
        spin,
        origin="lower",
        extent=extent,
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        interpolation="bilinear",
    )
    lines = axes.contour(state.h, levels=8, extent=extent, colors=INK, linewidths=0.5, alpha=0.45)
    axes.clabel(lines, levels=list(lines.levels)[::2], fmt="%.0f m", fontsize=6.5)
    for strip in list(STRIPS.values())[1:]:
        axes.axhline(strip.first * CHANNEL.cell_m / 1e3, color=INK, lw=0.8, ls=(0, (6, 4)))
    for name, strip in STRIPS.items():
        up = strip.last == CHANNEL.ny
        axes.annotate(
            f"rows of writer {name}",
            (0.012, 0.965 if up else 0.035),
            xycoords="axes fraction",
            va="top" if up else "bottom",
            color=INK,
        )
    days = step * CHANNEL.step_s / DAY_S
    axes.set_title(f"An unstable jet after {days:.1f} days, thickness contoured", loc="left")
    axes.set_xlabel("x (km)")
    axes.set_ylabel("y (km)")
    bar = axes.figure.colorbar(image, ax=axes, pad=0.015, aspect=26, shrink=0.86)
    bar.set_label("relative vorticity / Coriolis parameter (1)")


def draw_series(axes: Axes, pool: engram.Pool, step: int, killed: tuple[str, int]) -> None:
    """Draw what the observer measured: how energy and mass changed, and when the writer died."""
    days = np.arange(step + 1) * CHANNEL.step_s / DAY_S
    for quantity, colour in (("energy", "#1f5a94"), ("mass", "#e08214")):
        total = sum(np.asarray(array(pool, f"{DIAGNOSTICS}/{name}/{quantity}")) for name in STRIPS)
        values = np.asarray(total)
        axes.plot(days, (values / values[0] - 1) * 100, color=colour, lw=1.6, label=quantity)
    name, died = killed
    axes.axvline(days[died], color=KILL, lw=1.0, ls=(0, (4, 3)))
    axes.annotate(
        f"writer {name} killed,\nanother takes over",
        (float(days[died]), 0.12),
        xycoords=("data", "axes fraction"),
        xytext=(6, 0),
        textcoords="offset points",
        color=KILL,
        fontsize=8,
    )
    axes.set_xlim(0, days[-1])
    axes.set_xlabel("model time (days)")
    axes.set_ylabel("change since start (%)")
    axes.legend(frameon=False, loc="lower left", ncols=2)
    axes.grid(color=INK, alpha=0.12, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
