"""Verifying a pool: its catalogs and extents are walked in a child process.

LMDB trusts its own pages, so a damaged catalog can kill its reader. That is why a child walks it,
and why the child's death is a finding, not a crash.
"""

import json
import os
from dataclasses import dataclass, field

from engram import _child, errors
from engram.errors import CorruptError, EngramError
from engram.paths import absolute as absolute_path


@dataclass(frozen=True)
class Report:
    """What `verify` found; it is true if nothing is wrong."""

    path: str
    """The pool's."""

    counts: dict[str, int] = field(default_factory=dict)
    """What was walked: namespaces, groups, objects, attributes, extents; values with a checksum
    (and were compared with it), and those that have none though the pool keeps some; and, in bytes,
    checked_bytes, used, free, pending and arena."""

    problems: list[str] = field(default_factory=list)
    """What is wrong, in sentences."""

    skipped: list[str] = field(default_factory=list)
    """Namespaces that this user may not open, and that were not walked."""

    def __bool__(self) -> bool:
        return not self.problems

    def check(self) -> None:
        """Raise `CorruptError` with the first problem, if there is one."""
        if self.problems:
            more = len(self.problems) - 1
            raise CorruptError(self.problems[0] + (f" (and {more} more)" if more else ""))


def verify(path: str | os.PathLike[str]) -> Report:
    """Walk a pool: every row decodes, no extents overlap, nothing is lost, names and parents agree.

    In a pool with checksums every record and value is compared with its own. A child process does
    it; if it dies, that is a problem of the report, not of this process.

    Raises
    ------
    PoolNotFoundError
        If there is no pool at `path`.
    FormatError, AccessError, UnsupportedError
        If it cannot be opened, as `engram.open`.

    """
    absolute = str(absolute_path(path))
    child = _child.run("_verify", absolute)
    if child.death is not None:
        problem = (
            f"who read the catalog of {absolute} {child.death}: a page of it is damaged; copy what "
            "is sound out of it (`engram export --salvage`), or restore it"
        )
        return Report(absolute, problems=[problem])
    try:
        found = json.loads(child.said)
    except ValueError:
        said = child.told.splitlines()[-1:] or [f"exit code {child.code}"]
        raise CorruptError(f"verifying {absolute} broke off: {said[0]}") from None
    if found.get("error") == "CorruptError":
        return Report(absolute, problems=[found["message"]])
    if "error" in found:
        raise _error(found["error"], found["message"])
    return Report(absolute, found["counts"], found["problems"], found["skipped"])


def _error(name: str, message: str) -> EngramError:
    kind = getattr(errors, name)
    error: EngramError = kind(message)
    return error
