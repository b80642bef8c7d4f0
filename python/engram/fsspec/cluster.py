"""Files of a cluster: what lies below its groups as files, and its arrays as what they are.

    pandas.read_csv("engram://job/tables/stations.csv")
    fsspec.filesystem("engram", cluster="job").ls("run")

A file lies below a group of the cluster, on the node that is its home, and is put there whole. What
names begin with, and groups, are directories; arrays in parts are shown as arrays are, and read as
their values in C order. A path is the URL, or what follows the cluster's name in it. What a pool
does in one commit, several nodes do not: there are no transactions, and nothing is appended to.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from fsspec.spec import AbstractFileSystem
from fsspec.transaction import Transaction
from fsspec.utils import stringify_path

from engram import cluster as clusters
from engram.array import Array
from engram.blob import Blob
from engram.cluster import ClusterArray, ClusterGroup
from engram.cluster.far import FarBlob, FarObject
from engram.cluster.known import Known, check_name, read
from engram.cluster.listing import NameGroup, found_at, is_group, remove_all
from engram.errors import (
    ArgumentError,
    EngramError,
    ExistsError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedError,
)
from engram.fsspec.entry import bytes_of
from engram.fsspec.errors import (
    FileMissingError,
    FileTakenError,
    IsArrayError,
    IsGroupError,
    NoGroupError,
    NoHomeError,
    NotEmptyError,
    Told,
)
from engram.fsspec.filesystem import EngramFileSystem
from engram.fsspec.reading import ReadFile
from engram.fsspec.writing import WriteFile
from engram.paths import PROTOCOL, ClusterUrl, cluster_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from numpy.typing import NDArray

    from engram.cluster import Cluster
    from engram.fsspec.entry import Entry

_NOTHING = np.empty(0, np.uint8)
_MODES = {"rb", "wb", "xb"}
_opened: dict[str, tuple[int, Known, Cluster]] = {}
"""The clusters that paths have opened, by their names: by which process, and as what was known."""


def _cluster(name: str) -> Cluster:
    """Give a cluster, opened if it is not, or if it is another one by now."""
    known = read(name)
    found = _opened.get(name)
    if found is not None and found[:2] == (os.getpid(), known):
        return found[2]
    if found is not None and found[0] == os.getpid():
        found[2].close()
    opened = clusters.open(name)
    _opened[name] = (os.getpid(), known, opened)
    return opened


class ClusterPlace(NamedTuple):
    """A place in a cluster."""

    path: str
    """Its URL."""
    inner: str
    """The path in the cluster; "" is its root."""


class ClusterReadFile(ReadFile):
    """A file of a cluster, open for reading: its bytes were fetched when it was opened."""

    def info(self) -> Entry:
        """Tell of the file that was opened."""
        told: Any = self._found
        return dict(told)


class ClusterChange:
    """What the close of a file does: it is put at its home."""

    how = "replace"

    def __init__(
        self,
        fs: ClusterFileSystem,
        place: ClusterPlace,
        attrs: Mapping[str, Any] | None,
        *,
        new: bool,
    ) -> None:
        self._fs, self._place, self._attrs, self._is_new = fs, place, attrs, new
        self.data: Any = b""

    def find(self) -> ClusterPlace:
        """Give where it is put."""
        return self._place

    def run(self) -> None:
        """Put it."""
        with Told(self._place.path):
            group = self._fs.home(self._place)
            inside = group.inside(self._place.inner)
            data = bytes(self.data)
            try:
                group.put(inside, data, attrs=self._attrs, exist_ok=not self._is_new)
            except ExistsError as error:
                raise FileTakenError(f"{self._place.path} exists: mode 'wb' replaces it") from error


class NoTransaction(Transaction):  # type: ignore[misc]  # fsspec has no types
    """What a cluster has in a transaction's place."""

    def start(self) -> None:
        """Refuse.

        Raises
        ------
        UnsupportedError
            Always.

        """
        raise UnsupportedError(
            "files of a cluster lie on several nodes, and are put one by one: there is no "
            "transaction of them; write them without"
        )


