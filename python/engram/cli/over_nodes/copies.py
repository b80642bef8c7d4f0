"""`engram plot`, `export` and `import` of a cluster: by way of a pool of this process.

Formats and pictures are made of pools. So what is to go out is copied into a pool in this host's
memory first, which takes as much of it as the values do, and the verb is done there; what comes in
is imported there, and then published in the cluster. The pool goes with the command.
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

import engram
from engram.cli import terminal
from engram.cli.app import LEFT_OUT
from engram.cli.over_nodes import facts, joined
from engram.cli.over_nodes.values import home_of
from engram.cluster import ClusterArray
from engram.cluster.listing import found_at, is_group, walked
from engram.cluster.making import NAMES_MOST
from engram.cluster.scratch import Scratch
from engram.errors import ArgumentError, ConflictError, ExistsError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.cluster import Cluster
    from engram.pool import Pool

_NAMED = 3


def _check_said(ctx: Any, *refused: str) -> None:
    """Refuse options that have no meaning here."""
    for name in ("namespace", *refused):
        if ctx.get_parameter_source(name).name != "DEFAULT":
            raise ArgumentError(
                f"--{name} says nothing of a cluster, {ctx.params['pool']}: it is of pools alone; "
                "leave it out"
            )


def plot_(cluster: Cluster, path: str, ctx: Any) -> Any:
    """Draw an array, with the coordinates beside it."""
    _check_said(ctx)
    thing = found_at(cluster, path)
    if facts.kind(thing) != "array":
        raise ArgumentError(
            f"{path or cluster.url()}: is a {facts.kind(thing)}; name an array "
            f"(`engram ls {cluster.url()}`)"
        )
    with Scratch() as scratch:
        pool = scratch.pool
        above = path.rpartition("/")[0]
        for name, member in found_at(cluster, above).listed():
            # The name of what lies below an array is a path.
            if "/" not in name and _is_beside(member, thing):
                _copy(pool, joined(above, name), member)
        _copy(pool, path, thing)
        return _done(ctx, pool, path)


def _is_beside(member: Any, array: Any) -> bool:
    """Whether something may be a coordinate of an array."""
    if is_group(member) or facts.kind(member) != "array" or member.path == array.path:
        return False
    dims = set(member.dims or ())
    return dims <= set(array.dims or ()) and facts.nbytes_of(member) <= facts.nbytes_of(array)


def export_(cluster: Cluster, path: str, ctx: Any) -> Any:
    """Export a group or an object as a file."""
    _check_said(ctx, "salvage")
    thing = found_at(cluster, path)
    with Scratch() as scratch:
        pool = scratch.pool
        _copy(pool, path, thing)
        arrays: set[str] = set()
        for name, member in walked(thing):
            _check_is_not_below(joined(path, name), arrays, path)
            if not is_group(member):
                arrays.add(joined(path, name))
            _copy(pool, joined(path, name), member)
        return _done(ctx, pool, path)


def _check_is_not_below(path: str, arrays: set[str], whole: str) -> None:
    """Refuse what lies below an array: names of a cluster may, and nothing in a file can."""
    steps = path.split("/")
    for end in range(1, len(steps)):
        above = "/".join(steps[:end])
        if above in arrays:
            raise UnsupportedError(
                f"{whole or 'the cluster'} cannot be one file: {above!r} is an array, and {path!r} "
                "lies below it. Export them one by one, or give one of them another name"
            )


def _done(ctx: Any, pool: Pool, path: str) -> Any:
    """Do what the verb does, with a pool in the cluster's place."""
    return ctx.command.callback(**{**ctx.params, "pool": pool.path, "path": path or "/"})


def _copy(pool: Pool, path: str, thing: Any) -> None:
    """Copy one thing into a pool."""
    attrs = dict(thing.attrs.items())
    kind = facts.kind(thing)
    if kind == "group":
        (pool.require_group(path) if path else pool).attrs.update(attrs)
    elif kind == "blob":
        pool.create_blob(path, bytes(thing[:]), attrs=attrs)
    elif kind == "table":
        pool.create_table(path, thing.read())
    elif not isinstance(thing, ClusterArray):
        pool.create_array(path, data=np.asarray(thing[...]), dims=thing.dims, attrs=attrs)
    else:
        given: Any = {"shape": thing.shape, "dtype": thing.dtype, "dims": thing.dims}
        with pool.allocate(path, attrs=attrs, **given) as memory:
            _fill(memory, thing)


