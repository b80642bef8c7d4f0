"""What xarray calls an engine: it opens groups of pools, by their path or as they are.

    xarray.open_dataset("/dev/shm/pool/co2")          a pool's folder, then the group's path
    xarray.open_dataset(pool["co2"], engine="engram")
    xarray.open_datatree("/dev/shm/pool")             and all groups below
    xarray.open_dataset("engram://job/run", engine="engram")     a group of a cluster; of names
    xarray.open_datatree("engram://job", engine="engram")        and all below

Its name is needed for URLs alone, which xarray gives to netCDF's engine else: a path that leads
into a pool's folder is known for one by `pool.toml`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from xarray.backends import BackendEntrypoint
from xarray.backends.common import datatree_from_dict_with_io_cleanup
from xarray.backends.store import StoreBackendEntrypoint

from engram.group import Group
from engram.paths import pool_above
from engram.xarray import nodes
from engram.xarray.place import place_of
from engram.xarray.store import PoolStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xarray import Dataset, DataTree

    from engram.xarray.place import Place


class EngramBackend(BackendEntrypoint):
    """Opens groups of Engram's pools as datasets.

    Beside xarray's own arguments there are `group`, the path of a group below what is opened, and
    `namespace`, for a path into another namespace of the pool than the default one.
    """

    description = "Open groups of Engram pools, without copies where nothing is decoded"
    url = "https://github.com/engram/engram"
    supports_groups: ClassVar[bool] = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether it is a group, or a path that leads into a pool's folder."""
        if isinstance(filename_or_obj, Group) or nodes.is_of_cluster(filename_or_obj):
            return True
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        path = os.fspath(filename_or_obj)
        is_local = isinstance(path, str) and bool(path) and "://" not in path and "\0" not in path
        return is_local and pool_above(path) is not None

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: bool = True,
        decode_times: Any = True,
        concat_characters: bool = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: bool | None = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        namespace: str | None = None,
    ) -> Dataset:
        """Open one group."""
        decoding = {
            "mask_and_scale": mask_and_scale,
            "decode_times": decode_times,
            "concat_characters": concat_characters,
            "decode_coords": decode_coords,
            "drop_variables": drop_variables,
            "use_cftime": use_cftime,
            "decode_timedelta": decode_timedelta,
        }
        if nodes.is_of_cluster(filename_or_obj):
            return nodes.open_dataset(filename_or_obj, group, decoding)
        place = place_of(filename_or_obj, group, namespace)
        try:
            return _decoded(place, decoding)
        except BaseException:
            place.close()
            raise

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> DataTree:
        """Open a group and all groups below it, whose coordinates fit those above them."""
        return datatree_from_dict_with_io_cleanup(
            self.open_groups_as_dict(filename_or_obj, **options)
        )

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        namespace: str | None = None,
        **decoding: Any,
    ) -> dict[str, Dataset]:
        """Open a group and all groups below it, each a dataset for itself."""
        if nodes.is_of_cluster(filename_or_obj):
            return nodes.open_groups(filename_or_obj, group, decoding)
        place = place_of(filename_or_obj, group, namespace)
        found: dict[str, Dataset] = {}
        try:
            _open_all(place, "/", decoding, found)
        except BaseException:
            place.close()
            raise
        return found


def _open_all(place: Place, path: str, decoding: dict[str, Any], found: dict[str, Dataset]) -> None:
    """Open a group and those below it."""
    stack = [(path, place)]
    while stack:
        at, one = stack.pop()
        store = _store(one, decoding)
        found[at] = StoreBackendEntrypoint().open_dataset(store, **decoding)
        below = reversed(store.contents.groups)
        stack += [(f"{at.rstrip('/')}/{name}", one.child(name)) for name in below]


def _store(place: Place, decoding: dict[str, Any]) -> PoolStore:
    dropped = decoding.get("drop_variables")
    names = [dropped] if isinstance(dropped, str) else dropped or ()
    masks = decoding.get("mask_and_scale", True) is True
    return PoolStore(place, frozenset(map(str, names)), masks=masks)


def _decoded(place: Place, decoding: dict[str, Any]) -> Dataset:
    """Have xarray decode a group."""
    return StoreBackendEntrypoint().open_dataset(_store(place, decoding), **decoding)
