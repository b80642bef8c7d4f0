"""What may remove a pool's files before its user does: a logout, the end of a job, a container.

Files in memory are as mortal as whatever keeps the house there. logind, with `RemoveIPC`, which is
its default, removes what a user has in /dev/shm at the last logout; a batch system's epilog may
clear it, or give each job a /dev/shm of its own; that of a container goes with it. None of it can
be tried, so what is configured is read.
"""

from __future__ import annotations

import os
import pwd
import re
import warnings
from pathlib import Path
from typing import NamedTuple

from engram.errors import EngramWarning

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
_FIRST_USER = 1000
"""logind leaves alone what belongs to system users, whose numbers are below."""
_LOGIND = ("usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd")
_SLURM = ("etc/slurm", "etc/slurm-llnl", "run/slurm/conf", "usr/local/etc")
_CONTAINERS = (".dockerenv", "run/.containerenv", ".singularity.d")
_SMALL = 64 << 20
"""What docker and podman give to /dev/shm where they are not asked for more."""


class Threat(NamedTuple):
    """Something that removes files, and what to do about it."""

    what: str
    found: str
    remedy: str


def threats(place: Path, root: Path = Path("/"), uid: int | None = None) -> list[Threat]:
    """Give what may remove this user's files at a place, as configured below `root`."""
    if not place.resolve().is_relative_to(_SHARED_MEMORY):
        return []
    looked = (_logout(root, os.getuid() if uid is None else uid), *_jobs(root), _container(root))
    return [threat for threat in looked if threat is not None]


def warn_of_logout(place: Path, stacklevel: int) -> None:
    """Warn the caller's caller of what a logout would remove."""
    for threat in threats(place):
        if threat.what == "logout":
            warnings.warn(f"{threat.found}: {threat.remedy}", EngramWarning, stacklevel)


def _logout(root: Path, uid: int) -> Threat | None:
    """Tell of logind's RemoveIPC, if it is on for this user."""
    if uid < _FIRST_USER or not (root / "run/systemd/system").is_dir():
        return None
    asked = "yes"
    for text in _settings(root):
        for line in text.splitlines():
            if match := re.fullmatch(r"\s*RemoveIPC\s*=\s*(\w*)\s*", line):
                asked = match[1] or "yes"
    if asked.lower() not in {"yes", "true", "on", "1"}:
        return None
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    if (root / "var/lib/systemd/linger" / name).exists():
        return None
    return Threat(
        "logout",
        "logind removes what you have in /dev/shm when your last session ends (RemoveIPC=yes)",
        f"loginctl enable-linger {name}, or RemoveIPC=no in /etc/systemd/logind.conf (root)",
    )


def _settings(root: Path) -> list[str]:
    """Give logind's configuration: the files, and what is dropped in, the strongest last."""
    files = [root / folder / "logind.conf" for folder in _LOGIND]
    dropped = [path for folder in _LOGIND for path in (root / folder).glob("logind.conf.d/*.conf")]
    # Of dropped files of one name the one in the strongest folder counts.
    strongest = {path.name: path for path in dropped}
    found = [_text(path) for path in files]
    return [*found, *(_text(strongest[name]) for name in sorted(strongest))]


def _jobs(root: Path) -> list[Threat]:
    """Tell of Slurm's ways to clear a node after a job."""
    found = []
    for path in (root / folder / "slurm.conf" for folder in _SLURM):
        settings = {
            key.lower(): value
            for key, value in re.findall(r"(?m)^\s*(\w+)\s*=\s*([^\s#]+)", _text(path))
        }
        own = settings.get("jobcontainertype", "").endswith("tmpfs") or "tmpfs" in settings.get(
            "namespacetype", ""
        )
        if own:
            found.append(
                Threat(
                    "end of the job",
                    f"each job may have a /dev/shm of its own, which goes with it ({path})",
                    "keep the pool on a disk, or `engram backup` it as the job's last step",
                )
            )
        if epilog := settings.get("epilog"):
            found.append(
                Threat(
                    "end of the job",
                    f"{epilog} runs when a job ends, and may clear /dev/shm ({path})",
                    "ask who runs the cluster; else `engram backup` as the job's last step",
                )
            )
    return found


def _container(root: Path) -> Threat | None:
    """Tell of a container, whose /dev/shm goes with it, and is small where nobody has asked."""
    if not any((root / name).exists() for name in _CONTAINERS):
        return None
    told = "this is a container: its /dev/shm goes with it, unless it is the host's"
    about = os.statvfs(_SHARED_MEMORY)
    if about.f_blocks * about.f_frsize <= _SMALL:
        told += ", and has 64 MiB alone"
    return Threat("container", told, "run it with --ipc=host, or with --shm-size=16g for its life")


def _text(path: Path) -> str:
    """Read a file; one that is not there, or not for this user, says nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
