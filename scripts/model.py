"""Runs the models of leases and of the bell (loom), then breaks what they model.

The tests of `engine/space/src/lease/tests/model.rs` and of `engine/media/src/bell/model.rs` pass on
this tree. A defect is a change of one place in the source, made in a copy of the tree: the test
that is named beside it must fail there, and by what loom or the test says. A defect whose text is
no longer in the source, that does not compile, or that is not found, is an error. So is a test that
no defect makes fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "target/model"
COPY = TARGET / "broken"
COPIED = re.compile(r"(?:\.cargo/|.*\.(?:rs|toml|lock)$)")
SAID = ("Causality violation", "is held by nobody", "is missed", "deadlock", "the dead have cost")
"""What fails a test for a defect: what loom says, and what the tests assert."""

LEASE = "engine/space/src/lease.rs"
SHOWN = "engine/space/src/lease/shown.rs"
LIST = "engine/space/src/lease/list.rs"
WORDS = "engine/space/src/lease/words.rs"
SNAPSHOTS = "engine/space/src/lease/held_snapshots.rs"
RECLAIM = "engine/space/src/extent/reclaim.rs"
MODEL = "engine/space/src/lease/tests/model.rs"
BELL = "engine/media/src/bell.rs"


@dataclass(frozen=True)
class Model:
    """Tests with loom: the crate, the file, and what their names begin with."""

    package: str
    file: str
    tests: str

    def named(self) -> set[str]:
        """Give the names of its tests."""
        source = (ROOT / self.file).read_text(encoding="utf-8")
        return set(re.findall(r"#\[test\]\nfn (\w+)", source))


LEASES = Model("engram-space", MODEL, "lease::tests::model::")
BELLS = Model("engram-media", "engine/media/src/bell/model.rs", "bell::model::")


@dataclass(frozen=True)
class Defect:
    """A change of one place, and the test that must find it."""

    what: str
    file: str
    text: str
    instead: str
    found_by: str
    model: Model = LEASES


DEFECTS = (
    Defect(
        "the reader leaves out its fence",
        LEASE,
        "        fence(Ordering::SeqCst);\n        let begun = begin();",
        "        let begun = begin();",
        "a_view_keeps_its_extent_from_a_process_that_deletes_and_allocates",
    ),
    Defect(
        "the allocator leaves out its fence",
        LIST,
        "        fence(Ordering::SeqCst);\n        let mut floor",
        "        let mut floor",
        "a_view_keeps_its_extent_from_threads_of_its_own_process",
    ),
    Defect(
        "the reader does not store PIN before it begins",
        LEASE,
        "            _ => PIN,\n",
        "            _ => IDLE,\n",
        "what_one_process_frees_another_takes_only_when_nobody_views_it",
    ),
    Defect(
        "one thread's PIN ends with the look-up of another",
        LEASE,
        "            local.pinning -= 1;",
        "            local.pinning = 0;",
        "threads_that_look_up_at_once_have_one_age_between_them",
    ),
    Defect(
        "the allocator reads the pins, then the age",
        LIST,
        "    floor.age = floor.age.min(words.age());\n"
        "    words.pinned().for_each(|pin| floor.keep(pin));\n",
        "    words.pinned().for_each(|pin| floor.keep(pin));\n"
        "    floor.age = floor.age.min(words.age());\n",
        "a_view_keeps_its_extent_from_threads_of_its_own_process",
    ),
    Defect(
        "the allocator asks for pins, then for the age, before it takes a lease for quiet",
        LIST,
        "words.age() == IDLE && words.used() == 0",
        "words.used() == 0 && words.age() == IDLE",
        "a_view_keeps_its_extent_from_a_process_that_deletes_and_allocates",
    ),
    Defect(
        "the age is stored without release",
        LEASE,
        "self.file.head().age.store(age, Ordering::Release);",
        "self.file.head().age.store(age, Ordering::Relaxed);",
        "a_look_up_may_read_all_that_its_snapshot_shows",
    ),
    Defect(
        "the age is loaded without acquire",
        WORDS,
        "self.head().age.load(Ordering::Acquire)",
        "self.head().age.load(Ordering::Relaxed)",
        "a_view_beyond_the_pin_list_is_kept_by_its_age",
    ),
    Defect(
        "a pin goes without release",
        LEASE,
        "self.file.words().pins()[slot].store(0, Ordering::Release);",
        "self.file.words().pins()[slot].store(0, Ordering::Relaxed);",
        "what_one_process_frees_another_takes_only_when_nobody_views_it",
    ),
    Defect(
        "a view that finds no slot holds no age",
        LEASE,
        "                hold_age(&mut local, age);\n                self.publish_age(&local);\n",
        "",
        "a_view_beyond_the_pin_list_is_kept_by_its_age",
    ),
    Defect(
        "the allocator does not look at the epoch again",
        LIST,
        "            if epoch() == before {\n                return Ok(floor);",
        "            if epoch() >= before {\n                return Ok(floor);",
        "a_view_that_a_fork_hands_on_is_seen_with_the_parent_or_the_child",
    ),
    Defect(
        "the leases are listed once",
        LIST,
        "if self.epoch != Some(epoch) {",
        "if self.epoch.is_none() {",
        "a_process_that_opens_the_realm_is_seen_before_it_looks",
    ),
    Defect(
        "a child begins without its parent's pins",
        LEASE,
        "child.file.head().pins_used.store(local.slots_used as u64, Ordering::Relaxed);",
        "",
        "a_view_that_a_fork_hands_on_is_seen_with_the_parent_or_the_child",
    ),
    Defect(
        "an allocator that asks for writers does not look at the epoch again",
        LIST,
        "writes(lease.words(), offset)) {\n                return Ok(true);\n            }\n"
        "            if epoch() == before {",
        "writes(lease.words(), offset)) {\n                return Ok(true);\n            }\n"
        "            if epoch() >= before {",
        "a_view_that_may_write_is_seen_through_a_fork",
    ),
    Defect(
        "a lease is taken over from the dead, and stays one of the dead",
        WORDS,
        "        head.dead.store(0, Ordering::Relaxed);\n",
        "",
        "a_lease_that_is_taken_over_from_the_dead_is_a_live_one",
    ),
    Defect(
        "an opening raises the epoch before its lease has a name",
        MODEL,
        "            opened.name();\n            opened.announce();\n",
        "            opened.announce();\n            opened.name();\n",
        "a_process_that_opens_the_realm_is_seen_before_it_looks",
    ),
    Defect(
        "a look-up ends before its view is pinned",
        MODEL,
        "        let view = self.pin(object, snapshot);\n        self.lease.end_look(snapshot);\n",
        "        self.lease.end_look(snapshot);\n        let view = self.pin(object, snapshot);\n",
        "a_view_keeps_its_extent_from_a_process_that_deletes_and_allocates",
    ),
    Defect(
        "a snapshot has no age once its look-up has ended",
        SNAPSHOTS,
        "            held.push((age, ask_at));\n",
        "",
        "a_snapshot_keeps_what_it_shows_between_look_ups",
    ),
    Defect(
        "what the commit after a snapshot freed is taken",
        RECLAIM,
        "freed_by > self.age",
        "freed_by > self.age.saturating_add(1)",
        "a_look_up_may_read_all_that_its_snapshot_shows",
    ),
    Defect(
        "a view of a file pins the first of its runs alone",
        SHOWN,
        "runs.into_iter().map(",
        "runs.into_iter().take(1).map(",
        "a_view_of_a_file_keeps_each_of_its_runs",
    ),
    Defect(
        "what is cut from a file is taken while its object is viewed",
        RECLAIM,
        "FreedOf::Cut(oid) => viewed(oid),",
        "FreedOf::Cut(_) => false,",
        "a_view_of_more_runs_than_it_may_pin_keeps_all_that_is_cut",
    ),
    Defect(
        "the dead hold what they held",
        LIST,
        "if !is_quiet(lease.words()) && lease.is_alive() {",
        "if !is_quiet(lease.words()) {",
        "what_a_dead_process_viewed_is_taken_and_no_sooner",
    ),
    Defect(
        "who listens may not see what was committed before the ring",
        BELL,
        "const LOAD: Ordering = Ordering::Acquire;",
        "const LOAD: Ordering = Ordering::Relaxed;",
        "a_watcher_sleeps_through_no_commit",
        BELLS,
    ),
    Defect(
        "a ring says nothing of the commit before it",
        BELL,
        "const EXCHANGE: Ordering = Ordering::AcqRel;",
        "const EXCHANGE: Ordering = Ordering::Acquire;",
        "a_watcher_sleeps_through_no_commit",
        BELLS,
    ),
    Defect(
        "a ring does not raise the number",
        BELL,
        "was.wrapping_add(RING) & !ASLEEP",
        "was & !ASLEEP",
        "a_watcher_sleeps_through_no_commit",
        BELLS,
    ),
    Defect(
        "a ring does not look whether somebody sleeps",
        BELL,
        "            return was & ASLEEP != 0;",
        "            return false;",
        "a_watcher_sleeps_through_no_commit",
        BELLS,
    ),
    Defect(
        "who sleeps does not look whether it has rung",
        BELL,
        "    let asleep = heard | ASLEEP;",
        "    let heard = heard.max(word.load() & !ASLEEP);\n    let asleep = heard | ASLEEP;",
        "a_watcher_sleeps_through_no_commit",
        BELLS,
    ),
    Defect(
        "the second who sleeps sleeps without the bit",
        BELL,
        "(word.exchange(heard, asleep) || word.load() == asleep).then_some(asleep)",
        "Some(if word.exchange(heard, asleep) { asleep } else { word.load() })",
        "each_of_two_watchers_sleeps_through_no_commit",
        BELLS,
    ),
    Defect(
        "a ring leaves the bit",
        BELL,
        "was.wrapping_add(RING) & !ASLEEP",
        "was.wrapping_add(RING)",
        "the_dead_cost_one_call",
        BELLS,
    ),
)


def say(text: str) -> None:
    """Say what is going on, at once."""
    print(text, flush=True)  # noqa: T201 - a program for people


def cargo(folder: Path, model: Model, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Have cargo build the tests of a model with loom, and run those that are named."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LOOM_")},
        "RUSTFLAGS": "--cfg loom",
    }
    command = ["cargo", "test", "--quiet", "--target-dir", str(TARGET), "-p", model.package]
    return subprocess.run(
        [*command, "--lib", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def copied() -> None:
    """Make the copy anew. What has not changed keeps its time, so that cargo builds it once."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    names = {name for name in listed.stdout.splitlines() if COPIED.fullmatch(name)}
    for there in [path for path in COPY.rglob("*") if path.is_file()]:
        if str(there.relative_to(COPY)) not in names:
            there.unlink()
    for name in names:
        source, copy = ROOT / name, COPY / name
        if source.is_file() and not (copy.is_file() and copy.read_bytes() == source.read_bytes()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)


