"""Verbs where POOL is a cluster, `engram://NAME` or `engram://NAME/GROUP`.

A verb that has a like in a cluster is done here, by a function of its name: what it is given stands
in its parameters, and all else that was said is refused by name. The others are of one pool, and
are refused with what to do instead. So a verb that is new is refused until somebody has thought
of it.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from engram import cluster as clusters
from engram.cli.app import clean
from engram.errors import ArgumentError, EngramError, UnsupportedError

if TYPE_CHECKING:
    from engram.cluster import Cluster
    from engram.paths import ClusterUrl

_MODULES = {
    **dict.fromkeys(("ls", "tree", "info", "stats"), "looking"),
    **dict.fromkeys(("get", "put", "rm", "publish"), "values"),
    **dict.fromkeys(("plot", "export", "import"), "copies"),
    "query": "asking",
    "verify": "checking",
}
"""Where the verbs are that a cluster has."""

_AT_NODES = (
    "is done with one pool: run it on each node, with its own pool: {pools}",
    *("index", "reindex", "backup", "compact", "upgrade", "ns", "watch", "mount"),
    *("share", "unshare", "unpublish", "protect", "active", "gc", "adopt"),
    *("attr", "dump"),
)
_INSTEAD = {
    **dict.fromkeys(_AT_NODES[1:], _AT_NODES[0]),
    "mv": "has no like in a cluster, where a name stays: put the values under the new name, then "
    "`engram rm {url} OLD`. What lies below a group is moved in its node's pool: {pools}",
    "cp": "copies within pools: read the values and put them under the new name, as by "
    "cluster[NEW] = cluster[OLD][...]. What lies below a group is copied in its node's pool: "
    "{pools}",
    "create": "makes one pool: `engram cluster start` makes the pools of a cluster, and "
    "engram.cluster.serve() the one of a node",
    "destroy": "removes one pool: stop the nodes, then destroy the pool of each on its host: "
    "{pools}",
    "stage in": "copies files into one pool. Arrays come in by `engram import {url} GROUP FILE`, "
    "and files by a stage on each node, with its own pool: {pools}",
    "stage out": "copies files out of one pool. Arrays go out by `engram export {url} PATH FILE`, "
    "and files by a stage on each node, with its own pool: {pools}",
}
_OTHERS = "is of one pool: run it on the node that is meant, with its pool: {pools}"
_NAMED = 8
"""So many pools are named."""
_WHY_NOT = {
    "namespace": "the nodes of a cluster use the default namespace of their pools",
    "index": "objects of a cluster are indexed as their nodes' pools say",
    "scope": "what is in a cluster is its owner's",
}


def run(ctx: Any) -> Any:
    """Do what a verb does to a cluster.

    Raises
    ------
    UnsupportedError
        If it is of one pool.
    ArgumentError
        If something was said that has no meaning in a cluster.

    """
    verb = ctx.command_path.partition(" ")[2]
    url: ClusterUrl = ctx.params["pool"]
    if verb not in _MODULES:
        raise UnsupportedError(f"{url} is a cluster, and `engram {verb}` {_instead(verb, url)}")
    module = importlib.import_module(f"{__name__}.{_MODULES[verb]}")
    act = getattr(module, f"{verb}_")
    takes = inspect.signature(act).parameters
    said = {name: value for name, value in ctx.params.items() if name != "pool"}
    given = {name: value for name, value in said.items() if name in takes}
    for name in said.keys() - takes.keys():
        if ctx.get_parameter_source(name).name != "DEFAULT" and "ctx" not in takes:
            why = _WHY_NOT.get(name, "it is of pools alone")
            option = name.replace("_", "-")
            raise ArgumentError(f"--{option} says nothing of a cluster, {url}: {why}; leave it out")
    if "path" in given:
        given["path"] = joined(url.path, given["path"])
    if "below" in given:
        given["below"] = joined(url.path, given["below"])
    if isinstance(given.get("paths"), list):
        given["paths"] = [joined(url.path, path) for path in given["paths"]]
    if "ctx" in takes:
        given["ctx"] = ctx
    with clusters.open(url.name) as cluster:
        return act(cluster, **given)


def joined(above: str, path: str | None) -> str:
    """Return a path below another one; both may be the root's."""
    return "/".join(filter(None, (above, clean(path if path is not None else "/"))))


def pools_of(cluster: Cluster) -> str:
    """Name the pool of each node, and where it lies."""
    named = [f"{each.path} at {each.host}" for each in cluster.members]
    more = [f"and {len(named) - _NAMED} more"] if len(named) > _NAMED else []
    return ", ".join(named[:_NAMED] + more) or "it has no nodes yet"


def _instead(verb: str, url: ClusterUrl) -> str:
    """Say what to do; which pools there are only if that is known."""
    text = _INSTEAD.get(verb, _OTHERS)
    if "{pools}" not in text:
        return text
    try:
        with clusters.open(url.name) as cluster:
            pools = pools_of(cluster)
    except EngramError as error:
        pools = f"which these are is not known ({error})"
    return text.format(pools=pools, url=url)
