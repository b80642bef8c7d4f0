"""`engram diff`: what differs between two pools, two groups, or dumps of such."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from engram.cli import apart, blocks, completion, damage, terminal, walk
from engram.cli.app import JsonOption, NamespaceOption, app, examples
from engram.cli.everywhere import AllNamespacesOption, one_or_all
from engram.cli.literals import word
from engram.cli.sides import Asked, Side, side_of
from engram.cli.terminal import counted
from engram.errors import AccessError, ArgumentError, CorruptError, EngramError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.cli.apart import Say
    from engram.cli.blocks import Fields
    from engram.cli.sides import Entry

DIFFERENT = 1
"""The exit code where there is a difference."""

TROUBLE = 2
"""The exit code where that could not be found out, as diff(1) has it."""

ADDED, REMOVED, CHANGED, UNREADABLE = "added", "removed", "changed", "unreadable"
_VALUES = "values"
_AT_ONCE = 64
"""So many differences are told at once."""
_LEFT_OUT = "its members are left out: you may not enter it"
_LONG, _BEFORE, _AROUND = 240, 40, 100
"""Of texts longer than the first, people are shown what is around the first difference."""
_DIGITS = 12
"""So many digits of a sum are shown to people."""


class Difference(NamedTuple):
    """One difference."""

    change: str
    path: str
    what: str
    old: str | None
    new: str | None


def _argument(name: str) -> Any:
    return typer.Argument(
        metavar=name,
        help="A pool, a group as POOL:GROUP, a file that `dump` has written, or - for stdin.",
        autocompletion=completion.pools,
    )


@app.command(
    epilog=examples(
        "engram diff /dev/shm/run /scratch/run-of-monday",
        "engram diff /dev/shm/run:run-17 /dev/shm/run:run-18 --no-values",
        "engram diff run.txt /dev/shm/run --json",
        "engram diff /dev/shm/run /scratch/run-of-monday --all-namespaces",
    )
)
def diff(
    a: Annotated[str, _argument("A")],
    b: Annotated[str, _argument("B")],
    *,
    no_values: Annotated[
        bool, typer.Option("--no-values", help="Read and compare no values.")
    ] = False,
    namespace: NamespaceOption = "default",
    all_namespaces: AllNamespacesOption = False,
    json: JsonOption = False,
) -> None:
    """Say what differs between two pools, two groups of pools, or dumps of such.

    A line for each difference, in the order of paths: what was added in B, removed from A, or
    changed, by field, by attribute and by the sum of the values; and what is damaged. Ids, owners
    and times are not compared. It exits with 0 if all is equal, with 1 if not, and with 2 if that
    cannot be told.
    """
    try:
        one = one_or_all(namespace, everywhere=all_namespaces)
        found, broken, left_out = _told(a, b, Asked(one, not no_values), json=json)
        _refuse_untold(broken, left_out)
    except BrokenPipeError:
        raise
    except (EngramError, OSError) as error:
        terminal.fail(f"{error}", TROUBLE, terminal.kind_of(error))
    if found:
        raise typer.Exit(DIFFERENT)


def _refuse_untold(broken: int, left_out: int) -> None:
    """Refuse to say that all has been compared where it has not."""
    closed = (
        f"the members of {counted(left_out, 'namespace')} are left out, and may differ: compare "
        "as a user who may enter it"
    )
    if broken:
        more = f"; {closed}" if left_out else ""
        message = (
            f"{counted(broken, 'member')} could not be read, and may differ: `engram verify` "
            f"tells what is damaged{more}"
        )
        raise CorruptError(message)
    if left_out:
        raise AccessError(closed)


def _told(a: str, b: str, asked: Asked, *, json: bool) -> tuple[int, int, int]:
    """Print the differences, and return how many they are, of damage, and of what is left out."""
    sides = side_of(a), side_of(b)
    if a == b == "-":
        message = "A and B are both stdin: give one of them as a file or a pool"
        raise ArgumentError(message)
    found = 0
    untold = {blocks.UNREADABLE: 0, blocks.MEMBERS: 0}
    for each in _compared_apart(sides, asked):
        if json:
            sys.stdout.write(",\n" if found else "[\n")
            terminal.print_json(each._asdict(), indent=None)
        else:
            sys.stdout.write(f"{_line(each)}\n")
        found += 1
        if each.change == UNREADABLE:
            is_left_out = each.what == blocks.MEMBERS
            untold[blocks.MEMBERS if is_left_out else blocks.UNREADABLE] += 1
    if json:
        sys.stdout.write("]\n" if found else "[]\n")
    return found, untold[blocks.UNREADABLE], untold[blocks.MEMBERS]


def _compared_apart(sides: tuple[Side, Side], asked: Asked) -> Iterator[Difference]:
    """Yield the differences that a child finds."""
    with sides[0].opened() as a, sides[1].opened() as b:
        told = _as_dumps_have_it(asked, (a, b))
        for tag, *words in apart.lines_of(lambda say: _compare(a, b, told, say)):
            if tag == apart.DIED:
                message = (
                    f"who read {a.word} and {b.word} was killed by {words[0]}: `engram verify` "
                    "tells what is damaged"
                )
                raise CorruptError(message)
            yield Difference(*words)


def _as_dumps_have_it(asked: Asked, sides: tuple[Side, Side]) -> Asked:
    """Return what is compared where dumps have no sums, or are of all namespaces."""
    for side in sides:
        if asked.values and blocks.NO_VALUES in side.says:
            asked = asked._replace(values=False)
            terminal.note(f"{side.word} has no sums of values: values are not compared")
        if asked.namespace == "default" and blocks.ALL_NAMESPACES in side.says:
            asked = asked._replace(namespace=None)
    return asked


def _line(each: Difference) -> str:
    """Return a difference as a line for people."""
    start = f"{each.change:<7}  {word(each.path)}"
    if each.change == UNREADABLE:
        errors = {"A": each.old, "B": each.new}
        there = [side for side, error in errors.items() if error is not None]
        return f"{start}  in {' and '.join(there)}: {each.new if each.old is None else each.old}"
    if each.change == CHANGED:
        old, new = _about_difference(_short(each.old), _short(each.new))
        return f"{start}  {each.what}: {old} -> {new}"
    return f"{start}  {each.new if each.old is None else each.old}"


def _short(text: str | None) -> str:
    """Return a value, or that there is none; of a sum the first digits."""
    if text is None:
        return "(none)"
    if text.startswith(f"{blocks.SUM} "):
        return text[: len(blocks.SUM) + 1 + _DIGITS]
    return text


def _about_difference(old: str, new: str) -> tuple[str, str]:
    """Return two texts; of long ones what is about the first place where they differ."""
    if max(len(old), len(new)) <= _LONG:
        return old, new
    pairs = enumerate(zip(old, new, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))
    first = max(same - _BEFORE, 0)

    def part(text: str) -> str:
        end = first + _AROUND
        before, after = "..." if first else "", "..." if len(text) > end else ""
        return f"{before}{text[first:end]}{after}"

    return part(old), part(new)


def _compare(a: Side, b: Side, asked: Asked, say: Say) -> None:
    """Say each difference: in a child."""
    number = 0
    wrong = functools.cache(damage.wrong_values)  # two groups of a pool need one look
    closed: tuple[str, ...] | None = None
    for old, new in _paired(a.entries(asked, wrong), b.entries(asked, wrong)):
        there = [each for each in (old, new) if each is not None]
        path = there[0].path
        if closed is not None and path[: len(closed)] == closed:
            continue  # what only one of them may tell is no difference
        closed = path if any(map(_is_closed, there)) else None
        for each in _differences(old, new, values=asked.values):
            number += 1
            say("difference", *each, later=number % _AT_ONCE != 0)


def _paired(a: Iterator[Entry], b: Iterator[Entry]) -> Iterator[tuple[Entry | None, Entry | None]]:
    """Yield the entries of both with those of the same path together, in the order of paths."""
    old, new = next(a, None), next(b, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old.key < new.key):
            yield old, None
            old = next(a, None)
        elif old is None or new.key < old.key:
            yield None, new
            new = next(b, None)
        else:
            yield old, new
            old, new = next(a, None), next(b, None)


def _differences(old: Entry | None, new: Entry | None, *, values: bool) -> Iterator[Difference]:
    """Yield what differs between what stands in one place."""
    there = [each for each in (old, new) if each is not None]
    path = walk.shown(there[0].path)
    if any(each.kind == blocks.UNREADABLE for each in there):
        yield Difference(UNREADABLE, path, blocks.UNREADABLE, _lost(old), _lost(new))
        return
    if old is None or new is None:
        yield from _of_one(path, old, new)
    else:
        yield from _of_both(path, old, new)
    if any(map(_is_closed, there)):
        texts = [_LEFT_OUT if _is_closed(each) else None for each in (old, new)]
        yield Difference(UNREADABLE, path, blocks.MEMBERS, *texts)
    if values:
        yield from _of_values(path, old, new)


def _is_closed(entry: Entry | None) -> bool:
    """Whether it is a namespace of which the members are left out."""
    return entry is not None and entry.kind == blocks.NAMESPACE and blocks.MEMBERS in entry.fields


def _lost(entry: Entry | None) -> str | None:
    """Return what was wrong with a member that could not be read at all."""
    if entry is None or entry.kind != blocks.UNREADABLE:
        return None
    return entry.fields.get(blocks.ERROR, "")


def _of_one(path: str, old: Entry | None, new: Entry | None) -> Iterator[Difference]:
    """Yield what one of the two alone has."""
    if old is not None:
        yield Difference(REMOVED, path, old.kind, _summary(old), None)
    if new is not None:
        yield Difference(ADDED, path, new.kind, None, _summary(new))


def _of_both(path: str, old: Entry, new: Entry) -> Iterator[Difference]:
    """Yield the kind and the fields that differ."""
    if old.kind != new.kind:
        yield Difference(CHANGED, path, "kind", old.kind, new.kind)
    was, now = _compared(old.fields), _compared(new.fields)
    is_whole = not _is_closed(old) and not _is_closed(new)
    names = {*was, *now} if is_whole else {*was} & {*now}
    for name in sorted(names, key=lambda name: (name.startswith(blocks.ATTRIBUTE), name)):
        if was.get(name) != now.get(name):
            yield Difference(CHANGED, path, name, was.get(name), now.get(name))


def _compared(fields: Fields) -> Fields:
    """Return the fields that are compared one by one."""
    left_out = (*blocks.MORE, blocks.SUM, blocks.ERROR, blocks.MEMBERS)
    return {name: text for name, text in fields.items() if name not in left_out}


def _may_be_equal(old: Entry | None, new: Entry | None) -> bool:
    """Whether the values are worth reading: they are of one kind, dtype and size."""
    if old is None or new is None or old.kind != new.kind:
        return False
    return all(old.fields.get(name) == new.fields.get(name) for name in ("dtype", "nbytes"))


def _of_values(path: str, old: Entry | None, new: Entry | None) -> Iterator[Difference]:
    """Yield the difference of values, if there is one; of those that are not read, known damage."""
    is_read = _may_be_equal(old, new)
    was, now = (_total(each, is_read=is_read) for each in (old, new))
    errors = [each.get(blocks.ERROR) for each in (was, now)]
    if any(errors):
        yield Difference(UNREADABLE, path, _VALUES, *errors)
    elif is_read and was != now:
        sums = [f"{blocks.SUM} {each[blocks.SUM]}" if each else None for each in (was, now)]
        yield Difference(CHANGED, path, _VALUES, *sums)


def _total(entry: Entry | None, *, is_read: bool) -> Fields:
    """Return the sum of values, or what is wrong with them; unread, where that is known."""
    if entry is None:
        return {}
    return entry.total() if is_read else entry.known


def _summary(entry: Entry) -> str:
    """Return what something is, in a few words."""
    told = [entry.fields[name] for name in ("dtype", "shape") if name in entry.fields]
    nbytes = entry.fields.get("nbytes")
    if not told and nbytes is not None:
        told = [f"{nbytes} bytes"]
    return " ".join([entry.kind, *told])
