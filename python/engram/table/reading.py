"""Reading a table: its parts as they are at one moment, as record batches on the pool's memory.

The parts are listed at one moment, and a part that is committed never changes. So what is listed is
what is read, at whatever time that is; only a part that went meanwhile (`compact`, or the table was
deleted) is met no more, and then all is looked up again.

Each buffer of a batch is memory of the pool, and holds the view that pins it: for as long as any
column lives, whoever has it, that memory is not used again. Parts of some KiB lie in the catalog;
these are copied out of it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engram import _engram
from engram.errors import BusyError, CorruptError, NotFoundError
from engram.table.arrow import dtype_of, pa
from engram.table.layout import MARK, REST, Part, members_of, part_of

T = TypeVar("T")

_ALL = 2**62
"""More members than a group has."""

_TRIES = 100
"""So often is read anew what others compact meanwhile."""


class _GoneError(NotFoundError):
    """A part is not, or not wholly, there any more."""


def schema_bytes(namespace: _engram.Namespace, gid: int) -> bytes:
    """Return the schema of a table as it is kept.

    Raises
    ------
    NotFoundError
        If the table is gone.

    """
    found = _engram.find(namespace, gid, MARK)
    if found is None:
        raise NotFoundError("this table was deleted or replaced")
    return _engram.read_blob(namespace, found[1])


def schema_of(kept: bytes) -> Any:
    """Return the schema that is kept.

    Raises
    ------
    CorruptError
        If it is none.

    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(kept))
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(
            f"the member {MARK!r} of this table is no schema of Arrow's ({error}): it was replaced"
        ) from error


def parts(namespace: _engram.Namespace, gid: int) -> list[Part]:
    """List the parts of a table at one moment, in their order."""
    members, _ = _engram.members(namespace, gid, None, _ALL)
    found = (part_of(name, member[1]) for name, member in members if member[0] == 0)
    return [part for part in found if part is not None]


def at_one_moment(namespace: _engram.Namespace, gid: int, read: Callable[[list[Part]], T]) -> T:
    """Give what `read` makes of the parts, which is asked again if one of them went meanwhile.

    Raises
    ------
    NotFoundError
        If the table is gone.
    BusyError
        If the parts go faster than they can be read.
    CorruptError
        If a part lacks a column that it must have.

    """
    last = None
    for _ in range(_TRIES):
        listed = parts(namespace, gid)
        try:
            return read(listed)
        except NotFoundError as error:
            if isinstance(error, _GoneError) and listed == last:
                raise CorruptError(f"{error}: somebody has deleted it") from error
            last = listed
    raise BusyError("the parts of this table are replaced faster than they can be read: try again")


def batches(
    namespace: _engram.Namespace, part: Part, schema: Any, wanted: Sequence[int]
) -> list[Any]:
    """Return the wanted columns of a part as record batches, in the order that is wanted."""
    asked = pa.schema([schema.field(place) for place in wanted])
    listed, _ = _engram.members(namespace, part.gid, None, _ALL)
    found = dict(listed)
    rest = _rest(namespace, part, found.get(REST))
    names = members_of(schema.names)
    plain: dict[int, NDArray[np.int8]] = {}
    for place in wanted:
        dtype = dtype_of(schema.field(place).type)
        if dtype is not None:
            plain[place] = _bytes(namespace, part, found.get(names[place]), names[place])
    made = []
    for first, count, other in _pieces(part, rest):
        columns = []
        for place in wanted:
            if place in plain:
                missing = None if other is None else other.get(f"{place}?")
                kind = schema.field(place).type
                columns.append(_column(kind, plain[place], first, count, missing))
            elif other is not None and str(place) in other:
                columns.append(other[str(place)])
            else:
                raise _GoneError(f"part {part.name!r} lacks column {schema.names[place]!r}")
        made.append(pa.RecordBatch.from_arrays(columns, schema=asked))
    return made


def every(table: Any, step: int) -> Any:
    """Return every `step`-th row of a table, from the first on."""
    places = np.arange(0, table.num_rows, step)
    return pa.Table.from_arrays(
        [_taken(column, places) for column in table.columns], schema=table.schema
    )


def _taken(column: Any, places: NDArray[np.int64]) -> Any:
    """Return rows of a column, of whatever type: some pyarrow cannot take but one by one."""
    try:
        return column.take(places)
    except pa.ArrowException:  # it has no way to take them
        rows = [chunk for n in places.tolist() for chunk in column.slice(n, 1).chunks]
        return pa.chunked_array(rows, column.type)


def nbytes(namespace: _engram.Namespace, part: Part) -> int:
    """Return how many bytes the columns of a part have."""
    listed, _ = _engram.members(namespace, part.gid, None, _ALL)
    arrays = ((dtype, shape) for _, (_, _, dtype, shape) in listed)
    return sum(dtype.itemsize * math.prod(shape) for dtype, shape in arrays if dtype and shape)


def _bytes(namespace: _engram.Namespace, part: Part, found: Any, name: str) -> NDArray[np.int8]:
    """Return the memory of an array of a part."""
    if found is None or found[0] != 1:
        raise _GoneError(f"part {part.name!r} lacks {name!r}")
    view = _engram.view(namespace, found[1], found[2], found[3], False)
    return view.view(np.int8)


def _rest(namespace: _engram.Namespace, part: Part, found: Any) -> list[Any]:
    """Return the columns of a part that are no arrays, as batches on the pool's memory."""
    if found is None:
        return []
    stream = _bytes(namespace, part, found, REST)
    return list(pa.ipc.open_stream(pa.py_buffer(stream)))


def _pieces(part: Part, rest: list[Any]) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Yield the first row and the number of rows of each batch, and its columns of the rest."""
    if not rest:
        yield 0, part.rows, None
        return
    first = 0
    for batch in rest:
        yield first, batch.num_rows, dict(zip(batch.schema.names, batch.columns, strict=True))
        first += batch.num_rows


def _column(kind: Any, memory: NDArray[np.int8], first: int, count: int, there: Any) -> Any:
    """Return rows of an array as a column; `there` tells which have a value."""
    width = kind.bit_width // 8
    values = pa.py_buffer(memory[first * width : (first + count) * width])
    if there is None:
        return pa.Array.from_buffers(kind, count, [None, values], 0)
    return pa.Array.from_buffers(kind, count, [there.buffers()[1], values])
