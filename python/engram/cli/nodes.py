"""`engram stage nodes`: where the persistent pools of a name lie."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from engram import jobs
from engram.cli import terminal
from engram.cli.app import JsonOption, examples

EXAMPLES = examples(
    "engram stage nodes weather",
    'sbatch --nodelist="$(engram stage nodes weather)" job.sh',
)


def stage_nodes(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What `reuse` calls the pool.")],
    *,
    json: JsonOption = False,
) -> None:
    """Print the nodes on which the persistent pool of this name lies, as --nodelist takes them.

    It is the name that the descriptions of its jobs have in reuse, or that of a persistent pool of
    Slurm.
    """
    found = jobs.nodes(name)
    if json:
        times = [{"used": _when(pool.used), "expires": _when(pool.expires)} for pool in found]
        terminal.print_json(
            [pool._asdict() | when for pool, when in zip(found, times, strict=True)]
        )
    else:
        terminal.say(",".join(dict.fromkeys(pool.node for pool in found)))


def _when(seconds: float | None) -> datetime | None:
    """Return a time as JSON has it."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
