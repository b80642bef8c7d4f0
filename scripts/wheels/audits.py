"""What must hold of a wheel, whatever it was built on.

- auditwheel: each library asks for no newer C library than the wheel's name says, and for no
  library that a system may lack.
- abi3audit: the natives call nothing that is outside of Python's stable ABI.
- The preload library exports what `posix/preload/symbols.toml` says, and nothing else of ours.
- Every library is stripped. No member names a folder of the machine that built it.
- RECORD and the members agree. The wheel is no larger than what a user will wait for.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from wheels import archive
from wheels.building import cargo_home
from wheels.outcomes import FailedError, run, tools
from wheels.platforms import ELF, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wheels.platforms import Platform

MOST_BYTES = 15 << 20
STRIPPED = re.compile(r" (\.debug_info|\.symtab) ")
"""Sections that are taken away."""


def problems(wheel: Path, platform: Platform) -> Iterator[str]:
    """Say what does not hold of a wheel."""
    yield from of_size(wheel)
    yield from of_record(wheel)
    with tempfile.TemporaryDirectory(prefix="engram-audit-") as made:
        folder = Path(made)
        with archive.opened(wheel) as file:
            file.extractall(folder)
        yield from _tag(wheel, platform)
        yield from _said_by("abi3audit", "--strict", "--report", str(wheel))
        yield from of_files(folder)
        if platform.is_gnu:
            preload = folder / "engram/_native/libengram_preload.so"
            yield from _said_by(sys.executable, str(ROOT / "scripts/symbols.py"), str(preload))


def of_size(wheel: Path) -> Iterator[str]:
    """Say that a wheel is too large."""
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        yield f"{wheel.name} has {size >> 20} MiB, and may have {MOST_BYTES >> 20}: what has grown?"


def of_record(wheel: Path) -> Iterator[str]:
    """Name members that RECORD does not list as they are, and those that it lists in vain."""
    with archive.opened(wheel) as file:
        twice = [name for name, times in Counter(file.namelist()).items() if times > 1]
    yield from (f"{wheel.name} has {name} twice" for name in twice)
    members = archive.read(wheel)
    record = next((name for name in members if name.endswith(".dist-info/RECORD")), None)
    if record is None:
        yield f"{wheel.name} has no RECORD"
        return
    lines = csv.reader(members.pop(record)[0].decode().splitlines())
    listed = {name: (digest, size) for name, digest, size in lines if name != record}
    held = {name: (archive.digest(data), str(len(data))) for name, (data, _) in members.items()}
    for name in sorted(listed.keys() | held.keys()):
        if listed.get(name) != held.get(name):
            yield f"{name} is {held.get(name)}, and RECORD says {listed.get(name)}"


def _said_by(*words: str) -> Iterator[str]:
    try:
        run(*words, cwd=ROOT, around=tools())
    except FailedError as error:
        yield str(error)


def _tag(wheel: Path, platform: Platform) -> Iterator[str]:
    # Of another C library than this system's, nothing is looked for here.
    elsewhere = () if platform.is_gnu else ("--ldpaths", str(wheel.parent))
    said = run("auditwheel", "show", "--json", *elsewhere, str(wheel), around=tools())
    told = json.loads(said[said.index("{") :])  # a warning may stand before it
    tag = told["overall_tag"]
    if not is_older(tag, platform.tag):
        yield f"auditwheel finds {wheel.name} to be {tag}, which asks for more:\n{said}"


def is_older(tag: str, than: str) -> bool:
    """Tell whether a tag is of this C library or an older one, which newer ones can do for."""
    shape = re.compile(r"(\w+?)_(\d+)_(\d+)_(\w+)")
    one, other = shape.fullmatch(tag), shape.fullmatch(than)
    if one is None or other is None or (one[1], one[4]) != (other[1], other[4]):
        return False
    return (int(one[2]), int(one[3])) <= (int(other[2]), int(other[3]))


def of_files(folder: Path) -> Iterator[str]:
    """Name libraries that are not stripped, and files that name a folder of this machine."""
    rustup = Path(os.environ.get("RUSTUP_HOME", Path.home() / ".rustup"))
    places = {str(path): _named(path) for path in (cargo_home(), rustup, ROOT)}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = file.read_bytes()
        name = file.relative_to(folder)
        if data.startswith(ELF):
            said = run("readelf", "--sections", "--wide", str(file))
            for section in STRIPPED.findall(said):
                yield f"{name} is not stripped: it has {section}"
        for place, pattern in places.items():
            if pattern.search(data):
                yield f"{name} names {place}, a folder of this machine"


def _named(path: Path) -> re.Pattern[bytes]:
    """Return what finds a folder, and none whose name only begins or ends so."""
    return re.compile(rb"(?<![\w.])" + re.escape(str(path)).encode() + rb"(?![\w.-])")
