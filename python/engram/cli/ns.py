"""`engram ns`: the namespaces of a pool, listed, made, bounded, opened to others and removed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

import engram
from engram import owners
from engram import size as sizes
from engram.cli import completion, drawing, terminal
from engram.cli.app import JsonOption, PoolArgument, app, bits_of, examples, group_of
from engram.cli.terminal import counted
from engram.errors import AccessError, ArgumentError, CorruptError, FormatError, NotFoundError
from engram.pool import open as open_pool
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.pool import Pool

_HEADINGS = ("name", "owner", "group", "mode", "size", "used", "members")


@app.command(
    epilog=examples(
        "engram ns /dev/shm/run",
        "engram ns /dev/shm/run icesat --create --mode 770 --group science --size 8GiB",
        "engram ns /dev/shm/run icesat --size 16GiB    # set its bound anew",
        "engram ns /dev/shm/run icesat --mode 755    # let all read what is published",
        "engram ns /dev/shm/run icesat --remove",
        "engram ns /dev/shm/run default --remove-private",
    )
)
def ns(
    pool: PoolArgument,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A namespace; all if none.", autocompletion=completion.namespaces
        ),
    ] = None,
    *,
    create: Annotated[bool, typer.Option("--create", help="Make it.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove it, with all in it.")] = False,
    remove_private: Annotated[
        bool, typer.Option("--remove-private", help="Remove what you keep in private in it.")
    ] = False,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="OCTAL",
            help="Who may: 755, all read what is published; 770, its group writes; 700, its owner.",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Its Unix group, by name or number.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="Most bytes of values in it, such as 500MB or 4GiB."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove it without asking.")] = False,
    json: JsonOption = False,
) -> None:
    """List the namespaces of a pool; make, bound or remove one; say who may enter it."""
    verbs = {"--create": create, "--remove": remove, "--remove-private": remove_private}
    given = [word for word, given in verbs.items() if given]
    _check(name, given, sized=size is not None, mode=mode, group=group)
    if name is not None and mode is not None and not create:
        # With the pool closed: whether its group writes changes while nobody has it open.
        engram.chmod(pool, bits_of(mode), namespace=name)
        terminal.say(f"namespace {name} has mode {bits_of(mode):o} now")
        if size is None:
            return
    changes = any(verbs.values()) or size is not None
    with open_pool(pool, mode="r+" if changes else "r") as handle:
        if name is not None and not create:
            _require(handle, name)
        if name is not None and create:
            bits = 0o770 if mode is None else bits_of(mode)
            handle.create_namespace(name, bits, group_of(group), size)
            terminal.say(f"created namespace {name} (mode {bits:o})")
        elif name is not None and remove:
            _remove(handle, name, yes=yes)
        elif name is not None and remove_private:
            _remove_private(handle, name, yes=yes)
        elif name is not None and size is not None:
            bound = handle.namespaces[name]
            bound.resize(sizes.parse(size))
            terminal.say(f"namespace {name} holds up to {human(bound.size)} now")
        else:
            _list(handle, name, json=json)


def _check(
    name: str | None, verbs: list[str], *, sized: bool, mode: str | None, group: str | None
) -> None:
    """Refuse options that do not go together."""
    if len(verbs) > 1:
        message = f"{' and '.join(verbs)} exclude each other: give one of them"
        raise ArgumentError(message)
    if name is None and (verbs or sized or mode):
        message = "which namespace? Name it after the pool, such as `engram ns POOL icesat`"
        raise ArgumentError(message)
    if sized and verbs not in ([], ["--create"]):
        message = f"{verbs[0]} and --size exclude each other: give one of them"
        raise ArgumentError(message)
    if mode and verbs not in ([], ["--create"]):
        message = f"{verbs[0]} and --mode exclude each other: give one of them"
        raise ArgumentError(message)
    if group and verbs != ["--create"]:
        message = "--group is for --create: a namespace keeps the group that it was made with"
        raise ArgumentError(message)


def _require(pool: Pool, name: str) -> None:
    """Refuse a namespace that is not there, with those that are."""
    if name not in pool.namespaces:
        message = f"no namespace {name!r} in {pool.path}; there are: {', '.join(pool.namespaces)}"
        raise NotFoundError(message)


def _remove(pool: Pool, name: str, *, yes: bool) -> None:
    """Remove a namespace, after asking."""
    (facts,) = facts_of(pool, name)
    held = "all that is in it"
    if facts["members"] is not None:
        held = f"its {counted(facts['members'], 'member')} ({human(facts['used'])})"
    _ask(f"Remove namespace {name} with {held}?", f"{name}: ", held, yes=yes)
    pool.remove_namespace(name)
    terminal.say(f"removed namespace {name}")


def _remove_private(pool: Pool, name: str, *, yes: bool) -> None:
    """Remove what this user keeps in private, after asking."""
    held = f"all that you keep in private in namespace {name}"
    _ask(f"Remove {held}?", "", held, yes=yes)
    pool.remove_private(name)
    terminal.say(f"removed {held}")


def _ask(question: str, of: str, held: str, *, yes: bool) -> None:
    """Ask before something is removed; where nobody can answer, `--yes` has to."""
    if yes:
        return
    if not sys.stdin.isatty():
        message = f"{of}nobody is there to be asked; add --yes to remove {held}"
        raise ArgumentError(message)
    terminal.confirm(question)


def _list(pool: Pool, name: str | None, *, json: bool) -> None:
    """Print what is known of each namespace, or of one."""
    told = list(facts_of(pool, name))
    if json:
        terminal.print_json(told)
        return
    rows = [[_shown(heading, facts) for heading in _HEADINGS] for facts in told]
    drawing.print_table(_HEADINGS, rows, key="name", right=("mode", "size", "used", "members"))
    for facts in told:
        if facts["damaged"] is not None:
            terminal.say(f"{facts['name']} is damaged: {facts['damaged']}")


def facts_of(pool: Pool, name: str | None) -> Iterator[dict[str, Any]]:
    """Yield what is known of each namespace; what is another user's, or damaged, is None."""
    found = pool.namespaces
    for each in list(found) if name is None else [name]:
        info = found.info(each)
        facts: dict[str, Any] = {
            "name": each,
            "owner": owners.user(info.owner),
            "group": owners.unix_group(info.group),
            "mode": f"{info.mode:03o}",
            "size": None,
            "used": None,
            "members": None,
            "damaged": None,
        }
        try:
            inner = found[each]
            space = inner.space
            facts |= {"size": space.size, "used": space.used, "members": len(inner)}
        except AccessError:
            pass
        except (CorruptError, FormatError, NotFoundError) as error:
            facts["damaged"] = str(error)  # it hides none of the others
        yield facts


def _shown(heading: str, facts: dict[str, Any]) -> str:
    """Return a cell of the table."""
    value = facts[heading]
    if value is None:
        return "not yours" if facts["damaged"] is None else "damaged"
    return human(value) if heading in ("size", "used") else str(value)
