"""`engram active`: active objects, their classes, a call of a method; `engram gc`."""

from __future__ import annotations

import importlib
import inspect
import json as json_text
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engram import active
from engram.active.code import classes as stored
from engram.active.collecting import AGE
from engram.active.places import ways
from engram.active.stored import collect
from engram.active.stored.home import Home, home_of
from engram.active.stored.layout import ALIASES_OF, CLASS, MOVED
from engram.cli import drawing, terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PoolArgument,
    app,
    dress,
    examples,
    group_of_verbs,
    opened,
)
from engram.cli.terminal import counted
from engram.errors import ArgumentError, CorruptError, EngramError, NotFoundError
from engram.namespace import Namespace
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

verbs = group_of_verbs(
    "active",
    "Active objects: list them and their classes, call a method, collect garbage.",
    examples(
        "engram active ls /dev/shm/run",
        "engram active call /dev/shm/run T mean",
        "engram active gc /dev/shm/run --dry-run",
    ),
)

AliasArgument = Annotated[
    str, typer.Argument(metavar="ALIAS", help="The object's alias, or its id.")
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Delete nothing; say what would go.")]
OlderOption = Annotated[
    float | None,
    typer.Option(
        "--older-than",
        metavar="SECONDS",
        help="Leave what was changed within that time: 0, or with --every 3600, by default.",
        min=0,
    ),
]
EveryOption = Annotated[
    float | None,
    typer.Option("--every", metavar="SECONDS", help="Do it again and again, until interrupted."),
]


@verbs.command(
    epilog=examples("engram active ls /dev/shm/run", "engram active ls /dev/shm/run --all --json")
)
def ls(
    pool: PoolArgument,
    *,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those without an alias.")
    ] = False,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """List active objects: aliases, class with version, id, bytes."""
    with opened(pool, namespace) as (_, root):
        facts = list(_facts(home_of(root), everything=everything))
    if json:
        terminal.print_json(facts)
        return
    rows = [
        [", ".join(each["aliases"]) or "-", each["class"], each["id"], human(each["nbytes"])]
        for each in facts
    ]
    drawing.print_table(("alias", "class", "id", "bytes"), rows, key="alias", right=("bytes",))


def _facts(home: Home, *, everything: bool) -> Iterator[dict[str, Any]]:
    """Yield what is known of each object."""
    called: dict[int, list[str]] = {}
    for alias, found in home.aliases().items():
        if found is None:
            yield {"id": "-", "class": "unreadable", "aliases": [alias], "nbytes": 0}
        else:
            called.setdefault(found, []).append(alias)
    for gid in collect.objects(home) if everything else called:
        try:
            kind = home.notes(gid, CLASS)
            if kind == "":
                kind = _where_to(home.notes(gid, MOVED))
            names = home.notes(gid, ALIASES_OF) or called.get(gid, [])
        except NotFoundError:  # deleted meanwhile
            continue
        except CorruptError:
            kind, names = "unreadable", called.get(gid, [])
        yield {
            "id": f"{gid:x}",
            "class": str(kind),
            "aliases": sorted(names),
            "nbytes": collect.nbytes_of(home, gid),
        }


def _where_to(moved: Any) -> str:
    """Say where an object has moved to."""
    if not isinstance(moved, list):
        return "moved" if moved is None else f"moved to {moved:x}"
    _, path, namespace, gid = moved
    where = path if namespace == "default" else f"{path}?{namespace}"
    return f"moved to {gid:x} in {where}"


@verbs.command(
    epilog=examples(
        "engram active classes /dev/shm/run",
        "engram active classes /dev/shm/run model.Block --source",
    )
)
def classes(
    pool: PoolArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="CLASS", help="A class; all if none.")
    ] = None,
    *,
    source: Annotated[bool, typer.Option("--source", help="Print its source.")] = False,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """List the classes that a pool keeps: fields, methods, who stored them; or their source."""
    with opened(pool, namespace) as (_, root):
        home = home_of(root)
        names = stored.stored_names(home) if name is None else [name]
        found = [stored.stored_class(home, each) for each in names]
    if json:
        terminal.print_json([_class_facts(each, source=source) for each in found])
        return
    for each in found:
        if source:
            terminal.print_lines((each.source or "# no source was stored").splitlines())
            continue
        drawing.print_title(f"{each.name}, version {each.version}")
        drawing.print_facts(
            {
                "fields": ", ".join(f"{name}: {fact.kind}" for name, fact in each.fields.items()),
                "methods": ", ".join(each.methods) or "none",
                "stored": f"{terminal.iso(each.stored)} by {each.owner}",
                "source": f"{len(each.source.splitlines())} lines"
                + (f", which lack {', '.join(each.missing)}" if each.missing else ""),
            },
            indent=2,
        )


def _class_facts(each: stored.StoredClass, *, source: bool) -> dict[str, Any]:
    facts = {
        "name": each.name,
        "version": each.version,
        "fields": {name: fact.kind for name, fact in each.fields.items()},
        "methods": each.methods,
        "owner": each.owner,
        "stored": terminal.iso(each.stored),
        "missing": each.missing,
    }
    return facts | ({"source": each.source} if source else {})


