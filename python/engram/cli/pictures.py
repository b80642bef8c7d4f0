"""What pictures have in common: how they look, and of which kinds they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engram.cli import output
from engram.errors import ArgumentError

INK = "#333333"
LINE = "#2166ac"
STYLE: Any = {
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "date.converter": "concise",
}
_FORMS = ("png", "pdf", "svg", "jpg")


def form_of(target: str) -> str:
    """Return the format that a file's name asks for.

    Raises
    ------
    ArgumentError
        If it asks for none of a picture.

    """
    form = Path(target).suffix.lower().removeprefix(".")
    if output.standard(target) is not None:
        return "png"
    if form == "jpeg":
        return "jpg"
    if form not in _FORMS:
        message = f"{target}: unknown kind of picture; end its name with .{', .'.join(_FORMS)}"
        raise ArgumentError(message)
    return form
