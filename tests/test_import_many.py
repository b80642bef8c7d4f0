"""Many files at once: each whole or absent, a bad one alone, with one process or several."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import engram
from engram.formats import FilesProgress, ImportFailure, ImportReport
from engram.formats.find import find_files
from engram.formats.many import places
from engram.formats.source import Source
from same import assert_same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WORKERS = [1, 2]


def make(path: Path, number: int, count: int = 100) -> Path:
    """Make a small HDF5 file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["number"] = number
        file["v"] = np.arange(count) * number
    return path


def engram_command(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-m", "engram.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def failures(found: Iterable[ImportReport | ImportFailure]) -> dict[str, type[Exception]]:
    """Return which files failed, by what."""
    return {Path(f.file).name: type(f.error) for f in found if isinstance(f, ImportFailure)}


@pytest.mark.parametrize("workers", WORKERS)
def test_each_file_arrives_in_a_group_of_its_name_in_order(
    pool: Any, tmp_path: Path, workers: int
) -> None:
    files = [make(tmp_path / f"f{n}.h5", n) for n in range(7)]
    found = engram.import_files(files, pool.create_group("in"), workers=workers)
    assert [Path(r.file).name for r in found] == [f"f{n}.h5" for n in range(7)]
    assert [r.group for r in found] == [f"in/f{n}" for n in range(7)]
    for number in range(7):
        assert pool[f"in/f{number}"].attrs["number"] == number
        assert_same(pool[f"in/f{number}/v"][...], np.arange(100) * number)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_damaged_file_in_the_middle_fails_alone(pool: Any, tmp_path: Path, workers: int) -> None:
    files = [make(tmp_path / f"f{n}.h5", n) for n in range(5)]
    files[2].write_bytes(files[2].read_bytes()[:900])
    files.insert(1, tmp_path / "gone.h5")
    found = engram.import_files(files, pool, workers=workers)
    assert failures(found) == {"f2.h5": engram.FormatError, "gone.h5": engram.NotFoundError}
    assert [isinstance(f, ImportFailure) for f in found] == [False, True, False, True, False, False]
    assert list(pool) == ["f0", "f1", "f3", "f4"]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_pool_without_room_takes_the_files_that_fit(tmp_path: Path, workers: int) -> None:
    files = [make(tmp_path / f"f{n}.h5", n, (1 << 17) if n % 2 else 10) for n in range(8)]
    files.insert(3, make(tmp_path / "huge.h5", 1, 4 << 20))
    with engram.create(tmp_path / "small", size="20 MiB", force=True) as pool:
        found = engram.import_files(files, pool, workers=workers)
        assert failures(found) == {"huge.h5": engram.PoolFullError}
        assert len(pool) == 8


@pytest.mark.parametrize("workers", WORKERS)
def test_progress_ends_with_all_files_and_bytes(pool: Any, tmp_path: Path, workers: int) -> None:
    files = [make(tmp_path / f"f{n}.h5", n) for n in range(4)]
    seen: list[FilesProgress] = []
    engram.import_files(files, pool, workers=workers, progress=seen.append)
    size = sum(file.stat().st_size for file in files)
    assert (seen[-1].files_done, seen[-1].files_total) == (4, 4)
    assert (seen[-1].done, seen[-1].total) == (size, size)
    assert [p.files_done for p in seen] == sorted(p.files_done for p in seen)


@contextlib.contextmanager
def held(file: Path) -> Iterator[None]:
    """Let whoever opens a file wait: the kernel asks this process first, which says nothing."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with file.open("r+b") as ours:
            fcntl.fcntl(ours, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            yield
    finally:
        signal.signal(signal.SIGIO, before)


def test_a_killed_worker_fails_its_file_by_name_and_the_others_go_on(pool: Any, home: Path) -> None:
    files = [make(home / f"f{n}.h5", n) for n in range(6)]
    files.insert(2, make(home / "held.h5", 9))
    killed: list[int] = []
    # Other tests have children here, too, such as the resource tracker of multiprocessing.
    others = set(children())

    def kill(progress: FilesProgress) -> None:
        if progress.files_done == 6:
            for pid in set(children()) - others:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    with held(files[2]):
        found = engram.import_files(files, pool.create_group("in"), workers=2, progress=kill)
    assert killed
    assert failures(found) == {"held.h5": engram.EngramError}
    assert found[2].group == "in/held"
    assert "SIGKILL" in str(found[2])
    assert "held.h5" in str(found[2])
    assert list(pool["in"]) == [f"f{n}" for n in range(6)]


def children() -> list[int]:
    """Return the processes that this one has started and that are alive."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(pid) for pid in listed.split()]


def test_an_interrupted_import_leaves_whole_files_only_and_no_process(
    pool: Any, tmp_path: Path
) -> None:
    files = [make(tmp_path / f"f{n}.h5", n) for n in range(20)]
    before = set(children())

    def stop(progress: FilesProgress) -> None:
        if progress.files_done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engram.import_files(files, pool, workers=2, progress=stop)
    assert set(children()) == before
    assert 3 <= len(pool) < 20
    for name, group in pool.items():
        assert_same(group["v"][...], np.arange(100) * int(name[1:]))


def test_names_that_collide_are_told_apart_by_their_paths() -> None:
    def named(*paths: str) -> list[str]:
        return places([Path("/data", path) for path in paths])

    assert named("a/x.nc", "b/y.nc") == ["x", "y"]
    assert named("a/x.nc", "b/x.nc") == ["a/x", "b/x"]
    assert named("a/x.nc", "a/x.h5") == ["x.nc", "x.h5"]
    assert named("x.nc", "a/x.nc", "a/y.nc") == ["x", "a/x", "a/y"]
    assert named("a.nc", "a/a.nc") == ["a.nc", "a/a.nc"]


def test_folders_are_searched_for_files_of_known_formats(tmp_path: Path) -> None:
    for name in ("b/two.h5", "b/c/three.dat", "one.h5", ".hidden/x.h5"):
        make(tmp_path / name, 1)
    (tmp_path / "b" / "notes.txt").write_text("no data", encoding="utf-8")
    os.mkfifo(tmp_path / "b" / "pipe")
    (tmp_path / "link").symlink_to("b")
    found = find_files([tmp_path])
    names = [str(p.relative_to(tmp_path)) for p in found.files]
    assert names == ["one.h5", "b/two.h5", "b/c/three.dat"]
    assert {Path(e.file).name: e.why for e in found.passed_over} == {
        "notes.txt": "of no known format",
        "pipe": "neither a file nor a folder",
        "link": "a link to a folder",
    }
    (tmp_path / "empty").mkdir()
    with pytest.raises(engram.NotFoundError, match="empty: has no file"):
        find_files([tmp_path / "empty"])


def claimants(folder: Path) -> set[str]:
    """Make what is called as files of known formats are, and is of none."""
    folder.mkdir()
    (folder / "empty.nc").touch()
    (folder / "short.NC4").write_bytes(b"\x89HDF")
    (folder / "dangling.h5").symlink_to("nowhere")
    (folder / "store.zarr").mkdir()
    (folder / "store.zarr" / "c").write_bytes(b"chunk")
    return {path.name for path in folder.iterdir()}


def test_what_is_called_as_a_known_format_is_found_whatever_it_holds(tmp_path: Path) -> None:
    names = claimants(tmp_path / "in")
    os.mkfifo(tmp_path / "in" / "pipe.grib")
    assert {p.name for p in find_files([tmp_path]).files} == {*names, "pipe.grib"}


def test_a_folder_that_cannot_be_looked_into_fails_by_name(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "good.h5", 1)
    closed = tmp_path / "closed"
    closed.mkdir()
    look, may = Path.iterdir, os.access

    def refused(path: Path) -> Any:
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and may(path, mode))
    found = engram.import_files(find_files([tmp_path]).files, pool)
    assert failures(found) == {"closed": engram.AccessError}
    assert list(pool) == ["good"]


