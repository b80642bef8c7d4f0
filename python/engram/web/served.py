"""What is served: pools and clusters, opened once, each with a number.

**Invariant.** A pool whose files were removed is *gone* from the moment anybody notices: a watch,
or a request, each of which looks whether the pool's file is still the one that was opened. All that
is asked of it from then on is refused with `PoolGoneError`. The others go on.

A file that is cut short while it is served cannot be noticed in time: whoever reads a page that is
no longer there is ended by the system, with SIGBUS, and the whole server with it.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engram
from engram import owners
from engram.errors import ArgumentError, EngramError, NotFoundError, PoolGoneError
from engram.paths import POOL_FILE, ClusterUrl, cluster_of
from engram.web.refusal import RefusedError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from engram.namespace import Namespace
    from engram.pool import Pool


class Served(ABC):
    """A pool, or a cluster: `kind` says which."""

    kind: str

    def __init__(self, number: str, label: str, place: str) -> None:
        self.number, self.label, self.place = number, label, place

    @property
    def is_gone(self) -> str:
        """Why it is gone; "" if it is there."""
        return ""

    def check(self) -> None:
        """Refuse what is gone.

        Raises
        ------
        PoolGoneError
            If it is.

        """
        if self.is_gone:
            raise PoolGoneError(self.is_gone)

    def told(self) -> dict[str, Any]:
        """Return what the page's first answer says of it."""
        about: dict[str, Any] = {
            "id": self.number,
            "label": self.label,
            "place": self.place,
            "kind": self.kind,
        }
        try:
            self.check()
            return about | self.figures()
        except EngramError as error:
            return about | {"error": str(error)}

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """Return its figures: size and used, in bytes, and how many objects it has."""

    @abstractmethod
    def found(self, path: str) -> Any:
        """Give what lies at a path; the empty path is the root."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""


class ServedPool(Served):
    """A namespace of a pool."""

    kind = "pool"

    def __init__(self, number: str, place: Path, namespace: str, *, write: bool) -> None:
        self.pool: Pool = engram.open(place, mode="r+" if write else "r")
        path = self.pool.path
        super().__init__(number, Path(path).name, path)
        try:
            self.root: Namespace = self.pool
            if namespace != "default":
                self.root = self.pool.namespaces[namespace]
                self.label = f"{self.label}:{namespace}"
            self._sign = _sign_of(Path(path))
            self.root.space  # noqa: B018 - another's is refused now, not at the first click
        except BaseException:
            self.pool.close()
            raise
        self._gone = ""

    @property
    def is_gone(self) -> str:
        """Why it is gone; "" if it is there."""
        return self._gone

    def lose(self, message: str) -> None:
        """Note that it is gone."""
        self._gone = self._gone or message

    def check(self) -> None:
        """Refuse a pool whose files were removed, or have others in their place."""
        if not self._gone and _sign_of(Path(self.place)) != self._sign:
            self.lose(
                f"the files of {self.place} were removed while it was served: make the pool "
                "anew, then start `engram serve` again; `engram doctor` says what removes files"
            )
        super().check()

    def figures(self) -> dict[str, Any]:
        """Return its figures, and what it is."""
        space, index = self.root.space, self.root.index_stats()
        live = index.sealed - index.dead + index.tail + index.queued + index.unindexed
        return {
            "uuid": self.pool.uuid,
            "size": space.size,
            "used": space.used,
            "objects": live,
            "durability": self.pool.durability,
            "namespace": self.root.name,
            "owner": owners.user(self.pool.namespaces.info(self.root.name).owner),
        }

    def found(self, path: str) -> Any:
        """Give what lies at a path of the namespace."""
        self.check()
        name = path.strip("/")
        return self.root[name] if name else self.root

    def close(self) -> None:
        """Close the pool."""
        with contextlib.suppress(EngramError):
            self.pool.close()


class ServedCluster(Served):
    """A cluster, or what lies below a path in it."""

    kind = "cluster"

    def __init__(self, number: str, url: ClusterUrl) -> None:
        from engram import cluster as clusters  # noqa: PLC0415 - a pool needs none of it

        self.cluster = clusters.open(url.name)
        self.below = url.path
        super().__init__(number, url.name, str(url))

    def figures(self) -> dict[str, Any]:
        """Return its figures: those of all nodes that answer."""
        size = used = 0
        members = self.cluster.members
        for each in members:
            space = self.cluster.space(each.node) if each.state == "serving" else None
            if space is not None:
                size, used = size + space.size, used + space.used
        names = len(self.cluster.names(self.below))
        told = {"size": size, "used": used, "objects": names, "nodes": len(members)}
        return told | {"uuid": self.cluster.name, "epoch": self.cluster.epoch}

    def found(self, path: str) -> Any:
        """Give what lies at a path below what is served."""
        from engram.cluster.listing import found_at  # noqa: PLC0415 - as above

        return found_at(self.cluster, "/".join(filter(None, (self.below, path.strip("/")))))

    def relative(self, path: str) -> str:
        """Return a path of the cluster as one of what is served."""
        return path.removeprefix(f"{self.below}/") if self.below else path

    def close(self) -> None:
        """Close the cluster."""
        with contextlib.suppress(EngramError):
            self.cluster.close()


class Shelf:
    """All that is served."""

    def __init__(
        self,
        places: Sequence[str | os.PathLike[str]],
        *,
        namespace: str = "default",
        write: bool = False,
    ) -> None:
        if not places:
            raise ArgumentError("name what is to be served: a pool's folder, or engram://CLUSTER")
        self.write = write
        self._served: dict[str, Served] = {}
        try:
            for number, place in enumerate(places):
                url = cluster_of(str(place))
                self._served[str(number)] = (
                    ServedPool(str(number), Path(place), namespace, write=write)
                    if url is None
                    else ServedCluster(str(number), url)
                )
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def __getitem__(self, number: str) -> Served:
        """Give what has this number.

        Raises
        ------
        NotFoundError
            If nothing has.

        """
        if number not in self._served:
            raise NotFoundError(
                f"nothing is served as {number[:40]!r}: there are {', '.join(self._served)}"
            )
        return self._served[number]

    def close(self) -> None:
        """Close all."""
        for each in self._served.values():
            each.close()


def pool_of(served: Served, what: str) -> ServedPool:
    """Give a pool; refuse a cluster, which has no such thing as a whole."""
    if isinstance(served, ServedPool):
        served.check()
        return served
    raise RefusedError(
        *(400, "UnsupportedError", f"{served.place} is a cluster, and {what} is of one pool"),
        "serve the pool of the node that is meant",
    )


def cluster_at(served: Served) -> ServedCluster:
    """Give a cluster; refuse a pool."""
    if isinstance(served, ServedCluster):
        return served
    raise RefusedError(400, "UnsupportedError", f"{served.place} is one pool, which has no nodes")


def _sign_of(place: Path) -> tuple[int, int] | None:
    """Return what tells the file of a pool from that of another one; None if there is none."""
    try:
        about = (place / POOL_FILE).stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino
