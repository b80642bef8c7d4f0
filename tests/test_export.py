"""Exporting: the format is chosen, the target kept or replaced whole, nothing half-done left."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
import pytest

import engram
from engram.formats.gather import gather
from engram.formats.registry import formats
from engram.formats.select import Selection
from shell import in_terminal, run

if TYPE_CHECKING:
    from engram.formats import Progress
    from engram.formats.target import Tree


@pytest.fixture
def filled(pool: Any) -> Any:
    """Give a pool with two groups and a few arrays."""
    pool.attrs["title"] = "x"
    pool.create_array("a/T", data=np.arange(12.0).reshape(3, 4), dims=("time", "x"))
    pool.create_array("a/time", data=np.arange(3.0), dims=("time",))
    pool.create_array("b/S", data=np.ones(4, "i4"), dims=("x",), attrs={"units": "1"})
    return pool


def names(path: Path) -> list[str]:
    """Return the paths of a netCDF file's variables."""
    found: list[str] = []
    with netCDF4.Dataset(path) as file:
        waiting = [file]
        while waiting:
            group = waiting.pop()
            found += [f"{group.path}/{name}".lstrip("/") for name in group.variables]
            waiting += group.groups.values()
    return sorted(found)


def listed(folder: Path) -> list[str]:
    """Return the names in a folder; none if it is not there."""
    return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []


def assert_refused(kind: type[Exception], *words: str, **arguments: Any) -> None:
    """Assert that an export is refused with these words, and leaves its folder as it was."""
    folder = Path(arguments["path"]).parent
    before = listed(folder)
    with pytest.raises(kind) as caught:
        engram.export_file(**arguments)
    assert isinstance(caught.value, engram.EngramError)
    for word in words:
        assert word in str(caught.value)
    assert listed(folder) == before


# What is exported


def test_a_group_goes_out_with_all_that_is_in_it(filled: Any, tmp_path: Path) -> None:
    report = engram.export_file(filled, tmp_path / "x.nc")
    assert names(tmp_path / "x.nc") == ["a/T", "a/time", "b/S"]
    assert (report.arrays, report.groups, report.attributes) == (3, 2, 2)
    assert report.nbytes == 12 * 8 + 3 * 8 + 4 * 4
    assert report.file_nbytes == (tmp_path / "x.nc").stat().st_size
    assert (report.format, report.source, report.complete) == ("NETCDF4", "", True)
    assert engram.export_file(filled["a"], tmp_path / "a.nc").source == "a"
    assert names(tmp_path / "a.nc") == ["T", "time"]


def test_one_array_and_one_blob_go_out_alone(filled: Any, tmp_path: Path) -> None:
    engram.export_file(filled["a/T"], tmp_path / "x.nc")
    assert names(tmp_path / "x.nc") == ["T"]
    filled["log"] = b"hello"
    report = engram.export_file(filled["log"], tmp_path / "log.nc")
    assert [e.what for e in report.noted] == ["blob", "dimensions"]
    with netCDF4.Dataset(tmp_path / "log.nc") as file:
        assert bytes(np.asarray(file["log"][...])) == b"hello"


def test_any_objects_of_a_namespace_go_out_with_their_groups(filled: Any, tmp_path: Path) -> None:
    chosen = iter([filled["b/S"], filled["a/T"]])
    report = engram.export_file(chosen, tmp_path / "x.nc")
    assert names(tmp_path / "x.nc") == ["a/T", "b/S"]
    assert (report.arrays, report.groups) == (2, 2)
    engram.export_file([filled["a"], filled["b/S"]], tmp_path / "y.nc")
    assert names(tmp_path / "y.nc") == ["a/T", "a/time", "b/S"]


