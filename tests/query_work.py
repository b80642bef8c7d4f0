"""Changes to a pool, as tests of queries make them: in this process, in another, until killed.

As a script it is that other process. `query_work.py serve` does what it is sent, one step after the
other, and verifies a pool when asked to. `query_work.py loop POOL SEED` does random steps for ever
and says after each commit what it was, so that whoever kills it knows what must be there.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import sys
from typing import Any

import numpy as np

import engram
from engram import _engram

Work = tuple[Any, ...]

LOOP_PATHS = [f"{group}{name}" for group in ("", "g/", "g/h/", "k/") for name in "abcdefgh"]
LOOP_MODES = (None, "sync", "async", "none")


def work(pool: engram.Pool, step: Work) -> None:
    """Do one step; what the pool refuses (a missing path, a taken name) is no change."""
    kind, *rest = step
    if kind == "batch":
        with pool.batch():
            for inner in rest[0]:
                work(pool, inner)
        return
    with contextlib.suppress(engram.EngramError):
        _STEPS[kind](pool, *rest)


def _put(pool: engram.Pool, path: str, data: Any, attrs: dict[str, Any], mode: Any) -> None:
    create = pool.create_blob if isinstance(data, bytes) else pool.create_array
    create(path, data=data, attrs=attrs, index=mode, overwrite=True)


def _annotate(pool: engram.Pool, path: str, attrs: dict[str, Any]) -> None:
    (pool[path] if path else pool).attrs.update(attrs)


def _forget(pool: engram.Pool, path: str, key: str) -> None:
    del pool[path].attrs[key]


def _delete(pool: engram.Pool, path: str) -> None:
    del pool[path]


def _promote(pool: engram.Pool, path: str) -> None:
    found = pool[path]
    if not isinstance(found, engram.Group):
        found.view("r+")


def _drain(pool: engram.Pool) -> None:
    pool.drain_index()


def _settings(pool: engram.Pool, path: str, mode: Any) -> None:
    (pool[path] if path else pool).set_index(index=mode, attributes_per_group=2, segment_rows=8)


def _reindex(pool: engram.Pool, path: str) -> None:
    (pool[path] if path else pool).reindex()


_STEPS: dict[str, Any] = {
    "put": _put,
    "annotate": _annotate,
    "forget": _forget,
    "delete": _delete,
    "move": engram.Pool.move,
    "promote": _promote,
    "drain": _drain,
    "settings": _settings,
    "reindex": _reindex,
}


VERIFY = ("verify",)
"""What has `serve` do what `engram.verify` does in a new process, which takes long to start."""


def serve() -> None:
    """Do what is sent to stdin: (path of a pool, step); a step of None closes that pool.

    Each is answered with a line: the problems that verifying has found, in JSON.
    """
    pools: dict[str, engram.Pool] = {}
    with contextlib.suppress(EOFError):
        while True:
            path, step = pickle.load(sys.stdin.buffer)
            problems: list[str] = []
            if step == VERIFY:
                try:
                    problems, _, _ = _engram.verify(path)
                except engram.EngramError as error:
                    problems = [str(error)]
            elif step is None:
                if path in pools:
                    pools.pop(path).close()
            else:
                if path not in pools:
                    pools[path] = engram.open(path)
                work(pools[path], step)
            sys.stdout.write(f"{json.dumps(problems)}\n")
            sys.stdout.flush()


def random_step(chance: random.Random, number: int) -> Work:
    """Make a step that a loop does: mostly puts, each with a number of its own."""
    path = chance.choice(LOOP_PATHS)
    kind = chance.choices(
        ["put", "annotate", "forget", "delete", "move", "batch", "drain"],
        [8, 3, 1, 2, 1, 2, 1],
    )[0]
    attrs = {
        "seq": number,
        "t": np.float32(chance.choice([-20, -15.5, 0, 3])),
        "name": chance.choice(["x", "y", "xy"]),
        **({"rare": number} if chance.random() < 0.2 else {}),
    }
    puts = [
        ("put", p, b"blob", {**attrs, "place": n}, chance.choice(LOOP_MODES))
        for n, p in enumerate(chance.sample(LOOP_PATHS, 9))
    ]
    steps: dict[str, Work] = {
        "put": ("put", path, np.arange(number % 5), attrs, chance.choice(LOOP_MODES)),
        "annotate": ("annotate", path, {"t": chance.randrange(9), "seq": number}),
        "forget": ("forget", path, "t"),
        "delete": ("delete", path),
        "move": ("move", path, chance.choice(LOOP_PATHS)),
        "batch": ("batch", puts),
        "drain": ("drain",),
    }
    return steps[kind]


def loop(path: str, seed: int) -> None:
    """Do random steps for ever, saying the number of each once it is committed."""
    chance = random.Random(seed)  # noqa: S311 - the same steps for the same seed
    with engram.open(path) as pool:
        for number in range(1 << 40):
            work(pool, random_step(chance, number))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        loop(sys.argv[2], int(sys.argv[3]))
