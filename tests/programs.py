"""Runs the tests of the Rust crates: each in a process of its own, one for each processor.

Tests fork, kill, take descriptors and set what a whole process shares. In a process of its own no
test meets another's. So they need not be programs of their own, each linked with the whole engine.

cargo builds the programs. Each lists its tests, and is started once for each of them, what took
longest the last time first. A program without the usual harness is one test. What fails is shown
whole, with the command that repeats it: also what was killed by a signal, what went on for too
long, and what ended well without having run the test. The examples in documentation come last.

`make test-engine ARGS="transfer_kill killed"` runs the tests whose names have one of these in them.
cargo-nextest does nearly the same; this needs nothing to be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("engine", "crash", "capi", "posix", "cluster")
"""The crates below these are tested, if they have a test."""

A_TEST = re.compile(r"#\[test\]|^#!\[doc = .*```|^\s*//[/!] ```", re.MULTILINE)
"""What the source of a crate with tests has: a test, or an example in its documentation."""

FEATURES = ("faults", "tracing")
"""What a crate that has such a feature is tested with."""

SECONDS = 900.0
"""A test that goes on for longer hangs: none takes more than two minutes on two idle processors."""

PATIENCE = "600"
"""Seconds after which a test gives up waiting for a process: before it is killed, with a word."""

SLOWEST = 15
"""So many are told at the end."""


def say(text: str) -> None:
    """Say what is going on, at once."""
    print(text, flush=True)  # noqa: T201 - a program for people


@dataclass(frozen=True)
class Program:
    """A test program, and the folder that its tests run in."""

    name: str
    path: Path
    folder: Path
    harness: bool = True
    """Whether it has the usual harness, which lists tests and runs them one by one."""
    inside: bool = False
    """Whether the tests are those that stand in a crate's source."""


@dataclass(frozen=True)
class OneTest:
    """One test: the program's, or all of a program without a harness."""

    program: Program
    name: str = ""

    @property
    def title(self) -> str:
        """What people and filters call it."""
        return f"{self.program.name} {self.name}".rstrip()

    @property
    def command(self) -> list[str]:
        """What runs it."""
        arguments = ["--exact", self.name, "--nocapture"] if self.program.harness else []
        return [str(self.program.path), *arguments]

    @property
    def repeated(self) -> str:
        """What a shell runs it again with."""
        return f"cd {shlex.quote(str(self.program.folder))} && {shlex.join(self.command)}"


@dataclass(frozen=True)
class Outcome:
    """How a test went: what is wrong, or nothing; how long it took; what it said."""

    test: OneTest
    wrong: str
    seconds: float
    said: str
    busy: float = 0.0
    """Seconds of processors, its children's with them."""


def workspace() -> tuple[list[dict[str, Any]], Path]:
    """Give what cargo knows of each crate that is tested, and the folder that it builds in."""
    told = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version=1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    known = json.loads(told.stdout)
    folders = tuple(f"{ROOT / folder}/" for folder in FOLDERS)
    crates = [each for each in known["packages"] if each["manifest_path"].startswith(folders)]
    return [each for each in crates if has_tests(each)], Path(known["target_directory"])


def has_tests(crate: dict[str, Any]) -> bool:
    """Whether a crate has a test. What has none is not built, nor the libraries that it uses."""
    if any(target["kind"] == ["test"] for target in crate["targets"]):
        return True
    sources = Path(crate["manifest_path"]).parent.rglob("src/**/*.rs")
    return any(A_TEST.search(source.read_text(encoding="utf-8")) for source in sources)


def chosen(crates: list[dict[str, Any]]) -> list[str]:
    """Give cargo's arguments that choose these crates, with their feature."""
    names = [argument for crate in crates for argument in ("-p", str(crate["name"]))]
    having = [
        f"{crate['name']}/{feature}"
        for crate in crates
        for feature in FEATURES
        if feature in crate["features"]
    ]
    return [*names, "--features", ",".join(having)] if having else names


