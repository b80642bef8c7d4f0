"""Pouring a source into a group: all of it in one batch, or none of it.

The order: the names that the file has at its top are checked against the group's, so that the
commonest refusal costs nothing. Then, inside one batch, parents before children, each group and
array is made. A large array's memory is reserved in the pool and the file's values are read
into it, a bounded piece at a time (`fill`). Where a part of the file is asked for, all of it is
found before anything is made. Last, still inside the batch, the file is looked at once more: if it
has changed since it was opened, the batch is undone. Any error undoes the batch, and its
reservations return; so a failed import leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engram import _engram
from engram.array import Allocation
from engram.batch import Batch
from engram.blob import Blob
from engram.errors import (
    BusyError,
    EngramError,
    ExistsError,
    InvalidNameError,
    NotFoundError,
)
from engram.formats import origin, ragged, stream, text
from engram.formats.blocks import BLOCK_BYTES, pieces, region_shape, start_of, whole
from engram.formats.fill import Filling
from engram.formats.names import key_problem
from engram.formats.registry import open_source
from engram.formats.report import Entry, ImportReport, Progress
from engram.formats.select import Selection
from engram.formats.source import ArrayNode, GroupNode, Node, RaggedNode, TextNode, reading
from engram.formats.telling import imported, importing, numbers
from engram.group import Group
from engram.handle import make
from engram.member import new_member
from engram.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engram._engram import _New
    from engram.array import Array
    from engram.formats.blocks import Region
    from engram.formats.select import Patterns, Slices
    from engram.formats.source import Attributes, Origin, Source
    from engram.index import IndexMode

IN_PLACE_BYTES = 64 << 10
"""From so many bytes on, values are read straight into the pool's memory."""

CHUNK_BYTES_MAX = 1 << 30
"""Bytes of a chunk that the engine takes."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is imported, as `engram.import_file` has it."""

    overwrite: bool
    select: Patterns
    slices: Slices
    index: IndexMode | None
    chunks: Literal["keep"] | bool = False
    codec: str | None = None


def load(
    source: Source,
    group: Group,
    options: Options,
    progress: Callable[[Progress], None] | None,
) -> ImportReport:
    """Import everything that is asked for, or raise and leave nothing behind."""
    return Loader(
        source,
        group,
        overwrite=options.overwrite,
        progress=progress,
        selection=Selection(options.select, options.slices),
        index=options.index,
        layout=(options.chunks, options.codec),
    ).run()


def load_file(
    path: Path,
    group: Group,
    options: Options,
    progress: Callable[[Progress], None] | None,
) -> ImportReport:
    """Import a file, and tell of that in the trace and in the log."""
    with importing(path, group._namespace) as span, open_source(path) as source:
        report = load(source, group, options, progress)
        span.set(numbers, report)
    return imported(report)


@dataclass(slots=True)
class _Count:
    """What has been made so far."""

    groups: int = 0
    arrays: int = 0
    attributes: int = 0
    nbytes: int = 0


