"""`group["T"] = dataarray`: an array with dimensions and attributes, and its coordinates beside.

A group is a dataset, so this is what `dataset["T"] = dataarray` is: coordinates become members of
the same group. Where one is there already, it must be equal, as nothing is aligned here. All else
that the group has is not looked at.
"""

from __future__ import annotations

from typing import Any

import xarray as xr
from xarray.conventions import decode_cf_variables, encode_dataset_coordinates

from engram.errors import ArgumentError
from engram.group import Group
from engram.xarray import encode
from engram.xarray.place import Given
from engram.xarray.plan import Plan
from engram.xarray.store import read_some
from engram.xarray.target import Target


def put(group: Group, path: str, value: Any) -> bool:
    """Put a DataArray or Variable as a member of a group; give whether it is one.

    Raises
    ------
    ArgumentError
        If it is a whole dataset or tree, or a coordinate differs from the one that is there.

    """
    if isinstance(value, xr.Dataset | xr.DataTree):
        kind = type(value).__name__
        raise ArgumentError(
            f"{path!r} cannot be a {kind}, which has many arrays: write it to a group, with "
            f".engram.to_pool(group.require_group({path!r}))"
        )
    if isinstance(value, xr.Variable):
        value = xr.DataArray(value)
    if not isinstance(value, xr.DataArray):
        return False
    inner, _, name = path.strip("/").rpartition("/")
    root = group["/"] if path.startswith("/") else group
    dataset = value.to_dataset(name=name) if name not in value.coords else _only(value, name)
    there = root.get(inner) if inner else root
    equal = _equal(there, dataset, name) if isinstance(there, Group) else set()
    encode.check_variables(dataset)
    plan = Plan(root)
    target = Target(plan, inner, "a")
    made, _ = target.encoded(encode_dataset_coordinates(dataset)[0], {})
    try:
        for one, stored in made.items():
            if one not in equal:
                plan.put(target.path(one), stored.value, **stored.said())
    except BaseException:
        plan.give_up()
        raise
    plan.run()
    return True


def _only(value: xr.DataArray, name: str) -> xr.Dataset:
    """Return the dataset of what is a coordinate of itself."""
    if not value.variable.equals(value.coords[name].variable):
        raise ArgumentError(
            f"{name!r} is also the name of a coordinate with other values: store it under another"
        )
    return value.coords.to_dataset()


def _equal(there: Group, dataset: xr.Dataset, name: str) -> set[str]:
    """Return the coordinates that a group has already, equal to those of a dataset."""
    beside = [str(one) for one in dataset.coords if str(one) != name and str(one) in there]
    known, _, _ = decode_cf_variables(read_some(Given(there), beside), {})
    for one in beside:
        if one not in known or not known[one].equals(dataset[one].variable):
            raise ArgumentError(
                f"the coordinate {one!r} of {name!r} differs from that in the group "
                f"{there.path or '/'!r}: put it in a group of its own, or align it first"
            )
    return set(beside)
