"""Writing a table: rows become parts, and what is written at once is seen at once.

A part is filled where it will stay, in space that is reserved and that nobody sees. When all parts
are there, one batch makes them members of the table. So a process that is killed leaves a part
whole or not at all, and what it had reserved comes back.

No two appends meet: a part has a name that no other ever had, and nothing that is there is changed.
They take turns for one moment alone, in which a part gets its stamp and is committed. So rows stand
in the order of their commits: a reader who has seen some finds all later ones behind them. In a
batch of the user's, whose commit comes when it ends, the turn would last as long, so there the
stamp is that of the append.
"""

import contextlib
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram import _engram
from engram.batch import Batch
from engram.errors import EngramError, NotFoundError
from engram.lock import Lock
from engram.member import new_member
from engram.table.arrow import compute, dtype_of, missing_value, pa
from engram.table.layout import (
    MARK,
    REST,
    first_after,
    members_of,
    new_token,
    part_name,
    part_of,
)

_ENOUGH = 64 << 20
"""So many bytes of a stream make a part, if there are as many."""

_SMALL = 8 << 10
"""An array of no more bytes is put in the batch."""

_MOST_JOINED = 256 << 20
"""So many bytes are copied once more, so that a part has each column in one piece."""

_ALL = 2**62


class Place(NamedTuple):
    """Where a table is, or is to be.

    Attributes
    ----------
    namespace, group
        A group: that of the table, or one above it.
    prefix
        The path of the table's group from there, with a slash at its end; "" if it is that one.
    scope
        The scope of a table that is to be; None for one that is there.

    """

    namespace: _engram.Namespace
    group: int
    prefix: str = ""
    scope: str | None = None


class Draft:
    """A part that is being written: nobody sees it.

    Parameters
    ----------
    place
        Where the table is.
    table
        What is to be in it: a table of Arrow's, of the schema that is kept.

    """

    def __init__(self, place: Place, table: Any) -> None:
        self._at = place
        self._token = new_token()
        self._rows = table.num_rows
        self._small: dict[str, NDArray[Any]] = {}
        """Arrays that cost less to put than to reserve space for, by their names in the part."""
        self._made: list[tuple[str, str, _engram.Allocation]] = []
        """What was reserved: the path at which it is published, its name in the part, and it."""
        try:
            self._fill(table)
        except BaseException:
            self.abandon()
            raise

    def publish(self, stamp: int) -> None:
        """Make it a part of the table, in a batch that runs."""
        namespace, group, prefix, _ = self._at
        part = f"{prefix}{part_name(stamp, self._token, self._rows)}"
        _engram.create_group(namespace, group, part, attrs=None, origin=b"", exist_ok=False)
        for name, array in self._small.items():
            _engram.put_array(namespace, group, f"{part}/{name}", array, new_member())
        # One by one: a batch that renames a group is refused if anything is shared meanwhile.
        for path, name, allocation in self._made:
            allocation.publish()
            _engram.rename(namespace, group, path, f"{part}/{name}")

    def abandon(self) -> None:
        """Give its space back."""
        for _, _, allocation in self._made:
            with contextlib.suppress(EngramError):
                allocation.abandon()

    def _fill(self, table: Any) -> None:
        names = members_of(table.schema.names)
        rest: dict[str, Any] = {}
        for place, field in enumerate(table.schema):
            column = table.column(place)
            dtype = dtype_of(field.type)
            if dtype is None:
                rest[str(place)] = column
                continue
            copy_column(column, self._array(names[place], table.num_rows, dtype))
            if column.null_count:
                rest[f"{place}?"] = compute.is_valid(column)
        if rest:
            self._fill_rest(_joined(pa.table(rest)))

    def _fill_rest(self, rest: Any) -> None:
        """Write what is no array as a stream of Arrow's IPC, which has each buffer in one piece."""
        size = pa.MockOutputStream()
        _write(size, rest)
        array = self._array(REST, size.size(), np.dtype(np.uint8))
        _write(pa.FixedSizeBufferWriter(pa.py_buffer(array)), rest)

    def _array(self, name: str, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        if length * dtype.itemsize <= _SMALL:
            return self._small.setdefault(name, np.zeros(length, dtype))
        namespace, group, prefix, scope = self._at
        new = new_member(shape=(length,), dtype=dtype, scope=scope)
        path = f"{prefix}{self._token}-{len(self._made)}"
        made = _engram.allocate(namespace, group, path, new)
        self._made.append((path, name, made))
        return made.array


def _joined(rest: Any) -> Any:
    """Return columns each in one piece; as they are, if they are large or cannot be joined."""
    if rest.nbytes > _MOST_JOINED:
        return rest
    try:
        return rest.combine_chunks()
    except pa.ArrowException:  # so many categories that their numbers do not tell them all
        return rest


def _write(sink: Any, table: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def copy_column(column: Any, array: NDArray[Any]) -> None:
    """Copy a column of numbers or times into an array; what is missing is NaN, NaT or 0."""
    first = 0
    for chunk in column.chunks:
        count = len(chunk)
        if not count:
            continue
        values = np.frombuffer(chunk.buffers()[1], array.dtype, count + chunk.offset)
        target = array[first : first + count]
        target[...] = values[chunk.offset :]
        if chunk.null_count:
            missing = chunk.is_null().to_numpy(zero_copy_only=False)
            target[missing] = missing_value(array.dtype)
        first += count


def drafts(place: Place, tables: Iterable[Any]) -> list[Draft]:
    """Write tables, one after the other, as few parts of a good size.

    Raises
    ------
    PoolFullError
        If there is no room; what was written before is given back.

    """
    made: list[Draft] = []
    waiting: list[Any] = []
    nbytes = 0
    try:
        for table in tables:
            if not table.num_rows:
                continue
            waiting.append(table)
            nbytes += table.nbytes
            if nbytes >= _ENOUGH:
                made.append(Draft(place, pa.concat_tables(waiting)))
                waiting, nbytes = [], 0
        if waiting:
            made.append(Draft(place, pa.concat_tables(waiting)))
    except BaseException:
        abandon(made)
        raise
    return made


def abandon(made: Iterable[Draft]) -> None:
    """Give back what was written."""
    for draft in made:
        draft.abandon()


def publish(place: Place, made: list[Draft]) -> None:
    """Make drafts parts of a table, behind all that are there, all at once or not at all.

    Raises
    ------
    NotFoundError
        If the table is gone.
    ReadOnlyError
        If it may not be changed.

    """
    try:
        with one_at_a_time(place), Batch(place.namespace):
            stamp = next_stamp(place)
            for later, draft in enumerate(made):
                draft.publish(stamp + later)
    except BaseException:
        abandon(made)
        raise


def one_at_a_time(place: Place) -> Any:
    """Return what keeps other appends from being committed meanwhile."""
    if _engram.in_batch():
        return contextlib.nullcontext()
    found = _engram.find(place.namespace, place.group, f"{place.prefix}{MARK}")
    if found is None:
        raise NotFoundError("this table was deleted or replaced")
    return Lock(place.namespace, False, found[1], "w", None)


def next_stamp(place: Place) -> int:
    """Return a stamp that is greater than those of all parts."""
    now = time.time_ns()
    later, _ = _engram.members(place.namespace, place.group, first_after(now), _ALL)
    stamps = [part.stamp for name, member in later if (part := part_of(name, member[1]))]
    return max(stamps) + 1 if stamps else now
