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

    from engram.cluster.boxes import ClusterArray
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
    cluster, path, own = _opened(given, group)
    try:
        return _decoded(cluster, path, _arrays_at(cluster, path), own, decoding)
    except BaseException:
        if own is not None:
            own.close()
        raise


def open_groups(
    given: str | ClusterPath, group: str | None, decoding: dict[str, Any]
) -> dict[str, Dataset]:
    """Open a group of a cluster and all below it: what names begin with, each as a dataset.

    What lies below groups that `create_group` has made is no array of the cluster's, and is left
    out.

    Raises
    ------
    NotFoundError
        If nothing is known here of the cluster, or no array lies below the name.
    ArgumentError
        If the name of an array is that of a group, too.

    """
    cluster, path, own = _opened(given, group)
    made = {}
    try:
        for at, arrays in _arrays_below(cluster, path).items():
            whole = "/".join(filter(None, (path, at)))
            closes = own if not at else None
            made[f"/{at}"] = _decoded(cluster, whole, arrays, closes, decoding)
    except BaseException:
        if own is not None:
            own.close()
        raise
    return made


def _opened(given: str | ClusterPath, group: str | None) -> tuple[Cluster, str, Cluster | None]:
    """Give a cluster, the path in it, and the cluster once more if it was opened for that."""
    from engram import cluster as clusters  # noqa: PLC0415 - one node needs none of it

    own: Cluster | None = None
    if isinstance(given, str):
        name, _, path = given.removeprefix(_URL).partition("/")
        cluster = own = clusters.open(name)
    else:
        cluster, path = given.cluster, given.path
    steps = f"{path}/{group or ''}".split("/")
    return cluster, "/".join(filter(None, steps)), own


def _decoded(
    cluster: Cluster,
    path: str,
    arrays: dict[str, ClusterArray],
    own: Cluster | None,
    decoding: dict[str, Any],
) -> Dataset:
    """Have xarray decode a group."""
    dropped = decoding.get("drop_variables")
    left_out = {dropped} if isinstance(dropped, str) else {str(name) for name in dropped or ()}
    masks = decoding.get("mask_and_scale", True) is True
    kept = {name: array for name, array in arrays.items() if name not in left_out}
    store = ClusterStore(cluster, path, kept, own, masks=masks)
    return StoreBackendEntrypoint().open_dataset(store, **decoding)


def _arrays_at(cluster: Cluster, path: str) -> dict[str, ClusterArray]:
    """Give the arrays right below a name, all as at one moment."""
    if arrays := cluster.arrays(path):
        return arrays
    raise NotFoundError(_none_at(cluster, path, "right below"))


def _arrays_below(cluster: Cluster, path: str) -> dict[str, dict[str, ClusterArray]]:
    """Give all arrays below a name, by the group in which each is: all as at one moment."""
    from engram.cluster import ClusterArray  # noqa: PLC0415 - one node needs none of it

    begin = len(path) + 1 if path else 0
    found: dict[str, dict[str, ClusterArray]] = {"": {}}
    for whole, handle in cluster._handles(path):
        if not isinstance(handle, ClusterArray):
            continue
        above, _, name = whole[begin:].rpartition("/")
        steps = above.split("/") if above else []
        for end in range(1, len(steps) + 1):
            found.setdefault("/".join(steps[:end]), {})
        found[above][name] = handle
    if not any(found.values()):
        raise NotFoundError(_none_at(cluster, path, "below"))
    for at in found:
        above, _, name = at.rpartition("/")
        if at and name in found[above]:
            raise ArgumentError(
                f"{_url(cluster, path)}/{at} is an array and a group, of which a dataset can be "
                "one alone: open the group by itself, or give one of them another name"
            )
    return found


def _none_at(cluster: Cluster, path: str, where: str) -> str:
    """Say that there are no arrays, and where those lie that there may be."""
    said = f"there are no arrays {where} {_url(cluster, path)}"
    if not path or path not in cluster:
        return said
    if hasattr(cluster[path], "parts"):
        return f"{said}, which is an array itself: open what is above it"
    return (
        f"{said}: it is a group that create_group has made, and what lies below it is opened from "
        "the pool of its node, as `group.local` there"
    )


def _url(cluster: Cluster, path: str) -> str:
    return f"{_URL}{cluster.name}/{path}".rstrip("/")


class ClusterStore(AbstractDataStore):
    """A group of a cluster, for xarray."""

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        arrays: dict[str, ClusterArray],
        own: Cluster | None,
        *,
        masks: bool,
    ) -> None:
        """Make variables of arrays; `own` is closed with the dataset."""
        self._own = own
        self._source = f"{_URL}{cluster.name}/{path}"
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
