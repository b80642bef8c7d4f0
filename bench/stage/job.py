"""`python -m bench.stage.job`: a job that reads its file and writes it anew, so many times.

It says "ready", and begins when it gets a line. Without `--pool` it works on the file where that
lies. Else it brings the file in, works in the pool, and brings it out again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import engram
import engram.stage

if TYPE_CHECKING:
    from typing import BinaryIO

TRANSFER = 1 << 20


def worked(file: BinaryIO, size: int) -> None:
    """Read a file piece by piece, and write each piece anew."""
    for at in range(0, size, TRANSFER):
        file.seek(at)
        piece = file.read(TRANSFER)
        file.seek(at)
        file.write(bytes(255 - byte for byte in piece[:1]) + piece[1:])
    file.flush()


def main() -> int:
    """Do the job once."""
    parser = argparse.ArgumentParser(prog="python -m bench.stage.job", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--pool", type=Path)
    parser.add_argument("--slots", type=Path)
    parser.add_argument("--verify", default="written")
    chosen = parser.parse_args()
    size = chosen.file.stat().st_size
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    if chosen.pool is None:
        with chosen.file.open("r+b", buffering=0) as file:
            for _ in range(chosen.times):
                worked(cast("BinaryIO", file), size)
        return 0
    options: engram.stage.InOptions = {"slots": chosen.slots, "workers": 1}
    with engram.open(chosen.pool) as pool:
        report = engram.stage.bring_in(pool, {str(chosen.file): "file"}, **options)
        for _ in range(chosen.times):
            with pool.open_file("file", "r+b") as file:
                worked(cast("BinaryIO", file), size)
        options |= {"verify": chosen.verify, "existing": "overwrite"}
        out = engram.stage.bring_out(pool, {"file": str(chosen.file)}, **options)
    return 0 if report.whole and out.whole else 1


if __name__ == "__main__":
    sys.exit(main())
