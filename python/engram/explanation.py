"""How a query was answered: as text, as HTML, as figures."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engram import later
from engram.plain import printable
from engram.size import human

if TYPE_CHECKING:
    from engram import _engram

_SHOWN = 20
"""So many segments that were read are shown, and so many reasons for those that were not."""

_TEST_MOST = 72
"""So many characters of a condition are shown."""

_PLACES = {
    "scanned": "by brute force",
    "tail": "of the tail, not sealed yet",
    "queue": "of the queue, not indexed yet",
    "unindexed": "stored without an index",
    "batch": "of this batch",
    "verified": "that the index was not sure of",
    "ordered": "for what they are ordered by",
}


class Condition(NamedTuple):
    """One condition of a query, and how it is answered."""

    test: str
    how: str


class Segment(NamedTuple):
    """What became of one segment of the index: whether it was read, why, and what it gave."""

    segment: int
    family: int
    objects: int
    read: bool
    why: str
    blocks: int
    nbytes: int
    worker: int
    hits: int
    verified: int


@dataclass(frozen=True, init=False, repr=False)
class Explanation:
    """How a query was answered: `str(e)` is text, a notebook shows a card.

    Attributes
    ----------
    query
        The query in its own language.
    hits
        How many objects it found.
    threads
        How many threads searched.
    conditions
        Its conditions, each with how it is answered.
    segments
        Every segment of the index: whether its columns were read, why, and by which thread.
    records
        How many objects were judged by their records, by where these were found: "tail", "queue",
        "unindexed", "batch", "verified" (the index was not sure), "scanned"; and "ordered": how
        many were read for what they are ordered by.

    """

    query: str
    hits: int
    threads: int
    conditions: tuple[Condition, ...]
    segments: tuple[Segment, ...]
    records: dict[str, int] = field(hash=False)

    def __init__(self, query: str, native: "_engram.Explanation") -> None:
        facts = {
            "query": query,
            "hits": native.hits,
            "threads": native.threads,
            "conditions": tuple(Condition(*leaf) for leaf in native.leaves),
            "segments": tuple(Segment(*segment) for segment in native.segments),
            "records": dict(native.records),
        }
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        lines = [
            f"query     {printable(self.query) or 'all objects'}",
            f"found     {_counted(self.hits, 'object')}, by {_counted(self.threads, 'thread')}",
        ]
        tests = [_short(printable(condition.test)) for condition in self.conditions]
        width = max(map(len, tests), default=0)
        for place, (test, condition) in enumerate(zip(tests, self.conditions, strict=True)):
            head = "" if place else "by"
            lines.append(f"{head:<9} {test:<{width}}  {condition.how}")
        lines += [f"{'' if place else 'index':<9} {row}" for place, row in enumerate(self._index())]
        for place, (where, count) in enumerate(self._judged()):
            lines.append(f"{'' if place else 'records':<9} {_counted(count, 'object')} {where}")
        return "\n".join(line.rstrip() for line in lines)

    def _index(self) -> list[str]:
        """Tell of the segments: those that were read, and why the others were not."""
        if not self.segments:
            return ["no segments"]
        read = [segment for segment in self.segments if segment.read]
        blocks, nbytes = sum(s.blocks for s in read), sum(s.nbytes for s in read)
        share = f"{len(read):,} of {_counted(len(self.segments), 'segment')} read"
        rows = [f"{share}: {_counted(blocks, 'block')}, {human(nbytes)}"]
        for s in read[:_SHOWN]:
            sure = f", {s.verified:,} to verify" if s.verified else ""
            rows.append(
                f"  segment {s.segment} of family {s.family}, thread {s.worker}: {s.hits:,} of "
                f"{_counted(s.objects, 'object')}{sure}{f'; {printable(s.why)}' if s.why else ''}"
            )
        if len(read) > _SHOWN:
            rows.append(f"  and {len(read) - _SHOWN:,} more")
        skipped = Counter(s.why for s in self.segments if not s.read)
        for why, count in skipped.most_common(_SHOWN):
            rows.append(f"  {_counted(count, 'segment')} not read: {printable(why)}")
        return rows

    def _judged(self) -> list[tuple[str, int]]:
        return [(_PLACES.get(name, name), n) for name, n in self.records.items() if n]

    def __repr__(self) -> str:
        read = sum(s.read for s in self.segments)
        return (
            f"<engram.Explanation of {printable(self.query)!r}: {self.hits:,} found, {read:,} of "
            f"{_counted(len(self.segments), 'segment')} read>"
        )

    def _repr_html_(self) -> str:
        return later.card(self)


def _short(test: str) -> str:
    """Show a condition; of a long one, such as `in` with many values, its two ends."""
    if len(test) <= _TEST_MOST:
        return test
    half = _TEST_MOST // 2 - 2
    return f"{test[:half]} … {test[-half:]}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
