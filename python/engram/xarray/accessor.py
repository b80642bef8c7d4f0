"""`.engram` of datasets and trees: how they are written to a pool.

    ds.engram.to_pool(pool["run-17"])
    ds.engram.to_pool("/dev/shm/pool/co2", mode="w")
    tree.engram.to_pool(pool.require_group("campaign"))

A dataset becomes the arrays of one group, a tree those of a group and of all below it; readers see
all of it or nothing. The words are those of xarray's `to_zarr`.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import xarray as xr

from engram.errors import ArgumentError, EngramWarning, NotFoundError, ReadOnlyError
from engram.group import Group
from engram.xarray import encode, region
from engram.xarray.place import written
from engram.xarray.plan import Plan
from engram.xarray.target import MODES, Target

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    Encoding = Mapping[str, Any]


class DatasetAccessor:
    """What a dataset can do with pools."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def to_pool(
        self,
        group: Group | str | os.PathLike[str],
        *,
        mode: str | None = None,
        append_dim: str | None = None,
        region: Mapping[str, slice | str] | str | None = None,
        encoding: Mapping[str, Encoding] | None = None,
        unlimited_dims: str | Iterable[str] | None = None,
    ) -> None:
        """Write the dataset to a group: whole, or not at all.

        Parameters
        ----------
        group
            A group of a pool, or a pool's path followed by that of a group, which is made if it is
            not there.
        mode
            "w" replaces the group's variables and attributes (groups below it stay), "w-" refuses a
            group that has any, "a" adds variables and replaces those of the same names. "w-" if it
            is not given; with `append_dim` or `region`, "a".
        append_dim
            The dimension along which the variables that have it are appended to those in the group.
        region
            Write into arrays that are there, in place: a slice for each dimension that is not
            written whole, or "auto" to look it up by the coordinate. Many processes may, at once.
        encoding
            How to store variables, by their names: what CF knows (`dtype`, `scale_factor`,
            `_FillValue`, `units`), and `chunks` and `codec`, as `create_array` has them.
        unlimited_dims
            The dimensions that are unlimited in a netCDF file that is made of the group.

        Raises
        ------
        ExistsError
            If the group has members, with mode "w-"; or is no group.
        ArgumentError
            If a variable, a region or an encoding does not fit: nothing is written.
        ReadOnlyError
            If the pool was opened with mode "r", or the group is read-only.
        PoolNotFoundError
            If there is no pool on the way of a path.

        """
        chosen = _mode(mode, append_dim, region)
        dataset = self._dataset
        encode.check_variables(dataset)
        dims = _unlimited(dataset, unlimited_dims)
        with _target(group) as (root, inner), _alone(root, inner, append_dim):
            plan = Plan(root)
            part: dict[str, Any] = {"append_dim": append_dim, "box": region}
            _add(plan, inner, dataset, chosen, encoding=encoding, dims=dims, **part)
            plan.run()


class TreeAccessor:
    """What a tree can do with pools."""

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    def to_pool(
        self,
        group: Group | str | os.PathLike[str],
        *,
        mode: str | None = None,
        encoding: Mapping[str, Mapping[str, Encoding]] | None = None,
        write_inherited_coords: bool = False,
    ) -> None:
        """Write the tree to a group and groups below it: whole, or not at all.

        Parameters
        ----------
        group
            A group of a pool, or a pool's path followed by that of a group, which is made if it is
            not there.
        mode
            As for a dataset, of each group. With "w", groups that the tree does not have stay.
        encoding
            For each path in the tree, such as "/child", how to store variables.
        write_inherited_coords
            Whether groups repeat the coordinates of those above them.

        Raises
        ------
        ExistsError, ArgumentError, ReadOnlyError, PoolNotFoundError
            As for a dataset.

        """
        chosen = _mode(mode, None, None)
        tree, told = self._tree, encoding or {}
        strangers = sorted(set(told) - set(tree.groups))
        if strangers:
            raise ArgumentError(
                f"unexpected encoding group name(s) {strangers}: the tree has {list(tree.groups)}"
            )
        with _target(group) as (root, inner):
            plan = Plan(root)
            try:
                for node in tree.subtree:
                    dataset = node.to_dataset(inherit=write_inherited_coords or node is tree)
                    encode.check_variables(dataset)
                    below = "" if node is tree else node.relative_to(tree)
                    path = "/".join(filter(None, (inner, below)))
                    dims = _unlimited(dataset, None)
                    how = told.get(node.path)
                    _add(plan, path, dataset, chosen, encoding=how, dims=dims)
            except BaseException:
                plan.give_up()
                raise
            plan.run()


