"""What is brought out at the end: what the description says, and what was tagged while the job ran.

A tag is an attribute, `engram.stage`, of a file or folder: "persistent" or "temporary". What is
nearest holds: a tag of the file or folder itself, then what the description says of it, then what
holds for the folder that it is in. Nothing said is "temporary".
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from engram.errors import ArgumentError
from engram.jobs.description import Description, Resource
from engram.jobs.pools import STAGES
from engram.namespace import Namespace
from engram.pool import Pool
from engram.pool import open as open_pool
from engram.stage import Trouble

if TYPE_CHECKING:
    import os

KEY = "engram.stage"
"""The attribute's key; as an extended attribute it is `user.engram.stage`."""
TAGS = ("persistent", "temporary")
"""The values."""


class Plan(NamedTuple):
    """What is brought out."""

    targets: dict[str, str]
    """Paths in the pool, and where each is to be outside; of what is in a folder, not all by
    itself if the whole folder is brought."""
    folders: list[tuple[Path, int]]
    """Folders of which a part is brought, and their modes."""
    arrays: list[Resource]
    """What was imported, and is to be exported."""
    absent: list[Resource]
    """What is persistent, and is not there."""
    troubles: list[Trouble]
    """Tags that are none."""


class _Node:
    """A member of the pool."""

    def __init__(self, path: str, member: Any, above: "_Node | None", *, persistent: bool) -> None:
        self.path = path
        self.member = member
        self.above = above
        self.persistent = persistent
        self.whole = persistent
        """Whether all that is in it is brought, as it is."""


def tag(
    pool: "Pool | Namespace | str | os.PathLike[str]",
    path: str,
    value: Literal["persistent", "temporary"] | None,
) -> None:
    """Say whether a file or folder of a job's pool is brought out at the end; None takes it back.

    It holds for all in the folder that has no tag of its own. A program says the same by
    `setfattr -n user.engram.stage -v persistent FILE` on the mount.

    Raises
    ------
    NotFoundError
        If there is no such pool, or nothing at the path.
    ArgumentError
        If the value is none of these.
    ReadOnlyError, AccessError
        If this user may not change it.

    """
    if value is not None and value not in TAGS:
        raise ArgumentError(f"tag {value!r} is none: pass one of {', '.join(TAGS)}, or None")
    if not isinstance(pool, Namespace):
        with open_pool(pool) as opened:
            tag(opened, path, value)
        return
    name = path.strip("/")
    attrs = (pool[name] if name else pool).attrs
    if value is not None:
        attrs[KEY] = value
    elif KEY in attrs:
        del attrs[KEY]


def plan(pool: Pool, description: Description) -> Plan:
    """Say what is to be brought out of a job's pool now."""
    flags = {resource.to: resource for resource in description.resources}
    arrays = {resource.to for resource in description.resources if resource.type == "array"}
    troubles: list[Trouble] = []
    nodes = _walked(pool, flags, arrays, troubles)
    targets: dict[str, str] = {}
    folders: list[tuple[Path, int]] = []
    for node in nodes:
        outside = description.results_dir / node.path
        if node.whole and not (node.above is not None and node.above.whole):
            targets[node.path or "/"] = str(outside)
        elif node.persistent and not node.whole and node.path not in arrays:
            folders.append((outside, node.member.posix.mode))
    persistent = {node.path for node in nodes if node.persistent}
    paths = {node.path for node in nodes}
    return Plan(
        targets,
        folders,
        [flags[path] for path in sorted(arrays & persistent)],
        [one for one in description.resources if one.is_persistent and one.to not in paths],
        troubles,
    )


def persistent(pool: Pool, description: Description) -> tuple[list[tuple[str, Any]], list[Trouble]]:
    """Give each file of a job's pool that is brought out at its end, by its path, and bad tags.

    What an array is made of is one file, by the path of its resource.
    """
    flags = {resource.to: resource for resource in description.resources}
    arrays = {resource.to for resource in description.resources if resource.type == "array"}
    troubles: list[Trouble] = []
    nodes = _walked(pool, flags, arrays, troubles)
    files = [node for node in nodes if node.path in arrays or not node.member._is_group]
    return [(node.path, node.member) for node in files if node.persistent], troubles


def _walked(
    pool: Pool, flags: dict[str, Resource], arrays: set[str], troubles: list[Trouble]
) -> list[_Node]:
    """Give all that is in a pool, folders before what is in them; what arrays are made of is one.

    No recursion: folders may be nested deeper than Python's calls.
    """
    nodes = [_node("", pool, None, flags, troubles)]
    for node in nodes:  # which grows meanwhile
        if node.path in arrays:
            node.whole = False
        elif node.member._is_group:
            for name, member in node.member.items():
                if node.path or name != STAGES:
                    path = f"{node.path}/{name}" if node.path else name
                    nodes.append(_node(path, member, node, flags, troubles))
    for node in reversed(nodes):
        if node.above is not None:
            node.above.whole &= node.whole
    return nodes


def _node(
    path: str,
    member: Any,
    above: _Node | None,
    flags: dict[str, Resource],
    troubles: list[Trouble],
) -> _Node:
    persistent = above is not None and above.persistent
    if path in flags:
        persistent = flags[path].is_persistent
    tagged = member.attrs.get(KEY)
    if tagged is not None:
        text = _text(tagged)
        if text in TAGS:
            persistent = text == "persistent"
        else:
            why = f"is tagged {tagged!r}, which is no tag: use one of {', '.join(TAGS)}"
            troubles.append(Trouble(path or "/", why))
    return _Node(path, member, above, persistent=persistent)


def _text(value: object) -> str:
    """Give a tag that a program has set, also by bytes with C's zero behind it."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.rstrip("\0")
