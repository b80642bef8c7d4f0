"""Lines and tokens of the same program in each interface, as the compiler's lexer sees them.

`python count.py` prints the table. Lines that are empty or hold a comment alone do not count; a
token is an identifier, a number, a string, or a punctuator; an `#include` is `#`, `include` and
the header's name.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(
    r"""(?<=include[ ])<[^>]+> | "(?:\\.|[^"\\])*" | \w+
    | -> | \+\+ | -- | << | >> | [-+*/%&|^<>=!]= | && | \|\| | :: | [^\s\w]""",
    re.VERBOSE,
)


def lines_and_tokens(program: str) -> tuple[int, int]:
    """Return how many lines and tokens a program has."""
    bare = _COMMENT.sub("", program)
    return sum(bool(line.strip()) for line in bare.splitlines()), len(_TOKEN.findall(bare))


def counts() -> dict[str, tuple[int, int]]:
    """Return lines and tokens of each program of this folder."""
    programs = sorted(path for path in HERE.iterdir() if path.suffix in {".c", ".cpp"})
    return {path.name: lines_and_tokens(path.read_text(encoding="utf-8")) for path in programs}


if __name__ == "__main__":
    for name, (lines, tokens) in sorted(counts().items(), key=lambda item: item[1]):
        print(f"{name:16} {lines:3} lines {tokens:4} tokens")  # noqa: T201 - the table
