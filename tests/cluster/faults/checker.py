"""Whether histories are such as the cluster promises.

A name is a register: its publications and removals take effect one after another, each within its
operation, and a read sees what is there at a moment within its own. An exact search tells whether
there is such an order: it goes along the beginnings and ends of operations, with all states that
the register can be in, each with what has taken effect to be there. An operation whose end nobody
knows may take effect at any time after its beginning, or never; if its value was seen, it was done
before that read ended. Where no state is left, no order explains the operation that ended there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from cluster.faults import histories

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.faults.histories import Operation, Record

PROMISED = frozenset(
    {
        "done",
        "killed",
        "NodeAwayError",
        "CoordinatorError",
        "ConflictError",
        "FencedError",
        "PartialResultError",
        "PoolFullError",
        "NotFoundError",
        "PartsLostError",
    }
)
"""How operations may end, whatever happens to hosts."""
State = tuple[int | None, frozenset[int]]
"""What the register has, and which operations that have not ended have taken effect."""


def troubles(
    records: Sequence[Record], gone: dict[str, float], power_failed: list[float]
) -> list[str]:
    """Give what is wrong with a history, each with the shortest history of the name.

    `gone` says when each member was seen to be none any more, `power_failed` when hosts lost what
    was in their memory.
    """
    found = [f"no promised error: {each}" for each in records if each.outcome not in PROMISED]
    found += [f"a mix: {each}" for each in records if isinstance(each.value, list)]
    found += of_generations(records)
    for each in records:
        late = [member for member in each.members if each.begin > gone.get(member, math.inf)]
        found += [f"member {member} was struck, and answers: {each}" for member in late]
    whole = [each for each in records if not isinstance(each.value, list)]
    for name in sorted({each.name for each in whole if each.do in {"put", "read", "remove"}}):
        history = histories.of_name(name, whole, power_failed)
        if (last := first_unexplained(history)) is not None:
            told = "\n".join(f"    {each.record}" for each in shortest(history))
            found.append(f"no order of what was done to {name} explains this:\n{told}\n  at {last}")
    return found


def of_generations(records: Iterable[Record]) -> list[str]:
    """Give which generations of a name were seen with more than one content."""
    seen: dict[tuple[str, int], set[int]] = defaultdict(set)
    for each in records:
        if each.generation is not None and isinstance(each.value, int):
            seen[each.name, each.generation].add(each.value)
    return [
        f"generation {generation} of {name} has several contents: {sorted(values)}"
        for (name, generation), values in seen.items()
        if len(values) > 1
    ]


def first_unexplained(operations: Sequence[Operation]) -> Record | None:
    """Give the first operation that no order explains; None where there is one for all."""
    own = _bounded(operations)
    events = [(each.begin, 0, place) for place, each in enumerate(own)]
    events += [(each.end, 1, place) for place, each in enumerate(own) if math.isfinite(each.end)]
    # Each state with how many removals of unknown end it took: any of them is as good.
    states: dict[State, int] = {(None, frozenset()): 0}
    under_way: set[int] = set()
    removals = 0
    for _, is_end, place in sorted(events):
        operation = own[place]
        if not is_end:
            if operation.is_write and operation.values == {None} and math.isinf(operation.end):
                removals += 1
                continue
            under_way.add(place)
            states = {_seen(own, {place}, state): used for state, used in states.items()}
            continue
        states = {
            (value, done - {place}): used
            for (value, done), used in _reached(own, states, under_way, removals).items()
            if place in done
        }
        under_way.remove(place)
        if not states:
            return operation.record
    return None


def _bounded(operations: Sequence[Operation]) -> list[Operation]:
    """Give an end to each write whose end nobody knows, where its value was seen.

    One that nobody has seen is left out: an order with it is one without it, too. But where parts
    were lost nobody says of which.
    """
    seen: dict[int | None, float] = defaultdict(lambda: math.inf)
    is_vague = False
    for each in operations:
        if each.is_write:
            continue
        if each.record.outcome == "PartsLostError":
            is_vague = True
            continue
        for value in each.values:
            seen[value] = min(seen[value], each.end)
    bounded = []
    for each in operations:
        (value,) = each.values if each.is_write else (None,)
        if not each.is_write or value is None or math.isfinite(each.end):
            bounded.append(each)
        elif math.isfinite(seen[value]):
            bounded.append(each._replace(end=seen[value]))
        elif is_vague:
            bounded.append(each)
    return bounded


def _seen(own: Sequence[Operation], under_way: set[int], state: State) -> State:
    """Let those reads take effect that can in a state: that hinders nothing."""
    value, done = state
    reads = {place for place in under_way if not own[place].is_write and value in own[place].values}
    return (value, done | reads) if reads else state


def _reached(
    own: Sequence[Operation], states: dict[State, int], under_way: set[int], removals: int
) -> dict[State, int]:
    """Give all states that there can be when what is under way may have taken effect."""
    found = dict(states)
    left = list(states)
    while left:
        state = left.pop()
        (value, done), used = state, found[state]
        steps = [
            ((next(iter(own[place].values)), done | {place}), used)
            for place in under_way - done
            if own[place].is_write
        ]
        if used < removals and value is not None:
            steps.append(((None, done), used + 1))
        for following, taken in steps:
            after = _seen(own, under_way, following)
            if taken < found.get(after, taken + 1):
                found[after] = taken
                left.append(after)
    return found


def shortest(operations: Sequence[Operation]) -> list[Operation]:
    """Give the fewest operations that no order explains either, found by leaving some out.

    A publication is left out with all reads that have seen it.
    """
    last = first_unexplained(operations)
    assert last is not None, "there is an order"
    kept = [each for each in operations if each.begin <= last.end]
    parts: dict[object, list[Operation]] = {}
    for each in kept:
        is_free = None in each.values or len(each.values) != 1
        key: object = each.record[:2] if is_free else next(iter(each.values))
        parts.setdefault(key, []).append(each)
    found = [each for part in _fewest(list(parts.values())) for each in part]
    # Then reads alone: the publication stays.
    fixed = [each for each in found if each.is_write]
    reads = [[each] for each in found if not each.is_write]
    found = fixed + [each for (each,) in _fewest(reads, fixed)]
    return sorted(found, key=lambda each: each.begin)


def _fewest(parts: list[list[Operation]], fixed: Sequence[Operation] = ()) -> list[list[Operation]]:
    """Give the parts that are left when each that may be is left out: many at once first."""
    left, size = parts, max(1, len(parts) // 2)
    while True:
        place = 0
        while place < len(left):
            without = left[:place] + left[place + size :]
            tried = [*fixed, *(each for part in without for each in part)]
            if first_unexplained(tried) is None:
                place += size
            else:
                left = without
        if size == 1:
            return left
        size //= 2
