"""Trees of files brought into a pool and back: by `engram.stage` and by `engram stage`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import engram
import native

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture
def tree(home: Path) -> Path:
    """Give a folder with files of each kind that a stage keeps."""
    folder = home / "from"
    (folder / "out").mkdir(parents=True)
    (folder / "small").write_bytes(b"small")
    (folder / "out/empty").touch()
    (folder / "out/a name\nof two lines").write_bytes(b"x" * 5000)
    large = folder / "out/large"
    large.write_bytes(os.urandom(3 * MIB + 17))
    (folder / "link").symlink_to("out/large")
    os.link(large, folder / "again")
    with (folder / "sparse").open("wb") as file:
        file.seek(4 * MIB)
        file.write(b"end")
    os.setxattr(large, "user.run", b"7")
    (folder / "small").chmod(0o640)
    os.utime(large, ns=(1, 1_700_000_000_123_456_789))
    os.utime(folder / "out", ns=(1, 1_600_000_000_000_000_000))
    return folder


def told(folder: Path) -> dict[str, tuple[object, ...]]:
    """Say what is in a folder, without the manifests."""
    all_of_it: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        if path.name.startswith("MANIFEST."):
            continue
        stat = path.lstat()
        content: object = None
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        attributes = sorted(os.listxattr(path, follow_symlinks=False))
        links = 0 if path.is_dir() else stat.st_nlink
        all_of_it[str(path.relative_to(folder))] = (
            *(stat.st_mode, stat.st_uid, stat.st_gid, stat.st_mtime_ns),
            *(links, attributes, content),
        )
    return all_of_it


def test_a_tree_comes_out_as_it_went_in(pool: engram.Pool, tree: Path, home: Path) -> None:
    before = told(tree)
    brought = engram.stage.bring_in(pool, {str(tree): "case"})
    assert brought.whole, brought.troubles
    assert brought.files_reused == 0
    taken = engram.stage.bring_out(pool, {"case": str(home / "to")}, sha256=True)
    assert taken.whole, taken.troubles
    assert told(home / "to") == before
    assert (home / "to/sparse").stat().st_blocks * 512 < 4 * MIB, "a hole stays one"
    assert engram.stage.verify(home / "to").troubles == ()
    native.run("sh", "-c", f"cd {home}/to && sha256sum --quiet -c MANIFEST.sha256")
    assert engram.verify(pool.path).problems == []


def test_what_is_there_is_not_copied_again(pool: engram.Pool, tree: Path, home: Path) -> None:
    first = engram.stage.bring_in(pool, {str(tree): "case"})
    again = engram.stage.bring_in(pool, {str(tree): "case"})
    assert again.whole
    assert again.files == first.files
    assert again.files_reused == again.files - 1, "one is a further name"
    (tree / "small").write_bytes(b"changed")
    changed = engram.stage.bring_in(pool, {str(tree): "case"})
    assert changed.files_reused == again.files_reused - 1
    assert bytes(pool["case/small"][:]) == b"changed"
    out = {"case": str(home / "to")}
    assert engram.stage.bring_out(pool, out).files_reused == 0
    again = engram.stage.bring_out(pool, out)
    assert again.whole
    assert again.files_reused == changed.files - 1
    # A copy that somebody has changed is no copy any more.
    (home / "to/small").write_bytes(b"other")
    kept = engram.stage.bring_out(pool, out)
    assert [trouble.path for trouble in kept.troubles] == ["case/small"]
    assert "--overwrite" in kept.troubles[0].why
    assert engram.stage.bring_out(pool, out, existing="overwrite").whole
    assert (home / "to/small").read_bytes() == b"changed"


def test_a_program_sees_what_was_staged(pool: engram.Pool, tree: Path, home: Path) -> None:
    engram.stage.bring_in(pool, {str(tree): "case", str(tree / "small"): "one/renamed"})
    work = "cat one/renamed && wc -c <case/again && echo done >case/out/result"
    done = engram.run(
        ["sh", "-c", f"cd {home}/p && {work}"],
        pool={str(home / "p"): pool},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == (f"small{3 * MIB + 17}\n", "")
    engram.stage.bring_out(pool, {"case/out": str(home / "out")})
    assert (home / "out/result").read_text() == "done\n"
    one = engram.stage.bring_out(pool, {"one/renamed": str(home / "deep/er/named")})
    assert one.whole
    assert (home / "deep/er/named").read_bytes() == b"small"
    assert not (home / "deep/er/MANIFEST.engram").exists(), "the folder is not the stage's"


def test_files_lie_on_the_device_that_is_named(home: Path, tree: Path) -> None:
    (home / "second").mkdir()
    (tree / "out/large").write_bytes(os.urandom(20 * MIB))

    def taken() -> int:
        files = (home / "second").rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())

    with engram.create(home / "p", size="128 MiB", devices=[home / "second"], force=True) as pool:
        first = {str(tree): "case"}
        assert engram.stage.bring_in(pool, first, device=0).whole
        assert taken() < 8 * MIB
        second = {str(tree / "out"): "again"}
        by_path = {"again": home / "second"}
        assert engram.stage.bring_in(pool, second, device=by_path, name="second").whole
        assert taken() > 20 * MIB
        assert bytes(pool["again/large"][:]) == (tree / "out/large").read_bytes()
        with pytest.raises(engram.ArgumentError, match="no source has the path 'other'"):
            engram.stage.bring_in(pool, first, device={"other": 1})
        with pytest.raises(engram.ArgumentError, match="none of this pool's"):
            engram.stage.bring_in(pool, first, device=2)
    told = command("in", home / "p", tree, "--to", "third", "--device", "1")
    assert told.returncode == 0, told.stderr
    assert engram.verify(home / "p").problems == []


def test_what_is_wrong_is_named(pool: engram.Pool, tree: Path, home: Path) -> None:
    missing = engram.stage.bring_in(pool, {str(home / "none"): "x", str(tree): "case"})
    assert [trouble.path for trouble in missing.troubles] == [str(home / "none")]
    assert not missing.whole
    assert bytes(pool["case/small"][:]) == b"small", "the rest was brought"
    nothing = engram.stage.bring_out(pool, {"nowhere": str(home / "to")})
    assert [trouble.path for trouble in nothing.troubles] == ["nowhere"]
    with pytest.raises(engram.ArgumentError, match="nothing to stage"):
        engram.stage.bring_in(pool, {})
    with pytest.raises(engram.ArgumentError, match="'often'"):
        engram.stage.bring_in(pool, {str(tree): "x"}, verify="often")
    with pytest.raises(engram.NotFoundError, match="MANIFEST"):
        engram.stage.verify(tree)


def test_a_full_pool_ends_a_stage_that_goes_on_when_there_is_room(home: Path) -> None:
    source = home / "from"
    source.mkdir()
    for number in range(8):
        (source / f"f{number}").write_bytes(os.urandom(2 * MIB))
    pool = engram.create(home / "pool", size="8 MiB", force=True)
    with pytest.raises(engram.PoolFullError):
        engram.stage.bring_in(pool, {str(source): "in"})
    assert engram.verify(pool.path).problems == []
    pool.resize("64 MiB")
    report = engram.stage.bring_in(pool, {str(source): "in"})
    assert report.whole, report.troubles
    assert 0 < report.files_reused < 8
    for number in range(8):
        assert bytes(pool[f"in/f{number}"][:]) == (source / f"f{number}").read_bytes()
    status = engram.stage.stages(pool)[0]
    assert list(pool[".engram-stage"]) == [f"stage-{status.name}"], "nothing is left half-done"
    pool.close()


def test_a_stage_goes_on_beside_the_program(pool: engram.Pool, tree: Path) -> None:
    with engram.stage.begin_in(pool, {str(tree): "case"}, rate="1 MiB") as stage:
        assert stage.wait(0.01) is None
        assert stage.progress().nbytes_in_all > 3 * MIB
        stage.set_rate(None)
    assert "case/out/large" in pool
    stage = engram.stage.begin_in(pool, {str(tree): "other"}, rate="64 KiB")
    stage.stop()
    report = stage.wait()
    assert report is not None
    assert not report.whole


def test_a_stage_has_a_status(pool: engram.Pool, tree: Path, home: Path) -> None:
    with engram.stage.begin_in(pool, {str(tree): "case"}, rate="1 MiB", name="first") as stage:
        assert stage.name == "first"
        with pytest.raises(engram.BusyError, match="another process works"):
            engram.stage.bring_in(pool, {str(tree): "case"}, name="first")
        with pytest.raises(engram.BusyError):
            engram.stage.drop(pool, "first")
        assert engram.stage.status(pool, "first").state == "running"
        assert engram.stage.set_rate(pool, "first"), "as fast as it can"
    status = engram.stage.status(pool, "first")
    assert (status.state, status.direction, status.pid) == ("whole", "in", os.getpid())
    assert status.paths == ((str(tree), "case"),)
    assert status.progress.files == status.progress.files_in_all
    assert not engram.stage.stop(pool, "first"), "nobody works at it"
    with pytest.raises(engram.ExistsError, match='"first" is another stage: in from'):
        engram.stage.bring_in(pool, {str(tree): "elsewhere"}, name="first")
    with pytest.raises(engram.NotFoundError, match='no stage "second"'):
        engram.stage.resume(pool, "second")
    with pytest.raises(engram.InvalidNameError, match="no slash"):
        engram.stage.bring_in(pool, {str(tree): "case"}, name="a/b")
    (home / "to").mkdir()
    (home / "to/small").write_bytes(b"other")
    engram.stage.bring_out(pool, {"case": str(home / "to")}, name="results")
    status = engram.stage.status(pool, "results")
    assert status.state == "incomplete"
    assert [trouble.path for trouble in status.troubles] == ["case/small"]
    (home / "to/small").unlink()
    report = engram.stage.resume(pool, "results").wait()
    assert report is not None
    assert report.whole
    assert [one.state for one in engram.stage.stages(pool)] == ["whole", "whole"]
    usual = engram.stage.bring_out(pool, {"case": str(home / "to")})
    assert usual.files_reused > 0, "what is outside is known by its paths, not by the name"
    assert len(engram.stage.stages(pool)) == 3


def test_what_would_be_lost_is_not_dropped(pool: engram.Pool, tree: Path, home: Path) -> None:
    engram.stage.bring_in(pool, {str(tree): "case"}, name="in")
    engram.stage.bring_out(pool, {"case/out": str(home / "to")}, name="out")
    with pool.open_file("case/small", "r+b") as file:
        file.write(b"new")
    (tree / "sparse").write_bytes(b"its source is another now")
    with pytest.raises(engram.BusyError, match=r"2 of .*'case/small'") as lost:
        engram.stage.drop(pool, "in")
    assert "'case/sparse'" in str(lost.value)
    assert "case/small" in pool
    assert "case/out/large" in pool
    # What a stage-out has made safe goes.
    engram.stage.bring_out(pool, {"case": str(home / "all")}, name="all")
    with pool.open_file("case/made", "wb") as file:
        file.write(b"by the job")
    dropped = engram.stage.drop(pool, "in")
    assert dropped.lost == ()
    assert dropped.files == 7
    assert list(pool["case"]) == ["made"], "it is not the stage's"
    with pytest.raises(engram.NotFoundError):
        engram.stage.drop(pool, "in")
    engram.stage.bring_out(pool, {"case": str(home / "made")}, name="made")
    (home / "made/made").write_bytes(b"changed since")
    with pytest.raises(engram.BusyError, match="1 of 1 files"):
        engram.stage.drop(pool, "made")
    assert engram.stage.drop(pool, "made", keep_files=True).files == 0
    assert "case/made" in pool
    engram.stage.bring_out(pool, {"case": str(home / "again")}, name="made")
    (home / "again/made").unlink()
    assert engram.stage.drop(pool, "made", force=True).lost == ("case/made",)
    assert "case" not in pool


def test_files_come_in_the_order_that_is_asked_for(pool: engram.Pool, home: Path) -> None:
    source = home / "from"
    source.mkdir()
    sizes = {"a": 30, "b": 10, "c": 40, "d": 20}
    for name, size in sizes.items():
        (source / name).write_bytes(b"x" * size)
    asked: list[tuple[engram.stage.InOptions, list[str]]] = [
        ({"order": "smallest"}, ["b", "d", "a", "c"]),
        ({"order": "largest"}, ["c", "a", "d", "b"]),
        ({"order": ["/in2/d", "in2/a"]}, ["d", "a", "b", "c"]),
        ({"order": ["in3/c", "in3/none"], "only_listed": True}, ["c"]),
    ]
    for number, (options, expected) in enumerate(asked):
        folder = f"in{number}"
        report = engram.stage.bring_in(pool, {str(source): folder}, workers=1, **options)
        assert report.whole
        assert report.files == len(expected)
        oids = {name: pool[folder][name].oid for name in pool[folder]}
        assert sorted(oids, key=lambda name: oids[name]) == expected
    with pytest.raises(engram.ArgumentError, match="'fastest'"):
        engram.stage.bring_in(pool, {str(source): "x"}, order="fastest")
    with pytest.raises(engram.ArgumentError, match="pass a list"):
        engram.stage.bring_in(pool, {str(source): "x"}, only_listed=True)


def test_a_list_says_what_comes_where(pool: engram.Pool, home: Path) -> None:
    source = home / "a folder"
    source.mkdir()
    (source / "one").write_bytes(b"1")
    (source / "two.nc").write_bytes(b"2")
    (source / "deep").mkdir()
    (source / "deep/three.nc").write_bytes(b"3")
    manifest = home / "list"
    manifest.write_text(
        f"# which files\n\n'{source}/one' first\n\"{source}/two.nc\"   'in/the second'\n"
    )
    assert engram.stage.listed(manifest) == {
        f"{source}/one": "first",
        f"{source}/two.nc": "in/the second",
    }
    done = command("in", pool.path, "--list", manifest)
    assert done.returncode == 0, done.stderr
    assert bytes(pool["in/the second"][:]) == b"2"
    manifest.write_text("a b c\n")
    with pytest.raises(engram.FormatError, match=":1: 3 paths"):
        engram.stage.listed(manifest)
    manifest.write_text("one\n'two\n")
    with pytest.raises(engram.FormatError, match=":2: "):
        engram.stage.listed(manifest)
    found = engram.stage.matching(f"{source}/**/*.nc", "all")
    assert found == {
        f"{source}/two.nc": "all/two.nc",
        f"{source}/deep/three.nc": "all/deep/three.nc",
    }
    assert command("in", pool.path, f"{source}/**/*.nc", "--to", "all").returncode == 0
    assert bytes(pool["all/deep/three.nc"][:]) == b"3"
    whole = engram.stage.matching(f"{source}/**/*")
    assert sorted(whole.values()) == ["deep", "one", "two.nc"], "what is in a folder comes with it"
    with pytest.raises(engram.NotFoundError, match="nothing matches"):
        engram.stage.matching(f"{source}/*.h5")


def test_a_trace_says_what_comes_first(pool: engram.Pool, home: Path) -> None:
    source = home / "from"
    source.mkdir()
    for name in ("a", "b", "c"):
        (source / name).write_bytes(b"x")
    engram.stage.bring_in(pool, {str(source): "case"})
    trace = home / "run.trace"
    engram.run(
        ["sh", "-c", f"cat {home}/p/case/c {home}/p/case/a >/dev/null"],
        pool={str(home / "p"): pool},
        trace=trace,
    )
    with engram.create(home / "second", size="64 MiB", force=True) as second:
        words = ["--order", f"trace:{trace}", "--workers", "1", "--to", "case"]
        assert command("in", second.path, source, *words).returncode == 0
        oids = {name: second["case"][name].oid for name in second["case"]}
        assert sorted(oids, key=lambda name: oids[name]) == ["c", "a", "b"]
        words = [*words[:-1], "few", "--only-listed", "--json"]
        done = json.loads(command("in", second.path, source, *words).stdout)
        assert done["files"] == 0, "the trace has other paths"


def until(pool: engram.Pool | Path, name: str, state: str) -> None:
    """Wait until a stage stands so."""
    end = time.monotonic() + 60
    found = "none"
    while found != state:
        assert time.monotonic() < end, found
        with contextlib.suppress(engram.NotFoundError):
            found = engram.stage.status(pool, name).state


def test_a_stage_in_the_background(pool: engram.Pool, tree: Path) -> None:
    words = ["--background", "--rate", "256KiB", "--name", "slow"]
    assert command("in", pool.path, tree, *words).stdout == "slow\n"
    status = json.loads(command("status", pool.path, "slow", "--json").stdout)
    assert status["state"] == "running"
    assert "running (" in command("status", pool.path).stdout
    assert command("stop", pool.path, "slow").returncode == 0
    until(pool, "slow", "stopped")
    resumed = subprocess.Popen(
        [sys.executable, "-m", "engram", "stage", "resume", pool.path, "slow"],
        stdout=subprocess.DEVNULL,
    )
    until(pool, "slow", "running")
    assert command("pace", pool.path, "slow").returncode == 0, "as fast as it can"
    assert resumed.wait() == 0
    until(pool, "slow", "whole")
    wrong = command("in", pool.path, tree, "--background", "--name", "a/b")
    assert wrong.returncode == engram.InvalidNameError.exit_code
    assert "no slash" in wrong.stderr


def test_a_job_starts_when_the_first_bytes_are_there(pool: engram.Pool, tree: Path) -> None:
    words = ["--early", "1MiB", "--rate", "768KiB", "--name", "early", "--json"]
    told = json.loads(command("in", pool.path, tree, *words).stdout)
    assert told["progress"]["nbytes"] >= MIB
    assert told["state"] == "running"
    os.kill(told["pid"], signal.SIGKILL)
    until(pool, "early", "died")
    assert not engram.stage.stop(pool, "early")
    with engram.stage.resume(pool, "early") as stage:
        until(pool, "early", "running")
        engram.stage.set_rate(pool, "early")
    assert stage.wait() is not None
    until(pool, "early", "whole")


def states_of(pools: list[Path]) -> list[str]:
    """How the stages named `in` stand, one in each pool that has one."""
    states = []
    for pool in pools:
        with contextlib.suppress(engram.NotFoundError):
            states.append(engram.stage.status(pool, "in").state)
    return states


def test_stages_take_turns(home: Path, tree: Path) -> None:
    slots = home / "slots"
    assert command("slots", slots, "--slots", "1").returncode == 0
    pools = [home / f"pool{number}" for number in range(3)]
    for pool in pools:
        engram.create(pool, size="64 MiB", force=True).close()
    words = ["--slots", str(slots), "--name", "in"]
    first = command("in", pools[0], tree, *words, "--rate", "64KiB", "--background", "--json")
    until(pools[0], "in", "running")
    line = [sys.executable, "-m", "engram", "stage", "in"]
    others = [
        subprocess.Popen([*line, str(pool), str(tree), *words], stdout=subprocess.DEVNULL)
        for pool in pools[1:]
    ]
    for pool in pools[1:]:
        until(pool, "in", "waiting")
    # The slot of one that dies is free at once.
    os.kill(json.loads(first.stdout)["pid"], signal.SIGKILL)
    while any(process.poll() is None for process in others):
        states = states_of(pools)
        # One may have ended, and the next begun, between two looks.
        assert states.count("running") <= 1 or states_of(pools).count("running") <= 1, states
    assert [process.returncode for process in others] == [0, 0]
    assert states_of(pools) == ["died", "whole", "whole"]
    missing = command("in", pools[0], tree, "--slots", home / "none", "--name", "other")
    assert missing.returncode == engram.NotFoundError.exit_code
    assert "engram stage slots" in missing.stderr
    (slots / "limits").write_text("slots many\n")
    with pytest.raises(engram.FormatError, match="slots many"):
        engram.stage.bring_in(pools[0], {str(tree): "x"}, slots=slots)
    with pytest.raises(engram.ArgumentError, match="slots=0"):
        engram.stage.set_slots(slots, 0)


def test_all_that_take_turns_share_a_rate(pool: engram.Pool, tree: Path, home: Path) -> None:
    slots = home / "slots"
    engram.stage.set_slots(slots, 2, rate="512 KiB")
    with engram.stage.begin_in(pool, {str(tree): "case"}, slots=slots) as stage:
        until(pool, stage.name, "running")
        assert stage.wait(0.3) is None, "7 MiB at 256 KiB/s take half a minute"
        engram.stage.set_slots(slots, 2)
    assert engram.stage.status(pool, stage.name).state == "whole"


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engram", "stage", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_line(pool: engram.Pool, tree: Path, home: Path) -> None:
    done = command("in", pool.path, tree, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["whole"] is True
    done = command("out", pool.path, "from/out", "--to", home / "to")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "3 files" in done.stdout
    assert command("verify", home / "to").returncode == 0
    (home / "to/large").write_bytes(b"short")
    wrong = command("verify", home / "to")
    assert wrong.returncode == 4
    assert "large: has 5 bytes" in wrong.stderr
    again = command("out", pool.path, "from/out", "--to", home / "to")
    assert again.returncode == 4
    assert "--overwrite" in again.stderr
    assert command("out", pool.path, "from/out", "--to", home / "to", "--overwrite").returncode == 0
    both = command("in", pool.path, tree, "--overwrite", "--update")
    assert both.returncode == engram.ArgumentError.exit_code
    assert "pass one of them" in both.stderr


def test_a_killed_stage_is_ended_by_the_next(home: Path) -> None:
    source = home / "from"
    source.mkdir()
    for number in range(40):
        (source / f"f{number}").write_bytes(os.urandom(number * 40_000))
    pool = home / "pool"
    engram.create(pool, size="128 MiB", force=True).close()
    ways: list[list[str | Path]] = [
        ["in", pool, source],
        ["out", pool, "from", "--to", home / "to"],
    ]
    for words in ways:
        for wait in (0.3, 0.4, 0.5):
            line = [sys.executable, "-m", "engram", "stage", *map(str, words), "--rate", "20MiB"]
            process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
            process.wait()
            for path in (home / "to").glob("f*"):
                assert path.read_bytes() == (source / path.name).read_bytes()
        done = command(*words)
        assert done.returncode == 0, done.stderr
    assert told(home / "to") == told(source)
    assert not list((home / "to").glob(".engram-*"))
    assert engram.verify(pool).problems == []
    shutil.rmtree(home / "to")
