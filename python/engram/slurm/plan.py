"""What a job asks for: its pools, and what is copied into them and out of them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple, Self

from engram.errors import ArgumentError, EngramError
from engram.size import parse

MODES = ("", "tmpfs", "fsdax", "devdax")


class RefusedError(EngramError):
    """What a job asks for cannot be done; the message says why, and what to do."""


class Asked(NamedTuple):
    """A pool that a job asks for."""

    name: str
    """Its name, if it outlives the job; else nothing."""
    capacity: int
    """So many bytes of values."""
    mode: str
    """On which kind of memory it lies; nothing: in a folder of the node's `base`."""


class Copy(NamedTuple):
    """A folder or file that is brought into a pool, or out of it."""

    source: str
    dest: str
    kind: str
    """"file" or "directory"; nothing: whichever it is."""
    pool: str
    """The name of the pool; nothing: the job's own."""
    existing: str
    """What becomes of other files of the same names, as `engram stage` takes it."""


class Plan(NamedTuple):
    """What one job asks for, on one node."""

    job: str
    uid: int
    gid: int
    node: str
    """The node's name, if the job has several: what each brings out gets a folder of that name."""
    base: Path
    fsdax: str
    devdax: str
    again: bool
    """Whether the job has run before: results of that run make way."""
    pools: tuple[Asked, ...]
    into: tuple[Copy, ...]
    out: tuple[Copy, ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the plan that `burst_buffer.lua` has written."""
        said: dict[str, Any] = json.loads(text)
        pools = [Asked(each["name"], int(each["capacity"]), each["mode"]) for each in said["pools"]]
        return cls(
            str(said["job"]),
            int(said["uid"]),
            int(said["gid"]),
            said["node"],
            Path(said["base"]),
            said["fsdax"],
            said["devdax"],
            said["again"] == "yes",
            tuple(pools),
            tuple(_copy(each) for each in said["in"]),
            tuple(_copy(each) for each in said["out"]),
        )

    def folder(self, asked: Asked) -> Path:
        """Return the folder that holds a pool and the place to mount it at."""
        name = f"{self.uid}-{asked.name}" if asked.name else f"job-{self.job}"
        base = Path(self.fsdax) if asked.mode == "fsdax" and self.fsdax else self.base
        return base / f"engram-{name}"

    def mode(self, name: str) -> str:
        """Return the kind of memory of the pool of this name."""
        return next((asked.mode for asked in self.pools if asked.name == name), "")

    def pool(self, name: str) -> Path:
        """Return the path of the pool of this name."""
        for asked in self.pools:
            if asked.name == name:
                return self.folder(asked) / "pool"
        raise RefusedError(f"the job has no pool of the name {name!r}")


def of_comment(text: str) -> tuple[tuple[Asked, ...], tuple[Copy, ...], tuple[Copy, ...]]:
    """Return what a job's comment asks for: one pool, and copies in and out.

    ::

        engram capacity=20G mode=tmpfs stage_in=/pfs/case-7:case-7 stage_out=case-7/out:/pfs/out

    """
    capacity, mode = "", ""
    copies: dict[str, list[Copy]] = {"stage_in": [], "stage_out": []}
    for word in shlex.split(text)[1:]:
        key, _, value = word.partition("=")
        if key == "capacity":
            capacity = value
        elif key == "mode" and value in MODES:
            mode = value
        elif key in copies and ":" in value:
            source, _, dest = value.rpartition(":") if key == "stage_in" else value.partition(":")
            if not (source if key == "stage_in" else dest).startswith("/"):
                raise RefusedError(f"{word}: the path outside the pool begins with /")
            copies[key].append(Copy(source, dest, "", "", ""))
        else:
            raise RefusedError(
                f"{word}: a comment takes capacity=, mode={'|'.join(MODES[1:])}, "
                "stage_in=SOURCE:PATH and stage_out=PATH:TARGET"
            )
    if not capacity:
        raise RefusedError("capacity= is missing: write it as capacity=20G")
    return (Asked("", _bytes(capacity), mode),), (*copies["stage_in"],), (*copies["stage_out"],)


def _bytes(capacity: str) -> int:
    """Read a size as Slurm does: K, M, G and T are powers of 1024."""
    short = capacity[-1:].lower() in {"k", "m", "g", "t", "p"}
    try:
        return parse(f"{capacity}iB" if short else capacity)
    except ArgumentError as error:
        raise RefusedError(f"capacity={capacity}: {error}") from error


def _copy(said: dict[str, str]) -> Copy:
    return Copy(
        said["source"],
        said["dest"],
        said.get("type", ""),
        said["pool"],
        said.get("existing", ""),
    )