@verbs.command(
    epilog=examples(
        "engram active call /dev/shm/run T mean",
        "engram active call /dev/shm/run T scale 2.5",
        "engram active call /dev/shm/run T rename label='\"warm\"' --module model",
    )
)
def call(
    pool: PoolArgument,
    alias: AliasArgument,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="An active method of it.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARG",
            help="Its arguments: JSON, else text; name=value by name; -- before a negative number.",
        ),
    ] = None,
    *,
    module: Annotated[
        str | None, typer.Option(metavar="NAME", help="Import the class from this module.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the class's stored source, whoever wrote it.")
    ] = False,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Call a method of an active object, and print what it returns.

    The class is imported with --module; else its source is taken from the pool, if the pool is
    yours alone, or with --trust.
    """
    with opened(pool, namespace, "r+") as (_, root), active.use(root):
        home = home_of(root)
        if module is not None:
            _import(module)
        home, gid = ways.end_of(home, _named(home, alias))
        place = Namespace(home.namespace)
        if module is None:
            name, version = stored.parts(str(home.notes(gid, CLASS)))
            active.load_class(name, place, trust=trust, version=version)
        obj = active.ActiveObject.get_by_id(gid, pool=place)
        function = getattr(type(obj), method, None)
        if not isinstance(function, active.ActiveMethod):
            names = ", ".join(stored.stored_class(home, stored.known_as(home, gid)).methods)
            raise ArgumentError(f"{method!r} is no active method of {alias!r}: it has {names}")
        args, kwargs = _arguments(arguments or [])
        try:
            inspect.signature(function.function).bind(obj, *args, **kwargs)
        except TypeError as error:
            takes = f"{method}{inspect.signature(function.function)}"
            raise ArgumentError(f"{error}: it is {takes}") from None
        try:
            result = getattr(obj, method)(*args, **kwargs)
        except (EngramError, OSError):
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise active.MethodError(f"{method} of {alias!r} failed: {what}") from error
        if json:
            terminal.print_json(result)
        elif result is not None:
            terminal.print_lines(str(result).splitlines())


def _import(module: str) -> None:
    """Import a class's module."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise NotFoundError(
            f"the module {module!r} was not imported: {error}. PYTHONPATH says where modules are"
        ) from None


def _named(home: Home, alias: str) -> int:
    """Give the object that an alias or an id names."""
    try:
        return home.by_alias(alias)
    except NotFoundError:
        try:
            gid = int(alias.rpartition(":")[2], 16)
            home.notes(gid, CLASS)
        except (ValueError, OverflowError, NotFoundError):
            gid = None
        if gid is None:
            raise
        return gid


def _arguments(words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Read a call's arguments."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name.isidentifier():
            kwargs[name] = _value(value)
        else:
            args.append(_value(word))
    return args, kwargs


def _value(word: str) -> Any:
    try:
        return json_text.loads(word)
    except ValueError:
        return word


def _collect(
    pool: Path,
    namespace: str,
    *,
    dry_run: bool,
    older_than: float | None,
    every: float | None,
    json: bool,
) -> None:
    if every is not None:
        if dry_run:
            raise typer.BadParameter("--every deletes, and --dry-run does not: give one of them")
        _collect_on(pool, namespace, every, older_than, json=json)
        return
    with opened(pool, namespace, "r" if dry_run else "r+") as (_, root):
        done = active.gc(root, dry_run=dry_run, older_than=older_than or 0.0)
    if json:
        terminal.print_json(done._asdict())
        return
    went = "would go" if dry_run else "collected"
    line = f"{went}: {counted(done.objects, 'object')} ({human(done.nbytes)})"
    kept = f"; kept {counted(done.kept, 'unreachable one')}" if done.kept else ""
    terminal.say(f"{line}; reachable: {done.reachable}{kept}")


def _collect_on(
    pool: Path, namespace: str, every: float, older_than: float | None, *, json: bool
) -> None:
    """Collect again and again, until it is interrupted; then say what was done."""
    age = AGE if older_than is None else older_than
    with opened(pool, namespace, "r+") as (_, root):
        collector = active.collect(root, every=every, older_than=age)
        try:
            collector.wait()
        finally:
            done = collector.stop()
            why = None if done.error is None else str(done.error)
            if json:
                terminal.print_json({**done._asdict(), "error": why})
            else:
                line = f"collected: {counted(done.objects, 'object')} ({human(done.nbytes)})"
                terminal.say(f"{line} in {counted(done.rounds, 'round')}")
                if why is not None:
                    terminal.say(f"the last round failed: {why}")


@verbs.command(
    name="gc",
    epilog=examples(
        "engram active gc /dev/shm/run --dry-run",
        "engram active gc /dev/shm/run --older-than 3600",
        "engram active gc /dev/shm/run --every 60",
    ),
)
def collect_garbage(
    pool: PoolArgument,
    *,
    dry_run: DryOption = False,
    older_than: OlderOption = None,
    every: EveryOption = None,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Delete the active objects that no alias leads to, directly or by references."""
    _collect(pool, namespace, dry_run=dry_run, older_than=older_than, every=every, json=json)


@app.command(
    epilog=examples("engram gc /dev/shm/run --dry-run", "engram gc /dev/shm/run --every 60")
)
def gc(
    pool: PoolArgument,
    *,
    dry_run: DryOption = False,
    older_than: OlderOption = None,
    every: EveryOption = None,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Delete the active objects that no alias leads to: as `engram active gc`."""
    _collect(pool, namespace, dry_run=dry_run, older_than=older_than, every=every, json=json)


dress(verbs)