def test_the_command_names_what_it_could_not_import_and_counts_what_it_passed_over(
    at: Path, tmp_path: Path
) -> None:
    names = claimants(tmp_path / "in")
    make(tmp_path / "in" / "good.h5", 1)
    for n in range(3):
        (tmp_path / "in" / f"notes{n}.txt").write_text("no data", encoding="utf-8")
    done = engram_command("import", at, "g", tmp_path / "in", "-r")
    assert done.returncode == 3
    assert all(name in done.stderr for name in names)
    assert "1 of 5 files" in done.stdout
    assert "passed over 3, of no known format: " in done.stdout
    assert "notes0.txt and 2 more" in done.stdout
    done = engram_command("import", at, "h", tmp_path / "in", "-r", "--json")
    said = json.loads(done.stdout)
    assert {Path(e["file"]).name for e in said if "error" in e} == names
    over = {Path(e["file"]).name: e["passed_over"] for e in said if "passed_over" in e}
    assert over == {f"notes{n}.txt": "of no known format" for n in range(3)}


@pytest.mark.parametrize("workers", WORKERS)
def test_a_failure_tells_of_the_group_as_a_report_does(
    pool: Any, tmp_path: Path, workers: int
) -> None:
    files = [make(tmp_path / "good.h5", 1), tmp_path / "bad.h5"]
    files[1].write_bytes(b"nothing")
    found = engram.import_files(files, pool.create_group("in/deep"), workers=workers)
    assert [outcome.group for outcome in found] == ["in/deep/good", "in/deep/bad"]
    assert found[1].to_dict()["group"] == "in/deep/bad"


