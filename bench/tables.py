"""Tables of the evaluation's pages: each is that of a file of results, between two marks.

    python -m bench.tables           # which pages have others
    python -m bench.tables --write   # writes them in

`make lint` runs it, so that no table is of another run than the file beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import page
from bench.active import pages as active
from bench.databases import pages as databases
from bench.evaluation import tables as evaluation
from bench.kernels import tables as kernels
from bench.marks import Blocks, filled
from bench.mpi import pages as mpi

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent

PAGES: dict[str, tuple[str, Callable[[dict[str, Any]], Blocks]]] = {
    "docs/evaluation.md": ("evaluation", evaluation.blocks),
    "docs/evaluation-active.md": ("active", active.blocks),
    "docs/evaluation-cluster.md": ("cluster", page.blocks),
    "docs/evaluation-databases.md": ("databases", databases.blocks),
    "docs/evaluation-kernels.md": ("latest", kernels.blocks),
    "docs/evaluation-mpi.md": ("mpi", mpi.blocks),
    "docs/evaluation-papers.md": ("papers", page.blocks),
    "docs/evaluation-stages.md": ("stage", page.blocks),
}
"""The file of results that a page has its tables from, and what makes them of it."""


def made(name: str) -> str:
    """Return a page as it should be.

    Raises
    ------
    SystemExit
        If its results have no such lines.

    """
    results, blocks = PAGES[name]
    place = ROOT / f"bench/results/{results}.json"
    try:
        made = blocks(json.loads(place.read_text(encoding="utf-8")))
    except (KeyError, StopIteration) as error:
        raise SystemExit(
            f"{name}: bench/results/{results}.json is of an older form, and lacks {error}: measure "
            "it again"
        ) from error
    return filled((ROOT / name).read_text(encoding="utf-8"), made)


def main() -> int:
    """Compare, or write; 1 if a page has other tables than its results."""
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    write = parser.parse_args().write
    other = [name for name in PAGES if made(name) != (ROOT / name).read_text(encoding="utf-8")]
    for name in other:
        if write:
            (ROOT / name).write_text(made(name), encoding="utf-8")
        print(  # noqa: T201 - the answer
            f"{name}: {'written' if write else 'has other tables than'} bench/results/"
            f"{PAGES[name][0]}.json{'' if write else '; python -m bench.tables --write'}"
        )
    return 1 if other and not write else 0


if __name__ == "__main__":
    sys.exit(main())
