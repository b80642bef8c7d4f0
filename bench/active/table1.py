"""What the applications are like: dataClay's Table 1, by the paper's own definitions (section 4.1).

Each runs on Engram's objects in this process, with volatile results. A witness
between the driver and the way notes which blocks methods read, in which order, and how large they
are. The times are medians of rounds; what is counted is the same in each.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bench.active import applications
from bench.active.drivers import BIG, DRIVERS, QUICK_BIG, QUICK_SMALL, SMALL, VOLATILE
from bench.active.way import Fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from bench.active.drivers import Driver
    from bench.active.kernels import Values
    from bench.active.way import Way

MS_BY_MB = 1e9
"""Seconds by byte in milliseconds by megabyte."""

NAME = "what the applications are like"
NOTE = (
    "The paper's Table 1, by its own definitions (section 4.1), on `engram`, volatile results: the "
    "paper's baseline is an active store in memory, too. The paper's values are in brackets. Its "
    "objects are about six times as large, its matrices have 6 x 6 and 42 x 42 blocks, and its "
    "processor and numpy are of 2019, so that orders of magnitude can be compared, not digits. Its "
    "input is a thousand times as large as ours, and the output of histogram and k-means is the "
    "same size whatever the input: 2 and 80 kB there, 1 and 80 kB here. Our multiplication adds "
    "products up outside of the method.\n\n"
    "*Pattern* and *reuse factor* are counted: an application is sequential if each operand is "
    "read from its first block to its last, without jumps, equally often; the factor is how often "
    "a byte of the input is read, as a mean over the blocks. *Computation to data* is the "
    "application's time by the size of its input. *Method index* is the methods' time by the "
    "input of all their calls. *Output ratio* is the size of the output by that of the input. "
    "(The paper's text has it the other way round; its numbers are these.)"
)

PRINTED = {
    ("histogram", "big"): ("", "7.65", "7.63", "1e-8"),
    ("histogram", "small"): ("", "7.76", "7.63", "1e-8"),
    ("k-means", "big"): ("10", "6.57", "5.08", "1e-6"),
    ("k-means", "small"): ("10", "8.82", "4.31", "1e-6"),
    ("matrix addition", "big"): ("", "0.0507", "0.0457", "0.5"),
    ("matrix addition", "small"): ("", "0.139", "0.0107", "0.5"),
    ("matrix multiplication", "big"): ("6", "5.54", "4.50", "0.5"),
    ("matrix multiplication", "small"): ("42", "20.8", "5.95", "0.5"),
}
"""The paper's reuse factor, computation to data, method index and output ratio."""


@dataclass(frozen=True)
class Row:
    """One application with objects of one size."""

    application: str
    objects: str
    input_bytes: int
    is_sequential: bool
    reuse: float
    computation_to_data: float
    """Milliseconds by megabyte (10**6 bytes), as is the method index."""
    method_index: float
    output_ratio: float


class Witness:
    """A way that notes what methods read of blocks."""

    def __init__(self, way: Way) -> None:
        """Take the way that does it."""
        self.way = way
        self.name = way.name
        self.blocks: dict[int, tuple[Any, int]] = {}
        self.forget()

    def forget(self) -> None:
        """Count from zero."""
        self.read: dict[int, list[int]] = {}

    def put(self, values: Values) -> Any:
        """Store a block, and note its size."""
        handle = self.way.put(values)
        self.blocks[id(handle)] = handle, values.nbytes  # which stays, and so does its id
        return handle

    def ask(self, method: str, own: Any, *others: Any) -> Any:
        """Call a method; every block among its arguments is read once."""
        for place, block in enumerate((own, *others)):
            if id(block) in self.blocks:
                self.read.setdefault(place, []).append(id(block))
        return self.way.ask(method, own, *others)

    def __getattr__(self, name: str) -> Any:
        """Give all else as the way has it."""
        return getattr(self.way, name)

    def bytes_there_and_read(self) -> tuple[int, int]:
        """Return the bytes of the blocks that were read, and the bytes read of them in all."""
        read = [block for blocks in self.read.values() for block in blocks]
        return self._bytes(set(read)), self._bytes(read)

    def is_sequential(self) -> bool:
        """Whether each operand was read in whole sweeps of its blocks, as they were stored."""
        stored = {block: number for number, block in enumerate(self.blocks)}
        sweeps = set()
        for blocks in self.read.values():
            there = sorted(set(blocks), key=stored.__getitem__)
            times = len(blocks) // len(there)
            if blocks != there * times:
                return False
            sweeps.add(times)
        return len(sweeps) == 1

    def _bytes(self, blocks: Iterable[int]) -> int:
        return sum(self.blocks[block][1] for block in blocks)


def row(kind: Callable[[Way, Any], Driver], way: Way, sizes: Any, rounds: int) -> Row:
    """Run an application, and tell what it is like."""
    witness = Witness(way)
    driver = kind(cast("Way", witness), sizes)
    wholes_s, methods_s = [], []
    for turn in range(rounds + 1):
        witness.forget()
        whole_s, method_s, _ = applications.once(way, driver, VOLATILE, look=False)
        if turn > 0:
            wholes_s.append(whole_s)
            methods_s.append(method_s)
    there, read = witness.bytes_there_and_read()
    return Row(
        application=driver.name,
        objects=sizes.name,
        input_bytes=there,
        is_sequential=witness.is_sequential(),
        reuse=read / there,
        computation_to_data=median(wholes_s) * MS_BY_MB / there,
        method_index=median(methods_s) * MS_BY_MB / read,
        output_ratio=bytes_of(driver.run(VOLATILE)) / there,
    )


def bytes_of(found: Any) -> int:
    """Return the size of an application's output."""
    if isinstance(found, tuple):  # of kind and blocks
        return sum(np.asarray(block).nbytes for block in found[1])
    return int(np.asarray(found).nbytes)


def rows(
    folder: Path, rounds: int, *, quick: bool, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Tell of each application, with objects of each size."""
    start = time.monotonic()
    fleet = Fleet(["engram"], folder, tell, once=False)
    try:
        found = [
            asdict(row(kind, fleet.fresh()[0], sizes, rounds))
            for kind in DRIVERS
            for sizes in ((QUICK_SMALL, QUICK_BIG) if quick else (SMALL, BIG))
        ]
    finally:
        fleet.close()
    tell(f"{NAME}: {time.monotonic() - start:.1f} s")
    return found


def cells(found: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the table's head and rows, in words."""
    head = [
        "",
        "input",
        "pattern",
        "reuse factor",
        "computation to data, ms/MB",
        "method index, ms/MB",
        "output ratio",
    ]
    return head, [_cells(each) for each in found]


def _cells(each: dict[str, Any]) -> list[str]:
    named = each["application"], each["objects"]
    reuse, computation, index, output = PRINTED[named]
    return [
        ", ".join(named),
        f"{each['input_bytes'] / 2**20:.3g} MiB",
        "sequential" if each["is_sequential"] else "non-sequential",
        f"{each['reuse']:.3g} ({reuse})" if reuse else "none" if each["reuse"] == 1 else "some",
        f"{each['computation_to_data']:.3g} ({computation})",
        f"{each['method_index']:.3g} ({index})",
        f"{each['output_ratio']:.2g} ({output})",
    ]
