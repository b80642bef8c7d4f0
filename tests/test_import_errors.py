"""A failed import: named with file and variable, and nothing of it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import engram
from same import assert_same

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engram.formats import Progress


def write(path: Path, make: Callable[[h5py.File], object]) -> Path:
    """Make an HDF5 file."""
    with h5py.File(path, "w") as file:
        make(file)
    return path


def assert_nothing_happened(pool: Any, error: type[Exception], file: Path, *words: str) -> None:
    """Assert that an import fails as said, and that the pool is as it was."""
    before = (list(pool), dict(pool.attrs), pool.used)
    with pytest.raises(error) as caught:
        engram.import_file(file, pool)
    assert isinstance(caught.value, engram.EngramError)
    for word in (str(file), *words):
        assert word in str(caught.value)
    assert (list(pool), dict(pool.attrs), pool.used) == before


MISSING = """
import sys
sys.modules["hdf5plugin"] = None
import engram, h5py
kind, code = sys.argv[3:]
with h5py.File(sys.argv[2], "w") as file:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((10,))
    plist.set_filter(int(code), h5py.h5z.FLAG_OPTIONAL)
    tid = h5py.h5t.py_create(h5py.string_dtype() if kind == "text" else "i4", logical=True)
    space = h5py.h5s.create_simple((10,))
    made = h5py.h5d.create(file.create_group("g").id, b"v", tid, space, plist)
    made.write_direct_chunk((0,), b"what the filter has made of it", filter_mask=0)
with engram.open(sys.argv[1], "r+") as pool:
    try:
        engram.import_file(sys.argv[2], pool)
    except engram.UnsupportedError as error:
        print(error)
    print(list(pool))
"""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (32015, ("zstd", "pip install 'engram[filters]'")),
        (307, ("bzip2", "pip install 'engram[filters]'")),
        (32001, ("blosc", "pip install 'engram[filters]'")),
        (40_000, ("a program's own", "HDF5_PLUGIN_PATH")),
    ],
)
@pytest.mark.parametrize("kind", ["i4", "text"])
def test_a_filter_that_is_not_installed_is_named_with_what_to_install(
    home: Path, tmp_path: Path, kind: str, code: int, words: tuple[str, str]
) -> None:
    name, advice = words

    # A child, as netCDF4 shows HDF5 its own plugins in the process that has loaded it.
    file = tmp_path / "x.h5"
    engram.create(home / "pool", size="16 MiB", force=True).close()
    environ = {**os.environ, "HDF5_PLUGIN_PATH": str(tmp_path)}
    command = [sys.executable, "-c", MISSING, str(home / "pool"), str(file), kind, str(code)]
    ended = subprocess.run(command, capture_output=True, check=True, text=True, env=environ)
    said, left = ended.stdout.splitlines()
    assert said.startswith(f"{file}: /g/v: its filter {name} (HDF5's number {code}) ")
    assert advice in said
    assert left == "[]"


def test_a_damaged_chunk_fails_by_name_and_leaves_nothing(pool: Any, tmp_path: Path) -> None:
    data = np.arange(300_000, dtype="i8")

    def make(file: h5py.File) -> None:
        file.attrs["title"] = "x"
        file["a/first"] = np.arange(100_000)
        file.create_dataset("a/second", data=data, chunks=(1000,), fletcher32=True)

    path = write(tmp_path / "x.h5", make)
    content = bytearray(path.read_bytes())
    at = content.find(np.arange(200_000, 200_100, dtype="i8").tobytes())
    content[at] ^= 0xFF
    path.write_bytes(content)
    assert_nothing_happened(pool, engram.FormatError, path, "/a/second", "nothing was imported")


@pytest.mark.parametrize("keep", [9, 100, 2000, -1])
def test_a_truncated_file_is_refused(pool: Any, tmp_path: Path, keep: int) -> None:
    path = write(tmp_path / "x.h5", lambda f: f.create_dataset("v", data=np.arange(999)))
    path.write_bytes(path.read_bytes()[:keep])
    assert_nothing_happened(pool, engram.FormatError, path)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"hello, world", "no known format"),
        (b"\x93NUMPY\x01\x00", "truncated"),
        (b"\x0e\x03\x13\x01rest", "HDF4"),
        (b"\x1f\x8b\x08\x00", "gzip"),
    ],
)
def test_a_file_of_no_known_format_is_refused_with_a_remedy(
    pool: Any, tmp_path: Path, content: bytes, word: str
) -> None:
    path = tmp_path / "x.nc"
    path.write_bytes(content)
    assert_nothing_happened(pool, engram.FormatError, path, word)


def test_a_missing_file_and_a_directory_are_refused(pool: Any, tmp_path: Path) -> None:
    assert_nothing_happened(pool, engram.NotFoundError, tmp_path / "none.nc", "no such file")
    (tmp_path / "d.zarr").mkdir()
    assert_nothing_happened(pool, engram.FormatError, tmp_path / "d.zarr", "folder")


def test_a_file_that_this_user_may_not_read_is_refused(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", lambda f: f.create_dataset("v", data=1))
    path.chmod(0)
    nobody = os.geteuid() == 0
    if nobody:
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(0o755)
        os.seteuid(65534)
    try:
        with pytest.raises(engram.AccessError, match="may not read"):
            engram.import_file(path, pool)
    finally:
        if nobody:
            os.seteuid(0)
    assert list(pool) == []


def test_a_file_that_another_process_writes_is_busy(pool: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    script = (
        "import h5py, sys\n"
        "file = h5py.File(sys.argv[1], 'w')\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        assert_nothing_happened(pool, engram.BusyError, path, "another process")
        writer.communicate()


@pytest.mark.parametrize("suffix", ["h5", "nc"])
def test_a_file_that_this_process_has_open_is_imported_and_not_kept_open(
    pool: Any, tmp_path: Path, suffix: str
) -> None:
    def make(file: h5py.File) -> None:
        file["type"] = np.dtype([("a", "i4")])
        file.create_dataset("group/x", data=np.zeros(3, [("a", "i4")]), dtype=file["type"])
        if suffix == "nc":
            file.attrs["_NCProperties"] = "version=2"

    path = write(tmp_path / f"x.{suffix}", make)
    with h5py.File(path, "r") as file:
        report = engram.import_file(path, pool)
        assert file["group/x"].shape == (3,)
    assert (report.arrays, pool["group/x"].shape) == (1, (3,))
    with h5py.File(path, "r+") as file:  # refused while it is open for reading
        file["y"] = 1
        engram.import_file(path, pool.require_group("again"))
    assert "y" in pool["again"]


def damaged_labels(file: h5py.File) -> None:
    """Put one label where an array of two axes has two."""
    file["x"] = np.zeros((2, 3))
    file["x"].attrs["DIMENSION_LABELS"] = "one"


def damaged_list(file: h5py.File) -> None:
    """Put numbers where references are."""
    file["x"] = np.zeros((2, 3))
    lists = np.empty(2, object)
    lists[:] = [np.arange(3, dtype="i8"), np.arange(2, dtype="i8")]
    file["x"].attrs.create("DIMENSION_LIST", lists, dtype=h5py.vlen_dtype(np.dtype("i8")))


@pytest.mark.parametrize("make", [damaged_labels, damaged_list])
def test_damaged_dimensions_are_refused_and_do_not_end_the_process(
    tmp_path: Path, make: Callable[[h5py.File], object]
) -> None:
    path = write(tmp_path / "x.h5", make)
    code = """
