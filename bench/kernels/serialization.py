"""What share of a program's time its library takes beyond moving the bytes.

The share is (time in the library's calls - time of the same bytes by plain means) / time of the
whole program. For files plain means are `pwrite` to a new file on the same mount and `preadv` back,
in pieces of an array's size. Engram's pool is there before the program runs and its pages are warm,
so it is held against less: plain copies to warm pages of a mapping of a file and back. What is left
is all that serializing and deserializing is made of: encoding headers and attributes, look-ups,
copies between buffers, locks, and for Engram its index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.harness import Bound, Line
from bench.kernels.particles import sized
from bench.kernels.program import Program, WithEngram, WithH5py, WithNetCdf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.kernels.program import Library
    from bench.setting import Setting

STEPS = {4 << 10: 64, 64 << 10: 64, 512 << 10: 32, 4 << 20: 4}
ROUNDS = 5
QUICK = (64 << 10,)


def lines(setting: Setting) -> Iterator[Line]:
    """Measure the shares, and how long the program took, for each size of an array."""
    for nbytes, steps in STEPS.items():
        if setting.quick and nbytes not in QUICK:
            continue
        program = Program(nbytes, steps)
        own = WithEngram(setting.folder)
        libraries: dict[str, Library] = {
            "engram": own,
            "h5py": WithH5py(setting.folder),
            "netCDF4": WithNetCdf(setting.folder),
        }
        whole: dict[str, list[float]] = {name: [] for name in libraries}
        share: dict[str, list[float]] = {name: [] for name in libraries}
        for turn in range(min(setting.rounds, ROUNDS) + 1):
            calls_s = program.moved_by_calls(setting.folder)
            copies_s = program.moved_by_copies(setting.folder)
            own.clear()
            for name, library in libraries.items():
                ran = program.run(library)
                plain_s = copies_s if library is own else calls_s
                if turn:
                    whole[name].append(ran.whole_s)
                    share[name].append((ran.library_s - plain_s) / ran.whole_s)
        size = sized(nbytes)
        yield Line(f"share of time in serialization, {size} arrays", "%", [], share)
        bounds = [Bound("engram", name, "show") for name in libraries if name != "engram"]
        yield Line(f"the program's time, {size} arrays", "ms", bounds, whole)
        own.destroy()
