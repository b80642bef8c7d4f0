"""`engram cp` and `engram mv`: members to other names, groups, namespaces and pools."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

import engram
from engram import copying
from engram.cli import completion, terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PoolArgument,
    app,
    clean,
    examples,
    file_path,
    object_path,
    opened,
)
from engram.cli.bar import Bar
from engram.cli.terminal import counted, plain
from engram.copying import Spot
from engram.errors import ArgumentError, ExistsError
from engram.paths import POOL_FILE
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.copying import Copied
    from engram.namespace import Namespace
    from engram.pool import Pool

PathsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="Objects, and groups with all in them.",
        autocompletion=completion.members,
    ),
]
DestArgument = Annotated[
    str,
    typer.Argument(
        metavar="DEST",
        help="The new path; or a group, if it is one or ends with a slash.",
        autocompletion=completion.groups,
    ),
]
ToOption = Annotated[
    Path | None,
    typer.Option(
        "--to",
        metavar="POOL",
        help="The pool that DEST is in, if it is another.",
        parser=file_path,
        autocompletion=completion.pools,
    ),
]
ToNamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--to-namespace", metavar="NAME", help="The namespace that DEST is in, if it is another."
    ),
]
ScopeOption = Annotated[
    str | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="Who sees it, if not as its group: private or shared.",
    ),
]


class _Ends(NamedTuple):
    """From where, and to where: the namespaces that are open."""

    source: Namespace | Pool
    target: Namespace | Pool

    @property
    def are_one(self) -> bool:
        """Whether both are of the same namespace."""
        one, other = self.source._namespace, self.target._namespace
        return one.same_pool(other) and one.name == other.name


class _Step(NamedTuple):
    """One member, and its new path."""

    old: str
    new: str


@app.command(
    epilog=examples(
        "engram cp /dev/shm/run run-17/T run-17/T-before",
        "engram cp /dev/shm/run run-17 run-18 archive/",
        "engram cp /dev/shm/run run-17 / --to /mnt/pmem/archive",
        "engram cp /dev/shm/run log log --to-namespace ice --overwrite",
    )
)
def cp(
    pool: PoolArgument,
    paths: PathsArgument,
    dest: DestArgument,
    *,
    to: ToOption = None,
    to_namespace: ToNamespaceOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an object by an object.")
    ] = False,
    scope: ScopeOption = None,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Copy members, groups with all in them: to another name, namespace or pool.

    Each is copied whole, with all that is said of it, as one commit has left it, and appears at
    once; or nothing of it is copied. What is written in place meanwhile may be in it half.
    """
    with _ends(pool, namespace, to, to_namespace, writes_source=False) as ends:
        told = []
        for step in _steps(ends, paths, dest, overwrite=overwrite):
            how = {"overwrite": overwrite, "scope": scope}
            made = _done(ends, step, copying.copy, **how)
            told.append(_tell(ends, step, made, "copied", json=json))
        if json:
            terminal.print_json(told)


