"""The same program in each interface: how long ours is."""

from __future__ import annotations

import runpy
from pathlib import Path

PROGRAMS = Path(__file__).parents[1] / "examples" / "api-comparison"


def test_a_program_takes_fewer_lines_and_tokens_than_with_any_other_interface() -> None:
    counts = runpy.run_path(str(PROGRAMS / "count.py"))["counts"]()
    lines, tokens = counts.pop("engram.cpp")
    published = counts.pop("published.cpp")
    assert published == (16, 131)
    assert lines <= 16
    assert tokens < published[1]
    assert all(lines < others[0] and tokens < others[1] for others in counts.values()), counts


def test_tokens_are_what_a_compiler_sees() -> None:
    count = runpy.run_path(str(PROGRAMS / "count.py"))["lines_and_tokens"]
    assert count("#include <mpi.h>\n") == (1, 3)
    assert count('// nothing\n\nint x = f("a b", y->z); /* more */') == (1, 12)
    assert count("std::vector<double> a{1}; a[0] += 2 << 3;") == (1, 20)
