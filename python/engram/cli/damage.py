"""What a pool's own checksums say is damaged: reading a value does not compare them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import engram
from engram.cli import terminal, walk
from engram.errors import CorruptError, EngramError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.cli.blocks import Fields
    from engram.cli.walk import Found

_PROBLEM = re.compile(
    r"""
    \bobject[ ]0x(?P<oid>[0-9a-f]+)\b
    (?:[ ]"(?:[^"\\]|\\.)*")?         # its path, quoted as Rust does it
    [ ,:]*(?P<what>.*)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLACE = re.compile(r" at \d+ of the arena")
"""What differs between copies."""
_PRIVATE = re.compile(r"(?P<namespace>.*) \(private of user (?P<user>\d+)\)", re.DOTALL)
_NAMED = 3
"""So many realms that were not walked are named on stderr."""


def wrong_values(pool: str, namespace: str | None) -> dict[int, str]:
    """Return what `verify` says of the objects of a pool that are damaged, by OID.

    A note says what of a namespace was not walked, of all namespaces if none is given: no
    checksums of that are compared.
    """
    report = engram.verify(pool)
    if not report.counts and report.problems:
        terminal.note(f"{pool}: its checksums are not compared: {report.problems[0]}")
    unseen = [name for name in report.skipped if _is_read(name, namespace)]
    if unseen:
        more = f" and {len(unseen) - _NAMED} more" if len(unseen) > _NAMED else ""
        terminal.note(
            f"{pool}: you may not verify namespace {', '.join(unseen[:_NAMED])}{more}: checksums "
            "of what is there are not compared; run this as the owner of the pool for that"
        )
    found = (_PROBLEM.search(problem) for problem in report.problems)
    return {
        int(match["oid"], 16): _PLACE.sub("", match["what"]) for match in found if match is not None
    }


def _is_read(name: str, namespace: str | None) -> bool:
    """Whether a realm, as `verify` calls it, is one of a namespace whose members are read."""
    private = _PRIVATE.fullmatch(name)
    if private is not None:
        is_own = int(private["user"]) == os.geteuid()
        return is_own and namespace in (None, private["namespace"])
    return namespace is None or name in (namespace, f"{namespace} (published)")


def known(found: Found, wrong: dict[int, str]) -> Fields:
    """Return the error of an object of which it is known that it is damaged."""
    member = found.member
    if not wrong or member is None or isinstance(member, engram.Group):
        return {}
    if not isinstance(member, engram.Table):
        return walk.told(CorruptError(wrong[member.oid])) if member.oid in wrong else {}
    try:
        for name, oid in _inside(member.as_group()):
            if oid in wrong:
                return walk.told(CorruptError(f"{name}: {wrong[oid]}"))
    except walk.FATAL:
        raise
    except EngramError as error:
        found.troubles.append(str(error))
        return walk.told(error)
    return {}


def _inside(group: engram.Group) -> Iterator[tuple[str, int]]:
    """Yield the names and the OIDs of the objects that a table lies in."""
    for name, member in group.items():
        if isinstance(member, engram.Group):
            yield from _inside(member)
        elif isinstance(member, engram.Array | engram.Blob):
            yield name, member.oid
