"""The measurements without Python: the program in `bench/own/rust`, built and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.harness import PLACES, Bound, Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "engram-bench"
FEW, MANY = 10_000, 1_000_000
CATALOG_BYTES = 160
WITHOUT = (  # what scopes cost who has none, and what checksums cost
    Bound("engram", "engram, one realm alone", "time", 1.1),
    Bound("engram, checksums", "engram", "show"),
)


def build() -> None:
    """Build the program, and MIQS+ for Python, if they are not up to date."""
    command = ["cargo", "build", "--release", "--quiet", "-p", "engram-bench", "-p", "engram-miqs"]
    python = {"PYO3_PYTHON": sys.executable, "PYO3_BUILD_EXTENSION_MODULE": "1"}
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | python)  # noqa: S603


def run(*arguments: object) -> dict[str, Any]:
    """Return what the program prints, which is JSON."""
    command = [str(PROGRAM), *(str(argument) for argument in arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def small(setting: Setting) -> Iterator[Line]:
    """Create 256 B arrays from Rust, beside bare LMDB putting the same rows."""
    answer = repeated("small", setting.folder, setting.scaled(6_000), setting.rounds)
    for kind, title in (("single", "one commit each"), ("batched", "batches of 1000")):
        bounds = [Bound("engram", "bare LMDB", "time", 1.5), *WITHOUT]
        yield Line(f"from Rust: create a 256 B array, {title}", "us", bounds, answer[kind])
    yield Line(
        "from Rust: read a 256 B array by path",
        "us",
        [Bound("engram", "bare LMDB", "show"), *WITHOUT],
        answer["read"],
    )


def growth(setting: Setting) -> Iterator[Line]:
    """Create arrays where there are very many already, beside where there are few."""
    few, many = setting.scaled(FEW), setting.scaled(MANY)
    puts = setting.scaled(500)
    for names, title in (("ordered", "ordered names"), ("random", "random names")):
        answer = repeated("growth", setting.folder, names, few, many, puts, setting.rounds)
        line = Line(f"create at {many:,} objects against {few:,}, {title}", "us", [])
        line.samples.update(answer["samples"])
        line.bounds.append(Bound("bare LMDB, many", "bare LMDB, few", "show"))
        if names == "ordered":
            line.bounds.insert(0, Bound("engram, many", "engram, few", "time", 1.5))
        else:
            line.bounds.insert(0, Bound("engram, many", "engram, few", "show"))
            yield growth_ratio(line.samples)
        yield line
        beyond = f"catalog bytes per small object beyond value and name, {title}"
        bounds = [Bound("engram", "", "value", CATALOG_BYTES)] if names == "ordered" else []
        yield Line(beyond, "B", bounds, answer["catalog"])


def repeated(*arguments: object) -> dict[str, dict[str, list[float]]]:
    """Measure on several pools, one after the other; all their samples."""
    together, *others = (run(*arguments) for _ in range(PLACES))
    for other in others:
        for part, samples in other.items():
            for name, more in samples.items():
                together[part][name] += more
    return together


def growth_ratio(samples: dict[str, list[float]]) -> Line:
    """How much more Engram's time grows with the number of objects than LMDB's does."""
    ours = median(samples["engram, many"]) / median(samples["engram, few"])
    theirs = median(samples["bare LMDB, many"]) / median(samples["bare LMDB, few"])
    title = "growth of that time over bare LMDB's, random names"
    return Line(title, "x", [Bound("engram", "", "value", 1.2)], {"engram": [ours / theirs]})
