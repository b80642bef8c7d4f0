"""Writing a part of a dataset: in place, into arrays that are there, by many processes at once.

Writers of parts that do not overlap need no lock: values go where they belong, and chunks that two
of them share lose nothing. As other writes in place, a part is not atomic; but all that can be
refused is refused before the first value is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.backends.common import ArrayWriter
from xarray.conventions import decode_cf_variables

from engram.errors import ArgumentError, NotFoundError
from engram.xarray import encode
from engram.xarray.plan import fill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xarray import Dataset, Variable

    from engram.xarray.plan import Plan
    from engram.xarray.store import Contents

AUTO = "auto"


def plan_region(
    plan: Plan, there: Contents, variables: dict[Any, Variable], box: Mapping[str, Any]
) -> None:
    """Plan the writing of variables to a box of the arrays that are there.

    Raises
    ------
    ArgumentError
        If the box is not in them, or a variable does not fit.
    NotFoundError
        If a coordinate that says where the box is has values that are not there.

    """
    box = _checked(box, there, variables)
    _refuse_strangers(there, variables, box)
    from engram.xarray.target import Target  # noqa: PLC0415 - it has the encoder, and uses this

    encoder = Target(plan, "", "a")
    given = encode.as_stored(variables, there.variables)
    encoded, _ = encoder.encode(dict(given), {})
    todo = []
    for name, one in encoded.items():
        old = there.variables[name]
        places = tuple(box.get(str(dim), slice(0, old.sizes[dim])) for dim in old.dims)
        wanted = tuple(place.stop - place.start for place in places)
        if one.shape != wanted:
            raise ArgumentError(
                f"{name!r} has the shape {one.shape}, and its region the shape {wanted}: give as "
                "many values as the region has"
            )
        lazy = old._data.array  # type: ignore[union-attr]  # as `Contents` made it
        value = encode.fitted(name, given[name], one, old)
        todo.append((lazy, places, value))
    plan.after(lambda: _write(todo))


def _write(todo: list[tuple[Any, tuple[slice, ...], Any]]) -> None:
    """Write each variable where it belongs."""
    writer = ArrayWriter()
    for lazy, places, value in todo:
        if lazy.as_characters:
            places, value = places[:-1], value[..., 0]  # noqa: PLW2901 - what is stored
        fill(writer, value, lazy.handle(), places)
    writer.sync()


def _checked(
    box: Mapping[str, Any], there: Contents, variables: Mapping[Any, Variable]
) -> dict[str, slice]:
    """Return a box of slices from a start to a stop."""
    found = {}
    for dim, part in box.items():
        length = there.sizes.get(dim)
        if length is None:
            raise ArgumentError(
                f"the region's {dim!r} is no dimension there: it has {dict(there.sizes)}"
            )
        if isinstance(part, str) and part == AUTO:
            part = _looked_up(dim, there, variables)  # noqa: PLW2901 - the same, found
        if not isinstance(part, slice) or part.step not in {None, 1}:
            raise ArgumentError(
                f"the region's {dim!r} is {part!r}: give a slice without a step, or 'auto'"
            )
        start, stop = part.start or 0, length if part.stop is None else part.stop
        if not isinstance(start, int | np.integer) or not isinstance(stop, int | np.integer):
            raise ArgumentError(f"the region's {dim!r} is {part!r}: give whole numbers")
        if not 0 <= start <= stop <= length:
            raise ArgumentError(
                f"the region {dim!r}: {part!r} is not within the length {length}: append with "
                "append_dim= first"
            )
        found[dim] = slice(int(start), int(stop))
    return found


def _looked_up(dim: str, there: Contents, variables: Mapping[Any, Variable]) -> slice:
    """Return where the values of a coordinate are, one after the other, in the one there."""
    if dim not in there.variables or dim not in variables:
        raise ArgumentError(
            f"the region of {dim!r} cannot be found without a coordinate of that name, here and in "
            "the pool: give a slice"
        )
    known, _, _ = decode_cf_variables({dim: there.variables[dim].copy(deep=False)}, {})
    index = known[dim].to_index_variable().to_index()
    if not index.is_unique:
        raise ArgumentError(
            f"the region of {dim!r} cannot be found, as values of that coordinate stand in the pool"
            " more than once: give a slice"
        )
    places = index.get_indexer(variables[dim].values)
    if (places < 0).any():
        missing = variables[dim].values[places < 0][0]
        raise NotFoundError(
            f"the coordinate {dim!r} in the pool has no {missing!r}: give a slice, or append with "
            "append_dim="
        )
    if (np.diff(places) != 1).any():
        raise ArgumentError(
            f"the values of the coordinate {dim!r} are not one after the other in the pool: write "
            "them in several regions"
        )
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)


def _refuse_strangers(
    there: Contents, variables: Mapping[Any, Variable], box: Mapping[str, slice]
) -> None:
    """Refuse variables that are not there, or of which the box is no part."""
    for name, one in variables.items():
        if name not in there.variables:
            raise ArgumentError(
                f"{name!r} is not in the pool, and a region is written to what is there: write it "
                "whole with mode='a' first"
            )
        if not set(map(str, one.dims)) & set(box):
            raise ArgumentError(
                f"{name!r} has no dimension in common with the region {sorted(box)}: drop it, as "
                f"with .drop_vars({name!r})"
            )


def whole(dataset: Dataset, box: Any) -> dict[str, Any]:
    """Return a region for each dimension of a dataset, where one is to be found for all.

    Raises
    ------
    ArgumentError
        If it is neither "auto" nor slices by dimensions.

    """
    if isinstance(box, str) and box == AUTO:
        return {str(dim): AUTO for dim in dataset.dims}
    if not isinstance(box, dict):
        raise ArgumentError(
            f"region {box!r} is none: give {{dimension: slice(start, stop)}}, or 'auto'"
        )
    return box
