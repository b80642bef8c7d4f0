"""Large arrays: put, allocate and fill, find and add up."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from bench.compare.memory import Mapping, Pages, private
from bench.harness import PLACES, Bound, Contestant, Line, measure, timed
from bench.own.store import Engram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.compare.hdf5 import Hdf5
    from bench.peer import Peer, Values
    from bench.setting import Setting

NBYTES = 64 << 20
NAME = "big"
WARM_UP = 4
PAGE_WORK: dict[str, Callable[[Values], object]] = {
    "sum": lambda values: values.sum(),
    "fill": lambda values: values.fill(2.0),
}


def large() -> Values:
    """64 MiB of doubles."""
    return np.random.default_rng(1).random(NBYTES // 8)


def put(setting: Setting) -> Iterator[Line]:
    """Put 64 MiB, into space that this process has touched and into space that it has not."""
    values = large()
    own, peers = Engram(setting.folder), setting.peers()
    warm = Mapping(setting.folder, NBYTES).warm()
    for _ in range(WARM_UP):
        own.put(NAME, values)
    bounds = [Bound("engram", "memcpy", "speed", 0.9), Bound("engram", "h5py", "speed", 3.0)]
    bounds += [Bound("engram", peer.name, "show") for peer in peers if peer.name != "h5py"]
    contestants = [
        Contestant("engram", lambda: timed(lambda: own.put(NAME, values))),
        Contestant("memcpy", lambda: timed(lambda: warm.copy(values))),
        *(Contestant(peer.name, fresh_put(peer, values)) for peer in peers),
    ]
    for peer in peers:
        if peer.name == "h5py":
            bounds.append(Bound("engram", "h5py, rewriting", "show"))
            contestants.append(Contestant("h5py, rewriting", rewriting(peer, values)))
    line = Line("put 64 MiB, space touched before", "ms", bounds)
    yield measure(line, contestants, 3 * setting.rounds)
    for store in (own, *peers):
        store.close()
    warm.remove()
    yield cold(setting, values)


def fresh_put(peer: Peer, values: Values) -> Callable[[], float]:
    """Return a round: one put, after all was thrown away if the peer cannot replace an array."""

    def run() -> float:
        if not peer.replaces:
            peer.reset()
        return timed(lambda: peer.put(NAME, values))

    return run


def rewriting(peer: Peer, values: Values) -> Callable[[], float]:
    """Return a round of writing over the dataset that the last put made."""

    def run() -> float:
        store: Hdf5 = peer  # type: ignore[assignment]
        if NAME not in store.file:
            store.put(NAME, values)
        return timed(lambda: store.rewrite(NAME, values))

    return run


def cold(setting: Setting, values: Values) -> Line:
    """Put 64 MiB into a pool just made, beside memcpy into fresh pages."""

    def engram_cold() -> float:
        store = Engram(setting.folder)
        seconds = timed(lambda: store.put(NAME, values))
        store.close()
        return seconds

    def memcpy_cold() -> float:
        mapping = Mapping(setting.folder, NBYTES)
        seconds = timed(lambda: mapping.copy(values))
        mapping.remove()
        return seconds

    contestants = [Contestant("engram", engram_cold), Contestant("memcpy", memcpy_cold)]
    line = Line("put 64 MiB, fresh space", "ms", [Bound("engram", "memcpy", "show")])
    return measure(line, contestants, 3 * setting.rounds)


def fill(setting: Setting) -> Iterator[Line]:
    """Allocate and fill in place, beside filling a private array; both warm.

    What is allocated in place of an array is never where that array is, so a private array that is
    filled again and again finds more of itself in the processor's cache. That is the comparison
    asked for, and the one that is judged; two private arrays, filled by turns, are shown beside it.
    """
    values = large()
    again = Line(
        "allocate 64 MiB and fill it", "ms", [Bound("engram", "private array", "speed", 0.95)]
    )
    shown = Bound("engram", "private arrays", "show")
    by_turns = Line("the same, beside two arrays by turns", "ms", [shown])
    for _ in range(PLACES):
        own = Engram(setting.folder)
        for _ in range(WARM_UP):
            own.fill(NAME, values, 1.0)
        ours = Contestant("engram", partial(timed, partial(own.fill, NAME, values, 2.0)))
        for line, arrays in ((by_turns, 2), (again, 1)):
            alone = cycle([private(values) for _ in range(arrays)])
            theirs = Contestant(line.bounds[0].peer, filling(alone))
            measure(line, [ours, theirs], setting.rounds)
        own.close()
    yield again
    yield by_turns


def filling(arrays: Iterator[Values]) -> Callable[[], float]:
    """Return a turn of filling the next of the arrays."""

    def run() -> float:
        array = next(arrays)
        return timed(lambda: array.fill(2.0))

    return run


def total(setting: Setting) -> Iterator[Line]:
    """Open by path, view and add up 64 MiB; not the first time in this process."""
    values = large()
    alone = private(values)
    stores: list[Peer] = [Engram(setting.folder), *setting.peers()]
    for store in stores:
        store.put(NAME, values)
        assert store.total(NAME) == float(values.sum())  # noqa: S101 - else nothing is compared
    contestants = [
        Contestant("private array", lambda: timed(alone.sum)),
        *(Contestant(store.name, adding_up(store)) for store in stores),
    ]
    bounds = [Bound("engram", "private array", "speed", 0.97), Bound("engram", "h5py", "speed", 3)]
    bounds += [Bound("engram", store.name, "show") for store in stores[2:]]
    line = Line("open by path, view, sum of 64 MiB", "ms", bounds)
    yield measure(line, contestants, 3 * setting.rounds)
    for store in stores:
        store.close()


def adding_up(store: Peer) -> Callable[[], float]:
    """Return a round of one look-up and sum."""
    return lambda: timed(lambda: store.total(NAME))


def pages(setting: Setting) -> Iterator[Line]:
    """Add up and fill 64 MiB of a tmpfs file, on small pages and huge ones; make these of those.

    What that costs is what a store would have to earn back that did so when an array is first
    viewed.
    """
    values = large()
    alone = private(values)
    small, huge = (Pages(setting.folder / name, values) for name in _folders(setting))
    is_huge = huge.make_huge()
    arrays = {"private array": alone, "small pages": small.values}
    if is_huge:
        arrays["huge pages"] = huge.values
    for title, work in PAGE_WORK.items():
        turns = [
            Contestant(name, partial(timed, partial(work, each))) for name, each in arrays.items()
        ]
        bounds = [Bound(name, "private array", "show") for name in list(arrays)[1:]]
        line = Line(f"{title} of 64 MiB in memory, by its pages", "ms", bounds)
        yield measure(line, turns, 3 * setting.rounds)
    small.remove()
    huge.remove()
    if is_huge:
        yield measure(
            Line("make huge pages of 64 MiB on small ones", "ms", []),
            [Contestant("the kernel", lambda: _made_huge(setting, values))],
            setting.rounds,
        )


def _folders(setting: Setting) -> list[str]:
    """Make a folder for each of two files."""
    names = ["small", "huge"]
    for name in names:
        (setting.folder / name).mkdir(exist_ok=True)
    return names


def _made_huge(setting: Setting, values: Values) -> float:
    """Return how long the kernel takes."""
    found = Pages(setting.folder, values)
    float(found.values.sum())
    seconds = timed(found.make_huge)
    found.remove()
    return seconds
