"""A command whose memory is limited: it runs in a cgroup of its own, which goes when it has ended.

With version 1 of cgroups the new one is a child of the one that this process is in, so that
whatever limits this process already holds for the command, too. With version 2 a group with
processes has no children; there systemd makes one, where it runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
SYSTEMD = Path("/run/systemd/system")
MOUNTS = Path("/proc/self/mountinfo")


class RefusedError(Exception):
    """There is no such limit on this machine, or no such place; why is said."""


@dataclass(frozen=True)
class Group:
    """What a command starts with to be limited, and the group's folder, if it is known."""

    command: list[str]
    place: Path | None


@contextlib.contextmanager
def limited(most_bytes: int) -> Iterator[Group]:
    """Make a group with that much memory, page cache and all.

    Raises
    ------
    RefusedError
        If none can be made.

    """
    listed = [line.split(":", 2) for line in OWN.read_text(encoding="utf-8").splitlines()]
    mine = [path for _, controllers, path in listed if "memory" in controllers.split(",")]
    if not mine:
        yield by_systemd(most_bytes)
        return
    group = GROUPS / "memory" / mine[0].lstrip("/") / f"engram-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as refusal:
        raise RefusedError(f"no cgroup can be made: {refusal.strerror}") from None
    try:
        try:
            (group / "memory.limit_in_bytes").write_text(str(most_bytes), encoding="ascii")
            with contextlib.suppress(FileNotFoundError):  # kernels that do not account swap
                (group / "memory.memsw.limit_in_bytes").write_text(str(most_bytes), "ascii")
        except OSError as refusal:
            raise RefusedError(f"a cgroup takes no limit: {refusal.strerror}") from None
        join = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group / "cgroup.procs")]
        yield Group(join, group)
    finally:
        group.rmdir()


def by_systemd(most_bytes: int) -> Group:
    """Let systemd make the group.

    Raises
    ------
    RefusedError
        If it does not run here.

    """
    program = shutil.which("systemd-run")
    if program is None or not SYSTEMD.exists():
        raise RefusedError("no cgroup can be made: version 2, and systemd does not run")
    whose = [] if os.geteuid() == 0 else ["--user"]
    limits = ["-p", f"MemoryMax={most_bytes}", "-p", "MemorySwapMax=0"]
    return Group([program, *whose, "--scope", "--quiet", *limits, "--"], None)


def filesystem(place: Path) -> str:
    """Return the type of the filesystem that a folder is on."""
    device = place.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in MOUNTS.read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == number:
            return after.split()[0]
    return "unknown"
