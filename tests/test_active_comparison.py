"""The same program in memory alone and with each way to make it persistent."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "examples" / "active-comparison"
COUNT = runpy.run_path(str(PROGRAMS / "count.py"))


def printed(program: str, *arguments: object) -> str:
    words = [sys.executable, str(PROGRAMS / f"{program}.py"), *map(str, arguments)]
    return subprocess.check_output(words, text=True)


@pytest.mark.parametrize("program", sorted(COUNT["counts"]()))
def test_a_program_goes_on_where_the_last_one_ended(program: str, tmp_path: Path) -> None:
    whole = printed("memory", 12)
    printed(program, 5, tmp_path / "kept")
    assert printed(program, 7, tmp_path / "kept") == whole


def test_active_objects_take_fewer_lines_and_tokens_than_files() -> None:
    counts = COUNT["counts"]()
    lines, tokens = counts.pop("with_engram")
    assert all(lines < others[0] and tokens < others[1] for others in counts.values()), counts


def test_only_what_is_more_than_in_memory_counts() -> None:
    added = COUNT["added"]
    bare = "x = 1\n"
    assert added(bare, bare) == (0, 0)
    assert added('"""Doc."""\n# why\nif y:\n    x = 1\n', bare) == (1, 3)
    assert added("x = 1\nx = 1\nprint(\n    x\n)\n", bare) == (4, 7)