def _add(
    plan: Plan,
    inner: str,
    dataset: xr.Dataset,
    mode: str,
    *,
    encoding: Mapping[str, Encoding] | None = None,
    dims: AbstractSet[str] = frozenset(),
    append_dim: str | None = None,
    box: Any = None,
) -> None:
    """Add the writing of a dataset to a plan."""
    box = None if box is None else region.whole(dataset, box)
    target = Target(plan, inner, mode, append_dim, box)
    try:
        _check_encoding(encoding or (), dataset)
        dataset.dump_to_store(target, encoding=encoding, unlimited_dims=set(dims))
    except BaseException:
        plan.give_up()
        raise


def _check_encoding(names: Iterable[str], dataset: xr.Dataset) -> None:
    strangers = sorted(map(str, set(names) - set(dataset.variables)))
    if strangers:
        raise NotFoundError(
            f"encoding= names {strangers}, and there are no such variables: there are "
            f"{sorted(map(str, dataset.variables))}"
        )


def _mode(mode: str | None, append_dim: str | None, box: Any) -> str:
    """Return the mode, or refuse one that does not go with the rest."""
    is_part = append_dim is not None or box is not None
    if append_dim is not None and box is not None:
        raise ArgumentError(
            f"append_dim={append_dim!r} and region={box!r} exclude each other: append first, and "
            "write regions of what is there then"
        )
    if mode is None:
        return "a" if is_part else "w-"
    if mode not in MODES:
        raise ArgumentError(f"mode {mode!r} is unknown: use 'w', 'w-' or 'a'")
    if is_part and mode != "a":
        raise ArgumentError(
            f"mode {mode!r} replaces variables, and append_dim= and region= add to them: leave the "
            "mode out, or use 'a'"
        )
    return mode


@contextlib.contextmanager
def _target(group: Any) -> Iterator[tuple[Group, str]]:
    """Give the group to write to, in a pool that is closed afterwards if it was opened here."""
    pool, root, inner = written(group)
    try:
        if not root._namespace.writable:
            raise ReadOnlyError(
                f"{root!r} is of a pool that was opened for reading, or of a snapshot: open it "
                'with mode "r+" to write a dataset'
            )
        yield root, inner
    finally:
        if pool is not None:
            pool.close()


@contextlib.contextmanager
def _alone(root: Group, inner: str, append_dim: str | None) -> Iterator[None]:
    """Wait for other appends to the same group."""
    found = root.get(inner) if inner else root
    if append_dim is None or not isinstance(found, Group):
        yield
        return
    with found.lock("w"):
        yield


def _unlimited(dataset: xr.Dataset, given: str | Iterable[str] | None) -> set[str]:
    """Return the dimensions that are unlimited, and complain of those that are not there."""
    asked = dataset.encoding.get("unlimited_dims") if given is None else given
    names = {asked} if isinstance(asked, str) else set(asked or ())
    strangers = names - set(dataset.dims)
    if strangers:
        where = "dataset.encoding" if given is None else "unlimited_dims-kwarg"
        message = (
            f"Unlimited dimension(s) {strangers!r} declared in {where!r}, but not part of current "
            "dataset dimensions: leave them out"
        )
        if given is not None:
            raise ArgumentError(message)
        warnings.warn(message, EngramWarning, stacklevel=3)
    return {str(name) for name in names - strangers}


def register() -> None:
    """Give xarray's datasets and trees their `.engram`, unless they have it."""
    if not hasattr(xr.Dataset, "engram"):
        xr.register_dataset_accessor("engram")(DatasetAccessor)
    if not hasattr(xr.DataTree, "engram"):
        xr.register_datatree_accessor("engram")(TreeAccessor)
