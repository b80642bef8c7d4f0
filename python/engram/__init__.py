"""Engram: arrays in memory that every process on the node maps, and that outlive their program.

::

    import engram

    with engram.create("/dev/shm/demo", size="4 GiB") as pool:
        run = pool.create_group("run-17", attrs={"orbit": 4})
        run["T"] = temperatures                      # put
        with run.allocate("P", shape=(ny, nx), dtype="f4") as buf:
            buf[...] = compute()                     # filled in place, then published
        run["T"].view().mean()                       # computed where it lies

`engram.open` in any other process, now or later, finds them again.
"""

from typing import TYPE_CHECKING, Any

from engram import (
    _starting,  # noqa: F401 - first: it looks after Ctrl-C
    later,
    natives,
    reflexes,
)
from engram._engram import DeviceInfo, NamespaceInfo, Posix, Space
from engram.array import Allocation, Array
from engram.attrs import Attributes
from engram.batch import Batch
from engram.blob import Blob
from engram.chunked import ChunkedArray
from engram.errors import (
    AccessError,
    ArgumentError,
    BusyError,
    ClosedNamespaceError,
    CommitUncertainError,
    ConflictError,
    CoordinatorError,
    CorruptError,
    EngramError,
    EngramWarning,
    ExistsError,
    FencedError,
    FormatError,
    InvalidNameError,
    NodeAwayError,
    NotFoundError,
    PartialResultError,
    PartsLostError,
    PoolFullError,
    PoolGoneError,
    PoolNotFoundError,
    QueryError,
    ReadOnlyError,
    UnsupportedError,
    UnverifiedError,
)
from engram.expression import (
    Expression,
    Field,
    Measure,
    Param,
    attr,
    count,
    field,
    group_attr,
    param,
    under,
)
from engram.group import Group
from engram.index import IndexMode, IndexSettings
from engram.lock import Lock
from engram.namespace import Namespace, Namespaces
from engram.pool import Pool, adopt, chmod, create, destroy, open
from engram.query import QueryResult
from engram.sharing import Moved
from engram.snapshot import Snapshot

if TYPE_CHECKING:
    from engram import active
    from engram.active import ActiveObject, activemethod
    from engram.copying import CopyProgress
    from engram.explanation import Explanation
    from engram.figures import Figures
    from engram.formats import (
        Entry,
        ExportReport,
        FilesProgress,
        ImportFailure,
        ImportReport,
        Progress,
        export_file,
        import_file,
        import_files,
    )
    from engram.housekeeping import Backup, Compaction, PartLeftOut, Upgrade, compact, upgrade
    from engram.index_stats import AttributeGroup, IndexStats
    from engram.mounts import Mount, mount, unmount
    from engram.running import run, run_environment
    from engram.salvaging import LeftOut, SalvageReport, salvage
    from engram.table import Table
    from engram.tree import Tree
    from engram.united import UnitedResult
    from engram.verifying import Report, verify
    from engram.watch import Watch

__version__ = natives.VERSION

__all__ = [
    "AccessError",
    "ActiveObject",
    "Allocation",
    "ArgumentError",
    "Array",
    "AttributeGroup",
    "Attributes",
    "Backup",
    "Batch",
    "Blob",
    "BusyError",
    "ChunkedArray",
    "ClosedNamespaceError",
    "CommitUncertainError",
    "Compaction",
    "ConflictError",
    "CoordinatorError",
    "CopyProgress",
    "CorruptError",
    "DeviceInfo",
    "EngramError",
    "EngramWarning",
    "Entry",
    "ExistsError",
    "Explanation",
    "ExportReport",
    "Expression",
    "FencedError",
    "Field",
    "Figures",
    "FilesProgress",
    "FormatError",
    "Group",
    "ImportFailure",
    "ImportReport",
    "IndexMode",
    "IndexSettings",
    "IndexStats",
    "InvalidNameError",
    "LeftOut",
    "Lock",
    "Measure",
    "Mount",
    "Moved",
    "Namespace",
    "NamespaceInfo",
    "Namespaces",
    "NodeAwayError",
    "NotFoundError",
    "Param",
    "PartLeftOut",
    "PartialResultError",
    "PartsLostError",
    "Pool",
    "PoolFullError",
    "PoolGoneError",
    "PoolNotFoundError",
    "Posix",
    "Progress",
    "QueryError",
    "QueryResult",
    "ReadOnlyError",
    "Report",
    "SalvageReport",
    "Snapshot",
    "Space",
    "Table",
    "Tree",
    "UnitedResult",
    "UnsupportedError",
    "UnverifiedError",
    "Upgrade",
    "Watch",
    "active",
    "activemethod",
    "adopt",
    "attr",
    "chmod",
    "compact",
    "count",
    "create",
    "destroy",
    "export_file",
    "field",
    "group_attr",
    "import_file",
    "import_files",
    "jobs",
    "mount",
    "open",
    "param",
    "run",
    "run_environment",
    "salvage",
    "stage",
    "under",
    "unmount",
    "upgrade",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import what is not always used at its first use: all together would take seconds."""
    if name in later.PUBLIC:
        globals()[name] = later.load(name)
        return globals()[name]
    raise reflexes.of_package(name)


later.meet_xarray()


def __dir__() -> list[str]:
    """List the public names, those too that are not imported yet; modules are no part of them."""
    return sorted(__all__)
