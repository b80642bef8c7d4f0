"""Figure 12 and Table 4 of the papers at the papers' own size: 4,137 granules, 9 million objects.

Pools lie on a disk, as a machine's memory may be too small for two of them; what a question touches
is in memory once it has been asked. Bytes of Engram's index are those of its tables. Of the HDF5
files those are made that a question reads. `--where` and `--files` have no say here.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import engram
from bench.evaluation import corpus, questions, reading
from bench.evaluation.asking import MIQS
from bench.evaluation.building import disk, peer_bytes
from bench.evaluation.setup import GROUPING, index_bytes, stage
from bench.harness import Bound, Contestant, Line, measure, timed
from bench.own import miqs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.evaluation.corpus import Corpus
    from bench.evaluation.questions import Question
    from bench.evaluation.setup import Stage
    from bench.setting import Setting

GRANULES = 4137
SHARES = (8, 4, 2, 1)  # of the granules, in Figure 12
WIDE = 32
ROUNDS = 3
FIXED, DYNAMIC = "engram, fixed", "engram, dynamic"


def lines(setting: Setting) -> Iterator[Line]:
    """Give the bytes of the index by granules, then ask the papers' questions of all of them."""
    most = setting.scaled(GRANULES)
    with tempfile.TemporaryDirectory(prefix="engram-papers-", dir=disk()) as folder:
        there = replace(setting, folder=Path(folder))
        for share in SHARES:
            yield storage(there, most // share)
        yield from table4(there, most)


def storage(setting: Setting, granules: int) -> Line:
    """Give the index's bytes with groups that never change, as Figure 12 has it, beside MIQS+."""
    there = stage(setting, corpus.generate(granules))
    line = Line(
        f"bytes of the index: {granules:,} granules, {len(there.corpus):,} objects", "MiB", []
    )
    names = {GROUPING: f"engram, {GROUPING} in a group", WIDE: f"engram, {WIDE} in a group"}
    for per_group, name in names.items():
        line.samples[name] = [index_bytes(there.fill(per_group=per_group, policy="fixed"))]
        line.bounds.append(Bound(name, MIQS, "show"))
    there.clear()
    line.samples |= peer_bytes(there)
    return line


def table4(setting: Setting, granules: int) -> Iterator[Line]:
    """Ask Q1 to Q5 in Rust, and end to end in Python; with fixed groups and dynamic ones."""
    made = corpus.generate(granules)
    asked = questions.papers(made)[:5]
    pools = {name: stage(setting, made, name[8:]) for name in (FIXED, DYNAMIC)}
    found = {question.name: Line("", "us", []) for question in asked}
    for name, there in pools.items():
        taken_s = there.fill(policy=name[8:])["whole"]["taken"][0]
        setting.tell(f"{name}: {1e6 * taken_s:.1f} us to store an object")
        with engram.open(there.pool) as pool:
            pool.drain_index()
        there.questions = asked
        for question, samples in there.ask(setting.rounds, MIQS, "engram").items():
            line, hits = found[question], int(samples.pop("hits")[0])
            line.title = f"{question} of {len(made):,} objects, Rust ({hits:,} hits)"
            line.samples |= {name: samples["engram"], f"{MIQS}, beside {name[8:]}": samples[MIQS]}
            line.bounds.append(Bound(name, f"{MIQS}, beside {name[8:]}", "show"))
    yield from found.values()
    yield from end_to_end(setting, made, pools, asked)
    for there in pools.values():
        there.clear()


def end_to_end(
    setting: Setting, made: Corpus, pools: dict[str, Stage], asked: list[Question]
) -> Iterator[Line]:
    """Ask, open every hit, read it and add it up."""
    folder = setting.folder / "granules"
    folder.mkdir()
    corpus.stand_ins(made, folder, {made.granules[number] for number in read(made)})
    index = miqs.new()
    index.load(str(next(iter(pools.values())).file))
    with ExitStack() as stack:
        opened = {name: stack.enter_context(engram.open(it.pool)) for name, it in pools.items()}
        for question in asked:
            sides = {MIQS: reading.from_files(index, question, folder)}
            sides |= {name: reading.from_pool(pool, question) for name, pool in opened.items()}
            assert len({side() for side in sides.values()}) == 1, question  # noqa: S101
            line = Line(f"{question.name} end to end of {len(made):,} objects, Python", "ms", [])
            line.bounds = [Bound(name, MIQS, "show") for name in pools]
            contestants = [Contestant(name, partial(timed, side)) for name, side in sides.items()]
            yield measure(line, contestants, ROUNDS)


def read(made: Corpus) -> set[int]:
    """Return the granules whose objects a question reads."""
    date = next(column for column in made.columns if column.name == "date")
    days = np.flatnonzero(date.codes == date.values.index(corpus.DATE))
    of_date = set(made.granule_of[days].tolist())
    return of_date | {len(made.granules) // 2, min(2, len(made.granules) - 1)}
