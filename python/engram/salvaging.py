"""Salvage: what is sound of a damaged pool, copied into a new one.

A child process reads the damaged pool, without LMDB and without trust, and copies it member by
member. If one of them kills it all the same, that one is left out, and another child goes on after
it.
"""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engram import _child, _engram, errors
from engram.errors import CorruptError, EngramError
from engram.paths import absolute
from engram.pool import create

_ROOM = 1 << 26
"""Bytes beside those of the values: extents begin at round places."""


LOST = "lost+found"
"""The group of what has no group any more."""


@dataclass(frozen=True)
class LeftOut:
    """Something of a damaged pool that is lost, or has another place now."""

    namespace: str
    """Its namespace; empty for what is wrong with the whole pool."""

    path: str
    """The member's path; empty for what is wrong with the whole namespace."""

    what: str
    """What is lost, and why."""

    def __str__(self) -> str:
        where = "/".join(part for part in (self.namespace, self.path) if part)
        return f"{where}: {self.what}" if where else self.what


@dataclass(frozen=True)
class SalvageReport:
    """What a salvage has done; it is true if nothing was left out."""

    path: str
    """The damaged pool's."""

    target: str
    """The new pool's."""

    members: int = 0
    """Groups and objects that were found."""

    left_out: list[LeftOut] = field(default_factory=list)
    """What is lost, or has another place now."""

    noted: list[LeftOut] = field(default_factory=list)
    """What is there, and not as it was: who may see it."""

    def __bool__(self) -> bool:
        return not self.left_out

    def check(self) -> None:
        """Raise `CorruptError` if anything was left out."""
        if self.left_out:
            more = len(self.left_out) - 1
            message = f"not all could be salvaged: {self.left_out[0]}"
            raise CorruptError(message + (f" (and {more} more)" if more else ""))


def salvage(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> SalvageReport:
    """Copy everything sound of a damaged pool into a new pool at `target`.

    The damaged pool is only read, and must not be written to meanwhile. What is copied are new
    objects: their paths, values, dimensions and attributes are the old ones, what was read-only is
    so again, and the new pool keeps checksums if the old one did. Their ids, times and owners are
    not the old ones. All of it is shared, in namespaces that are yours alone: what was private or
    published, and the modes and owners that the namespaces had, the report notes.

    Raises
    ------
    PoolNotFoundError
        If there is no pool at `path`.
    ExistsError
        If there is something at `target`.
    PoolFullError
        If the filesystem there has no room.

    """
    source, new = str(absolute(path)), absolute(target)
    surveyed = _said(_child.run("_salvage", source), source)
    lost = [LeftOut(*loss) for loss in surveyed["losses"]]
    size = surveyed["nbytes"] + surveyed["nbytes"] // 4 + _ROOM
    noted = [LeftOut(*note) for note in surveyed["notes"]]
    sums = surveyed["checksums"]
    if sums is None:
        noted.append(
            LeftOut("", "", "whether it kept checksums is not known: the new pool has none")
        )
    with create(new, size=size, force=True, checksums=bool(sums)) as pool:
        for name, _ in surveyed["namespaces"]:
            if name != "default":
                pool.create_namespace(name, 0o700)
    try:
        for name, _ in surveyed["namespaces"]:
            lost += _namespace(source, str(new), name)
    except EngramError:
        _engram.destroy(new, force=False)
        raise
    found = sum(n for _, n in surveyed["namespaces"])
    return SalvageReport(source, str(new), found, lost, noted)


def _namespace(source: str, target: str, name: str) -> list[LeftOut]:
    """Copy a namespace, with as many children as it takes."""
    lost: list[LeftOut] = []
    start = 0
    while True:
        child = _child.run("_salvage", source, target, name, str(start))
        lines = [json.loads(line) for line in child.said.splitlines() if line.endswith("}")]
        lost += [LeftOut(*line["lost"]) for line in lines if "lost" in line]
        if child.death is None:
            _said(child, source)
            return lost
        begun = [line["at"] for line in lines if "at" in line]
        if not begun:
            lost.append(LeftOut(name, "", f"who read it {child.death}"))
            return lost
        place, path = begun[-1]
        lost.append(LeftOut(name, path, f"left out: who read it {child.death}"))
        start = place + 1


def _said(child: _child.Ended, source: str) -> dict[str, Any]:
    """Return the last line of a child that has done its work."""
    if child.death is not None:
        message = f"who read {source} {child.death}; nothing of it can be salvaged"
        raise CorruptError(message)
    try:
        found: dict[str, Any] = json.loads(child.said.splitlines()[-1])
    except (ValueError, IndexError):
        said = child.told.splitlines()[-1:] or [f"exit code {child.code}"]
        message = f"salvaging {source} broke off: {said[0]}"
        raise CorruptError(message) from None
    if "error" in found:
        error: EngramError = getattr(errors, found["error"])(found["message"])
        raise error
    return found


@contextlib.contextmanager
def staged(beside: Path) -> Iterator[Path]:
    """Give a hidden path beside a file, where a pool may be made; it is removed afterwards."""
    stage = beside.parent / f".engram-salvage-{secrets.token_hex(8)}"
    try:
        yield stage
    finally:
        try:
            _engram.destroy(stage, force=False)
        except EngramError:
            shutil.rmtree(stage, ignore_errors=True)


__all__ = ["LOST", "LeftOut", "SalvageReport", "salvage", "staged"]
