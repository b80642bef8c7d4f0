"""A finding: one thing that was looked at, what is there, a verdict, and how to get more."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Verdict(enum.StrEnum):
    """What is thought of it."""

    good = "good"
    fair = "fair"
    """It works, and could be better."""
    wrong = "wrong"
    """A pool cannot be here, or not work."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    verdict: Verdict = Verdict.good
    remedy: str = ""
    """The command that gets more; empty if there is nothing to get."""
    numbers: dict[str, object] = field(default_factory=dict)
    """What was measured, for programs."""
