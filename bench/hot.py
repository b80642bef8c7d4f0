"""`make hot`: the dozen lines that a user feels first, as ratios, beside those that landed last.

It runs before every landing: a path that becomes slower is seen on the day it does. Each line is a
ratio to a peer, or to ourselves in another mode, measured in the same run; so a ratio may be put
beside one of another day and another machine, where a time may not. Fewer rounds and objects than
`make bench` has make this quick: a change of less than a tenth is not seen here.

`bench/results/hot.json` as it is in the last commit has what landed. A run writes it anew, and the
landing commits it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engram
from bench import report, setting
from bench.__main__ import LINES, MEMORY
from bench.active.small import CALLS, repeated
from bench.active.ways.engram_blocks import Tally
from bench.evaluation import building
from bench.harness import Bound, Contestant, Line, measure, timed
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Work = Callable[[], object]

OUT = Path(__file__).parent / "results" / "hot.json"
PEERS = ("LMDB",)
"""The peers that all lines of `bench` are given; some have others of their own."""
WORSE = 1.1
"""A ratio that has become so many times greater is marked."""


@dataclass(frozen=True)
class Hot:
    """A line of `bench`, and what of it is looked at: our time over the other's."""

    part: str
    title: str
    against: str
    ours: str = "engram"


ATTRIBUTES = "index an object of 37 attributes, batches of 1000"
HOT = (
    Hot("rust", "from Rust: create a 256 B array, one commit each", "bare LMDB"),
    Hot("rust", "from Rust: create a 256 B array, batches of 1000", "bare LMDB"),
    Hot("rust", "from Rust: read a 256 B array by path", "bare LMDB"),
    Hot("create", "create a 256 B array, one commit each", "LMDB"),
    Hot("create", "create a 256 B array, batches of 1000", "LMDB"),
    Hot("read", "read a 256 B array by path", "LMDB"),
    Hot("pair", "two processes creating 256 B arrays", "one process"),
    Hot("put", "put 64 MiB, space touched before", "memcpy"),
    Hot("chunks", "write 64 MiB in chunks of 1 MiB, lz4", "zarr"),
    Hot("chunks", "read 64 MiB in chunks of 1 MiB, lz4", "zarr"),
    Hot("chunks", "append one chunk", "to 300 chunks", ours="to 30 000"),
    Hot("attributes", ATTRIBUTES, "MIQS+", ours="engram, store and index"),
    Hot("methods", "call an active method that does nothing", "an attribute is read"),
    Hot("methods", "call an active method that changes a field", "an attribute is read"),
)


def attributes(own: setting.Setting) -> Iterator[Line]:
    """Store and index objects of 37 attributes: one line of the part `index-time`.

    MIQS+ takes half as long again where others use the processor's caches, so a few rounds do not
    tell.
    """
    yield building.indexed(own, 37, rounds=9)


def methods(own: setting.Setting) -> Iterator[Line]:
    """Call methods of a stored object, beside reading an attribute.

    OpenTelemetry's API is there, as in each program with a package that imports it; nobody listens.
    """
    with suppress(ImportError):
        importlib.import_module("opentelemetry.trace")
    with engram.create(own.folder / "methods", size="64 MiB") as pool:
        tally = Tally()
        tally.make_persistent(backend_id=pool)
        attrs = pool.create_array("a", data=[1.0], attrs={"n": 1}).attrs
        works: dict[str, Work] = {"does nothing": tally.nothing, "changes a field": tally.increment}
        for title, work in works.items():
            turns: dict[str, Work] = {
                "engram": work,
                "an attribute is read": partial(attrs.get, "n"),
            }
            contestants = [
                Contestant(name, partial(timed, repeated(each, CALLS), CALLS))
                for name, each in turns.items()
            ]
            yield measure(
                Line(f"call an active method that {title}", "us", []), contestants, 3 * own.rounds
            )


def measured() -> dict[str, Line]:
    """Measure the lines of `HOT`, by title."""
    setting.PEERS = {name: place for name, place in setting.PEERS.items() if name in PEERS}
    parts = LINES | {"attributes": attributes, "methods": methods}
    lines: dict[str, Line] = {}
    with tempfile.TemporaryDirectory(prefix="engram-hot-", dir=MEMORY) as folder:
        own = setting.Setting(Path(folder), quick=True, tell=print)
        for part in dict.fromkeys(hot.part for hot in HOT):
            lines |= {line.title: line for line in parts[part](own)}
    return lines


def landed() -> dict[str, Any]:
    """Read the ratios that landed last: those of the last commit."""
    words = ["git", "-C", str(rust.ROOT), "show", f"HEAD:{OUT.relative_to(rust.ROOT)}"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)  # noqa: S603
    ratios: dict[str, Any] = json.loads(done.stdout)["ratios"] if done.returncode == 0 else {}
    return ratios


def ratio(line: Line, hot: Hot) -> float | None:
    """Return our time over the other's, the median of the rounds' own; None if it is not here."""
    if hot.against not in line.samples:
        return None
    return line.ratio(Bound(hot.ours, hot.against, "time"))


def main() -> int:
    """Measure, print each ratio beside the one that landed last, and write them down."""
    parser = argparse.ArgumentParser(prog="python -m bench.hot", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="the JSON file")
    chosen = parser.parse_args()
    start = time.monotonic()
    rust.build()
    before, lines = landed(), measured()
    ratios: dict[str, float] = {}
    sys.stdout.write("   now  landed\n")
    for hot in HOT:
        now = ratio(lines[hot.title], hot)
        then = before.get(hot.title)
        if now is not None:
            ratios[hot.title] = round(now, 3)
        worse = now is not None and then is not None and now > WORSE * then
        sys.stdout.write(f"{shown(now)}  {shown(then)}  {hot.title}: {hot.ours} / {hot.against}")
        sys.stdout.write("  <\n" if worse else "\n")
    report.write(
        chosen.out, {"commit": report.commit(), "machine": report.machine(), "ratios": ratios}
    )
    sys.stdout.write(f"    {time.monotonic() - start:.0f} s; {chosen.out}\n")
    return 0


def shown(number: float | None) -> str:
    """Show a ratio, or that there is none."""
    return "     -" if number is None else f"{number:6.2f}"


if __name__ == "__main__":
    sys.exit(main())
