"""Files in chunks: kept in chunks on import, and exported with their chunks."""

from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import engram
from shell import run
from support import assert_exactly

VALUES = np.linspace(0, 1, 60 * 50 * 7, dtype="f4").reshape(60, 50, 7)


def hdf5(path: Path) -> None:
    """Make a file with a dataset in chunks, and one in one piece."""
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "g/packed", data=VALUES, chunks=(16, 50, 7), compression="gzip", maxshape=(None, 50, 7)
        )
        file.create_dataset("plain", data=np.arange(9))
        file.create_dataset("one", data=3.0)


def test_a_files_chunks_are_kept_and_recompressed(pool: engram.Pool, tmp_path: Path) -> None:
    hdf5(tmp_path / "a.h5")
    engram.import_file(tmp_path / "a.h5", pool, chunks="keep", codec="shuffle+zstd")
    packed = pool["g/packed"]
    assert (packed.chunks, packed.codec) == ((16, 50, 7), "shuffle+zstd")
    assert packed.stored_nbytes < packed.nbytes
    assert_exactly(packed[...], VALUES)
    assert pool["plain"].chunks is None
    assert pool["one"][()] == 3.0
    # It can grow here, too, and goes out in the file's chunks with the file's filters.
    packed.append(VALUES[:3])
    engram.export_file(pool, tmp_path / "b.h5")
    with h5py.File(tmp_path / "b.h5") as file:
        again = file["g/packed"]
        assert (again.chunks, again.compression) == ((16, 50, 7), "gzip")
        assert_exactly(again[...], np.concatenate([VALUES, VALUES[:3]]))


def test_what_is_to_grow_keeps_chunks_that_are_longer_than_it_is(
    pool: engram.Pool, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, shape, chunks in (("none", (0, 50), (1000, 50)), ("few", (3, 50), (10, 10))):
            file.create_dataset(name, shape, "f8", chunks=chunks, maxshape=(None, 50))
    engram.import_file(tmp_path / "a.h5", pool, chunks="keep", codec="lz4")
    assert (pool["none"].chunks, pool["few"].chunks) == ((1000, 50), (10, 10))
    assert pool["none"].append(np.ones((7, 50))) == (7, 50)
    # And so has what is small yet, where Engram chooses.
    small = pool.create_array("small", data=np.arange(3), chunks=True)
    assert small.chunks is not None
    assert small.chunks[0] * 8 >= 15 << 10


def test_all_arrays_can_be_chunked_and_a_part_of_a_file(pool: engram.Pool, tmp_path: Path) -> None:
    hdf5(tmp_path / "a.h5")
    done = engram.import_files([tmp_path / "a.h5"], pool, chunks=True, codec="lz4")
    assert isinstance(done[0], engram.formats.ImportReport)
    assert pool["a/plain"].codec == "lz4"
    assert pool["a/one"].chunks is None
    engram.import_file(
        tmp_path / "a.h5", pool.create_group("part"), select="g/packed", chunks="keep"
    )
    assert_exactly(pool["part/g/packed"][...], VALUES)


@pytest.mark.parametrize("codec", ["none", "lz4", "shuffle+zstd"])
def test_a_chunked_array_goes_out_in_chunks(pool: engram.Pool, tmp_path: Path, codec: str) -> None:
    pool.create_array("a", data=VALUES, dims=("t", "y", "x"), chunks=(16, 25, 7), codec=codec)
    pool.create_array("plain", data=VALUES)
    for name in ("out.h5", "out.nc", "out.zarr", "out.npz"):
        engram.export_file(pool, tmp_path / name, lossy=True)
    with h5py.File(tmp_path / "out.h5") as file:
        found = file["a"]
        assert found.chunks == (16, 25, 7)
        assert found.compression == (None if codec == "none" else "gzip")
        assert found.shuffle == codec.startswith("shuffle")
        assert_exactly(found[...], VALUES)
        assert file["plain"].chunks is None
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert file["a"].chunking() == [16, 25, 7]
        assert file["a"].filters()["zlib"] == (codec != "none")
        assert_exactly(np.asarray(file["a"][...]), VALUES)
    assert_exactly(np.asarray(zarr.open_group(tmp_path / "out.zarr", mode="r")["a"]), VALUES)
    with np.load(tmp_path / "out.npz") as file:
        assert_exactly(file["a"], VALUES)
    engram.export_file(pool["a"], tmp_path / "part.nc", slices="t=3:40:5")
    with netCDF4.Dataset(tmp_path / "part.nc") as file:
        assert_exactly(np.asarray(file["a"][...]), VALUES[3:40:5])


def test_what_cannot_be_is_refused_before_a_file_is_opened(
    pool: engram.Pool, tmp_path: Path
) -> None:
    missing = tmp_path / "none.h5"
    with pytest.raises(engram.ArgumentError, match="'all'"):
        engram.import_file(missing, pool, chunks="all")  # type: ignore[arg-type]
    with pytest.raises(engram.ArgumentError, match='chunks="keep"'):
        engram.import_file(missing, pool, codec="lz4")
    hdf5(tmp_path / "a.h5")
    with pytest.raises(engram.ArgumentError, match="no codec"):
        engram.import_file(tmp_path / "a.h5", pool, chunks="keep", codec="gzip")
    assert not len(pool)


def test_the_command_line_keeps_chunks_and_tells_of_them(pool: engram.Pool, tmp_path: Path) -> None:
    hdf5(tmp_path / "a.h5")
    file, path = str(tmp_path / "a.h5"), str(pool.path)
    done = run("import", path, "run", file, "--chunks", "keep", "--codec", "shuffle+lz4")
    assert done.code == 0, done.err
    assert "60 x 50 x 7 (16 x 50 x 7, shuffle+lz4)" in run("ls", "-lr", path, "run").out
    told = run("info", path, "run/g/packed").out
    assert "16 x 50 x 7" in told
    assert "shuffle+lz4" in told
    assert "in chunks" in run("tree", path).out
    assert run("import", path, "auto", file, "--chunks", "auto").code == 0
    assert pool["auto/g/packed"].codec == "none"
    refused = run("import", path, "other", file, "--codec", "lz4")
    assert refused.code == engram.ArgumentError.exit_code
    assert "chunks=" in refused.err
