"""How the command line ends: no room, nobody who reads, an interruption, an empty word."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engram
from engram.formats import Entry, ExportReport, FilesProgress
from shell import COMMAND, example, run

FULL = Path("/dev/full")
AT_A_TERMINAL = (
    "import fcntl, os, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "from engram.cli import main; main()"
)


@pytest.mark.parametrize("words", ["tree {}", "ls -l {}", "info {} --json", "get {} big -"])
def test_a_full_disk_behind_stdout_is_a_lack_of_room(home: Path, words: str) -> None:
    path = example(home)
    with engram.open(path) as pool:
        pool["big"] = np.zeros(100_000)
    with FULL.open("wb") as full:
        command = [*COMMAND, *words.format(path).split()]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == engram.PoolFullError.exit_code
    (line,) = ended.stderr.decode().splitlines()
    said = json.loads(line)["error"]["message"] if "--json" in words else line
    assert said.removeprefix("engram: ").startswith("stdout: cannot be written: No space left on")


def test_a_full_disk_is_told_of_with_the_file(home: Path) -> None:
    ended = run("get", example(home), "run-17/step-0400/T", FULL)
    assert ended.code == engram.PoolFullError.exit_code
    assert ended.err.startswith(f"engram: {FULL}: cannot be written: No space left")


def test_a_reader_that_has_seen_enough_is_no_error(home: Path) -> None:
    path = example(home)
    with engram.open(path) as pool, pool.batch():
        for number in range(3000):
            pool[f"many/a-long-name-that-fills-the-pipe-{number}"] = number
    for verb in (["ls", "-l"], ["ls"], ["tree", "--limit", "3000"]):
        command = [*COMMAND, *verb, str(path), "many"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            child.stdout.readline()
            child.stdout.close()
            said = child.stderr.read()
        assert (child.returncode, said) == (0, b"")


@pytest.mark.parametrize("words", ["--help", "cluster --help", "ls --help", "ls nowhere --help"])
def test_a_reader_that_wants_no_help_is_no_error(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        command = [*COMMAND, *words.split()]
        ended = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def answered(path: Path, answer: bytes) -> int:
    """Run `destroy` at a terminal, answer its question, and return the exit code."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", AT_A_TERMINAL, "destroy", str(path)]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower) as child:
        os.close(follower)
        seen = b""
        while b"[y/N]" not in seen:
            seen += os.read(leader, 1000)
        # A terminal drops what is typed while its modes change: then it is typed again.
        while child.poll() is None:
            os.write(leader, answer)
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=5)
    os.close(leader)
    return child.returncode


def test_a_question_is_answered_or_interrupted(home: Path) -> None:
    path = example(home)
    assert answered(path, b"n\n") == 1
    assert answered(path, b"\x03") == 130
    assert path.exists()
    assert answered(path, b"y\n") == 0
    assert not path.exists()


