"""Methods of many objects at once: by the workers of their nodes, or as tasks of Dask's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engram.active.method import ActiveMethod
from engram.active.object import ActiveObject
from engram.errors import ArgumentError, NodeAwayError
from engram.extras import library

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster


def calls_of(
    cluster: "Cluster", method: Any, objects: list[Any], args: tuple[Any, ...], client: Any
) -> Iterator[Any]:
    """Do what `Cluster.map` says."""
    name = _name_of(method)
    for obj in objects:
        if not isinstance(obj, ActiveObject) or not obj.is_persistent:
            raise ArgumentError(f"{obj!r} is no persistent active object: make it persistent first")
    if client is not None:
        waiting = [_task(cluster, obj, name, args, client) for obj in objects]
        return (each.result() for each in waiting)
    calls = [cluster._caller.submit(_call, obj, name, args) for obj in objects]
    return (each.result() for each in calls)


def _name_of(method: Any) -> str:
    if not isinstance(method, ActiveMethod):
        raise ArgumentError(f"{method!r} is no active method of a class: give Block.mean, for one")
    return method.function.__name__


def _call(obj: Any, name: str, args: tuple[Any, ...]) -> Any:
    return getattr(obj, name)(*args)


def submitted(cluster: "Cluster", bound: Any, args: tuple[Any, ...], client: Any) -> Any:
    """Have Dask run a method of an object on the object's host; give Dask's future."""
    return _task(cluster, bound.__self__, bound._method.function.__name__, args, client)


def _task(cluster: "Cluster", obj: Any, name: str, args: tuple[Any, ...], client: Any) -> Any:
    """Submit a call as a task that runs on the object's host and nowhere else."""
    host = _host_of(cluster, obj)
    distributed = library("distributed", "cluster", "a task of Dask's")
    # The scheduler answers; what `scheduler_info` keeps is without workers from time to time.
    known = client.nthreads()
    workers = [each for each in known if distributed.comm.get_address_host(each) == host]
    if not workers:
        raise NodeAwayError(
            f"no worker of Dask's runs on {host}, where {obj!r} lies: start one there, or leave "
            "client= away"
        )
    return client.submit(
        _call, obj, name, args, workers=workers, allow_other_workers=False, pure=False
    )


def _host_of(cluster: "Cluster", obj: Any) -> str:
    """Give the address of the host on which an object lies, as its node tells it."""
    home = obj._home
    node = home.node if home.is_far else cluster.node
    for member in cluster.members:
        if member.node == node:
            return member.address.rpartition(":")[0].strip("[]")
    raise ArgumentError(f"{obj!r} lies on no node of {cluster.name!r}")
