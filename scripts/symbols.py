"""Compares `posix/preload/symbols.toml` with this machine's C library, and with the one built.

The lists say of every public symbol of glibc what the preload library does with it. First they are
looked at alone: each name once, sorted, with what its class asks for. Then `nm -D` says what glibc
has here: a symbol that no list has is an error, and so is a name that glibc lacks, though its
release should have it. A release newer than those compared brings symbols that nobody has judged
yet: these are a warning.

Where the preload library is built, it must export what is `ours` and what is `refused`, which it
defines to answer an error, and besides them names that begin with `engram_` alone. What cannot be
compared here is said, with the reason. An argument names another library to compare.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "posix/preload/symbols.toml"
BUILT = "libengram_preload.so"
PROFILES = ("debug", "release")
OWN = "engram_"
PRIVATE = "GLIBC_PRIVATE"
ALIAS = re.compile(r"as (\w+)")


def release(text: str) -> tuple[int, ...]:
    """Give a release as numbers: 2.4 is older than 2.36."""
    return tuple(int(part) for part in text.split("."))


@dataclass(frozen=True)
class Symbols:
    """The lists, as they are written."""

    table: dict[str, Any]

    @classmethod
    def read(cls, path: Path = LISTS) -> Symbols:
        """Read the lists from their file."""
        return cls(tomllib.loads(path.read_text(encoding="utf-8")))

    @cached_property
    def groups(self) -> dict[str, dict[str, Any]]:
        """Each group by its noun."""
        groups: dict[str, dict[str, Any]] = self.table["group"]
        return groups

    @cached_property
    def lists(self) -> list[tuple[str, list[str]]]:
        """Each list of names, with where it stands."""
        found = [("neither", list(self.table["neither"]["names"]))]
        for noun, group in self.groups.items():
            found.append((f"{noun}.ours", list(group.get("ours", ()))))
            for kind in ("passed", "refused"):
                found += [(f"{noun}.{kind}", list(each["names"])) for each in group.get(kind, ())]
        return found

    @cached_property
    def names(self) -> set[str]:
        """Every name that stands in a list."""
        return {name for _, names in self.lists for name in names}

    @cached_property
    def defined(self) -> dict[str, str]:
        """What the library defines, with its signature: all of `ours` and `refused`."""
        found: dict[str, str] = {}
        for group in self.groups.values():
            found |= group.get("ours", {})
            for each in group.get("refused", ()):
                found |= each["names"]
        return found

    def expected(self, version: str, machine: str) -> set[str]:
        """Return the names that glibc of this release has on this architecture."""
        later = {
            name
            for since, names in self.table["since"].items()
            if release(since) > release(version)
            for name in names
        }
        elsewhere = {
            name for only, names in self.table["only"].items() if only != machine for name in names
        }
        return self.names - later - elsewhere


def problems(symbols: Symbols) -> list[str]:
    """Say what is wrong with the lists alone."""
    return [*_orders(symbols), *_reasons(symbols), *_signatures(symbols), *_marks(symbols)]


def _orders(symbols: Symbols) -> list[str]:
    """Name what is out of its order, and what stands twice."""
    found = []
    places: dict[str, str] = {}
    for place, names in symbols.lists:
        for before, name in pairwise(names):
            if name < before:
                found.append(f"{place}: {name} stands after {before}; lists are sorted")
        for name in names:
            if name in places:
                found.append(f"{name} stands in {places[name]} and in {place}; one is too many")
            places[name] = place
    return found


def _reasons(symbols: Symbols) -> list[str]:
    """Name groups that lack what they are, and entries without a reason or a remedy."""
    found = [
        f"{noun}: `what` is missing" for noun, g in symbols.groups.items() if not g.get("what")
    ]
    for noun, group in symbols.groups.items():
        for kind, asked in (("passed", ("why",)), ("refused", ("why", "remedy"))):
            for each in group.get(kind, ()):
                first = next(iter(each["names"]), "")
                lacks = [key for key in asked if not each.get(key)]
                found += [f"{noun}.{kind}: `{key}` is missing before {first}" for key in lacks]
    found += [
        f"{name}: its reason is missing" for name, why in symbols.table["whole"].items() if not why
    ]
    return found


def _signatures(symbols: Symbols) -> list[str]:
    """Name what the library defines with a signature of another, or with none."""
    found = []
    for name, signature in symbols.defined.items():
        alias = ALIAS.fullmatch(signature)
        if alias and ALIAS.fullmatch(symbols.defined.get(alias[1], signature)):
            found.append(f"{name}: {alias[1]}, which it is like, has no signature")
        elif not alias and not re.search(rf"\b{re.escape(name)}\(.*\)$", signature):
            found.append(f"{name}: {signature!r} is no signature of it")
    return found


def _marks(symbols: Symbols) -> list[str]:
    """Name what is told to be newer, or of one architecture, and stands in no list."""
    marks = [(f"since.{v}", names) for v, names in symbols.table["since"].items()]
    marks += [(f"only.{machine}", names) for machine, names in symbols.table["only"].items()]
    found = [
        f"{p}: {name} stands in no list"
        for p, n in marks
        for name in n
        if name not in symbols.names
    ]
    return found + [f"{place}: lists are sorted" for place, n in marks if n != sorted(n)]


def exported(library: Path) -> dict[str, str]:
    """Give the public symbols that a library defines, each with the version it came with."""
    told = subprocess.run(
        ["nm", "-D", "--defined-only", "--with-symbol-versions", str(library)],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, str] = {}
    for line in told.stdout.splitlines():
        *_, kind, symbol = line.split()
        name, _, version = symbol.partition("@")
        if kind != "A" and PRIVATE not in version:  # the versions themselves are absolute
            found[name] = version.lstrip("@") or found.get(name, "")
    return found


def folder() -> Path | None:
    """Return the folder of the C library that this process has, if that is glibc's."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    found = re.search(r" (/\S+)/libc(?:\.so\.6|-2\.\d+\.so)$", maps, flags=re.MULTILINE)
    return Path(found[1]) if found else None


