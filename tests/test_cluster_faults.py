"""A cluster on hosts that fail keeps its promises; who checks that finds what is not promised."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from cluster import hosts
from cluster.faults import checker, faults
from cluster.faults.campaign import Campaign
from cluster.faults.histories import Record

WHO = ("a", "b", "c")
FEW = ("write-1", "write-2", "read-1", "keep", "ask")
"""Users enough for a sample: `make cluster-faults` has more, and all of the faults."""


def test_hosts_fail_and_promises_are_kept() -> None:
    if why := hosts.why_not("etcd", "etcdctl"):
        pytest.skip(why)
    seed = random.SystemRandom().randrange(10**6)
    with Campaign(seed, users=FEW, ttl=3.0) as campaign:
        campaign.run(campaign.draw.sample(faults.SAMPLE, len(faults.SAMPLE)))
        # There was something to find: members were struck, and those who answered are known.
        reads = [each for name in campaign.users for each in campaign.records(name)]
        assert len(campaign.watch.gone) >= 3
        assert len({member for each in reads for member in each.members}) >= 3
        assert {"done", "NodeAwayError"} <= {each.outcome for each in reads}


# The checker


def told(who: str, do: str, value: Any, begin: float, end: float, **more: Any) -> Record:
    given = {"outcome": "done", "text": "", "generation": None, "members": (), **more}
    return Record(who, int(begin * 1000), do, "run/a", value, begin, end, **given)


def put(value: int, begin: float, end: float, who: str = "a", **more: Any) -> Record:
    return told(who, "put", value, begin, end, **more)


def read(value: Any, begin: float, end: float, who: str = "b", **more: Any) -> Record:
    more = {"outcome": "NotFoundError", **more} if value is None else more
    return told(who, "read", value, begin, end, **more)


def remove(begin: float, end: float, who: str = "a", **more: Any) -> Record:
    return told(who, "remove", None, begin, end, **more)


def query(seen: dict[str, int], begin: float, end: float) -> Record:
    return told("q", "query", seen, begin, end)._replace(name="")


NOBODY_KNOWS: dict[str, Any] = {"outcome": "CoordinatorError"}
CONFLICT: dict[str, Any] = {"outcome": "ConflictError"}
LOST: dict[str, Any] = {"outcome": "PartsLostError"}


@pytest.mark.parametrize(
    "history",
    [
        [read(None, 0, 1), put(1, 2, 3), read(1, 4, 5), remove(6, 7), read(None, 8, 9)],
        # What is under way is seen, or not yet.
        [put(1, 0, 9), read(None, 1, 2), read(1, 3, 4, "c"), read(1, 5, 6)],
        [put(1, 0, 9), put(2, 0, 9, "b"), read(2, 1, 2, "c"), read(1, 3, 4, "c")],
        # What nobody knows of was done, was not, or is done much later.
        [put(1, 0, 1), put(2, 2, 3, **NOBODY_KNOWS), read(2, 4, 5)],
        [put(1, 0, 1), put(2, 2, 3, **NOBODY_KNOWS), read(1, 4, 5), read(2, 6, 7)],
        [put(1, 0, 1), put(2, 2, math.inf, outcome="killed"), put(3, 4, 5), read(2, 6, 7)],
        [put(1, 0, 1), remove(2, 3, **NOBODY_KNOWS), read(1, 4, 5), read(None, 6, 7)],
        [put(1, 0, 1), put(2, 2, 3, **CONFLICT), read(1, 4, 5)],
        [put(1, 0, 1), query({"run/a": 1}, 2, 3), remove(4, 5), query({}, 6, 7)],
        # The power fails at 10.
        [put(1, 0, 1), read(None, 12, 13, **LOST), put(2, 14, 15), read(2, 16, 17)],
        [put(1, 0, 1), put(2, 2, 3, **NOBODY_KNOWS), remove(4, 5), read(None, 12, 13, **LOST)],
    ],
)
def test_what_can_be_is_no_trouble(history: list[Record]) -> None:
    assert checker.troubles(history, {}, [10.0]) == []


@pytest.mark.parametrize(
    ("history", "names"),
    [
        ([put(1, 0, 1), read(None, 2, 3)], "read run/a"),
        ([put(1, 0, 1), put(2, 2, 3), read(1, 4, 5)], "run/a 1"),
        ([put(1, 0, 9), read(1, 1, 2), read(None, 3, 4, "c")], "read run/a"),
        ([put(1, 0, 9), put(2, 0, 9), read(2, 1, 2), read(1, 3, 4), read(2, 5, 6)], "run/a 2"),
        ([put(1, 0, 1), put(2, 2, 3, **CONFLICT), read(2, 4, 5)], "run/a 2"),
        ([put(2, 2, 3, **NOBODY_KNOWS), read(2, 4, 5), read(None, 6, 7)], "read run/a"),
        ([put(1, 0, 1), remove(2, 3), read(1, 4, 5)], "run/a 1"),
        ([put(1, 0, 1), remove(2, 3, **NOBODY_KNOWS), read(None, 4, 5), read(1, 6, 7)], "run/a 1"),
        ([read(7, 0, 1)], "run/a 7"),
        ([put(1, 0, 1), query({}, 2, 3)], "query"),
        ([put(1, 0, 1), put(2, 2, 3), query({"run/a": 1}, 4, 5)], "query"),
        ([put(1, 0, 1), read(None, 2, 3, **LOST)], "PartsLostError"),
        ([put(1, 0, 1), put(2, 11, 12), read(None, 13, 14, **LOST)], "PartsLostError"),
        ([read([1, 2], 0, 1)], "a mix"),
        ([put(1, 0, 1, outcome="CorruptError", text="of something")], "CorruptError of something"),
        ([put(1, 0, 9), read(1, 1, 2, generation=4), read(2, 3, 4, generation=4)], "generation 4"),
        ([put(1, 0, 9), read(1, 6, 7, members=("5f",))], "member 5f was struck"),
    ],
)
def test_what_cannot_be_is_found(history: list[Record], names: str) -> None:
    found = checker.troubles(history, {"5f": 5.0}, [10.0])
    assert any(names in each for each in found), found


def test_a_history_is_shown_in_its_shortest_form() -> None:
    history: list[Record] = []
    for number in range(200):
        at = float(3 * number)
        history += [put(number, at, at + 1), read(number, at + 1, at + 2, WHO[number % 3])]
    history.append(read(57, 600, 601))
    (found,) = checker.troubles(history, {}, [])
    shown = found.splitlines()[1:-1]
    assert len(shown) == 3
    assert any("put run/a 57" in line for line in shown)
    assert any("600.000" in line for line in shown)


def test_random_histories_are_judged_as_they_were_made() -> None:
    draw = random.Random(3)  # noqa: S311 - a seed decides
    for _ in range(200):
        history = made(draw)
        assert checker.troubles(history, {}, []) == []
        old = next(each for each in history if each.do == "put" and each.is_done)
        history += [put(1000, 500, 501), read(old.value, 502, 503)]
        (found,) = checker.troubles(history, {}, [])
        assert f"read run/a {old.value}" in found.splitlines()[-1]


def made(draw: random.Random) -> list[Record]:
    """Make a history of what took effect at known moments."""
    history: list[Record] = []
    value = None
    for number, at in enumerate(sorted(draw.sample(range(100, 400), 60))):
        begin, end = at - draw.random() * 20, at + draw.random() * 20
        do, who = draw.choices(("put", "read", "remove"), (3, 6, 1))[0], draw.choice(WHO)
        if do == "read":
            history.append(read(value, begin, end, who))
            continue
        value = number if do == "put" else None
        unknown = draw.random() < 0.2
        history.append(told(who, do, value, begin, end, **(NOBODY_KNOWS if unknown else {})))
    return history
