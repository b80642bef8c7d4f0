"""How objects are reached: what a way must be able to do to be measured, and which ways there are.

A handle is what a way makes of a block: the array itself, a key, or an object. Other arguments of
a method may be handles, too, or plain values.
"""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.active.kernels import Values

WAYS = {
    "limit": "bench.active.ways.limit:Limit",
    "engram": "bench.active.ways.engram_here:Here",
    "engram-worker": "bench.active.ways.engram_worker:Worker",
    "engram-copy": "bench.active.ways.engram_copy:Copy",
    "redis": "bench.active.ways.redis_server:Redis",
    "redis-pickle": "bench.active.ways.redis_server:RedisPickle",
    "dataclay": "bench.active.ways.dataclay_servers:DataClay",
}

MEDIA = {
    "engram-pre-copy": "bench.active.ways.engram_media:PreCopy",
    "engram-emulated": "bench.active.ways.engram_media:Emulated",
    "engram-emulated-pre-copy": "bench.active.ways.engram_media:EmulatedPreCopy",
    "limit-files": "bench.active.ways.limit_files:Files",
}
"""Ways that are taken on other media, or where data do not fit in memory."""

DISKS = {
    "engram-disk": "bench.active.ways.engram_media:Disk",
    "engram-disk-background": "bench.active.ways.engram_media:Background",
}
"""Ways with pools on a disk that hold word count's texts of the project's own sizes."""

ALL = WAYS | MEDIA | DISKS
"""Every way by its name."""


class Way(Protocol):
    """A way of reaching objects, in a folder of its own, open."""

    name: str

    def __init__(self, folder: Path) -> None:
        """Start what it needs, in `folder`; nothing is stored yet."""

    def put(self, values: Values) -> Any:
        """Store a block that the caller changes no more; its handle."""

    def put_many(self, many: Sequence[Values]) -> list[Any]:
        """Store blocks, in one transaction if the way has such."""

    def get(self, handle: Any) -> Values:
        """Return a block's values."""

    def ask(self, method: str, own: Any, *others: Any) -> Any:
        """Call a method of a block; its result comes to the caller, and is stored nowhere."""

    def keep(self, method: str, own: Any, *others: Any) -> Any:
        """Call a method of a block; its result is stored as a new block, and that's the handle."""

    def change(self, method: str, own: Any, *others: Any) -> None:
        """Call a method of a block that changes it: of a kernel, it's the `out`."""

    def drop(self, handles: Sequence[Any]) -> None:
        """Delete blocks, if the way can."""

    def spent(self) -> float:
        """Seconds that kernels took since this was asked last, wherever they ran."""

    def counter(self) -> Callable[[], object]:
        """Store a counter; return what adds one to it."""

    def make_small(self, count: int) -> None:
        """Store as many small objects, one by one."""

    def nothing(self) -> Callable[[], object]:
        """Store an object; return what calls its method that does nothing."""

    def close(self) -> None:
        """Stop everything."""


class Fleet:
    """The ways of a run; each can be opened anew, with nothing stored."""

    def __init__(
        self, names: Sequence[str], folder: Path, tell: Callable[[str], None], *, once: bool
    ) -> None:
        """Take the names of ways; with `once`, they stay open from the first use to the last."""
        self.names = names
        self.folder = folder
        self.tell = tell
        self.once = once
        self.absent: dict[str, str] = {}
        self.open: list[Way] = []

    def fresh(self) -> list[Way]:
        """Return all ways that can be opened, empty (or, with `once`, as they are)."""
        if self.open and self.once:
            return self.open
        self.close()
        for name in self.names:
            if name in self.absent:
                continue
            module, attribute = ALL[name].split(":")
            place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
            try:
                kind = cast("type[Way]", getattr(importlib.import_module(module), attribute))
                self.open.append(kind(place))
            except (ImportError, OSError) as refusal:
                self.absent[name] = str(refusal).split(" (/")[0]  # no path of this machine
                self.tell(f"{name} is left out: {refusal}")
        return self.open

    def close(self) -> None:
        """Close all that are open, whatever one of them says to it."""
        with contextlib.ExitStack() as stack:
            while self.open:
                stack.callback(self.open.pop().close)
