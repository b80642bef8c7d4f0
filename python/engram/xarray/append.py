"""Appending along a dimension: variables grow together, and readers see all of it or nothing.

Arrays in one piece are put anew, longer, all in one batch; so is what is new. Chunked arrays grow
where they are, one after the other, before that batch. Until the last of them is as long as the
others, readers see as much as all have (`dimensions.py`). If the process dies before that, the
next append cuts off what nobody has seen. Appends take turns: each holds the group's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engram.errors import ArgumentError
from engram.xarray import encode
from engram.xarray.plan import fill, is_lazy, parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xarray import Variable

    from engram._engram import ObjectInfo
    from engram.chunked import ChunkedArray
    from engram.xarray.lazy import PoolArray
    from engram.xarray.store import Contents
    from engram.xarray.target import Target

    Behind = tuple[PoolArray, int, Any]
    Grown = tuple[ChunkedArray, int, Any]


def plan_append(
    target: Target,
    there: Contents,
    variables: dict[Any, Variable],
    attributes: Mapping[Any, Any],
    dim: str,
) -> None:
    """Plan the appending of variables along a dimension.

    Raises
    ------
    ArgumentError
        If the dimension is not there, or a variable does not fit.

    """
    if dim not in there.sizes:
        raise ArgumentError(
            f"append_dim={dim!r} does not match any existing dataset dimensions: there are "
            f"{dict(there.sizes)}"
        )
    _refuse_missing(there, variables, dim)
    old = {n: v for n, v in variables.items() if n in there.variables and dim in v.dims}
    new = {n: v for n, v in variables.items() if n not in old}
    given = encode.as_stored(old, there.variables)
    encoded, _ = target.encode(dict(given), {})
    made, attrs = target.encoded(new, attributes)
    more = _length(encoded, dim)
    sizes = {**there.sizes, dim: there.sizes[dim] + more}
    _refuse_unfit({n: (v.dims, v.shape) for n, v in encoded.items()}, {**sizes, dim: more})
    _refuse_unfit({n: (s.dims, s.value.shape) for n, s in made.items()}, sizes)
    target.put_group(attrs, list(made), sizes, there.grows | {dim})
    for name, stored in made.items():
        target.plan.put(target.path(name), stored.value, **stored.said())
    grown: list[Grown] = []
    for name, one in encoded.items():
        lazy: PoolArray = there.variables[name]._data.array  # type: ignore[union-attr]  # ours
        axis = list(there.variables[name].dims).index(dim)
        value = encode.fitted(name, given[name], one, there.variables[name])
        if lazy.is_chunked:
            grown.append((lazy.handle(), axis, value))
        else:
            _put_longer(target, name, there.infos[name], (lazy, axis, value))
    if grown:
        _mark(target, there, dim)
        length = there.sizes[dim]
        ordered = _ordered(grown, is_alone=len(grown) == len(encoded))
        target.plan.before(lambda: _grow(ordered, length), lambda: _cut_all(ordered, length))


def _length(encoded: Mapping[Any, Variable], dim: str) -> int:
    lengths = {name: one.sizes[dim] for name, one in encoded.items()}
    if len(set(lengths.values())) != 1:
        raise ArgumentError(
            f"nothing can be appended along {dim!r}: variables of the group along it have the "
            f"lengths {lengths}; give one at least, and all as long"
        )
    return next(iter(lengths.values()))


def _refuse_missing(there: Contents, variables: Mapping[Any, Variable], dim: str) -> None:
    missing = [n for n, v in there.variables.items() if dim in v.dims and n not in variables]
    if missing:
        raise ArgumentError(
            f"{missing} in the pool have the dimension {dim!r}, and would be too short: append "
            "values of theirs as well, or delete them first"
        )


def _refuse_unfit(shapes: Mapping[Any, tuple[Any, Any]], sizes: Mapping[str, int]) -> None:
    for name, (dims, shape) in shapes.items():
        for one, length in zip(dims, shape, strict=True):
            if sizes.get(str(one), length) != length:
                raise ArgumentError(
                    f"{name!r} has the length {length} along {one!r}, and the group the length "
                    f"{sizes[str(one)]}: only the dimension of append_dim= may differ"
                )


def _put_longer(target: Target, name: str, info: ObjectInfo, place: Behind) -> None:
    """Put an array in one piece anew, with values behind those that it has."""
    lazy, axis, value = place
    handle = lazy.handle()
    if lazy.as_characters:
        value = value[..., 0]
    old = handle[...] if lazy.stored_dtype.kind == "T" else handle.view()
    said = {
        "dims": info.dims,
        "attrs": dict(handle.attrs),
        "origin": info.origin,
    }
    if lazy.stored_dtype.kind == "T" or not is_lazy(value):
        both = np.concatenate([old, np.asarray(value)], axis=axis)
        target.plan.put(target.path(name), both, **said)
        return
    shape = [*old.shape]
    shape[axis] += value.shape[axis]
    space = target.plan.allocate(target.path(name), tuple(shape), lazy.stored_dtype, **said)
    head, tail = [slice(None)] * old.ndim, [slice(None)] * old.ndim
    head[axis], tail[axis] = slice(0, old.shape[axis]), slice(old.shape[axis], None)
    space[tuple(head)] = old
    fill(target.plan.writer, value, space[tuple(tail)])


def _mark(target: Target, there: Contents, dim: str) -> None:
    """Say in the group that a dimension grows, before an array does: then lengths may differ."""
    if dim in there.grows:
        return
    group = target.place.group()
    facts = target.facts_of([], there.sizes, there.grows | {dim})
    target.plan.before(lambda: group._set_origin(facts))


def _ordered(grown: list[Grown], *, is_alone: bool) -> list[Grown]:
    """Return arrays in the order in which they grow: the last at once, as it makes all be seen.

    What dask computes comes part by part, and so comes first. If there is nothing else, neither
    here nor in the batch, the smallest is computed before.
    """
    found = sorted(grown, key=lambda one: (is_lazy(one[2]), one[2].nbytes), reverse=True)
    array, axis, value = found[-1]
    if is_alone and is_lazy(value):
        found[-1] = (array, axis, value.compute())
    return found


def _grow(grown: list[Grown], length: int) -> None:
    """Have chunked arrays grow, from the length that readers see."""
    _cut_all(grown, length)
    for array, axis, value in grown:
        if not is_lazy(value):
            array.append(value, axis)
            continue
        shape = list(array.shape)
        shape[axis] += value.shape[axis]
        array.resize(shape)
        for place, part in parts(value):
            at = list(place)
            at[axis] = slice(place[axis].start + length, place[axis].stop + length)
            array[tuple(at)] = part


def _cut_all(grown: list[Grown], length: int) -> None:
    """Cut off what an append has left that was not ended."""
    for array, axis, _ in grown:
        shape = list(array.shape)
        if shape[axis] > length:
            shape[axis] = length
            array.resize(shape)
