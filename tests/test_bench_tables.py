"""Tables of the evaluation's pages stand between marks, and are those of a file of results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from bench import sentences, tables
from bench.marks import filled

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "# Page\n\n<!-- a: begin -->\nold\n<!-- a: end -->\n\nText.\n"


def test_a_block_is_put_between_its_marks_and_nothing_else_changes() -> None:
    new = filled(PAGE, {"a": ["| x |", "| y |"]})
    assert new == "# Page\n\n<!-- a: begin -->\n\n| x |\n| y |\n\n<!-- a: end -->\n\nText.\n"
    assert filled(new, {"a": ["| x |", "| y |"]}) == new


@pytest.mark.parametrize("page", ["# Page\n", PAGE + PAGE, PAGE.replace("a: end", "b: end")])
def test_a_block_without_its_two_marks_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match="the page has not one <!-- a: begin -->"):
        filled(page, {"a": ["x"]})


def test_a_table_that_is_not_of_its_results_is_found_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench/results").mkdir(parents=True)
    (tmp_path / "bench/results/r.json").write_text(json.dumps({"figure": 2}))
    (tmp_path / "page.md").write_text(PAGE)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    blocks = {"page.md": ("r", lambda held: {"a": [str(held["figure"])]})}
    monkeypatch.setattr(tables, "PAGES", blocks)
    for arguments, ended in (([], 1), (["--write"], 0), ([], 0)):
        monkeypatch.setattr("sys.argv", ["tables", *arguments])
        assert tables.main() == ended
    (tmp_path / "bench/results/r.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"page.md: .*r.json is of an older form, .* 'figure'"):
        tables.main()
    assert "\n2\n" in (tmp_path / "page.md").read_text()
    assert "other tables than bench/results/r.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"commit": "76a29786"}, []),
        ({"commit": "76a29786", "parts": {"words": "2026-11-30 (commit 01fa9f4f)"}}, []),
        ({}, ["a.json: commit ''"]),
        ({"commit": "76a29786-dirty"}, ["a.json: commit '76a29786-dirty'"]),
        ({"commit": "76a29786", "parts": {"words": "2026-11-22"}}, ["a.json, words: commit ''"]),
        (
            {"commit": "76a29786", "parts": {"words": "2026-11-22 (commit 01fa9f4f-dirty)"}},
            ["a.json, words: commit '01fa9f4f-dirty)'"],
        ),
    ],
)
def test_results_that_no_commit_names_are_told_of(held: dict[str, Any], said: list[str]) -> None:
    assert sentences.unnamed("a.json", held) == [
        f"{each}: measure it in a clean tree" for each in said
    ]
