"""Cards of what queries find, of how they were answered, and of what the index is made of.

A result's card looks the query up, as its first use; of what is found, the first few objects are
shown with what the query names.
"""

from typing import Any

from engram import index_stats
from engram.array import Array
from engram.errors import NotFoundError
from engram.explanation import Explanation
from engram.index_stats import IndexStats
from engram.notebook import parts, values
from engram.query import QueryResult
from engram.size import human
from engram.tree import dtype_of, shape_of

_ROWS = 20
_FIELDS = 8
_SEGMENTS = 100
_GROUPS = 100


def result(found: QueryResult) -> str:
    """Show what a query found: how many, and the first few."""
    count = len(found)
    named = [key for kind, key in found._query.fields if kind == 0][:_FIELDS]
    rows = []
    for member in found[:_ROWS]:
        try:
            rows.append(_row(member, named))
        except NotFoundError:  # deleted meanwhile
            continue
    line = parts.head("Query", found.query, f"{count:,} object{'' if count == 1 else 's'}")
    made = parts.table(("path", "dtype", "shape", *named), rows) if rows else parts.soft("none")
    return f"{line}<div class='engram-body'>{made}{parts.more(count - len(rows))}</div>"


def _row(member: Any, named: list[str]) -> list[str]:
    attrs = member.attrs
    told = [values.of_attribute(attrs[key])[0] if key in attrs else "" for key in named]
    if isinstance(member, Array):
        return [member.path, dtype_of(member), shape_of(member), *told]
    return [member.path, "bytes", human(member.nbytes), *told]


def explanation(told: Explanation) -> str:
    """Show how a query was answered."""
    read = [segment for segment in told.segments if segment.read]
    rows = [
        (s.segment, s.family, s.worker, f"{s.hits:,} of {s.objects:,}", human(s.nbytes), s.why)
        for s in read[:_SEGMENTS]
    ]
    heads = ("segment", "family", "thread", "found", "read", "why")
    line = parts.head("Explanation", told.query, f"{told.hits:,} found")
    return (
        line
        + parts.fold("How", f"<pre>{parts.lines(str(told))}</pre>", is_open=True)
        + parts.fold(
            "Segments that were read",
            parts.table(heads, rows) + parts.more(len(read) - len(rows)),
            count=f"({len(read):,} of {len(told.segments):,})",
        )
    )


def stats(figures: IndexStats) -> str:
    """Show what the index is made of."""
    live = f"{figures.sealed - figures.dead:,} objects sealed"
    facts = [
        ("families", f"{figures.families:,}, in {figures.segments:,} segments"),
        ("waiting", f"{figures.tail:,} to be sealed, {figures.queued:,} to be indexed"),
        ("not indexed", f"{figures.unindexed:,}"),
        (
            "so far",
            f"{figures.seals:,} seals, {figures.splits:,} splits, {figures.merges:,} merges",
        ),
    ]
    rows = [index_stats.row_of(group) for group in figures.groups[:_GROUPS]]
    heads = ("family", "group", "kind", "SF", "objects", "blocks", "bytes", "keys")
    more = parts.more(len(figures.groups) - len(rows))
    return (
        parts.head("Index", "", live, human(figures.nbytes))
        + f"<div class='engram-body'>{parts.facts(facts)}</div>"
        + parts.fold("Attribute groups", parts.table(heads, rows) + more, is_open=True)
    )
