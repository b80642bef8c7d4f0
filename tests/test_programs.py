"""The runner of the engine's tests, with a program that fails in every way that it knows."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import programs
from programs import OneTest, Outcome, Program, Times

if TYPE_CHECKING:
    from collections.abc import Callable

FAKE = """#!/bin/sh
case "$1 $2" in
--list*) printf 'a::passes: test\\nb::fails: test\\nb::speed: bench\\n\\n2 tests, 1 benchmark\\n';;
"--exact a::passes") echo 'test result: ok. 1 passed; 0 failed; 0 ignored';;
"--exact b::fails") echo 'left: 1, right: 2'; echo 'test result: FAILED. 0 passed'; exit 101;;
"--exact dies") echo 'before'; kill -SEGV $$;;
"--exact hangs") sleep 1000 & echo "child $!"; wait;;
"--exact leaves") sleep 1000 & echo "child $!"; echo 'test result: ok. 1 passed; 0 failed';;
"--exact is_gone") echo 'test result: ok. 0 passed; 0 failed; 0 ignored';;
" ") echo 'all at once';;
esac
"""
SOON = 2.0


@pytest.fixture
def fake(tmp_path: Path) -> Program:
    """Give a program that stands for one with the usual harness."""
    path = tmp_path / "fake"
    path.write_text(FAKE, encoding="utf-8")
    path.chmod(0o755)
    return Program("fake", path, tmp_path)


def outcome_of(test: OneTest, limit: float = programs.SECONDS) -> Outcome:
    (outcome,) = programs.run([test], 1, limit)
    return outcome


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Give the whole runner, for other tests than the engine's."""
    monkeypatch.setattr(programs, "workspace", lambda: ([], tmp_path))
    monkeypatch.setattr(programs, "build", lambda _: [None])

    def run(tests: list[OneTest], *words: str, examples: bool = True) -> int:
        monkeypatch.setattr("sys.argv", ["programs.py", *words])
        monkeypatch.setattr(programs, "tests_of", lambda _: tests)
        monkeypatch.setattr(programs, "examples", lambda _: examples)
        return programs.main()

    return run


def test_a_program_lists_its_tests_and_not_its_benchmarks(fake: Program) -> None:
    assert [test.name for test in programs.tests_of(fake)] == ["a::passes", "b::fails"]


def test_a_program_without_harness_is_one_test(fake: Program) -> None:
    whole = Program("whole", fake.path, fake.folder, harness=False)
    (test,) = programs.tests_of(whole)
    assert test.command == [str(fake.path)]
    outcome = outcome_of(test)
    assert (outcome.wrong, outcome.said) == ("", "all at once\n")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("a::passes", ""),
        ("b::fails", "failed with status 101"),
        ("dies", "was killed by signal 11 (Segmentation fault)"),
        ("is_gone", "ended well, and has not run"),
    ],
)
def test_what_is_wrong_is_said(fake: Program, name: str, wrong: str) -> None:
    assert outcome_of(OneTest(fake, name)).wrong == wrong


def is_gone(pid: int) -> bool:
    """Whether a process has ended, also where nobody has asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    ("name", "limit", "wrong"),
    [
        ("hangs", SOON, "went on for more than 2 s, and was killed"),
        ("leaves", programs.SECONDS, ""),
    ],
)
def test_no_process_of_a_test_outlives_it(
    fake: Program, name: str, limit: float, wrong: str
) -> None:
    outcome = outcome_of(OneTest(fake, name), limit)
    assert outcome.wrong == wrong
    child = re.search(r"child (\d+)", outcome.said)
    assert child is not None
    until = time.monotonic() + programs.SECONDS
    while not is_gone(int(child[1])):
        assert time.monotonic() < until


def test_tests_run_beside_each_other_each_to_its_own_limit(fake: Program) -> None:
    tests = [
        OneTest(fake, name) for name in ("hangs", "a::passes", "hangs", "b::fails", "a::passes")
    ]
    outcomes = list(programs.run(tests, 2, SOON))
    assert sorted(outcome.test.name for outcome in outcomes) == sorted(t.name for t in tests)
    assert [outcome.test.name for outcome in outcomes if not outcome.wrong] == ["a::passes"] * 2


def test_one_failure_fails_the_run_and_is_shown_whole(
    fake: Program, main: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = OneTest(fake, "a::passes"), OneTest(fake, "b::fails")
    assert main([good]) == 0
    assert "1 tests in 1 programs, 0 failed" in capsys.readouterr().out
    assert main([good, bad]) == 1
    said = capsys.readouterr().out
    assert "left: 1, right: 2" in said
    assert f"cd {fake.folder} && {fake.path} --exact b::fails --nocapture" in said
    assert "FAILED  fake b::fails: it failed with status 101" in said


def test_a_filter_chooses_and_one_that_fits_nothing_fails(
    fake: Program, main: Callable[..., int]
) -> None:
    tests = [OneTest(fake, "a::passes"), OneTest(fake, "b::fails")]
    assert main(tests, "passes") == 0
    assert main(tests, "fake b::") == 1
    assert main(tests, "misspelt") == 1


def test_an_example_that_is_wrong_fails_the_run(fake: Program, main: Callable[..., int]) -> None:
    tests = [OneTest(fake, "a::passes")]
    assert main(tests) == 0
    assert main(tests, examples=False) == 1


def test_what_took_long_comes_first_the_next_time(fake: Program, tmp_path: Path) -> None:
    quick, slow, new = (OneTest(fake, name) for name in ("quick", "slow", "new"))
    inside = OneTest(Program("crate", fake.path, fake.folder, inside=True), "new")
    Times(tmp_path / "times").keep([Outcome(quick, "", 0.1, ""), Outcome(slow, "", 9.0, "")])
    times = Times(tmp_path / "times")
    ordered = sorted([inside, quick, new, slow], key=times.expected, reverse=True)
    assert ordered == [slow, new, quick, inside]
    (tmp_path / "times").write_text("{", encoding="utf-8")
    assert Times(tmp_path / "times").seconds == {}


def test_crates_and_programs_without_harness_are_those_of_the_workspace() -> None:
    crates, _ = programs.workspace()
    names = {str(crate["name"]) for crate in crates}
    assert {"engram-crash", "engram-capi"} < names
    assert not {name for name in names if "python" in name or "bench" in name}
    arguments = programs.chosen(crates)
    assert arguments.count("-p") == len(names)
    features = arguments[-1].split(",")
    assert {each.partition("/")[2] for each in features} == set(programs.FEATURES)
    assert {"engram-store/faults", "engram-store/tracing"} <= set(features)
    engine, crash = programs.ROOT / "engine/Cargo.toml", programs.ROOT / "crash/Cargo.toml"
    assert programs.without_harness(engine) == {"power", "failpoints"}
    assert programs.without_harness(crash) == {"short"}
