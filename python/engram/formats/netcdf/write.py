"""Writing netCDF: the kind is chosen, the tree planned, and one of two writers follows the plan."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from engram.extras import library
from engram.formats.netcdf.kinds import BY_MODEL, KINDS
from engram.formats.netcdf.plan import Plan
from engram.formats.netcdf.write3 import too_far, write3
from engram.formats.origin import SPLIT

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats.target import GroupItem, Problem, Tell, Tree


def planned(tree: Tree, kind: str) -> Plan:
    """Return the plan of a tree as a kind of file.

    Of the kind ``"netcdf"`` is what came from netCDF of the kind that it came from, as long as
    that holds it, and all else netCDF-4.
    """
    if kind in KINDS:
        return _plan(tree, kind)
    model = tree.root.origin.get("format")
    word = BY_MODEL.get(model, "netcdf4") if isinstance(model, str) else "netcdf4"
    plan = _plan(tree, word)
    if word == "netcdf4" or not plan.problems:
        return plan
    wider = _plan(tree, "netcdf4")
    if len(wider.problems) >= len(plan.problems):
        return plan
    first = plan.problems[0]
    why = f"as netCDF-4, since {model}, which it came from, cannot hold /{first.path}: {first.why}"
    wider.notes.append(("", "file", why))
    return wider


def _plan(tree: Tree, word: str) -> Plan:
    """Return the plan of a tree as one kind of file, with where its values would begin checked."""
    if KINDS[word].is_hdf5:
        library("h5py", "hdf5", f"/{tree.name}: writing netCDF-4")
        from engram.formats.hdf5.join import rejoined  # noqa: PLC0415 - h5py for such alone

        if not KINDS[word].is_classic:
            tree = rejoined(tree, functools.partial(_is_variable, tree))
    plan = Plan(tree, KINDS[word])
    if not plan.problems:
        plan.problems += too_far(plan)
    return plan


def _is_variable(tree: Tree, group: GroupItem) -> bool:
    """Whether a group is the parts of a variable, or of what stood beside variables in netCDF-4."""
    if str(group.origin.get("format")).startswith("NETCDF4"):
        return True
    is_netcdf = str(tree.root.origin.get("format")).startswith("NETCDF4")
    return is_netcdf and not group.origin[SPLIT].get("dims")


def problems(tree: Tree, kind: str) -> list[Problem]:
    """Return what a kind of file cannot hold."""
    return planned(tree, kind).problems


def write(tree: Tree, path: Path, kind: str, tell: Tell) -> str:
    """Write a tree that has no problems; return the ``data_model`` written."""
    plan = planned(tree, kind)
    for note in plan.notes:
        tree.note(*note)
    if plan.kind.is_hdf5:
        from engram.formats.netcdf.write4 import write4  # noqa: PLC0415 - h5py for such alone

        write4(plan, path, tell)
    else:
        write3(plan, path, tell)
    return plan.kind.model
