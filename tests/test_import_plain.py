"""What a file has as it lies in memory is copied by the kernel, and is what its format reads."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest
from astropy.io import fits
from h5py import h5d, h5p, h5s, h5t
from hypothesis import example, given
from hypothesis import strategies as st

import engram
import engram.array
from engram.errors import ArgumentError, BusyError, FormatError
from engram.formats.blocks import start_of
from engram.formats.fill import Filling
from engram.formats.hdf5 import low
from engram.formats.load import Loader
from engram.formats.npy import NpySource
from engram.formats.registry import open_source
from engram.formats.source import ArrayNode, Plain
from same import assert_same

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHAPE = (40, 60, 50)
"""Of 120,000 elements: no dtype has too few bytes to be allocated."""
RECORD = np.dtype([("a", "<i2"), ("b", "<f8"), ("c", "S5")])


def values(dtype: str | np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return different values, of any bits."""
    count = int(np.prod(SHAPE))
    if np.dtype(dtype).names is None:
        return np.arange(count).astype(dtype).reshape(SHAPE)
    found = np.zeros(count, dtype)
    found["a"], found["b"], found["c"] = np.arange(count), np.arange(count) / 3, b"text"
    return found.reshape(SHAPE)


def hdf5(path: Path, dtype: str | np.dtype[Any], **more: Any) -> None:
    """Make an HDF5 file of one dataset."""
    with h5py.File(path, "w", **more) as file:
        file["x"] = values(dtype)


def netcdf(path: Path) -> None:
    """Make a netCDF-4 file of one variable."""
    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip("tyx", SHAPE, strict=True):
            file.createDimension(name, length)
        file.createVariable("v", "f4", tuple("tyx"), contiguous=True)[:] = values("f4")


def image(path: Path) -> None:
    """Make a FITS file of an image, whose bytes are in the other order."""
    fits.PrimaryHDU(values(">f4")).writeto(path)


def table(path: Path) -> None:
    """Make a FITS file of a table."""
    found = np.zeros(9_000, [("a", ">f8"), ("b", ">i4")])
    found["a"], found["b"] = np.arange(9_000) / 7, np.arange(9_000)
    fits.BinTableHDU(found, name="x").writeto(path)


def grid(path: Path) -> None:
    """Make a Plot3D file of one block."""
    with engram.create(path.with_name("grid"), size="16 MiB") as pool:
        for name in "xyz":
            pool.create_array(name, data=values("f8") + ord(name))
        engram.export_file(pool, path)


PLAIN: dict[str, Callable[[Path], None]] = {
    "f4.h5": lambda path: hdf5(path, "<f4"),
    "big.h5": lambda path: hdf5(path, ">i8"),
    "records.h5": lambda path: hdf5(path, RECORD),
    "block.h5": lambda path: hdf5(path, "<f8", userblock_size=4096),
    "v.nc": netcdf,
    "c.npy": lambda path: np.save(path, values("<u2")),
    "big.npy": lambda path: np.save(path, values(">c16")),
    "line.npy": lambda path: np.save(path, np.asfortranarray(values("f8").reshape(-1))),
    "image.fits": image,
    "gzip.fits.gz": image,
    "table.fits": table,
    "grid.xyz": grid,
}
"""Files whose values are copied."""


def chunked(path: Path) -> None:
    """Make a file of chunks."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values("f4"), chunks=(10, 60, 50))


def external(path: Path) -> None:
    """Make a file whose values are in another one."""
    data = values("f4")
    with h5py.File(path, "w") as file:
        other = [(str(path.with_suffix(".raw")), 0, data.nbytes)]
        file.create_dataset("x", data=data, external=other)


def virtual(path: Path) -> None:
    """Make a file whose values are those of a dataset in another one."""
    hdf5(path.with_name("source.hdf"), "f4")
    layout = h5py.VirtualLayout(SHAPE, "f4")
    layout[...] = h5py.VirtualSource(path.with_name("source.hdf"), "x", SHAPE)
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)


def unwritten(path: Path) -> None:
    """Make a file that has no space for its values yet."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", SHAPE, "f4", fillvalue=7)


def spaced(path: Path) -> None:
    """Make a file of 3-byte integers, which are of four bytes in memory."""
    odd = h5t.STD_I32LE.copy()
    odd.set_precision(24)
    odd.set_size(3)
    with h5py.File(path, "w") as file:
        made = h5d.create(
            file.id, b"x", odd, h5s.create_simple(SHAPE), h5p.create(h5p.DATASET_CREATE)
        )
        made.write(h5s.ALL, h5s.ALL, values("i4"))


