"""Tables of the kernels, of the share of serialization and of modes, in Markdown."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bench.kernels.names import BATCHED, CALLS, ENGRAM, KERNELS, LIMITS, MIQS, MODES, PEAK
from bench.kernels.particles import UNIT_BYTES
from bench.kernels.pictures import KERNEL, SHARE
from bench.page import measured

if TYPE_CHECKING:
    from bench.marks import Blocks

OTHERS = ("engram, none", "engram, async", BATCHED)
MIB = 1 << 20
FILES = ("h5py", "netCDF4")


def kernel(lines: list[dict[str, Any]], verb: str) -> list[str]:
    """Return the table of one kernel, a row for each size and number of processes."""
    others = [name for name in (*MODES, BATCHED) if name != ENGRAM] if verb == "write" else []
    head = ["object", "processes", "Engram, µs", "MIQS+ on HDF5, µs", "ratio", "asked"]
    head += ["Engram, % of peak", "MIQS+, % of peak", *(f"{name[8:]}, µs" for name in others)]
    rows = [head, ["---:"] * len(head)]
    for line in lines:
        match = KERNEL.match(line["title"])
        if not match or match[1] != KERNELS[verb]:
            continue
        medians = line["medians"]
        ours, theirs, peak = medians[ENGRAM], medians[MIQS], medians[PEAK]
        limit = LIMITS[verb].get(int(match[2]) * UNIT_BYTES[match[3]])
        ratio = line["bounds"][0]["ratio"]
        missed = "" if line["bounds"][0]["met"] in (None, True) else " **missed**"
        rows.append(
            [
                f"{match[2]} {match[3]}",
                match[4],
                micro(ours),
                micro(theirs),
                f"{ratio:.1f}{missed}",
                f"{limit:g}" if limit else "",
                percent(peak / ours),
                percent(peak / theirs),
                *(micro(medians[name]) for name in others),
            ]
        )
    return ["| " + " | ".join(row) + " |" for row in rows]


def peaks(lines: list[dict[str, Any]]) -> list[str]:
    """Return the table of the mount's peaks, in GiB/s of all processes together."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    for line in lines:
        if match := KERNEL.match(line["title"]):
            size = int(match[2]) * UNIT_BYTES[match[3]]
            for kind in (PEAK, CALLS):
                speed = size / line["medians"][kind] / (1 << 30)
                found.setdefault(match[4], {})[match[1], kind] = speed
    rows = ["| processes | copy in | copy out | pwrite | preadv |", "|---:|---:|---:|---:|---:|"]
    for processes, speeds in found.items():
        order = [(kernel, kind) for kind in (PEAK, CALLS) for kernel in KERNELS.values()]
        rows.append(f"| {processes} | " + " | ".join(f"{speeds[o]:.1f}" for o in order) + " |")
    return rows


def shares(lines: list[dict[str, Any]]) -> list[str]:
    """Return the table of shares in serialization, with the program's time in brackets."""
    names = (ENGRAM, *FILES)
    rows = ["| array | Engram | h5py | netCDF4 |", "|---:|---:|---:|---:|"]
    for line, next_line in pairwise(lines):
        if match := SHARE.match(line["title"]):
            cells = [
                f"{percent(line['medians'][n])} % ({next_line['medians'][n] * 1e3:.0f} ms)"
                for n in names
            ]
            rows.append(f"| {match[1]} | " + " | ".join(cells) + " |")
    return rows


def modes(lines: list[dict[str, Any]]) -> list[str]:
    """Return the table of modes."""
    rows = ["| | none | async | sync | async/none | asked |", "|---|---:|---:|---:|---:|---:|"]
    for line in lines:
        if "with 8 attributes" not in line["title"]:
            continue
        medians = line["medians"]
        bound = next(iter(line["bounds"]), None)
        shown = [f"{medians[mode] / MIB:.2f} MiB" for mode in ("none", "async", "sync")]
        if bound:
            shown = [f"{micro(medians[mode])} µs" for mode in ("none", "async", "sync")]
        missed = " **missed**" if bound and not bound["met"] else ""
        end = [f"{bound['ratio']:.2f}{missed}", f"{bound['limit']:g}"] if bound else ["", ""]
        rows.append("| " + " | ".join([line["title"], *shown, *end]) + " |")
    return rows


def micro(second: float) -> str:
    """Return microseconds in three digits."""
    return f"{second * 1e6:.3g}" if second < 1e-3 else f"{second * 1e6:.0f}"  # noqa: PLR2004


def percent(share: float) -> str:
    """Return a share in percent, in two digits."""
    return f"{share * 100:.2g}" if abs(share) < 1 else f"{share * 100:.0f}"


def blocks(held: dict[str, Any]) -> Blocks:
    """Return what the page has from a file of results."""
    lines = held["lines"]
    return {
        "measured": [measured(held)],
        "write": kernel(lines, "write"),
        "read": kernel(lines, "read"),
        "peaks": peaks(lines),
        "shares": shares(lines),
        "modes": modes(lines),
    }
