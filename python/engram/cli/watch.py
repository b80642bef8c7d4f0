"""`engram watch`: objects that a query finds, as they come, from any process."""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli import describe, terminal
from engram.cli.app import (
    JsonOption,
    NamespaceOption,
    PoolArgument,
    app,
    examples,
    opened,
)
from engram.cli.query import BelowOption, ParamOption, QueryArgument, group_below, params_of
from engram.errors import NotFoundError

if TYPE_CHECKING:
    from engram.array import Array
    from engram.blob import Blob


@app.command(
    epilog=examples(
        "engram watch /dev/shm/run 'exists(step)'",
        "engram watch /dev/shm/run 'step >= 100' --timeout 60 --count 1",
        "engram watch /dev/shm/run '@dtype = \"float64\"' --existing --json",
    )
)
def watch(
    pool: PoolArgument,
    expression: QueryArgument = "",
    *,
    below: BelowOption = "/",
    existing: Annotated[
        bool, typer.Option("--existing", help="First print what is there already.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="End when nothing has come for so long."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after so many objects.")
    ] = None,
    param: ParamOption = None,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """Print the path of each object that a query finds, as it comes, from any process.

    With --json, a line of JSON for each, with its attributes. docs/guide/watching.md tells more.
    """
    with opened(pool, namespace) as (_, root):
        group, params = group_below(root, below), params_of(param)
        found = group.watch(expression, timeout=timeout, existing=existing, params=params)
        for member in islice(found, count):
            with suppress(NotFoundError):  # it was deleted since
                _tell(member, json=json)


def _tell(member: Array | Blob, *, json: bool) -> None:
    """Print one object, so that who reads it has it at once."""
    if json:
        facts = {**describe.facts(member.name, member), "attributes": dict(member.attrs.items())}
        terminal.print_json(facts, indent=None)
    else:
        terminal.print_lines([member.path])
    sys.stdout.flush()