def test_of_objects_those_that_are_gone_are_left_out(filled: Any, tmp_path: Path) -> None:
    chosen = [filled["a/T"], filled["b/S"]]
    del filled["b"]
    engram.export_file(chosen, tmp_path / "x.nc")
    assert names(tmp_path / "x.nc") == ["a/T"]
    gone, path = [chosen[1]], tmp_path / "y.nc"
    assert_refused(engram.ArgumentError, "none is there", source=gone, path=path)
    assert_refused(engram.NotFoundError, source=chosen[1], path=path)


def test_objects_of_two_namespaces_are_refused(filled: Any, tmp_path: Path) -> None:
    other = filled.create_namespace("other")
    other["T"] = np.arange(3)
    both = [filled["a/T"], other["T"]]
    assert_refused(engram.ArgumentError, "namespace", source=both, path=tmp_path / "x.nc")


@pytest.mark.parametrize("nothing", [[], 7, "a/T", [7], None])
def test_what_is_nothing_of_a_pool_is_refused(nothing: Any, tmp_path: Path) -> None:
    assert_refused(engram.ArgumentError, source=nothing, path=tmp_path / "x.nc")


def test_select_and_slices_take_a_part(filled: Any, tmp_path: Path) -> None:
    engram.export_file(filled, tmp_path / "x.nc", select="a/*", slices="time=1:")
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        assert list(file.groups) == ["a"]
        assert file["a/T"][...].tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
        assert file["a/time"][...].tolist() == [1, 2]
    path = tmp_path / "y.nc"
    assert_refused(engram.NotFoundError, "c*", source=filled, path=path, select="c*")
    assert_refused(engram.NotFoundError, "depth", source=filled, path=path, slices="depth=0")


def test_a_pool_open_for_reading_only_is_exported(home: Path, tmp_path: Path) -> None:
    with engram.create(home / "p", size="16 MiB", force=True) as pool:
        pool["T"] = np.arange(3)
    with engram.open(home / "p", "r") as pool:
        engram.export_file(pool, tmp_path / "x.nc")
    assert names(tmp_path / "x.nc") == ["T"]


def test_a_batch_exports_what_it_has_made_so_far(filled: Any, tmp_path: Path) -> None:
    with filled.batch():
        filled["new"] = np.arange(3)
        engram.export_file(filled, tmp_path / "x.nc")
    assert "new" in names(tmp_path / "x.nc")


def test_an_array_replaced_meanwhile_goes_out_as_it_was(filled: Any, tmp_path: Path) -> None:
    filled["big"] = np.arange(1 << 20)

    def replace(progress: Progress) -> None:
        if progress.path == "/a/T":
            filled["big"] = np.zeros(7)

    engram.export_file(filled, tmp_path / "x.nc", progress=replace)
    assert filled["big"].shape == (7,)
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        # Groups come after what is beside them, so that it was replaced after it was gathered.
        assert (np.asarray(file["big"][...]) == np.arange(1 << 20)).all()


REPLACER = """
import sys, numpy as np, engram
with engram.open(sys.argv[1]) as pool:
    print("ready", flush=True)
    n = 0
    while True:
        n += 1
        with pool.batch():
            for name in ("a/x", "a/text", "b/y"):
                data = np.full(n % 5 + 1, n, "i8")
                pool.create_array(
                    name,
                    data=data.astype("T") if name == "a/text" else data,
                    attrs={"n": n, "count": len(data)},
                    overwrite=True,
                )
"""


