"""What is done with a job's pools in the name of its user: made, filled, brought out, dropped."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engram.errors import BusyError, EngramError, PoolNotFoundError
from engram.jobs import registry
from engram.pool import create, destroy
from engram.pool import open as open_pool
from engram.size import human
from engram.slurm.folder import alone
from engram.slurm.plan import Copy, Plan, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

BUSY_S = 30.0
"""So long a pool may be busy when it is dropped: processes of an ended job die meanwhile."""
NOTED = "staged-in"
"""The file beside a pool that says how many members it had when the job began."""


class Done(NamedTuple):
    """What came of it."""

    files: int = 0
    nbytes: int = 0
    new: int = 0
    """How many members of the pools are new, and were to be brought out by nobody."""
    text: str = ""
    """What the user is to know."""


def as_user(plan: Plan, task: Callable[[Plan], Done]) -> Done:
    """Run a task as the user of a job, in a process of its own, and give what it says.

    Raises
    ------
    RefusedError
        If the task fails, or this process is neither root's nor that user's.

    """
    if os.geteuid() == plan.uid:
        return task(plan)
    if os.geteuid() != 0:
        raise RefusedError(f"user {os.geteuid()} cannot work for user {plan.uid}: begin as root")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_user_and_end(plan, task, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:  # noqa: PTH123 - a descriptor
        said = pipe.read()
    os.waitpid(child, 0)
    if not said:
        raise RefusedError("it was ended from outside: the same again goes on from there")
    why, done = json.loads(said)
    if why:
        raise RefusedError(why)
    return Done(*done)


def _be_user_and_end(plan: Plan, task: Callable[[Plan], Done], writing: int) -> None:
    """Become the user, do the task, write what came of it, and end."""
    code = 1
    try:
        _be_user(plan)
        try:
            answer: tuple[str, Done] = ("", task(plan))
        except PermissionError as error:
            answer = (f"user {plan.uid}: {error}", Done())
        except (EngramError, OSError) as error:
            answer = (str(error) or type(error).__name__, Done())
        with open(writing, "w", encoding="utf-8") as pipe:
            json.dump(answer, pipe)
        code = 0
    finally:
        os._exit(code)


def _be_user(plan: Plan) -> None:
    """Become the user of a job; one whom no database knows has no home, and one group."""
    try:
        user = pwd.getpwuid(plan.uid)
        name, home = user.pw_name, user.pw_dir
        os.initgroups(name, plan.gid)
    except KeyError:
        name, home = str(plan.uid), "/"
        os.setgroups([plan.gid])
    os.setgid(plan.gid)
    os.setuid(plan.uid)
    os.chdir("/")
    os.environ.pop("XDG_STATE_HOME", None)  # root's
    os.environ.update(HOME=home, USER=name, LOGNAME=name)


def measure(plan: Plan) -> Done:
    """Look at all that is to be brought in, and whether it fits into the pools."""
    sums: dict[str, tuple[int, int]] = {}
    for copy in plan.into:
        _see_its_kind(copy)
        files, nbytes = _size(Path(copy.source))
        before = sums.get(copy.pool, (0, 0))
        sums[copy.pool] = (before[0] + files, before[1] + nbytes)
    for asked in plan.pools:
        needed = sums.get(asked.name, (0, 0))[1]
        if needed > asked.capacity:
            raise RefusedError(
                f"what is to be staged in has {human(needed)} ({needed} bytes), and its pool a "
                f"capacity of {human(asked.capacity)}: ask for more"
            )
    return Done(sum(each[0] for each in sums.values()), sum(each[1] for each in sums.values()))


def begin(plan: Plan) -> Done:
    """Make the pools that are not there, and bring in what the job reads."""
    for asked in plan.pools:
        folder, pool = plan.folder(asked), plan.pool(asked.name)
        (folder / "mount").mkdir(mode=0o700, exist_ok=True)
        with alone(folder):
            if not pool.exists():
                devices = [plan.devdax] if asked.mode == "devdax" else []
                create(pool, size=asked.capacity, devices=devices, mode=0o700).close()
        if asked.name:
            with contextlib.suppress(OSError):  # a user without a home can have pools, too
                registry.note(asked.name, pool, asked.capacity, is_slurms=True)
    done = Done()
    for copy in plan.into:
        _see_its_kind(copy)
        words = ["in", f"--to={copy.dest}", *_existing(copy.existing)]
        if plan.mode(copy.pool) == "devdax":
            words.append(f"--device={plan.devdax}")
        done = _sum(
            done, _stage(plan, copy, [*words, "--", str(plan.pool(copy.pool)), copy.source])
        )
    if plan.out:
        for asked in plan.pools:
            note = plan.folder(asked) / NOTED
            if not note.exists():
                note.write_text(str(_members(plan.pool(asked.name))), encoding="ascii")
    return done


def end(plan: Plan) -> Done:
    """Bring out what the job has written; each copy is read again before it counts."""
    done, missing = Done(), []
    for copy in plan.out:
        pool = plan.pool(copy.pool)
        if not _has(pool, copy.source):
            missing.append(copy)
            continue
        # Results of a former run of the same job are older, and make way.
        existing = copy.existing or ("update" if plan.again else "")
        dest = f"{copy.dest}/{plan.node}" if plan.node else copy.dest
        words = ["out", f"--to={dest}", *_existing(existing)]
        done = _sum(done, _stage(plan, copy, [*words, "--", str(pool), copy.source]))
    if not missing:
        return done
    new = sum(_new_members(plan, name) for name in {copy.pool for copy in missing})
    named = ", ".join(copy.source for copy in missing)
    text = f"{named}: not in the pool, so there was nothing to bring"
    if new:
        text += f"; {new} other members are new there, and were left"
    return done._replace(new=new, text=text)


def drop(plan: Plan) -> Done:
    """Drop the pools, and empty their folders."""
    for asked in plan.pools:
        folder = plan.folder(asked)
        if not folder.exists():
            continue
        with alone(folder, BUSY_S):
            _destroy(plan.pool(asked.name))
            registry.forget(plan.pool(asked.name))
            for path in folder.iterdir():
                if path.is_mount():
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
    return Done()


def _destroy(pool: Path) -> None:
    end_of_patience = time.monotonic() + BUSY_S
    while True:
        try:
            destroy(pool)
        except PoolNotFoundError:
            return
        except BusyError:
            if time.monotonic() > end_of_patience:
                raise
            time.sleep(0.2)
        else:
            return


def _stage(plan: Plan, copy: Copy, words: list[str]) -> Done:
    """Run `engram stage`, which goes on where the same one was killed."""
    folder = plan.pool(copy.pool).parent
    with alone(folder):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "engram", "stage", words[0], "--json", *words[1:]],
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout.startswith("{"):
        raise RefusedError(f"{copy.source}: {done.stderr.strip() or f'status {done.returncode}'}")
    said = json.loads(done.stdout)
    if "error" in said:
        raise RefusedError(f"{copy.source}: {said['error']['message']}")
    if not said["whole"]:
        troubles = said["troubles"]
        more = f", and {len(troubles) - 1} more" if len(troubles) > 1 else ""
        first = f"{troubles[0]['path']}: {troubles[0]['why']}" if troubles else "it was stopped"
        raise RefusedError(f"{copy.source}: {first}{more}; the same stage again does what is left")
    return Done(said["files"], said["nbytes"])


def _existing(how: str) -> list[str]:
    return [f"--{how}"] if how in {"overwrite", "update"} else []


def _see_its_kind(copy: Copy) -> None:
    source = Path(copy.source)
    try:
        is_folder = source.is_dir()
        source.lstat()
    except OSError as error:
        raise RefusedError(f"{source}: {error.strerror}") from error
    if copy.kind and (copy.kind == "directory") != is_folder:
        raise RefusedError(f"{source} is {'a' if is_folder else 'no'} directory: type={copy.kind}")
    if not os.access(source, os.R_OK):
        raise RefusedError(f"{source}: user {os.geteuid()} may not read it")


def _size(source: Path) -> tuple[int, int]:
    if not source.is_dir():
        return 1, source.stat().st_size
    files, nbytes = 0, 0
    for folder, _, names in os.walk(source):
        for name in names:
            files += 1
            nbytes += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - many
    return files, nbytes


def _has(pool: Path, path: str) -> bool:
    with open_pool(pool) as opened:
        return path.strip("/") in {"", "."} or path.strip("/") in opened


def _members(pool: Path) -> int:
    count = 0

    def visit(path: str, _: object) -> None:
        nonlocal count
        count += not path.startswith(".engram-stage")

    with open_pool(pool) as opened:
        opened.visititems(visit)
    return count


def _new_members(plan: Plan, name: str) -> int:
    note = plan.pool(name).parent / NOTED
    before = int(note.read_text(encoding="ascii")) if note.exists() else 0
    return max(_members(plan.pool(name)) - before, 0)


def _sum(one: Done, other: Done) -> Done:
    text = other.text or one.text
    return Done(one.files + other.files, one.nbytes + other.nbytes, one.new + other.new, text)
