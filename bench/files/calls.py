"""Single calls: names and bytes by `Fs` and by a mount, beside system calls on tmpfs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.files import paper
from bench.files.places import places
from bench.files.turns import MOUNT, NULL
from bench.harness import Bound, Line
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting

FILES, MIB = 20_000, 1024
QUICK_MIB = 64
TITLES = {
    "create": "create and close a file",
    "stat": "stat a file by its name",
    "open": "open and close a file",
    "unlink": "unlink a file",
    "write 4 KiB": "write 4 KiB within 1 MiB",
    "read 4 KiB": "read 4 KiB within 1 MiB",
    "append 100 B": "append 100 B",
    "write 128 KiB": "write 128 KiB of a large file, in space touched before",
    "read 128 KiB": "read 128 KiB of a large file",
}
BOUNDS = {
    "create": [("tmpfs", 1.0)],
    "stat": [("tmpfs", 2.0)],
    "open": [("tmpfs", 1.5)],
    "unlink": [("tmpfs", 1.0)],
    "write 4 KiB": [("tmpfs", 4.0)],
    "read 4 KiB": [("tmpfs", 2.5)],
    "append 100 B": [("tmpfs", 2.0)],
    "write 128 KiB": [("tmpfs", 1.0), ("memcpy", 0.85)],
    "read 128 KiB": [("tmpfs", 1.0), ("memcpy", 0.85)],
}
"""By work: against whom, and how many times as fast at least."""
ECHOFS = {"create": "create file", "stat": "stat file", "unlink": "remove file"}


def lines(setting: Setting) -> Iterator[Line]:
    """Measure names and bytes; mounts take part where FUSE is offered."""
    mib = QUICK_MIB if setting.quick else MIB
    with places(setting, (mib << 21) + (256 << 20)) as folders:
        others = [f"{who}={folder}" for who, folder in folders.items()]
        counts = (setting.scaled(FILES), mib, setting.rounds)
        found = rust.run("files", setting.folder, *counts, *others)
    for work, title in TITLES.items():
        bounds = [Bound("engram", peer, "speed", limit) for peer, limit in BOUNDS[work]]
        bounds += [Bound(MOUNT, peer, "show") for peer in (NULL, "tmpfs")]
        line = Line(title, "us", bounds, found[work])
        if work in ECHOFS:
            theirs = paper.NAMES[1][ECHOFS[work]]
            line.remarks.append(f"echofs, elsewhere: {1e6 / theirs:.0f} us")
        yield line
