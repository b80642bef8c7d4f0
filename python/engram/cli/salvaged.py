"""`engram export --salvage`: what is sound of a damaged pool, as a file or as a new pool.

A file is written from a new pool that stands beside it for as long as that takes. Only what was
asked for is judged: where all of that is sound, it is no error that the pool is damaged elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import engram
from engram.cli import terminal
from engram.cli.app import opened
from engram.cli.entries import tell_export
from engram.cli.ls import members
from engram.cli.terminal import counted
from engram.errors import ArgumentError, CorruptError, EngramError, NotFoundError
from engram.salvaging import LOST, SalvageReport, staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engram.cli.describe import Member
    from engram.formats import ExportReport
    from engram.formats.select import Selection
    from engram.group import Group
    from engram.salvaging import LeftOut

POOL = "pool"
"""What `--format` calls a new pool."""


class Wanted(NamedTuple):
    """What is to be exported, and how."""

    where: str
    namespace: str
    kind: str | None
    overwrite: bool
    lossy: bool
    select: list[str]
    slices: list[str]


class Salvaged(NamedTuple):
    """What came of it: the losses of what was asked for, and those of all else."""

    found: SalvageReport
    elsewhere: list[LeftOut]
    exported: ExportReport | None


def salvaged(pool: Path, file: Path, wanted: Wanted) -> Salvaged:
    """Write what is sound of what is wanted."""
    if wanted.kind == POOL:
        _refuse_parts(wanted)
        return Salvaged(engram.salvage(pool, file), [], None)
    from engram.formats.save import check_target  # noqa: PLC0415 - formats load when needed

    check_target(file, wanted.kind, overwrite=wanted.overwrite)
    with contextlib.ExitStack() as stack:
        stage = stack.enter_context(staged(file.absolute()))
        with _called(stage, f"a pool on the way, beside {file},"):
            found = engram.salvage(pool, stage)
        with _called(stage, str(pool)):
            lost, elsewhere, report = _exported(stage, found, file, wanted)
    found = dataclasses.replace(found, target=str(file), left_out=lost)
    return Salvaged(found, elsewhere, report)


def tell(result: Salvaged, *, json: bool) -> None:
    """Print what was saved and what was not; an error if anything that was asked for was not."""
    found, elsewhere, exported = result
    if json:
        told = {"elsewhere": [dataclasses.asdict(loss) for loss in elsewhere]}
        report = {"exported": None if exported is None else exported.to_dict()}
        terminal.print_json({**dataclasses.asdict(found), **told, **report})
    else:
        if exported is not None:
            tell_export(exported)
        terminal.say(f"{found.path}: {counted(found.members, 'member')} found")
        for loss in found.left_out:
            terminal.say(f"  not saved: {loss}")
        for note in found.noted if exported is None else []:  # a file says nothing of who sees it
            terminal.say(f"  noted: {note}")
    if elsewhere:
        more = f" (and {len(elsewhere) - 1} more)" if len(elsewhere) > 1 else ""
        terminal.note(
            f"the pool is damaged elsewhere, in what was not asked for: {elsewhere[0]}{more}; "
            f"`engram verify {found.path}` tells all"
        )
    found.check()


def _refuse_parts(wanted: Wanted) -> None:
    """Refuse what cannot be had of a new pool, which is of all that is sound."""
    if wanted.where:
        message = f"--format pool takes the whole pool: give / for PATH, not {wanted.where}"
        raise ArgumentError(message)
    given = {
        "--select": wanted.select,
        "--slice": wanted.slices,
        "--namespace": wanted.namespace != "default",
        "--overwrite": wanted.overwrite,
        "--lossy": wanted.lossy,
    }
    names = [name for name, value in given.items() if value]
    if names:
        message = (
            f"--format pool makes a new pool of all that is sound, and takes no "
            f"{' and no '.join(names)}: leave that away, or export to a file"
        )
        raise ArgumentError(message)


@contextlib.contextmanager
def _called(stage: Path, name: str) -> Iterator[None]:
    """Let errors name what the user knows, in place of a pool that is hidden."""
    try:
        yield
    except EngramError as error:
        message = str(error)
        if str(stage) not in message:
            raise
        raise type(error)(message.replace(str(stage), name)) from error


def _exported(
    stage: Path, found: SalvageReport, file: Path, wanted: Wanted
) -> tuple[list[LeftOut], list[LeftOut], ExportReport]:
    """Export from the pool of what is sound: with the losses of what is wanted, and the others."""
    losses = [loss for loss in found.left_out if loss.namespace in {"", wanted.namespace}]
    with opened(stage, wanted.namespace) as (_, root):
        source = _source(root, wanted.where, losses)
        if isinstance(source, engram.Table):
            source = source.as_group()
        select = wanted.select
        if isinstance(source, engram.Group):
            losses, select = _of_group(source, losses, wanted)
        else:
            losses = [loss for loss in losses if loss.path == wanted.where]
        report = engram.export_file(
            source,
            file,
            format=wanted.kind,
            overwrite=wanted.overwrite,
            lossy=wanted.lossy,
            select=select or None,
            slices=wanted.slices or None,
        )
    return losses, [loss for loss in found.left_out if loss not in losses], report


def _source(root: Group, where: str, losses: list[LeftOut]) -> Member:
    """Return what is to be exported; an error that says so if it could not be salvaged."""
    try:
        return root[where] if where else root
    except NotFoundError as error:
        for loss in losses:
            if not loss.path or f"{where}/".startswith(f"{loss.path}/"):
                message = f"{where} is not in what could be salvaged: {loss}"
                raise CorruptError(message) from error
        raise


def _of_group(
    group: Group, losses: list[LeftOut], wanted: Wanted
) -> tuple[list[LeftOut], list[str]]:
    """Return the losses of what is wanted of a group, and the patterns that are met by the rest."""
    from engram.formats.select import Selection  # noqa: PLC0415 - formats load when needed

    prefix = f"{wanted.where}/" if wanted.where else ""
    below = {loss.path: loss.path.removeprefix(prefix) for loss in losses if loss.path}
    below = {path: rest for path, rest in below.items() if path.startswith(prefix)}
    there = [path for path, _ in members(group, "", recursive=True)]
    chosen = Selection(wanted.select).chosen([*there, *below.values()])

    def concerns(loss: LeftOut) -> bool:
        # Of what has no path, or another than it had, nobody knows where it was.
        unknown = not loss.path or loss.path.startswith(f"{LOST}/")
        return unknown or loss.path == wanted.where or below.get(loss.path) in chosen

    found = [loss for loss in losses if concerns(loss)]
    met = [pattern for pattern in wanted.select if _is_met(Selection(pattern), there)]
    if wanted.select and not met:
        message = f"nothing of what is selected could be salvaged: {found[0]}"
        raise CorruptError(message)
    return found, met


def _is_met(selection: Selection, paths: list[str]) -> bool:
    """Whether a pattern meets anything."""
    with contextlib.suppress(NotFoundError):
        selection.chosen(paths)
        return True
    return False
