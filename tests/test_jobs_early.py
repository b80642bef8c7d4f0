"""Jobs whose programs begin before all of their files are there."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

import engram
from job_place import MIB, Place, ended, placed, until
from mounted import needs_fuse
from shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FRONTS = [pytest.param("mount", marks=needs_fuse), "run"]
FILES = 12
SLOW = {"rate": "4 MiB", "workers": 1}
"""So they come in three seconds, one after the other."""


@pytest.fixture
def place(home: Path) -> Iterator[Place]:
    """Give a place for a job with many files; nothing of it stays."""
    with placed(home) as made:
        for number in range(FILES):
            (made.root / f"in/f{number}").write_bytes(os.urandom(MIB))
        yield made


def each(command: str) -> str:
    """Give a shell's loop over the numbers of the files."""
    numbers = " ".join(map(str, range(FILES)))
    return f"for i in {numbers}; do {command}; done"


@pytest.mark.parametrize("front", FRONTS)
def test_a_program_begins_early_and_waits_for_each_file(place: Place, front: Any) -> None:
    program = place.script(
        "mkdir out", "ls in | wc -l >out/seen", each("cat in/f$i"), "echo >>state", "exit 3"
    )
    came = engram.jobs.run(place.write(**SLOW), program, front=front, early="2files")
    assert (came.code, came.whole, came.troubles, came.pool) == (3, True, (), None)
    assert 2 <= int((place.results / "out/seen").read_text()) < FILES
    assert (place.results / "state").read_bytes() == b"old\n\n"
    assert "the program begins with" in place.log.read_text()


def test_what_a_program_waits_for_is_what_was_outside(place: Place) -> None:
    program = place.script("mkdir out", each("cat in/f$i >>out/all"))
    words = ("job", "-c", place.write(**SLOW), "--front", "run", "--early", "1MiB", "--json", "--")
    done = run(*words, *program)
    assert done.code == 0, done.err
    assert json.loads(done.out)["whole"]
    sources = b"".join((place.root / f"in/f{number}").read_bytes() for number in range(FILES))
    assert (place.results / "out/all").read_bytes() == sources


def test_a_file_that_cannot_come_any_more_is_named_and_the_results_are_out(place: Place) -> None:
    program = place.script(
        "mkdir out",
        "there=$(ls in)",
        each('case "$there" in *f$i*) ;; *) last=f$i ;; esac'),
        f"rm {place.root}/in/$last",
        "cat in/$last 2>out/why || echo $last >out/gone",
    )
    came = engram.jobs.run(place.write(**SLOW), program, front="run", early="1files")
    gone = (place.results / "out/gone").read_text().strip()
    assert "No such file" in (place.results / "out/why").read_text()
    assert [trouble.path for trouble in came.troubles] == [str(place.root / "in" / gone)]
    assert (came.code, came.exit_code, came.pool) == (0, 74, None), "all results are out"


def test_a_job_that_was_killed_early_gets_the_rest_of_its_files(place: Place) -> None:
    flag = place.root / "begun"
    waiting = place.script("mkdir -p out", f"echo $$ >{flag}", "exec sleep 60")
    job = ("job", "-c", place.write(**SLOW), "--front", "run")
    helper = place.begin(*job, "--early", "1files", "--", *waiting)
    until(lambda: flag.exists() and flag.read_text().strip() != "")
    helper.kill()
    os.kill(int(flag.read_text()), signal.SIGKILL)
    ended(helper)
    again = place.script(each(f"cmp in/f$i {place.root}/in/f$i || exit 1"), "echo >out/same")
    done = run(*job, "--", *again)
    assert done.code == 0, done.err
    assert (place.results / "out/same").exists()


def test_a_signal_ends_a_job_whose_files_are_on_their_way(place: Place) -> None:
    flag = place.root / "begun"
    reading = each("cat in/f$i >/dev/null")  # the files' bytes are no text
    waiting = place.script("mkdir -p out", "echo x >out/r", f"echo >{flag}", reading)
    slower = {**SLOW, "rate": "200 KiB"}
    job = ("job", "-c", place.write(**slower), "--front", "run", "--early", "1KiB")
    helper = place.begin(*job, "--", *waiting)
    until(flag.exists)
    helper.send_signal(signal.SIGTERM)
    ended(helper)
    assert (place.results / "out/r").read_bytes() == b"x\n"
    assert place.pool() is None


def test_what_is_no_amount_is_refused(place: Place) -> None:
    with pytest.raises(engram.ArgumentError, match=r"early 0files: say how much"):
        engram.jobs.run(place.write(), ["true"], front="run", early="0files")