def without_harness(manifest: Path) -> set[str]:
    """Name the test programs of a crate that do not have the usual harness."""
    tests = tomllib.loads(manifest.read_text(encoding="utf-8")).get("test", [])
    return {str(test["name"]) for test in tests if not test.get("harness", True)}


def program_of(artifact: dict[str, Any], crates: list[dict[str, Any]]) -> Program:
    """Say which program this is that cargo has built."""
    manifest, target = Path(artifact["manifest_path"]), artifact["target"]
    path, name = Path(artifact["executable"]), str(target["name"])
    if target["kind"] == ["test"]:
        return Program(name, path, manifest.parent, name not in without_harness(manifest))
    (crate,) = (str(each["name"]) for each in crates if each["manifest_path"] == str(manifest))
    part = f"{crate}/{name}" if target["kind"] == ["bin"] else crate
    return Program(part, path, manifest.parent, inside=True)


def build(crates: list[dict[str, Any]]) -> list[Program]:
    """Have cargo build the test programs."""
    command = ["cargo", "test", "--no-run", "--quiet", "--message-format=json-render-diagnostics"]
    command += chosen(crates)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    built = [each for each in told if each.get("executable") and each["profile"]["test"]]
    return [program_of(each, crates) for each in built]


def has_examples(crate: dict[str, Any]) -> bool:
    """Whether cargo looks for examples in the crate's documentation."""
    return any(target["doctest"] for target in crate["targets"])


def examples(crates: list[dict[str, Any]]) -> bool:
    """Run the examples in the documentation; whether all are right."""
    having = [crate for crate in crates if has_examples(crate)]
    done = subprocess.run(
        ["cargo", "test", "--doc", "--quiet", *chosen(having)], cwd=ROOT, check=False
    )
    return done.returncode == 0


def tests_of(program: Program) -> Iterator[OneTest]:
    """Ask a program which tests it has."""
    if not program.harness:
        yield OneTest(program)
        return
    command = [str(program.path), "--list", "--format=terse"]
    done = subprocess.run(
        command, cwd=program.folder, stdout=subprocess.PIPE, text=True, check=True
    )
    for line in done.stdout.splitlines():
        name, _, kind = line.rpartition(": ")
        if kind == "test":
            yield OneTest(program, name)


def judged(test: OneTest, status: int, said: str) -> str:
    """Say what is wrong with how a test ended; nothing if it passed."""
    if status < 0:
        return f"was killed by signal {-status} ({signal.strsignal(-status)})"
    if status > 0:
        return f"failed with status {status}"
    if test.program.harness and "test result: ok. 1 passed" not in said:
        return "ended well, and has not run"
    return ""