class ClusterFileSystem(EngramFileSystem):
    """Files of one cluster; `EngramFileSystem(cluster=NAME)` makes it.

    Parameters
    ----------
    cluster
        The cluster's name.
    pool_mode
        "r+" to read and write, "r" to read.
    **storage_options
        What fsspec itself has.

    """

    transaction_type = NoTransaction

    def __init__(self, cluster: str, pool_mode: str = "r+", **storage_options: Any) -> None:
        if storage_options.pop("namespace", "default") != "default":
            raise ArgumentError(
                "namespace= is of pools: the nodes of a cluster use the default one of theirs"
            )
        super().__init__(pool_mode=pool_mode, **storage_options)
        self._name = check_name(cluster)
        # Names without the cluster's are of this one.
        self._strip_protocol = self._whole  # type: ignore[method-assign]

    @property
    def fsid(self) -> str:
        """What file systems of the same files have in common."""
        return f"{PROTOCOL}-cluster-{self._name}"

    def _whole(self, path: Any) -> Any:
        if isinstance(path, list):
            return [self._whole(each) for each in path]
        text = stringify_path(path)
        found = cluster_of(text)
        if found is None:
            if text.startswith(f"{PROTOCOL}:"):
                raise ArgumentError(f"{text!r} is of a pool, and this is the cluster {self._name}")
            found = ClusterUrl(self._name, "/".join(filter(None, text.split("/"))))
        elif found.name != self._name:
            raise ArgumentError(f"{text!r} is of another cluster than {self._name!r}")
        return str(found)

    @classmethod
    def _parent(cls, path: Any) -> str:
        found = cluster_of(stringify_path(path))
        if found is None:
            return super()._parent(path)  # type: ignore[no-any-return]
        return str(found._replace(path=found.path.rpartition("/")[0]))

    @staticmethod
    def close() -> None:
        """Close the clusters that paths have opened in this process."""
        while _opened:
            _, (pid, _, opened) = _opened.popitem()
            if pid == os.getpid():
                opened.close()

    # Looking

    def _place_of(self, path: Any) -> ClusterPlace:
        whole = self._whole(path)
        return ClusterPlace(whole, cluster_of(whole).path)  # type: ignore[union-attr]

    def _place(self, path: Any) -> Any:
        raise UnsupportedError(f"{path!r}: this is not done with files of a cluster")

    def _found(self, place: ClusterPlace) -> Any:
        try:
            return found_at(_cluster(self._name), place.inner)
        except NotFoundError as error:
            raise FileMissingError(
                f"{place.path} does not exist: list what is there with ls, or glob ({error})"
            ) from error

    def info(self, path: Any, **_options: Any) -> Entry:
        """Tell of a member: name, size, type, and of an array dtype and shape.

        What lies below a group has created and mtime (seconds), too.
        """
        place = self._place_of(path)
        with Told(place.path):
            return _entry(place.path, self._found(place))

    def ls(self, path: Any, detail: bool = True, **_options: Any) -> list[Any]:
        """List a group, in the order of its names; of an object, itself."""
        place = self._place_of(path)
        with Told(place.path):
            thing = self._found(place)
            if not is_group(thing):
                entries = [_entry(place.path, thing)]
            else:
                listed = thing.listed()
                entries = [_entry(f"{place.path}/{name}", each) for name, each in listed]
        return entries if detail else [entry["name"] for entry in entries]

    def _type(self, path: Any) -> str | None:
        try:
            return str(self.info(path)["type"])
        except (EngramError, OSError, ValueError):
            return None

    def exists(self, path: Any, **_options: Any) -> bool:
        """Whether there is something at a path."""
        return self._type(path) is not None

    def isdir(self, path: Any) -> bool:
        """Whether there is a group at a path, or names begin with it."""
        return self._type(path) == "directory"

    def isfile(self, path: Any) -> bool:
        """Whether there is a blob at a path."""
        return self._type(path) == "file"

    def created(self, path: Any) -> datetime:
        """When a member below a group was made."""
        self._check_dated(path, "created")
        return super().created(path)

    def modified(self, path: Any) -> datetime:
        """When a member below a group was last changed."""
        self._check_dated(path, "mtime")
        return super().modified(path)

    def _check_dated(self, path: Any, what: str) -> None:
        if what not in self.info(path):
            raise UnsupportedError(f"{path} is a name of the cluster, which keeps no times of it")

    def ukey(self, path: Any) -> str:
        """Give a text that is another one once the file was written; it costs a look-up."""
        entry = self.info(path)
        return sha256(repr(sorted(entry.items(), key=str)).encode()).hexdigest()

    # Reading

    def _bytes(self, path: Any) -> Any:
        place = self._place_of(path)
        with Told(place.path):
            return _bytes_of(self._found(place), place.path)

    # Opening

    def _open(  # noqa: PLR0917 - as fsspec has it
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        attrs: Mapping[str, Any] | None = None,
        **_options: Any,
    ) -> ReadFile | WriteFile:
        del block_size, cache_options, autocommit
        if mode not in _MODES:
            raise ArgumentError(
                f"mode {mode!r} is not known of a cluster's files, which are put whole: use rb, wb "
                "or xb; to append, read the file and write it anew"
            )
        place = self._place_of(path)
        with Told(place.path):
            if mode == "rb":
                thing = self._found(place)
                content = _bytes_of(thing, place.path)
                entry: Any = _entry(place.path, thing)
                return ClusterReadFile(self, place, content, entry)  # type: ignore[arg-type]
            self._check_writable(place, is_new=mode == "xb")
        change: Any = ClusterChange(self, place, attrs, new=mode == "xb")
        return WriteFile(self, place.path, mode, _NOTHING, change, True)

    def home(self, place: ClusterPlace) -> ClusterGroup:
        """Give the group of the cluster below which a file may lie.

        Raises
        ------
        NoHomeError
            If there is none.
        ReadOnlyError
            If the file system is for reading.

        """
        if self._pool_mode == "r":
            raise ReadOnlyError(f"{place.path}: the file system is for reading: pool_mode='r+'")
        found = _cluster(self._name)._find(place.inner) if place.inner else None
        if isinstance(found, ClusterGroup) and found.path != place.inner:
            return found
        raise NoHomeError(
            f"{place.path}: a file lies below a group of the cluster, on its home, and none is "
            "above it: make one with mkdir, or cluster.create_group(name, spread='hash')"
        )

    def _check_writable(self, place: ClusterPlace, *, is_new: bool) -> None:
        group = self.home(place)
        try:
            there = found_at(_cluster(self._name), place.inner)
        except NotFoundError:
            _check_way(group, place)
            return
        if is_new:
            raise FileTakenError(f"{place.path} exists: mode 'wb' replaces it")
        if is_group(there):
            raise IsGroupError(f"{place.path} is a group, and no file: write to a name in it")
        if not isinstance(there, FarBlob | Blob):
            raise IsArrayError(
                f"{place.path} is an array, which is not written as a file: cluster[path][...] = "
                "values writes to it, or remove it first"
            )

    # Writing

    def pipe_file(self, path: Any, value: Any, mode: str = "overwrite", **options: Any) -> None:
        """Write a file of bytes; with mode "create", if there is none."""
        if mode not in {"overwrite", "create"}:
            raise ArgumentError(f'mode {mode!r} is unknown: use "overwrite" or "create"')
        with self._open(path, "xb" if mode == "create" else "wb", **options) as file:
            file.write(value)

    def touch(self, path: Any, truncate: bool = True, **options: Any) -> None:
        """Make an empty file; without `truncate`, one that is there stays as it is."""
        if truncate or not self.exists(path):
            self.pipe_file(path, b"", **options)

    def cp_file(self, path1: Any, path2: Any, **_options: Any) -> None:
        """Copy a file or an array; of a group, make one of that name. Attributes go with them."""
        source, target = self._place_of(path1), self._place_of(path2)
        with Told(source.path):
            thing = self._found(source)
            attrs = dict(thing.attrs.items())
        if is_group(thing):
            self.makedirs(target.path, exist_ok=True)
            return
        if source == target:
            return
        if isinstance(thing, FarBlob | Blob):
            self.pipe_file(target.path, bytes(thing[:]), attrs=attrs)
            return
        with Told(target.path):
            cluster, given = _cluster(self._name), {"dims": thing.dims, "attrs": attrs}
            values = np.asarray(thing[...])
            try:
                group = self.home(target)
            except NoHomeError:
                cluster.put(target.inner, values, **given)
            else:
                group.put(group.inside(target.inner), values, **given)

    # Directories

    def mkdir(self, path: Any, create_parents: bool = True, **options: Any) -> None:
        """Make a group: below one, a group in it; else one of the cluster.

        The latter lies on one node, or with `spread="hash"` on all.
        """
        place = self._place_of(path)
        if self.exists(place.path):
            raise FileTakenError(f"{place.path} exists")
        parent = self._parent(place.path)
        if not create_parents and not self.exists(parent):
            raise FileMissingError(f"{parent} does not exist: create_parents=True makes it")
        with Told(place.path):
            try:
                group = self.home(place)
            except NoHomeError:
                spread = options.get("spread", "node")
                _cluster(self._name).create_group(place.inner, spread=spread)
            else:
                _check_way(group, place)
                group.create_group(group.inside(place.inner))

    def rmdir(self, path: Any) -> None:
        """Remove a group that has no members."""
        place = self._place_of(path)
        with Told(place.path):
            thing = self._found(place)
            if not is_group(thing):
                raise NoGroupError(f"{place.path} is no group: remove it with rm")
            if next(iter(thing), None) is not None or isinstance(thing, NameGroup):
                raise NotEmptyError(f"{place.path} has members: remove it with rm(recursive=True)")
        self._remove([place])

    def _remove(self, named: list[ClusterPlace]) -> None:
        if self._pool_mode == "r":
            raise ReadOnlyError(f"{named[0].path}: the file system is for reading: pool_mode='r+'")
        with Told(named[0].path):
            remove_all(_cluster(self._name), [place.inner for place in named])

    # Removing and moving

    def rm_file(self, path: Any) -> None:
        """Remove a file or an array."""
        if self.isdir(path):
            raise IsGroupError(f"{path} is a group: remove it with rm(recursive=True)")
        self.rm(path)

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files and arrays; with `recursive`, groups with all that is below them.

        Nothing goes if one of the paths is not there, or is a group that may not go.
        """
        if maxdepth is not None:
            raise UnsupportedError("maxdepth= is not known of a cluster: name what is to go")
        named = [self._place_of(each) for each in self._named(path)]
        for place in named:
            if not self.exists(place.path):
                raise FileMissingError(f"{place.path} does not exist")
            if not place.inner:
                raise IsGroupError(f"{place.path} is the cluster: name something in it")
            if not recursive and self.isdir(place.path):
                raise IsGroupError(f"{place.path} is a group: remove it with recursive=True")
        if named:
            self._remove(named)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Copy a member to another name, then remove it: the two are two steps."""
        is_tree = recursive or self.isdir(path1)
        AbstractFileSystem.mv(self, path1, path2, recursive=is_tree, maxdepth=maxdepth, **options)


