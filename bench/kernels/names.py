"""What the kernels' results call their contestants, and what is asked of each size.

Tables and pictures are made of results alone, where no engine is built: they import this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engram.index import IndexMode

ENGRAM, MIQS, BATCHED = "engram", "MIQS+ on HDF5", "engram, batched"
MODES: dict[str, IndexMode | None] = {
    "engram": None,
    "engram, none": "none",
    "engram, async": "async",
}
PEAK, CALLS = "peak of a mapping", "peak of calls"
KERNELS = {"write": "VPIC-IO", "read": "BDCATS-IO"}
LIMITS = {"write": {256: 5.0, 512 << 10: 2.0}, "read": {256: 5.0, 512 << 10: 1.3}}
