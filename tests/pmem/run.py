"""`make test-pmem`: the store's tests on persistent memory, then power cuts.

In a machine with two NVDIMMs, fsdax and devdax: first tests of the engine and of the package, with
their pools on fsdax; then writers, whose every acknowledged step must be there after the machine's
power was cut at a random moment, and cut again. Each console is kept in target/pmem/.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from machine import CACHE, PROJECT, CannotRunError, GuestError, Machine, Nvdimms, install, kernel

if TYPE_CHECKING:
    from pathlib import Path

FSDAX = "/dev/shm"
DEVDAX = "/dev/dax1.0"
MIB = 1 << 20
SIZES = (768 * MIB, 256 * MIB)

ENGINE_TESTS = {"space": ("pmem::", "devdax::"), "store": ("store::", "inplace::", "batch::")}
"""Programs, and the modules of each whose tests run here."""
PACKAGE_TESTS = (
    "tests/test_array.py",
    "tests/test_view.py",
    "tests/test_batch.py",
    "tests/test_slurm_memory.py",
)

BOOT_SECONDS = 300
TESTS_SECONDS = 3600
CHECK_SECONDS = 900
STEPS_SECONDS = 300
MOST_STEPS = 60
"""A cut comes after so many steps at most, and up to half a second."""

_ACK = re.compile(r"^ACK (\d+) (\d+) #$")
_CHECKED = re.compile(r"^CHECKED ((?:\d+ )+)#$")


def say(text: str) -> None:
    """Say what is going on, at once."""
    print(text, flush=True)  # noqa: T201 - a program for people


def build() -> dict[str, Path]:
    """Build the engine's tests; where each program is."""
    command = ["cargo", "test", "--no-run", "-p", "engram-store", "--features", "faults"]
    for name in ENGINE_TESTS:
        command += ["--test", name]
    done = subprocess.run(
        [*command, "--quiet", "--message-format=json"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        check=True,
    )
    programs = {}
    for line in done.stdout.splitlines():
        told = json.loads(line)
        if told.get("executable") and told["target"]["name"] in ENGINE_TESTS:
            programs[told["target"]["name"]] = told["executable"]
    return programs


def environment(**more: str) -> str:
    """Return what tests in the machine are told, as a shell's assignments."""
    words = {
        "ENGRAM_TEST_FSDAX": FSDAX,
        "ENGRAM_TEST_DEVDAX": DEVDAX,
        "ENGRAM_TEST_SECONDS": str(TESTS_SECONDS),
        "PYTHONDONTWRITEBYTECODE": "1",
        # The host's files are read-only in there.
        "HYPOTHESIS_STORAGE_DIRECTORY": "/run/hypothesis",
        **more,
    }
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in words.items())


def tests_task(programs: dict[str, Path], package: list[str]) -> str:
    """Return the script that runs the tests."""
    lines = [environment(), f"cd {shlex.quote(str(PROJECT))}", "failed=0"]
    for name, program in programs.items():
        # One at a time: a node is one, and the machine's processors are slow.
        lines.append(f"echo '== engine: {name}'")
        run = shlex.join([str(program), *ENGINE_TESTS[name]])
        lines.append(f"{run} --test-threads=1 --nocapture 2>&1 || failed=1")
    if package:
        lines.append("echo '== package'")
        lines.append(
            f".venv/bin/python -m pytest -q -p no:cacheprovider --basetemp={FSDAX}/package "
            "-o tmp_path_retention_policy=failed "
            f"{' '.join(map(shlex.quote, package))} 2>&1 || failed=1"
        )
    return "\n".join([*lines, "exit $failed", ""])


def run_tests(programs: dict[str, Path], package: list[str]) -> None:
    """Run the tests on persistent memory."""
    log = CACHE / "tests.log"
    log.unlink(missing_ok=True)
    ran, skipped = 0, 0
    with (
        Nvdimms("tests", SIZES) as nvdimms,
        Machine(nvdimms, tests_task(programs, package), log) as machine,
    ):
        for line in machine.finish(TESTS_SECONDS):
            if line.startswith(("== ", "test result", "FAILED")) or " passed" in line:
                say(f"    {line}")
            found = re.search(r"(\d+) passed", line)
            ran += int(found[1]) if found else 0
            skipped += "is skipped" in line
            if "is skipped" in line:
                say(f"    {line}")
    if not ran:
        raise GuestError(f"no test ran: see {log}")
    say(f"    {ran} tests on persistent memory passed ({skipped} said that they are skipped)")


