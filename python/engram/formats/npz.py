"""npz: many arrays of NumPy's in a zip archive, as `numpy.savez` writes them.

A member is an `.npy` file by the array's name. Names may have ``/``, which makes groups here. The
archive's order and whether it is compressed are kept in the `origin` of the group imported into.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING, Any

from engram.errors import FormatError
from engram.formats import npy
from engram.formats.names import name_problem
from engram.formats.source import READ_ERRORS, ArrayNode, GroupNode, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

    import numpy as np

    from engram.formats.blocks import Region
    from engram.formats.source import Origin
    from engram.formats.target import Problem, Tell, Tree

_LOCAL_HEADER = b"PK\x03\x04"
_LOCAL_HEADER_BYTES = 30
_EMPTY_ARCHIVE = b"PK\x05\x06"
_SUFFIX = ".npy"
_ZIP_ERRORS = (*READ_ERRORS, zipfile.BadZipFile, zlib.error, EOFError)


class _Member:
    """One array of an archive; its stream is open from the first read to the last value's."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
        """Read its header."""
        self._archive = archive
        self._info = info
        with archive.open(info) as stream:
            self.header, self.said = npy.read_header(stream)
        self._stream: IO[bytes] | None = None

    def read(self, out: np.ndarray[Any, Any], region: Region) -> None:
        """Read the region into all of `out`."""
        try:
            if self._stream is None:
                self._stream = self._archive.open(self._info)
            npy.Values(self._stream, self.header, len(self.said)).read(out, region)
            if self._stream.tell() == self._info.file_size:
                self._stream.read(1)  # so that the checksum is looked at
                self.close()
        except _ZIP_ERRORS as error:
            self.close()
            raise ValueError(str(error)) from error

    def close(self) -> None:
        """Close the stream."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class NpzSource(Source):
    """An archive of arrays."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        """Read every array's header; `archive` is closed with the source."""
        super().__init__(path, "NPZ")
        self._archive = archive
        self._members: list[_Member] = []
        infos = {info.filename: info for info in archive.infolist()}  # the last of a name counts
        again = len(archive.infolist()) - len(infos)
        if again:
            self.leave_out("", "members", f"{again} of names that come again later in the archive")
        self._arrays = {n.removesuffix(_SUFFIX) for n in infos if n.endswith(_SUFFIX)}
        self._groups: set[str] = set()
        nodes = [node for info in infos.values() for node in self._nodes(info)]
        facts: Origin = {"format": self.format, "members": [node.path for node in nodes]}
        if any(info.compress_type != zipfile.ZIP_STORED for info in infos.values()):
            facts["compressed"] = True
        self.nodes.append(GroupNode("", lambda: ({}, facts)))
        for group in sorted(self._groups):
            self.nodes.append(GroupNode(group, lambda: ({}, {"format": self.format})))
        self.nodes += nodes

    def _nodes(self, info: zipfile.ZipInfo) -> Iterator[ArrayNode]:
        """Yield the node of a member, and keep its groups, if it is an array that can stand."""
        name = info.filename.removesuffix(_SUFFIX)
        if info.is_dir():
            return
        if name == info.filename:
            self.leave_out(name, "member", "it is no .npy file")
            return
        parts = name.split("/")
        above = ["/".join(parts[:n]) for n in range(1, len(parts))]
        why = next((w for part in parts if (w := name_problem(part)) is not None), None)
        clash = next((a for a in above if a in self._arrays), None)
        if why is None and clash is not None:
            why = f"it would be in {clash!r}, which is an array"
        if why is None:
            member = self._opened(info, name)
            if member.header.dtype.hasobject:
                why = "Python objects, as a pickle, which is not loaded: it could run anything"
        if why is not None:
            self.leave_out(name, "array", why)
            return
        self._groups.update(above)
        self._members.append(member)
        yield npy.array_node(name, member.header, member.said, member.read, self.format)

    def _opened(self, info: zipfile.ZipInfo, name: str) -> _Member:
        """Read a member's header."""
        try:
            member = _Member(self._archive, info)
            nbytes = len(member.said) + member.header.nbytes
        except _ZIP_ERRORS as error:
            message = f"{self.path}: /{name}: is no whole .npy file: {error}. Get it again"
            raise FormatError(message) from None
        if member.header.dtype.hasobject:
            return member
        if nbytes > info.file_size:
            message = f"{self.path}: /{name}: ends {nbytes - info.file_size} bytes too early"
            raise FormatError(message)
        if nbytes < info.file_size:
            more = f"{info.file_size - nbytes}, of which .npy says nothing"
            self.leave_out(name, "bytes after the array", more)
        return member

    def close(self) -> None:
        """Close the file."""
        for member in self._members:
            member.close()
        self._archive.close()


class NpzFormat:
    """NumPy's archive of arrays."""

    name = "npz"
    rank = 31
    suffixes = (".npz",)
    kinds = ("npz", "npz-stored", "npz-compressed")
    makes_folder = False

    def matches(self, path: Path, head: bytes) -> bool:
        """Whether it is a zip archive whose first member is an array."""
        if head.startswith(_EMPTY_ARCHIVE):
            return path.suffix == ".npz"
        length = int.from_bytes(head[26:28], "little")
        name = head[_LOCAL_HEADER_BYTES:][:length]
        return head.startswith(_LOCAL_HEADER) and name.endswith(_SUFFIX.encode())

    def open(self, path: Path) -> Source:
        """Open the archive and read the arrays' headers."""
        try:
            archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, *READ_ERRORS) as error:
            message = f"{path}: is no whole zip archive: {error}. Get it again"
            raise FormatError(message) from None
        try:
            return NpzSource(path, archive)
        except BaseException:
            archive.close()
            raise

    def problems(self, tree: Tree, kind: str) -> list[Problem]:  # noqa: ARG002 - alike for each
        """Return the arrays of dtypes that NumPy does not save."""
        return [problem for item in tree.arrays if (problem := npy.unwritable(item)) is not None]

    def write(self, tree: Tree, path: Path, kind: str, tell: Tell) -> str:
        """Write each array as a member."""
        npy.leave_out(tree)
        origin = tree.root.origin
        compressed = kind == "npz-compressed" or (
            kind == "npz" and origin.get("format") == "NPZ" and origin.get("compressed") is True
        )
        order = origin.get("members") if origin.get("format") == "NPZ" else None
        places = {name: n for n, name in enumerate(order)} if isinstance(order, list) else {}
        arrays = sorted(tree.arrays, key=lambda item: places.get(item.path, len(places)))
        full = {item.path.rpartition("/")[0] for item in arrays}
        for group in tree.groups:
            if not any(f"{path}/".startswith(f"{group.path}/") for path in full) and group.path:
                why = "it has no array, and arrays alone have names in NumPy's files"
                tree.leave_out(group.path, "group", why)
        method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", method, allowZip64=True) as archive:
            for item in arrays:
                with archive.open(item.path + _SUFFIX, "w", force_zip64=True) as stream:
                    npy.write_array(stream, item, tree, tell)
        return "NPZ"


FORMAT = NpzFormat()