def _fill(memory: Any, array: ClusterArray) -> None:
    """Read an array, box by box, as it was when it was looked up.

    Raises
    ------
    ConflictError
        If it is replaced meanwhile.

    """
    parts = array.parts
    if sum(part.nbytes for part in parts) != memory.nbytes:
        memory[...] = array[...]  # some items are in no part
        return
    for part in parts:
        values, uuid = array.read(part.box)
        if uuid != part.uuid:
            raise ConflictError(f"{array.path!r} was replaced while it was read: try again")
        memory[part.box.slices] = values


def import_(cluster: Cluster, group: str, ctx: Any) -> None:
    """Import files: arrays are cut into parts, and below a group all goes to its home."""
    _check_said(ctx, "index", "chunks", "codec")
    where = joined(ctx.params["pool"].path, group)
    with Scratch() as scratch:
        pool = scratch.pool
        code = 0
        said = io.StringIO()
        with contextlib.redirect_stdout(said):  # it is not done before it is published
            try:
                ctx.command.callback(**{**ctx.params, "pool": pool.path, "group": where or "/"})
            except typer.Exit as left:
                code = left.exit_code
        if code in {0, LEFT_OUT}:
            found = {path: pool[path] for path in _paths(pool)}
            lost = _publish(cluster, found, overwrite=ctx.params["overwrite"])
    sys.stdout.write(said.getvalue())
    if code not in {0, LEFT_OUT}:
        raise typer.Exit(code)
    for what in lost[:_NAMED]:
        terminal.note(f"left out: {what}")
    if len(lost) > _NAMED:
        terminal.note(f"left out: {len(lost) - _NAMED} more of such")
    if code or (lost and not ctx.params["allow_partial"]):
        raise typer.Exit(LEFT_OUT)


def _paths(group: Any, above: str = "") -> Iterator[str]:
    """Yield the paths of all that is below a group of a pool."""
    for name, member in group.items():
        yield above + name
        if isinstance(member, engram.Group):
            yield from _paths(member, f"{above}{name}/")


def _publish(cluster: Cluster, found: dict[str, Any], *, overwrite: bool) -> list[str]:
    """Bring members of a pool into the cluster; return what was left out, and why."""
    homes = {path: home_of(cluster, path) for path in found}
    objects = {p: each for p, each in found.items() if not isinstance(each, engram.Group)}
    lost, names = [], []
    for path, member in objects.items():
        is_there = path in cluster
        if is_there and not overwrite:
            raise ExistsError(f"{path}: exists already; --overwrite replaces it")
        if homes[path] is not None:
            continue
        if isinstance(member, engram.Array) and member.dtype.kind != "T":
            names.append(path)
        else:
            lost.append(f"{path}: text and bytes lie below a group, which none is above it")
    for path, member in found.items():
        home = homes[path]
        if isinstance(member, engram.Group):
            lost += _attributes_of(cluster, path, member)
        elif home is not None:
            value = member[...]
            more: Any = {"dims": member.dims} if isinstance(member, engram.Array) else {}
            home.put(home.inside(path), value, attrs=dict(member.attrs.items()), **more)
    for begin in range(0, len(names), NAMES_MOST):
        with cluster.batch() as batch:
            for path in names[begin : begin + NAMES_MOST]:
                array = objects[path]
                attrs = dict(array.attrs.items())
                batch.put(path, np.asarray(array), dims=array.dims, attrs=attrs)
    return lost


def _attributes_of(cluster: Cluster, path: str, group: engram.Group) -> list[str]:
    """Set a group's attributes where the cluster has such a group; return those left out."""
    attrs = dict(group.attrs.items())
    home = home_of(cluster, f"{path}/x")
    if home is None:
        return [f"{path}@{name}: what names begin with has no attributes" for name in attrs]
    inside = home.inside(path)
    try:
        made = home if not inside else home.create_group(inside)
    except NotFoundError:
        return [f"{path}: the group has gone meanwhile"]
    if attrs:
        made.attrs.update(attrs)
    return []
