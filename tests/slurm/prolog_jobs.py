"""Jobs whose pool Slurm's Prolog makes: `make slurm`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import engram
import own_slurm
from own_slurm import Cluster, in_pool, wait_for

ALICE = own_slurm.USERS[0]


@pytest.fixture(autouse=True)
def _slurm_is_here() -> None:
    if why := own_slurm.why_not():
        pytest.skip(why)


def test_the_prolog_makes_what_a_comment_asks_for() -> None:
    with Cluster(burst_buffer=False) as slurm:
        folder = slurm.tree("in", {"numbers": "3\n1\n2\n"})
        results = slurm.home(ALICE) / "out"
        asked = f"engram capacity=32M mode=tmpfs stage_in={folder}:in stage_out=out:{results}"
        work = in_pool("mkdir /p/out && sort /p/in/numbers >/p/out/sorted")
        job = slurm.submit([], work, f"--comment={asked}")
        slurm.wait(job, "COMPLETED")
        wait_for("brought", (results / "MANIFEST.engram").exists)
        assert (results / "sorted").read_text() == "1\n2\n3\n", slurm.output(job)
        assert engram.stage.verify(results).troubles == ()
        wait_for("gone", lambda: list(slurm.base.iterdir()) == [])
        for comment, why in (
            ("engram", "capacity= is missing"),
            (f"engram capacity=32M stage_in={folder}/none:in", "No such file or directory"),
            ("engram capacity=32M mode=fsdax", "no file system with dax"),
            ("engram capacity=32M mode=devdax", "no devdax node"),
        ):
            job = slurm.submit([], "echo pool=$ENGRAM_POOL", f"--comment={comment}")
            slurm.wait(job, "COMPLETED")
            assert why in slurm.output(job)
        job = slurm.submit([], "echo pool=$ENGRAM_POOL", "--comment=mine")
        slurm.wait(job, "COMPLETED")
        assert slurm.output(job) == "pool=\n"
        elsewhere = in_pool("cp /p/in/numbers /p/elsewhere")
        job = slurm.submit([], elsewhere, f"--comment={asked}")
        slurm.wait(job, "COMPLETED")
        wait_for("epilog", lambda: slurm.states() == {"idle"})
        assert (slurm.job_folder(job) / "pool").exists()
        wait_for("no node drained", lambda: slurm.states() == {"idle"})


def test_the_prolog_makes_a_pool_on_each_node() -> None:
    with Cluster(nodes=2, burst_buffer=False) as slurm:
        folder = slurm.tree("in", {"numbers": "3\n1\n2\n"})
        results = slurm.home(ALICE) / "out"
        asked = f"engram capacity=32M stage_in={folder}:in stage_out=out:{results}"
        script = "mkdir /p/out && hostname | cat - /p/in/numbers >/p/out/said"
        work = f"srun {in_pool(script)}"
        job = slurm.submit([], work, f"--comment={asked}", "--nodes=2", "--ntasks-per-node=1")
        slurm.wait(job, "COMPLETED")
        wait_for("brought", lambda: len(list(results.glob("*/MANIFEST.engram"))) == 2)
        for node in slurm.nodes:
            assert (results / node / "said").read_text() == f"{node}\n3\n1\n2\n"
            assert engram.stage.verify(results / node).troubles == ()
        wait_for("gone", lambda: not any(slurm.on(n, "ls", str(slurm.base)) for n in slurm.nodes))
        wait_for("no node drained", lambda: slurm.states() == {"idle"})


def test_what_a_killed_run_left_is_cleared() -> None:
    makes = (
        "import own_slurm, time\nwith own_slurm.Cluster() as c:\n print(c.folder, flush=True)\n "
    )
    with subprocess.Popen(
        [sys.executable, "-c", makes + "time.sleep(600)"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(own_slurm.__file__).parent,
    ) as run:
        assert run.stdout is not None
        folder = Path(run.stdout.readline().strip())
        assert own_slurm.processes_of(folder.name)
        run.kill()
    own_slurm.clear_what_killed_runs_left(older_than_s=0)
    assert not folder.exists()
    assert not own_slurm.processes_of(folder.name)
