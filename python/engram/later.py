"""What a program asks for later, or never: this table says where it is, by name.

The core (pools, groups, arrays, attributes, queries) imports nothing that is built on it: files,
active objects and notebooks can be changed, or left away, without it. Yet two ways lead there.
`engram.ActiveObject` and the like are names of the package, each handle shows itself in a notebook,
and a group takes what xarray makes. All ways go through this table, and what it names is imported
at its first use. So `import engram` loads numpy and nothing else that has to be installed.

Work on a pool as a whole, mounts and programs that run over a pool are seldom asked for, and they
need much of the standard library. Their names in the package go through the table, too: `import
engram` takes little longer than `import numpy`. No module has the name of one of its functions that
the package gives: importing it would put the module in the function's place.
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
    **dict.fromkeys(("Backup", "Compaction", "PartLeftOut", "Upgrade"), "engram.housekeeping"),
    **dict.fromkeys(("compact", "upgrade"), "engram.housekeeping"),
    **dict.fromkeys(("LeftOut", "SalvageReport", "salvage"), "engram.salvaging"),
    **dict.fromkeys(("Mount", "mount", "unmount"), "engram.mounts"),
    **dict.fromkeys(("Report", "verify"), "engram.verifying"),
    **dict.fromkeys(("run", "run_environment"), "engram.running"),
    **dict.fromkeys(("AttributeGroup", "IndexStats"), "engram.index_stats"),
    "CopyProgress": "engram.copying",
    "Explanation": "engram.explanation",
    "Figures": "engram.figures",
    "Tree": "engram.tree",
    "UnitedResult": "engram.united",
    "Watch": "engram.watch",
    "active": "engram.active",
    "jobs": "engram.jobs",
    "stage": "engram.stage",
    "Table": "engram.table",
}
"""Names of the package, and the module that each is in; or, as `engram.active`, that it is."""

_CARDS = "engram.notebook"
_XARRAY = "engram.xarray"
_TABLE = "engram.table"

_FRAMES = ("pandas", "polars", "pyarrow")
"""Libraries of which a group takes tables, and refuses single columns."""


def load(name: str) -> Any:
    """Give what has one of the names in `PUBLIC`."""
    module = importlib.import_module(PUBLIC[name])
    return module if module.__name__ == f"engram.{name}" else getattr(module, name)


def card(thing: object) -> str:
    """Show a thing of a pool as HTML, as `_repr_html_` has to."""
    html: str = importlib.import_module(_CARDS).card(thing)
    return html


def renumbered(kept: list[tuple[int, bytes]], ids: dict[int, int]) -> list[tuple[int, bytes]]:
    """Give what an import keeps of members for copies of these, which have other ids."""
    origin = importlib.import_module("engram.formats.origin")
    given: list[tuple[int, bytes]] = origin.renumbered(kept, ids)
    return given


def words_of_copy(kept: bytes, of_group: bytes, oid: int) -> bytes:
    """Give what an import keeps of an object for a copy of it alone."""
    origin = importlib.import_module("engram.formats.origin")
    given: bytes = origin.words_of_copy(kept, of_group, oid)
    return given


def meet_xarray() -> None:
    """Give xarray's datasets their `.engram`, if the program has imported xarray."""
    if "xarray" in sys.modules and _XARRAY not in sys.modules:
        importlib.import_module(_XARRAY)


def put_labelled(group: Any, path: str, value: Any) -> bool:
    """Put what has names for its parts into a group, xarray's or a table; give whether it is such.

    All else is put as numpy takes it.
    """
    if is_of(value, "xarray"):
        put: bool = importlib.import_module(f"{_XARRAY}.put").put(group, path, value)
        return put
    if not _is_table(value):
        return False
    importlib.import_module(f"{_TABLE}.making").put(group, path, value)
    return True


def _is_table(value: object) -> bool:
    """Whether something is a table of another library, or one column of such."""
    kind = type(value)
    if hasattr(kind, "__arrow_c_stream__"):
        return True
    found = any(hasattr(kind, name) for name in ("__array__", "collect", "scanner", "to_reader"))
    return found and any(is_of(value, library) for library in _FRAMES)


def is_of(value: object, library: str) -> bool:
    """Whether something is of a library, or of a class that is made from one of its."""
    return any(kind.__module__.partition(".")[0] == library for kind in type(value).__mro__)


def create_table(group: Any, *args: Any, **given: Any) -> Any:
    """Make a table in a group."""
    return importlib.import_module(f"{_TABLE}.making").create(group, *args, **given)


def require_table(group: Any, path: str, schema: Any, more: Any) -> Any:
    """Give the table of a path, made if there is none."""
    return importlib.import_module(f"{_TABLE}.making").require(group, path, schema, more)


def delete_table(group: Any, path: str) -> bool:
    """Delete a table that stands where something else is put; whether there was one."""
    deleted: bool = importlib.import_module(f"{_TABLE}.making").replace(group, path)
    return deleted


def table(namespace: Any, gid: int) -> Any:
    """Make the handle of a table."""
    return importlib.import_module(_TABLE).Table(namespace, gid)


def hits(result: Any, chunks: Any) -> Any:
    """Make a dataset of what a query has found."""
    return importlib.import_module(f"{_XARRAY}.hits").dataset_of(result, chunks)
