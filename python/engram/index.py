"""The index: when objects come into it, how it is laid out, and what it is made of.

Attributes are kept in groups of keys that occur together, each group as columns over segments of
some thousand objects (Group Split and Merge: Khan, Sim, Vazhkudai, Kim, IEEE Access 2021,
doi 10.1109/ACCESS.2021.3087502). Nothing of this changes what a query finds: it is about time and
bytes.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np

from engram import later
from engram.errors import ArgumentError
from engram.expression import text_of
from engram.plain import printable
from engram.size import human

IndexMode: TypeAlias = Literal["sync", "async", "none"]
"""When an object's attributes are indexed.

"sync"
    In the object's own commit.
"async"
    A little later, by a thread of any process that has the pool open for writing. Queries see the
    object at once all the same.
"none"
    Not at all: queries find the object by its built-in fields alone.
"""

MODES = ("sync", "async", "none")

_SHOWN_KEYS = 6
_SHOWN_GROUPS = 30


class IndexSettings(TypedDict, total=False):
    """How objects below a group are indexed: what can be given where a group or a pool is made.

    What is not given is as the group above has it, and so on up to the namespace's root; a group
    with settings has its objects in segments of their own. They hold for objects that are stored
    from then on.
    """

    index: IndexMode
    """When: "sync" (the default), "async" or "none"."""
    attributes_per_group: int | None
    """How many keys an attribute group has at most (4); None for all in one."""
    index_policy: Literal["fixed", "dynamic"]
    """Whether attribute groups change with what occurs, and is queried, together ("dynamic")."""
    split_threshold: int
    """How many segments an attribute group has before it is split by value (100)."""
    split_on: tuple[str, Any] | None
    """A key and a value: objects whose attribute is below it, and the others, lie apart."""
    segment_rows: int
    """How many objects a segment has at most (4096)."""
    tail_rows: int
    """How many objects wait in the tail before they are sealed (256); the root's counts."""
    merge_sf: int
    """Keys of fewer objects in a segment than this share an attribute group (16)."""
    merge_overlap: int
    """Percent of objects in common from which two attribute groups become one (90)."""
    queue_max: int
    """How many objects wait for async indexing before a commit helps (65,536); the root's."""


_SETTINGS = frozenset(IndexSettings.__annotations__)


def check_mode(mode: IndexMode | None) -> IndexMode | None:
    """Refuse what is no mode."""
    if mode is None or (isinstance(mode, str) and mode in MODES):
        return mode
    raise ArgumentError(f'index {mode!r} is unknown: use "sync", "async" or "none"')


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse what is no setting."""
    for name in settings:
        if name not in _SETTINGS:
            raise ArgumentError(
                f"{name!r} is no setting of the index: there are {', '.join(sorted(_SETTINGS))}"
            )
    checked = dict(settings)
    most = settings.get("attributes_per_group")
    if most is not None and (isinstance(most, bool) or most == 0):
        raise ArgumentError(
            f"attributes_per_group {most!r} is no number of keys: give one from 1 on, or None for "
            "all in one"
        )
    match settings.get("split_on"):
        case (key, bytes() | np.datetime64() | dt.date() as value):
            checked["split_on"] = (key, text_of(value))
    return checked


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
        Where splits by value have put the family: conditions that its objects meet.

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
        How often each was done so far.
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
    bounds = f"  [{printable(' and '.join(group.bounds))}]" if group.bounds else ""
    return (
        *(str(group.family), str(group.group), group.kind, str(group.sf), f"{group.objects:,}"),
        *(f"{group.blocks:,}", human(group.nbytes), f"{tag}{told}{bounds}"),
    )


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
