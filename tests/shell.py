"""The command line, run in this process, in a pipe, in a terminal of any size."""

from __future__ import annotations

import contextlib
import fcntl
import io
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
from engram.cli import main

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "engram.cli"]


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
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES", "NO_COLOR"}}
    environment = {**kept, "TERM": "xterm-256color", **({} if colour else {"NO_COLOR": "1"})}
    command = [*COMMAND, *(str(word) for word in words)]
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
