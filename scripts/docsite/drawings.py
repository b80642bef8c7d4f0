"""An extension of Sphinx: drawings in SVG stand in their page, and take its colours.

A drawing alone follows the reader's system. The site has a switch of its own for light and dark,
which a picture that is linked does not see. So the text of the drawing becomes part of the page,
without the style that it has alone.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_OWN_COLOURS = re.compile(r"<style>.*?</style>", re.DOTALL)


def inlined(svg: str, says: str) -> str:
    """Return the HTML of a drawing with the text that stands for it."""
    drawn = _OWN_COLOURS.sub("", svg[svg.index("<svg") :])
    return f'<div class="drawing" role="img" aria-label="{escape(says)}">{drawn}</div>'


def _inline(app: Sphinx, doctree: nodes.document) -> None:
    for image in list(doctree.findall(nodes.image)):
        if image["uri"].endswith(".svg"):
            svg = (Path(app.srcdir) / image["uri"]).read_text(encoding="utf-8")
            drawn = inlined(svg, image.get("alt", ""))
            image.parent.replace(image, nodes.raw("", drawn, format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Have Sphinx call this for each page that it has read."""
    app.connect("doctree-read", _inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
