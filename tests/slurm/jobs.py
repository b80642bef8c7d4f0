"""Real jobs of a real Slurm: `make slurm`; `tests/test_slurm.py` has one of them."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

import engram
import own_slurm
from native import ROOT
from own_slurm import Cluster, in_pool, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALICE, BOB = own_slurm.USERS
POOL = "pool=engram capacity=32M"
WRITES = "mkdir -p /p/out && sort /p/in/numbers >/p/out/sorted"
WAITS = " && while [ ! -e {go} ]; do sleep 0.2; done"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    if why := own_slurm.why_not():
        pytest.skip(why)
    with Cluster() as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_left(slurm: Cluster) -> Iterator[None]:
    """No node is drained by any test, and no stage is held by the next."""
    yield
    for step in ("measure", "begin", "end", "drop"):
        slurm.release(step)
    slurm.run("scancel", "--state=PENDING,RUNNING")
    wait_for("nodes idle", lambda: slurm.states() == {"idle"})


class Job:
    """A job with input and results, which waits for a file if it is told to."""

    def __init__(
        self, slurm: Cluster, name: str, *options: str, work: str = WRITES, user: str = ALICE
    ) -> None:
        self.slurm = slurm
        self.folder = slurm.tree(f"{name}-in", {"numbers": "3\n1\n2\n"}, user)
        self.results = slurm.home(user) / f"{name}-out"
        self.go = slurm.home(user) / f"{name}-go"
        self.id = slurm.submit(
            [
                POOL,
                f"stage_in source={self.folder} dest=in type=directory",
                f"stage_out source=out dest={self.results}",
            ],
            in_pool(work.format(go=self.go)),
            *options,
            user=user,
        )
        self.pool = slurm.job_folder(self.id) / "pool"

    def wait_for_results(self) -> None:
        """Wait until it has written."""
        wait_for("results in the pool", lambda: has(self.pool, "out/sorted"))

    def is_brought(self) -> bool:
        """Whether its results are there, as the manifest says."""
        right = (self.results / "sorted").read_text() == "1\n2\n3\n"
        return right and engram.stage.verify(self.results).troubles == ()

    def bring_by_hand(self) -> None:
        """Bring the results as the guide says, and see that they are whole."""
        line = (
            f"{own_slurm.python()} -m engram stage out {self.pool} out --to {self.results}; exit $?"
        )
        said = self.slurm.run("sh", "-c", line, user=ALICE)
        assert self.is_brought(), said

    def is_gone(self) -> bool:
        """Whether neither its pool nor any state of it is left."""
        return not self.pool.parent.exists() and not self.slurm.state_of(self.id)

    def wait_until_gone(self) -> None:
        """Wait until teardown has dropped all of it."""
        try:
            wait_for(f"job {self.id} gone", self.is_gone)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.slurm.bbstat()}\n{self.slurm.log()}") from None


def test_a_job_that_fails_has_its_results_brought(slurm: Cluster) -> None:
    job = Job(slurm, "fails", work=WRITES + " && exit 3")
    assert slurm.wait(job.id, "FAILED", "COMPLETED") == "FAILED"
    job.wait_until_gone()
    assert job.is_brought()


def test_a_job_that_writes_nothing_leaves_nothing(slurm: Cluster) -> None:
    job = Job(slurm, "empty", work="exit 3")
    slurm.wait(job.id, "FAILED")
    job.wait_until_gone()
    assert not job.results.exists()


def test_results_in_another_place_than_was_said_are_left_and_named(slurm: Cluster) -> None:
    job = Job(slurm, "elsewhere", work="mkdir /p/owt && cp /p/in/numbers /p/owt/n")
    slurm.wait(job.id, "COMPLETED")
    wait_for("left", lambda: slurm.state_of(job.id).get("stage") == "left")
    assert "out: not in the pool" in slurm.state_of(job.id)["text"]
    with engram.open(job.pool) as pool:
        assert bytes(pool["owt/n"][:]) == b"3\n1\n2\n"
    assert " left " in slurm.bbstat()


def state_is_reached(slurm: Cluster, job: Job, state: str) -> None:
    """Bring a job to the state in which it is to be cancelled."""
    if state == "running":
        slurm.wait(job.id, "RUNNING")
        job.wait_for_results()
    else:
        slurm.wait_for_burst(job.id, state)


def has(pool: Path, path: str) -> bool:
    try:
        with engram.open(pool, mode="r") as opened:
            return path in opened
    except engram.EngramError:
        return False


@pytest.mark.parametrize("hurry", [False, True], ids=["", "hurry"])
@pytest.mark.parametrize("state", ["pending", "staging-in", "pre-run", "running", "staging-out"])
def test_a_job_is_cancelled_in_each_state(slurm: Cluster, state: str, hurry: bool) -> None:
    held = {"staging-in": "measure", "pre-run": "begin", "staging-out": "end"}.get(state)
    if held:
        slurm.hold(held)
    options = ["--hold"] if state == "pending" else []
    work = WRITES + WAITS if state == "running" else WRITES
    job = Job(slurm, f"cancel-{state}-{hurry}", *options, work=work)
    state_is_reached(slurm, job, state)
    slurm.run("scancel", *(["--hurry"] if hurry else []), job.id, user=ALICE)
    if held and not (state == "staging-out" and hurry):
        slurm.release(held)
    if hurry and state in {"running", "staging-out"}:
        wait_for("left", lambda: slurm.state_of(job.id).get("stage") == "left")
        if held:
            slurm.release(held)
        assert "in a hurry" in slurm.state_of(job.id)["text"]
        job.bring_by_hand()
    else:
        slurm.wait(job.id, "CANCELLED", "COMPLETED")
        # Slurm may have ended the teardown itself: what it left goes when another job comes.
        if state == "pre-run":
            slurm.wait(slurm.submit([POOL], "true"), "COMPLETED")
        job.wait_until_gone()
        assert job.results.exists() == (state in {"running", "staging-out"})


def test_a_job_that_is_requeued_brings_its_results_and_runs_again(slurm: Cluster) -> None:
    work = "mkdir -p /p/out && cat /p/in/numbers {go}* | sort >/p/out/sorted" + WAITS
    job = Job(slurm, "requeued", work=work)
    slurm.wait(job.id, "RUNNING")
    job.wait_for_results()
    slurm.run("scontrol", "requeue", job.id, user=ALICE)
    wait_for("first results", (job.results / "MANIFEST.engram").exists)
    assert job.is_brought()
    job.go.write_text("0\n")
    job.go.chmod(0o644)
    slurm.wait(job.id, "COMPLETED", seconds=200)
    job.wait_until_gone()
    assert (job.results / "sorted").read_text() == "0\n1\n2\n3\n"


def test_a_job_that_outlives_its_time_has_its_results_brought(slurm: Cluster) -> None:
    job = Job(slurm, "late", "--time=0:01", work=WRITES + WAITS)
    slurm.wait(job.id, "TIMEOUT", seconds=200)
    job.wait_until_gone()
    assert job.is_brought()


def test_a_pool_is_used_by_three_jobs(slurm: Cluster) -> None:
    folder = slurm.tree("mesh", {"mesh": "m" * 1000})
    results = slurm.home(ALICE) / "mesh-out"
    first = slurm.submit(
        ["create_persistent pool=engram name=mesh capacity=32M", f"stage_in source={folder}"],
        in_pool("test -s /p/mesh/mesh && echo one >/p/log"),
    )
    slurm.wait(first, "COMPLETED")
    slurm.wait_until_torn_down(first)
    place = slurm.base / f"engram-{pwd.getpwnam(ALICE).pw_uid}-mesh"
    assert has(place / "pool", "log")
    assert "persistent" in slurm.bbstat()
    slurm.hold("begin")
    second = slurm.submit(
        ["use_persistent name=mesh", f"stage_in source={folder}"],
        in_pool("cat /p/mesh/mesh >/dev/null && echo two >>/p/log"),
    )
    slurm.wait_for_burst(second, "staging-in")
    wait_for("early", lambda: slurm.state_of(second).get("stage") == "staging in early")
    assert slurm.facts(second)["JobState"] == "PENDING", "it copies before it has a node"
    assert slurm.facts(second)["ReqNodeList"] == "n1"
    slurm.release("begin")
    slurm.wait(second, "COMPLETED")
    third = slurm.submit(
        [
            "use_persistent name=mesh",
            f"stage_out source=log dest={results}/log",
            "destroy_persistent name=mesh",
        ],
        in_pool("echo three >>/p/log"),
    )
    slurm.wait(third, "COMPLETED")
    wait_for("destroyed", lambda: not place.exists())
    assert (results / "log").read_text() == "one\ntwo\nthree\n"
    wait_for("forgotten", lambda: "persistent" not in slurm.bbstat())
    fourth = slurm.submit(["use_persistent name=mesh"], "true")
    wait_for("held", lambda: "no persistent pool mesh" in str(slurm.facts(fourth)))


def test_each_job_of_an_array_has_a_pool_of_its_own(slurm: Cluster) -> None:
    folder = slurm.tree("array-in", {"x": "x"})
    work = in_pool("test -e /p/array-in/x && test ! -e /p/mine && echo >/p/mine && sleep 2")
    array = slurm.submit([POOL, f"stage_in source={folder}"], work, "--array=1-2")
    for task in ("1", "2"):
        slurm.wait(f"{array}_{task}", "COMPLETED")
        slurm.wait_until_pool_is_gone(slurm.facts(f"{array}_{task}")["JobId"])


def test_users_see_nothing_of_each_other(slurm: Cluster) -> None:
    jobs = [Job(slurm, f"of-{user}", work=WRITES + WAITS, user=user) for user in (ALICE, BOB)]
    for job in jobs:
        slurm.wait(job.id, "RUNNING")
        job.wait_for_results()
    for user, other in ((ALICE, jobs[1]), (BOB, jobs[0])):
        seen = slurm.run("ls", str(other.pool), user=user)
        assert "Permission denied" in seen
        assert str(other.results) not in slurm.bbstat(user)
        assert slurm.run("scancel", other.id, user=user)
    for job in jobs:
        assert slurm.facts(job.id)["JobState"] == "RUNNING"
        job.go.touch()
        slurm.wait(job.id, "COMPLETED")
        job.wait_until_gone()
        assert job.is_brought()
        assert (job.results / "sorted").stat().st_uid == job.folder.stat().st_uid


@pytest.mark.parametrize("state", ["staging-in", "running", "staging-out"])
def test_slurmctld_is_restarted_in_the_middle(slurm: Cluster, state: str) -> None:
    held = {"staging-in": "measure", "staging-out": "end"}.get(state)
    if held:
        slurm.hold(held)
    job = Job(slurm, f"restart-{state}", work=WRITES + WAITS if state == "running" else WRITES)
    state_is_reached(slurm, job, state)
    slurm.stop_slurmctld()
    if held:
        slurm.release(held)
    job.go.touch()
    slurm.start_slurmctld()
    slurm.wait(job.id, "COMPLETED", seconds=200)
    job.wait_until_gone()
    assert job.is_brought()


@pytest.mark.parametrize("step", ["begin", "end"])
def test_a_step_that_is_killed_is_gone_on_with(slurm: Cluster, step: str) -> None:
    slurm.hold(step)
    job = Job(slurm, f"killed-{step}")
    slurm.wait_for_burst(job.id, "pre-run" if step == "begin" else "staging-out")
    wait_for("the step at work", lambda: steps_of(slurm, step))
    for pid in steps_of(slurm, step):
        os.kill(pid, signal.SIGKILL)
    slurm.release(step)
    if step == "begin":
        wait_for("said", lambda: "pre_run: on n1: Killed" in str(slurm.facts(job.id)))
        slurm.run("scontrol", "release", job.id, user=ALICE)
        slurm.wait(job.id, "COMPLETED", seconds=200)
        job.wait_until_gone()
        assert job.is_brought()
    else:
        wait_for("left", lambda: slurm.state_of(job.id).get("stage") == "left")
        assert "on n1: Killed" in slurm.state_of(job.id)["text"]
        slurm.wait(job.id, "COMPLETED")
        job.bring_by_hand()


def steps_of(slurm: Cluster, step: str) -> list[int]:
    """Return the processes that wait before a step of the helper."""
    said = subprocess.run(
        ["pgrep", "-f", f"{slurm.folder}/conf/held .* {step}$"], capture_output=True, check=False
    )
    return [int(pid) for pid in said.stdout.split()]


def test_an_error_of_the_script_does_not_stop_slurmctld(slurm: Cluster) -> None:
    script = slurm.folder / "conf/burst_buffer.lua"
    right = (ROOT / "slurm/burst_buffer.lua").read_text()
    wrong = {
        "syntax": "function (",
        "at load": right + "\nerror('at load')\n",
        "in a function": right.replace("local conf, who = settings()", "local conf = nil + 1"),
        "a function missing": "slurm_bb_pools = nil",
    }
    for text in wrong.values():
        script.write_text(text)
        slurm.bbstat()
        said = slurm.try_to_submit([POOL], "true")
        assert "Submitted" in said or "error" in said
        assert slurm.is_up()
    script.write_text(right)
    conf = slurm.folder / "conf/engram.conf"
    settings = conf.read_text()
    conf.unlink()
    assert "engram.conf is missing" in slurm.try_to_submit([POOL], "true")
    assert slurm.is_up()
    conf.write_text(settings)
    job = Job(slurm, "after-errors")
    slurm.wait(job.id, "COMPLETED")
    job.wait_until_gone()
    assert job.is_brought()


def test_what_does_not_fit_is_said_before_a_node_is_taken(slurm: Cluster) -> None:
    folder = slurm.tree("large", {"large": "x" * 5_000_000})
    job = slurm.submit(["pool=engram capacity=4M", f"stage_in source={folder}"], "true", user=ALICE)
    wait_for("said", lambda: "ask for more" in str(slurm.facts(job)))
    assert "4.8 MiB" in str(slurm.facts(job))
    late = slurm.home(ALICE) / "comes-late"
    missing = slurm.submit([POOL, f"stage_in source={late}"], in_pool("cat /p/comes-late/x"))
    wait_for("said", lambda: "No such file" in str(slurm.facts(missing)))
    slurm.tree(late.name, {"x": "there after all"})
    slurm.wait_until_torn_down(missing)
    slurm.run("scontrol", "release", missing)
    slurm.wait(missing, "COMPLETED")
    assert "there after all" in slurm.output(missing)
    hidden = slurm.tree("hidden", {"x": "x"}, BOB)
    other = slurm.submit([POOL, f"stage_in source={hidden}"], "true")
    wait_for("said", lambda: "Permission denied" in str(slurm.facts(other)))


def test_a_pool_has_a_tmpfs_of_its_own(slurm: Cluster) -> None:
    go = slurm.home(ALICE) / "tmpfs-go"
    job = slurm.submit([POOL, "mode=tmpfs"], in_pool("echo x >/p/x" + WAITS.format(go=go)))
    slurm.wait(job, "RUNNING")
    folder = slurm.job_folder(job)
    assert folder.is_mount()
    assert os.statvfs(folder).f_blocks * os.statvfs(folder).f_frsize == 96 << 20
    assert folder.stat().st_uid == pwd.getpwnam(ALICE).pw_uid
    go.touch()
    slurm.wait(job, "COMPLETED")
    slurm.wait_until_pool_is_gone(job)
