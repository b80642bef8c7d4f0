"""What is asked of Engram's ways, line by line."""

from __future__ import annotations

from bench.active.drivers import VOLATILE
from bench.harness import Bound

OF_THE_LIMIT = 0.95
OF_REDIS = {
    "histogram": 1.15,
    "k-means": 2.0,
    "matrix addition": 5.0,
    "matrix multiplication": 1.3,
}
IN_PLACE_AT_MOST = 1.10
WORDS_AT_MOST = 1.25
OF_DATACLAY = 20.0
CALL_AT_MOST_S = 5e-6
WORKER_CALL_AT_MOST_S = 150e-6
OTHERS = ("engram-worker", "engram-copy", "redis-pickle", "dataclay")


def of_application(application: str, result: str) -> list[Bound]:
    """Return what is asked of an application: plain numpy's speed, and more than Redis's."""
    if result != VOLATILE:
        return of_method("limit", "redis")
    return [
        Bound("engram", "limit", "speed", OF_THE_LIMIT),
        Bound("engram", "redis", "speed", OF_REDIS[application]),
        *of_method(),
    ]


def of_method(*first: str) -> list[Bound]:
    """Return what is shown where nothing is asked."""
    return [Bound("engram", other, "show") for other in (*first, *OTHERS)]