def judged(defect: Defect) -> str:
    """Build a defect into the copy, and say what is wrong with how it was met; nothing if found."""
    file = COPY / defect.file
    whole = file.read_text(encoding="utf-8")
    if whole.count(defect.text) != 1:
        return (
            f"its text is there {whole.count(defect.text)} times in {defect.file}:\n{defect.text}"
        )
    file.write_text(whole.replace(defect.text, defect.instead), encoding="utf-8")
    try:
        built = cargo(COPY, defect.model, "--no-run")
        if built.returncode != 0:
            return f"it does not compile:\n{built.stdout}"
        run = cargo(COPY, defect.model, "--", "--exact", defect.model.tests + defect.found_by)
    finally:
        file.write_text(whole, encoding="utf-8")
    if run.returncode == 0:
        return f"{defect.found_by} does not find it"
    if not any(said in run.stdout for said in SAID):
        return f"{defect.found_by} fails otherwise:\n{run.stdout}"
    return ""


def pass_as_they_are(model: Model) -> bool:
    """Run the tests of a model on this tree."""
    built = cargo(ROOT, model, "--no-run")
    if built.returncode != 0:
        say(built.stdout)
        return False
    start, tests = time.monotonic(), model.named()
    run = cargo(ROOT, model, "--", model.tests)
    if run.returncode != 0 or f"{len(tests)} passed" not in run.stdout:
        say(run.stdout)
        return False
    say(f"    {model.package}: {len(tests)} tests passed in {time.monotonic() - start:.0f} s")
    return True


def main() -> int:
    """Run the models as they are, then with each defect."""
    if not all(pass_as_they_are(model) for model in (LEASES, BELLS)):
        return 1
    copied()
    wrong = 0
    for defect in DEFECTS:
        start = time.monotonic()
        problem = judged(defect)
        wrong += bool(problem)
        found = f"NOT FOUND: {problem}" if problem else f"found ({time.monotonic() - start:.0f} s)"
        say(f"    {defect.what}: {found}")
    tests = LEASES.named() | BELLS.named()
    idle = tests - {defect.found_by for defect in DEFECTS}
    for test in sorted(idle):
        say(f"    no defect is said to fail {test}")
    return int(bool(wrong or idle))


if __name__ == "__main__":
    sys.exit(main())
