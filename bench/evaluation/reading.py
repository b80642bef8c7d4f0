"""End to end: ask, open every hit, read it and add it up.

Engram opens a pool and MIQS+ the HDF5 files that its paths name, on the same mount, through Python
both. MIQS+ opens each file once for a question. Both have been asked before, so pages are warm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py

import engram
from bench.evaluation import corpus, questions
from bench.evaluation.setup import stage, usual
from bench.harness import Bound, Contestant, Line, measure, timed
from bench.own import miqs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.evaluation.questions import Question
    from bench.own.miqs import Miqs
    from bench.setting import Setting

LIMIT = 5.0


def lines(setting: Setting) -> Iterator[Line]:
    """Ask the papers' queries and read what they find."""
    made = usual(setting)
    there = stage(setting, made)
    there.fill()
    folder = setting.files
    if folder is None:
        folder = setting.folder / "granules"
        folder.mkdir()
        corpus.stand_ins(made, folder)
    index = miqs.new()
    index.load(str(there.file))
    with engram.open(there.pool) as pool:
        for question in questions.papers(made):
            yield compare(setting, question, pool, index, folder)
    there.clear()


def compare(setting: Setting, question: Question, pool: Any, index: Miqs, folder: Path) -> Line:
    """Measure one question."""
    required = question.name.startswith("Q")
    bound = Bound("engram", "MIQS+ on HDF5", "speed" if required else "show", LIMIT)
    line = Line(f"{question.name} end to end, Python", "ms", [bound])
    ours, theirs = from_pool(pool, question), from_files(index, question, folder)
    assert ours() == theirs()  # noqa: S101 - else nothing is compared
    contestants = [
        Contestant("MIQS+ on HDF5", lambda: timed(theirs)),
        Contestant("engram", lambda: timed(ours)),
    ]
    return measure(line, contestants, max(setting.rounds // 2, 3))


def from_pool(pool: Any, question: Question) -> Callable[[], float]:
    """Return what asks a pool, and reads what is found."""
    ask = count_pool if question.wanted == "attributes" else read_pool
    return lambda: ask(pool, question.text)


def from_files(index: Miqs, question: Question, folder: Path) -> Callable[[], float]:
    """Return what asks MIQS+, and reads the files."""
    if question.wanted == "attributes":
        return lambda: count_files(index, question.text)
    return lambda: read_files(index, question.text, folder)


def count_pool(pool: Any, text: str) -> float:
    """Count the attributes of the objects found in a pool."""
    return float(pool.query(text).count_attributes())


def count_files(index: Miqs, text: str) -> float:
    """Count the attributes of the objects found in files, from the index alone."""
    return float(index.count_attributes(text))


def read_pool(pool: Any, text: str) -> float:
    """Find objects in a pool, and add up their values."""
    return float(sum(found[...].sum() for found in pool.query(text)))


def read_files(index: Miqs, text: str, folder: Path) -> float:
    """Find paths, open their files, and add up their values."""
    total, name, file = 0.0, "", None
    for path in index.query(text):
        granule, _, rest = path.partition("/")
        if granule != name or file is None:
            if file is not None:
                file.close()
            name, file = granule, h5py.File(find(folder, granule))
        total += float(file[rest][...].sum())
    if file is not None:
        file.close()
    return total


def find(folder: Path, granule: str) -> Path:
    """Return a granule's file."""
    exact = folder / f"{granule}.h5"
    return exact if exact.exists() else next(iter(sorted(folder.glob(f"{granule}.*"))))
