"""What users have written down, as operations on registers: what a name has is its one value."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

UNKNOWN = frozenset({"NodeAwayError", "CoordinatorError", "FencedError", "BusyError"})
"""Errors after which a change of an object, or by one transaction, may have been done."""
ABSENT = "NotFoundError"


class Record(NamedTuple):
    """An operation as a user wrote it down."""

    who: str
    number: int
    do: str
    name: str
    value: Any
    """What was put, or seen."""
    begin: float
    end: float
    """Infinite where the user was killed meanwhile."""
    outcome: str
    text: str
    generation: int | None
    members: tuple[str, ...]
    """Who has answered, as far as that is known: members, by their ids."""

    @property
    def is_done(self) -> bool:
        """Whether it was acknowledged."""
        return self.outcome == "done"

    def __str__(self) -> str:
        end = "?" if math.isinf(self.end) else f"{self.end:.3f}"
        value = "" if self.value is None else f" {self.value}"
        generation = "" if self.generation is None else f" (generation {self.generation})"
        told = f"{self.begin:.3f} to {end} {self.who}: {self.do} {self.name}{value}{generation}"
        return f"{told}: {self.outcome} {self.text}".rstrip()


def read(path: Path) -> list[Record]:
    """Read what one user has written."""
    begun: dict[int, dict[str, Any]] = {}
    ended: dict[int, dict[str, Any]] = {}
    # The last line may be on its way yet.
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        said = json.loads(line)
        (begun if "do" in said else ended)[said["op"]] = said
    records = []
    for number, first in begun.items():
        last = ended.get(number, {"outcome": "killed", "at": math.inf})
        value = first["value"] if first["do"] == "put" else last.get("value")
        records.append(
            Record(
                path.stem,
                number,
                first["do"],
                first["name"],
                value,
                first["at"],
                last["at"],
                last["outcome"],
                last.get("text", ""),
                last.get("generation"),
                tuple(last.get("members", ())),
            )
        )
    return records


class Operation(NamedTuple):
    """An operation on one register. None is the value of a name that is not there."""

    record: Record
    is_write: bool
    values: frozenset[int | None]
    """What is written, or all that a reader may have seen."""
    begin: float
    end: float
    """Infinite where it may take effect at any time after, or never."""


def of_name(name: str, records: Iterable[Record], power_failed: list[float]) -> list[Operation]:
    """Give what was done to a name, and seen of it.

    What was surely not done is left out, and so are reads that saw nothing. A reader who was told
    that parts are lost has seen a publication that was begun before the power of a host failed.
    """
    own = [record for record in records if record.name == name or record.do == "query"]
    puts = [record for record in own if record.do == "put"]
    found = []
    for record in own:
        if record.do == "query":
            if (seen := _of_query(name, record, own)) is not None:
                found.append(seen)
        elif record.do in {"put", "remove"}:
            if (change := _change(record)) is not None:
                found.append(change)
        elif record.outcome == "PartsLostError":
            failed = max((at for at in power_failed if at <= record.end), default=-math.inf)
            lost = frozenset(put.value for put in puts if put.begin < failed)
            found.append(Operation(record, False, lost, record.begin, record.end))
        elif record.do == "read" and record.outcome in {"done", ABSENT}:
            values = frozenset([record.value if record.is_done else None])
            found.append(Operation(record, False, values, record.begin, record.end))
    return found


def _change(record: Record) -> Operation | None:
    is_object = record.name.startswith("objects")
    values = frozenset([record.value if record.do == "put" else None])
    is_gone = record.do == "remove" and record.outcome == ABSENT
    if record.is_done or is_gone:
        # Of an object, who removes it and finds nothing may have removed it by a lost answer.
        return Operation(record, not is_gone or is_object, values, record.begin, record.end)
    may_be = record.outcome in UNKNOWN if is_object else record.outcome == "CoordinatorError"
    # After it published, who puts an array looks it up: it may be gone then.
    may_be |= record.do == "put" and record.outcome == ABSENT
    if may_be or record.outcome == "killed":
        return Operation(record, True, values, record.begin, math.inf)
    return None


def _of_query(name: str, record: Record, own: list[Record]) -> Operation | None:
    """Give what a query saw of a name, if all that is there was asked."""
    if not record.is_done:
        return None
    seen = record.value.get(name)
    group = name.partition("/")[0]
    if seen is None and group.startswith("objects"):
        # Of a group that is made or removed in between, not all is there.
        times = [each for each in own if each.name == name and each.is_done]
        if not times or not times[0].end < record.begin or not record.end < times[-1].begin:
            return None
    own_part = record._replace(name=name, value=seen)
    return Operation(own_part, False, frozenset([seen]), record.begin, record.end)
