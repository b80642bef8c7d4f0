"""Persistent pools of jobs: where they lie, what would be lost with them, when they go."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from engram.jobs import Description, pools, registry, staging, work
from job_place import MIB, Place, ended, placed, until
from shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR = 3600
OUT = {"path": "out", "flags": "persistent"}


@pytest.fixture
def place(home: Path) -> Iterator[Place]:
    """Give a place for a job; nothing of it stays."""
    with placed(home) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Slurm of this machine has a say."""
    monkeypatch.setattr(registry, "_of_slurm", list)
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)


def kept(place: Place, *lines: str, name: str = "weather", **settings: Any) -> Path:
    """Run a job whose pool stays, and give its folder."""
    config = place.write(OUT, reuse=name, **settings)
    came = engram.jobs.run(config, place.script("mkdir -p out", *lines), front="run")
    assert came.whole, came.troubles
    assert came.pool is not None
    return came.pool


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have this process believe that so much time has passed."""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + seconds)


def on(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Have this process believe that this is another node."""
    monkeypatch.setattr(socket, "gethostname", lambda: host)


def test_the_nodes_of_a_pool_are_told_as_nodelist_takes_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.time()
    pool = kept(place, "echo x >out/r", expires="12h")
    here = socket.gethostname().partition(".")[0]
    assert run("stage", "nodes", "weather") == (0, f"{here}\n", "")
    for host in ("n12.cluster", "n2.cluster"):
        on(monkeypatch, host)
        registry.note("weather", Path("/mnt/pmem/weather"), 5)
        registry.note("weather", Path("/mnt/pmem/elsewhere"), 5)
    monkeypatch.undo()
    monkeypatch.setattr(registry, "_of_slurm", list)
    assert run("stage", "nodes", "weather").out == ",".join(sorted([here, "n12", "n2"])) + "\n"
    told = json.loads(run("stage", "nodes", "weather", "--json").out)
    own = next(one for one in told if one["node"] == here)
    assert (own["name"], own["path"], own["size"]) == ("weather", str(pool), 64 * MIB)
    used, expires = (datetime.fromisoformat(own[key]).timestamp() for key in ("used", "expires"))
    assert expires - used == 12 * HOUR
    assert begun - 2 < used < time.time() + 2
    assert [one["expires"] for one in told if one["node"] == "n2"] == [None, None]
    assert len({one.node for one in engram.jobs.nodes("weather")}) == 3


def test_a_node_is_called_as_slurm_calls_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n17")
    kept(place)
    monkeypatch.delenv("SLURMD_NODENAME")
    assert run("stage", "nodes", "weather").out == "n17\n"
    assert engram.jobs.drop("weather"), "the machine is the same, whoever asks"
    assert not list((place.state / "pools").iterdir())


