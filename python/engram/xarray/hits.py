"""What a query has found as one dataset: a variable for each name, a dimension for the groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import xarray as xr

from engram.errors import ArgumentError

if TYPE_CHECKING:
    from engram.group import Group
    from engram.query import QueryResult

ALONG = "group"
"""The dimension along which objects of several groups are put together."""


def dataset_of(result: QueryResult, chunks: Any) -> xr.Dataset:
    """Make a dataset of the objects of a result.

    Raises
    ------
    ArgumentError
        If they do not fit together.

    """
    groups: dict[Group, list[str]] = {}
    for found in result:
        groups.setdefault(found.parent, []).append(found.name)
    if not groups:
        raise ArgumentError(f"{result.query!r} has found nothing: there is no dataset of it")
    names = list(dict.fromkeys(name for each in groups.values() for name in each))
    for group, own in groups.items():
        if missing := [name for name in names if name not in own]:
            raise ArgumentError(
                f"the group {group.path!r} has no {missing[0]!r} in the result, which other groups "
                "have: ask for @name as well, so that all groups have the same"
            )
    opened = [_opened(group, names, chunks) for group in groups]
    if len(opened) == 1:
        return opened[0]
    paths = pd.Index([group.path for group in groups], name=ALONG)
    try:
        return xr.concat(
            opened,
            paths,
            data_vars=names,
            coords="minimal",
            compat="equals",
            join="exact",
            combine_attrs="drop_conflicts",
        )
    except ValueError as error:
        raise ArgumentError(
            f"the groups {list(paths[:8])} do not fit together: {error}. Ask for fewer, or open "
            "each by itself with xarray.open_dataset"
        ) from error


def _opened(group: Group, names: list[str], chunks: Any) -> xr.Dataset:
    """Open of a group the variables of these names, with their coordinates."""
    dataset = xr.open_dataset(group, engine="engram", chunks=chunks)  # type: ignore[arg-type]
    return dataset.reset_coords(set(names) & set(dataset.coords) - set(dataset.dims))[names]
