"""Pictures of the kernels: `python -m bench.kernels.pictures RESULTS FOLDER`.

Drawn from the figures that `python -m bench` keeps as JSON: the kernels' share of the mount's peak
by the size of an object, and the share of a program's time that libraries take.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.kernels.names import ENGRAM, KERNELS, MIQS, PEAK
from bench.kernels.particles import UNIT_BYTES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {ENGRAM: "#1b6ca8", MIQS: "#c1272d", "h5py": "#c1272d", "netCDF4": "#e0a030"}
STYLES = {1: "-", 2: "--", 4: ":"}
KERNEL = re.compile(r"(\S+): (?:write|read) (\d+) ([KM]?i?B), (\d) process")
SHARE = re.compile(r"share of time in serialization, (\d+ [KM]iB) arrays")


def kernels(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw both kernels' share of the mount's peak."""
    figure = Figure(figsize=(10.0, 4.2), dpi=130, layout="constrained")
    panels = dict(zip(KERNELS.values(), figure.subplots(1, 2, sharey=True), strict=True))
    for (kernel, name, processes), points in series(lines).items():
        sizes, shares = zip(*sorted(points), strict=True)
        axes: Axes = panels[kernel]
        axes.plot(
            sizes,
            shares,
            STYLES[processes],
            color=COLOURS[name],
            marker=".",
            label=f"{name}, {processes} process{'es' * (processes > 1)}",
        )
    for (verb, kernel), axes in zip(KERNELS.items(), panels.values(), strict=True):
        axes.set_title(f"{kernel} ({verb})")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([1 << 8, 1 << 12, 1 << 15, 1 << 19, 1 << 22])
        axes.set_xticklabels(["256 B", "4 KiB", "32 KiB", "512 KiB", "4 MiB"])
        axes.set_xlabel("bytes of an object")
        axes.axhline(100, color="#888888", lw=0.8)
        axes.grid(alpha=0.25)
    panels[KERNELS["write"]].set_ylabel("percent of the mount's peak")
    panels[KERNELS["read"]].legend(fontsize=8)
    figure.savefig(path)


def series(lines: list[dict[str, Any]]) -> dict[tuple[str, str, int], list[tuple[int, float]]]:
    """Return, for kernel, contestant and number of processes, sizes and percents of the peak."""
    found: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
    for line in lines:
        if match := KERNEL.match(line["title"]):
            size = int(match[2]) * UNIT_BYTES[match[3]]
            for name in (ENGRAM, MIQS):
                share = 100 * line["medians"][PEAK] / line["medians"][name]
                found.setdefault((match[1], name, int(match[4])), []).append((size, share))
    return found


def serialization(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw the share of time in serialization."""
    shares = [(m[1], line["medians"]) for line in lines if (m := SHARE.match(line["title"]))]
    figure = Figure(figsize=(7.0, 3.6), dpi=130, layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate((ENGRAM, "h5py", "netCDF4")):
        at = [i + (place - 1) * 0.27 for i in range(len(shares))]
        heights = [100 * medians[name] for _, medians in shares]
        bars = axes.bar(at, heights, 0.25, color=COLOURS[name], label=name)
        axes.bar_label(bars, fmt="%.0f", fontsize=7, padding=1)
    axes.axhspan(64, 70, color="#888888", alpha=0.25, lw=0, label="the papers")
    axes.axhline(0, color="#333333", lw=0.8)
    axes.set_xticks(range(len(shares)))
    axes.set_xticklabels([size for size, _ in shares])
    axes.set_xlabel("bytes of an array")
    axes.set_ylabel("percent of the program's time")
    axes.legend(fontsize=8)
    figure.savefig(path)


def main() -> None:
    """Draw what the arguments name."""
    results, folder = map(Path, sys.argv[1:])
    lines = json.loads(results.read_text(encoding="utf-8"))["lines"]
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"font.size": 9}):
        if series(lines):
            kernels(lines, folder / "kernels.png")
        if any(SHARE.match(line["title"]) for line in lines):
            serialization(lines, folder / "serialization.png")


if __name__ == "__main__":
    main()
