"""`engram get`, `put`, `rm` and `publish` of a cluster."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.cli import output, terminal
from engram.cli.over_nodes import facts
from engram.cli.terminal import plain
from engram.cli.values import load, reading
from engram.cluster import ClusterArray, ClusterGroup
from engram.cluster.listing import found_at, is_group, remove_all
from engram.errors import ArgumentError, ExistsError, NotFoundError
from engram.size import human

if TYPE_CHECKING:
    from engram.cluster import Cluster


def get_(cluster: Cluster, path: str, file: str | None, *, overwrite: bool) -> None:
    """Write an array as a NumPy file, or a blob's bytes."""
    thing = _named(cluster, path)
    kind = facts.kind(thing)
    if kind in {"group", "table"}:
        raise ArgumentError(
            f"{plain(path)}: is a {kind}; name one array or blob "
            f"(`engram ls {cluster.url()} {path}`)"
        )
    if kind == "blob":
        value: Any = bytes(thing[:])
        nbytes = len(value)
    else:
        value = np.asarray(thing[...])
        if value.dtype.kind == "T":
            value = value.astype(f"U{max((len(text) for text in value.flat), default=1) or 1}")
        nbytes = value.nbytes
    name = path.rpartition("/")[2]
    target = file or name + ("" if kind == "blob" else ".npy")
    with output.writing(target, overwrite=overwrite) as stream:
        if kind == "blob":
            stream.write(value)
        else:
            np.lib.format.write_array(stream, value, allow_pickle=False)
    if output.standard(target) is None:
        terminal.say(f"{target}: {human(nbytes)}")


def _named(cluster: Cluster, path: str) -> Any:
    """Return what lies at a path that is not the root."""
    if not path:
        raise ArgumentError(f"{cluster.url()} is the whole cluster: name something in it")
    return found_at(cluster, path)


def put_(
    cluster: Cluster,
    path: str,
    file: str,
    *,
    blob: bool,
    dims: str | None,
    overwrite: bool,
) -> None:
    """Store an array in parts; below a group, an array or a blob at its home."""
    there = None
    with contextlib.suppress(NotFoundError):
        there = _named(cluster, path)
    if there is not None and (is_group(there) or not overwrite):
        what = "is a group with members" if is_group(there) else "exists; add --overwrite"
        raise ExistsError(f"{plain(path)}: {what}" + (": put into it" if is_group(there) else ""))
    above = home_of(cluster, path)
    names = None if dims is None else tuple(dims.split(","))
    if blob:
        with reading(file) as stream:
            value: Any = stream.read()
        if above is None:
            raise ArgumentError(
                f"{plain(path)}: bytes lie below a group, on the node that is their home, and no "
                f"group of the cluster is above it: make one, such as "
                f'cluster.create_group({path.partition("/")[0]!r}, spread="hash") in Python'
            )
    else:
        value = load(file)
    if above is None:
        made: Any = cluster.put(path, value, dims=names)
        where = f", in {terminal.counted(len(made.parts), 'part')}"
    else:
        above.put(above.inside(path), value, dims=names, exist_ok=overwrite)
        made, where = value, ""
    nbytes = facts.nbytes_of(made) if isinstance(made, ClusterArray) else _length(value)
    shape = "blob" if blob else f"{value.dtype} {' x '.join(map(str, value.shape)) or 'scalar'}"
    terminal.say(f"{path}: {shape}, {human(nbytes)}{where}")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, bytes) else int(value.nbytes)


def home_of(cluster: Cluster, path: str) -> ClusterGroup | None:
    """Return the group of the cluster below which a path lies, if there is one."""
    found = cluster._find(path)
    return found if isinstance(found, ClusterGroup) and found.path != path else None


def rm_(cluster: Cluster, paths: list[str], *, recursive: bool) -> None:
    """Delete names, and what lies below groups.

    Names of the cluster go together, or none; what lies below groups goes one by one, before them.
    """
    for path in paths:
        thing = _named(cluster, path)
        if is_group(thing) and not recursive and next(iter(thing), None) is not None:
            raise ArgumentError(
                f"{plain(path)}: is a group with members; add -r to delete it with all in it"
            )
    remove_all(cluster, paths)


def publish_(cluster: Cluster, path: str | None) -> None:
    """Seal an array that its nodes have written in place: nothing of it is written again."""
    array = cluster.publish(path or "")
    terminal.say(f"{array.path}: sealed, generation {array.generation}")
