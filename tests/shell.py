"""The command line, run in this process, in a pipe, in a terminal of any size.

As a script (`shell.py COMMANDS`, in JSON) it runs commands one after the other, each in a process
that is forked from this one: it begins as any does, but for the imports, which take longest.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import engram
import engram.cli.run  # once, before it is forked
from engram.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

COMMAND = [sys.executable, "-m", "engram.cli"]
_CODE, _NEXT = "\x1e", "\x1f"  # no command writes these


class Ended(NamedTuple):
    """How a command ended: its exit code, and what it printed."""

    code: int
    out: str
    err: str


def run(*words: object) -> Ended:
    """Run `engram WORD…` in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as ended:
            code = ended.code
    assert code is not None, "main() always exits"
    return Ended(code if isinstance(code, int) else 1, out.getvalue(), err.getvalue())


def piped(*words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `engram WORD…` in a pipe."""
    return subprocess.run(
        [*COMMAND, *(str(word) for word in words)],
        input=stdin,
        capture_output=True,
        check=False,
    )


def in_terminal(
    *words: object, columns: int = 80, rows: int = 24, typed: bytes = b"", colour: bool = False
) -> tuple[int, str]:
    """Run `engram WORD…` in a terminal and return exit code and what is to be seen."""
    command = [*COMMAND, *(str(word) for word in words)]
    return _seen(command, columns, rows, typed=typed, colour=colour)


def each_in_terminal(
    commands: Iterable[Iterable[object]], *, columns: int = 80, rows: int = 24
) -> list[tuple[int, str]]:
    """Run several `engram WORD…` in a terminal, as `in_terminal` does each, in less time."""
    told = [[str(word) for word in words] for words in commands]
    script = [sys.executable, __file__, json.dumps(told)]
    code, text = _seen(script, columns, rows)
    assert code == 0, text
    found = [part.rpartition(_CODE) for part in text.split(_NEXT)[:-1]]
    assert len(found) == len(told), text
    return [(int(ended), seen) for seen, _, ended in found]


def _seen(
    command: list[str], columns: int, rows: int, *, typed: bytes = b"", colour: bool = False
) -> tuple[int, str]:
    """Run a command in a terminal and return exit code and what is to be seen."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES", "NO_COLOR"}}
    environment = {**kept, "TERM": "xterm-256color", **({} if colour else {"NO_COLOR": "1"})}
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment
    ) as child:
        os.close(follower)
        os.write(leader, typed)
        seen = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the terminal has nobody left
                break
            if not piece:
                break
            seen += piece
    os.close(leader)
    text = seen.decode().replace("\r\n", "\n")
    return child.returncode, text if colour else re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def example(folder: Path) -> Path:
    """Make a pool with groups, arrays, a blob and a namespace in it."""
    where = folder / "pool"
    with engram.create(where, size="64 MiB") as pool:
        step = pool.create_group("run-17/step-0400", attrs={"orbit": np.int16(4)})
        field = np.arange(12, dtype="f4").reshape(3, 4)
        step.create_array("T", data=field, attrs={"units": "K"}, dims=("y", "x"))
        step["names"] = np.array(["a", "ö"], dtype=object)
        pool["run-17/step-0500/T"] = field + 1
        pool["log"] = b"hello"
        pool.create_namespace("icesat")["inside"] = np.arange(3)
    return where


def _each(commands: list[list[str]]) -> None:
    """Run each command in a process of its own, and say how it ended."""
    for words in commands:
        child = os.fork()
        if child == 0:
            main(words)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{_CODE}{code}{_NEXT}")
        sys.stdout.flush()


if __name__ == "__main__":
    _each(json.loads(sys.argv[1]))
