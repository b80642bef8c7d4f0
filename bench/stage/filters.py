"""`python -m bench.stage.filters FOLDER`: what compressing and sharing blocks would save, and cost.

It looks at real files. Each block is compressed by the codecs that chunks have, as it is and with
its bytes shuffled; blocks of 4 KiB and 64 KiB that are there already are counted. The speeds are of
one core, beside copying the same bytes. `docs/decisions/0023-files-are-staged-as-they-are.md` draws
on it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numcodecs import LZ4, Shuffle, Zstd

from bench import report

if TYPE_CHECKING:
    from collections.abc import Callable

OUT = Path(__file__).parents[1] / "results" / "stage-filters.json"
BLOCK = 64 << 10
"""What would be decoded for one byte of it: as large as a page of the mount's cache allows."""
ALIKE = (4 << 10, 64 << 10)
"""Blocks that could be shared: a page, and a block."""
WORD = 4
"""The bytes of a number, of which each is put beside its like."""
ROUNDS = 5
MIB = 1 << 20


def main() -> int:
    """Look at each file, and write down what was found."""
    parser = argparse.ArgumentParser(prog="python -m bench.stage.filters", description=__doc__)
    parser.add_argument("folder", type=Path, help="real files")
    parser.add_argument("--out", type=Path, default=OUT, help="the JSON file")
    chosen = parser.parse_args()
    files = sorted(path for path in chosen.folder.rglob("*") if path.is_file())
    if not files:
        sys.stderr.write(f"{chosen.folder}: there is no file\n")
        return 1
    bytes_of = {str(path.relative_to(chosen.folder)): path.read_bytes() for path in files}
    found: dict[str, Any] = {
        "commit": report.commit(),
        "machine": report.machine(),
        "block": BLOCK,
        "files": {name: _sizes(data) for name, data in bytes_of.items()},
        "alike": {str(size): _alike(list(bytes_of.values()), size) for size in ALIKE},
        "speeds_mib_s": _speeds(b"".join(bytes_of.values())),
    }
    total = sum(len(data) for data in bytes_of.values())
    found["in_all"] = {
        "nbytes": total,
        **{
            how: sum(each["part"][how] * each["nbytes"] for each in found["files"].values()) / total
            for how in _coders()
        },
    }
    chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="ascii")
    _show(found)
    return 0


def _coders() -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """Give each way to compress a block, and back."""
    lz4, zstd, bytes_apart = LZ4(), Zstd(level=1), Shuffle(elementsize=WORD)

    def shuffle(block: bytes) -> bytes:
        return bytes(bytes_apart.encode(block + bytes(-len(block) % WORD)))

    return {
        "lz4": (lz4.encode, lz4.decode),
        "zstd": (zstd.encode, zstd.decode),
        "shuffle+lz4": (
            lambda block: lz4.encode(shuffle(block)),
            lambda block: bytes_apart.decode(lz4.decode(block)),
        ),
        "shuffle+zstd": (
            lambda block: zstd.encode(shuffle(block)),
            lambda block: bytes_apart.decode(zstd.decode(block)),
        ),
    }


def _blocks(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def _sizes(data: bytes) -> dict[str, Any]:
    """Say what part of a file each way leaves; a block that does not shrink stays as it is."""
    part = {}
    for how, (encode, _) in _coders().items():
        left = sum(min(len(bytes(encode(one))), len(one)) for one in _blocks(data, BLOCK))
        part[how] = left / max(len(data), 1)
    return {"nbytes": len(data), "part": part}


def _alike(all_bytes: list[bytes], size: int) -> dict[str, float]:
    """Say what part of whole blocks are there already, and what part are zeros, which holes are."""
    seen: set[bytes] = set()
    blocks = alike = zeros = 0
    for data in all_bytes:
        for block in _blocks(data, size):
            if len(block) < size:
                continue
            blocks += 1
            if not any(block):
                zeros += 1
                continue
            digest = hashlib.blake2b(block, digest_size=16).digest()
            alike += digest in seen
            seen.add(digest)
    return {"blocks": blocks, "alike": alike / max(blocks, 1), "zeros": zeros / max(blocks, 1)}


def _speeds(data: bytes) -> dict[str, float]:
    """Time each way over all bytes, by turns, beside a copy."""
    blocks = [one for one in _blocks(data, BLOCK) if len(one) == BLOCK]
    nbytes = len(blocks) * BLOCK
    target = np.empty(nbytes, np.uint8)
    source = np.frombuffer(b"".join(blocks), np.uint8)
    coded = {how: [encode(one) for one in blocks] for how, (encode, _) in _coders().items()}

    def copied() -> None:
        target[:] = source

    work: dict[str, Callable[[], Any]] = {"copy": copied}
    for how, (encode, decode) in _coders().items():
        work[f"{how}, in"] = partial(_each, encode, blocks)
        work[f"{how}, back"] = partial(_each, decode, coded[how])
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, each in work.items():
            start = time.perf_counter()
            each()
            taken[name].append(time.perf_counter() - start)
    return {name: nbytes / MIB / median(times) for name, times in taken.items()}


def _each(code: Callable[[Any], Any], blocks: list[Any]) -> None:
    for one in blocks:
        code(one)


def _show(found: dict[str, Any]) -> None:
    say = sys.stdout.write
    for name, one in found["files"].items():
        parts = ", ".join(f"{how} {part:.2f}" for how, part in one["part"].items())
        say(f"{name} ({one['nbytes'] / MIB:.2f} MiB): {parts}\n")
    parts = ", ".join(f"{how} {found['in_all'][how]:.2f}" for how in _coders())
    say(f"in all {found['in_all']['nbytes'] / MIB:.1f} MiB: {parts}\n")
    for size, one in found["alike"].items():
        say(f"blocks of {size}: {one['alike']:.2%} are there already, {one['zeros']:.2%} zeros\n")
    for name, speed in found["speeds_mib_s"].items():
        say(f"{name}: {speed:.0f} MiB/s\n")


if __name__ == "__main__":
    sys.exit(main())
