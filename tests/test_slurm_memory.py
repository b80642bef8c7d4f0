"""The kinds of memory that a job of Slurm may ask for, where they are: by `make test-pmem`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import engram
from engram.slurm import work
from engram.slurm.folder import prepare, release
from engram.slurm.plan import Asked, Copy, Plan

FSDAX, DEVDAX = (os.environ.get(f"ENGRAM_TEST_{kind}", "") for kind in ("FSDAX", "DEVDAX"))
MIB = 1 << 20


def free(pool: Path) -> dict[str, int]:
    """Give how many bytes each device of a pool has left."""
    with engram.open(pool) as opened:
        return {str(device.path): device.free for device in opened.devices}


@pytest.mark.skipif(not (FSDAX and DEVDAX), reason="needs persistent memory: `make test-pmem`")
@pytest.mark.parametrize("mode", ["fsdax", "devdax"])
def test_a_job_gets_the_memory_that_it_asks_for(tmp_path: Path, mode: str) -> None:
    source, results = tmp_path / "source", tmp_path / "results"
    source.mkdir()
    (source / "file").write_bytes(os.urandom(20 * MIB))
    base = tmp_path / "base"
    base.mkdir()
    asked = Asked("", 48 * MIB, mode)
    plan = Plan(
        job="7",
        uid=os.getuid(),
        gid=os.getgid(),
        node="",
        base=base,
        fsdax=FSDAX,
        devdax=DEVDAX,
        again=False,
        pools=(asked,),
        into=(Copy(str(source), "in", "directory", "", ""),),
        out=(Copy("in", str(results), "", "", ""),),
    )
    prepare(plan, asked)
    where = Path(FSDAX) if mode == "fsdax" else base
    assert plan.folder(asked).parent == where
    work.begin(plan._replace(into=()))
    before = free(plan.pool(""))
    work.begin(plan)
    after = free(plan.pool(""))
    with engram.open(plan.pool("")) as pool:
        assert pool["in/file"].nbytes == 20 * MIB
    used = {path: before[path] - after[path] for path in before}
    place = DEVDAX if mode == "devdax" else FSDAX
    assert max(used, key=lambda path: used[path]).startswith(place), used
    work.end(plan)
    assert (results / "file").read_bytes() == (source / "file").read_bytes()
    work.drop(plan)
    release(plan, asked)
    assert not plan.folder(asked).exists()
    assert Path(DEVDAX).stat().st_uid == 0
