"""Persistent pools by name: on which nodes they lie, and until when they are wanted.

A pool that stays after its job is noted in a folder that a user's nodes share: a file for each
name, node and place, `~/.local/state/engram/pools` if nothing else is said. Each is written beside
its place and renamed, so nobody reads half of one. A node cannot look at another's memory. So a
file whose pool is gone is removed by whoever looks on its own node, and counts until then.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from engram.errors import NotFoundError
from engram.paths import POOL_FILE, absolute

_SLURM_SECONDS = 10.0
"""So long Slurm may take to tell its pools."""
_SLURMS = re.compile(r"^\s*\S+\s+(\d+)\s+persistent\s+(\S+)\s+(\d+)\s+(\S+)\s*$", re.MULTILINE)
"""A line of `scontrol show bbstat`: user, nodes, bytes, name."""
_SEVERAL = re.compile(r"[\s,]+")


class PersistentPool(NamedTuple):
    """A pool that outlives its job, and where it lies."""

    name: str
    """The name by which further jobs find it."""
    node: str
    """The node, as Slurm calls it; without Slurm its host name up to the first dot."""
    path: Path | None
    """The pool's folder on that node; None: Slurm knows it, and does not say."""
    size: int
    """How many bytes of files it may hold."""
    used: float | None
    """When a job had it last, in seconds since 1970; None: nobody has noted it."""
    expires: float | None
    """From when on it is not wanted any more, in seconds since 1970; None: it does not expire."""
    is_slurms: bool = False
    """Whether it is a persistent pool of Slurm's, which its own directives make and end."""

    @property
    def expired(self) -> bool:
        """Whether that time is over."""
        return self.expires is not None and self.expires <= time.time()


class _Entry(NamedTuple):
    """A file of the registry."""

    file: Path
    host: str
    """The host's own name, by which a node knows its own entries."""
    user: int
    pool: PersistentPool

    @classmethod
    def read(cls, file: Path) -> "Self | None":
        """Read one; None: it is gone, or none."""
        try:
            said: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            expires = said["expires"]
            pool = PersistentPool(
                str(said["name"]),
                str(said["node"]),
                Path(said["path"]),
                int(said["size"]),
                float(said["used"]),
                None if expires is None else float(expires),
                said.get("is_slurms") is True,
            )
            return cls(file, str(said["host"]), int(said["user"]), pool)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def is_here(self) -> bool:
        """Whether its pool is to lie on this node."""
        return self.host == socket.gethostname()

    @property
    def is_gone(self) -> bool:
        """Whether it is this node's, and the pool is not there any more."""
        place = self.pool.path
        if not self.is_here or place is None:
            return False
        try:
            (place / POOL_FILE).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # nobody can say
            return False
        return False


def folder() -> Path:
    """Give the folder of the registry: it need not be there."""
    if said := os.environ.get("ENGRAM_STATE"):
        return absolute(said) / "pools"
    if said := os.environ.get("XDG_STATE_HOME"):
        return absolute(said) / "engram" / "pools"
    return Path("~/.local/state/engram/pools").expanduser()


def node() -> str:
    """Give the name of this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]


def note(
    name: str,
    place: Path,
    size: int,
    lifetime: int | None = None,
    *,
    is_slurms: bool = False,
) -> None:
    """Note that a pool lies here, is used now, and is wanted for so many seconds from now on.

    Raises
    ------
    OSError
        If the registry cannot be written.

    """
    now = time.time()
    said = {
        "name": name,
        "node": node(),
        "host": socket.gethostname(),
        "user": os.geteuid(),
        "path": str(place),
        "size": size,
        "used": now,
        "expires": None if lifetime is None else now + lifetime,
        "is_slurms": is_slurms,
    }
    where = folder()
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = hashlib.sha256(os.fsencode(place)).hexdigest()[:8]
    file = where / f"{name}@{node()}@{key}"
    new = where / f".{file.name}.{os.getpid()}"
    try:
        with new.open("w", encoding="utf-8") as opened:
            json.dump(said, opened)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def forget(place: Path) -> None:
    """Remove what is noted of a pool of this node."""
    for entry in _entries():
        if entry.is_here and entry.pool.path == place:
            with contextlib.suppress(OSError):
                entry.file.unlink()


def here() -> list[PersistentPool]:
    """Give this user's persistent pools on this node, by name."""
    return [entry.pool for entry in _entries() if entry.is_here]


def nodes(name: str) -> list[PersistentPool]:
    """Say on which nodes a persistent pool of this name lies, by node.

    ::

        where = ",".join(pool.node for pool in engram.jobs.nodes("weather"))
        subprocess.run(["sbatch", f"--nodelist={where}", "job.sh"])

    Those are this user's pools that jobs have kept whose description says `reuse`, and the
    persistent pools of Slurm that were noted when they were made, or that Slurm tells. What was
    noted of a pool of this node that is gone is not told, and forgotten.

    Raises
    ------
    NotFoundError
        If there is none of this name.

    """
    known = [entry.pool for entry in _entries()]
    found = [pool for pool in known if pool.name == name]
    noted = {pool.node for pool in found}
    slurms = _of_slurm()
    found += [pool for pool in slurms if pool.name == name and pool.node not in noted]
    if not found:
        names = sorted({pool.name for pool in known + slurms})
        there = f"there are {', '.join(names)}" if names else "no pool of this user is noted"
        raise NotFoundError(
            f"no persistent pool is known by the name {name!r}: {there}; a job makes one whose "
            f"description says reuse"
        )
    return sorted(found, key=lambda pool: (pool.node, str(pool.path)))


def _entries() -> list[_Entry]:
    """Give what is noted of this user's pools; what is noted of pools that are gone goes."""
    found = []
    try:
        files = sorted(folder().iterdir())
    except OSError:
        return []
    for file in files:
        if file.name.startswith("."):
            continue
        entry = _Entry.read(file)
        if entry is None or entry.user != os.geteuid():
            continue
        if entry.is_gone:
            with contextlib.suppress(OSError):
                entry.file.unlink()
        else:
            found.append(entry)
    return found


def _of_slurm() -> list[PersistentPool]:
    """Give the persistent pools of this user that Slurm tells of."""
    program = shutil.which("scontrol")
    if program is None:
        return []
    try:
        done = subprocess.run(  # noqa: S603 - Slurm's own program, no shell
            [program, "show", "bbstat"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SLURM_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return []
    return [
        PersistentPool(name, each, None, int(size), None, None, is_slurms=True)
        for user, listed, size, name in _SLURMS.findall(done.stdout)
        if int(user) == os.geteuid()
        for each in filter(None, _SEVERAL.split(listed))
    ]