def _check_way(group: ClusterGroup, place: ClusterPlace) -> None:
    """Refuse a way that leads through an object.

    Raises
    ------
    NoGroupError
        If it does.

    """
    way = group.inside(place.inner).split("/")
    for length in range(1, len(way)):
        above = "/".join(way[:length])
        try:
            found = group[above]
        except NotFoundError:
            return
        if not is_group(found):
            raise NoGroupError(f"{above} of {group.path} is no group: {place.path} cannot be in it")


def _entry(path: str, thing: Any) -> Entry:
    """Tell of something of a cluster."""
    if is_group(thing):
        return {"name": path, "size": 0, "type": "directory"}
    if isinstance(thing, ClusterArray):
        nbytes = thing.size * thing.dtype.itemsize
        told: Entry = {"generation": thing.generation}
    elif isinstance(thing, FarObject):
        nbytes = thing.nbytes
        told = {"ino": thing._id, "generation": thing._generation}
        told |= {"created": thing.created.timestamp(), "mtime": thing.modified.timestamp()}
    else:
        about = thing._info()
        nbytes, told = thing.nbytes, {"ino": thing._id}
        told |= {"created": about.created / 10**9, "mtime": about.modified / 10**9}
    if isinstance(thing, FarBlob | Blob):
        return {"name": path, "size": nbytes, "type": "file", **told}
    if not hasattr(thing, "dtype"):  # a table
        return {"name": path, "size": nbytes, "type": "directory", **told}
    shown = {"dtype": str(thing.dtype), "shape": tuple(thing.shape)}
    return {"name": path, "size": nbytes, "type": "array", **told, **shown}


def _bytes_of(thing: Any, path: str) -> NDArray[np.uint8]:
    """Give the bytes of a file or an array, of one moment."""
    if is_group(thing):
        raise IsGroupError(f"{path} is a group, and no file: list it with ls")
    if isinstance(thing, Blob | Array):
        return bytes_of(thing, path)
    if isinstance(thing, FarBlob):
        return np.frombuffer(bytes(thing), np.uint8)
    if thing.dtype.kind == "T":
        raise UnsupportedError(
            f"{path} is text of variable length, which has no bytes as a file: read it as "
            f"cluster[{thing.path!r}][...]"
        )
    found = np.ascontiguousarray(thing[...]).reshape(-1)
    raw: NDArray[np.uint8] = found.view(np.uint8) if found.size else np.empty(0, np.uint8)
    raw.flags.writeable = False
    return raw