def test_what_another_process_replaces_is_never_left_out_nor_mixed(home: Path) -> None:
    path = home / "replaced"
    seen: set[int] = set()
    with engram.create(path, size=1 << 26) as pool:
        for name in ("a/x", "b/y"):
            pool.create_array(name, data=np.zeros(1, "i8"), attrs={"n": 0, "count": 1})
        pool.create_array("a/text", data=np.array(["0"], "T"), attrs={"n": 0, "count": 1})
        command = [sys.executable, "-c", REPLACER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            try:
                assert writer.stdout.readline() == "ready\n"
                while len(seen) < 100:
                    assert writer.poll() is None
                    seen |= kept_by_all_of_one(gather(pool, Selection(None, None)))
            finally:
                writer.kill()


def kept_by_all_of_one(tree: Tree) -> set[int]:
    """Assert that each array is there, its attributes and values of one object; return whose."""
    assert sorted(item.path for item in tree.arrays) == ["a/text", "a/x", "b/y"]
    for item in tree.arrays:
        values = item.load().astype("i8")
        assert values.shape == item.shape == (item.attrs["count"],)
        assert (values == item.attrs["n"]).all()
    return {int(item.attrs["n"]) for item in tree.arrays}


def test_the_report_counts_the_bytes_of_strings(pool: Any, tmp_path: Path) -> None:
    pool["s"] = np.array(["é" * 50, "", "abc"], np.dtypes.StringDType())
    pool["one"] = "word"
    report = engram.export_file(pool, tmp_path / "x.h5")
    assert report.nbytes == 103 + 4
    part = engram.export_file(pool["s"], tmp_path / "y.h5")
    assert part.nbytes == 103
    pool.create_array("t", data=["aa", "b"], dtype=np.dtypes.StringDType(), dims=("x",))
    assert engram.export_file(pool["t"], tmp_path / "z.h5", slices={"x": slice(1)}).nbytes == 2


def test_progress_ends_at_the_total(filled: Any, tmp_path: Path) -> None:
    seen: list[Progress] = []
    report = engram.export_file(filled, tmp_path / "x.nc", progress=seen.append)
    assert {p.path for p in seen} == {"/a/T", "/a/time", "/b/S"}
    assert seen[-1].done == seen[-1].total == report.nbytes


# The format


def test_the_format_is_chosen_by_suffix_or_by_word(filled: Any, tmp_path: Path) -> None:
    group = filled["a"]
    assert engram.export_file(group, tmp_path / "X.NC").format == "NETCDF4"
    assert engram.export_file(group, tmp_path / "x.dat", format="netcdf3").format == (
        "NETCDF3_CLASSIC"
    )
    assert_refused(engram.ArgumentError, "suffix", ".nc", source=group, path=tmp_path / "x.unknown")
    assert_refused(
        engram.ArgumentError, "netcdf5", "netcdf4", source=group, path=tmp_path / "y.nc",
        format="netcdf5",
    )  # fmt: skip


def test_every_format_that_writes_says_which_kinds() -> None:
    for found in formats():
        if hasattr(found, "kinds"):
            assert found.name in found.kinds


# The target


def test_an_existing_file_is_kept_unless_it_may_be_replaced(filled: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    path.write_bytes(b"mine")
    assert_refused(engram.ExistsError, "overwrite=True", source=filled, path=path)
    assert path.read_bytes() == b"mine"
    path.chmod(0o640)
    engram.export_file(filled, path, overwrite=True)
    assert names(path) == ["a/T", "a/time", "b/S"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert listed(tmp_path) == ["x.nc"]


def test_whoever_reads_the_old_file_reads_all_of_it(filled: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    path.write_bytes(b"old" * 1000)
    seen: list[bytes] = []
    with path.open("rb") as reader:
        engram.export_file(
            filled, path, overwrite=True, progress=lambda _: seen.append(path.read_bytes())
        )
        assert reader.read() == b"old" * 1000
    assert set(seen) == {b"old" * 1000}
    assert path.read_bytes().startswith(b"\x89HDF")


def test_a_file_that_appears_meanwhile_is_kept(filled: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.nc"

    def theirs(progress: Progress) -> None:
        del progress
        path.write_bytes(b"theirs")

    with pytest.raises(engram.ExistsError):
        engram.export_file(filled, path, progress=theirs)
    assert path.read_bytes() == b"theirs"
    assert listed(tmp_path) == ["x.nc"]


def test_a_symbolic_link_stays_and_what_it_leads_to_is_written(filled: Any, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "latest.nc"
    link.symlink_to(tmp_path / "real" / "x.nc")
    assert_refused(engram.ExistsError, source=filled, path=link)
    engram.export_file(filled, link, overwrite=True)
    assert link.is_symlink()
    assert names(tmp_path / "real" / "x.nc") == ["a/T", "a/time", "b/S"]
    assert listed(tmp_path / "real") == ["x.nc"]


def test_a_folder_a_device_and_a_pool_are_no_targets(filled: Any, tmp_path: Path) -> None:
    (tmp_path / "d.nc").mkdir()
    kept = tmp_path / "d.nc" / "kept"
    kept.touch()
    more = {"source": filled, "overwrite": True}
    assert_refused(engram.ExistsError, "folder", path=tmp_path / "d.nc", **more)
    assert kept.exists()
    os.mkfifo(tmp_path / "pipe.nc")
    assert_refused(engram.ArgumentError, "device", path=tmp_path / "pipe.nc", **more)
    inside = Path(filled.path) / "x.nc"
    assert_refused(engram.ArgumentError, "in the pool", path=inside, **more)
    assert_refused(engram.ArgumentError, "in the pool", path=inside.parent / "ns" / "x.nc", **more)


def test_a_missing_folder_and_an_impossible_name_are_refused(filled: Any, tmp_path: Path) -> None:
    assert_refused(
        engram.NotFoundError, "no such folder", source=filled, path=tmp_path / "no" / "x.nc"
    )
    assert_refused(engram.ArgumentError, source=filled, path=tmp_path / ("x" * 300 + ".nc"))
    (tmp_path / "loop.nc").symlink_to(tmp_path / "loop.nc")
    with pytest.raises(engram.EngramError):
        engram.export_file(filled, tmp_path / "loop.nc", overwrite=True)


def test_a_folder_that_may_not_be_written_is_an_access_error(filled: Any) -> None:
    sealed = Path("/sys/kernel")
    if not sealed.is_dir():
        pytest.skip("no folder here in which nobody may write")
    assert_refused(engram.AccessError, "cannot be written", source=filled, path=sealed / "x.nc")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("name", ["x.h5", "x.nc", "x.npz", "x.zarr"])
def test_no_space_is_the_error_of_a_full_pool_in_every_format(
    pool: engram.Pool, tmp_path: Path, name: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool["v"] = np.arange(10)

    def full(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(engram.PoolFullError, match=f"{name}: .*{os.strerror(code)}") as raised:
        engram.export_file(pool, tmp_path / name)
    assert raised.value.exit_code == 12
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["netcdf4", "netcdf3"])
def test_no_space_half_way_names_the_array_and_leaves_nothing(
    home: Path, tmp_path: Path, kind: str
) -> None:
    with engram.create(home / "p", size="64 MiB", force=True) as pool:
        pool["a"] = np.arange(10)
        pool["big"] = np.random.default_rng(0).random(1 << 20)
    # A child may write files of 1 MiB at most, and is told so as of a full medium.
    code = """
import resource, signal, sys
import engram
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with engram.open(sys.argv[1], "r") as pool:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    for _ in range(2):
        try:
            engram.export_file(pool, sys.argv[2], format=sys.argv[3])
        except engram.EngramError as error:
            print(error)
    print(engram.export_file(pool["a"], sys.argv[2], format=sys.argv[3]).arrays)
"""
    path = tmp_path / "x.nc"
    ended = subprocess.run(
        [sys.executable, "-c", code, home / "p", path, kind],
        capture_output=True,
        check=False,
        text=True,
    )
    first, second, last = ended.stdout.splitlines()
    assert f"{path}: /big: cannot be written: File too large. Nothing is left of it" in first
    assert second == first
    assert last == "1"
    assert (ended.returncode, ended.stderr) == (0, "")
    assert listed(tmp_path) == ["x.nc"]


def test_an_error_or_an_interruption_half_way_leaves_nothing(filled: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    for error in (KeyboardInterrupt, SystemExit, ZeroDivisionError):

        def stop(progress: Progress, error: type[BaseException] = error) -> None:
            del progress
            raise error

        with pytest.raises((error, engram.EngramError)):
            engram.export_file(filled, path, progress=stop)
        assert listed(tmp_path) == []
    engram.export_file(filled, path)
    assert names(path) == ["a/T", "a/time", "b/S"]


# What cannot be held


def test_what_a_format_cannot_hold_is_named_and_nothing_written(
    filled: Any, tmp_path: Path
) -> None:
    assert_refused(
        engram.FormatError, "/a: group", "/b: group", "lossy=True", source=filled,
        path=tmp_path / "x.nc", format="netcdf3",
    )  # fmt: skip
    filled["top"] = np.arange(3)
    report = engram.export_file(filled, tmp_path / "x.nc", format="netcdf3", lossy=True)
    assert not report.complete
    assert [e.path for e in report.left_out] == ["/a", "/b"]
    assert names(tmp_path / "x.nc") == ["top"]


# On the command line


@pytest.fixture
def path(home: Path) -> Path:
    """Give the path of a closed pool."""
    with engram.create(home / "p", size="64 MiB", force=True) as pool:
        pool.create_array("a/T", data=np.arange(12.0).reshape(3, 4), dims=("time", "x"))
        pool["words"] = np.array(["a", "b"], np.dtypes.StringDType())
    return home / "p"


def test_export_writes_and_tells_what_it_wrote(path: Path, tmp_path: Path) -> None:
    ended = run("export", path, "a", tmp_path / "x.nc")
    assert ended.code == 0
    assert ended.out.startswith(f"/a to {tmp_path / 'x.nc'} (NETCDF4): 1 array, 0 groups, 0 attr")
    found = json.loads(run("export", path, "/", tmp_path / "y.nc", "--json").out)
    assert found["arrays"] == 2
    assert [entry["path"] for entry in found["noted"]] == ["/words"]
    part = ["--slice", "time=0:2", "--select", "a/*"]
    assert run("export", path, "/", tmp_path / "z.nc", *part).code == 0
    with netCDF4.Dataset(tmp_path / "z.nc") as file:
        assert file["a/T"].shape == (2, 4)
        assert not file.variables


def test_export_refuses_in_words_of_the_command_line(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.nc"
    target.touch()
    ended = run("export", path, "a", target)
    assert ended.code == engram.ExistsError.exit_code
    assert "add --overwrite to replace it" in ended.err
    assert run("export", path, "a", target, "--overwrite").code == 0
    words = ["export", path, "/", tmp_path / "y.nc", "--format", "netcdf3"]
    ended = run(*words)
    assert ended.code == engram.FormatError.exit_code
    assert "--lossy" in ended.err
    assert "/words: variable: strings have no type" in ended.err
    ended = run(*words, "--lossy")
    assert ended.code == 0
    assert "left out: /a: group" in ended.out
    assert run("export", path, "none", tmp_path / "z.nc").code == engram.NotFoundError.exit_code


def test_export_fits_a_narrow_terminal(path: Path, tmp_path: Path) -> None:
    code, seen = in_terminal("export", path, "a", tmp_path / "x.nc", columns=40)
    assert code == 0
    assert "1 array" in " ".join(seen.split())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_an_export_and_leaves_nothing(
    path: Path, tmp_path: Path, number: signal.Signals
) -> None:
    # The child is stopped by its own signal in the middle of writing.
    code = """
import os, sys
from engram.cli import main
from engram.formats.save import _Counter
tell = _Counter.tell
def killed(self, path, nbytes):
    tell(self, path, nbytes)
    if nbytes:
        os.kill(os.getpid(), int(sys.argv[1]))
_Counter.tell = killed
main(["export", *sys.argv[2:]])
"""
    words = [str(int(number)), path, "a", tmp_path / "x.nc"]
    ended = subprocess.run([sys.executable, "-c", code, *map(str, words)], check=False)
    assert ended.returncode in {128 + number, -number, 130}
    assert listed(tmp_path) == []
