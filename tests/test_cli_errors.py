"""How the command line tells of errors: in a line, as JSON, and with streams that are closed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from shell import COMMAND, Ended, example, run

if TYPE_CHECKING:
    from pathlib import Path

OS_ERROR = engram.EngramError.exit_code
MISSING = engram.NotFoundError.exit_code


def in_shell(words: str, redirected: str) -> Ended:
    """Run `engram WORD…` in a shell that redirects, or closes, its streams."""
    command = f"{shlex.join(COMMAND)} {words} {redirected}"
    ended = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


@pytest.mark.parametrize(
    ("words", "redirected", "code"),
    [
        ("put {pool} new {file}", ">&-", 0),
        ("put {pool} new {file}", ">&- 2>&- <&-", 0),
        ("mv {pool} log diary", ">&-", 0),
        ("get {pool} log {file}.out", ">&-", 0),
        ("ls {pool}", ">&-", OS_ERROR),
        ("get {pool} log -", ">&-", OS_ERROR),
        ("query {pool} --export {file}.h5 --json", ">&-", OS_ERROR),
        ("ls {pool}", ">&- 2>&-", OS_ERROR),
        ("ls {pool} nope", ">&-", MISSING),
        ("ls {pool} nope", "2>&-", MISSING),
        ("ls {pool} nope", "2>/dev/full", MISSING),
        ("ls {pool} --nope", "2>&-", 2),
        ("ls {pool}", "2>&-", 0),
        ("put {pool} new -", "<&-", engram.FormatError.exit_code),
        ("destroy {pool}", "<&-", engram.ArgumentError.exit_code),
    ],
)
def test_a_closed_stream_keeps_no_exit_code_from_saying_what_was_done(
    home: Path, words: str, redirected: str, code: int
) -> None:
    path = example(home)
    np.save(home / "a.npy", np.arange(3))
    ended = in_shell(words.format(pool=path, file=home / "a.npy"), redirected)
    assert ended.code == code, ended.err
    assert ended.err.count("\n") == int(bool(code) and "2>" not in redirected)
    with engram.open(path) as pool:
        assert ("new" in pool) == (words.startswith("put") and not code)


def test_what_cannot_be_told_on_a_closed_stdout_is_told_on_stderr(home: Path) -> None:
    said = in_shell(f"tree {example(home)}", ">&-").err
    assert said.startswith("engram: stdout: cannot be written: it is closed; open it")


WRONG = [
    ("tre {pool}", "'tree'", "engram"),
    ("stats {pool} --tpo 3", "--top", "engram stats"),
    ("ls", "missing argument 'POOL'", "engram ls"),
    ("query", "missing argument 'POOL'", "engram query"),
    ("tree {pool} --depth many", "'--depth'", "engram tree"),
    ("ls {pool} a b c", "unexpected extra argument", "engram ls"),
]


@pytest.mark.parametrize(("words", "said", "command"), WRONG)
@pytest.mark.parametrize("as_json", [False, True])
def test_wrong_usage_is_told_in_a_line(
    home: Path, words: str, said: str, command: str, *, as_json: bool
) -> None:
    more = ["--json"] if as_json else []
    ended = run(*words.format(pool=example(home)).split(), *more)
    (line,) = ended.err.splitlines()
    assert (ended.code, ended.out) == (2, "")
    if as_json:
        told = json.loads(line)["error"]
        assert told["kind"] == "UsageError"
        line = f"engram: {told['message']}"
    assert line.startswith("engram: ")
    assert said in line
    assert line.endswith(f"; `{command} --help` tells more")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("ls {pool}/nope", "NotFoundError"),
        ("ls {pool} nope", "NotFoundError"),
        ("info {pool} a//b", "InvalidNameError"),
        ("query {pool} x=(", "QueryError"),
        ("export {pool} / {pool}.what", "ArgumentError"),
        ("import {pool} g {pool}.nc", "NotFoundError"),
        ("import {pool} g {pool}.nc {pool}.h5", "NotFoundError"),
    ],
)
def test_every_error_is_json_where_json_is_asked_for(home: Path, words: str, kind: str) -> None:
    ended = run(*words.format(pool=example(home)).split(), "--json")
    told = [json.loads(line)["error"] for line in ended.err.splitlines()]
    assert told
    for error in told:
        assert error["kind"] == kind
        assert error["message"]
        assert getattr(engram, kind).exit_code == ended.code
        assert ("caret" in error) == (kind == "QueryError")


def test_a_word_that_is_no_option_asks_for_nothing(home: Path) -> None:
    ended = run("ls", example(home), "--", "--json")
    assert ended.code == MISSING
    assert ended.err.startswith("engram: ")


def test_without_a_verb_there_is_help() -> None:
    ended = subprocess.run(COMMAND, capture_output=True, check=False, env=dict(os.environ))
    assert (ended.returncode, ended.stderr) == (2, b"")
    assert b"Usage" in ended.stdout
