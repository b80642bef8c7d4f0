"""Jobs: files in, a program, results out; and what becomes of them when something goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from engram import mounts as mounting
from engram.jobs import Description, pools, staging, work
from job_place import COMMAND, MIB, Place, ended, placed, until
from mounted import WHY_NOT, mounts, needs_fuse
from shell import run
from support import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

FRONTS = [pytest.param("mount", marks=needs_fuse), "run"]


@pytest.fixture
def place(home: Path) -> Iterator[Place]:
    """Give a place for a job; nothing of it stays."""
    with placed(home) as made:
        yield made


@pytest.mark.parametrize("front", FRONTS)
def test_a_job_finds_its_files_and_its_results_are_safe(place: Place, front: Any) -> None:
    large = (place.root / "in/large").read_bytes()
    program = place.script(
        f"cmp in/large {place.root}/in/large",
        "mkdir -p out/deep",
        "cat in/small >out/deep/result",
        "echo new >>state",
        "echo lost >other",
        f'test "$ENGRAM_MOUNT" = {place.mount}',
        f'ls -d "$ENGRAM_POOL" >{place.root}/pool',
        "exit 3",
    )
    came = engram.jobs.run(place.write(), program, front=front)
    assert (came.code, came.exit_code, came.troubles, came.pool) == (3, 3, (), None)
    assert (place.results / "out/deep/result").read_bytes() == b"small"
    assert (place.results / "state").read_bytes() == b"old\nnew\n"
    assert engram.stage.verify(place.results / "out").troubles == ()
    left = sorted(path.name for path in place.results.iterdir())
    assert left == ["out", "state"], "what is temporary, or not named, goes"
    assert Path((place.root / "pool").read_text().strip()).parent == place.memory
    assert list(place.memory.iterdir()) == []
    assert place.mount not in mounts()
    assert (place.root / "state").read_bytes() == b"old\n"
    assert (place.root / "in/large").read_bytes() == large
    assert "2 files" in place.log.read_text()


def test_the_command_ends_with_the_programs_code_and_tells_what_it_did(place: Place) -> None:
    program = place.script("mkdir out", "echo x >out/r", "exit 7")
    words = ("job", "-c", place.write(), "--front", "run", "--json", "--", *program)
    done = run(*words)
    assert done.code == 7, done.err
    told = json.loads(done.out)
    assert (told["code"], told["whole"], told["pool"]) == (7, True, None)
    assert told["results"]["files"] == 2


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        ({"path": "none", "flags": "temporary"}, "there is no .*none: name a file"),
        ({"path": "in", "flags": "temporary", "to": "x"}, ""),
    ],
)
def test_a_source_that_is_not_there_is_named_before_anything_is_made(
    place: Place, resource: dict[str, str], said: str
) -> None:
    config = place.write(resource)
    if not said:
        assert engram.jobs.run(config, place.script("cat x/small"), front="run").exit_code == 0
        return
    with pytest.raises(engram.NotFoundError, match=rf"job\.yaml:1:\d+: {said}"):
        engram.jobs.run(config, ["true"], front="run")
    assert place.pool() is None


def test_a_program_that_is_not_there_is_named_before_anything_is_made(place: Place) -> None:
    with pytest.raises(engram.NotFoundError, match="no-such-program"):
        engram.jobs.run(place.write(), ["no-such-program"], front="run")
    assert place.pool() is None


def test_a_mount_dir_that_the_front_cannot_take_is_named_before_anything_is_made(
    place: Place,
) -> None:
    place.mount.mkdir()
    (place.mount / "mine").touch()
    with pytest.raises(engram.ExistsError, match="is a real folder with members"):
        engram.jobs.run(place.write(), ["true"], front="run")
    assert place.pool() is None


@needs_fuse
def test_the_mount_of_another_pool_is_left_alone(place: Place, pool: engram.Pool) -> None:
    place.mount.mkdir()
    with engram.mount(pool, place.mount):
        with pytest.raises(engram.BusyError, match="is mounted at"):
            engram.jobs.run(place.write(), ["true"])
        with pytest.raises(engram.BusyError, match="is mounted at"):
            engram.jobs.mount(place.config)
        assert place.mount in mounts()
    assert engram.jobs.unmount(place.mount) is None
    assert place.pool() is None


def test_the_pool_stays_until_its_results_are_safe(place: Place) -> None:
    place.results.write_bytes(b"in the way")
    program = place.script("mkdir out", "echo x >out/r")
    came = engram.jobs.run(place.write(), program, front="run")
    assert (came.code, came.exit_code, came.whole) == (0, 74, False)
    assert came.troubles
    assert came.pool is not None
    with engram.open(came.pool) as pool:
        assert bytes(pool["out/r"][...]) == b"x\n"
    words = ("job", "--resume", "-c", place.config)
    done = run(*words)
    assert done.code == 74
    assert str(came.pool) in done.err
    assert f"engram job --resume -c {place.config}" in done.err
    place.results.unlink()
    done = run(*words)
    assert done.code == 0, done.err
    assert (place.results / "out/r").read_bytes() == b"x\n"
    assert place.pool() is None
    done = run(*words)
    assert done.code == engram.NotFoundError.exit_code
    assert "nothing left to do" in done.err


def test_results_are_read_again_before_the_pool_goes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    begin_out = engram.stage.begin_out

    def spied(pool: engram.Pool, targets: dict[str, str], **options: Any) -> Any:
        asked.append(options)
        return begin_out(pool, targets, **options)

    monkeypatch.setattr(staging, "begin_out", spied)
    assert engram.jobs.run(place.write(workers=3, rate="1 GiB"), ["true"], front="run").whole
    assert asked == [
        {"workers": 3, "rate": 1 << 30, "verify": "readback", "existing": "refuse"},
    ]


@pytest.mark.parametrize("options", ["size=1m", "ro"])
def test_a_file_system_that_is_full_or_read_only_keeps_the_pool(place: Place, options: str) -> None:
    if os.geteuid() != 0 or WHY_NOT:
        pytest.skip("mounting a full file system needs root")
    place.results.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place.results)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this container's root may not mount a tmpfs")
    try:
        program = place.script("mkdir out", "head -c 3000000 /dev/zero >out/r")
        came = engram.jobs.run(place.write(), program, front="run")
        assert (came.exit_code, came.pool) == (74, place.pool())
        assert came.troubles
        assert not (place.results / "out/r").exists()
    finally:
        subprocess.run(["umount", place.results], check=True)
    assert engram.jobs.resume(place.config).whole
    assert (place.results / "out/r").stat().st_size == 3_000_000


def test_another_file_in_the_results_stays_unless_it_may_go(place: Place) -> None:
    (place.results / "out").mkdir(parents=True)
    (place.results / "out/r").write_bytes(b"of another job")
    program = place.script("mkdir out", "echo x >out/r")
    came = engram.jobs.run(place.write(), program, front="run")
    assert [one.path for one in came.troubles] == ["out/r"]
    assert (place.results / "out/r").read_bytes() == b"of another job"
    assert (place.results / "state").read_bytes() == b"old\n", "the rest is out"
    assert engram.jobs.resume(place.config, overwrite=True).whole
    assert (place.results / "out/r").read_bytes() == b"x\n"


@pytest.mark.parametrize("front", FRONTS)
def test_a_job_that_was_killed_goes_on_where_its_program_was(place: Place, front: Any) -> None:
    program = place.script(
        f"echo $$ >{place.root}/pid",
        "mkdir -p out",
        "echo step >>out/log",
        'if [ -e out/killed ]; then exit 4; fi; touch out/killed; kill -9 "$PPID"',
        f"while [ ! -e {place.root}/go ]; do sleep 0.01; done",
    )
    words = ("job", "-c", place.write(), "--front", front, "--", *program)
    assert code_of(*words) == -signal.SIGKILL
    with pytest.raises(engram.BusyError, match="program of this job is still there: process"):
        engram.jobs.run(place.config, program, front=front)
    (place.root / "go").touch()
    pid = int((place.root / "pid").read_text())
    until(lambda: pools.began(pid) == 0)
    said: list[str] = []
    assert engram.jobs.run(place.config, program, front=front, tell=said.append).exit_code == 4
    assert any("as the job has left them" in line for line in said)
    assert (place.results / "out/log").read_text() == "step\nstep\n"
    assert place.pool() is None
    assert place.mount not in mounts()


def code_of(*words: object) -> int:
    """Give what a command ends with whose program may live on, and has its output still."""
    nowhere = subprocess.DEVNULL
    command = [*COMMAND, *(str(word) for word in words)]
    return subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere).wait(PATIENCE)


def test_a_job_that_was_killed_on_its_way_out_brings_out_the_rest(place: Place) -> None:
    program = place.script("mkdir out", f"head -c {2 * MIB} /dev/urandom >out/r", "exit 6")
    config = place.write({"path": "out", "flags": "persistent"}, rate="2 MiB")
    words = ("job", "-c", config, "--front", "run", "--", *program)
    process = place.begin(*words)
    until(lambda: any((place.results / "out").glob(".engram-*.part")))
    process.kill()
    assert ended(process)[0] == -signal.SIGKILL
    assert not (place.results / "out/r").exists()
    folder = place.pool()
    assert folder is not None
    with engram.open(folder) as pool:
        data = bytes(pool["out/r"][...])
    done = run(*words)
    assert done.code == 6, done.err
    assert "the program has ended before" in done.err
    assert (place.results / "out/r").read_bytes() == data, "it has not run again"
    assert not list((place.results / "out").glob(".engram-*"))
    assert place.pool() is None


class Died(BaseException):
    """Ends a job as if its process had died there."""


@pytest.mark.parametrize("name", ["bring_in", "bring_out"])
def test_whoever_dies_at_a_step_leaves_what_the_next_one_needs(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def die(*_: object, **__: object) -> None:
        raise Died

    program = place.script("mkdir out", f"echo x >>{place.root}/runs", "echo x >out/r")
    with monkeypatch.context() as patched:
        patched.setattr(staging, name, die)
        patched.setattr(pools.JobPool, "drop", pools.JobPool.close)
        with pytest.raises(Died):
            engram.jobs.run(place.write(), program, front="run")
    assert place.pool() is not None
    again = engram.jobs.run(place.config, program, front="run")
    assert again.exit_code == 0
    assert (place.root / "runs").read_text() == "x\n", "the program has run once"
    assert (place.results / "out/r").read_text() == "x\n"
    assert place.pool() is None


def test_what_was_killed_before_its_program_has_no_results(place: Place) -> None:
    with pools.find_or_make(Description.read(place.write())).pool:
        pass
    ended = engram.jobs.resume(place.config)
    assert (ended.whole, ended.results, place.pool()) == (True, None, None)
    assert not place.results.exists()


@pytest.mark.parametrize(
    ("name", "front"),
    [
        *(("SIGUSR1", "run"), ("SIGINT", "run")),
        pytest.param("SIGTERM", "mount", marks=needs_fuse),
    ],
)
def test_a_signal_ends_the_program_and_brings_its_results_out(
    place: Place, name: str, front: str
) -> None:
    trap = f"trap 'echo {name} >out/saved; exit 5' {name[3:]}"
    program = place.script("mkdir out", trap, "touch out/begun", f"echo >{place.root}/begun")
    program[-1] += "\nwhile :; do sleep 0.01; done"
    process = place.begin("job", "-c", place.write(), "--front", front, "--", *program)
    until((place.root / "begun").exists)
    process.send_signal(getattr(signal, name))
    code, said = ended(process)
    assert code == 5, said
    assert (place.results / "out/saved").read_text() == f"{name}\n"
    assert place.pool() is None


def test_no_signal_is_kept_from_the_program(place: Place) -> None:
    program = place.script("mkdir out", "grep SigBlk /proc/self/status >out/blocked")
    before = [line for line in Path("/proc/self/status").read_text().splitlines() if "Blk" in line]
    assert engram.jobs.run(place.write(), program, front="run").whole
    assert (place.results / "out/blocked").read_text().splitlines() == before


def test_a_program_that_does_not_end_is_killed_with_all_it_has_started(place: Place) -> None:
    program = place.script(
        "mkdir out", "trap '' TERM", "sleep 1000 & echo $! >out/child", f"echo >{place.root}/begun"
    )
    program[-1] += "\nwhile :; do sleep 0.01; done"
    words = ("--front", "run", "--grace", "0.3", "--", *program)
    process = place.begin("job", "-c", place.write(), *words)
    until((place.root / "begun").exists)
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 128 + signal.SIGKILL, said
    child = int((place.results / "out/child").read_text())
    until(lambda: pools.began(child) == 0)


def test_a_signal_while_files_come_in_begins_nothing(place: Place) -> None:
    config = place.write(rate="1 KiB")
    program = place.script(f"touch {place.root}/begun")
    process = place.begin("job", "-c", config, "--front", "run", "--", *program)
    until(lambda: place.log.exists() and "pool is" in place.log.read_text())
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 74, said
    assert "the program was not begun" in said
    assert not (place.root / "begun").exists()
    assert place.pool() is None


def test_two_processes_do_not_do_one_job(place: Place) -> None:
    program = place.script(f"touch {place.root}/begun", f"until [ -e {place.root}/go ]; do :; done")
    process = place.begin("job", "-c", place.write(), "--front", "run", "--", *program)
    until((place.root / "begun").exists)
    with pytest.raises(engram.BusyError, match="another process is at this job"):
        engram.jobs.run(place.config, ["true"], front="run")
    with pytest.raises(engram.BusyError, match="another process is at this job"):
        engram.jobs.resume(place.config)
    (place.root / "go").touch()
    assert ended(process)[0] == 0


def test_what_is_tagged_is_brought_out_or_left_out(place: Place) -> None:
    tagged = {
        "out/scratch": "temporary",
        "out/scratch/kept": "persistent",
        "new": "persistent",
        "in/small": "persistent",
        "state": "temporary",
    }
    tag = f"import engram, os\nfor each in {tagged}.items():"
    tag += " engram.jobs.tag(os.environ['ENGRAM_POOL'], *each)"
    program = place.script(
        "mkdir -p out/scratch/kept out/deep new",
        "for name in out/r out/scratch/s out/scratch/kept/k out/deep/d new/n other; do",
        "echo $name >$name; done",
        "chmod 750 out",
        f'{sys.executable} -c "{tag}"',
    )
    came = engram.jobs.run(place.write(), program, front="run")
    assert came.whole, came.troubles
    found = {
        str(path.relative_to(place.results)): path.read_text()
        for path in place.results.rglob("*")
        if path.is_file() and not path.name.startswith("MANIFEST.")
    }
    assert found == {
        **{name: f"{name}\n" for name in ("out/r", "out/deep/d", "out/scratch/kept/k", "new/n")},
        "in/small": "small",
    }
    assert (place.results / "out").stat().st_mode & 0o7777 == 0o750


@pytest.mark.parametrize("front", FRONTS)
def test_a_program_tags_its_files_without_engram(place: Place, front: Any) -> None:
    tag = "import os; os.setxattr('new', 'user.engram.stage', b'persistent')"
    program = place.script("mkdir new", "echo x >new/n", f'{sys.executable} -I -c "{tag}"')
    assert engram.jobs.run(place.write(), program, front=front).exit_code == 0
    assert (place.results / "new/n").read_text() == "x\n"


def test_a_tag_is_set_and_taken_back_by_the_command(pool: engram.Pool) -> None:
    pool["out/r"] = b"x"
    words = ("stage", "tag", pool.path, "out/r")
    assert run(*words, "persistent") == (0, "", "")
    assert pool["out/r"].attrs["engram.stage"] == "persistent"
    assert run(*words, "none") == run(*words, "none") == (0, "", "")
    assert "engram.stage" not in pool["out/r"].attrs
    assert run("stage", "tag", pool.path, "/", "temporary").code == 0
    assert pool.attrs["engram.stage"] == "temporary"
    assert run(*words, "lasting").code == 2
    assert run("stage", "tag", pool.path, "none", "persistent").code == 10


def test_a_tag_that_is_none_keeps_the_pool(place: Place) -> None:
    with pytest.raises(engram.ArgumentError, match="tag 'lasting' is none"):
        engram.jobs.tag(place.memory, "x", "lasting")  # type: ignore[arg-type]
    config = place.write()
    held = pools.find_or_make(Description.read(config))
    held.pool["other"] = b"x"
    held.pool["other"].attrs["engram.stage"] = "lasting"
    held.note(pools.Record("out"))
    held.close()
    came = engram.jobs.resume(config)
    assert [one.path for one in came.troubles] == ["other"]
    assert came.pool == place.pool()
    engram.jobs.tag(came.pool or "", "other", "persistent")
    assert engram.jobs.resume(config).whole
    assert (place.results / "other").read_bytes() == b"x"


def test_all_of_it_is_a_resource_too(place: Place) -> None:
    program = place.script("echo x >made", "rm in/large")
    resource = {"path": ".", "flags": "persistent"}
    scratch = {"path": "scratch", "flags": "temporary"}
    assert engram.jobs.run(place.write(resource), program, front="run").whole
    assert sorted(path.name for path in place.results.iterdir()) == [
        *("MANIFEST.engram", "in", "made", "state"),
    ]
    shutil.rmtree(place.results)
    program = place.script("mkdir scratch", "echo x >scratch/x")
    assert engram.jobs.run(place.write(resource, scratch), program, front="run").whole
    assert sorted(path.name for path in place.results.iterdir()) == ["in", "state"]


def test_two_backends_are_one_pool_on_two_devices(place: Place) -> None:
    other = place.memory / "other"
    other.mkdir()
    backends = [
        {"id": "b", "type": "DRAM", "capacity": "32 MiB", "daxfs": str(place.memory)},
        {"id": "c", "type": "NVRAM-NVML", "capacity": "32 MiB", "daxfs": str(other)},
    ]
    resources = (
        {"path": "in", "flags": "temporary"},
        {"path": "out", "flags": "persistent", "backend": "c"},
    )
    look = "import engram, os; pool = engram.open(os.environ['ENGRAM_POOL']);"
    look += " print([str(device.path) for device in pool.devices])"
    program = place.script(
        "mkdir out",
        f'{sys.executable} -c "{look}" >out/devices',
        "cat in/large >out/large",
    )
    came = engram.jobs.run(place.write(*resources, backends=backends), program, front="run")
    assert came.whole, came.troubles
    assert str(other) in (place.results / "out/devices").read_text()
    large = (place.root / "in/large").read_bytes()
    assert (place.results / "out/large").read_bytes() == large
    assert sorted(path.name for path in place.memory.iterdir()) == ["other"]
    assert list(other.iterdir()) == []


def test_files_lie_on_the_device_of_their_backend(place: Place) -> None:
    other = place.memory / "other"
    other.mkdir()
    near = {"id": "b", "type": "DRAM", "capacity": "64 MiB", "daxfs": str(place.memory)}
    far = {"id": "c", "type": "NVRAM-NVML", "capacity": "64 MiB", "daxfs": str(other)}
    with (place.root / "in/large").open("wb") as file:
        file.write(os.urandom(24 * MIB))
    # What lies on the other device is what its files have: it grows by no more than that.
    sizes = f"find {other} -type f -size +1M -printf '%s\\n'"
    taken = f"{sizes} | awk '{{ sum += $1 }} END {{ print sum + 0 }}'"
    for backend, least, most in (("c", 24 * MIB, 60 * MIB), ("b", 0, 8 * MIB)):
        resources = (
            {"path": "in", "flags": "temporary", "backend": backend},
            {"path": "out", "flags": "persistent"},
        )
        program = place.script(
            "mkdir out", f"{taken} >out/taken; cmp in/large {place.root}/in/large"
        )
        config = place.write(*resources, backends=[near, far])
        came = engram.jobs.run(config, program, front="run", overwrite=True)
        assert (came.whole, came.code) == (True, 0), came
        found = int((place.results / "out/taken").read_text() or "0")
        assert least <= found <= most, (backend, found)
    small = far | {"capacity": "16 MiB"}
    config = place.write(
        {"path": "in", "flags": "temporary", "backend": "c"}, backends=[near, small]
    )
    with pytest.raises(engram.PoolFullError, match=r"'c' may hold 16 MiB.*in"):
        engram.jobs.run(config, ["true"], front="run")


def test_a_pool_with_a_name_serves_the_next_job(place: Place) -> None:
    config = place.write(reuse="weather")
    program = place.script("mkdir -p out", "echo x >>out/log", "echo more >>in/small")
    came = engram.jobs.run(config, program, front="run")
    assert (came.whole, came.pool) == (True, place.pool())
    assert came.pool is not None
    assert "weather" in came.pool.name
    assert engram.jobs.resume(config).whole, "there is nothing left to do"
    place.write(reuse="weather", results_dir=str(place.results / "second"))
    said: list[str] = []
    program = place.script("cat out/log in/small >out/all")
    came = engram.jobs.run(config, program, front="run", tell=said.append)
    assert came.whole
    assert (place.results / "second/out/all").read_text() == "x\nsmallmore\n"
    assert any("2 of them before" in line for line in said), said
    assert place.pool() is not None
    engram.destroy(came.pool or "")


def test_another_description_does_not_take_what_is_not_out(place: Place) -> None:
    place.results.write_bytes(b"in the way")
    program = place.script("mkdir out", "echo x >out/r")
    assert not engram.jobs.run(place.write(), program, front="run").whole
    place.results.unlink()
    place.write({"path": "in", "flags": "temporary"})
    with pytest.raises(engram.BusyError, match=r"another description.*job --resume -c"):
        engram.jobs.run(place.config, ["true"], front="run")
    assert engram.jobs.resume(place.config).whole
    assert (place.results / "out/r").read_text() == "x\n"


def test_what_is_too_large_is_refused_with_what_is_asked_and_there(place: Place) -> None:
    with pytest.raises(engram.PoolFullError) as refused:
        engram.jobs.run(place.write(capacity="1 EiB"), ["true"], front="run")
    said = str(refused.value)
    assert f"{place.config}:1:" in said
    assert "'b': 1 EiB are asked for" in said
    assert "free of" in said
    assert "no pool that this user sees lies there" in said
    with engram.create(place.memory / "engram-of-another", size="8 MiB"):
        with pytest.raises(engram.PoolFullError, match=r"engram-of-another of .* has"):
            engram.jobs.run(place.write(capacity="1 EiB"), ["true"], front="run")
        with pytest.raises(engram.PoolFullError) as refused:
            engram.jobs.run(place.write(capacity="1 MiB"), ["true"], front="run")
    said = str(refused.value)
    assert "have 2 MiB" in said
    assert "may hold 1 MiB" in said
    assert f"{place.root / 'in'} has 2 MiB" in said
    assert [path.name for path in place.memory.iterdir()] == ["engram-of-another"]


@pytest.mark.parametrize(
    ("kind", "daxfs", "said"),
    [
        ("NVRAM-NVML", "none", "No such file or directory; name one in daxfs"),
        ("NVRAM-DEVDAX", ".", "no devdax node"),
        ("DRAM", "../job.yaml", "no folder: name one"),
    ],
)
def test_a_backend_that_is_not_there_is_named(
    place: Place, kind: str, daxfs: str, said: str
) -> None:
    where = str(place.memory / daxfs)
    backends = [{"id": "b", "type": kind, "capacity": "8 MiB", "daxfs": where}]
    with pytest.raises(engram.EngramError, match=rf"job\.yaml:1:\d+: backend 'b'.*{said}"):
        engram.jobs.run(place.write(backends=backends), ["true"], front="run")
    assert place.pool() is None


def test_an_array_is_imported_and_exported(place: Place) -> None:
    grid = np.arange(12, dtype="f4").reshape(3, 4)
    np.savez(place.root / "grid.npz", T=grid)
    resource = {"path": "grid.npz", "flags": "persistent", "type": "array"}
    change = "import engram, os; engram.open(os.environ['ENGRAM_POOL'])['grid.npz/T'][0, 0] = 17"
    program = place.script("test -e grid.npz/T", f'{sys.executable} -c "{change}"')
    came = engram.jobs.run(place.write(resource), program, front="run")
    assert came.exit_code == 0, came.troubles
    grid[0, 0] = 17
    with np.load(place.results / "grid.npz") as found:
        np.testing.assert_array_equal(found["T"], grid)
    assert place.pool() is None


def test_without_fuse_the_other_front_is_offered(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_FUSE", place.root / "no-fuse")
    for call in (
        lambda: engram.jobs.run(place.write(), ["true"]),
        lambda: engram.jobs.mount(place.config),
    ):
        with pytest.raises(engram.EngramError, match=r"--front run` does without"):
            call()
    assert place.pool() is None


@needs_fuse
def test_a_mount_of_a_description_brings_its_results_out(place: Place) -> None:
    done = run("mount", "-c", place.write())
    assert done.code == 0, done.err
    found = sorted(path.name for path in place.mount.iterdir())
    assert found == [".engram-stage", "in", "state"]
    done = run("mount", "-c", place.config)
    assert done.code == engram.BusyError.exit_code
    assert "is mounted already" in done.err
    (place.mount / "out").mkdir()
    (place.mount / "out/r").write_bytes(b"x")
    with (place.mount / "out/r").open("rb"):
        assert run("unmount", place.mount).code == engram.BusyError.exit_code
    done = run("unmount", place.mount)
    assert done.code == 0, done.err
    assert (place.results / "out/r").read_bytes() == b"x"
    assert place.pool() is None
    assert place.mount not in mounts()


def test_a_job_whose_pool_is_removed_as_it_is_looked_for_has_none(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = Description.read(place.write())
    folder = place.root / "removed"
    engram.create(folder, "8 MiB", force=True).close()

    def too_late(path: Path) -> engram.Pool:
        engram.destroy(path)  # by the process that ended the job
        return engram.open(path)

    monkeypatch.setattr(pools, "open_pool", too_late)
    assert pools.find_at(folder, described) is None


@needs_fuse
@pytest.mark.parametrize("how", ["signal", "unmount", "killed"])
def test_a_mount_in_the_foreground_brings_its_results_out(place: Place, how: str) -> None:
    process = place.begin("mount", "-f", "-c", place.write())
    until((place.mount / "in").exists)
    (place.mount / "out").mkdir()
    (place.mount / "out/r").write_bytes(b"x")
    if how == "signal":
        process.send_signal(signal.SIGTERM)
    else:
        if how == "killed":
            process.kill()
        assert run("unmount", place.mount).code == 0
    code, said = ended(process)
    assert code == (-signal.SIGKILL if how == "killed" else 0), said
    assert (place.results / "out/r").read_bytes() == b"x"
    assert place.pool() is None


@needs_fuse
def test_what_is_in_use_still_is_brought_out_and_the_pool_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_BUSY_SECONDS", 0.1)
    program = place.script("mkdir out", "echo x >out/r", f"sleep 1000 & echo $! >{place.root}/pid")
    came = engram.jobs.run(place.write(), program)
    try:
        assert (came.code, came.exit_code, came.pool) == (0, 74, place.pool())
        assert [one.why for one in came.troubles] == ["is in use still"]
        assert (place.results / "out/r").read_bytes() == b"x\n"
        with pytest.raises(engram.BusyError, match="is in use"):
            engram.jobs.resume(place.config)
    finally:
        os.kill(int((place.root / "pid").read_text()), signal.SIGKILL)
    until(lambda: pools.began(int((place.root / "pid").read_text())) == 0)
    assert engram.jobs.resume(place.config).whole
    assert place.pool() is None


def test_whoever_has_the_pool_open_still_keeps_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_DROP_SECONDS", 0.1)
    program = place.script(
        "mkdir out",
        f"mkfifo {place.root}/go",
        f"(echo 1 >out/r; echo >{place.root}/begun; read line <{place.root}/go; echo 2 >>out/r) &",
        f"echo $! >{place.root}/pid",
        f"until [ -e {place.root}/begun ]; do :; done",
    )
    came = engram.jobs.run(
        place.write({"path": "out", "flags": "persistent"}), program, front="run"
    )
    assert (came.code, came.exit_code, came.pool) == (0, 74, place.pool())
    assert (place.results / "out/r").read_text() == "1\n"
    (place.root / "go").write_text("\n")
    pid = int((place.root / "pid").read_text())
    until(lambda: pools.began(pid) == 0)
    assert engram.jobs.resume(place.config).whole
    assert (place.results / "out/r").read_text() == "1\n2\n"
    assert place.pool() is None


def test_a_program_that_fills_the_pool_keeps_what_it_has_written(place: Place) -> None:
    program = place.script(
        "mkdir out",
        "cat /dev/zero >out/r || true",
        'for i in $(seq 20); do head -c 5000 /dev/zero >"out/$i" || true; done',
    )
    config = place.write({"path": "out", "flags": "persistent"}, capacity="2 MiB")
    said: list[str] = []
    came = engram.jobs.run(config, program, front="run", tell=said.append)
    assert came.exit_code == 0, said
    assert (place.results / "out/r").stat().st_size > MIB


@needs_fuse
def test_what_a_mount_has_shown_is_not_lost_where_the_next_one_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    engram.jobs.mount(place.write())
    (place.mount / "out").mkdir()
    (place.mount / "out/r").write_bytes(b"x")
    engram.unmount(place.mount)  # which knows nothing of jobs

    def fail(*_: object) -> None:
        raise engram.UnsupportedError("no FUSE")

    monkeypatch.setattr(mounting, "mount", fail)
    for again in (
        lambda: engram.jobs.mount(place.config),
        lambda: engram.jobs.run(place.config, ["true"]),
    ):
        with pytest.raises(engram.UnsupportedError, match="--front run"):
            again()
    assert engram.jobs.resume(place.config).whole
    assert (place.results / "out/r").read_bytes() == b"x"
    with pytest.raises(engram.UnsupportedError, match="--front run"):
        engram.jobs.mount(place.config)
    assert place.pool() is None, "nobody has seen that one"


@needs_fuse
def test_a_mount_of_a_running_job_is_not_taken_away(place: Place) -> None:
    program = place.script(f"cd /; until [ -e {place.root}/go ]; do sleep 0.01; done")
    process = place.begin("job", "-c", place.write(), "--", *program)
    until((place.mount / "in").exists)
    done = run("unmount", place.mount)
    assert done.code == engram.BusyError.exit_code
    assert "another process is at this job" in done.err
    (place.root / "go").touch()
    assert ended(process)[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job"], "which job? -c FILE names"),
        (["job", "-c", "x.yaml"], "there is no program"),
        (["job", "-c", "x.yaml", "--resume", "true"], "--resume runs nothing"),
        (["job", "-c", "x.yaml", "true"], "there is no file"),
        (["mount"], "which pool, and where?"),
        (["mount", "/dev/shm/run", "-c", "x.yaml"], "leave POOL and DIR away"),
    ],
)
def test_a_command_that_says_too_little_is_told_what_lacks(words: list[str], said: str) -> None:
    done = run(*words)
    assert done.code in {10, 20}
    assert said in done.err
