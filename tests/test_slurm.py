"""Slurm: what directives and comments may say, and one real job; `make slurm` runs many."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import engram
import own_slurm
from engram.jobs import registry
from engram.slurm import work
from engram.slurm.folder import prepare
from engram.slurm.plan import Asked, Plan, RefusedError, of_comment
from native import ROOT
from own_slurm import Cluster

if TYPE_CHECKING:
    from pathlib import Path

STUB = """
slurm = {{ SUCCESS = 0, ERROR = -1, log_error = function() end, log_info = function() end }}
dofile({script!r})
local code, text = slurm_bb_{name}(unpack(arg))
io.write(code, " ", text or "")
"""
JOB = "pool=engram capacity=20M"
NOBODY_KNOWS = 1_234_567
"""A user whom no database has."""
REFUSED = [
    (["pool=engram"], "line 2: #BB_LUA: capacity= is missing"),
    (["capacity=20M"], "line 2: #BB_LUA: pool=engram is missing"),
    (["pool=fast capacity=20M"], "line 2: #BB_LUA: pool=fast: it is one of engram"),
    (["pool=engram capacity=much"], "capacity=much is no size: write it as 20G or 512M"),
    (["pool=engram capacity=0"], "capacity=0 is no size"),
    (["pool=engram capacity=20N"], "capacity=20N is no size"),
    (["pool=engram capacity=20M mode=disk"], "mode=disk: it is one of tmpfs, fsdax, devdax"),
    ([JOB + " mode=fsdax"], "mode=fsdax: this cluster has no such memory"),
    ([JOB + " mode=devdax"], "mode=devdax: this cluster has no such memory"),
    (["mode=tmpfs"], "line 2: #BB_LUA: mode= is for a pool of the job's own, and it has none"),
    (["mode=tmpfs", f"{JOB} mode=tmpfs"], "line 2: #BB_LUA: the pool has a mode already"),
    ([JOB, "mode=tmpfs", "mode=tmpfs"], "line 4: #BB_LUA: the job has a mode already"),
    ([JOB, "mode=disk"], "line 3: #BB_LUA: mode=disk: it is one of tmpfs, fsdax, devdax"),
    ([JOB, JOB], "line 3: #BB_LUA: the job has a pool already"),
    ([JOB, "stage_inn source=/x"], "line 3: #BB_LUA: stage_inn is no directive"),
    ([JOB, "stage_in dest=x"], "line 3: #BB_LUA: source= is missing"),
    ([JOB, "stage_in source=x"], "source=x: write the whole path, from /"),
    ([JOB, "stage_in source=/x dest=../y"], "dest=../y: a path in the pool has no .."),
    ([JOB, "stage_in source=/x type=dir"], "type=dir: it is one of file, directory"),
    ([JOB, "stage_in source=/x kind=file"], "kind= is unknown here: there are dest=, existing="),
    ([JOB, "stage_in source=/x source=/y"], "source= stands there twice"),
    ([JOB, "stage_in source=/x here"], "here is no word of the kind key=value"),
    ([JOB, "stage_out source=x"], "line 3: #BB_LUA: dest= is missing"),
    ([JOB, "stage_out source=x dest=y"], "dest=y: write the whole path"),
    ([JOB, "stage_in source=/x name=mesh"], "line 3: #BB_LUA: name=mesh: the job has no such pool"),
    (["stage_in source=/x"], "line 2: #BB_LUA: it has no pool: add a line with pool=engram"),
    (["use_persistent"], "name= is missing"),
    (["use_persistent name=a/b"], "name=a/b: a name has letters, digits and _"),
    (["use_persistent name=a", "use_persistent name=a"], "line 3: #BB_LUA: name=a stands there"),
    (
        ["use_persistent name=a", "use_persistent name=b", "stage_in source=/x"],
        "line 4: #BB_LUA: the job has several pools: say which, by name=",
    ),
]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Give a folder with what a site copies beside slurm.conf."""
    if shutil.which("lua5.1") is None:
        pytest.skip("needs lua5.1: `make slurm` installs it")
    shutil.copy(ROOT / "slurm/burst_buffer.lua", tmp_path)
    (tmp_path / "engram.conf").write_text(f"state = {tmp_path}/state\nrunner = local\n")
    return tmp_path


