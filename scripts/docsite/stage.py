"""Copies the documents into the tree that Sphinx reads; their links lead to pages of the site.

A link to a document becomes one to its page. A link to another file of the repository becomes a
download of that file. What leads nowhere is an error here, before Sphinx is begun.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath

from docsite.structure import BELOW, DOCS, ROOT, SECTIONS, documents, page_of, toctree

_FENCE = re.compile(r"^ *```")
_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^)\s#]*)(#[^)\s]*)?\)")
_CODE = re.compile(r"`[^`]*`")
_CARDS = re.compile(r"^<!-- (cards|path) -->$", re.MULTILINE)
PICTURES = {".png", ".svg"}


class BrokenLinkError(Exception):
    """A document has a link to a file that is not there."""


def write(path: Path, text: str) -> None:
    """Write a page if it differs from the one that is there: Sphinx reads only what is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _target(document: str, link: str, tree: Path) -> str:
    """Return where a link of a document leads on the site, relative to the document's page."""
    if not link or re.match(r"[a-z]+:", link):
        return link
    there = os.path.normpath(PurePosixPath(document).parent / link)
    if not (ROOT / there).is_file():
        raise BrokenLinkError(f"{document} links to {link}, and there is no {there}")
    page = page_of(there)
    if page is None and there.startswith("docs/") and Path(there).suffix in PICTURES:
        page = there.removeprefix("docs/")
    if page is None:
        page = f"downloads/{there}"
        copy = tree / page
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / there, copy)
    return os.path.relpath(page, PurePosixPath(str(page_of(document))).parent)


def moved_links(document: str, text: str, tree: Path) -> str:
    """Return a document's text with its links as its page has them; code stays as it is."""

    def prose(line: str) -> str:
        code = [found.span() for found in _CODE.finditer(line)]

        def moved(found: re.Match[str]) -> str:
            if any(start < found.start() < end for start, end in code):
                return found[0]
            return f"{found[1]}{_target(document, found[2], tree)}{found[3] or ''})"

        return _LINK.sub(moved, line)

    parts, within = [], False
    for part in re.split(r"(?m)(^ *```.*\n?)", text):
        fence = _FENCE.match(part)
        parts.append(part if fence or within else prose(part))
        within = within != bool(fence)
    return "".join(parts)


def page(document: str, tree: Path) -> str:
    """Return the text of a document's page."""
    text = moved_links(document, (ROOT / document).read_text(encoding="utf-8"), tree)
    text = _CARDS.sub(r"{.\1}", text)
    own = str(page_of(document)).removesuffix(".md")
    if own == "index":
        for caption, pages in SECTIONS.items():
            text += toctree(pages, caption=caption)
    elif own in BELOW:
        text += toctree(BELOW[own])
    elif own == "decisions/index":
        pages = sorted(f"decisions/{each.stem}" for each in DOCS.glob("decisions/0*.md"))
        text += toctree(pages, shown=True)
    return text


REFERENCE = """# Reference

- [Python](python/index.rst): what `import engram` offers, by what you want to do
- [C and C++](c/index.md): the headers of the library
- [Command line](command-line/index.md): every verb of `engram`, with its options and examples
- [Conventions of the C library](../c-conventions.md): what holds for each of its functions
- [The format](../format.md): every byte of a pool
- [Glossary](../glossary.md): what each word means
"""


def stage(tree: Path) -> None:
    """Bring all documents and their pictures into `tree`."""
    for picture in DOCS.rglob("*"):
        if picture.suffix in PICTURES:
            copy = tree / picture.relative_to(DOCS)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(picture, copy)
    for document in documents():
        write(tree / str(page_of(document)), page(document, tree))
    write(tree / "reference/index.md", REFERENCE + toctree(BELOW["reference/index"]))
