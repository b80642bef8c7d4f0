"""What was measured, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from bench.harness import Bound, Line

HERE = Path(__file__).resolve().parent
SCALES = {
    "ms": 1e3,
    "us": 1e6,
    "B": 1.0,
    "x": 1.0,
    "%": 100.0,
    "MiB": 2.0**-20,
    "TTL": 1.0,
    "": 1.0,
}
PACKAGES = (
    *("engram", "numpy", "h5py", "netCDF4", "zarr", "lmdb", "vineyard", "duckdb", "adios2"),
    *("redis", "hiredis", "dataclay"),
)
COLUMNS = ("work", "", "against", "ratio", "required", "verdict")


def table(lines: list[Line]) -> Table:
    """Every line's bounds: who, against whom, the ratio, what is required, and the verdict."""
    drawn = Table(box=None, padding=(0, 1), header_style="dim")
    for place, column in enumerate(COLUMNS):
        drawn.add_column(column, justify="right" if place == 3 else "left")  # noqa: PLR2004
    for line in lines:
        for place, row in enumerate(rows(line)):
            drawn.add_row(line.title if place == 0 else "", *row)
    return drawn


def rows(line: Line) -> list[tuple[str, str, str, str, str]]:
    """Return the table's rows of a line; plain values if nothing is compared."""
    judged = [
        (
            amount(line, bound.ours),
            amount(line, bound.peer) if bound.peer else "",
            "" if bound.kind == "value" else f"{ratio:.2f} x",
            required(bound, line.unit),
            verdict(bound, ratio, met),
        )
        for bound, ratio, met in line.judged()
    ]
    return judged or [(amount(line, name), "", "", "", "") for name in line.samples]


def amount(line: Line, name: str) -> str:
    """Return a contestant and its median, in the line's unit."""
    value = median(line.samples[name]) * SCALES[line.unit]
    return f"{name} {value:.3g} {line.unit}".rstrip()


def required(bound: Bound, unit: str) -> str:
    """Return what a bound asks for, in words."""
    match bound.kind:
        case "speed" if unit in {"B", "MiB"}:
            return f"at least {bound.limit:g} x smaller"
        case "speed":
            return f"at least {bound.limit:g} x as fast"
        case "time":
            return f"at most {bound.limit:g} x the time"
        case "value":
            return f"at most {bound.limit * SCALES[unit]:g} {unit}".rstrip()
        case "show":
            return ""


def verdict(bound: Bound, ratio: float, met: bool | None) -> str:
    """Met or missed; where nothing is required, whether we are slower."""
    if met is None:
        return "[yellow]slower[/]" if bound.ours == "engram" and ratio < 1 else ""
    return "[green]met[/]" if met else "[bold red]MISSED[/]"


def contents(lines: list[Line], *, quick: bool, absent: dict[str, str]) -> dict[str, Any]:
    """Return what the JSON file holds."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "quick": quick,
        "machine": machine(),
        "packages": {name: found for name in PACKAGES if (found := installed(name))},
        "absent": absent,
        "lines": [
            {
                "title": line.title,
                "unit": "s" if line.unit in {"ms", "us"} else line.unit,
                "medians": {name: median(values) for name, values in line.samples.items()},
                "samples": line.samples,
                "bounds": [
                    {
                        "ours": bound.ours,
                        "peer": bound.peer,
                        "kind": bound.kind,
                        "limit": bound.limit,
                        "ratio": ratio,
                        "met": met,
                    }
                    for bound, ratio, met in line.judged()
                ],
            }
            for line in lines
        ],
    }


def write(path: Path, held: dict[str, Any]) -> None:
    """Write the JSON file whole, in place of an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def machine() -> dict[str, str | int]:
    """Return what the figures depend on: processor, cores, kernel, huge pages."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    huge = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "shmem_huge_pages": huge.read_text(encoding="utf-8").strip() if huge.exists() else "",
    }


def commit(tree: Path = HERE) -> str:
    """Name a tree's commit; with "-dirty", what was measured is more than that."""
    words = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)  # noqa: S603
    return done.stdout.strip()


def installed(package: str) -> str | None:
    """Return the version of a package, if it is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
