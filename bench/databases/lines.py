"""Measures: every question of every side by turns, and then what the sides are like otherwise.

Nobody is timed before all have answered alike. What takes little time is asked several times in
its turn.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.databases import questions, writers
from bench.databases.corpus import generate
from bench.databases.sides import AbsentError, Brute, Duck, Engram, Side, Sqlite, same
from bench.evaluation.corpus import OBJECTS
from bench.harness import Bound, Contestant, Line, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.databases.corpus import Corpus
    from bench.databases.questions import Question
    from bench.databases.sides import Policy
    from bench.setting import Setting

OURS, DUCK, SQLITE, BRUTE = "engram", "DuckDB", "SQLite", "brute force"
TWO = ", two threads"
SHORT_S = 100e-6
"""Below this much time of SQLite's, Engram may take `AT_MOST` times as much."""
AT_MOST = 3.0
SELECTIVE = 3.0
SPEEDUP = 1.5
TURN_S = 0.02
MOST_A_TURN = 200
FEW_GRANULES = 4
LAYOUTS: dict[str, Policy] = {"split": "dynamic", "unsplit": "fixed"}
WRITING_S = 3.0
TURNS = 3
WRITTEN = ("point", "top 10 by a key")
WRITERS = (OURS, DUCK, SQLITE)


@dataclass
class Sides:
    """All who answer, over one corpus."""

    corpus: Corpus
    engram: Engram
    sqlite: Sqlite
    brute: Brute
    duck: Duck | None
    asked: dict[str, tuple[Side, int]] = field(init=False)
    """By name: who, and with how many threads."""

    def __post_init__(self) -> None:
        self.asked = {OURS: (self.engram, 1), OURS + TWO: (self.engram, 2)}
        if self.duck is not None:
            self.asked |= {DUCK: (self.duck, 1), DUCK + TWO: (self.duck, 2)}
        self.asked |= {SQLITE: (self.sqlite, 1), BRUTE: (self.brute, 1)}

    def close(self) -> None:
        """Remove what they keep."""
        self.engram.close()
        self.sqlite.close()
        if self.duck is not None:
            self.duck.close()


def filled(setting: Setting, corpus: Corpus) -> Sides:
    """Store the corpus with all of them."""
    setting.tell(f"Filling {len(corpus):,} objects")
    pool = Engram(setting.folder / "pool", corpus)
    sqlite = Sqlite(setting.folder / "peer.sqlite", corpus)
    duck = None
    try:
        duck = Duck(setting.folder / "peer.duckdb", corpus)
    except ImportError as refusal:
        setting.absent[DUCK] = str(refusal)
    return Sides(corpus, pool, sqlite, Brute(corpus), duck)


def beside(setting: Setting, granules: int) -> Iterator[Line]:
    """Ask everything of everybody, over so many granules."""
    corpus = generate(granules)
    there = filled(setting, corpus)
    for question in questions.all_of(corpus):
        yield asked(setting, there, question)
    yield sizes(there)
    yield from meanwhile(setting, there)
    there.close()


def asked(setting: Setting, there: Sides, question: Question) -> Line:
    """Ask one question of all by turns."""
    found = answers(setting, there, question)
    hits = len(there.brute.ask(question))
    what = "keys" if question.averages else "hits"
    line = Line(f"{question.name}, {len(there.corpus):,} objects ({hits:,} {what})", "us", [])
    contestants = [Contestant(name, turn(*there.asked[name], question)) for name in found]
    measure(line, contestants, setting.rounds)
    line.bounds = bounds(line)
    return line


def answers(setting: Setting, there: Sides, question: Question) -> list[str]:
    """Return who can answer; all of them have found the same."""
    truth = (there.brute, there.brute.ask(question))
    able = []
    for name, (side, threads) in there.asked.items():
        side.use(threads)
        try:
            answer = side.ask(question)
        except AbsentError as why:
            setting.absent[f"{name}: {question.name}"] = str(why)
            continue
        if not same(question, (side, answer), truth):
            raise AssertionError(f"{name} answers {question.name!r} otherwise than numpy")
        able.append(name)
    return able


def turn(side: Side, threads: int, question: Question) -> Callable[[], float]:
    """Return what asks often enough to be timed, and gives the seconds of one time."""
    side.use(threads)
    once_s = min(timed(partial(side.ask, question)) for _ in range(2))
    often = int(np.clip(TURN_S / max(once_s, 1e-9), 1, MOST_A_TURN))

    def several() -> None:
        for _ in range(often):
            side.ask(question)

    def run() -> float:
        side.use(threads)
        return timed(several, often)

    return run


def bounds(line: Line) -> list[Bound]:
    """Return what is asked for: DuckDB's time, and SQLite's where that is less."""
    if OURS not in line.samples:
        return []
    found = []
    if DUCK in line.samples:
        found.append(Bound(OURS, DUCK, "speed", 1.0))
        found.append(Bound(OURS + TWO, DUCK + TWO, "show"))
    medians = {name: float(np.median(values)) for name, values in line.samples.items()}
    if medians[SQLITE] < SHORT_S:
        found.append(Bound(OURS, SQLITE, "time", AT_MOST))
    elif medians[SQLITE] < medians.get(DUCK, np.inf):
        found.append(Bound(OURS, SQLITE, "speed", 1.0))
    else:
        found.append(Bound(OURS, SQLITE, "show"))
    found.append(Bound(OURS, BRUTE, "show"))
    if line.title.startswith("scan"):
        found.append(Bound(OURS + TWO, OURS, "speed", SPEEDUP))
    return found