def unjudged(symbols: Symbols, there: dict[str, str]) -> list[str]:
    """Name what glibc has and no list does, with the version that it came with."""
    return [f"{name}@{there[name]}" for name in sorted(set(there) - symbols.names)]


def lacking(symbols: Symbols, there: dict[str, str], version: str, machine: str) -> list[str]:
    """Name what the lists have, and glibc of this release should have, but does not."""
    return sorted(symbols.expected(version, machine) - set(there))


def compared(
    symbols: Symbols, there: dict[str, str], version: str, machine: str
) -> tuple[list[str], list[str]]:
    """Compare with what glibc exports; return what is wrong, and what is only to be told."""
    new = [f"{each} stands in no list" for each in unjudged(symbols, there)]
    gone = [
        f"{name} stands in a list, and glibc {version} does not have it"
        for name in lacking(symbols, there, version, machine)
    ]
    newest = symbols.table["newest"]
    if release(version) <= release(newest):
        return new + gone, []
    note = f"warning, no failure: glibc {version} is newer than {newest}, the last that was judged"
    return gone, [note, *new]


def unlike(symbols: Symbols, library: dict[str, str]) -> list[str]:
    """Say where what the preload library exports is not what the lists say."""
    wanted, has = set(symbols.defined), set(library)
    more = {name for name in has - wanted if not name.startswith(OWN)}
    return [
        *(f"{name} is not exported by {BUILT}" for name in sorted(wanted - has)),
        *(f"{name} is exported by {BUILT}, and is not `ours`" for name in sorted(more)),
    ]


def built() -> Path | None:
    """Return the preload library that was built last, if there is one."""
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    found = [target / profile / BUILT for profile in PROFILES]
    there = [path for path in found if path.is_file()]
    return max(there, key=lambda path: path.stat().st_mtime) if there else None


def of_the_machine(symbols: Symbols) -> tuple[list[str], list[str]]:
    """Compare with glibc as it is installed here; what is wrong, and what is to be told."""
    place, (name, version) = folder(), platform.libc_ver()
    if place is None or name != "glibc":
        return [], ["skipped: the C library of this machine is not glibc"]
    if release(version) < release(symbols.table["oldest"]):
        return [], [f"skipped: glibc {version} is older than {symbols.table['oldest']}"]
    there: dict[str, str] = {}
    for library in symbols.table["libraries"]:
        if (path := place / library).exists():
            there |= exported(path)
    wrong, told = compared(symbols, there, version, platform.machine())
    return wrong, [*told, f"compared with {len(there)} symbols of glibc {version}"]


def of_the_library(symbols: Symbols, library: Path | None) -> tuple[list[str], list[str]]:
    """Compare with the preload library; what is wrong, and what is to be told."""
    if library is None:
        return [], [f"skipped: {BUILT} is not built here, so its exports are not compared"]
    return unlike(symbols, exported(library)), [f"compared with the exports of {library.name}"]


def main() -> str | None:
    """Compare; what is returned is what was found wrong."""
    symbols = Symbols.read()
    wrong, told = problems(symbols), list[str]()
    if shutil.which("nm") is None:
        told = ["skipped: nm (binutils) is missing, so no library is compared"]
    else:
        library = Path(sys.argv[1]) if sys.argv[1:] else built()
        for more, notes in (of_the_machine(symbols), of_the_library(symbols, library)):
            wrong += more
            told += notes
    print("\n".join(f"    symbols.toml: {each}" for each in told))  # noqa: T201
    return "\n".join(wrong) or None


if __name__ == "__main__":
    sys.exit(main())
