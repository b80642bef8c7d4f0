"""What must hold of a wheel, whatever it was built on.

- auditwheel: each library asks for no newer C library than the wheel's name says, and for no
  library that a system may lack.
- abi3audit: the natives call nothing that is outside of Python's stable ABI.
- The preload library exports what `posix/preload/symbols.toml` says, and nothing else of ours.
- Every library is stripped, and names no path of the machine that built it.
- RECORD and the members agree. The wheel is no larger than what a user will wait for.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from wheels.platforms import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wheels.platforms import Platform

MOST_BYTES = 15 << 20
ELF = b"\x7fELF"
STRIPPED = re.compile(r" (\.debug_info|\.symtab) ")
"""Sections that are taken away."""


def problems(wheel: Path, platform: Platform) -> list[str]:
    """Say what does not hold of a wheel."""
    with tempfile.TemporaryDirectory(prefix="engram-audit-") as made:
        folder = Path(made)
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder)
        found = [*of_size(wheel), *_tag(wheel, platform), *_abi(wheel), *of_files(folder)]
        preload = folder / "engram/_native/libengram_preload.so"
        if platform.is_gnu:
            found += _exports(preload)
        return found


def of_size(wheel: Path) -> Iterator[str]:
    """Say that a wheel is too large."""
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        yield f"{wheel.name} has {size >> 20} MiB, and may have {MOST_BYTES >> 20}: what has grown?"


def said_by(*words: str) -> tuple[int, str]:
    """Run a tool of this environment; return how it ended, and what it said."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        words,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PATH": path},
    )
    return ended.returncode, ended.stdout


def _tag(wheel: Path, platform: Platform) -> Iterator[str]:
    # Of another C library than this system's, nothing is looked for here.
    elsewhere = () if platform.is_gnu else ("--ldpaths", str(wheel.parent))
    code, said = said_by("auditwheel", "show", *elsewhere, str(wheel))
    words = " ".join(said.split())
    if code or f'consistent with the following platform tag: "{platform.tag}"' not in words:
        older = re.search(r'platform tag: "(\w+)"', words)
        if older is None or not is_older(older[1], platform.tag):
            yield f"auditwheel does not find {wheel.name} to be {platform.tag}:\n{said}"


def is_older(tag: str, than: str) -> bool:
    """Tell whether a tag is of an older C library, which newer ones can do for."""
    shape = re.compile(r"(\w+?)_(\d+)_(\d+)_(\w+)")
    one, other = shape.fullmatch(tag), shape.fullmatch(than)
    if one is None or other is None or (one[1], one[4]) != (other[1], other[4]):
        return False
    return (int(one[2]), int(one[3])) <= (int(other[2]), int(other[3]))


def _abi(wheel: Path) -> Iterator[str]:
    code, said = said_by("abi3audit", "--strict", "--report", str(wheel))
    if code:
        yield f"abi3audit finds calls outside of the stable ABI in {wheel.name}:\n{said}"


def of_files(folder: Path) -> Iterator[str]:
    """Name libraries that are not stripped, or that name a folder of this machine."""
    places = (Path.home() / ".cargo", Path.home() / ".rustup", ROOT)
    paths = [str(path).encode() for path in places]
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = file.read_bytes()
        name = file.relative_to(folder)
        if data.startswith(ELF):
            _, said = said_by("readelf", "--sections", "--wide", str(file))
            for section in STRIPPED.findall(said):
                yield f"{name} is not stripped: it has {section}"
            for path in paths:
                if path + b"/" in data:
                    yield f"{name} names {path.decode()}, a folder of this machine"


def _exports(preload: Path) -> Iterator[str]:
    code, said = said_by(sys.executable, str(ROOT / "scripts/symbols.py"), str(preload))
    if code:
        yield f"the preload library exports what it should not:\n{said}"