def test_a_pool_that_is_gone_is_forgotten_on_its_own_node(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = kept(place)
    engram.destroy(pool)
    on(monkeypatch, "elsewhere")
    assert run("stage", "nodes", "weather").code == 0, "this node cannot look"
    monkeypatch.undo()
    monkeypatch.setattr(registry, "_of_slurm", list)
    done = run("stage", "nodes", "weather")
    assert (done.code, done.out) == (engram.NotFoundError.exit_code, "")
    assert "no persistent pool is known by the name 'weather'" in done.err
    assert not list((place.state / "pools").iterdir())


def test_a_name_that_nobody_has_is_refused_with_those_there_are(place: Place) -> None:
    kept(place)
    with pytest.raises(engram.NotFoundError, match="there are weather; a job makes one"):
        engram.jobs.nodes("wind")
    (place.state / "pools/broken@n1@0").write_text('{"name": ')
    (place.state / "pools/empty@n1@0").touch()
    (place.state / "pools/.half@n1@0.7").write_text("{}")
    assert len(engram.jobs.nodes("weather")) == 1


def test_pools_of_a_job_that_does_not_stay_are_not_noted(place: Place) -> None:
    came = engram.jobs.run(place.write(OUT), ["true"], front="run")
    assert came.pool is None
    assert not place.state.exists()


def test_a_registry_that_cannot_be_written_fails_no_job(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.state.touch()
    said: list[str] = []
    config = place.write(OUT, reuse="weather")
    came = engram.jobs.run(config, ["true"], front="run", tell=said.append)
    assert came.exit_code == 0
    assert any("`engram stage nodes weather` will not find" in line for line in said)
    monkeypatch.setattr(pools, "_MEMORY", place.memory)
    assert [one.path for one in engram.jobs.drop("weather")] == [came.pool]


TABLE = """\
JOB      UID      STAGE            NODES             FILES          BYTES SINCE         TEXT
4711     {user}     running          n17                   0              0 2026-11-26T18:39:30 mesh
4690     {user}     persistent       n3                          21474836480               mesh
4691     {other}    persistent       n4                          21474836480               mesh
4692     {user}     persistent       n5,n6                             4096               grid
4693     {user}     persistent                                   21474836480               soon
4694     {user}     persistent       n9                          21474836480
"""


def test_slurms_own_persistent_pools_are_told_too(
    place: Place, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    kept(place, name="mesh")
    monkeypatch.undo()
    monkeypatch.setenv("ENGRAM_STATE", str(place.state))
    (home / "bin").mkdir()
    table = TABLE.format(user=os.geteuid(), other=os.geteuid() + 1)
    (home / "bin/scontrol").write_text(f"#!/bin/sh\ncat <<END\n{table}END\n")
    (home / "bin/scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    here = registry.node()
    assert [one.node for one in engram.jobs.nodes("mesh")] == sorted([here, "n3"])
    of_slurm = next(one for one in engram.jobs.nodes("mesh") if one.node == "n3")
    assert of_slurm == ("mesh", "n3", None, 20 << 30, None, None, True)
    assert run("stage", "nodes", "grid").out == "n5,n6\n"
    with pytest.raises(engram.ArgumentError, match="'grid' is Slurm's: a job with the directive"):
        engram.jobs.drop("grid")
    for name in ("soon", "running"):
        with pytest.raises(engram.NotFoundError):
            engram.jobs.nodes(name)
    (home / "bin/scontrol").write_text("#!/bin/sh\necho no slurmctld >&2; exit 1\n")
    assert [one.node for one in engram.jobs.nodes("mesh")] == [here]


def test_a_pool_whose_files_are_outside_is_dropped(place: Place) -> None:
    np.savez(place.root / "grid.npz", T=np.arange(12, dtype="f4"))
    resources = (
        OUT,
        {"path": "in", "flags": "persistent"},
        {"path": "grid.npz", "flags": "persistent", "type": "array"},
    )
    tag = "import os; os.setxattr('new', 'user.engram.stage', b'persistent')"
    program = place.script(
        "mkdir -p out/deep new",
        "echo x >out/deep/r; ln -s deep/r out/link; ln out/deep/r out/second; echo x >new/n",
        "echo lost >scratch",
        f'{sys.executable} -I -c "{tag}"',
    )
    came = engram.jobs.run(place.write(*resources, reuse="weather"), program, front="run")
    assert came.whole, came.troubles
    shutil.rmtree(place.results / "in")  # it is at its source still
    done = run("job", "--drop", "weather", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {
        "dropped": [{"name": "weather", "path": str(came.pool), "lost": []}],
        "left": [],
    }
    assert place.pool() is None
    assert run("stage", "nodes", "weather").code == engram.NotFoundError.exit_code


@pytest.mark.parametrize("how", ["gone", "other", "cut", "changed", "link", "array", "tag"])
def test_what_would_be_lost_with_a_pool_is_named(place: Place, how: str) -> None:
    np.savez(place.root / "grid.npz", T=np.arange(12, dtype="f4"))
    array = {"path": "grid.npz", "flags": "persistent", "type": "array"}
    program = place.script("mkdir out", "echo x >out/r; echo y >out/safe; ln -s r out/link")
    came = engram.jobs.run(place.write(OUT, array, reuse="weather"), program, front="run")
    assert came.pool is not None
    lost = "out/r"
    if how == "gone":
        (place.results / "out/r").unlink()
    elif how == "other":
        (place.results / "out/r").write_text("y\n")
    elif how == "cut":
        about = (place.results / "out/r").stat()
        os.truncate(place.results / "out/r", 1)
        os.utime(place.results / "out/r", ns=(about.st_atime_ns, about.st_mtime_ns))
    elif how == "link":
        lost = "out/link"
        (place.results / lost).unlink()
        (place.results / lost).symlink_to("elsewhere")
    else:
        with engram.open(came.pool) as pool:
            if how == "changed":
                with pool.open_file("out/r", "r+") as file:
                    file.write(b"y")
            elif how == "array":
                lost = "grid.npz"
                pool["grid.npz/T"][0] = 17
            else:
                pool["out/r"].attrs["engram.stage"] = "lasting"
    done = run("job", "--drop", "weather")
    assert done.code == engram.BusyError.exit_code
    assert f"1 persistent file is nowhere else, and would be lost with {came.pool}: {lost!r};" in (
        done.err
    )
    assert place.pool() == came.pool
    assert run("stage", "nodes", "weather").code == 0
    done = run("job", "--drop", "weather", "--force")
    assert (done.code, done.out) == (0, f"the pool {came.pool} is gone, and with it 1 file\n")
    assert place.pool() is None


def test_results_that_never_came_out_are_named_with_the_way_out(place: Place) -> None:
    place.results.write_bytes(b"in the way")
    program = place.script("mkdir out", "for n in 1 2 3 4 5 6 7; do echo x >out/$n; done")
    came = engram.jobs.run(place.write(OUT, reuse="weather"), program, front="run")
    assert not came.whole
    with pytest.raises(engram.BusyError, match=r"7 persistent files.*'out/5', \.\.\.") as refused:
        engram.jobs.drop("weather")
    assert f"engram job --resume -c {place.config}" in str(refused.value)
    place.results.unlink()
    assert engram.jobs.resume(place.config).whole
    assert engram.jobs.drop("weather")[0].lost == ()


def test_a_pool_that_somebody_has_open_is_not_dropped(place: Place) -> None:
    pool = kept(place)
    with engram.open(pool), pytest.raises(engram.BusyError):
        engram.jobs.drop("weather", force=True)
    wait = f"touch {place.root}/begun; until [ -e {place.root}/go ]; do sleep 0.01; done"
    words = ("job", "-c", place.config, "--front", "run", "--", *place.script(wait))
    process = place.begin(*words)
    until((place.root / "begun").exists)
    with pytest.raises(engram.BusyError, match="another process is at this job"):
        engram.jobs.drop("weather", force=True)
    (place.root / "go").touch()
    assert ended(process)[0] == 0
    held = pools.find(Description.read(place.config))
    assert held is not None
    held.note(pools.Record("running", None, os.getpid(), pools.began(os.getpid())))
    held.close()
    with pytest.raises(engram.BusyError, match="the program of this job is still there"):
        engram.jobs.drop("weather", force=True)
    assert place.pool() == pool


def test_a_pool_of_another_node_is_not_dropped_here(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, "n17")
    kept(place)
    on(monkeypatch, "n18")
    done = run("job", "--drop", "weather")
    assert done.code == engram.NotFoundError.exit_code
    assert "lies on this node, which is n18, but on n17" in done.err
    assert "srun --nodelist=n17 engram job --drop weather" in done.err
    assert run("job", "--drop", "grid").code == engram.NotFoundError.exit_code
    assert place.pool() is not None


def test_a_pool_that_no_job_describes_is_dropped_by_force_alone(place: Place) -> None:
    with engram.create(place.memory / "engram-mine", size="8 MiB") as pool:
        pool["x"] = b"x"
    registry.note("mine", place.memory / "engram-mine", 5)
    with pytest.raises(engram.BusyError, match="'x'"):
        engram.jobs.drop("mine")
    assert engram.jobs.drop("mine", force=True)[0].lost == ("x",)


def test_the_next_job_drops_pools_whose_time_is_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    weather = kept(place, "echo x >out/r", expires="12h")
    kept(place, name="grid")  # it does not expire
    assert weather.exists()
    later(monkeypatch, 11.9 * HOUR)
    engram.jobs.run(place.write(OUT), ["true"], front="run")
    assert weather.exists()
    later(monkeypatch, 0.2 * HOUR)
    said: list[str] = []
    engram.jobs.run(place.write(OUT), ["true"], front="run", tell=said.append)
    assert not weather.exists()
    assert f"the pool {weather} is dropped: its time was over, and all of it is outside" in said
    assert place.pool() is not None, "grid"
    assert engram.jobs.drop("grid")


def test_the_time_of_a_pool_begins_when_its_job_ends(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_out = staging.bring_out

    def slowly(*arguments: Any, **options: Any) -> Any:
        noted = engram.jobs.nodes("weather")
        assert noted[0].used is not None, "it is known while the job runs, too"
        later(monkeypatch, HOUR)
        return bring_out(*arguments, **options)

    monkeypatch.setattr(staging, "bring_out", slowly)
    begun = time.time()
    kept(place, expires="12h")
    noted = engram.jobs.nodes("weather")[0]
    assert (noted.used or 0) >= begun + HOUR - 1
    assert noted.expires == (noted.used or 0) + 12 * HOUR


def test_a_job_keeps_its_own_pool_though_its_time_is_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(place, "echo x >>out/r", expires="12h")
    later(monkeypatch, 13 * HOUR)
    kept(place, "echo x >>out/r", expires="12h", results_dir=str(place.results / "second"))
    assert (place.results / "second/out/r").read_text() == "x\nx\n"
    assert not engram.jobs.nodes("weather")[0].expired
    assert engram.jobs.drop("weather")


def test_a_pool_whose_time_is_over_stays_while_it_is_used_or_would_be_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = kept(place, "echo x >out/r", expires="90s")
    later(monkeypatch, 91)
    with engram.open(pool):
        assert run("job", "--expire") == (0, "", "")
    (place.results / "out/r").rename(place.results / "moved")
    done = run("job", "--expire")
    assert done.code == 4
    assert f"{pool}: its time is over, and it stays: 1 persistent file is nowhere" in done.err
    assert "engram job --drop weather --force" in done.err
    said: list[str] = []
    engram.jobs.run(place.write(OUT), ["true"], front="run", tell=said.append)
    assert any(line.startswith(f"{pool}: its time is over") for line in said)
    (place.results / "moved").rename(place.results / "out/r")
    assert run("job", "--expire") == (0, f"the pool {pool} is gone\n", "")
    assert run("job", "--expire") == (0, "", "")
    assert place.pool() is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"expires": "7d"}, "this one goes: add reuse with a name, or leave expires away"),
        ({"reuse": "x", "expires": "soon"}, "expires is 'soon', and has to be a length of time"),
        ({"reuse": "x", "expires": "0d"}, "expires is '0d', and has to be a length of time"),
        ({"reuse": "x", "expires": "1.5d"}, "and one of s, min, h, d, w, as 12h or 7d"),
        ({"reuse": "x", "expires": 7}, "expires is '7', and has to be a length of time"),
        ({"reuse": "x", "expires": ["7d"]}, 'expires is a list, and has to be .* as "7d"'),
    ],
)
def test_a_lifetime_that_is_none_is_refused(
    place: Place, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(engram.FormatError, match=rf"job\.yaml:1:\d+: .*{said}"):
        Description.read(place.write(**settings))


def test_lifetimes_are_read(place: Place) -> None:
    for text, seconds in (("90s", 90), ("5min", 300), ("12 h", 43200), ("7d", 604800)):
        assert Description.read(place.write(reuse="x", expires=text)).expires == seconds
    assert Description.read(place.write(reuse="x", expires="2w")).expires == 1209600
    assert Description.read(place.write(reuse="x")).expires is None


@pytest.mark.parametrize(
    "words",
    [
        ["job", "--drop", "x", "-c", "x.yaml"],
        ["job", "--expire", "--", "true"],
        ["job", "--expire", "--drop", "x"],
        ["job", "--expire", "--resume"],
        ["job", "--force", "-c", "x.yaml", "--", "true"],
    ],
)
def test_dropping_stands_alone(words: list[str]) -> None:
    done = run(*words)
    assert done.code == engram.ArgumentError.exit_code
    assert "leave" in done.err


PIECES = f"""{sys.executable} -c '
import engram, os
pool = engram.open(os.environ["ENGRAM_POOL"])
for name in ["out/a", "out/b"] * 40:
    with pool.open_file(name, "ab") as file:
        file.write(bytes(70000))
'"""
"""Two files that grow in turns, by a little each."""


def segments(folder: Path) -> int:
    with engram.open(folder, "r") as pool:
        return len(pool["out/a"].segments)


def test_the_files_of_a_pool_that_stays_are_made_whole(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(work, "_compact", lambda *_: None)
        pool = kept(place, PIECES)
    assert segments(pool) > 1, "the test is none"
    said: list[str] = []
    came = engram.jobs.run(place.config, ["true"], front="run", tell=said.append)
    assert came.exit_code == 0
    assert segments(pool) == 1
    assert any("lie in one piece now" in line for line in said)
    assert engram.jobs.drop("weather"), "it does not count as changed"


def test_a_pool_that_somebody_has_open_is_left_as_it_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_out = staging.bring_out
    opened = []

    def open_too(held: Any, *rest: Any, **options: Any) -> Any:
        opened.append(engram.open(held.folder, "r"))
        return bring_out(held, *rest, **options)

    monkeypatch.setattr(staging, "bring_out", open_too)
    said: list[str] = []
    config = place.write(OUT, reuse="weather")
    program = place.script("mkdir out", PIECES)
    came = engram.jobs.run(config, program, front="run", tell=said.append)
    assert (came.whole, came.exit_code) == (True, 0)
    assert said[-1].endswith("stays for further jobs")
    opened[0].close()
    assert segments(pool := came.pool or Path()) > 1
    assert pool == place.pool()
