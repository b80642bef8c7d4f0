"""Resources that are kept as arrays: imported by their format, and exported again.

What was exported is looked at: it is imported anew, past the cache, and each array is compared.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from engram.errors import EngramError, ExistsError
from engram.formats import export_file, import_file
from engram.group import Group
from engram.jobs.description import Resource
from engram.jobs.pools import STAGES
from engram.pool import Pool
from engram.stage import Trouble

_SOURCE = "engram.imported"
"""The attribute that says what a group was imported from."""
_LOOK = f"{STAGES}/.look"


def bring_in(pool: Pool, resource: Resource) -> int:
    """Import a resource unless that was done; give the bytes of its values.

    Raises
    ------
    EngramError
        What importing raises.

    """
    about = resource.path.stat()
    key = f"{about.st_dev} {about.st_ino} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}"
    group = pool.require_group(resource.to) if resource.to else pool
    if group.attrs.get(_SOURCE) == key:
        return 0
    report = import_file(resource.path, group, overwrite=True)
    group.attrs[_SOURCE] = key
    return report.nbytes


def bring_out(pool: Pool, resource: Resource, target: Path, *, overwrite: bool) -> list[Trouble]:
    """Export a resource, and see that what is there then has the same arrays.

    Raises
    ------
    EngramError
        What exporting raises.

    """
    group = pool[resource.to] if resource.to else pool
    target.parent.mkdir(parents=True, exist_ok=True)
    source = group.attrs.get(_SOURCE)
    if source is not None:  # it is of this pool alone
        del group.attrs[_SOURCE]
    try:
        try:
            export_file(group, target, overwrite=overwrite)
        except ExistsError:
            if _differences(pool, group, target):
                raise
            return []
        return [Trouble(str(target), why) for why in _differences(pool, group, target)]
    finally:
        if source is not None:
            group.attrs[_SOURCE] = source


def is_outside(pool: Pool, resource: Resource, target: Path) -> bool:
    """Whether a file outside has the arrays of a resource as the pool has them."""
    group = pool[resource.to] if resource.to else pool
    return target.exists() and not _differences(pool, group, target)


def _differences(pool: Pool, group: Group, target: Path) -> list[str]:
    """Say in what a file differs from the group that it is to have."""
    _past_the_cache(target)
    if _LOOK in pool:
        del pool[_LOOK]
    look = pool.create_group(_LOOK)
    try:
        import_file(target, look)
        found, expected = dict(_arrays(look)), dict(_arrays(group))
        return [
            f"{path} is not there as the pool has it: the pool keeps it; export it by hand"
            for path, member in expected.items()
            if path not in found or not _same(member, found[path])
        ]
    except EngramError as error:
        return [f"what was exported cannot be read again: {error}"]
    finally:
        del pool[_LOOK]


def _past_the_cache(target: Path) -> None:
    """Make a file, or the files of a folder, durable, and have the kernel forget them."""
    paths = [target]
    if target.is_dir():
        paths = [path for path in target.rglob("*") if path.is_file()]
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(opened)


def _arrays(group: Any, above: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, member in group.items():
        path = f"{above}/{name}" if above else name
        if member._is_group:
            found += _arrays(member, path)
        else:
            found.append((path, member))
    return found


def _same(one: Any, other: Any) -> bool:
    """Whether two objects hold the same, not-a-numbers by their bits."""
    mine, others = one[...], other[...]
    if isinstance(mine, bytes) or isinstance(others, bytes):
        return bool(type(mine) is type(others) and mine == others)
    mine, others = np.asarray(mine), np.asarray(others)
    if mine.dtype != others.dtype or mine.shape != others.shape:
        return False
    if mine.dtype.hasobject or mine.dtype.kind == "T":
        return bool(np.array_equal(mine, others))
    return mine.tobytes() == others.tobytes()
