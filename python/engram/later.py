"""What is built on the core and yet asked for in it: this table says where it is, by name.

The core (pools, groups, arrays, attributes, queries) imports nothing that is built on it: files,
active objects and notebooks can be changed, or left away, without it. Yet two ways lead there.
`engram.ActiveObject` and the like are names of the package, each handle shows itself in a notebook,
and a group takes what xarray makes. All ways go through this table, and what it names is imported
at its first use. So `import engram` loads numpy and nothing else that has to be installed.
"""

import importlib
import sys
from typing import Any

_FILES = (
    *("Entry", "ExportReport", "FilesProgress", "ImportFailure", "ImportReport", "Progress"),
    *("export_file", "import_file", "import_files"),
)
_ACTIVE = ("ActiveObject", "activemethod")

PUBLIC = {
    **dict.fromkeys(_FILES, "engram.formats"),
    **dict.fromkeys(_ACTIVE, "engram.active"),
    "active": "engram.active",
}
"""Names of the package, and the module that each is in; or, as `engram.active`, that it is."""

_CARDS = "engram.notebook"
_XARRAY = "engram.xarray"


def load(name: str) -> Any:
    """Give what has one of the names in `PUBLIC`."""
    module = importlib.import_module(PUBLIC[name])
    return module if module.__name__ == f"engram.{name}" else getattr(module, name)


def card(thing: object) -> str:
    """Show a thing of a pool as HTML, as `_repr_html_` has to."""
    html: str = importlib.import_module(_CARDS).card(thing)
    return html


def meet_xarray() -> None:
    """Give xarray's datasets their `.engram`, if the program has imported xarray."""
    if "xarray" in sys.modules and _XARRAY not in sys.modules:
        importlib.import_module(_XARRAY)


def put_labelled(group: Any, path: str, value: Any) -> bool:
    """Put what xarray has made into a group; give whether it is such."""
    if not type(value).__module__.startswith("xarray."):
        return False
    put: bool = importlib.import_module(f"{_XARRAY}.put").put(group, path, value)
    return put


def hits(result: Any, chunks: Any) -> Any:
    """Make a dataset of what a query has found."""
    return importlib.import_module(f"{_XARRAY}.hits").dataset_of(result, chunks)
