"""All namespaces of a pool, each with all that is in it: the whole of what `dump` and `diff` tell.

The path of a member begins with the name of its namespace there, and that of the pool is /.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli import blocks, terminal, walk
from engram.errors import AccessError, ArgumentError, EngramError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.cli.blocks import Fields
    from engram.cli.walk import Found, Resume, Wanted
    from engram.namespace import Namespace
    from engram.pool import Pool

AllNamespacesOption = Annotated[
    bool,
    typer.Option(
        "--all-namespaces",
        help="The whole pool: its settings, and all namespaces that you may enter.",
    ),
]


def one_or_all(namespace: str, *, everywhere: bool) -> str | None:
    """Return the namespace that is meant; None for all of them.

    Raises
    ------
    ArgumentError
        If it is one, and all.

    """
    if everywhere and namespace != "default":
        message = "--namespace and --all-namespaces exclude each other: give one of them"
        raise ArgumentError(message)
    return None if everywhere else namespace


def found_in(
    pool: Pool, root: Namespace | None, wanted: Wanted, resume: Resume | None = None
) -> Iterator[Found]:
    """Yield a group of a namespace with all that is below it; of no namespace, the whole pool.

    What is yielded is to be used before the next is asked for.

    Raises
    ------
    NotFoundError
        If there is no such group.
    ArgumentError
        If it is no group.

    """
    if root is not None:
        yield from walk.found_below(root, wanted, resume)
        return
    start: tuple[str, ...] = ()
    if resume is None:
        wanted.at((), False)
        about = blocks.fields_of_pool(pool, more=wanted.more)
        yield walk.Found((), None, blocks.POOL, about, [])
    elif not resume.path and not resume.below:
        return
    else:
        start = resume.path[:1]
    wanted.at((), True)
    for name in sorted(pool.namespaces, key=str.encode):
        if resume is not None and start == (name,):
            inner = walk.Resume(resume.path[1:], resume.below)
            if inner.path or inner.below:
                yield from _found_below(pool, name, wanted, inner)
        elif not start or name.encode() > start[0].encode():
            yield from _found_below(pool, name, wanted, None)


def _found_below(pool: Pool, name: str, wanted: Wanted, resume: Resume | None) -> Iterator[Found]:
    """Yield a namespace, and all that is in it."""
    here = (name,)
    wanted.at(here, False)
    about: Fields = {}
    try:
        about |= blocks.fields_of_namespace(pool, name, more=wanted.more)
        root = pool.namespaces[name]
        about["size"] = str(root.size)
    except walk.FATAL:
        raise
    except AccessError:
        terminal.note(f"{pool.path}: you may not enter namespace {name}: its members are left out")
        left_out = {blocks.MEMBERS: "left out"}
        yield walk.Found(here, None, blocks.NAMESPACE, about | left_out, [])
        return
    except EngramError as error:
        yield walk.Found(here, None, blocks.UNREADABLE, walk.told(error), [])
        return
    inner = walk.Wanted(
        "",
        wanted.more,
        at=lambda path, is_listed: wanted.at((*here, *path), is_listed),
        again=lambda path: wanted.again((*here, *path)),
    )
    for found in walk.found_below(root, inner, resume):
        placed = found._replace(path=(*here, *found.path))
        if not found.path and found.kind != blocks.UNREADABLE:
            placed = placed._replace(kind=blocks.NAMESPACE, fields=about | found.fields)
        yield placed
