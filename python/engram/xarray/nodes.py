"""Groups of a cluster as datasets: arrays right below a name, whose values are dask's.

A cluster's names are arrays over nodes. Those right below a group are its variables, as they all
were at one moment. Each is an array of dask's whose blocks are read where they lie, in the
generation that was looked up: what was replaced since is `NotFoundError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xarray import Variable
from xarray.backends.common import AbstractDataStore
from xarray.backends.store import StoreBackendEntrypoint

from engram.errors import ArgumentError, NotFoundError
from engram.paths import PROTOCOL, ClusterPath
from engram.xarray import dimensions
from engram.xarray.store import as_xarray, unmasked

if TYPE_CHECKING:
    from xarray import Dataset

    from engram.cluster.cluster import Cluster

_URL = f"{PROTOCOL}://"


def is_of_cluster(given: Any) -> bool:
    """Whether it is a group of a cluster, or the URL of one; a pool's URL has three slashes."""
    if isinstance(given, str):
        return given.startswith(_URL) and not given.startswith(f"{_URL}/")
    return isinstance(given, ClusterPath)


def open_dataset(given: str | ClusterPath, group: str | None, decoding: dict[str, Any]) -> Dataset:
    """Open a group of a cluster.

    Raises
    ------
    NotFoundError
        If nothing is known here of the cluster, or no array lies right below the name.
    ArgumentError
        If two arrays differ in the length of a dimension.

    """
    from engram import cluster as clusters  # noqa: PLC0415 - one node needs none of it

    own: Cluster | None = None
    if isinstance(given, str):
        name, _, path = given.removeprefix(_URL).partition("/")
        cluster = own = clusters.open(name)
    else:
        cluster, path = given.cluster, given.path
    path = "/".join(filter(None, (path.strip("/"), (group or "").strip("/"))))
    dropped = decoding.get("drop_variables")
    left_out = {dropped} if isinstance(dropped, str) else {str(name) for name in dropped or ()}
    masks = decoding.get("mask_and_scale", True) is True
    try:
        store = ClusterStore(cluster, path, left_out, masks, own)
        return StoreBackendEntrypoint().open_dataset(store, **decoding)
    except BaseException:
        if own is not None:
            own.close()
        raise


class ClusterStore(AbstractDataStore):
    """A group of a cluster, for xarray."""

    def __init__(
        self, cluster: Cluster, path: str, left_out: set[str], masks: bool, own: Cluster | None
    ) -> None:
        """Read which arrays there are; `own` is closed with the dataset."""
        self._own = own
        self._source = f"{_URL}{cluster.name}/{path}"
        arrays = cluster.arrays(path)
        if not arrays:
            raise NotFoundError(f"there are no arrays right below {self._source}")
        arrays = {name: array for name, array in arrays.items() if name not in left_out}
        dims = {name: dimensions.names_of(name, a.dims, a.ndim) for name, a in arrays.items()}
        shapes = {name: (dims[name], array.shape) for name, array in arrays.items()}
        self._sizes = dimensions.sizes_of(shapes, self._source)
        self._variables = {}
        for name, array in arrays.items():
            if len(set(dims[name])) != len(dims[name]):
                raise ArgumentError(
                    f"{self._source}/{name} has a dimension twice, {dims[name]}: leave it out with "
                    f"drop_variables={name!r}"
                )
            attrs = {key: as_xarray(value) for key, value in array.attrs.items()}
            encoding = {"source": self._source, "original_shape": array.shape, "dtype": array.dtype}
            found = Variable(dims[name], array.dask(), attrs, encoding)
            self._variables[name] = unmasked(found) if masks else found

    def get_variables(self) -> dict[str, Variable]:
        """Give the variables, in the order of their names."""
        return dict(self._variables)

    def get_attrs(self) -> dict[str, Any]:
        """Give the attributes of the group: it has none."""
        return {}

    def get_dimensions(self) -> dict[str, int]:
        """Give the dimensions' lengths."""
        return dict(self._sizes)

    def get_encoding(self) -> dict[str, Any]:
        """Tell where it is."""
        return {"source": self._source}

    def close(self) -> None:
        """Close the cluster, if it was opened for the dataset."""
        if self._own is not None:
            self._own.close()
