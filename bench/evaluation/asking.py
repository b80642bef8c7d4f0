"""The papers' queries, and others, beside MIQS+ in memory, SQLite, DuckDB and brute force.

Rust asks Rust: Engram's engine, MIQS+ and SQLite (prepared statements) answer with numbers of
objects in one program, one thread, once they have been seen to find the same. DuckDB and Engram
are compared once more through Python, where both have its overhead.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import engram
from bench.evaluation import questions
from bench.evaluation.corpus import generate
from bench.evaluation.duck import Duck
from bench.evaluation.setup import Stage, stage, usual
from bench.harness import Bound, Contestant, Line, measure, timed
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

MIQS, TUNED, SQLITE, BRUTE = "MIQS+", "MIQS+ with presence", "SQLite", "brute force"
TRIGRAM = {"Q1", "Q4"}  # these ask for part of a path
MANY, FEW = 1_000_000, 10_000
SIXTEEN = 16
SELECTIVE_LIMIT = 3.0
MEMORY_LIMIT = 64 << 20
POLICIES = (
    ("dynamic, 4", 4, "dynamic"),
    ("fixed, 4", 4, "fixed"),
    ("fixed, all in one", 0, "fixed"),
)


def asked(setting: Setting) -> Iterator[Line]:
    """Ask every question of every contestant."""
    made = usual(setting)
    there = stage(setting, made)
    there.fill()
    papers = questions.papers(made)
    there.questions = papers + questions.more(made)
    bounded = {question.name for question in papers} - {"seven attributes"}
    answers = there.ask(setting.rounds, MIQS, TUNED, SQLITE, BRUTE, "engram")
    for question in there.questions:
        samples = answers[question.name]
        hits = int(samples.pop("hits")[0])
        what = "count of attributes" if question.wanted == "attributes" else f"{hits:,} hits"
        line = Line(f"{question.name} of {len(made):,} objects, Rust ({what})", "us", [])
        line.samples.update(samples)
        line.bounds += bounds(question.name, required=question.name in bounded)
        yield line
    yield from through_python(setting, there)
    there.clear()


def bounds(name: str, *, required: bool) -> list[Bound]:
    """Return what is required of a question, beside what is shown."""
    if required:
        found = [Bound("engram", MIQS, "speed", 1.0)]
        found.append(Bound("engram", SQLITE, "speed", 1.0 if name in TRIGRAM else 10.0))
    else:
        found = [Bound("engram", MIQS, "show"), Bound("engram", SQLITE, "show")]
    return [*found, Bound("engram", TUNED, "show"), Bound("engram", BRUTE, "show")]


def through_python(setting: Setting, there: Stage) -> Iterator[Line]:
    """Ask Engram and DuckDB the same from Python."""
    try:
        duck = Duck(there.corpus)
    except ImportError as refusal:
        setting.absent["DuckDB"] = str(refusal)
        setting.tell(f"DuckDB is left out: {refusal}")
        return
    with engram.open(there.pool) as pool:
        for question in there.questions:
            ours = asking(pool, question)
            assert ours() == duck.ask(question)  # noqa: S101 - else nothing is compared
            line = Line(f"{question.name}, Python", "us", [Bound("engram", "DuckDB", "show")])
            theirs = repeated("DuckDB", partial(duck.ask, question))
            yield measure(line, [repeated("engram", ours), theirs], setting.rounds)
    duck.close()


def asking(pool: Any, question: questions.Question) -> Callable[[], int]:
    """Return what asks Engram, and gives the number of hits or of attributes."""
    if question.wanted == "attributes":
        return lambda: int(pool.query(question.text).count_attributes())
    return lambda: len(pool.query(question.text).oids())


def repeated(name: str, ask: Callable[[], int]) -> Contestant:
    """Return a contestant that asks a few times a round."""

    def several() -> None:
        for _ in range(5):
            ask()

    return Contestant(name, lambda: timed(several, 5))


def growth(setting: Setting) -> Iterator[Line]:
    """Ask for up to ten objects among very many and among few; then what memory a query takes.

    Both right after loading, while what the load has left to unite and split still waits, and when
    that is done, which a thread of any process that has the pool open does by itself.
    """
    loaded, tended = {}, {}
    for count in (setting.scaled(MANY), FEW):
        made = generate(max(count // 2167, 1), SIXTEEN)
        there = stage(setting, made, f"growth-{count}")
        there.fill()
        there.questions = [
            q for q in questions.more(made) if q.name.startswith(("point", "range, d_utc"))
        ]
        loaded[count] = there.ask(setting.rounds, "engram")
        with engram.open(there.pool) as pool:
            taken_s = timed(pool.drain_index)
        tended[count] = there.ask(setting.rounds, "engram")
        if count != FEW:
            title = f"maintenance that {len(made):,} objects leave to be done, one thread"
            yield Line(title, "ms", [], {"engram": [taken_s]})
            yield from scans(setting, there)
        there.clear()
    yield from beside(tended, "", Bound("engram, many", "engram, few", "time", SELECTIVE_LIMIT))
    yield from beside(loaded, ", right after loading", Bound("engram, few", "engram, many", "show"))


def beside(answers: dict[int, dict[str, Any]], when: str, bound: Bound) -> Iterator[Line]:
    """Put the answers among many objects beside those among few."""
    many, few = answers
    for name, samples in answers[many].items():
        line = Line(f"{name}: {many:,} objects against {few:,}{when}", "us", [bound])
        line.samples["engram, many"] = samples["engram"]
        line.samples["engram, few"] = answers[few][name]["engram"]
        yield line


def scans(setting: Setting, there: Stage) -> Iterator[Line]:
    """Scan with two threads and with one, and see what memory that takes."""
    scan = "(d_lat > 0 or source = 'source-01') and not (region = 'region-00')"
    there.questions = [questions.both_ways("scan", scan)]
    samples = there.ask(setting.rounds, "engram", "engram on two threads")["scan"]
    hits = int(samples.pop("hits")[0])
    line = Line(f"scan of {len(there.corpus):,} objects ({hits:,} hits), two threads", "ms", [])
    line.samples.update(samples)
    line.bounds.append(Bound("engram on two threads", "engram", "speed", 1.5))
    yield line
    there.questions += questions.more(there.corpus)
    questions.write(there.questions, there.folder / "questions")
    taken = rust.run("memory", there.folder, there.folder / "questions")
    most = max(taken.values(), key=lambda each: float(each["engram"][0]))
    bound = Bound("engram", "", "value", MEMORY_LIMIT)
    title = f"memory of a query over {len(there.corpus):,} objects beyond its result"
    yield Line(title, "MiB", [bound], {"engram": [most["engram"][0]]})


def policies(setting: Setting) -> Iterator[Line]:
    """Ask with attribute groups that never change and with such that do."""
    made = usual(setting)
    there = stage(setting, made)
    there.questions = questions.papers(made)
    answers = {}
    for name, per_group, policy in POLICIES:
        there.fill(per_group=per_group, policy=policy)
        answers[name] = there.ask(setting.rounds, "engram")
    there.clear()
    for question in there.questions:
        line = Line(f"{question.name}, fixed against dynamic, Rust", "us", [])
        line.samples = {name: answer[question.name]["engram"] for name, answer in answers.items()}
        dynamic, *others = line.samples
        line.bounds = [Bound(dynamic, other, "show") for other in others]
        yield line