def heard(line: str, told: list[int]) -> None:
    """Take note of what a writer acknowledged."""
    found = _ACK.match(line)
    if found is not None:
        writer = int(found[1])
        told[writer] = max(told[writer], int(found[2]))


def until_checked(machine: Machine, told: list[int], stop: float | None) -> bool:
    """Listen until the pool was found whole; False if `stop` seconds from opening it came first."""
    seconds: float = CHECK_SECONDS
    for line in machine.lines(CHECK_SECONDS):
        if line.endswith("OPENED #"):  # after what the test program says of itself
            seconds = CHECK_SECONDS if stop is None else stop
            break
        if line.startswith("ENGRAM-EXIT"):
            raise GuestError("the pool does not open")
    else:
        raise GuestError("the machine did not come up, or the pool was not opened in time")
    for line in machine.lines(seconds):
        found = _CHECKED.match(line)
        if found is not None:
            counts = [int(count) for count in found[1].split()]
            if any(count < had for count, had in zip(counts, told, strict=True)):
                raise GuestError(f"{told} steps were acknowledged and {counts} are there")
            told[:] = counts
            return True
        if line.startswith("ENGRAM-EXIT"):
            raise GuestError("the pool was not found whole")
    if stop is None:
        raise GuestError("the machine went, or looked at the pool for too long")
    return False


def listen(machine: Machine, told: list[int], steps: int) -> None:
    """Listen until so many steps more were acknowledged."""
    wanted = sum(told) + steps
    for line in machine.lines(STEPS_SECONDS):
        heard(line, told)
        if sum(told) >= wanted:
            return
        if line.startswith("ENGRAM-EXIT"):
            raise GuestError("a writer failed")
    if sum(told) < wanted:
        raise GuestError(f"{sum(told)} steps in all, {wanted} were waited for")


def cut_task(program: Path, said: str) -> str:
    """Return the script of a machine whose power will be cut."""
    test = "pmem::everything_acknowledged_survives_a_power_cut"
    return "\n".join(
        [
            environment(ENGRAM_POWER_CUT=said),
            f"exec {shlex.quote(str(program))} --exact {test} --nocapture --test-threads=1 2>&1",
            "",
        ]
    )


def run_cuts(program: Path, cuts: int, dice: random.Random) -> None:
    """Cut the power so many times; everything acknowledged must be there each time."""
    log = CACHE / "cuts.log"
    log.unlink(missing_ok=True)
    told = [0, 0]
    early = 0
    with Nvdimms("cuts", SIZES) as nvdimms:
        for number in range(cuts + 1):
            last = number == cuts
            said = ",".join(map(str, told)) if number else "new"
            task = cut_task(program, f"{said}/end" if last else said)
            with Machine(nvdimms, task, log) as machine:
                if last:
                    until_checked(machine, told, None)
                    continue
                # Some cuts come while the pool is opened and looked at after the one before.
                stop = dice.uniform(0, 2) if number and dice.random() < 1 / 5 else None
                checked = until_checked(machine, told, stop)
                early += not checked
                if checked:
                    listen(machine, told, dice.randint(0, MOST_STEPS))
                    for line in machine.lines(dice.uniform(0, 0.5)):
                        heard(line, told)
                for line in machine.cut():
                    heard(line, told)
            say(f"    cut {number + 1} of {cuts}: {told[0]} + {told[1]} steps acknowledged")
    say(
        f"    {cuts} power cuts ({early} of them while the pool was opened again), "
        f"{sum(told)} acknowledged steps: all there, and verify found nothing wrong"
    )


def main() -> int:
    """Do it all, or as much as is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cuts", type=int, default=20, help="how many power cuts (20)")
    parser.add_argument("--seed", type=int, default=None, help="of the moments of the cuts")
    parser.add_argument("--no-tests", action="store_true", help="power cuts alone")
    parser.add_argument("--no-package", action="store_true", help="leave out the package's tests")
    options = parser.parse_args()
    try:
        install()
        kernel()
    except CannotRunError as reason:
        say(f"    skipped: no machine with persistent memory can be had here: {reason}")
        return 0
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4))
    programs = build()
    try:
        if not options.no_tests:
            run_tests(programs, [] if options.no_package else list(PACKAGE_TESTS))
        say(f"    power cuts with --seed={seed}")
        run_cuts(programs["space"], options.cuts, random.Random(seed))  # noqa: S311 - moments
    except GuestError as error:
        say(f"    failed: {error}; the consoles are in {CACHE}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
