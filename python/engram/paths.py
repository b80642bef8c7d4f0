"""Paths of pools and devices, as users give them."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from engram.errors import ArgumentError, InvalidNameError, NotFoundError

POOL_FILE = "pool.toml"
"""The file that makes a folder a pool."""

PROTOCOL = "engram"
"""What a URL into a pool begins with: `engram:///dev/shm/pool/run-17`."""


class ClusterPath(NamedTuple):
    """A group of an open cluster, as what opens datasets is given it."""

    cluster: Any
    path: str


class ClusterUrl(NamedTuple):
    """A cluster's name, and a path in it: what `engram://NAME/PATH` says."""

    name: str
    path: str

    def __str__(self) -> str:
        return f"{PROTOCOL}://{self.name}/{self.path}".rstrip("/")


def cluster_of(given: object) -> ClusterUrl | None:
    """Split the URL of a cluster, or of a place in one; None for all else.

    A host stands after two slashes, and a path begins with the third. So `engram://job/run` is of
    the cluster `job`, and `engram:///job/run` is the path of a pool on this node.
    """
    if not isinstance(given, str) or not given.startswith(f"{PROTOCOL}://"):
        return None
    name, _, path = given[len(PROTOCOL) + 3 :].partition("/")
    return ClusterUrl(name, "/".join(filter(None, path.split("/")))) if name else None


def absolute(path: str | os.PathLike[str]) -> Path:
    """Give the absolute path of what can be one; the working directory only where it is named."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise ArgumentError(f"{path!r} is no path: give a str or a pathlib.Path")
    if cluster_of(text) is not None:
        raise ArgumentError(
            f"{text!r} is of a cluster, and no path of a pool: engram.cluster.open opens it; a "
            f"pool of this node is {PROTOCOL}:///dev/shm/pool, with three slashes, or its path"
        )
    if not text or "\0" in text:
        raise InvalidNameError(f"{text!r} cannot be a path: give the path of a directory")
    try:
        return Path(text).absolute()
    except FileNotFoundError:
        raise NotFoundError(
            f"{text!r} is relative to the folder that this process works in, which is gone: give "
            "an absolute path, or change to a folder that is there"
        ) from None


def is_url(path: object) -> bool:
    """Whether it is the URL of a place in a pool."""
    return isinstance(path, str) and path.startswith((f"{PROTOCOL}://", f"{PROTOCOL}::"))


def stripped(url: str) -> str:
    """Give the path of a URL, or of what is a path already; it begins at the root.

    Raises
    ------
    ArgumentError
        If the URL is of a cluster.

    """
    path = url
    if path.startswith(f"{PROTOCOL}://"):
        path = path[len(PROTOCOL) + 3 :]
        host = path.partition("/")[0]
        if host:
            raise ArgumentError(
                f"{url!r} is of the cluster {host!r}, and no path of a pool: a pool of this node "
                f"has three slashes, as in {PROTOCOL}:///dev/shm/pool/file"
            )
    elif path.startswith(f"{PROTOCOL}::"):
        path = path[len(PROTOCOL) + 2 :]
    if path.startswith("/") and not path.endswith("/") and "//" not in path:
        return path
    return "/" + "/".join(filter(None, path.split("/")))


def pool_above(path: str | os.PathLike[str]) -> tuple[Path, str] | None:
    """Split a path into that of a pool's folder and that of a member in it; None without a pool.

    `/dev/shm/pool/run-17/co2` is the pool at `/dev/shm/pool`, and `run-17/co2` in it: this is how
    other programs' interfaces name what a pool holds. A URL of it is as good.

    Raises
    ------
    ArgumentError
        If it is a URL that names a host.
    PermissionError
        If it leads through a folder that this user may not enter.

    """
    text = os.fspath(path)
    whole = absolute(stripped(text) if is_url(text) else text)
    for folder in (whole, *whole.parents):
        try:
            (folder / POOL_FILE).lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        inner = whole.relative_to(folder).as_posix()
        return folder, "" if inner == "." else inner
    return None
