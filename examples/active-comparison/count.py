"""Lines that make the same program persistent, with each interface, as Python's lexer sees them.

`python count.py` prints the table. A line counts if it has a token: comments, empty lines and
docstrings do not. What a program adds to `memory.py`, or changes in it, is what persistence takes;
whether lines are indented more than there makes no difference.
"""

from __future__ import annotations

import io
import tokenize
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
BARE = HERE / "memory.py"
_NOTHING = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def lines_of(program: str) -> list[tuple[str, ...]]:
    """Return the tokens of each line that has any."""
    found: dict[int, list[str]] = {}
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(program).readline):
        if token.type not in _NOTHING:
            if not (begins and token.type == tokenize.STRING):
                found.setdefault(token.start[0], []).append(token.string)
            begins = False
        elif token.type != tokenize.COMMENT:
            begins = True
    return [tuple(tokens) for tokens in found.values()]


def added(program: str, bare: str) -> tuple[int, int]:
    """Return how many lines and tokens a program has that the bare one has not."""
    more = Counter(lines_of(program)) - Counter(lines_of(bare))
    return more.total(), sum(len(tokens) * count for tokens, count in more.items())


def counts() -> dict[str, tuple[int, int]]:
    """Return what each program of this folder adds."""
    bare = BARE.read_text(encoding="utf-8")
    programs = sorted(HERE.glob("with_*.py"))
    return {path.stem: added(path.read_text(encoding="utf-8"), bare) for path in programs}


if __name__ == "__main__":
    for name, (lines, tokens) in sorted(counts().items(), key=lambda item: item[1]):
        print(f"{name:16} {lines:3} lines {tokens:4} tokens")  # noqa: T201 - the table
