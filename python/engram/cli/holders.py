"""Who holds what in a namespace, for `engram stats`: a bounded table, and JSON."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from engram import owners
from engram.cli import describe, drawing, terminal
from engram.size import human

if TYPE_CHECKING:
    from engram.namespace import Namespace

LEASES_MAX = 20
"""The most processes that are listed one by one."""

_HEADINGS = ("pid", "user", "since", "views", "reserved", "held", "commits behind")
_NANO = 10**9


def told(root: Namespace) -> dict[str, Any]:
    """Return who holds what as plain values: times in ISO 8601, users by name."""
    stats = root.stats()
    leases = [
        lease | {"user": owners.user(lease["user"]), "since": terminal.iso(_moment(lease["since"]))}
        for lease in stats["leases"]
    ]
    failed = stats["maintenance"]
    return dict(stats) | {
        "leases": leases,
        "maintenance": failed and {**failed, "at": terminal.iso(_moment(failed["at"]))},
    }


def _moment(at: int) -> dt.datetime:
    """Return a moment that is told in nanoseconds since 1970."""
    return dt.datetime.fromtimestamp(at / _NANO, dt.UTC)


def show(told: dict[str, Any]) -> None:
    """Print it for people."""
    leases = told["leases"]
    drawing.print_title("held by")
    shown = leases[:LEASES_MAX]
    drawing.print_table(
        _HEADINGS, [_row(lease) for lease in shown], key="pid", right=_HEADINGS[3:], indent=2
    )
    if len(leases) > len(shown):
        terminal.say(f"  and {len(leases) - len(shown)} more (--json has them all)")
    catalog = told["catalog"]
    oldest = told["oldest"]
    facts = {
        "reserved": human(told["reserved"]),
        "deleted": f"{human(told['held'])} still viewed, {human(told['reclaimable'])} free when "
        "space is asked for",
        "catalog": f"{human(catalog['used'])} with rows, {human(catalog['free'])} free, "
        f"{human(catalog['held'])} kept for readers",
        "oldest reader": f"process {oldest['pid']}, {oldest['behind']} commits behind"
        if oldest
        else "none",
        "readers": ", ".join(f"{each['pid']} ({each['slots']})" for each in told["readers"]),
    }
    failed = told["maintenance"]
    if failed:
        facts["maintenance"] = (
            f"{failed['task']} failed in process {failed['pid']} at {failed['at']}: "
            f"{failed['message'] or failed['error']}"
        )
    drawing.print_facts(facts, indent=2)


def _row(lease: dict[str, Any]) -> list[str]:
    """Return a process's cells."""
    pid = str(lease["pid"]) if lease["alive"] else f"{lease['pid']} (dead)"
    opened = dt.datetime.fromisoformat(lease["since"])
    since = describe.time(int(opened.timestamp() * _NANO))
    behind = "" if lease["behind"] is None else str(lease["behind"])
    return [
        *(pid, lease["user"], since, str(lease["views"])),
        *(human(lease["reserved"]), human(lease["held"]), behind),
    ]
