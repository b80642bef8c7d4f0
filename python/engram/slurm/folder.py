"""The folder that a pool of a job lies in: made and removed by root, the user's own meanwhile."""

from __future__ import annotations

import fcntl
import math
import os
import stat
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engram.size import human
from engram.slurm.plan import Asked, Plan, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

OVERHEAD = 64 << 20
"""What a pool takes on a file system of its own beside its values, at least."""
SHARE = 32
"""And this part of its capacity."""


def prepare(plan: Plan, asked: Asked) -> None:
    """Make the folder of a pool, of the kind of memory that the job asks for."""
    folder = plan.folder(asked)
    if asked.mode == "fsdax":
        _see_that_it_is_dax(plan.fsdax)
    if asked.mode == "devdax":
        _take_device(plan)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        _see_whose(folder, plan.uid)
    except FileNotFoundError:
        raise RefusedError(f"{folder.parent} is not there: name another folder as base") from None
    else:
        os.chown(folder, plan.uid, plan.gid)
    if asked.mode == "tmpfs" and not folder.is_mount():
        _mount_tmpfs(plan, asked)


def release(plan: Plan, asked: Asked) -> None:
    """Remove the folder of a pool that is gone, with what is mounted there."""
    folder = plan.folder(asked)
    for mount in _mounts_below(folder):
        _run("umount", str(mount))
    if folder.exists():
        _see_whose(folder, plan.uid)
        folder.rmdir()
    if asked.mode == "devdax" and Path(plan.devdax).stat().st_uid == plan.uid:
        os.chown(plan.devdax, 0, 0)
        Path(plan.devdax).chmod(0o600)


@contextmanager
def alone(folder: Path, patience: float = math.inf) -> Iterator[None]:
    """Keep other stages of the same folder waiting, or wait for theirs; for `patience` seconds.

    One that Slurm gave up may not have ended, and a persistent pool may have several jobs.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise RefusedError(f"another stage is at work in {folder} still") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def _see_whose(folder: Path, uid: int) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
        raise RefusedError(f"{folder} is there already, and belongs to user {found.st_uid}")


def _mount_tmpfs(plan: Plan, asked: Asked) -> None:
    if os.geteuid() != 0:
        raise RefusedError("mode=tmpfs is for root to mount: have the runner begin as root")
    size = asked.capacity + max(OVERHEAD, asked.capacity // SHARE)
    free = _free_memory()
    if size > free:
        raise RefusedError(
            f"mode=tmpfs: {human(size)} are asked for, and the node has {human(free)} left"
        )
    options = f"size={size},mode=0700,uid={plan.uid},gid={plan.gid},nosuid,nodev"
    _run("mount", "-t", "tmpfs", "-o", options, "engram", str(plan.folder(asked)))


def _free_memory() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise RefusedError("/proc/meminfo does not say how much memory is left")


def _mounts() -> list[tuple[Path, str]]:
    """Return where something is mounted, and with which options; the deepest come last."""
    found = []
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, where, _, options, *_ = line.split(" ")
        found.append((Path(where.replace("\\040", " ")), options))
    return found


def _mounts_below(folder: Path) -> list[Path]:
    return [where for where, _ in reversed(_mounts()) if where.is_relative_to(folder)]


def _see_that_it_is_dax(place: str) -> None:
    if not place:
        raise RefusedError("mode=fsdax: this cluster has no file system with dax (fsdax= is empty)")
    holding = [each for each in _mounts() if Path(place).is_relative_to(each[0])]
    where, options = max(holding, key=lambda each: len(each[0].parts))
    if not {"dax", "dax=always", "dax=inode"} & set(options.split(",")):
        raise RefusedError(f"mode=fsdax: {place} lies on {where}, which is not mounted with dax")


def _take_device(plan: Plan) -> None:
    if not plan.devdax:
        raise RefusedError("mode=devdax: this cluster has no devdax node (devdax= is empty)")
    node = Path(plan.devdax)
    if not node.is_char_device() or not _is_dax(node):
        raise RefusedError(f"mode=devdax: {node} is no devdax node of this machine")
    owner = node.stat().st_uid
    if owner not in {0, plan.uid}:
        raise RefusedError(f"mode=devdax: user {owner} has {node}: wait for that job to end")
    os.chown(node, plan.uid, plan.gid)
    node.chmod(0o600)


def _is_dax(node: Path) -> bool:
    number = node.stat().st_rdev
    kind = Path(f"/sys/dev/char/{os.major(number)}:{os.minor(number)}/subsystem")
    return kind.exists() and kind.resolve().name == "dax"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RefusedError(f"{' '.join(command)}: {done.stderr.strip()}")