def packed(path: Path) -> None:
    """Make an archive, in which no member is compressed."""
    np.savez(path, x=values("f4"))


def texts(path: Path) -> None:
    """Make a file of texts that are padded by spaces, which are taken off."""
    kind = h5t.C_S1.copy()
    kind.set_size(5)
    kind.set_strpad(h5t.STR_SPACEPAD)
    with h5py.File(path, "w") as file:
        made = h5d.create(file.id, b"x", kind, h5s.create_simple(SHAPE))
        made.write(h5s.ALL, h5s.ALL, np.full(SHAPE, b"ab   "), kind)


def wide_bools(path: Path, base: h5t.TypeID) -> None:
    """Make a file of an enumeration that h5py has as `bool`, though its values are wider."""
    kind = h5t.enum_create(base)
    kind.enum_insert(b"FALSE", 0)
    kind.enum_insert(b"TRUE", 1)
    pair = h5t.create(h5t.COMPOUND, 8 + kind.get_size())
    pair.insert(b"n", 0, h5t.STD_I64LE)
    pair.insert(b"is", 8, kind)
    space, stored = h5s.create_simple(SHAPE), base.dtype
    with h5py.File(path, "w") as file:
        data = (values("i8") % 3 == 0).astype(stored)
        h5d.create(file.id, b"x", kind, space).write(h5s.ALL, h5s.ALL, data, kind)
        few = h5s.create_simple((700,))
        h5d.create(file.id, b"few", kind, few).write(
            h5s.ALL, h5s.ALL, data.reshape(-1)[:700].copy(), kind
        )
        attr = h5py.h5a.create(file["few"].id, b"a", kind, few)
        attr.write(data.reshape(-1)[:700].copy(), mtype=kind)
        rows = np.zeros(SHAPE, [("n", "<i8"), ("is", stored)])
        rows["n"], rows["is"] = values("i8"), data
        h5d.create(file.id, b"pairs", pair, space).write(h5s.ALL, h5s.ALL, rows, pair)


def columns(path: Path) -> None:
    """Make a FITS file of a table whose rows have parts of any length."""
    rows = [np.arange(n % 5, dtype="i4") for n in range(9_000)]
    found = [
        fits.Column("a", "D", array=np.arange(9_000) / 7),
        fits.Column("b", "PJ()", array=np.array([*rows, None], object)[:-1]),
    ]
    fits.BinTableHDU.from_columns(found, name="x").writeto(path)


def lines(path: Path) -> None:
    """Make a FITS file of a table of text, which has numbers."""
    found = [fits.Column(name, "E15.7", array=np.arange(9_000) / 4) for name in "ab"]
    fits.TableHDU.from_columns(found, name="x").writeto(path)


def growing(path: Path) -> None:
    """Make a netCDF-4 file with a variable that ends before its dimension."""
    with h5py.File(path, "w") as file:
        scale = file.create_dataset("t", (40_000,), "f8", maxshape=(None,), chunks=(100,))
        scale.make_scale("t")
        file["v"] = np.arange(20_000.0)
        file["v"].dims[0].attach_scale(scale)


