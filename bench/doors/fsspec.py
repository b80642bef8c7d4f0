"""fsspec: files of a pool, beside files of the same filesystem and of fsspec's own memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc

import engram
from bench.harness import Bound, Contestant, Line, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

SMALL = 4096
LARGE = 64 << 20
FILES = 1000

Place = tuple[Any, str]
Work = tuple[str, str, "Callable[[Any, str], object]"]


def lines(setting: Setting) -> Iterator[Line]:
    """Write and read small and large files, list them, read parts, and hand one to Arrow."""
    folder = setting.folder / "files"
    folder.mkdir()
    with engram.create(setting.folder / "fsspec", size="1 GiB") as pool:
        local = f"local, {pool.devices[0].filesystem}"
        places: dict[str, Place] = {
            "engram": (fsspec.filesystem("engram"), pool.path),
            local: (fsspec.filesystem("file"), str(folder)),
            "memory": (fsspec.filesystem("memory"), "/bench"),
        }
        for title, unit, work in works(setting.scaled(FILES)):
            bounds = [Bound("engram", local, "show"), Bound("engram", "memory", "show")]
            contestants = [
                Contestant(name, done(work, fs, path)) for name, (fs, path) in places.items()
            ]
            yield measure(Line(title, unit, bounds), contestants, setting.rounds)
    for fs, path in places.values():
        fs.rm(path, recursive=True) if fs.protocol == "memory" else None
    places["engram"][0].close()
    engram.destroy(setting.folder / "fsspec")


def works(count: int) -> list[Work]:
    """Return what is done: its title, the unit, and how."""
    small, large = bytes(SMALL), np.random.default_rng(1).bytes(LARGE)
    table = pa.table({"x": np.frombuffer(large, "f8")})
    starts = list(range(0, count * SMALL, SMALL))
    ends = [start + SMALL for start in starts]

    def write_arrow(fs: Any, top: str) -> None:
        with fs.open(f"{top}/x.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)

    def read_arrow(fs: Any, top: str) -> Any:
        with fs.open(f"{top}/x.arrow", "rb") as file:
            return pa.ipc.open_file(file).read_all()

    return [
        (f"write {count} files of 4 KiB", "ms", lambda fs, top: fs.pipe(named(top, count, small))),
        (f"read {count} files of 4 KiB", "ms", lambda fs, top: fs.cat(list(named(top, count)))),
        (f"list {count} files", "ms", lambda fs, top: fs.ls(f"{top}/small", detail=True)),
        ("write a file of 64 MiB", "ms", lambda fs, top: fs.pipe_file(f"{top}/large", large)),
        ("read a file of 64 MiB", "ms", lambda fs, top: fs.cat_file(f"{top}/large")),
        (
            f"{count} parts of 4 KiB of it",
            "ms",
            lambda fs, top: fs.cat_ranges([f"{top}/large"] * count, starts, ends),
        ),
        ("write an Arrow file of 64 MiB", "ms", write_arrow),
        ("open it as a table", "ms", read_arrow),
    ]


def named(top: str, count: int, content: bytes = b"") -> dict[str, bytes]:
    """Return small files by their paths."""
    return {f"{top}/small/{number:04}": content for number in range(count)}


def done(work: Callable[[Any, str], object], fs: Any, top: str) -> Callable[[], float]:
    """Do something with one file system, each round anew."""
    if fs.protocol != "engram":
        fs.makedirs(f"{top}/small", exist_ok=True)
    return lambda: timed(lambda: work(fs, top))