import sys, engram
with engram.create(sys.argv[1], size=1 << 24) as pool:
    try:
        engram.import_file(sys.argv[2], pool)
    except engram.FormatError as error:
        print(error)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "pool"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "its attribute DIMENSION_L" in done.stdout


def test_a_file_that_changes_while_it_is_read_leaves_nothing(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", lambda f: f.create_dataset("v", data=np.arange(9999)))

    def change(progress: Progress) -> None:
        assert progress.path == "/v"
        os.utime(path, ns=(1, 1))

    with pytest.raises(engram.BusyError, match="changed while it was read"):
        engram.import_file(path, pool, progress=change)
    assert list(pool) == []


def test_an_error_of_the_progress_callback_leaves_nothing(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", lambda f: f.create_dataset("v", data=np.arange(99_999)))
    used = pool.used

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt(progress)

    with pytest.raises(KeyboardInterrupt):
        engram.import_file(path, pool, progress=stop)
    assert list(pool) == []
    assert pool.used == used


def test_a_pool_without_room_refuses_and_is_usable_after(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.h5",
        lambda f: [f.create_dataset(f"v{i}", data=np.ones(1 << 20)) for i in range(4)],
    )
    small: Any = engram.create(tmp_path / "small", size="20 MiB")
    with small as pool:
        assert_nothing_happened(pool, engram.PoolFullError, path, "/v")
        pool["after"] = np.arange(1000)
        assert pool["after"][-1] == 999


def test_a_taken_name_is_refused_unless_overwriting(pool: Any, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file.attrs["title"] = "new"
        file["g/v"] = np.arange(3)
        file["w"] = np.arange(4)

    path = write(tmp_path / "x.h5", make)
    pool["w"] = np.zeros(2)
    pool["g/kept"] = np.ones(5)
    pool["g/v"] = np.zeros(2)
    pool.attrs["title"] = "old"
    assert_nothing_happened(pool, engram.ExistsError, path, "'g'", "'w'", "overwrite")
    engram.import_file(path, pool, overwrite=True)
    assert_same(pool["w"][...], np.arange(4))
    assert_same(pool["g/v"][...], np.arange(3))
    assert_same(pool["g/kept"][...], np.ones(5))
    assert pool.attrs["title"] == "new"


def test_a_taken_attribute_is_refused_unless_overwriting(pool: Any, tmp_path: Path) -> None:
    def make(file: h5py.File) -> None:
        file.attrs["title"] = "new"
        file["v"] = 1

    path = write(tmp_path / "x.h5", make)
    pool.attrs["title"] = "old"
    assert_nothing_happened(pool, engram.ExistsError, path, "'title'")


def test_a_read_only_pool_refuses(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", lambda f: f.create_dataset("v", data=1))
    engram.create(tmp_path / "pool", size="16 MiB").close()
    with (
        engram.open(tmp_path / "pool", mode="r") as pool,
        pytest.raises(engram.ReadOnlyError, match="read-only"),
    ):
        engram.import_file(path, pool)


def test_an_import_joins_the_batch_around_it(pool: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", lambda f: f.create_dataset("v", data=np.arange(99_999)))

    def import_and_fail() -> None:
        with pool.batch():
            engram.import_file(path, pool.create_group("g"))
            assert_same(pool["g/v"][...], np.arange(99_999))
            raise LookupError

    with pytest.raises(LookupError):
        import_and_fail()
    assert list(pool) == []
