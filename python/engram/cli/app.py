"""The application that the verbs add themselves to, and the arguments that they share."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import engram
from engram.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer.models import CommandInfo

    from engram.namespace import Namespace
    from engram.pool import Pool

app = typer.Typer(
    name="engram",
    help="Arrays that outlive their program: a pool in memory that every process maps.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

VERBS = ("create", "destroy", "ls", "info", "put", "get", "import", "rm", "verify", "demo")
"""The verbs, in the order in which help lists them."""

PoolArgument = Annotated[Path, typer.Argument(metavar="POOL", help="The pool's folder.")]
PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="A path in the pool, such as run-17/T.")
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace to look in.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def examples(*lines: str) -> str:
    """Return a verb's epilog: its examples, one a line."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  {line}" for line in lines)])


@app.callback(invoke_without_command=True)
def root(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Arrays that outlive their program: a pool in memory that every process maps."""
    if version:
        typer.echo(f"engram {engram.__version__}")
        raise typer.Exit


@contextlib.contextmanager
def opened(pool: Path, namespace: str, mode: str = "r") -> Iterator[tuple[Pool, Namespace | Pool]]:
    """Open a pool, and give it with the namespace whose members are meant; close it after."""
    with engram.open(pool, mode=mode) as handle:
        if namespace == "default":
            yield handle, handle
        elif namespace in handle.namespaces:
            yield handle, handle.namespaces[namespace]
        else:
            names = ", ".join(handle.namespaces)
            message = f"no namespace {namespace!r} in {pool}; there are: {names}"
            raise NotFoundError(message)


def verb_place(command: CommandInfo) -> int:
    """Return where a verb stands in `VERBS`."""
    return VERBS.index(command.name or getattr(command.callback, "__name__", ""))


def clean(path: str) -> str:
    """Return a path as the package wants it: ``""`` for the root, no slash at either end."""
    return path.strip("/")