@app.command(
    epilog=examples(
        "engram mv /dev/shm/run run-17/T run-17/temperature",
        "engram mv /dev/shm/run run-17 archive/    # into a group",
        "engram mv /dev/shm/run run-17 / --to /mnt/pmem/archive",
    )
)
def mv(
    pool: PoolArgument,
    paths: PathsArgument,
    dest: DestArgument,
    *,
    to: ToOption = None,
    to_namespace: ToNamespaceOption = None,
    scope: ScopeOption = None,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Rename a member, or move it: it stays the same object, with all that is below it.

    Within a namespace all of those named move, or none. To another namespace, or another pool, each
    is copied as by `engram cp`, and goes here once it is there; meanwhile it can be read, and is
    not changed. If that is cut short, it is where it was, or in both places: the same command again
    ends it.
    """
    with _ends(pool, namespace, to, to_namespace, writes_source=True) as ends:
        steps = _steps(ends, list(map(object_path, paths)), dest, overwrite=not ends.are_one)
        told = []
        with ends.source.batch() if ends.are_one else contextlib.nullcontext():
            for step in steps:
                made = _done(ends, step, copying.move, scope=scope)
                told.append(_tell(ends, step, made, "moved", json=json))
        if json:
            terminal.print_json(told)


@contextlib.contextmanager
def _ends(
    pool: Path, namespace: str, to: Path | None, to_namespace: str | None, *, writes_source: bool
) -> Iterator[_Ends]:
    """Open both ends; the pool that is read alone is opened so."""
    there = to_namespace or ("default" if to is not None else namespace)
    if to is not None and (not to.exists() or not pool.exists() or not to.samefile(pool)):
        with (
            opened(pool, namespace, "r+" if writes_source else "r") as (_, source),
            opened(to, there, "r+") as (_, target),
        ):
            yield _Ends(source, target)
        return
    with opened(pool, namespace, "r+") as (handle, source):
        if there == namespace:
            yield _Ends(source, source)
        elif there in handle.namespaces:
            yield _Ends(source, handle.namespaces[there])
        else:
            names = ", ".join(handle.namespaces)
            message = f"no namespace {there!r} in {pool}; there are: {names}"
            raise engram.NotFoundError(message)


def _steps(ends: _Ends, paths: list[str], dest: str, *, overwrite: bool) -> list[_Step]:
    """Return what goes where; what is missing, or in the way, is told of before anything is done.

    With `overwrite`, a name that is taken is for whoever copies to judge.
    """
    if dest.startswith("/") and (Path(dest) / POOL_FILE).exists():
        message = (
            f"{plain(dest)} is a pool, and DEST is a path in one: name the pool by "
            f"--to {plain(dest)}, and give the new path, or /, as DEST"
        )
        raise ArgumentError(message)
    target = clean(dest)
    there = ends.target.get(target) if target else ends.target
    into = not target or dest.endswith("/") or isinstance(there, engram.Group)
    if len(paths) > 1 and not into:
        message = (
            f"{plain(dest)}: is no group to put {len(paths)} members into; to make one, end it "
            "with /"
        )
        raise ArgumentError(message)
    steps: list[_Step] = []
    for path in paths:
        old = clean(path)
        if old or into or not target:
            old = object_path(path)
        ends.source[old or "/"]  # which says what is there instead, if it is missing
        inside = into and not (ends.are_one and old == target)
        new = f"{target}/{old.rpartition('/')[2]}".lstrip("/") if inside else target
        if any(step.new == new for step in steps):
            message = f"{plain(new)}: two of those named would have this name; copy them one by one"
            raise ArgumentError(message)
        if not overwrite and new in ends.target and not (ends.are_one and new == old):
            raise _taken(new)
        steps.append(_Step(old or "/", new))
    return steps


def _taken(new: str) -> ExistsError:
    return ExistsError(
        f"{plain(new)}: exists already; `engram rm` it first, or choose another name"
    )


def _done(ends: _Ends, step: _Step, act: Any, **how: Any) -> Copied | None:
    """Copy or move one member, with a bar if it takes longer."""
    source, target = ends.source._namespace, ends.target._namespace
    spots = Spot(source, source.root, step.old), Spot(target, target.root, step.new)
    with Bar(plain(step.old), 0) as bar:
        made: Copied | None = act(
            *spots, **how, progress=lambda p: bar.update(p.done, plain(p.path), p.total)
        )
    return made


def _tell(
    ends: _Ends, step: _Step, made: Copied | None, done: str, *, json: bool
) -> dict[str, Any]:
    """Say what was done; return it as plain values."""
    target = ends.target._namespace
    where = {"pool": str(target.pool_path), "namespace": target.name}
    facts = {"from": step.old, "to": step.new, **where}
    if made is None:
        if not json:
            terminal.say(f"{step.old} is now {step.new}")
        return facts
    counts = {"objects": made.objects, "groups": made.groups, "nbytes": made.nbytes}
    if not json:
        objects = counted(made.objects, "object")
        groups = f" in {counted(made.groups, 'group')}" if made.groups else ""
        of_pool = "" if ends.are_one else f", namespace {target.name} of {target.pool_path}"
        size = human(made.nbytes)
        terminal.say(f"{step.old} {done} to {step.new}{of_pool}: {objects}{groups} ({size})")
    return {**facts, **counts}