def sizes(there: Sides) -> Line:
    """Compare the bytes of the indexes."""
    count = len(there.corpus)
    line = Line(f"bytes of the index for an object, {count:,} objects", "B", [])
    line.samples[OURS] = [there.engram.pool.index_stats().nbytes / count]
    line.samples[SQLITE] = [there.sqlite.index_bytes / count]
    line.bounds = [Bound(OURS, SQLITE, "show")]
    if there.duck is not None:
        line.samples["DuckDB, whole table"] = [there.duck.nbytes() / count]
        line.bounds.append(Bound(OURS, "DuckDB, whole table", "show"))
    return line


def meanwhile(setting: Setting, there: Sides) -> Iterator[Line]:
    """Ask while two write: how long questions take, half of them and ninety-nine of a hundred."""
    corpus, seconds = there.corpus, WRITING_S / (3 if setting.quick else 1)
    named = [q for q in questions.all_of(corpus) if q.name in WRITTEN]
    for question in named:
        title = f"{question.name} while two write, {len(corpus):,} objects"
        half, most = (Line(f"{title}, {share}", "us", []) for share in ("p50", "p99"))
        written = Line(f"{title}: commits a second of the writers", "", [])
        for turn_ in range(TURNS):
            for name, (side, threads) in there.asked.items():
                if name not in WRITERS:
                    continue
                side.use(threads)
                mark = f"{WRITTEN.index(question.name)}{turn_}"
                taken, count = latencies(side, question, mark, seconds)
                half.samples.setdefault(name, []).append(float(np.percentile(taken, 50)))
                most.samples.setdefault(name, []).append(float(np.percentile(taken, 99)))
                written.samples.setdefault(name, []).append(count / seconds)
        for line in (half, most):
            line.bounds = [Bound(OURS, peer, "show") for peer in line.samples if peer != OURS]
            yield line
        yield written


def latencies(side: Side, question: Question, mark: str, seconds: float) -> tuple[list[float], int]:
    """Ask again and again while two write: how long each time took, and how often they wrote."""
    writing: writers.Threads | writers.Processes
    match side:
        case Duck():
            writing = writers.Threads(side, int(mark), seconds)
        case Sqlite():
            writing = writers.Processes("sqlite", side.path, mark, seconds)
        case Engram():
            writing = writers.Processes("engram", Path(side.pool.path), mark, seconds)
        case _:
            raise TypeError(side)
    taken = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        taken.append(timed(partial(side.ask, question)))
    return taken, writing.wait()


def selective(setting: Setting, granules: int) -> Iterator[Line]:
    """Ask for a few objects among very many and among few; split or not, with a tail or none."""
    many, few = generate(granules), generate(FEW_GRANULES)
    pools: dict[tuple[str, str], Engram] = {}
    for layout, policy in LAYOUTS.items():
        for name, corpus in (("many", many), ("few", few)):
            setting.tell(f"Filling {len(corpus):,} objects, {layout}")
            pools[layout, name] = Engram(setting.folder / f"{layout}-{name}", corpus, policy)
    for tail in ("empty", "full"):
        waiting = {}
        for (_, name), pool in pools.items():
            corpus = many if name == "many" else few
            waiting[pool.pool.path] = pool.fill_tail(corpus) if tail == "full" else pool.tail()
        for layout in ("split", "unsplit"):
            both = [(pools[layout, "many"], many), (pools[layout, "few"], few)]
            for line in apart(setting, both, f"{layout}, tail {tail}"):
                stats = both[0][0].pool.index_stats()
                line.remarks.append(
                    f"{stats.segments} segments after {stats.splits} splits, and "
                    f"{waiting[both[0][0].pool.path]} objects in the tail"
                )
                yield line
    for pool in pools.values():
        pool.close()


def apart(setting: Setting, both: list[tuple[Engram, Corpus]], how: str) -> Iterator[Line]:
    """Ask the same among very many and among few."""
    asked_ = [questions.selective(corpus) for _, corpus in both]
    for pair in zip(*asked_, strict=True):
        for (pool, corpus), question in zip(both, pair, strict=True):
            brute = Brute(corpus)
            if not same(question, (pool, pool.ask(question)), (brute, brute.ask(question))):
                raise AssertionError(f"{question.name!r} is answered otherwise than by numpy")
        title = f"{pair[0].name}: {len(both[0][1]):,} objects against {len(both[1][1]):,}, {how}"
        bound = Bound("engram, many", "engram, few", "time", SELECTIVE)
        names = ("engram, many", "engram, few")
        contestants = [
            Contestant(name, turn(pool, 1, question))
            for name, (pool, _), question in zip(names, both, pair, strict=True)
        ]
        yield measure(Line(title, "us", [bound]), contestants, setting.rounds)


def granules_of(objects: int) -> int:
    """Return how many granules have about so many objects."""
    return max(round(objects / OBJECTS), 3)


def everything(setting: Setting, counts: list[int]) -> Iterator[Line]:
    """Measure all, with each number of objects."""
    for count in counts:
        yield from beside(setting, granules_of(count))
    yield from selective(setting, granules_of(counts[0]))
