"""The index: when objects come into it, and how it is laid out.

Attributes are kept in groups of keys that occur together, each group as columns over segments of
some thousand objects (Group Split and Merge: Khan, Sim, Vazhkudai, Kim, IEEE Access 2021,
doi 10.1109/ACCESS.2021.3087502). Nothing of this changes what a query finds: it is about time and
bytes.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np

from engram.errors import ArgumentError
from engram.expression import text_of

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
    """From how many full segments on objects of a kind are split by value (100)."""
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
