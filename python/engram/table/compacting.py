"""Compacting a table: many small parts become one, in their place.

The rows of small parts that follow each other are written as one part, which nobody sees. Then one
batch deletes the parts and puts that one where the first of them stood. A reader sees the one or
the other, and what it has read keeps its memory. Two processes that compact the same parts both
write, and one of them finds its parts gone: it gives back what it wrote.
"""

from collections.abc import Iterator
from typing import Any

from engram import _engram
from engram.batch import Batch
from engram.errors import BusyError, NotFoundError
from engram.table import reading
from engram.table.arrow import pa
from engram.table.layout import Part
from engram.table.writing import Draft, Place, abandon

_SMALL = 64 << 20
"""A part of fewer bytes is small."""


def compact(place: Place, schema: Any) -> int:
    """Make one part of small ones that follow each other; give how many there are fewer.

    Raises
    ------
    BusyError
        If another process does so meanwhile.

    """
    fewer = 0
    for run in _runs(place, reading.parts(place.namespace, place.group)):
        try:
            draft = Draft(place, _whole(place, run, schema))
        except NotFoundError as error:
            raise _busy() from error
        swap(place, run, [draft])
        fewer += len(run) - 1
    return fewer


def _runs(place: Place, parts: list[Part]) -> Iterator[list[Part]]:
    """Yield small parts that follow each other, two at least and of a good size together."""
    run: list[Part] = []
    nbytes = 0
    for part in parts:
        try:
            size = reading.nbytes(place.namespace, part)
        except NotFoundError as error:
            raise _busy() from error
        if run and (size >= _SMALL or nbytes >= _SMALL):
            if len(run) > 1:
                yield run
            run, nbytes = [], 0
        if size < _SMALL:
            run.append(part)
            nbytes += size
    if len(run) > 1:
        yield run


def _whole(place: Place, run: list[Part], schema: Any) -> Any:
    """Return the rows of parts as one table."""
    wanted = range(len(schema))
    found = [b for part in run for b in reading.batches(place.namespace, part, schema, wanted)]
    return pa.Table.from_batches(found, schema)


def swap(place: Place, old: list[Part], new: list[Draft]) -> None:
    """Put parts in the place of others, all at once or not at all.

    Raises
    ------
    BusyError
        If another process has replaced them meanwhile.

    """
    try:
        with Batch(place.namespace):
            for part in old:
                _engram.delete(place.namespace, place.group, part.name)
            for draft in new:
                draft.publish(old[0].stamp)
    except NotFoundError as error:
        abandon(new)
        raise _busy() from error
    except BaseException:
        abandon(new)
        raise


def _busy() -> BusyError:
    return BusyError("another process has compacted or deleted this table meanwhile: look again")
