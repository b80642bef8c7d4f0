"""The benchmark beside databases: all sides find the same, and its page can be written."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bench import report
from bench.databases import lines, questions, writers
from bench.databases.corpus import Corpus, generate
from bench.databases.sides import AbsentError, Brute, same
from bench.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("duckdb")

ROOT = Path(__file__).parents[1]
GRANULES, OBJECTS = 4, 300


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return generate(GRANULES, OBJECTS)


@pytest.fixture
def setting(home: Path) -> Setting:
    return Setting(home, quick=True, tell=lambda _: None)


@pytest.fixture
def there(setting: Setting, corpus: Corpus) -> Iterator[lines.Sides]:
    made = lines.filled(setting, corpus)
    yield made
    made.close()


def test_a_corpus_is_the_same_each_time_and_has_its_shape(corpus: Corpus) -> None:
    again = generate(GRANULES, OBJECTS)
    assert len(corpus) == len(corpus.paths) == GRANULES * OBJECTS == len(set(corpus.paths))
    for name, column in corpus.columns.items():
        np.testing.assert_array_equal(column, again.columns[name])
        assert len(column) == len(corpus)
    assert len(np.unique(corpus.columns["lat"])) == len(corpus)
    assert (np.diff(corpus.columns["time"]) > 0).all()
    row = corpus.rows(OBJECTS + 1, 1)[0]
    assert row["orbit"] == 1014
    assert row["remark"] == corpus.remarks[OBJECTS + 1]


def test_all_sides_answer_alike(setting: Setting, there: lines.Sides) -> None:
    asked = questions.all_of(there.corpus)
    for question in asked:
        able = lines.answers(setting, there, question)
        assert set(there.asked) - set(able) <= {"engram", "engram, two threads"}, setting.absent
        assert len(there.brute.ask(question)) > 0, question.name
        # What is said to be absent cannot be asked for, and is named with its reason.
        for name in set(there.asked) - set(able):
            assert question.averages
            assert setting.absent[f"{name}: {question.name}"]
            with pytest.raises(AbsentError):
                there.engram.ask(question)


def test_an_answer_that_differs_is_found(there: lines.Sides, setting: Setting) -> None:
    right = questions.between("range", -90.0, 0.0)
    wrong = replace(right, text="lat between -90.0 and 45.0")
    with pytest.raises(AssertionError, match="engram answers 'range' otherwise"):
        lines.answers(setting, there, wrong)
    brute = Brute(there.corpus)
    means = brute.ask(questions.average())
    first = next(iter(means))
    for other in (means | {first: means[first] + 1e-6}, {**means, "x": 1.0}):
        assert not same(questions.average(), (brute, means), (brute, other))
    top = brute.ask(questions.top())
    assert not same(questions.top(), (brute, top), (brute, top[::-1]))


def test_a_tail_is_filled_without_changing_answers(there: lines.Sides) -> None:
    assert there.engram.tail() == 0
    assert there.engram.fill_tail(there.corpus) > 0
    for question in questions.selective(there.corpus):
        brute = there.brute.ask(question)
        assert same(question, (there.engram, there.engram.ask(question)), (there.brute, brute))


def test_two_write_while_one_asks(there: lines.Sides) -> None:
    question = questions.point(there.corpus, 5)
    assert there.duck is not None
    for mark, side in (("1", there.engram), ("2", there.sqlite), ("3", there.duck)):
        taken, count = lines.latencies(side, question, mark, 0.3)
        assert taken
        assert count > 0
    assert there.engram.pool.query("remark = 'written meanwhile'").count() > 0
    found = there.sqlite.connection.execute(
        "SELECT count(*) FROM remarks WHERE remarks MATCH '\"written meanwhile\"'"
    )
    assert found.fetchone()[0] > 0
    assert set(writers.ROW) == set(there.corpus.columns)


def test_the_page_is_written_from_what_was_measured(
    setting: Setting, corpus: Corpus, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "generate", lambda granules: generate(granules, OBJECTS))
    monkeypatch.setattr(lines, "TURN_S", 0.0)
    monkeypatch.setattr(lines, "WRITING_S", 0.3)
    monkeypatch.setattr(lines, "TURNS", 1)
    found = [*lines.beside(setting, GRANULES), *lines.selective(setting, GRANULES)]
    held: dict[str, Any] = report.contents(found, quick=True, absent=setting.absent)
    for line, told in zip(found, held["lines"], strict=True):
        told["remarks"] = line.remarks
    results, page, picture = home / "results.json", home / "page.md", home / "picture.png"
    report.write(results, held)
    assert json.loads(results.read_text(encoding="utf-8")) == held
    source = (ROOT / "docs" / "evaluation-databases.md").read_text(encoding="utf-8")
    page.write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "bench.databases.pages", *map(str, (results, page, picture))]
    subprocess.run(command, check=True, cwd=ROOT)
    text = page.read_text(encoding="utf-8")
    assert text.startswith(source.split("<!-- tables: begin -->")[0])
    for question in questions.all_of(corpus):
        assert f"| {question.name} (" in text
    for heading in (f"{len(corpus):,} objects", "While two write", "Few objects among many"):
        assert f"### {heading}\n" in text
    for name, why in setting.absent.items():
        assert f"Absent is {name}: {why}." in text
    assert "split, tail full" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
