"""Watching: how soon who sleeps has what another process stores, beside a bare futex.

Two processes wake each other by turns, each on a processor of its own: by arrays that they put and
watch for, and by two words of shared memory and the kernel's calls alone. A round trip is two
wake-ups; ours has two puts in it, which are measured beside it. And puts are measured where nobody
watches, and where a watcher has been killed or stands still.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

import engram
from bench.harness import PLACES, Bound, Contestant, Line, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

SMALL = np.arange(32.0)  # 256 B
TRIPS = 2000
PUTS = 5000
_FUTEX, _WAIT, _WAKE = 202, 0, 1  # on x86-64
_APART = 128


def lines(setting: Setting) -> Iterator[Line]:
    """Wake by turns; put beside watchers that are no more."""
    woken = Line("wake a process by what is stored", "us", [Bound("engram", "futex", "time", 3)])
    put = Line(
        "put 256 B where nobody watches",
        "us",
        [Bound("killed", "nobody", "time", 1.02), Bound("stopped", "nobody", "time", 1.02)],
    )
    for place in range(PLACES):
        with engram.create(setting.folder / f"watch-{place}", size="256 MiB") as pool:
            trips = setting.scaled(TRIPS)
            contestants = [
                Contestant("engram", partial(by_watching, pool, trips)),
                Contestant("futex", partial(by_futex, trips)),
            ]
            measure(woken, contestants, setting.rounds)
        engram.destroy(setting.folder / f"watch-{place}")
        putting(put, setting, place)
    yield from (woken, put)


def apart(process: int) -> None:
    """Keep this process on a processor of its own, if there are two."""
    all_ = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {all_[process % len(all_)]})


def beside(work: Callable[[], object]) -> int:
    """Fork a process that does this on the second processor."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            apart(1)
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def by_watching(pool: engram.Pool, trips: int) -> float:
    """Seconds that one takes to be woken by what the other has put."""

    def answer() -> None:
        with engram.open(pool.path) as own:
            watch = own.watch("@name = 'ping'")
            own["ready"] = SMALL
            for _ in range(trips):
                next(watch)
                own["pong"] = SMALL

    def ask() -> None:
        for _ in range(trips):
            pool["ping"] = SMALL
            next(watch)

    usual = os.sched_getaffinity(0)
    ready, watch = pool.watch("@name = 'ready'"), pool.watch("@name = 'pong'")
    child = beside(answer)
    apart(0)
    next(ready)
    taken = timed(ask, 2 * trips)
    os.waitpid(child, 0)
    os.sched_setaffinity(0, usual)
    return taken


def by_futex(trips: int) -> float:
    """Seconds that one takes to be woken by the other's change of a word."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    words = [ctypes.c_uint32.from_address(at + _APART * n) for n in range(2)]
    places = [ctypes.c_void_p(at + _APART * n) for n in range(2)]
    kernel = ctypes.CDLL(None).syscall

    def wait(word: int, while_: int) -> None:
        while words[word].value == while_:
            kernel(_FUTEX, places[word], _WAIT, while_, None, None, 0)

    def wake(word: int, value: int) -> None:
        words[word].value = value
        kernel(_FUTEX, places[word], _WAKE, 1, None, None, 0)

    def answer() -> None:
        for trip in range(trips):
            wait(0, trip)
            wake(1, trip + 1)

    def ask() -> None:
        for trip in range(trips):
            wake(0, trip + 1)
            wait(1, trip)

    usual = os.sched_getaffinity(0)
    child = beside(answer)
    apart(0)
    taken = timed(ask, 2 * trips)
    os.waitpid(child, 0)
    os.sched_setaffinity(0, usual)
    return taken


def putting(line: Line, setting: Setting, place: int) -> None:
    """Put small arrays in pools that nobody watches, of which some were watched."""
    pools, watchers = {}, []
    for name in ("nobody", "killed", "stopped"):
        pools[name] = engram.create(setting.folder / f"{name}-{place}", size="256 MiB")
        if name != "nobody":
            watchers.append(watcher(pools[name]))
    os.kill(watchers[0], signal.SIGKILL)
    os.waitpid(watchers[0], 0)
    os.kill(watchers[1], signal.SIGSTOP)
    number = setting.scaled(PUTS)
    contestants = [Contestant(name, put(pool, number)) for name, pool in pools.items()]
    measure(line, contestants, setting.rounds)
    os.kill(watchers[1], signal.SIGKILL)
    os.waitpid(watchers[1], 0)
    for pool in pools.values():
        path = pool.path
        pool.close()
        engram.destroy(path)


def watcher(pool: engram.Pool) -> int:
    """Begin a process that sleeps for what never comes; it is there when this returns."""

    def sleep() -> None:
        with engram.open(pool.path) as own:
            watch = own.watch("exists(never)")
            own["ready"] = SMALL
            next(watch)

    ready = pool.watch("@name = 'ready'", existing=True)
    child = beside(sleep)
    next(ready)
    return child


def put(pool: Any, number: int) -> Callable[[], float]:
    """Put many, each round in a group of its own."""
    rounds = count()

    def work(group: Any) -> None:
        for name in range(number):
            group[f"{name}"] = SMALL

    def turn() -> float:
        group = pool.create_group(f"round-{next(rounds)}")
        taken = timed(lambda: work(group), number)
        del pool[group.path]
        return taken

    return turn