def call(site: Path, name: str, *arguments: str) -> str:
    """Call a function of the script, and give its code and its text."""
    stub = STUB.format(script=str(site / "burst_buffer.lua"), name=name)
    (site / "stub.lua").write_text(stub)
    done = subprocess.run(
        ["lua5.1", str(site / "stub.lua"), *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def processed(site: Path, *directives: str) -> str:
    script = site / "job.sh"
    script.write_text("\n".join(["#!/bin/sh", *(f"#BB_LUA {each}" for each in directives), "true"]))
    return call(site, "job_process", str(script))


@pytest.mark.parametrize(("directives", "why"), REFUSED)
def test_what_is_wrong_is_refused_by_its_line(site: Path, directives: list[str], why: str) -> None:
    said = processed(site, *directives)
    assert said.startswith("-1 ")
    assert why in said


def test_what_is_right_is_taken(site: Path) -> None:
    copies = ['stage_in source="/a b/c" \\', "dest=c type=file", "stage_out source=o dest=/o"]
    assert processed(site, f"{JOB} mode=tmpfs", *copies) == "0 "
    assert processed(site, "mode=tmpfs", JOB) == "0 "
    several = [
        "create_persistent pool=engram name=mesh capacity=1G",
        "stage_in source=/x name=mesh",
    ]
    assert processed(site, JOB, *several) == "0 "
    assert processed(site, "use_persistent name=a", "destroy_persistent name=a") == "0 "


def test_what_is_wrong_at_the_site_is_said(site: Path) -> None:
    (site / "engram.conf").write_text("runner = rsh\n")
    assert "runner=rsh: it is local, ssh, or a command with {command}" in processed(site, JOB)
    (site / "engram.conf").write_text("runer = ssh\n")
    assert "engram.conf: runer is no setting" in processed(site, JOB)
    (site / "engram.conf").unlink()
    assert "engram.conf is missing" in processed(site, JOB)


def test_each_function_tolerates_what_older_and_newer_slurms_pass(site: Path) -> None:
    assert call(site, "pools").startswith('0 {"pools":[{"id":"engram"')
    for name in ("test_data_in", "post_run", "test_data_out"):
        assert call(site, name, "7", "script") == "0 "
        assert call(site, name, "7", "script", "5", "60", "more") == "0 "
    assert call(site, "job_teardown", "7", "script", "true") == "0 ", "nothing was made"
    assert "nothing is known of job 7" in call(site, "data_in", "7", "script")
    assert "nothing is known of job 7" in call(site, "pre_run", "7", "script", "5", "60")


@pytest.mark.parametrize(
    ("version", "asks", "sees"),
    [
        ("slurm-wlm 22.05.8", [], {"secret-1": False, "secret-2": False, "4711": True}),
        ("slurm 23.02.0", ["5", "60"], {"secret-1": True, "secret-2": False, "4712": False}),
        ("slurm 26.05.2", ["0", "0"], {"secret-1": True, "secret-2": True, "4712": True}),
    ],
)
def test_the_table_shows_users_what_is_theirs(
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    asks: list[str],
    sees: dict[str, bool],
) -> None:
    (site / "state").mkdir()
    for number, (job, uid) in enumerate((("4711", "5"), ("4712", "9")), 1):
        (site / f"state/job-{job}").write_text(
            f"uid = {uid}\nstage = left\nnodes = n1 n2\ntext = secret-{number}\n"
        )
    (site / "scontrol").write_text(f"#!/bin/sh\necho {version}\n")
    (site / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{site}:{os.environ['PATH']}")
    table = call(site, "get_status", *asks)
    assert {word: word in table for word in sees} == sees
    assert " n1,n2 " in table


def test_what_slurm_has_given_up_is_torn_down_with_the_next_job(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = site / "state"
    state.mkdir()
    script = site / "job.sh"
    script.write_text(f"#!/bin/sh\n#BB_LUA {JOB}\n")
    for job, stage in (("3", "left"), ("4", "running"), ("5", "staging in"), ("6", "planned")):
        (state / f"job-{job}").write_text(f"uid = 5\ngid = 60\nstage = {stage}\n")
        shutil.copy(script, state / f"job-{job}.script")
    says = {
        "squeue": "echo 4",
        "scontrol": 'echo "JobId=$4 JobState=CANCELLED BurstBufferState=teardown "',
    }
    says["scontrol"] = f'test "$4" != 6 || exit 1\n{says["scontrol"]}'
    for name, text in says.items():
        (site / name).write_text(f"#!/bin/sh\n{text}\n")
        (site / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{site}:{os.environ['PATH']}")
    assert call(site, "setup", "8", "5", "60", "engram", "0", str(script)) == "0 "
    there = {path.name for path in state.glob("job-?")}
    assert there == {"job-3", "job-4", "job-6", "job-8"}, "6 is one that Slurm did not answer for"


def test_the_nodes_on_which_a_step_fails_are_named(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "state").mkdir()
    (site / "state/job-7").write_text("uid = 5\ngid = 60\nstage = planned\n")
    (site / "state/job-7.script").write_text(f"#!/bin/sh\n#BB_LUA {JOB}\n")
    answer = "JobId=7 NodeList=n1,n2,n3,n4,n5 Restarts=0"
    (site / "scontrol").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (site / "runner").write_text('#!/bin/sh\ntest $1 = n2 || { echo "no $1" >&2; exit 3; }\n')
    for name in ("scontrol", "runner"):
        (site / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{site}:{os.environ['PATH']}")
    (site / "engram.conf").write_text(
        f"state = {site}/state\nrunner = {site}/runner {{node}} {{command}}\n"
    )
    said = call(site, "pre_run", "7", "script", "5", "60")
    assert said == "-1 on n1: no n1; on n3: no n3; on n4: no n4; and on 1 more"


def test_a_persistent_pool_is_noted_for_its_user(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_STATE", str(home / "notes"))
    monkeypatch.setattr(registry, "_of_slurm", list)
    asked = Asked("mesh", 8 << 20, "")
    plan = plan_of(asked, home, os.geteuid())
    prepare(plan, asked)
    work.begin(plan)
    found = engram.jobs.nodes("mesh")
    assert [(one.path, one.size, one.is_slurms) for one in found] == [
        (plan.pool("mesh"), 8 << 20, True)
    ]
    with pytest.raises(engram.ArgumentError, match="destroy_persistent name=mesh` ends it"):
        engram.jobs.drop("mesh", force=True)
    assert engram.jobs.expire() == ((), ())
    work.drop(plan)
    assert not list((home / "notes/pools").iterdir())
    (home / "notes").rename(home / "elsewhere")
    (home / "notes").touch()
    work.begin(plan)
    work.drop(plan)


def test_a_comment_asks_for_a_pool() -> None:
    pools, into, out = of_comment(
        "engram capacity=2M mode=tmpfs stage_in=/pfs/a:b:c/d stage_out=o:/pfs/o"
    )
    assert pools[0].capacity == 2 << 20
    assert pools[0].mode == "tmpfs"
    assert (into[0].source, into[0].dest) == ("/pfs/a:b", "c/d")
    assert (out[0].source, out[0].dest) == ("o", "/pfs/o")


@pytest.mark.parametrize(
    ("comment", "why"),
    [
        ("engram", "capacity= is missing"),
        ("engram capacity=much", "capacity=much"),
        ("engram capacity=2M mode=disk", "mode=disk: a comment takes capacity="),
        ("engram capacity=2M stage_in=a:b", "the path outside the pool begins with /"),
        ("engram capacity=2M stage_out=a:b", "the path outside the pool begins with /"),
    ],
)
def test_a_comment_that_is_wrong_is_refused(comment: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        of_comment(comment)


def plan_of(asked: Asked, base: Path, uid: int) -> Plan:
    return Plan(
        job="1",
        uid=uid,
        gid=os.getgid(),
        node="",
        base=base,
        fsdax=str(base),
        devdax="/dev/null",
        again=False,
        pools=(asked,),
        into=(),
        out=(),
    )


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("fsdax", "which is not mounted with dax"),
        ("devdax", "/dev/null is no devdax node of this machine"),
        ("tmpfs", "are asked for, and the node has|is for root to mount"),
    ],
)
def test_memory_that_a_node_lacks_is_refused_by_name(tmp_path: Path, mode: str, why: str) -> None:
    asked = Asked("", 1 << 60, mode)
    plan = plan_of(asked, tmp_path, os.getuid())
    with pytest.raises(RefusedError, match=why):
        prepare(plan, asked)


def test_a_folder_of_another_user_is_not_taken(tmp_path: Path) -> None:
    asked = Asked("", 1 << 20, "")
    plan = plan_of(asked, tmp_path, os.getuid() + 1)
    plan.folder(asked).mkdir()
    with pytest.raises(RefusedError, match=f"belongs to user {os.getuid()}"):
        prepare(plan, asked)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who becomes another user")
def test_a_user_whom_no_database_knows_has_jobs_too(tmp_path: Path) -> None:
    plan = plan_of(Asked("", 1 << 20, ""), tmp_path, NOBODY_KNOWS)

    def task(_: Plan) -> work.Done:
        return work.Done(text=f"{os.getuid()} {os.getgroups()} {os.environ['HOME']}")

    assert work.as_user(plan, task).text == f"{NOBODY_KNOWS} [{os.getgid()}] /"


def test_a_job_finds_its_data_and_leaves_its_results() -> None:
    if why := own_slurm.why_not():
        pytest.skip(why)
    with Cluster() as slurm:
        folder = slurm.tree("in put", {"numbers": "3\n1\n2\n"})
        results = slurm.home(own_slurm.USERS[0]) / "out"
        job = slurm.submit(
            [
                "pool=engram capacity=32M",
                f'stage_in source="{folder}" dest=in type=directory',
                f"stage_out source=out dest={results}",
            ],
            own_slurm.in_pool("mkdir /p/out && sort /p/in/numbers >/p/out/sorted"),
        )
        slurm.wait(job, "COMPLETED")
        slurm.wait_until_torn_down(job)
        assert (results / "sorted").read_text() == "1\n2\n3\n", slurm.output(job)
        assert engram.stage.verify(results).troubles == ()
        assert list(slurm.base.iterdir()) == []
        assert slurm.states() == {"idle"}
