"""What the filesystem is, what it can promise, whether it has DAX, and how much room there is."""

from __future__ import annotations

import errno
import mmap
import os
import re
from typing import TYPE_CHECKING

from engram.cli.doctor.finding import Finding, Verdict
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.cli.doctor.place import Place

_ROOM_WANTED = 1 << 30
_ROOM_NEEDED = 16 << 20
_INODES_WANTED = 1000
_MAP_SHARED_VALIDATE = 0x3
_MAP_SYNC = 0x80000
_QUOTA = re.compile(r"(?:usr|grp|prj|u|g|p)?quota(?:$|=|_)|(?:usr|grp)jquota=")
_ELSEWHERE = "engram doctor $HOME (or a folder of your own on the same disk)"
_HOME = "put the pool on tmpfs, ext4 or xfs: `engram doctor /dev/shm` looks at one"


def findings(place: Place) -> Iterator[Finding]:
    """Yield what the mount says of itself."""
    yield _filesystem(place)
    yield _durability(place)
    yield _access(place)
    if place.refusal is None:
        yield _dax(place)
    room = os.statvfs(place.folder)
    yield _space(place, room)
    yield from _quota(place)
    if room.f_files:  # else it makes them as they are needed
        yield _inodes(place, room)


def of_node(place: Place) -> Iterator[Finding]:
    """Yield what a devdax node gives."""
    yield Finding("filesystem", "none: a devdax node, mapped as it is; a further device of a pool")
    if place.standing.durable:
        yield Finding("durability", '"system": cache lines written back survive a power cut')
    else:
        told = '"process": this memory is gone with the machine'
        yield Finding("durability", told)
    if os.access(place.folder, os.R_OK | os.W_OK):
        yield Finding("access", "this user may map it")
    else:
        remedy = f"sudo chown $USER {place.folder}"
        yield Finding("access", "this user may not open it", Verdict.wrong, remedy)
    yield Finding("DAX", "yes: devdax")
    free = place.standing.free
    yield Finding("space", f"{human(free)} for one pool's namespace", numbers={"free": free})


def _filesystem(place: Place) -> Finding:
    standing = place.standing
    told = f"{standing.filesystem}, mounted at {place.mount}"
    if standing.verdict == "allowed":
        return Finding("filesystem", told)
    if standing.verdict == "forced":
        remedy = f"`engram create --force` uses it at your risk; better, {_HOME}"
        return Finding("filesystem", f"{told}: {standing.reason}", Verdict.fair, remedy)
    return Finding("filesystem", f"{told}: {standing.reason}", Verdict.wrong, _HOME)


def _durability(place: Place) -> Finding:
    if place.standing.verdict == "refused":
        return Finding("durability", "none: a pool cannot be here", Verdict.wrong, _HOME)
    if place.standing.verdict == "forced" and place.standing.durable:
        told = "whatever this filesystem promises; nobody has tried"
        return Finding("durability", told, Verdict.fair, _HOME)
    if not place.standing.durable:
        told = '"process": survives the death of any process; memory is gone with the machine'
        remedy = 'for "system" (a power cut too), create the pool on ext4 or xfs'
        return Finding("durability", told, Verdict.good, remedy)
    if place.promised == "process":
        told = '"process", as this pool was created; the disk could give "system"'
        remedy = "create a pool with --durability system to survive a power cut"
        return Finding("durability", told, Verdict.good, remedy)
    told = '"system": each commit is on the disk when it returns, and survives a power cut'
    remedy = "create with --durability process if surviving kill -9 is enough: it is faster"
    return Finding("durability", told, Verdict.good, "" if place.promised else remedy)


def _access(place: Place) -> Finding:
    error = place.refusal
    if error is None:
        return Finding("access", "this user may make files here")
    if place.promised is not None:
        told = f"this user may make no files in {place.ground}, so nothing is tried there"
        return Finding("access", told, Verdict.fair, _ELSEWHERE)
    if error.errno == errno.EROFS:
        remedy = f"sudo mount -o remount,rw {place.mount}"
        return Finding("access", "mounted read-only", Verdict.wrong, remedy)
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = f"sudo chown $USER {place.folder}, or choose a folder of your own"
        return Finding("access", "this user may make no files here", Verdict.wrong, remedy)
    return Finding("access", f"no file can be made here: {error.strerror}", Verdict.wrong, _HOME)


def _dax(place: Place) -> Finding:
    if place.in_memory:
        return Finding("DAX", "not needed: files here are memory")
    with place.file() as file:
        os.ftruncate(file, mmap.PAGESIZE)
        try:
            mmap.mmap(file, mmap.PAGESIZE, flags=_MAP_SHARED_VALIDATE | _MAP_SYNC).close()
        except OSError:
            told = "none is needed: the page cache, in memory, is before the disk"
            remedy = f"on persistent memory only: sudo mount -o remount,dax=always {place.mount}"
            return Finding("DAX", told, Verdict.good, remedy)
    return Finding("DAX", "fsdax, MAP_SYNC: files are mapped from persistent memory itself")


def _space(place: Place, room: os.statvfs_result) -> Finding:
    free, total = place.standing.free, room.f_blocks * room.f_frsize
    told = f"{human(free)} free of {human(total)}"
    numbers: dict[str, object] = {"free": free, "total": total}
    if place.in_memory:
        remedy = f"sudo mount -o remount,size={human(max(2 * total, _ROOM_WANTED))} {place.mount}"
        remedy = remedy.replace(" GiB", "G").replace(" MiB", "M").replace(" TiB", "T")
    else:
        remedy = f"make room: `du -xh {place.mount} | sort -h | tail`, or add a device elsewhere"
    if free < _ROOM_NEEDED:
        return Finding("space", told, Verdict.wrong, remedy, numbers)
    if free < _ROOM_WANTED:
        return Finding("space", told, Verdict.fair, remedy, numbers)
    return Finding("space", told, numbers=numbers)


def _quota(place: Place) -> Iterator[Finding]:
    """Tell of quotas of the mount: its free space is not all for one user then."""
    options = (place.standing.options or "").split(",")
    quotas = [word for word in options if _QUOTA.match(word)]
    if quotas:
        told = (
            f"the mount bounds what users may have ({', '.join(quotas)}); beyond it a pool is full"
        )
        remedy = f"quota -s tells how much you may have; sudo edquota $USER, for {place.mount}"
        yield Finding("quota", told, Verdict.fair, remedy)


def _inodes(place: Place, room: os.statvfs_result) -> Finding:
    told = f"{room.f_favail:,} free of {room.f_files:,}; a pool takes about 10"
    numbers: dict[str, object] = {"free": room.f_favail, "total": room.f_files}
    if room.f_favail >= _INODES_WANTED:
        return Finding("inodes", told, numbers=numbers)
    remedy = f"remove files: `sudo du -x --inodes {place.mount} | sort -n | tail`"
    if place.in_memory:
        remedy = f"sudo mount -o remount,nr_inodes=1M {place.mount}"
    verdict = Verdict.fair if room.f_favail else Verdict.wrong
    return Finding("inodes", told, verdict, remedy, numbers)
