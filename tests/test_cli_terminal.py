"""The command line as a person sees it: in terminals of several sizes, with mistakes."""

from __future__ import annotations

import io
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import engram
from engram.cli.app import SECTIONS, VERBS
from engram.cli.bar import Bar
from shell import COMMAND, each_in_terminal, example, in_terminal, piped, run

ROOT = Path(__file__).resolve().parents[1]
LOOKS = [
    "ls {pool}",
    "ls -l {pool} run-17/step-0400",
    "ls -lr {pool}",
    "tree {pool}",
    "info {pool}",
    "info {pool} run-17/step-0400/T",
    "stats {pool}",
    "ns {pool}",
    "verify {pool}",
    "--help",
    *(f"{verb} --help" for verb in VERBS),
]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(home: Path, columns: int) -> None:
    path = example(home)
    with engram.open(path) as pool:
        pool["a-group/with-a-rather-long-name-in-it/and-an-array-with-one"] = np.zeros((3, 4, 5))
    looks = [look.format(pool=path).split() for look in LOOKS[:9]]
    for look, (code, seen) in zip(looks, each_in_terminal(looks, columns=columns), strict=True):
        assert code == 0, look
        assert max(map(len, seen.splitlines())) <= columns, look


def test_a_pipe_gets_no_blanks_at_the_ends_of_lines_and_no_colours(home: Path) -> None:
    path = example(home)
    for look in LOOKS[:8]:
        out = piped(*look.format(pool=path).split()).stdout.decode()
        assert out
        assert "\x1b" not in out
        assert [line for line in out.splitlines() if line != line.rstrip()] == [], look


def test_colours_are_for_terminals_that_want_them(home: Path) -> None:
    path = example(home)
    assert "\x1b[" in in_terminal("tree", path, colour=True)[1]
    assert "\x1b[" not in run("tree", path).out


@pytest.mark.parametrize("columns", [40, 100])
def test_names_stand_in_columns_in_as_few_lines_as_fit(home: Path, columns: int) -> None:
    path = example(home)
    names = [*(f"T{n * 37}" for n in range(40)), "grüße", "日本語"]
    with engram.open(path) as pool:
        for name in names:
            pool.create_blob(f"many/{name}", b"")
        pool.create_group("many/x")
    code, seen = in_terminal("ls", path, "many", columns=columns, colour=True)
    assert code == 0
    assert "\x1b[1;34mx/\x1b[0m" in seen
    lines = re.sub("\x1b.*?m", "", seen).splitlines()
    table = [re.split("  +", line) for line in lines]
    down = [row[n] for n in range(len(table[0])) for row in table if n < len(row)]
    assert down == sorted([*names, "x/"])
    assert max(len(line) + ("日本語" in line) * 3 for line in lines) <= columns
    # One more column would not fit, however short its words: most of these take seven cells.
    assert max(map(len, lines)) > columns - 8
    # Each column begins at one place, beside names that take two cells a letter, too.
    assert {line.index(row[1]) for line, row in zip(lines, table, strict=True)} == {7}


def test_an_encoding_without_our_signs_gets_escapes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = example(home)
    with engram.open(path) as pool:
        pool["wärme"] = np.arange(100)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    for words in (("tree", path), ("info", path, "wärme"), ("stats", path), ("ls", path)):
        ended = piped(*words)
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert ended.stdout.isascii()
    assert piped("ls", path, "wärm").stderr.startswith(b"engram: ")


@pytest.mark.parametrize("columns", [40, 80])
def test_a_table_that_is_too_wide_becomes_records(home: Path, columns: int) -> None:
    path = example(home)
    lines = in_terminal("ls", "-l", path, "run-17/step-0400", columns=columns)[1].splitlines()
    if columns == 80:
        assert lines[0].split()[0] == "kind"
        assert len(lines) == 3
    else:
        assert lines[0].strip() == "T"
        assert lines[1].startswith("  array  float32  3 x 4")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tre {pool}", "'tree'"),
        ("inof {pool}", "'info'"),
        ("stats {pool} --tpo 3", "--top"),
        ("ls", "POOL"),
        ("mv {pool} log", "PATH"),
        ("tree {pool} --depth many", "--depth"),
        ("tree {pool} --depth 0", "--depth"),
    ],
)
def test_wrong_usage_is_told_with_what_was_meant(home: Path, words: str, said: str) -> None:
    path = example(home)
    code, seen = in_terminal(*words.format(pool=path).split(), columns=200)
    assert code == 2
    assert said in seen


