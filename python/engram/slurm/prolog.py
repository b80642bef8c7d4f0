"""Slurm's Prolog, Epilog and TaskProlog: the pool of a job that asks for one in its comment.

A Prolog or Epilog that fails takes its node out of service: these say what is wrong, and succeed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from engram.errors import EngramError
from engram.slurm import node
from engram.slurm.plan import Plan, RefusedError, of_comment

CONF = "/etc/slurm/engram.conf"


class Settings(NamedTuple):
    """What of `engram.conf` is for a node."""

    base: str = "/dev/shm"  # noqa: S108 - the kernel's shared memory is what is meant
    fsdax: str = ""
    devdax: str = ""
    notes: str = "/run/engram"

    @property
    def folder(self) -> Path:
        """Return where comments are kept from the Prolog to the Epilog."""
        return Path(self.notes)


def settings() -> Settings:
    """Read `engram.conf`: where ENGRAM_CONF says, or in Slurm's usual folder."""
    path = Path(os.environ.get("ENGRAM_CONF", CONF))
    found = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if (said := re.match(r"\s*(\w+)\s*=\s*(.*?)\s*$", line)) and said[2]:
                found[said[1]] = said[2]
    return Settings(**{key: found[key] for key in Settings._fields if key in found})


def prolog() -> None:
    """Make the pool that the job's comment asks for, and bring in what it reads."""
    comment = _comment()
    if comment.split()[:1] != ["engram"]:
        return
    where = settings()
    where.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    note = where.folder / f"job-{_job()}"
    note.write_text(comment, encoding="utf-8")
    note.chmod(0o600)
    try:
        node.begin(_plan(where, comment))
    except (EngramError, OSError, ValueError) as error:
        _say(f"job {_job()} has no pool: {error}")
        refused = where.folder / f"refused-{_job()}"
        refused.write_text(" ".join(str(error).split()), encoding="utf-8")
        os.chown(refused, _number("SLURM_JOB_UID"), -1)
        refused.chmod(0o400)


def epilog() -> None:
    """Bring out what the job has written, and drop its pool if all of it is safe."""
    where = settings()
    note = where.folder / f"job-{_job()}"
    (where.folder / f"refused-{_job()}").unlink(missing_ok=True)
    if not note.exists():
        return
    try:
        plan = _plan(where, note.read_text(encoding="utf-8"))
        folder = plan.folder(plan.pools[0])
        if (folder / "pool").exists():
            done = node.end(plan)
            if done.new:
                raise RefusedError(f"{done.text}, in {folder}/pool")
        if folder.exists():
            node.drop(plan)
        note.unlink()
    except (EngramError, OSError, ValueError) as error:
        _say(f"the pool of job {_job()} was left: {error}")


def task_prolog() -> None:
    """Tell each task where the pool is, or why there is none; Slurm reads what is printed."""
    where = settings()
    refused = where.folder / f"refused-{_job()}"
    if refused.exists():
        sys.stdout.write(f"print engram: no pool: {refused.read_text(encoding='utf-8')}\n")
        return
    for base in (where.base, where.fsdax):
        folder = Path(base) / f"engram-job-{_job()}"
        if base and folder.exists():
            sys.stdout.write(f"export ENGRAM_POOL={folder}/pool\n")
            sys.stdout.write(f"export ENGRAM_MOUNT={folder}/mount\n")
            return


HOOKS = {"prolog": prolog, "epilog": epilog, "task-prolog": task_prolog}


def _plan(where: Settings, comment: str) -> Plan:
    pools, into, out = of_comment(comment)
    several = _number("SLURM_JOB_NUM_NODES", 1) > 1
    return Plan(
        job=str(_job()),
        uid=_number("SLURM_JOB_UID"),
        gid=_number("SLURM_JOB_GID"),
        node=os.environ.get("SLURMD_NODENAME", "") if several else "",
        base=Path(where.base),
        fsdax=where.fsdax,
        devdax=where.devdax,
        again=_number("SLURM_JOB_RESTART_COUNT", 0) > 0,
        pools=pools,
        into=into,
        out=out,
    )


def _comment() -> str:
    """Return the job's comment: Slurm passes it since 22.05, and is asked before."""
    if (said := os.environ.get("SLURM_JOB_COMMENT")) is not None:
        return said
    asked = subprocess.run(
        ["scontrol", "show", "job", str(_job())],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"^ *Comment=(.*)$", asked.stdout, re.MULTILINE)
    return found[1] if found else ""


def _job() -> int:
    return _number("SLURM_JOB_ID")


def _number(name: str, usual: int | None = None) -> int:
    said = os.environ.get(name)
    if said is None and usual is not None:
        return usual
    if said is None or not said.isdigit():
        raise RefusedError(f"{name} is {said!r}: Slurm calls this, and sets it")
    return int(said)


def _say(text: str) -> None:
    sys.stderr.write(f"engram: {text}\n")
