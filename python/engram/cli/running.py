"""`engram run`: a program that finds files of a pool below a prefix, by a preloaded library."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from engram import programs
from engram.cli import output, terminal
from engram.cli.app import JsonOption, NamespaceOption, app, examples
from engram.errors import ArgumentError, FormatError, UnsupportedError
from engram.running import Settings, parse_place, permit

_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")
_COERCED = "LC_CTYPE"
"""The variable that Python sets for itself where the locale is C."""


@app.command(
    context_settings={"allow_interspersed_args": False},  # the program's options are its own
    epilog=examples(
        "engram run -p /dev/shm/run=/p -- tar -xf case.tar -C /p",
        "engram run -p /dev/shm/run:/case-7=/p -- simulate --out /p/out",
        "engram run -p /dev/shm/run=/p --trace run.trace -- make -C /p",
        "engram run --check simulate",
    ),
)
def run(
    program: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM", help="The program, and its arguments."),
    ],
    *,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool",
            "-p",
            metavar="POOL[:PATH]=PREFIX",
            help="A pool, or a group in it, and the path at which the program finds it.",
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all changes.")] = False,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Append a line for each operation to this file."),
    ] = None,
    trace_ring: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:SIZE]",
            help="The same in a file of fixed size that keeps the newest lines.",
        ),
    ] = None,
    mount: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="A mount of the pool, for what the library does not reach."
        ),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Start also what the library does not reach.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Say whether the library reaches it; start nothing.")
    ] = False,
    as_json: JsonOption = False,
    namespace: NamespaceOption = "default",
) -> None:
    """Run a program that finds files of a pool below a prefix, without the kernel.

    The program needs no change: a library is preloaded in it, and in all that it starts. A static
    program, say, is not reached by that, and is named before it starts.
    """
    if not pool and not check:
        message = "which pool? -p POOL=/prefix says so, and where the program finds it"
        raise ArgumentError(message)
    settings = Settings(
        [parse_place(text) for text in pool or ()],
        namespace,
        read_only=read_only,
        trace=trace,
        trace_ring=trace_ring,
        mount=mount,
        anyway=anyway,
    )
    environment = settings.environment(_given()) if pool else _given()
    search = os.get_exec_path(environment)
    found = programs.look(program[0], search=search, prefixes=settings.prefixes)
    if check:
        _tell(found, as_json=as_json)
        return
    for said in permit(found, settings):
        terminal.note(said)
    _become(found.path, program, environment)


def _given() -> dict[str, str]:
    """Give the environment as this process was given it."""
    environment = dict(os.environ)
    with contextlib.suppress(OSError):
        first = Path("/proc/self/environ").read_bytes().split(b"\0")
        if not any(entry.startswith(f"{_COERCED}=".encode()) for entry in first):
            environment.pop(_COERCED, None)
    return environment


def _tell(found: programs.Program, *, as_json: bool) -> None:
    """Print what would be said of a program; exit as its start would."""
    if as_json:
        terminal.print_json(
            {
                "program": found.path,
                "files": found.files,
                "reached": found.hidden is None,
                "obstacles": [obstacle._asdict() for obstacle in found.obstacles],
            }
        )
    else:
        for obstacle in found.obstacles:
            part = "nothing below a prefix is found" if obstacle.hides else "the rest is reached"
            terminal.say(f"{obstacle.path}: {obstacle.why} ({part})")
        if found.hidden is None:
            terminal.say(f"{found.files[-1]}: the library reaches it")
        else:
            terminal.say("mount the pool (`engram mount POOL DIR`), and give it paths below DIR")
    if found.hidden is not None:
        raise typer.Exit(UnsupportedError.exit_code)


def _become(path: str, words: list[str], environment: dict[str, str]) -> NoReturn:
    """Execute a program in the place of this one, which leaves it nothing of its own."""
    output.flush()
    for name in _IGNORED_BY_PYTHON:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    for descriptor in output.stand_ins:
        os.set_inheritable(descriptor, False)
    try:
        os.execve(path, words, environment)  # noqa: S606 - no shell is to be asked
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            message = f"{path} is no program that the kernel can start: name what runs it"
            raise FormatError(message) from None
        raise
