"""The names of a group's dimensions, and what they must agree on for it to be a dataset.

An array without names of its own gets `T_dim_0`, `T_dim_1`, as an export to netCDF names them: two
lengths that are the same by chance are not taken for one dimension.

Along a dimension that grows, arrays may be of several lengths for a moment: an append is under way,
or its process was killed. What all of them have is what counts, so that an append is seen as a
whole or not at all. Which dimensions grow is kept in the group's `origin`, where an import keeps
the unlimited ones of a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engram.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    Named = Mapping[str, tuple[Sequence[str], Sequence[int]]]


def names_of(name: str, dims: Sequence[str] | None, ndim: int) -> tuple[str, ...]:
    """Return the names of an array's dimensions, invented ones if it has none."""
    if dims is not None:
        return tuple(dims)
    return tuple(f"{name}_dim_{axis}" for axis in range(ndim))


def growing(origin: Mapping[str, Any]) -> set[str]:
    """Return the dimensions that a group's origin tells to be unlimited."""
    kept = origin.get("dimensions")
    if not isinstance(kept, dict):
        return set()
    return {n for n, facts in kept.items() if isinstance(facts, dict) and facts.get("unlimited")}


def sizes_of(
    variables: Named,
    where: str,
    grows: AbstractSet[str] = frozenset(),
    chunked: AbstractSet[str] = frozenset(),
) -> dict[str, int]:
    """Return the length of each dimension.

    Parameters
    ----------
    variables
        The names and lengths of each array's dimensions.
    where
        The group, for messages.
    grows
        The dimensions that grow.
    chunked
        The arrays that may be longer along these than others.

    Raises
    ------
    ArgumentError
        If two arrays differ in the length of another dimension.

    """
    sizes: dict[str, int] = {}
    first: dict[str, str] = {}
    for name, (dims, shape) in variables.items():
        for dim, length in zip(dims, shape, strict=True):
            there = sizes.setdefault(dim, length)
            first.setdefault(dim, name)
            if there == length:
                continue
            longer = name if length > there else first[dim]
            if dim not in grows or longer not in chunked:
                raise ArgumentError(
                    f"{where!r} is no dataset: its dimension {dim!r} has the length {there} in "
                    f"{first[dim]!r}, and {length} in {name!r}. Leave one out with "
                    f"drop_variables={name!r}, or move it to a group of its own"
                )
            if length < there:
                sizes[dim], first[dim] = length, name
    return sizes
