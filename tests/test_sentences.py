"""Figures in the prose of README and docs/speed.md are those that were measured."""

import re

import pytest
from bench import sentences
from bench.sentences import README, ROOT, SENTENCES, corrected, span, told


@pytest.mark.parametrize("name", sorted({sentence.document for sentence in SENTENCES}))
def test_a_figure_that_nobody_measured_is_found_and_put_right(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    wrong: list[str] = []
    assert corrected(name, text, wrong) == text
    assert wrong == []
    for sentence in (each for each in SENTENCES if each.document == name):
        found = sentence.pattern().search(text)
        assert found is not None
        start, end = found.span(1)
        assert corrected(name, f"{text[:start]}98.7{text[end:]}", wrong) == text, sentence.text
        assert "98.7 was measured as" in wrong[0]
        assert f"{name}:{text.count(chr(10), 0, start) + 1}:" in wrong[0]
        wrong.clear()


def test_a_sentence_that_was_written_anew_is_no_longer_checked_without_a_word() -> None:
    text = (ROOT / README).read_text("utf-8")
    wrong: list[str] = []
    changed = re.sub(r"is rewritten", "is written again", text)
    assert corrected(README, changed, wrong) == changed
    assert len(wrong) == 1
    assert "0 sentences are" in wrong[0]


def test_numbers_have_two_digits() -> None:
    numbers = (0.0742, 0.7, 1.04, 2.0, 3.96, 9.96, 33.4, 1234.5)
    assert [told(n) for n in numbers] == ["0.074", "0.7", "1", "2", "4", "10", "33", "1,234"]
    assert span([3.0, 1.04, 2.2]) == "1 to 3"
    assert span([2.01, 1.99]) == "2"


def test_a_line_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(KeyError):
        sentences.Work("latest", "put 65 MiB").of("engram")
