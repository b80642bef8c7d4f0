"""The file system that fsspec asks for: names, listings, opening, copying, moving, removing.

What it does to several members at once is one commit where a path names them all: a group is moved
or removed with all that is below it. What fsspec makes of single steps (copying a tree, what a
pattern matches) is a commit for each step.
"""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.utils import isfilelike, stringify_path

from engram import _engram
from engram.errors import ArgumentError, EngramError, ExistsError, ReadOnlyError
from engram.fsspec import place as places
from engram.fsspec.change import Change, again, check_way, check_writable
from engram.fsspec.copying import Said, copy_object, said_of_group
from engram.fsspec.entry import BLOB, GROUP, bytes_at, entries_in, entry_of, missing, names_in
from engram.fsspec.errors import (
    FileMissingError,
    FileTakenError,
    IsGroupError,
    Told,
)
from engram.fsspec.reading import ReadFile
from engram.fsspec.transaction import PoolTransaction
from engram.fsspec.tree import at, move_all, remove_empty, taken
from engram.fsspec.writing import CompressedFile, TextFile, WriteFile
from engram.paths import PROTOCOL, cluster_of, stripped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engram.fsspec.change import How
    from engram.fsspec.entry import Entry
    from engram.fsspec.place import Place

_NOTHING = np.empty(0, np.uint8)
_TEXT = ("encoding", "errors", "newline")
_HOW: dict[str, How] = {"w": "replace", "x": "create", "a": "append", "r": "change"}


class EngramFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files in pools: blobs are files, groups are directories.

    ::

        fs = fsspec.filesystem("engram")
        with fs.open("/dev/shm/pool/run-17/log.txt", "w") as file:
            file.write("begun")

    Parameters
    ----------
    pool_mode
        "r+" to read and write, "r" to read; a pool is opened so when a path first leads into it.
    namespace
        The namespace of the pool in which paths are.
    cluster
        The name of a cluster, whose files these are then: a URL `engram://NAME/...` says so.
    **storage_options
        What fsspec itself has, such as `skip_instance_cache`.

    """

    protocol = PROTOCOL
    root_marker = "/"
    transaction_type = PoolTransaction

    def __new__(cls, *_given: Any, **options: Any) -> Any:
        """Make one of pools; with `cluster=`, one of that cluster's files."""
        if cls is EngramFileSystem and "cluster" in options:
            from engram.fsspec.cluster import ClusterFileSystem  # noqa: PLC0415 - pools need none

            return object.__new__(ClusterFileSystem)
        return object.__new__(cls)

    def __init__(
        self, pool_mode: str = "r+", namespace: str = "default", **storage_options: Any
    ) -> None:
        if pool_mode not in {"r", "r+"}:
            raise ArgumentError(f'pool_mode {pool_mode!r} is unknown: use "r" or "r+"')
        super().__init__(**storage_options)
        self._pool_mode = pool_mode
        self._namespace = namespace

    @property
    def fsid(self) -> str:
        """What file systems of the same files have in common."""
        return f"{PROTOCOL}-{self._namespace}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = stringify_path(path)
        found = cluster_of(text)
        return stripped(text) if found is None else str(found)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        found = cluster_of(path)
        return {} if found is None else {"cluster": found.name}

    @staticmethod
    def close() -> None:
        """Close the pools that paths have opened in this process, so that others may destroy them.

        The next path into one opens it again.
        """
        places.close_all()

    def _place(self, path: Any) -> Place:
        whole: str = self._strip_protocol(path)
        if (found := cluster_of(whole)) is not None:
            raise ArgumentError(
                f"{whole!r} is of the cluster {found.name!r}, and this file system of pools: "
                f"fsspec.filesystem('engram', cluster={found.name!r}) has its files, and a pool of "
                f"this node has three slashes, as in {PROTOCOL}:///dev/shm/pool/file"
            )
        with Told(whole):
            return places.place_of(whole, self._pool_mode, self._namespace)

    # Looking

    def info(self, path: Any, **_options: Any) -> Entry:
        """Tell of a member: name, size, type, created, mtime (seconds), ino (its id).

        The type is "file" for a blob, "directory" for a group, "array" for an array, of which dtype
        and shape are told as well.
        """
        place = self._place(path)
        with Told(place.path):
            found = entry_of(place)
        if found is None:
            raise missing(place)
        return found

    def ls(self, path: Any, detail: bool = True, **_options: Any) -> list[Any]:
        """List a group, in byte order of the names; of an object, itself."""
        place = self._place(path)
        with Told(place.path):
            found = place.find()
            if found is not None and found[0] == GROUP:
                told = entries_in if detail else names_in
                return list(told(place, found[1]))
        entry = self.info(place.path)
        return [entry if detail else entry["name"]]

    def exists(self, path: Any, **_options: Any) -> bool:
        """Whether there is something at a path."""
        try:
            return self._place(path).find() is not None
        except (EngramError, OSError, ValueError):
            return False

    def isdir(self, path: Any) -> bool:
        """Whether there is a group at a path."""
        return self._kind(path) == GROUP

    def isfile(self, path: Any) -> bool:
        """Whether there is a blob at a path."""
        return self._kind(path) == BLOB

    def _kind(self, path: Any) -> int | None:
        try:
            found = self._place(path).find()
        except (EngramError, OSError, ValueError):
            return None
        return None if found is None else found[0]

    def created(self, path: Any) -> datetime:
        """When a member was made."""
        return datetime.fromtimestamp(self.info(path)["created"], UTC)

    def modified(self, path: Any) -> datetime:
        """When a member was last changed; in-place writes through Engram do not count."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def ukey(self, path: Any) -> str:
        """Give a text that is another one once a file was written; it costs a look-up.

        In-place writes through Engram's own arrays do not count: `checksum` sees these.
        """
        place = self._place(path)
        entry = self.info(place.path)
        known = (place.namespace.uuid, entry["ino"], entry["size"], entry["mtime"])
        return sha256(repr(known).encode()).hexdigest()

    def checksum(self, path: Any) -> int:
        """Give a number that is the same for the same bytes alone; it reads them all."""
        return int(blake2b(self._bytes(path).data, digest_size=16).hexdigest(), 16)

    # Reading

    def _bytes(self, path: Any) -> Any:
        place = self._place(path)
        with Told(place.path):
            return bytes_at(place)[0]

    def cat_file(
        self, path: Any, start: int | None = None, end: int | None = None, **_options: Any
    ) -> bytes:
        """Give the bytes of a file, or a part, by the rules of slices."""
        content = self._bytes(path)
        found: bytes = content[start:end].tobytes()
        return found

    def cat_ranges(
        self,
        paths: list[Any],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_options: Any,
    ) -> list[Any]:
        """Give parts of files: all those of one file are of one moment."""
        del max_gap  # nothing is gained by reading what lies between
        if not isinstance(paths, list):
            message = f"paths {paths!r} is no list"
            raise TypeError(message)
        begins = starts if isinstance(starts, list) else [starts] * len(paths)
        stops = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(paths) == len(begins) == len(stops):
            message = f"{len(paths)} paths, {len(begins)} starts and {len(stops)} ends do not match"
            raise ValueError(message)
        seen: dict[Any, Any] = {}
        found: list[Any] = []
        for path, start, end in zip(paths, begins, stops, strict=True):
            try:
                if path not in seen:
                    seen[path] = self._bytes(path)
                found.append(seen[path][start:end].tobytes())
            except Exception as error:
                if on_error != "return":
                    raise
                found.append(error)
        return found

    def get_file(
        self,
        rpath: Any,
        lpath: Any,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **_: Any,
    ) -> None:
        """Copy a file into a local one, or into a file that is open."""
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        elif outfile is None and self.isdir(rpath):
            Path(lpath).mkdir(parents=True, exist_ok=True)
            return
        content = self._bytes(rpath).data
        callback.set_size(len(content))
        if outfile is not None:
            _pour(content, outfile, self.blocksize, callback)
            return
        Path(lpath).parent.mkdir(parents=True, exist_ok=True)
        with Path(lpath).open("wb") as file:
            _pour(content, file, self.blocksize, callback)

    # Opening

    def open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        """Open a file: "r", "w", "x", "a", with "b" or as text, with "+".

        What is written is there once the file is closed, whole, as a new blob. A with-block that
        raises leaves what was there. `attrs=` are attributes of a new blob.
        """
        if "b" not in mode:
            text = {key: options.pop(key) for key in _TEXT if key in options}
            inner = self.open(path, mode.replace("t", "") + "b", compression=compression, **options)
            reads = "r" in mode and "+" not in mode
            return (io.TextIOWrapper if reads else TextFile)(inner, **text)
        chosen = get_compression(self._strip_protocol(path), compression)
        make = compr[chosen] if chosen else None
        file = super().open(path, mode, block_size, cache_options, None, **options)
        if make is None:
            return file
        compressor = make(file, mode=mode[0])
        return CompressedFile(compressor, file) if isinstance(file, WriteFile) else compressor

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
        del block_size, cache_options  # nothing is fetched from afar
        kind, adds = mode.replace("b", "").replace("+", ""), "+" in mode
        if kind not in _HOW or len(mode) != 2 + adds or (kind == "a" and adds):
            raise ArgumentError(
                f"mode {mode!r} is not known here: use rb, wb, xb, ab, r+b, w+b or x+b"
            )
        if kind == "r" and not adds:
            place = self._place(path)
            with Told(path):
                return ReadFile(self, place, *bytes_at(place))
        place = self._writable(path)
        change = Change(lambda: self._place(path), _HOW[kind], attrs=attrs)
        content = _NOTHING
        with Told(path):
            check_writable(place)
            found = place.find()
            if kind == "r":
                content, found = bytes_at(place)
                change.base = found[1]
            elif kind == "x" and found is not None:
                raise FileTakenError(f"{path} exists: mode 'wb' replaces it")
        if not autocommit:
            self.transaction.join(place)
        file = WriteFile(self, path, mode, content, change, autocommit)
        if kind == "a" and found is not None:
            file.begin_at((entry_of(place) or {"size": 0})["size"])
        if kind == "r" and not autocommit:
            self.transaction.files.append(file)  # fsspec adds what has no "r" in its mode
        return file

    def _writable(self, path: Any) -> Place:
        place = self._place(path)
        if not place.namespace.writable:
            raise ReadOnlyError(
                f"{place.path} is in a pool that is open for reading: open the file system with "
                "pool_mode='r+'"
            )
        if not place.inner:
            raise IsGroupError(
                f"{place.path} is a pool, and stays what and where it is: name something in it; "
                "engram.destroy removes a pool"
            )
        return place

    # Writing

    def pipe_file(self, path: Any, value: Any, mode: str = "overwrite", **options: Any) -> None:
        """Write a file of bytes; with mode "create", if there is none."""
        if mode not in {"overwrite", "create"}:
            raise ArgumentError(f'mode {mode!r} is unknown: use "overwrite" or "create"')
        kind = "xb" if mode == "create" else "wb"
        if self._intrans:
            with self.open(path, kind, **options) as file:
                file.write(value)
            return
        place = self._writable(path)
        Change(lambda: place, _HOW[kind[0]], value, attrs=options.get("attrs")).run()

    def put_file(
        self,
        lpath: Any,
        rpath: Any,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **options: Any,
    ) -> None:
        """Copy a local file; with mode "create", if there is none of the name."""
        if Path(lpath).is_dir():
            self.makedirs(rpath, exist_ok=True)
            return
        kind = "xb" if mode == "create" else "wb"
        with Path(lpath).open("rb") as source, self.open(rpath, kind, **options) as target:
            callback.set_size(os.fstat(source.fileno()).st_size)
            while part := source.read(self.blocksize):
                callback.relative_update(target.write(part))

    def touch(self, path: Any, truncate: bool = True, **options: Any) -> None:
        """Make an empty file; without `truncate`, of one that is there, set `modified` alone."""
        place = self._writable(path)
        with Told(place.path):
            check_writable(place)
            found = place.find()
            if found is not None and not truncate:
                _engram.attr_set(place.namespace, False, found[1], {})
                return
        self.pipe_file(path, b"", **options)

    def cp_file(self, path1: Any, path2: Any, **_options: Any) -> None:
        """Copy a file or an array; of a group, make one of that name. Attributes go with them."""
        source = self._place(path1)
        with Told(source.path):
            found = source.find()
        if found is None:
            raise missing(source)
        if found[0] == GROUP:
            self._copy_group(source, found[1], path2)
            return
        target = self._writable(path2)
        if target.path == source.path:
            return
        with Told(target.path):
            check_writable(target)
            try:
                copy_object(source, target)
            except FileNotFoundError:
                raise
            except LookupError as error:
                raise missing(source) from error

    def _copy_group(self, source: Place, group: int, path: Any) -> None:
        """Make a group with what is said of another; one that is there stays as it is."""
        with Told(source.path):
            try:
                said = said_of_group(source, group)
            except LookupError as error:
                raise missing(source) from error
        try:
            self._make_group(path, said)
        except FileExistsError:
            if not self.isdir(path):
                raise

    # Directories

    def mkdir(self, path: Any, create_parents: bool = True, **_options: Any) -> None:
        """Make a group, and those above it."""
        self._make_group(path, Said(), create_parents=create_parents)

    def _make_group(self, path: Any, said: Said, *, create_parents: bool = True) -> None:
        place = self._place(path)
        if not place.inner:
            raise FileTakenError(f"{place.path} is a pool, and exists")
        place = self._writable(path)
        with Told(place.path):
            check_way(place)
            above = place.inner.rpartition("/")[0]
            if above and not create_parents and not _engram.contains(*at(place), above):
                raise FileMissingError(
                    f"{self._parent(place.path)} does not exist: create_parents=True makes it"
                )
            try:
                _engram.create_group(*at(place), place.inner, *said, False)
            except ExistsError as error:
                check_way(place)
                raise FileTakenError(f"{place.path} exists") from error

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        """Make a group, and those above it; with `exist_ok`, one that is there is no error."""
        try:
            self.mkdir(path)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path: Any) -> None:
        """Remove a group that has no members."""
        place = self._writable(path)
        again(lambda: remove_empty(place))

    # Removing and moving

    def rm_file(self, path: Any) -> None:
        """Remove a file or an array."""
        place = self._writable(path)
        with Told(place.path):
            found = place.find()
            if found is None:
                raise missing(place)
            if found[0] == GROUP:
                raise IsGroupError(f"{place.path} is a group: remove it with rm(recursive=True)")
            _engram.delete(*at(place), place.inner)

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files and arrays; with `recursive`, groups with all that is below them.

        A group goes in one commit. Nothing goes if one of the paths is not there, or is a group
        that may not go. With `maxdepth`, what is deeper stays, and so do the groups above it.
        """
        if recursive and maxdepth is not None:
            self._remove_to_depth(self._named(path, recursive=True, maxdepth=maxdepth))
            return
        named = [self._writable(each) for each in self._named(path)]
        for place in named:
            if not self.exists(place.path):
                raise missing(place)
            if not recursive and self.isdir(place.path):
                raise IsGroupError(f"{place.path} is a group: remove it with recursive=True")
        for place in named:
            with Told(place.path):
                _engram.delete(*at(place), place.inner)

    def _remove_to_depth(self, paths: Iterable[str]) -> None:
        for each in reversed(list(paths)):
            if not self.isdir(each):
                self.rm_file(each)
            elif not self.ls(each, detail=False):
                self.rmdir(each)

    def _named(self, path: Any, **how: Any) -> list[str]:
        """Expand patterns; what is there under the very name is no pattern.

        What is below something else that is named goes with that, but for a `maxdepth`.
        """
        found: dict[str, None] = {}
        for one in path if isinstance(path, list) else [path]:
            literal = self.exists(one)
            found |= dict.fromkeys(self.expand_path([one], assume_literal=literal, **how))
        if how:
            return list(found)
        above = {f"{each}/" for each in found}
        ways = {
            each: [each[: n + 1] for n, sign in enumerate(each) if sign == "/"] for each in found
        }
        return [each for each, way in ways.items() if above.isdisjoint(way)]

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **_options: Any,
    ) -> None:
        """Move a member, a group with all that is below it, in one commit: it stays the same one.

        A file replaces a file; into a group that is there, it is moved under its own name. Several
        (a list, or what a pattern matches) are moved in one commit into a group. Between pools it
        is copied, then removed.
        """
        del recursive, maxdepth  # a group is moved whole
        if isinstance(path1, list) and isinstance(path2, list):
            pairs = list(zip(path1, path2, strict=True))
        else:
            sources = self._named(path1)
            target = self._strip_protocol(path2)
            into = str(path2).endswith("/") or isinstance(path1, list)
            into = into or sources != [self._strip_protocol(path1)]
            into = into or (self.isdir(target) and sources != [target])
            pairs = [
                (each, f"{target}/{each.rpartition('/')[2]}" if into else target)
                for each in sources
            ]
        pairs = [(old, new) for old, new in pairs if old != new]
        steps = [(self._writable(old), self._writable(new)) for old, new in pairs]
        between = [each for each in steps if not each[0].namespace.same_pool(each[1].namespace)]
        for old, new in between:
            self._move_between(old.path, new.path)
        within = [each for each in steps if each not in between]
        if within:
            again(lambda: move_all(within))

    def _move_between(self, old: str, new: str) -> None:
        if self.exists(new) and not (self.isfile(old) and self.isfile(new)):
            raise taken(old, new)
        if self.isdir(old):
            self.copy(old, new, recursive=True, on_error="raise")
        else:
            self.cp_file(old, new)
        self.rm(old, recursive=True)


def _pour(content: memoryview, file: Any, blocksize: int, callback: Any) -> None:
    """Write bytes to a file, some at a time, and say how far it is."""
    for begin in range(0, len(content), blocksize):
        part = content[begin : begin + blocksize]
        file.write(part)
        callback.relative_update(len(part))
