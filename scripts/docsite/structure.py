"""Which pages the site has, and which stands below which.

Pages are named as Sphinx names them: by their place below the root of the site, without a suffix.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

OF_ROOT = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Documents beside `docs/` that are pages, with the names of these pages."""

SECTIONS: dict[str, list[str]] = {
    "Start here": ["start", "guide/tour=A tour", "overview=Overview and installation"],
    "Use it": ["guide/index", "recipes/index", "gallery/index", "concepts/index"],
    "Look it up": ["reference/index", "restrictions", "faults", "glossary"],
    "Judge it": ["speed=Evaluation"],
    "Run it for others": ["guide/administrators"],
    "How it works": [
        "architecture",
        "format",
        "decisions/index",
        "contributing",
        "changelog",
    ],
}
"""The sections of the home page, in order. `page=Title` gives a page another title there."""

BELOW: dict[str, list[str]] = {
    "guide/index": [
        *(f"guide/from-{library}" for library in ("h5py", "zarr", "dataclay", "pmdk")),
        "guide/from-simulations",
        *(f"guide/{page}" for page in ("listing", "h5py", "xarray", "dask", "zarr", "tables")),
        *(f"guide/{page}" for page in ("fsspec", "files", "climate-week", "chunks", "queries")),
        *(f"guide/{page}" for page in ("active-objects", "notebook", "serve", "command-line")),
        *(f"guide/{page}" for page in ("mount", "run", "trace", "formats", "sharing", "together")),
        *(f"guide/{page}" for page in ("watching", "staging", "jobs", "cluster")),
    ],
    "guide/administrators": [
        *(f"guide/{page}" for page in ("housekeeping", "persistent-memory", "slurm", "monitoring")),
    ],
    "recipes/index": [
        *(f"recipes/{page}" for page in ("arrays", "sharing", "finding", "libraries", "files")),
        "recipes/care",
    ],
    "concepts/index": [
        *(f"concepts/{page}" for page in ("pool", "realm", "durability", "index-of-attributes")),
        *(f"concepts/{page}" for page in ("active-objects", "files", "cluster")),
    ],
    "reference/index": [
        "reference/python/index",
        "reference/c/index",
        "reference/command-line/index",
        "c-conventions",
    ],
    "speed": [
        "evaluation=Finding objects",
        "evaluation-databases",
        "evaluation-papers",
        *(f"evaluation-{part}" for part in ("mpi", "active", "kernels", "stages", "cluster")),
    ],
}
"""What stands below a page, in order. Pages that a build writes add their own."""


def page_of(document: str) -> str | None:
    """Give the file of the site's page that shows a document; None if no page does.

    `document` is a path of the repository, with slashes and relative to its root.
    """
    if document in OF_ROOT:
        return OF_ROOT[document]
    path = Path(document)
    if path.suffix != ".md" or path.parts[0] != "docs":
        return None
    place = path.relative_to("docs")
    return str(place.with_name("index.md") if place.name == "README.md" else place)


def documents() -> list[str]:
    """Return the documents that are pages of the site, as paths of the repository."""
    below = (str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md"))
    return sorted([*OF_ROOT, *below])


def listed() -> list[str]:
    """Return the pages that `SECTIONS` and `BELOW` name, in order."""
    entries = [entry for pages in (*SECTIONS.values(), *BELOW.values()) for entry in pages]
    return [entry.partition("=")[0] for entry in entries]


def toctree(pages: list[str], *, caption: str = "", shown: bool = False) -> str:
    """Return the directive that puts pages below the one in which it stands, and may list them."""
    entries = []
    for entry in pages:
        page, _, title = entry.partition("=")
        entries.append(f"{title} </{page}>" if title else f"/{page}")
    said = f":caption: {caption}\n" if caption else ""
    return "\n".join(
        ["", "```{toctree}", f"{'' if shown else ':hidden:'}\n{said}", *entries, "```", ""]
    )