@pytest.mark.parametrize("columns", [40, 80])
def test_an_error_breaks_between_words(home: Path, columns: int) -> None:
    code, seen = in_terminal("ls", home / "nope", columns=columns)
    assert code == engram.NotFoundError.exit_code
    words = " ".join(seen.split())
    assert f"there is no pool at {home}/nope:" in words
    assert f"`engram create {home}/nope` makes one" in words


def test_the_pool_after_the_path_is_recognised(home: Path) -> None:
    path = example(home)
    code, _, err = run("info", "run-17/step-0400/T", path)
    assert code == engram.NotFoundError.exit_code
    assert f"the pool comes first: `engram info {path} ...`" in err
    assert "comes first" not in run("info", home / "nope", "run-17").err


def test_the_guide_tells_the_exit_code_of_each_kind_of_error() -> None:
    text = (ROOT / "docs" / "guide" / "command-line.md").read_text(encoding="utf-8")
    told = {
        name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", text, re.MULTILINE)
    }
    kinds = {
        error.__name__: error.exit_code for error in vars(engram.errors).values() if is_kind(error)
    }
    assert told == kinds


def is_kind(error: object) -> bool:
    """Whether something is the class of a kind of error; a missing pool is of a missing thing's."""
    return (
        isinstance(error, type)
        and issubclass(error, engram.EngramError)
        and error is not engram.PoolNotFoundError
    )


def test_an_interrupted_command_ends_with_130(home: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "put", str(example(home)), "x", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        stream = io.BytesIO()
        np.save(stream, np.zeros(1 << 20, "u1"))
        # More than a pipe holds: once it is written, somebody has read of it.
        child.stdin.write(stream.getvalue()[: 1 << 19])
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate()
    assert child.returncode == 130
    assert b"Traceback" not in err


def test_help_is_in_sections_and_keeps_brackets(home: Path) -> None:
    out = run("--help").out
    assert [name for name in SECTIONS if name in out] == list(SECTIONS)
    assert "engram[plot]" in " ".join(run("plot", "--help").out.split())
    del home


def test_what_is_said_breaks_between_words_in_a_terminal_alone(home: Path) -> None:
    path = example(home)
    seen = in_terminal("stats", path, columns=40)[1]
    assert "attributes;" in seen
    assert "attributes; values" in run("stats", path).out.splitlines()[0]


def test_a_bar_counts_items_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Bar("counting", None, patience_s=0, unit="items") as bar:
        bar.advance(1234)
    assert "1,234" in capsys.readouterr().err


def test_no_example_of_help_is_broken_in_a_terminal_of_eighty_columns() -> None:
    helps = each_in_terminal([verb, "--help"] for verb in VERBS)
    for verb, (code, seen) in zip(VERBS, helps, strict=True):
        assert code == 0
        lines = seen.split("Examples", 1)[1].splitlines()
        shown = [line.strip() for line in lines if line.strip()]
        assert shown
        starts = (f"engram {verb}", "make-field | engram put")
        assert [line for line in shown if not line.startswith(starts)] == [], verb


def test_help_tells_of_no_type_where_there_is_none_to_give() -> None:
    asked = [["--help"], *([verb, "--help"] for verb in VERBS)]
    for verb, (code, seen) in zip(asked, each_in_terminal(asked, columns=200), strict=True):
        assert code == 0
        assert "--help" in seen
        for word in ("<bool>", "<path>", "<file_path>", "<str>"):
            assert word not in seen, verb


def test_numbers_keep_their_names_in_a_narrow_terminal(home: Path) -> None:
    seen = in_terminal("stats", example(home), columns=40)[1]
    assert re.search(r"free [\d.]+ \wiB", seen)
    assert re.search(r"spans \d", seen)


def test_an_empty_group_is_said_to_be(home: Path) -> None:
    path = example(home)
    with engram.open(path) as pool:
        pool.create_group("empty")
    assert in_terminal("ls", "-l", path, "empty") == (0, "no members\n")


@pytest.mark.parametrize("columns", [40, 200])
def test_a_progress_bar_fits_on_a_line(
    monkeypatch: pytest.MonkeyPatch, columns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Bar("f", 100, patience_s=0) as bar:
        bar.update(50, "a-file-with-a-rather-long-name.nc/group/variable")
        bar.update(70)
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    lines = [line for line in re.split(r"[\r\n]+", seen) if line.strip()]
    assert lines
    assert max(map(len, lines)) <= columns
    assert all("a-file" in line for line in lines)
    assert ("70%" in seen) == (columns == 40)
