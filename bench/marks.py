"""What is written into a page by a program: it stands between two marks, which are comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Blocks = Mapping[str, Sequence[str]]
"""Lines of Markdown, by the names of their marks."""


def filled(text: str, blocks: Blocks) -> str:
    """Return a page with all blocks between their marks.

    Raises
    ------
    ValueError
        If a block has not two marks.

    """
    for name, lines in blocks.items():
        begin, end = (f"<!-- {name}: {which} -->" for which in ("begin", "end"))
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"the page has not one {begin} and one {end}")
        before, rest = text.split(begin)
        text = "\n".join([before + begin, "", *lines, "", end + rest.split(end)[1]])
    return text
