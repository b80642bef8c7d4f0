"""Empty calls of an object that another node has, beside dataClay's backend and Dask's worker."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

import engram
from bench.active.small import repeated
from bench.active.way import Fleet
from bench.cluster.rig import Rig
from bench.harness import Bound, Contestant, Line, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

TIMES = 500


class Tally(engram.ActiveObject):
    """A counter, and methods that do nothing."""

    value: int = 0

    @engram.activemethod
    def increment(self) -> None:
        """Add one; it is stored when the call returns."""
        self.value += 1

    @engram.activemethod(read_only=True)
    def nothing(self) -> None:
        """Do nothing."""


def nothing() -> None:
    """Do nothing, as a task of Dask."""


def lines(setting: Setting) -> Iterator[Line]:
    """Call an object of a node that is not this process's own."""
    times = setting.scaled(TIMES)
    line = Line(
        "a call of a method of an object that another node has",
        "us",
        [
            Bound("empty call", "dataclay's increment", "time", 0.3),
            Bound("empty call", "a Dask task", "time", 0.1),
            Bound("increment", "dataclay's increment", "show"),
        ],
    )
    with contextlib.ExitStack() as stack:
        rig = stack.enter_context(Rig(setting.folder, 2, "64 MiB", secure=True))
        cluster = rig.open(0)
        far = next(each for each in cluster.members if each.node != cluster.node)
        tally = Tally()
        tally.make_persistent("tally", backend_id=far)
        works: dict[str, Callable[[], object]] = {
            "empty call": tally.nothing,
            "increment": tally.increment,
        }
        fleet = Fleet(["dataclay"], setting.folder, setting.tell, once=True)
        stack.callback(fleet.close)
        for way in fleet.fresh():
            works["dataclay's increment"] = way.counter()
        setting.absent |= fleet.absent
        works["a Dask task"] = stack.enter_context(_task())
        contestants = [
            Contestant(name, partial(timed, repeated(work, times), times))
            for name, work in works.items()
        ]
        measure(line, contestants, setting.rounds)
    line.remarks.append(
        "an increment is in the pool when the call returns, and in the memory of dataClay's "
        "backend; all processes share the cores of this machine"
    )
    yield line


@contextlib.contextmanager
def _task() -> Iterator[Callable[[], object]]:
    """Give what runs an empty task in another process."""
    from distributed import Client, LocalCluster  # noqa: PLC0415 - only this needs it

    # dataClay has all logs of this process shown.
    logging.getLogger("distributed").setLevel(logging.WARNING)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, protocol="tcp"
        ) as local,
        Client(local) as client,
    ):
        yield lambda: client.submit(nothing, pure=False).result()
