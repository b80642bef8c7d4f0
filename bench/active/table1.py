"""What the applications are like, as dataClay's paper has it in its Table 1.

Each runs on Engram's objects in this process, volatile results, with a witness between the driver
and the way: it notes how many bytes methods read of stored blocks, and how many they return. The
times are medians of rounds; the bytes are counted, and are the same in each.
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
    from collections.abc import Callable
    from pathlib import Path

    from bench.active.drivers import Driver
    from bench.active.kernels import Values
    from bench.active.way import Way

NAME = "what the applications are like"
NOTE = (
    "As in the paper's Table 1, on `engram`, volatile results. *Computation to data*: nanoseconds "
    "of the methods' time for each byte of stored blocks that they read (measured: the time of "
    "the kernels, over the bytes that were counted). *Method index*: the methods' share of the "
    "application's time (measured). *Reuse*: how often each byte of the input is read by a method "
    "(counted). *Output ratio*: bytes that methods return for each byte of the input (counted, "
    "returns that are parts of a sum, too)."
)


@dataclass(frozen=True)
class Row:
    """One application with objects of one size."""

    application: str
    objects: str
    input_bytes: int
    ns_per_byte: float
    method_index: float
    reuse: float
    output_ratio: float


class Witness:
    """A way that notes what methods read of blocks, and what they return."""

    def __init__(self, way: Way) -> None:
        """Take the way that does it."""
        self.way = way
        self.name = way.name
        self.blocks: dict[int, tuple[Any, int]] = {}
        self.forget()

    def forget(self) -> None:
        """Count from zero."""
        self.read: dict[int, int] = {}
        self.returned_bytes = 0

    def put(self, values: Values) -> Any:
        """Store a block, and note its size."""
        handle = self.way.put(values)
        self.blocks[id(handle)] = handle, values.nbytes  # which stays, and so does its id
        return handle

    def ask(self, method: str, own: Any, *others: Any) -> Any:
        """Call a method; every block among its arguments is read once."""
        for block in (own, *others):
            if id(block) in self.blocks:
                self.read[id(block)] = self.read.get(id(block), 0) + 1
        found = self.way.ask(method, own, *others)
        self.returned_bytes += np.asarray(found).nbytes
        return found

    def __getattr__(self, name: str) -> Any:
        """Give all else as the way has it."""
        return getattr(self.way, name)

    def bytes_there_and_read(self) -> tuple[int, int]:
        """Return the bytes of the blocks that were read, and the bytes read of them in all."""
        sizes = {block: self.blocks[block][1] for block in self.read}
        return sum(sizes.values()), sum(sizes[block] * times for block, times in self.read.items())


def row(kind: Callable[[Way, Any], Driver], way: Way, sizes: Any, rounds: int) -> Row:
    """Run an application, and tell what it is like."""
    witness = Witness(way)
    driver = kind(cast("Way", witness), sizes)
    shares, methods_s = [], []
    for turn in range(rounds + 1):
        witness.forget()
        whole_s, method_s, _ = applications.once(way, driver, VOLATILE, look=False)
        if turn > 0:
            shares.append(method_s / whole_s)
            methods_s.append(method_s)
    there, read = witness.bytes_there_and_read()
    return Row(
        application=driver.name,
        objects=sizes.name,
        input_bytes=there,
        ns_per_byte=median(methods_s) * 1e9 / read,
        method_index=median(shares),
        reuse=read / there,
        output_ratio=witness.returned_bytes / there,
    )


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
    head = ["", "input", "computation to data", "method index", "reuse", "output ratio"]
    return head, [
        [
            f"{each['application']}, {each['objects']}",
            f"{each['input_bytes'] / 2**20:.3g} MiB",
            f"{each['ns_per_byte']:.3g} ns/B",
            f"{each['method_index']:.1%}",
            f"{each['reuse']:.3g}",
            f"{each['output_ratio']:.2g}",
        ]
        for each in found
    ]