class Running:
    """A test that runs."""

    def __init__(self, test: OneTest, limit: float) -> None:
        """Start it."""
        self.test = test
        self.limit = limit
        self.start = time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        self.process = subprocess.Popen(
            test.command,
            cwd=test.program.folder,
            env={"ENGRAM_TEST_SECONDS": PATIENCE, **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            process_group=0,
        )
        self.ended = os.pidfd_open(self.process.pid)

    @property
    def left(self) -> float:
        """The seconds that it may still take."""
        return max(self.start + self.limit - time.monotonic(), 0.0)

    def end(self) -> Outcome:
        """Say how it ended; what still runs of it is killed, and what it has left behind."""
        hangs = not is_readable(self.ended)
        os.killpg(self.process.pid, signal.SIGKILL)  # not waited for yet: the group is its own
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.output.seek(0)
        said = self.output.read().decode(errors="replace")
        self.output.close()
        os.close(self.ended)
        killed = f"went on for more than {self.limit:g} s, and was killed" if hangs else ""
        wrong = killed or judged(self.test, self.process.returncode, said)
        busy = used.ru_utime + used.ru_stime
        return Outcome(self.test, wrong, time.monotonic() - self.start, said, busy)


def is_readable(*descriptors: int, seconds: float = 0.0) -> list[int]:
    """Give those of the descriptors that can be read within this time."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1000)]


def run(tests: Iterable[OneTest], beside: int, limit: float = SECONDS) -> Iterator[Outcome]:
    """Run tests, so many beside each other, each to its end or to the limit."""
    waiting = iter(tests)
    running: dict[int, Running] = {}
    try:
        while True:
            for test in islice(waiting, beside - len(running)):
                started = Running(test, limit)
                running[started.ended] = started
            if not running:
                return
            soonest = min(each.left for each in running.values())
            ended = is_readable(*running, seconds=soonest)
            over = [at for at, each in running.items() if at in ended or not each.left]
            yield from [running.pop(at).end() for at in over]
    finally:
        for each in running.values():
            each.end()


def show(outcome: Outcome) -> None:
    """Show a failure, whole."""
    say(f"---- {outcome.test.title} {outcome.wrong}; it said:\n{outcome.said.rstrip()}")
    say(f"---- again: {outcome.test.repeated}\n")


class Times:
    """How long each test took the last time that it ran: a file among cargo's."""

    def __init__(self, path: Path) -> None:
        """Read them, if there are any."""
        self.path = path
        self.seconds: dict[str, float] = {}
        with suppress(FileNotFoundError, ValueError):
            self.seconds = json.loads(path.read_text(encoding="utf-8"))

    def expected(self, test: OneTest) -> float:
        """Say how long it will take: a test of what a crate has inside is quick."""
        return self.seconds.get(test.title, 0.0 if test.program.inside else 1.0)

    def keep(self, outcomes: list[Outcome]) -> None:
        """Write them down, beside those of what has not run."""
        self.seconds |= {each.test.title: round(each.seconds, 2) for each in outcomes}
        self.path.write_text(json.dumps(self.seconds, indent=0, sort_keys=True), encoding="utf-8")


def run_all(tests: list[OneTest], times: Times, beside: int) -> list[Outcome]:
    """Run all these tests; what fails is shown at once."""
    outcomes = []
    ordered = sorted(tests, key=times.expected, reverse=True)
    for outcome in run(ordered, beside):
        outcomes.append(outcome)
        if outcome.wrong:
            show(outcome)
        if sys.stdout.isatty():
            sys.stdout.write(f"    {len(outcomes)} of {len(tests)} \r")
            sys.stdout.flush()
    times.keep(outcomes)
    return outcomes


def summary(outcomes: list[Outcome], seconds: float) -> None:
    """Say what was slow, what failed, and how many there were."""
    slow = sorted(outcomes, key=lambda outcome: outcome.seconds, reverse=True)[:SLOWEST]
    for outcome in slow:
        say(f"    {outcome.seconds:7.1f} s ({outcome.busy:.1f} busy)  {outcome.test.title}")
    failed = [outcome for outcome in outcomes if outcome.wrong]
    for outcome in failed:
        say(f"    FAILED  {outcome.test.title}: it {outcome.wrong}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    programs = len({outcome.test.program for outcome in outcomes})
    say(f"    {len(outcomes)} tests in {programs} programs, {len(failed)} failed")
    busy = used.ru_utime + used.ru_stime
    say(f"    {seconds:.0f} s, and {busy:.0f} s of processors: build and run")


def main() -> int:
    """Build, run, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("filters", nargs="*", help="parts of tests' names: those are run")
    parser.add_argument("--list", action="store_true", help="list the tests, and run none")
    parser.add_argument(
        "--beside", type=int, default=len(os.sched_getaffinity(0)), help="at a time"
    )
    options = parser.parse_args()
    crates, target = workspace()
    start = time.monotonic()
    tests = [test for program in build(crates) for test in tests_of(program)]
    if options.filters:
        tests = [test for test in tests if any(part in test.title for part in options.filters)]
    if options.list:
        for test in tests:
            say(test.title)
        return 0
    if not tests:
        say("    no test has such a name")
        return 1
    say(f"    built within {time.monotonic() - start:.0f} s")
    outcomes = run_all(tests, Times(target / "test-seconds.json"), options.beside)
    summary(outcomes, time.monotonic() - start)
    if not options.filters and not examples(crates):
        return 1
    return int(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
