"""The reference of Python: which public names stand on which page, by what a reader wants to do.

The docstrings say the rest. `tests/test_site.py` sees that each public name of the package is here
once.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from docsite.stage import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = "reference/python"


@dataclass(frozen=True)
class Page:
    """A page of the reference.

    Attributes
    ----------
    name
        What its file is called.
    title, says
        The heading, and the paragraph below it, in reStructuredText.
    names
        What is on it, in order: by module, the names that it offers.

    """

    name: str
    title: str
    says: str
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)


def guide(page: str, title: str) -> str:
    """Return a link to a page of the site, as reStructuredText has it."""
    return f":doc:`{title} </{page}>`"


PAGES = (
    Page(
        "pools",
        "Pools and namespaces",
        f"Make a pool, open it, and ask it what it has room for. "
        f"{guide('concepts/pool', 'What a pool is')} explains the idea;"
        f" {guide('guide/sharing', 'Sharing')} tells of namespaces and scopes.",
        {
            "engram": (
                *("create", "open", "destroy", "adopt", "chmod", "Pool", "Namespace"),
                *("Namespaces", "NamespaceInfo", "Moved", "Space", "DeviceInfo"),
            )
        },
    ),
    Page(
        "members",
        "Groups, arrays and blobs",
        "What a pool holds. A :py:class:`engram.Pool` is a group, too: the methods of"
        " :py:class:`engram.Group` are its own.",
        {
            "engram": (
                *(
                    "Group",
                    "CopyProgress",
                    "Array",
                    "ChunkedArray",
                    "Allocation",
                    "Blob",
                    "Attributes",
                    "Tree",
                ),
                "Posix",
            )
        },
    ),
    Page(
        "queries",
        "Queries and the index",
        f"Find objects by their attributes. {guide('guide/queries', 'Queries')} has the language.",
        {
            "engram": (
                *(
                    "QueryResult",
                    "UnitedResult",
                    "attr",
                    "field",
                    "group_attr",
                    "under",
                    "Expression",
                    "Field",
                ),
                *("param", "Param", "count", "Measure", "Figures"),
                *("Explanation", "IndexMode", "IndexSettings", "IndexStats", "AttributeGroup"),
            )
        },
    ),
    Page(
        "together",
        "Batches, snapshots, locks, watches",
        f"Work on one pool with other processes. {guide('guide/together', 'Working together')} and"
        f" {guide('guide/watching', 'Watching')} show them at work.",
        {"engram": ("Batch", "Snapshot", "Lock", "Watch")},
    ),
    Page(
        "files",
        "Import and export files",
        f"{guide('guide/files', 'Import and export files')} has the formats.",
        {
            "engram": (
                *("import_file", "import_files", "export_file", "ImportReport", "ExportReport"),
                *("ImportFailure", "Entry", "Progress", "FilesProgress"),
            )
        },
    ),
    Page(
        "programs",
        "Mounts, and programs that know only files",
        f"{guide('guide/mount', 'Mount a pool')} and {guide('guide/run', 'Run programs')} say"
        " which to choose.",
        {"engram": ("mount", "unmount", "Mount", "run", "run_environment")},
    ),
    Page(
        "tables",
        "Tables",
        f"{guide('guide/tables', 'Tables')} shows them with pandas, polars, Arrow and DuckDB.",
        {"engram": ("Table",)},
    ),
    Page(
        "active",
        "Active objects",
        f"{guide('guide/active-objects', 'Active objects')} begins with an example.",
        {
            "engram.active": (
                *("ActiveObject", "activemethod", "ActiveMethod", "Executor", "use", "gc"),
                *("collect", "Collector", "Rounds"),
                *("unreachable", "Collected", "StoredClass", "load_class", "AliasNotFoundError"),
                *("AliasTakenError", "ClassChangedError", "ClassUnknownError", "ConflictError"),
                *("MethodError", "ObjectDeletedError", "UndeclaredFieldError"),
                *("UnsupportedFieldError", "UntrustedCodeError", "VersionError"),
                "WorkerDiedError",
            )
        },
    ),
    Page(
        "care",
        "Verify, back up, compact, upgrade, salvage",
        f"{guide('guide/housekeeping', 'Housekeeping')} says when to use which.",
        {
            "engram": (
                *("verify", "Report", "Backup", "PartLeftOut", "compact", "Compaction", "upgrade"),
                *("Upgrade", "salvage", "SalvageReport", "LeftOut"),
            )
        },
    ),
    Page(
        "staging",
        "Stages and jobs",
        f"{guide('guide/staging', 'Staging')} brings files in and out; "
        f"{guide('guide/jobs', 'Jobs')} does so around a program.",
        {
            "engram.stage": (
                *("bring_in", "bring_out", "begin_in", "begin_out", "Stage", "InOptions"),
                *("OutOptions", "Report", "Progress", "Status", "Trouble", "Early", "Dropped"),
                *("listed", "matching", "resume", "stages", "status", "stop", "drop", "verify"),
                *("set_rate", "set_slots"),
            ),
            "engram.jobs": (
                *("run", "resume", "serve", "mount", "unmount", "tag", "nodes", "drop", "expire"),
                *("Description", "Resource", "ResourceType", "ResourceFlags", "Backend"),
                *("BackendType", "JobOptions", "Front", "Place", "Ended", "PersistentPool"),
                *("DroppedPool", "Expired", "FAILED", "GRACE"),
            ),
        },
    ),
    Page(
        "clusters",
        "Clusters",
        f"The pools of many nodes as one store. {guide('guide/cluster', 'Clusters')} sets one up.",
        {
            "engram.cluster": (
                *("open", "serve", "start", "status", "stop", "certify", "security", "verify"),
                *("Cluster", "ClusterArray", "ClusterGroup", "FarArray", "FarBlob", "Hits", "Hit"),
                *("Member", "PartRef", "ServedNode", "ClusterReport"),
            )
        },
    ),
    Page(
        "libraries",
        "Doors for other libraries",
        "xarray, Dask, Zarr, fsspec and notebooks. The guides have examples:"
        f" {guide('guide/xarray', 'xarray')}, {guide('guide/dask', 'Dask')},"
        f" {guide('guide/zarr', 'Zarr')}, {guide('guide/fsspec', 'fsspec')},"
        f" {guide('guide/notebook', 'notebooks')},"
        f" {guide('guide/h5py', 'h5py')} and {guide('guide/from-dataclay', 'dataClay')}.",
        {
            "engram.xarray": ("register",),
            "engram.xarray.accessor": ("DatasetAccessor", "TreeAccessor"),
            "engram.dask": ("from_pool", "to_pool", "empty", "install", "uninstall"),
            "engram.zarr": ("Store", "View", "view", "ClusterStore"),
            "engram.fsspec": ("EngramFileSystem",),
            "engram.notebook": ("card",),
        },
    ),
    Page(
        "errors",
        "Errors",
        "Each error of Engram is an :py:exc:`engram.EngramError`. Its kind says what you can do;"
        " its message says what was wrong, with the value."
        f" {guide('guide/command-line', 'The command line')} has the exit code of each.",
        {
            "engram": (
                *("EngramError", "EngramWarning", "AccessError", "ArgumentError", "BusyError"),
                *("ClosedNamespaceError", "CommitUncertainError", "ConflictError"),
                *("CoordinatorError", "CorruptError", "ExistsError", "FencedError", "FormatError"),
                *("InvalidNameError", "NodeAwayError", "NotFoundError", "PartialResultError"),
                *("PartsLostError", "PoolFullError", "PoolGoneError", "PoolNotFoundError"),
                *("QueryError", "ReadOnlyError", "UnsupportedError", "UnverifiedError"),
            )
        },
    ),
)

ELSEWHERE = {"active", "jobs", "stage", "ActiveObject", "activemethod"}
"""Public names of `engram` that are told of as another module, or as names of one."""


ELSEWHERE_TOLD = (
    *("Namespace", "Group", "Array", "MutableMapping", "Mapping", "Sequence", "tuple", "dict"),
    *("NDArrayOperatorsMixin", "Store", "AbstractFileSystem", "Executor", "ABC", "Generic"),
)
"""Classes whose methods are not told of again with each class made from them."""

CONSTRUCTED = {
    *("engram.active.Executor", "engram.jobs.Description", "engram.zarr.Store"),
    *("engram.zarr.View", "engram.zarr.ClusterStore", "engram.fsspec.EngramFileSystem"),
    "engram.active.StoredClass",
}
"""Classes that a program calls. All others are made by functions and methods."""


def directive(module: str, name: str) -> list[str]:
    """Return what has Sphinx show one name, with its members if it is a class."""
    what = getattr(importlib.import_module(module), name)
    if inspect.isclass(what) and issubclass(what, BaseException):
        return [f".. autoexception:: {module}.{name}", "   :show-inheritance:", ""]
    if inspect.isclass(what):
        told = ", ".join(getattr(what, "_fields", ()))  # by the docstring, as attributes
        without = [f"   :exclude-members: {told}"] if told else []
        options = ["   :members:", f"   :inherited-members: {', '.join(ELSEWHERE_TOLD)}", *without]
        return [f".. autoclass:: {module}.{name}", *options, ""]
    kind = "function" if callable(what) and hasattr(what, "__name__") else "data"
    return [f".. auto{kind}:: {module}.{name}", ""]


def _lines(page: Page) -> Iterator[str]:
    yield from (page.title, "=" * len(page.title), "", page.says, "")
    contents = "   :class: names this-will-duplicate-information-and-it-is-still-useful-here"
    yield from (".. contents::", "   :local:", "   :depth: 1", contents, "")
    for module, names in page.names.items():
        for name in names:
            shown = name if module == "engram" else f"{module.removeprefix('engram.')}.{name}"
            yield from (shown, "-" * len(shown), "")
            yield from directive(module, name)


def index() -> str:
    """Return the first page of this reference."""
    title = "Python"
    rows = "\n".join(
        f"* :doc:`{page.title} </{FOLDER}/{page.name}>`: {_names(page)}" for page in PAGES
    )
    tree = "\n".join(f"   {page.name}" for page in PAGES)
    return (
        f"{title}\n{'=' * len(title)}\n\nWhat ``import engram`` offers, by what you want to do."
        " It is made from the docstrings, which ``help()`` shows, too.\n\n"
        f"{rows}\n\n.. toctree::\n   :hidden:\n\n{tree}\n"
    )


def _names(page: Page) -> str:
    names = [name for module in page.names.values() for name in module]
    most = 6
    shown = ", ".join(f"``{name}``" for name in names[:most])
    return f"{shown} …" if len(names) > most else shown


def write_pages(tree: Path) -> None:
    """Write the pages of this reference into `tree`."""
    write(tree / FOLDER / "index.rst", index())
    for page in PAGES:
        write(tree / FOLDER / f"{page.name}.rst", "\n".join(_lines(page)))
