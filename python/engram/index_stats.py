"""What the index is made of: its attribute groups, and figures of them all."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from engram import later
from engram.plain import printable
from engram.size import human

_SHOWN_KEYS = 6
_SHOWN_GROUPS = 30
_LONG_NUMBER = re.compile(r"-?\d+\.\d{6,}(?:e-?\d+)?|-?\d+\.\d+e-?\d+")


@dataclass(frozen=True)
class AttributeGroup:
    """Keys that are indexed together, over the objects of one family.

    Attributes
    ----------
    family, group
        The family's number, and the group's number in it; 0 for the built-in fields.
    tag
        The path of the group in the namespace whose settings hold; None for free objects.
    kind
        "columns", or "runs": sorted values of a key that is nearly unique.
    keys
        The keys, each with its sharing frequency: how many sealed objects have it.
    sf
        The group's own sharing frequency: how many keys it has.
    objects
        How many objects are sealed in the family.
    blocks, nbytes
        How many segments have a block of it, and the bytes of these.
    bounds
        Where splits by value have put the family: conditions that its objects meet, at most two
        for each key and kind of value. Numbers are exact here; `str()` shows six digits of them.

    """

    family: int
    group: int
    tag: str | None
    kind: Literal["columns", "runs"]
    keys: dict[str, int]
    sf: int
    objects: int
    blocks: int
    nbytes: int
    bounds: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class IndexStats(Mapping[str, Any]):
    """What a namespace's index is made of; also a mapping of names to figures.

    Attributes
    ----------
    groups
        Every attribute group of every family (for a group's `index_stats`, of those that objects
        below it may be in).
    families, segments
        How many of each there are.
    sealed, dead
        Places in segments, and how many of them are of objects that are gone or elsewhere.
    tail, queued, unindexed
        Objects that wait to be sealed, that wait to be indexed, and of mode "none".
    seals, splits, merges
        How often each was done so far, also to families that are merged or forgotten since; none
        of them ever falls, but where the index is built anew, as by an upgrade, they begin anew.
    tables
        Bytes of each table's pages.
    nbytes
        Bytes of them all.

    """

    groups: tuple[AttributeGroup, ...]
    families: int
    segments: int
    sealed: int
    dead: int
    tail: int
    queued: int
    unindexed: int
    seals: int
    splits: int
    merges: int
    tables: dict[str, int]
    nbytes: int

    def __getitem__(self, name: str) -> Any:
        if name in set(self):
            return getattr(self, name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (each.name for each in fields(self))

    def __len__(self) -> int:
        return len(fields(self))

    def __str__(self) -> str:
        live = self.sealed - self.dead
        lines = [
            f"{live:,} objects sealed in {self.segments:,} segments of {self.families:,} families",
            f"{self.tail:,} in the tail, {self.queued:,} queued, {self.unindexed:,} not indexed",
            f"{self.seals:,} seals, {self.splits:,} splits, {self.merges:,} merges so far",
            f"{human(self.nbytes)} of pages",
        ]
        rows: list[tuple[str, ...]] = [
            ("family", "group", "kind", "SF", "objects", "blocks", "bytes", "keys")
        ]
        rows += [row_of(group) for group in self.groups[:_SHOWN_GROUPS]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows if self.groups else []:
            words = [word.rjust(width) for word, width in zip(row[:-1], widths, strict=False)]
            lines.append("  ".join([*words, row[-1]]))
        if len(self.groups) > _SHOWN_GROUPS:
            lines.append(f"... and {len(self.groups) - _SHOWN_GROUPS:,} more")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<engram.IndexStats\n{self}>"

    def _repr_html_(self) -> str:
        return later.card(self)


def row_of(group: AttributeGroup) -> tuple[str, ...]:
    """Give an attribute group's figures as text: family, group, kind, SF, objects, ..., keys."""
    keys = [f"{printable(key)} ({count:,})" for key, count in group.keys.items()]
    more = [f"... {len(keys) - _SHOWN_KEYS} more"] if len(keys) > _SHOWN_KEYS else []
    told = ", ".join([*keys[:_SHOWN_KEYS], *more]) or "(built in)"
    tag = "" if group.tag is None else f"below {printable(group.tag)!r}: "
    bounds = f"  [{' and '.join(map(_short, group.bounds))}]" if group.bounds else ""
    return (
        *(str(group.family), str(group.group), group.kind, str(group.sf), f"{group.objects:,}"),
        *(f"{group.blocks:,}", human(group.nbytes), f"{tag}{told}{bounds}"),
    )


def _short(bound: str) -> str:
    """Show a bound, with six digits of a number that has more."""
    text = printable(bound)
    if text.endswith('"'):
        return text
    head, sign, number = text.rpartition(" ")
    return head + sign + _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.6g}", number)


def stats_of(native: tuple[Any, Any, Any], path: str) -> IndexStats:
    """Make figures of what a native gives: for the group at a path, "" for the root."""
    groups, tables, figures = native
    made = [
        AttributeGroup(
            family=family,
            group=number,
            tag=tag,
            kind="runs" if is_runs else "columns",
            keys=dict(keys),
            sf=len(keys),
            objects=objects,
            blocks=blocks,
            nbytes=nbytes,
            bounds=tuple(bounds),
        )
        for family, number, tag, is_runs, keys, objects, blocks, nbytes, bounds in groups
    ]
    wanted = _tags(path, {group.tag for group in made})
    kept = tuple(group for group in made if not path or group.tag in wanted)
    return IndexStats(groups=kept, tables=dict(tables), **dict(figures))


def _tags(path: str, tags: set[str | None]) -> set[str | None]:
    """Find the tags that objects below a path may have: its own or the nearest above, and below."""
    above = [tag for tag in tags if tag is not None and f"{path}/".startswith(f"{tag}/")]
    nearest = max(above, key=len, default=None)
    return {nearest, *(tag for tag in tags if tag is not None and tag.startswith(f"{path}/"))}
