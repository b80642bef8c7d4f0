"""What a pool's own checksums say is damaged: reading a value does not compare them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import engram
from engram.cli import walk
from engram.errors import CorruptError

if TYPE_CHECKING:
    from engram.cli.blocks import Fields
    from engram.cli.walk import Found

_OID = re.compile(r"object 0x([0-9a-f]+)\b")


def wrong_values(pool: str) -> dict[int, str]:
    """Return what `verify` says of the objects of a pool that are damaged, by OID."""
    problems = engram.verify(pool).problems
    found = ((_OID.search(problem), problem) for problem in problems)
    return {int(match[1], 16): problem for match, problem in found if match is not None}


def known(found: Found, wrong: dict[int, str]) -> Fields:
    """Return the error of an object of which it is known that it is damaged."""
    member = found.member
    if not wrong or not isinstance(member, engram.Array | engram.Blob) or member.oid not in wrong:
        return {}
    problem = wrong[member.oid].rpartition(f'{member.name}": ')[2]
    return walk.told(CorruptError(problem))