def test_what_is_in_a_groups_place_is_named_whatever_is_overwritten(
    pool: Any, at: Path, tmp_path: Path
) -> None:
    file = make(tmp_path / "x.h5", 1)
    pool.create_group("odd")
    pool["odd/x"] = np.arange(3)
    (found,) = engram.import_files([file], pool["odd"], overwrite=True)
    assert isinstance(found, ImportFailure)
    assert isinstance(found.error, engram.ExistsError)
    for part in (str(file), "a group is needed", "'/odd/x' is an array"):
        assert part in str(found.error)
    with engram.open(at, mode="r+") as made:
        made.create_group("odd")
        made.create_blob("odd/x", b"1")
    for where in ("odd/x", "odd/x/deeper"):
        done = engram_command("import", at, where, file, "--overwrite")
        assert done.returncode == engram.ExistsError.exit_code
        assert f"{file}: a group is needed" in done.stderr
        assert "'/odd/x' is a blob" in done.stderr
    done = engram_command("import", at, "odd/x", file, make(tmp_path / "y.h5", 1))
    assert done.returncode == engram.ExistsError.exit_code
    assert "2 files: a group is needed to import into, and '/odd/x' is a blob" in done.stderr


def test_a_file_that_is_spelled_in_two_ways_is_imported_once(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = make(tmp_path / "x.h5", 1), make(tmp_path / "a/y.h5", 2)
    (tmp_path / "link").symlink_to("a")
    monkeypatch.chdir(tmp_path)
    given: list[str | Path] = [file, "x.h5", "a/../x.h5", other, "link/y.h5"]
    found = engram.import_files(given, pool)
    assert [(r.file, r.group) for r in found] == [(str(file), "x"), (str(other), "y")]


def test_files_that_cannot_be_told_apart_are_named(pool: Any, tmp_path: Path) -> None:
    inside = tmp_path / "x"  # a folder such as a Zarr store, and a file in it
    make(inside / "x", 1)
    make(tmp_path / "y.h5", 1)
    with pytest.raises(engram.ArgumentError, match=r"told apart by name below .*: x: import"):
        engram.import_files([inside, inside / "x", tmp_path / "y.h5"], pool)


def test_a_file_whose_name_cannot_be_one_here_is_named_with_its_folder(
    pool: Any, tmp_path: Path
) -> None:
    odd = make(tmp_path / "in" / os.fsdecode(b"\xff.h5"), 1)
    found = engram.import_files([odd, make(tmp_path / "good.h5", 1)], pool)
    assert [type(outcome) for outcome in found] == [ImportFailure, ImportReport]
    assert isinstance(found[0], ImportFailure)
    assert isinstance(found[0].error, engram.InvalidNameError)
    assert str(found[0]).startswith(str(tmp_path / "in"))
    assert "UTF-8" in str(found[0])


def test_one_path_in_place_of_many_is_refused(pool: Any, tmp_path: Path) -> None:
    file = make(tmp_path / "x.h5", 1)
    for given in (str(file), os.fsencode(file), file):
        with pytest.raises(
            engram.ArgumentError, match=r"x\.h5.* is one path: give a list of files"
        ):
            engram.import_files(given, pool)  # type: ignore[arg-type]
    assert list(pool) == []


def test_what_is_wrong_for_all_files_is_raised_at_once(pool: Any, tmp_path: Path) -> None:
    file = make(tmp_path / "x.h5", 1)
    with pytest.raises(engram.ArgumentError, match="workers=0"):
        engram.import_files([file], pool, workers=0)
    with pytest.raises(engram.ArgumentError, match="no slice"):
        engram.import_files([file], pool, slices="time")
    with engram.open(pool.path, mode="r") as reader, pytest.raises(engram.ReadOnlyError):
        engram.import_files([file], reader)
    assert list(pool) == []


def test_a_file_that_changes_between_looking_and_reading_leaves_nothing(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "x.h5", 1)
    states = iter([1, 2])
    monkeypatch.setattr(Source, "state", lambda _: next(states))
    with pytest.raises(engram.BusyError, match="changed while it was read"):
        engram.import_file(path, pool)
    assert list(pool) == []


@pytest.fixture
def at(home: Path) -> Path:
    """Give the path of a new pool that is closed."""
    engram.create(home / "cli", size="64 MiB", force=True).close()
    return home / "cli"


def test_the_command_imports_a_folder_and_tells_failures_at_the_end(
    at: Path, tmp_path: Path
) -> None:
    for number in range(3):
        make(tmp_path / f"in/d{number}.h5", number)
    (tmp_path / "in/d1.h5").write_bytes((tmp_path / "in/d1.h5").read_bytes()[:900])
    done = engram_command("import", at, "g", tmp_path / "in", "-r", "-j", 2)
    assert done.returncode == engram.FormatError.exit_code
    assert "2 of 3 files" in done.stdout
    assert "d1.h5" in done.stderr
    with engram.open(at, mode="r") as pool:
        assert list(pool["g"]) == ["d0", "d2"]


def test_the_commands_exit_code_is_its_own_where_files_fail_for_different_reasons(
    at: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.h5"
    bad.write_bytes(b"nothing")
    done = engram_command("import", at, "g", bad, tmp_path / "gone.h5", "-j", 1, "--json")
    assert done.returncode == 3
    said = json.loads(done.stdout)
    assert [f["error"]["kind"] for f in said] == ["FormatError", "NotFoundError"]
    assert len(done.stderr.splitlines()) == 2
    with engram.open(at, mode="r") as pool:
        assert list(pool) == []


def test_the_command_imports_a_part(at: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name in ("one", "two"):
            file[name] = np.arange(10)
            file[name].dims[0].label = "time"
    words = ("--select", "o*", "--slice", "time=2:5")
    assert engram_command("import", at, "/", tmp_path / "x.h5", *words).returncode == 0
    with engram.open(at, mode="r") as pool:
        assert list(pool) == ["one"]
        assert pool["one"][...].tolist() == [2, 3, 4]