OTHERS: dict[str, Callable[[Path], None]] = {
    "bools.h5": lambda path: wide_bools(path, h5t.STD_I32LE),
    "big-bools.h5": lambda path: wide_bools(path, h5t.STD_I64BE),
    "texts.h5": texts,
    "columns.fits": columns,
    "lines.fits": lines,
    "growing.nc": growing,
    "chunks.h5": chunked,
    "external.h5": external,
    "unwritten.h5": unwritten,
    "virtual.h5": virtual,
    "spaced.h5": spaced,
    "fortran.npy": lambda path: np.save(path, np.asfortranarray(values("f4"))),
    "packed.npz": packed,
}
"""Files that have their values in another form, or elsewhere."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make them all once."""
    folder = tmp_path_factory.mktemp("plain")
    made = {}
    for name, make in {**PLAIN, **OTHERS}.items():
        made[name] = folder / name
        make(made[name])
    return made


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the bytes that the kernel copies."""
    counts: list[int] = []
    read = engram.array.Allocation._read

    def counted(self: engram.array.Allocation, *arguments: int) -> int:
        counts.append(read(self, *arguments))
        return counts[-1]

    monkeypatch.setattr(engram.array.Allocation, "_read", counted)
    return counts


def arrays(path: Path) -> list[ArrayNode]:
    """Return the arrays of a file."""
    with open_source(path) as source:
        return [node for node in source.nodes if isinstance(node, ArrayNode)]


def read_by_its_format(path: Path, pool: engram.Pool) -> dict[str, np.ndarray[Any, Any]]:
    """Return all arrays of a file, none of which the kernel copied."""
    group = pool.create_group("by its format")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engram.formats.fill.start_of", lambda *_: None)
        engram.import_file(path, group)
    return {name: member[...] for name, member in group.items() if isinstance(member, engram.Array)}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_are_copied_and_are_those_that_the_format_reads(
    pool: engram.Pool, files: dict[str, Path], copied: list[int], name: str
) -> None:
    imported = pool.create_group("imported")
    engram.import_file(files[name], imported)
    expected = read_by_its_format(files[name], pool)
    assert sum(copied) == sum(array.nbytes for array in expected.values()) > 0
    assert set(imported) == set(expected)
    for path, array in expected.items():
        assert_same(imported[path][...], array)


@pytest.mark.parametrize("name", OTHERS)
def test_values_in_another_form_are_left_to_the_format(
    pool: engram.Pool, files: dict[str, Path], copied: list[int], name: str
) -> None:
    imported = pool.create_group("imported")
    engram.import_file(files[name], imported)
    expected = read_by_its_format(files[name], pool)
    assert copied == []
    for path, array in expected.items():
        assert_same(imported[path][...], array)


parts = st.tuples(
    *[
        st.tuples(st.integers(0, n - 1), st.integers(1, n), st.integers(1, 3)).map(
            lambda p: slice(p[0], p[0] + p[1], p[2])
        )
        for n in SHAPE
    ]
)


@example(part=(slice(0, 40, 2), slice(0, 60), slice(0, 50)), name="v.nc")
@example(part=(slice(3, 9), slice(0, 60), slice(0, 50)), name="image.fits")
@example(part=(slice(7, 8), slice(0, 60), slice(0, 50, 3)), name="f4.h5")
@given(part=parts, name=st.sampled_from(["f4.h5", "v.nc", "c.npy", "image.fits"]))
def test_parts_of_plain_values_are_those_that_the_format_reads(
    pool: engram.Pool, files: dict[str, Path], part: tuple[slice, ...], name: str
) -> None:
    copied: list[int] = []
    read = engram.array.Allocation._read

    def counted(self: engram.array.Allocation, *asked: int) -> int:
        copied.append(asked[-1])
        return read(self, *asked)

    region = tuple(slice(*p.indices(n)) for p, n in zip(part, SHAPE, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engram.formats.load.IN_PLACE_BYTES", 1)
        patch.setattr("engram.formats.fill._COPIED_BYTES", 30_000)
        patch.setattr("engram.formats.select.Selection.region", lambda *_: region)
        patch.setattr(engram.array.Allocation, "_read", counted)
        engram.import_file(files[name], pool, overwrite=True)
    stored = {"f4.h5": "<f4", "v.nc": "f4", "c.npy": "<u2", "image.fits": ">f4"}[name]
    (node,) = arrays(files[name])
    expected = values(stored)[part]
    assert_same(pool[node.path][...], expected)
    is_run = all(p.step == 1 for p in region) and start_of(region, SHAPE) is not None
    assert sum(copied) == (expected.nbytes if is_run else 0)


def test_wide_bools_are_those_of_h5py(pool: engram.Pool, files: dict[str, Path]) -> None:
    for name in ("bools.h5", "big-bools.h5"):
        engram.import_file(files[name], pool, overwrite=True)
        with h5py.File(files[name]) as file:
            for member in ("x", "few"):
                assert_same(pool[member][...], file[member][...])
            assert_same(pool["few"].attrs["a"], file["few"].attrs["a"])
            assert_same(pool["pairs"][...]["is"], file["pairs"]["is"])
        back = files[name].with_name("back.h5")
        engram.export_file(pool, back, overwrite=True)
        with h5py.File(back) as file, h5py.File(files[name]) as original:
            assert file["x"].id.get_type() == original["x"].id.get_type()
            assert_same(file["x"][...], original["x"][...])
            assert_same(file["pairs"]["is"], original["pairs"]["is"])


def test_a_type_of_another_size_than_its_values_is_refused(
    pool: engram.Pool, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engram.formats.hdf5.low.in_memory", lambda tid: tid.copy())
    low._kind.cache_clear()
    try:
        with pytest.raises(FormatError, match=r"its values are of 4 bytes, and of 1 in memory"):
            engram.import_file(files["bools.h5"], pool)
    finally:
        low._kind.cache_clear()
    assert len(pool) == 0


def test_a_large_piece_is_copied_by_several_threads(
    pool: engram.Pool, home: Path, tmp_path: Path
) -> None:
    data = np.random.default_rng(3).integers(0, 255, (70 << 20) + 5, np.uint8)
    for folder in (tmp_path, home):
        np.save(folder / "large.npy", data)
        engram.import_file(folder / "large.npy", pool, overwrite=True)
        assert_same(pool["large"][...], data)


def test_a_file_of_another_driver_is_read_by_it(
    pool: engram.Pool, home: Path, files: dict[str, Path]
) -> None:
    program = (
        "import sys, engram, engram.array\n"
        "engram.array.Allocation._read = None\n"
        "with engram.open(sys.argv[2]) as pool:\n"
        "    engram.import_file(sys.argv[1], pool)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(files["f4.h5"]), str(home / "pool")],
        env={**os.environ, "HDF5_DRIVER": "stdio"},
        check=True,
    )
    assert_same(pool["x"][...], values("<f4"))


def test_a_file_that_is_open_here_for_writing_is_read_by_its_format(
    pool: engram.Pool, tmp_path: Path, copied: list[int]
) -> None:
    path = tmp_path / "open.h5"
    hdf5(path, "<f4")
    with h5py.File(path, "r+"):  # HDF5 may hold back what was written
        engram.import_file(path, pool)
    assert copied == []
    assert_same(pool["x"][...], values("<f4"))


def test_a_file_that_ends_within_its_values_imports_nothing(
    pool: engram.Pool, tmp_path: Path
) -> None:
    path = tmp_path / "short.npy"
    np.save(path, values("f8"))
    with open_source(path) as source:
        (node,) = source.nodes
        assert isinstance(node, ArrayNode)
        plain = node.plain()
        assert isinstance(plain, Plain)
        with path.open("r+b") as file:
            file.truncate(500_000)
        allocation = pool.allocate("x", shape=SHAPE, dtype="f8")
        wanted = tuple(slice(0, n, 1) for n in SHAPE)
        with pytest.raises(FormatError, match="the file ends at 500000, 460"), allocation as out:
            Filling(node, wanted, allocation).read(wanted, out, 0)
    assert "x" not in pool


def test_a_file_that_is_cut_once_it_is_open_imports_nothing(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cut.h5"
    hdf5(path, "<f8")
    check = Loader._check_names

    def cut(loader: Loader) -> None:
        os.truncate(path, 500_000)
        check(loader)

    monkeypatch.setattr(Loader, "_check_names", cut)
    with pytest.raises(FormatError, match=r"cut\.h5: /x: the file ends at 500000, .* truncated"):
        engram.import_file(path, pool)
    assert len(pool) == 0


def test_a_file_that_changes_while_it_is_opened_imports_nothing(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.npy"
    np.save(path, values("f8"))
    init = NpySource.__init__

    def changed(source: NpySource, *arguments: Any) -> None:
        init(source, *arguments)
        os.utime(path, ns=(1, 1))

    monkeypatch.setattr(NpySource, "__init__", changed)
    with pytest.raises(BusyError, match="changed while it was read"):
        engram.import_file(path, pool)
    assert len(pool) == 0


def test_what_is_no_descriptor_or_does_not_fit_is_refused(pool: engram.Pool) -> None:
    allocation = pool.allocate("x", shape=SHAPE, dtype="f8")
    with allocation as out:
        with pytest.raises(ArgumentError, match="-1 is no file's descriptor"):
            allocation._read(0, -1, 0, 8)
        with pytest.raises(ArgumentError, match=f"an array of {out.nbytes} bytes ends before"):
            allocation._read(out.nbytes - 7, 0, 0, 8)
        with pytest.raises(ArgumentError, match="ends before byte"):
            allocation._read(2**64 - 1, 0, 0, 8)
        out[...] = 1


def test_a_file_that_cannot_be_read_imports_nothing(
    pool: engram.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.npy"
    np.save(path, values("f8"))
    with (tmp_path / "unreadable").open("wb") as file:
        plain = Plain(file.fileno(), 0)
        monkeypatch.setattr("engram.formats.npy.Values.plain", lambda _: plain)
        with pytest.raises(FormatError, match=r"x\.npy: /x: cannot be read: .*Bad file desc"):
            engram.import_file(path, pool)
    assert len(pool) == 0