@pytest.mark.parametrize("command", [[sys.executable, "-m", "engram.cli"], ["engram"]])
@pytest.mark.parametrize("module", ["numpy", "typer"])
def test_an_interruption_while_it_starts_is_silent(
    home: Path, command: list[str], module: str
) -> None:
    stub = "import sys, time; print('loading', flush=True); time.sleep(100)"
    (home / f"{module}.py").write_text(stub)
    script = Path(sys.executable).with_name("engram")
    words = [sys.executable, str(script)] if command == ["engram"] else command
    environment = {**os.environ, "PYTHONPATH": str(home)}
    with subprocess.Popen(
        [*words, "ls", str(home / "pool")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"loading\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate()
    assert (child.returncode, out, err) == (130, b"", b"")


def test_a_program_of_its_own_keeps_its_interruptions(home: Path) -> None:
    program = home / "engram"  # the name alone says nothing
    program.write_text("import engram, signal; print(signal.getsignal(signal.SIGINT).__name__)")
    words = [sys.executable, str(program)]
    ended = subprocess.run(words, capture_output=True, check=True)
    assert ended.stdout == b"default_int_handler\n"


def test_an_interrupted_import_says_what_is_in(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = example(home)
    files = [home / f"{name}.npy" for name in "abc"]

    def many(paths: Any, group: Any, *, progress: Any, **more: Any) -> None:
        del group, more
        progress(FilesProgress(str(paths[1]), 2, 3, 20, 30))
        raise KeyboardInterrupt

    def one(*words: Any, **more: Any) -> None:
        del words, more
        raise KeyboardInterrupt

    monkeypatch.setattr(engram, "import_files", many)
    monkeypatch.setattr(engram, "import_file", one)
    ended = run("import", path, "new", *files)
    assert (ended.code, ended.err) == (
        130,
        "engram: interrupted: 2 of 3 files are done and stay in\n",
    )
    ended = run("import", path, "new", files[0])
    assert (ended.code, ended.err) == (
        130,
        f"engram: interrupted: nothing of {files[0]} is in\n",
    )
    with engram.open(path) as pool:
        assert "new" not in pool


@pytest.mark.parametrize(
    "words", ["mv {p} log =", "import {p} = {f}", "tree {p} =", "export {p} = {o}", "ls {p} ="]
)
def test_an_empty_word_is_not_the_root(home: Path, words: str) -> None:
    path = example(home)
    np.save(home / "f.npy", np.arange(3))
    places = {"p": path, "f": home / "f.npy", "o": home / "o.h5"}
    named = words.format(**places).split()
    ended = run(*("" if word == "=" else word for word in named))
    assert ended.code == engram.ArgumentError.exit_code
    assert "/ for the root" in ended.err
    assert run(*("/" if word == "=" else word for word in named)).code == 0


def test_an_empty_word_is_not_this_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = example(home)
    monkeypatch.chdir(path)
    for words in (["ls", ""], ["destroy", "", "--yes"], ["import", path, "g", "", "-r"]):
        ended = run(*words)
        assert ended.code == 2
        assert "the path is empty" in ended.err
    assert path.exists()


def test_a_taken_or_missing_name_is_told_of_in_words_of_the_verb(home: Path) -> None:
    path = example(home)
    ended = run("mv", path, "log", "run-17/step-0400/T")
    assert ended.code == engram.ExistsError.exit_code
    assert "`engram rm` it first" in ended.err
    assert "overwrite" not in ended.err
    ended = run("mv", path, "nope", "x")
    assert ended.code == engram.NotFoundError.exit_code
    assert "keys()" not in ended.err
    assert "'run-17'" in ended.err


def test_what_is_missing_in_a_group_is_told_of_with_what_is_in_that_group(home: Path) -> None:
    ended = run("tree", example(home), "run-17/step-0400/U")
    assert "no 'U' in group 'run-17/step-0400': it has 'T', 'names'" in ended.err


def test_a_missing_namespace_is_told_of_alike_by_all(home: Path) -> None:
    path = example(home)
    said = {run("ns", path, "nope", *more).err for more in ([], ["--size", "1MiB"])}
    assert len(said) == 1
    assert "there are: default, icesat" in said.pop()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("pipe", "is no file, but a pipe"),
        ("https://example.org/a.nc", "https://example.org/a.nc: is no file, but a URL"),
        ("/dev/null", "is no file, but a device"),
    ],
)
def test_what_is_no_file_is_refused_at_once(home: Path, word: str, said: str) -> None:
    path = example(home)
    os.mkfifo(home / "pipe")
    for more in ([], [example_array(home)]):
        ended = run("import", path, "g", home / word if word == "pipe" else word, *more)
        assert ended.code != 0
        assert said in ended.err


def example_array(home: Path) -> Path:
    """Make a NumPy file."""
    np.save(home / "f.npy", np.arange(3))
    return home / "f.npy"


def test_a_pool_that_cannot_be_is_refused_with_the_reason(home: Path) -> None:
    ended = run("create", "/proc/engram-test-pool")
    assert ended.code == engram.UnsupportedError.exit_code
    assert "folder above" not in ended.err
    ended = run("create", home / "p", "--size", "100TiB")
    assert ended.code == engram.PoolFullError.exit_code
    assert "smaller size" in ended.err
    assert not (home / "p").exists()


def test_alike_things_of_an_export_are_told_of_together(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tuple(Entry(f"/a{number}", "blob", "as bytes") for number in range(9))
    noted += (Entry("/b", "array", "other"),)
    report = ExportReport("o.h5", "HDF5", "", 0, 10, 0, 10, 10, 0.1, noted=noted)
    monkeypatch.setattr(engram, "export_file", lambda *_, **__: report)
    out = run("export", example(home), "/", home / "o.h5").out
    assert out.splitlines()[1:] == [
        "  noted: 9 x blob: as bytes (/a0, /a1, /a2 and 6 more)",
        "  noted: /b: array: other",
    ]
