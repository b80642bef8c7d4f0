"""What may remove a pool's files before its user does: a logout, the end of a job, a container.

Files in memory are as mortal as whatever keeps the house there. logind, with `RemoveIPC`, which is
its default, removes what a user has in /dev/shm at the last logout; a batch system's epilog may
clear it, or give each job a /dev/shm of its own; that of a container goes with it. In any folder
systemd-tmpfiles removes what is older than its configuration says, in use or not. None of it can be
tried, so what is configured is read.
"""

from __future__ import annotations

import fnmatch
import os
import pwd
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engram.errors import EngramWarning
from engram.paths import POOL_FILE
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
_FIRST_USER = 1000
"""logind leaves alone what belongs to system users, whose numbers are below."""
_LOGIND = ("usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd")
_TMPFILES = ("usr/lib/tmpfiles.d", "usr/local/lib/tmpfiles.d", "run/tmpfiles.d", "etc/tmpfiles.d")
_CLEANED, _EMPTIED, _KEPT = "dDevqQC", "D", "x"
"""Types of lines of tmpfiles.d: folders whose old files go, that are empty at boot, exceptions."""
_SLURM = ("etc/slurm", "etc/slurm-llnl", "run/slurm/conf", "usr/local/etc")
_OF_A_JOB = {"job_container/tmpfs", "namespace/tmpfs", "namespace/linux"}
"""Slurm's plugins that give a job folders of its own."""
_CONTAINERS = (".dockerenv", "run/.containerenv", ".singularity.d", "run/systemd/container")
_SMALL = 64 << 20
"""What docker and podman give to /dev/shm where they are not asked for more."""


class Threat(NamedTuple):
    """Something that removes files, and what to do about it."""

    what: str
    found: str
    remedy: str


def threats(place: Path, root: Path = Path("/"), uid: int | None = None) -> list[Threat]:
    """Give what may remove files at a place, as configured below `root`.

    `uid` is whose files are meant; if None, whose the place is.
    """
    full = place.resolve()
    looked = [_cleaner(root, full)]
    if full.is_relative_to(_SHARED_MEMORY):
        owner = _owner(full) if uid is None else uid
        looked += [_logout(root, owner), *_jobs(root), _container(root)]
    return [threat for threat in looked if threat is not None]


def warn_of_logout(place: Path, stacklevel: int) -> None:
    """Warn the caller's caller of what a logout would remove."""
    for threat in threats(place):
        if threat.what == "logout":
            warnings.warn(f"{threat.found}: {threat.remedy}", EngramWarning, stacklevel)


def _owner(place: Path) -> int | None:
    """Give the one user to whom all on the way to a place belongs; None if there are more.

    logind enters a folder only if it is the user's who has logged out. What is made at a place that
    is no pool will be this user's.
    """
    above = [place, *place.parents]
    way = [each for each in above[: above.index(_SHARED_MEMORY)] if os.access(each, os.F_OK)]
    owners = {each.stat().st_uid for each in way}
    if not os.access(place / POOL_FILE, os.F_OK):
        owners.add(os.getuid())
    return owners.pop() if len(owners) == 1 else None


def _logout(root: Path, uid: int | None) -> Threat | None:
    """Tell of logind's RemoveIPC, if it is on for this user."""
    if uid is None or uid < _FIRST_USER or not (root / "run/systemd/system").is_dir():
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
        f"logind removes what {name} has in /dev/shm at {name}'s last logout (RemoveIPC=yes)",
        f"loginctl enable-linger {name}, or RemoveIPC=no in /etc/systemd/logind.conf (root)",
    )


def _settings(root: Path) -> list[str]:
    """Give logind's configuration: the files, and what is dropped in, the strongest last."""
    files = [_text(root / folder / "logind.conf") for folder in _LOGIND]
    return files + _dropped(root, [f"{folder}/logind.conf.d" for folder in _LOGIND])


def _dropped(root: Path, folders: Iterable[str]) -> list[str]:
    """Give the files of folders by name; of those of one name the one in the last folder counts."""
    strongest = {path.name: path for each in folders for path in (root / each).glob("*.conf")}
    return [_text(strongest[name]) for name in sorted(strongest)]


def _cleaner(root: Path, place: Path) -> Threat | None:
    """Tell of systemd-tmpfiles, if it removes what is old at a place, or all of it at boot."""
    if not (root / "run/systemd/system").is_dir():
        return None
    lines = [line.split() for text in _dropped(root, _TMPFILES) for line in text.splitlines()]
    on_the_way = [str(each) for each in (place, *place.parents)]
    nearest, kind, age = "", "", "-"
    for words in lines:
        if len(words) < 2 or not fnmatch.filter(on_the_way, words[1]):  # noqa: PLR2004 - type, path
            continue
        if words[0][0] == _KEPT:
            return None
        if words[0][0] in _CLEANED and len(words[1]) > len(nearest):
            nearest, kind, age = words[1], words[0][0], [*words[2:], *"----"][3]
    if age != "-":
        told = f"systemd-tmpfiles removes what is older than {age} in {nearest}, in use or not"
    elif kind == _EMPTIED and not place.is_relative_to(_SHARED_MEMORY):
        told = f"systemd-tmpfiles empties {nearest} at boot"
    else:
        return None
    remedy = f"echo 'x {place}' | sudo tee -a /etc/tmpfiles.d/engram.conf, or another folder"
    return Threat("cleaner", told, remedy)


def _jobs(root: Path) -> list[Threat]:
    """Tell of Slurm's ways to clear a node after a job."""
    found = []
    for path in (root / folder / "slurm.conf" for folder in _SLURM):
        settings = {
            key.lower(): value
            for key, value in re.findall(r"(?m)^\s*(\w+)\s*=\s*([^\s#]+)", _text(path))
        }
        kinds = {settings.get("jobcontainertype", ""), settings.get("namespacetype", "")}
        if kinds & _OF_A_JOB and _has_own_memory(path.parent):
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


def _has_own_memory(folder: Path) -> bool:
    """Whether a job's own folders, as configured beside slurm.conf, have /dev/shm among them."""
    text = _text(folder / "job_container.conf") + _text(folder / "namespace.yaml")
    text = re.sub(r"#.*", "", text)
    places = re.findall(r"(?im)(?:^|\s)dirs\s*[=:]\s*(\S+)", text)
    bases = re.findall(r"(?im)(?:^|\s)base_?path\s*[=:]", text)
    # Where nothing is said of a base, it is /tmp and /dev/shm.
    return len(places) < max(len(bases), 1) or any(str(_SHARED_MEMORY) in each for each in places)


def _container(root: Path) -> Threat | None:
    """Tell of a container, whose /dev/shm goes with it, and is small where nobody has asked."""
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    if not (in_pod or any((root / name).exists() for name in _CONTAINERS)):
        return None
    told = "this is a container: its /dev/shm goes with it, unless it is the host's"
    about = os.statvfs(_SHARED_MEMORY)
    if about.f_blocks * about.f_frsize <= _SMALL:
        told += f", and has {human(about.f_blocks * about.f_frsize)} alone"
    remedy = "run it with --shm-size=16g for its life; with --ipc=host --pid=host for the host's"
    if in_pod:
        remedy = "mount an emptyDir with `medium: Memory` and a sizeLimit at /dev/shm"
    return Threat("container", told, remedy)


def _text(path: Path) -> str:
    """Read a file; one that is not there, or not for this user, says nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
