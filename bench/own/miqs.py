"""MIQS+, which Engram's index is compared with: an index in memory of what HDF5 files say.

It is written in Rust (`bench/own/rust/src/miqs.rs` tells what it is) and reached as Engram is:

    from bench.own import miqs
    index = miqs.new()
    index.insert("file/object", {"orbit": 4, "beam": "left"})
    index.query("orbit = 4")  # -> ["file/object"]

`bench.own.rust.build` builds it.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, Protocol, cast

from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "engram_miqs"
LIBRARY = rust.PROGRAM.parent / f"lib{NAME}.so"


class Miqs(Protocol):
    """The index."""

    def insert(self, path: str, attrs: Mapping[str, Any], /) -> None:
        """Take in an object, which must be new, with its attributes: numbers and strings."""

    def load(self, path: str, /) -> None:
        """Take in a corpus from its file."""

    def query(self, query: str, /) -> list[str]:
        """Return the paths of the objects that a query in Engram's language finds."""

    def count_attributes(self, query: str, /) -> int:
        """Return how many attributes these have."""


def new() -> Miqs:
    """Return an empty index."""
    if NAME not in sys.modules:
        spec = spec_from_file_location(
            NAME, LIBRARY, loader=ExtensionFileLoader(NAME, str(LIBRARY))
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{LIBRARY} cannot be loaded: run bench.own.rust.build() first")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[NAME] = module
    return cast("Miqs", sys.modules[NAME].Miqs())