class Loader:
    """One import under way."""

    def __init__(
        self,
        source: Source,
        group: Group,
        *,
        overwrite: bool,
        progress: Callable[[Progress], None] | None,
        selection: Selection | None = None,
        index: IndexMode | None = None,
        layout: tuple[Literal["keep"] | bool, str | None] = (False, None),
    ) -> None:
        """Prepare to pour `source`, or what of it is selected, into `group`."""
        self._source = source
        self._group = group
        self._where = "" if isinstance(group, Pool) else group.path
        self._overwrite = overwrite
        self._index = index
        self._layout = layout
        self._progress = progress
        self._selection = selection or Selection()
        self._wanted: dict[str, Region] = {}
        self._nodes = self._selected()
        self._total = sum(
            node.dtype.itemsize * math.prod(region_shape(self._wanted[node.path]))
            for node in self._nodes
            if isinstance(node, ArrayNode)
        )
        self._read = 0
        self._count = _Count()
        self._made: dict[str, Group] = {"": group}

    def run(self) -> ImportReport:
        """Import everything, or raise and leave nothing behind."""
        source, began = self._source, time.monotonic()
        before = source.state() if source.before is None else source.before
        self._check_names()
        with Batch(self._group._namespace):
            for node in self._nodes:
                self._make(node)
            if source.state() != before:
                message = (
                    f"{source.path}: changed while it was read; nothing was imported. Import it "
                    "again when its writer has ended"
                )
                raise BusyError(message)
        count = self._count
        return ImportReport(
            file=str(source.path),
            format=source.format,
            group=self._where,
            groups=count.groups,
            arrays=count.arrays,
            attributes=count.attributes,
            nbytes=count.nbytes,
            seconds=time.monotonic() - began,
            left_out=_sorted(source.left_out),
            noted=_sorted(source.noted),
        )

    def _selected(self) -> list[Node]:
        """Return the nodes that are wanted, and find what of each."""
        nodes, selection = self._source.nodes, self._selection
        try:
            if not selection.is_all:
                chosen = selection.chosen([node.path for node in nodes])
                nodes = [node for node in nodes if node.path in chosen]
            for node in nodes:
                if not isinstance(node, GroupNode):
                    self._wanted[node.path] = selection.region(node.dims, node.shape)
            selection.check_dims()
        except NotFoundError as error:
            message = f"{self._source.path}: {error}"
            raise NotFoundError(message) from error
        return nodes

    def _check_names(self) -> None:
        """Refuse if a name at the file's top is taken."""
        if self._overwrite:
            return
        tops = [n.path for n in self._nodes if n.path and "/" not in n.path]
        taken = [name for name in tops if name in self._group]
        if taken:
            shown = ", ".join(repr(n) for n in taken[:3]) + (" …" if len(taken) > 3 else "")  # noqa: PLR2004 - names shown
            message = (
                f"{self._source.path}: the group {'/' + self._where!r} already has {shown}; "
                "nothing was imported. Import into another group, or with overwrite"
            )
            raise ExistsError(message)

    def _make(self, node: Node) -> None:
        """Make one group or array."""
        try:
            if isinstance(node, GroupNode):
                self._make_group(node)
            elif isinstance(node, TextNode):
                self._make_text(node)
            elif isinstance(node, RaggedNode):
                self._make_ragged(node)
            else:
                self._make_array(node)
        except EngramError as error:
            message = f"{self._source.path}: /{node.path}: {error}"
            raise type(error)(message) from error

    def _make_group(self, node: GroupNode) -> None:
        """Make a group, or, for the root, give the target its attributes."""
        attrs, facts = self._described(node)
        if isinstance(facts.get("dimensions"), dict) and not self._selection.is_all:
            facts = {**facts, "dimensions": self._lengths(facts["dimensions"])}
        if not node.path:
            self._adopt(self._group, attrs, facts)
            return
        above, name = self._place(node.path)
        there = above.get(name)
        if isinstance(there, Group):
            self._made[node.path] = there
            self._adopt(there, attrs, facts)
            return
        if there is not None:
            del above[name]  # only with overwrite: the names have been checked
        place = (above._namespace, above._id, name)
        gid = _engram.create_group(*place, attrs=attrs, origin=origin.encode(facts), exist_ok=False)
        made = Group(above._namespace, gid)
        self._made[node.path] = made
        self._count.groups += 1

    def _lengths(self, dimensions: Origin) -> Origin:
        """Return a group's dimensions with the lengths that slices leave them."""
        return {
            name: {**fact, "size": self._selection.length(name, fact["size"])}
            for name, fact in dimensions.items()
        }

    def _adopt(self, group: Group, attrs: Attributes, facts: Origin) -> None:
        """Give a group that is there already the file's attributes and origin."""
        if attrs:
            there = () if self._overwrite else set(group.attrs)
            taken = [name for name in attrs if name in there]
            if taken:
                message = f"the group already has the attribute {taken[0]!r}; import with overwrite"
                raise ExistsError(message)
            group.attrs.update(attrs)
        group._set_origin(origin.encode(facts))

    def _place(self, path: str) -> tuple[Group, str]:
        """Return the group that a member is in, which has been made before it, and its name."""
        above, _, name = path.rpartition("/")
        return self._made[above], name

    def _make_text(self, node: TextNode) -> None:
        """Make an array of strings."""
        attrs, facts = self._described(node)
        wanted = self._wanted[node.path]
        above, name = self._place(node.path)
        common: dict[str, Any] = {
            "attrs": attrs,
            "dims": self._dims(node),
            "overwrite": self._overwrite,
            "index_mode": self._index,
            "origin": origin.encode(facts),
        }
        self._count.arrays += 1
        if stream.streams(node, wanted):
            with contextlib.suppress(stream.NotText):  # then as bytes, below
                self._count.nbytes += stream.pour(node, wanted, above, name, **common)
                return
        value = reading(node.load, wanted)
        self._put(above, name, value, new_member(**common))
        if value.dtype == text.string_dtype():
            self._count.nbytes += sum(len(v.encode()) for v in value.flat)
        else:
            self._count.nbytes += value.nbytes

    def _make_ragged(self, node: RaggedNode) -> None:
        """Make the group of a variable of sequences, with its two arrays."""
        self._make_group(GroupNode(node.path, node.describe))
        made = ragged.nodes(node, self._wanted[node.path])
        for inner in made:
            self._wanted[inner.path] = whole(inner.shape)
            if isinstance(inner, ArrayNode):
                self._total += inner.nbytes
                self._make_array(inner)
            else:
                self._make_text(inner)

    @staticmethod
    def _put(above: Group, name: str, value: Any, new: _New) -> Any:
        """Make an array, with what `create_array` has no argument for, too."""
        namespace = above._namespace
        return make(namespace, _engram.put_array(namespace, above._id, name, value, new))

    def _make_array(self, node: ArrayNode) -> None:
        """Make an array of a fixed dtype: in the pool's memory if it is large."""
        attrs, facts = self._described(node)
        common: dict[str, Any] = {
            "attrs": attrs,
            "dims": self._dims(node),
            "overwrite": self._overwrite,
            "index_mode": self._index,
            "origin": origin.encode(facts),
        }
        above, name = self._place(node.path)
        wanted = self._wanted[node.path]
        shape = region_shape(wanted)
        nbytes = node.dtype.itemsize * math.prod(shape)
        whole: dict[str, Any] = {"shape": shape, "dtype": node.dtype}
        chunks = self._chunks(node, shape)
        if chunks is not None:
            new = new_member(**common, **whole, chunks=chunks, codec=self._layout[1])
            made = self._put(above, name, None, new)
            self._fill_chunks(node, wanted, made)
        elif nbytes < IN_PLACE_BYTES:
            value = np.zeros(shape, node.dtype)
            self._fill(node, wanted, value)
            self._put(above, name, value, new_member(**common))
        else:
            new = new_member(**common, **whole)
            allocation = Allocation(above._namespace, above._id, name, new)
            with allocation as memory:
                self._fill(node, wanted, memory, Filling(node, wanted, allocation))
        self._count.arrays += 1
        self._count.nbytes += nbytes

    def _fill(
        self,
        node: ArrayNode,
        wanted: Region,
        out: np.ndarray[Any, Any],
        filling: Filling | None = None,
    ) -> None:
        """Read what is wanted of a variable, piece by piece."""
        limit = BLOCK_BYTES if filling is None else filling.piece_bytes
        for region, place in pieces(wanted, node.chunks, node.dtype.itemsize, limit):
            part = out[place] if place else out
            start = start_of(place, out.shape)
            if filling is None or start is None:
                reading(node.read, part, region)
            else:
                filling.read(region, part, start)
            self._read += part.nbytes
            if self._progress is not None:
                self._progress(Progress("/" + node.path, self._read, self._total))

    def _chunks(self, node: ArrayNode, shape: tuple[int, ...]) -> tuple[int, ...] | bool | None:
        """Return the chunks that an array is to have here; None for one piece."""
        how = self._layout[0]
        if not how or not shape or not node.dtype.itemsize:
            return None
        if how != "keep":
            return True
        if node.chunks is None:
            return None
        # As they are in the file, also where they are longer than what is there: it may grow.
        if node.dtype.itemsize * math.prod(node.chunks) <= CHUNK_BYTES_MAX:
            return tuple(max(1, n) for n in node.chunks)
        return True

    def _fill_chunks(self, node: ArrayNode, wanted: Region, made: Array) -> None:
        """Read what is wanted of a variable into a chunked array, piece by piece."""
        whole = tuple(slice(0, n) for n in made.shape)
        for region, place in pieces(wanted, node.chunks, node.dtype.itemsize):
            part = np.zeros(region_shape(region), node.dtype)
            reading(node.read, part, region)
            made[place or whole] = part
            self._read += part.nbytes
            if self._progress is not None:
                self._progress(Progress("/" + node.path, self._read, self._total))

    def _described(self, node: Node) -> tuple[Attributes, Origin]:
        """Read a node's attributes, less those whose names cannot stand here, and its origin."""
        attrs, facts = reading(node.describe)
        for name in list(attrs):
            why = key_problem(name)
            if why is not None:
                self._source.leave_out(node.path, f"attribute {name[:40]}", why)
                del attrs[name]
        self._count.attributes += len(attrs)
        if list(attrs) != sorted(attrs):  # the pool has them in byte order, which is that of str
            facts = {**facts, "attribute_order": list(attrs)}
        return attrs, facts

    def _dims(self, node: ArrayNode | TextNode) -> tuple[str, ...] | None:
        """Return the names of the dimensions, if they can stand here."""
        for name in node.dims or ():
            why = key_problem(name)
            if why is not None:
                self._source.leave_out(node.path, "dimension names", f"{name[:40]!r}: {why}")
                return None
        return node.dims


def receiver(above: Group, where: str, what: object) -> Group:
    """Return the group below `above` that `what` is imported into, made if it is missing.

    Raises
    ------
    ExistsError
        Something on the way to it is no group.
    InvalidNameError
        A file's name cannot be a name here.

    """
    if not where:
        return above
    try:
        return above.require_group(where)
    except InvalidNameError as error:
        message = f"{what}: {error}"
        raise InvalidNameError(message) from None
    except ExistsError:
        parts = where.split("/")
        for n in range(1, len(parts) + 1):
            there = above.get("/".join(parts[:n]))
            if there is not None and not isinstance(there, Group):
                kind = "a blob" if isinstance(there, Blob) else "an array"
                message = (
                    f"{what}: a group is needed to import into, and {'/' + there.path!r} is "
                    f"{kind}: choose another group, or delete it first; nothing was imported"
                )
                raise ExistsError(message) from None
        raise


def _sorted(entries: list[Entry]) -> tuple[Entry, ...]:
    """Return the entries once each, by path."""
    return tuple(sorted(set(entries), key=lambda e: (e.path, e.what)))
