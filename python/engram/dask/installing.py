"""`install`: a cluster's workers take to references, those that come later as well."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from engram import size as sizes
from engram.errors import ArgumentError, EngramError, EngramWarning, PoolNotFoundError
from engram.extras import library
from engram.handle import Handle
from engram.paths import absolute

if TYPE_CHECKING:
    from typing import SupportsIndex

    from distributed import Client
    from numpy.typing import DTypeLike

    from engram.pool import Pool

ABOVE = "1 MiB"
"""From what size on results are left in a pool."""


def install(
    client: Client,
    *,
    pool: Pool | str | os.PathLike[str] | None = None,
    above: str | SupportsIndex = ABOVE,
    size: str | SupportsIndex | None = None,
) -> None:
    """Have a cluster's workers send arrays of pools to others of their node by reference.

    Parameters
    ----------
    client
        The client of a cluster. Its workers of today and those that join it later take part.
    pool
        A pool in which large results are left when another worker asks for them, so that these
        need no bytes, either: in a namespace `dask-<uid>` of this user's.
    above
        From what size on.
    size
        The bound on that namespace, if it is made here; else the pool's.

    Raises
    ------
    PoolNotFoundError
        If no worker can open the pool. If some cannot, that is a warning: they are sent bytes.
    ArgumentError
        If `client` is no client of distributed's, or a size is none.

    """
    plugin = _plugins()
    _check(client)
    path = _path_of(pool)
    bound = None if size is None else sizes.parse(size)
    client.register_plugin(plugin.PoolPlugin(path, sizes.parse(above), bound))
    if path is None:
        return
    answers = client.run(_refusal)
    refused = {address: why for address, why in answers.items() if why is not None}
    if not refused:
        return
    address, why = next(iter(refused.items()))
    told = f"{len(refused)} workers cannot leave results in the pool {path!r}; {address}: {why}"
    if len(refused) == len(answers):
        uninstall(client)
        raise PoolNotFoundError(f"{told}: have workers on the node of the pool, or leave pool= out")
    warnings.warn(f"{told}; they are sent bytes", EngramWarning, stacklevel=2)


def uninstall(client: Client) -> None:
    """Have a cluster's workers send bytes again; results that are in a pool stay usable."""
    plugin = _plugins()
    _check(client)
    client.unregister_worker_plugin(plugin.NAME)


def empty(shape: int | tuple[int, ...], dtype: DTypeLike = float) -> np.ndarray[Any, Any]:
    """Give an array for a task to fill as its result: in the pool of `install`, if there is one.

    It is like `numpy.empty`, and that is what it is outside of a worker, where no pool was given,
    and when the pool is full.
    """
    plugin = _plugins()
    from distributed import get_worker  # noqa: PLC0415 - it is there: `_plugins` has it

    try:
        found = plugin.here(get_worker().address)
    except ValueError:
        found = None
    if found is not None and found.scratch is not None:
        try:
            made: np.ndarray[Any, Any] = found.scratch.empty(shape, np.dtype(dtype))
        except (EngramError, OSError):
            return np.empty(shape, dtype)
        return made
    return np.empty(shape, dtype)


def _plugins() -> Any:
    """Load what needs distributed."""
    library("distributed", "dask", "engram.dask.install")
    from engram.dask import plugin  # noqa: PLC0415 - now that its library is there

    return plugin


def _check(client: Any) -> None:
    from distributed import Client  # noqa: PLC0415 - `_plugins` has loaded it

    if not isinstance(client, Client):
        raise ArgumentError(
            f"{client!r} is no client of distributed's: make one with distributed.Client(...)"
        )


def _path_of(pool: Any) -> str | None:
    if pool is None:
        return None
    if isinstance(pool, Handle):
        return str(pool._namespace.pool_path)
    if isinstance(pool, str | os.PathLike):
        return str(absolute(os.fspath(pool)))
    raise ArgumentError(f"pool {pool!r} is none: give a pool, or its path")


def _refusal(dask_worker: Any) -> str | None:
    """Tell, in a worker, why its results cannot be left in the pool."""
    found = _plugins().here(dask_worker.address)
    return "the plug-in is not there" if found is None else found.refused
