"""What names there are: a cluster as a tree, for whoever lists, walks or shows it.

The names of a cluster are whole paths, such as `run/T`. What several of them begin with, `run`, is
no thing of its own: it is shown as a group as long as a name is below it. Below a name that is a
group the nodes are asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from engram.cluster.boxes import ClusterArray
from engram.cluster.making import NAMES_MOST
from engram.cluster.names import checked
from engram.cluster.trees import ClusterGroup
from engram.errors import NotFoundError

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster


class NameGroup(Mapping[str, Any]):
    """What names of a cluster begin with, as a group; of the empty path, the cluster itself."""

    def __init__(self, cluster: Cluster, path: str) -> None:
        self.cluster, self.path = cluster, path

    def __repr__(self) -> str:
        return f"<engram names below {self.cluster.url(self.path)}>"

    @property
    def attrs(self) -> dict[str, Any]:
        """Its attributes: it has none."""
        return {}

    def __getitem__(self, name: str) -> Any:
        return found_at(self.cluster, f"{self.path}/{name}".lstrip("/"))

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.listed())

    def __len__(self) -> int:
        return sum(1 for _ in self.listed())

    def listed(self) -> Iterator[tuple[str, Any]]:
        """Give members, each with its handle, in the order of their names: all of one moment."""
        begin = len(self.path) + 1 if self.path else 0
        found: dict[str, Any] = {}
        for path, handle in self.cluster._handles(self.path):
            name, _, more = path[begin:].partition("/")
            if not more:
                found[name] = handle
            elif isinstance(found.get(name), ClusterArray):  # nothing keeps names from being so
                found[path[begin:]] = handle
            else:
                found[name] = NameGroup(self.cluster, path[: begin + len(name)])
        return iter(sorted(found.items()))


def is_group(thing: Any) -> bool:
    """Whether something of a cluster has members."""
    return isinstance(thing, NameGroup | ClusterGroup)


def found_at(cluster: Cluster, path: str) -> Any:
    """Give what lies at a path: the empty path is all names.

    Returns
    -------
    ClusterArray, ClusterGroup, NameGroup
        A name of the cluster, or what several begin with.
    FarArray, FarBlob, engram.Array, engram.Blob, engram.Table
        What lies below a group: the latter three on this host's node.

    Raises
    ------
    NotFoundError
        If nothing does.

    """
    if not path.strip("/"):
        return NameGroup(cluster, "")
    name = checked(path)
    try:
        return cluster[name]
    except NotFoundError:
        if cluster.names(name):
            return NameGroup(cluster, name)
        raise


def walked(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is below a group, each with its path from there; of all else, nothing.

    What is removed meanwhile is left out.
    """
    waiting = [("", thing)]
    while waiting:
        above, group = waiting.pop()
        below = []
        try:
            for name, member in group.listed() if is_group(group) else ():
                yield f"{above}{name}", member
                if is_group(member):
                    below.append((f"{above}{name}/", member))
        except NotFoundError:
            continue
        waiting.extend(reversed(below))


def remove_all(cluster: Cluster, paths: Iterable[str]) -> None:
    """Remove what lies at these paths, groups with all that is below them.

    What lies below groups goes at first, one by one; names of the cluster go together, or none, if
    they are no more than are published at once.

    Raises
    ------
    NotFoundError
        If one of the names is not there: nothing has gone then.

    """
    names: dict[str, None] = {}
    below: dict[str, None] = {}
    for path in paths:
        thing = found_at(cluster, path)
        if isinstance(thing, NameGroup):
            names |= dict.fromkeys(cluster.names(path))
        elif isinstance(thing, ClusterArray) or thing.path == getattr(thing, "root", None):
            names[path] = None
        else:
            below[path] = None
    for path in below:
        with contextlib.suppress(NotFoundError):  # it went with one named before
            del cluster[path]
    every = list(names)
    for begin in range(0, len(every), NAMES_MOST):
        with cluster.batch() as batch:
            for name in every[begin : begin + NAMES_MOST]:
                batch.remove(name)
