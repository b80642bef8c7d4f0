"""What cards are made of: escaped text, tables of facts, folds, a bar.

A string that leaves this module is HTML; what goes in is text, unless a parameter is called `html`.
"""

import re
import shlex
from collections.abc import Callable, Iterable
from html import escape

from engram.errors import EngramError
from engram.notebook.style import STYLE
from engram.plain import printable

LONGEST = 400
"""As many characters of a name or a value are shown."""

_JOINTS = re.compile(r"(?<=\w)[_/.-]+(?=\w)")

MOST_LINES = 40
"""As many lines of a value are shown."""


def text(shown: object, longest: int = LONGEST) -> str:
    """Escape a text for HTML, on one line, cut where it is long."""
    plain = str(shown)
    cut = f"{plain[:longest]}…" if len(plain) > longest else plain
    return escape(printable(cut))


def name(shown: object) -> str:
    """Escape a name or a path, which a narrow page breaks behind a mark that joins words."""
    return _JOINTS.sub(r"\g<0><wbr>", text(shown))


def lines(shown: str, longest: int = LONGEST) -> str:
    """Escape a text of several lines."""
    rows = shown[: longest * MOST_LINES].split("\n")
    more = ["…"] if len(rows) > MOST_LINES or len(shown) > longest * MOST_LINES else []
    return "<br>".join([text(row, longest) for row in rows[:MOST_LINES]] + more)


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Make a table of names and values; the values are HTML."""
    body = "".join(f"<tr><th>{name(fact)}</th><td>{html}</td></tr>" for fact, html in rows)
    return f"<table><tbody>{body}</tbody></table>"


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Make a table with heads; all of it is text."""
    top = "".join(f"<th>{text(head)}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{name(cell)}</td>' for cell in row)}</tr>" for row in rows)
    made = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class='engram-wide'>{made}</div>"


def fold(title: str, html: str, *, count: str = "", is_open: bool = False) -> str:
    """Make a part that opens at a click."""
    after = f" {soft(count)}" if count else ""
    return (
        f"<details{' open' if is_open else ''}><summary>{text(title)}{after}</summary>"
        f"<div class='engram-body'>{html}</div></details>"
    )


def section(title: str, make: Callable[[], str], *, count: str = "", is_open: bool = False) -> str:
    """Make a fold of what `make` gives; of the reason, where the pool refuses it."""
    try:
        html = make()
    except EngramError as error:
        html = soft(str(error))
    return fold(title, html, count=count, is_open=is_open)


def soft(plain: str) -> str:
    """Make a text that stands back."""
    return f"<span class='engram-soft'>{text(plain)}</span>"


def note(plain: str) -> str:
    """Make a line that stands back."""
    return f"<div class='engram-soft'>{text(plain)}</div>"


def more(number: int) -> str:
    """Tell how many are not shown, if there are any."""
    return note(f"... and {number:,} more") if number > 0 else ""


def bar(part: int, whole: int) -> str:
    """Draw how much of a whole is taken."""
    percent = 100 * min(part / whole, 1.0) if whole else 0.0
    return f"<div class='engram-bar'><div style='width:{percent:.1f}%'></div></div>"


def head(kind: str, called: str, *others: str) -> str:
    """Make the line at the top: what it is, its name, and what matters most."""
    rest = "".join(f" {soft(part)}" for part in others if part)
    return f"<div class='engram-head'><b>{text(kind)}</b> <code>{name(called)}</code>{rest}</div>"


def serve(place: str, namespace: str = "default") -> str:
    """Name the command that shows a pool, or a cluster, in a browser."""
    words = ["engram", "serve", place]
    words += [] if namespace == "default" else ["--namespace", namespace]
    command = text(shlex.join(words))
    return f"<div class='engram-serve'>{soft('In a browser:')} <code>{command}</code></div>"


def whole(html: str) -> str:
    """Put a card's parts together with the style sheet."""
    return f"<div class='engram-card'>{STYLE}{html}</div>"
