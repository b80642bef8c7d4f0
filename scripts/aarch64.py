"""Runs the workspace's unit tests on 64-bit ARM: cross-compiled, and emulated by qemu-user.

What is needed is added: the target of Rust with rustup; compiler, C library and emulator with apt,
where root runs this. What cannot be had is said, and the tests are skipped then.

qemu-user hands system calls to the kernel of this machine, but for those of robust locks: a list of
robust locks has pointers of the emulated program, which the kernel here could not follow. So a
process that is killed under it leaves its locks locked, and tests of that are left out by name.

It also keeps some bytes for each page that a program has ever mapped, 256 MiB for the catalog's map
of 64 GiB, as long as the program runs. So each test is a process of its own, properties are tried
on few cases, and a limit on memory ends what would still take the machine's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = "aarch64-unknown-linux-gnu"
PROGRAMS = {
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
}
LIBRARIES = Path("/usr/aarch64-linux-gnu")
# Names of tests, each with what it needs that is not there.
LEFT_OUT = {
    "a_killed_writer_loses_nothing_acknowledged_and_opening_needs_no_repair": (
        "robust locks: the next writer takes the lock of one that was killed with it"
    ),
    "a_killed_writer_leaves_the_lock_to_a_process_that_has_the_catalog_open": (
        "robust locks: a process that waits is woken when the one with the lock is killed"
    ),
    "two_writers_killed_in_turn_leave_a_whole_catalog": (
        "robust locks: each writer takes the lock of the other, which was killed with it"
    ),
    "readers_and_growth_do_not_wait_for_a_process_that_stopped_in_a_transaction": (
        "robust locks: at its end the stopped process is killed with the lock"
    ),
    "lmdb_never_takes_more_pages_than_the_bound_less_free_ones": (
        "time: it maps hundreds of catalogs, more than five minutes when emulated"
    ),
    "lmdb_never_takes_more_pages_than_the_bound_when_an_old_reader_keeps_all": ("time: likewise"),
    "lmdb_never_takes_more_pages_than_the_bound_when_it_uses_pages_again": "time: likewise",
    "a_limit_on_address_space_halves_the_reservation": (
        "a limit on address space, which qemu-user does not keep"
    ),
    "runs_stay_few_while_families_are_split": (
        "memory: it maps so many catalogs that qemu-user's notes of pages take 4 GiB"
    ),
    "instants_of_any_century_are_found": "time: likewise, more than five minutes",
    "a_range_stays_put_while_spans_are_appended": (
        "time: it maps ranges of many GiB, each page of which qemu-user writes down"
    ),
    "ranges_give_their_addresses_back": "time: likewise",
    "a_realm_that_is_closed_and_opened_again_has_what_was_put": (
        "time: it opens pools again and again, each with two maps of many GiB"
    ),
    "runs_answer_as_records_do": "time: likewise",
    "new_spans_in_memory_have_huge_pages_where_the_kernel_makes_them": (
        "huge pages where the kernel makes them; the emulator's maps had none"
    ),
    "no_address_space_at_all_is_an_error": (
        "room for a map of 2^60 bytes, each page of which qemu-user writes down"
    ),
}
CASES = 4
MEMORY_BYTES = 4 << 30
PATIENCE_S = 300
WITH_POOLS = {
    "engram_pool": ("tests::", "namespace::retry::tests::", "transfer::tests::"),
    "engram_tools": ("tests::",),
}
"""Modules of tests that make pools: qemu-user's notes of an arena's pages take 4 GiB."""


def runs(*command: str) -> bool:
    """Tell whether a command ends well; what it says is not shown."""
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0


def missing() -> str | None:
    """Add what is needed; say what cannot be had."""
    wanted = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if not (LIBRARIES / "lib" / "libc.so.6").exists():
        wanted.append("libc6-dev-arm64-cross")
    if wanted and not (
        os.geteuid() == 0
        and runs("apt-get", "update", "-q")
        and runs("apt-get", "install", "-q", "-y", "--no-install-recommends", *wanted)
    ):
        return f"apt-get, as root, cannot install {' '.join(wanted)} here"
    if not (shutil.which("rustup") and runs("rustup", "target", "add", TARGET)):
        return f"rustup cannot add {TARGET} here"
    return None


def tested() -> list[str]:
    """Name the crates whose libraries have unit tests; what Python loads has none."""
    told = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version=1"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    return [
        package["name"]
        for package in json.loads(told.stdout)["packages"]
        for target in package["targets"]
        if target["test"] and {"lib", "cdylib", "rlib"} & set(target["kind"])
    ]


def emulate(program: str) -> int:
    """Run each test of a program in a process of its own; return 1 if one fails."""
    emulator = ["qemu-aarch64", "-U", "LD_PRELOAD", "-L", str(LIBRARIES), program]
    listed = subprocess.run(
        [*emulator, "--list", "--format=terse"], check=True, capture_output=True, text=True
    )
    lines = (line.removesuffix(": test") for line in listed.stdout.splitlines() if ": test" in line)
    names = [name for name in lines if name.rsplit("::", 1)[-1] not in LEFT_OUT]
    with_pools = WITH_POOLS.get(Path(program).name.rsplit("-", 1)[0], ())
    names = [name for name in names if not name.startswith(with_pools)]
    environment = os.environ | {"PROPTEST_CASES": str(CASES)}

    bounded = ["timeout", str(PATIENCE_S), "prlimit", f"--data={MEMORY_BYTES}"]

    def passes(name: str) -> bool:
        ended = subprocess.run(
            [*bounded, *emulator, "--exact", name, "--test-threads=1"],
            check=False,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if ended.returncode:
            told = ended.stdout.decode(errors="replace")
            print(f"---- {name} ended with {ended.returncode}\n{told}", flush=True)  # noqa: T201
        return ended.returncode == 0

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as several:
        passed = sum(several.map(passes, names))
    short = Path(program).name.rsplit("-", 1)[0]
    print(f"{short}: {passed} passed, {len(names) - passed} failed", flush=True)  # noqa: T201
    return int(passed < len(names))


def main() -> int:
    """Return how the tests ended; that they are skipped is no failure."""
    if sys.argv[1:2] == ["--emulate"]:
        return emulate(sys.argv[2])
    if reason := missing():
        print(f"    skipped: {reason}")  # noqa: T201
        return 0
    with tempfile.TemporaryDirectory(prefix="engram-aarch64-") as made:
        under = Path(made) / "noreserve.so"
        shim = ROOT / "scripts" / "noreserve.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O", "-o", under, shim], check=True)
        return test(f"env LD_PRELOAD={under} {sys.executable} {Path(__file__)} --emulate")


def test(runner: str) -> int:
    """Compile the tests and have `runner` run them; return how that ended."""
    variable = f"CARGO_TARGET_{TARGET.upper().replace('-', '_')}"
    environment = os.environ | {
        f"{variable}_LINKER": "aarch64-linux-gnu-gcc",
        f"{variable}_RUNNER": runner,
    }
    asked = [word for name in tested() for word in ("-p", name)]
    command = ["cargo", "test", "--quiet", "--locked", "--lib", "--no-fail-fast"]
    command += ["--target", TARGET, *asked]
    return subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
