"""npy and npz: what NumPy saves goes in and comes out byte for byte; the rest is told."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import engram
from engram.formats import npy
from engram.formats.blocks import index, regions
from engram.formats.source import ArrayNode
from support import DTYPES, TEXT, assert_exactly, filled

if TYPE_CHECKING:
    from pathlib import Path

SHAPES = [(), (0,), (1,), (7,), (3, 0, 2), (2, 3, 4)]


def is_saved(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy saves the dtype so that it is read again."""
    try:
        return bool(np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype)) == dtype)
    except ValueError:
        return False


def around(pool: engram.Pool, file: Path, **options: Any) -> bytes:
    """Import a file, export what came of it, and return the bytes."""
    group = pool.create_group(f"g{len(pool)}")
    assert engram.import_file(file, group).complete
    out = file.with_name(f"out{file.suffix}")
    out.unlink(missing_ok=True)
    engram.export_file(group, out, **options)
    return out.read_bytes()


@pytest.mark.parametrize("dtype", [d for d in DTYPES if is_saved(d)], ids=str)
def test_a_file_of_each_dtype_comes_back_byte_for_byte(
    pool: engram.Pool, tmp_path: Path, dtype: np.dtype[Any]
) -> None:
    for n, shape in enumerate(SHAPES):
        file = tmp_path / f"x{n}.npy"
        np.save(file, filled(dtype, shape, seed=n))
        assert around(pool, file) == file.read_bytes()
        assert pool[f"g{n}/x{n}"].dtype == np.load(file).dtype
        assert pool[f"g{n}/x{n}"].shape == shape


def test_the_values_imported_are_the_files(pool: engram.Pool, tmp_path: Path) -> None:
    for n, arranged in enumerate((np.ascontiguousarray, np.asfortranarray)):
        value = arranged(filled(np.dtype(">f4"), (5, 6, 7)))
        np.save(tmp_path / f"x{n}.npy", value)
        report = engram.import_file(tmp_path / f"x{n}.npy", pool)
        assert (report.format, report.arrays, report.nbytes) == ("NPY", 1, value.nbytes)
        assert_exactly(pool[f"x{n}"], np.ascontiguousarray(value))


def test_fortran_order_comes_back_as_it_was(pool: engram.Pool, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.asfortranarray(filled(np.dtype("<i4"), (60, 70, 80))))
    assert b"'fortran_order': True" in file.read_bytes()[:128]
    assert around(pool, file) == file.read_bytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_each_version_of_the_header_comes_back(
    pool: engram.Pool, tmp_path: Path, version: tuple[int, int]
) -> None:
    file = tmp_path / "x.npy"
    with file.open("wb") as stream:
        np.lib.format.write_array(stream, np.arange(5.0), version=version)
    assert file.read_bytes()[6:8] == bytes(version)
    assert around(pool, file) == file.read_bytes()


@pytest.mark.filterwarnings("ignore:Stored array in format")
@pytest.mark.parametrize("names", [["a"], [f"{n:0100}" for n in range(700)], ["höhe ✓"]])
def test_headers_that_need_a_later_version_are_written_so(names: list[str]) -> None:
    value = np.zeros(3, [(name, "<f8") for name in names])
    stream = io.BytesIO()
    np.save(stream, value)
    assert npy.Header(value.dtype, (3,), fortran=False).encode() + bytes(value.nbytes) == (
        stream.getvalue()
    )


def test_a_header_spelled_by_others_comes_back_as_it_was(pool: engram.Pool, tmp_path: Path) -> None:
    text = b"{'descr': '<i8', 'shape': (3L,), 'fortran_order': False}   \n"
    file = tmp_path / "x.npy"
    said = npy.MAGIC + bytes((1, 0)) + struct.pack("<H", len(text)) + text
    file.write_bytes(said.replace(b"'shape': (3L,), 'fortran_order': False",
                                  b"'fortran_order': False, 'shape': (3L,)")
                     + np.arange(3).tobytes())  # fmt: skip
    assert around(pool, file) == file.read_bytes()
    assert pool["g0/x"][...].tolist() == [0, 1, 2]
    pool["g0"].create_array("x", data=np.arange(4), overwrite=True)
    engram.export_file(pool["g0/x"], tmp_path / "new.npy")
    assert np.load(tmp_path / "new.npy").tolist() == [0, 1, 2, 3]


def test_padding_inside_records_is_kept(pool: engram.Pool, tmp_path: Path) -> None:
    dtype = np.dtype([("a", "u1"), ("b", "<f8")], align=True)
    value = np.frombuffer(np.random.default_rng(1).bytes(160), dtype)
    np.save(tmp_path / "x.npy", value)
    assert value.tobytes() in (tmp_path / "x.npy").read_bytes()
    assert around(pool, tmp_path / "x.npy") == (tmp_path / "x.npy").read_bytes()


ARRAYS = hnp.arrays(
    dtype=hnp.scalar_dtypes() | hnp.array_dtypes() | hnp.nested_dtypes(),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
)


@pytest.mark.filterwarnings("ignore:Stored array in format")
@given(value=ARRAYS.filter(lambda a: a.dtype.itemsize > 0), fortran=st.booleans())
def test_whatever_is_saved_comes_back(value: np.ndarray[Any, Any], fortran: bool) -> None:
    stored = np.asfortranarray(value) if fortran and value.ndim else value
    stream = io.BytesIO()
    np.save(stream, stored)
    stream.seek(0)
    header, said = npy.read_header(stream)
    assert header.encode() == said
    assert header.dtype == value.dtype
    out = np.zeros(header.shape, header.dtype)
    values = npy.Values(stream, header, len(said))
    for region in regions(header.shape, None, header.dtype.itemsize, 40):
        values.read(out[index(region)], region)
    assert out.tobytes() == np.ascontiguousarray(value).tobytes()


def test_only_the_spans_asked_for_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy, "BLOCK_BYTES", 256)
    read: list[int] = []

    class Counting(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            found = super().read(size)
            read.append(len(found))
            return found

    for arranged in (np.ascontiguousarray, np.asfortranarray):
        value = arranged(np.arange(4096, dtype="<i4").reshape(16, 16, 16))
        stream = Counting()
        np.save(stream, value)
        stream.seek(0)
        header, said = npy.read_header(stream)
        read.clear()
        out = np.zeros(header.shape, header.dtype)
        region = (slice(0, 16), slice(3, 9), slice(2, 16))
        npy.Values(stream, header, len(said)).read(out[region], region)
        assert max(read) <= 256
        expected = np.zeros_like(out)
        expected[:, 3:9, 2:] = value[:, 3:9, 2:]
        assert np.array_equal(out, expected)


def test_an_archive_comes_back_byte_for_byte(pool: engram.Pool, tmp_path: Path) -> None:
    members: Any = {
        "z": np.arange(9.0),
        "group/inner/b": np.ones((2, 3), ">i2"),
        "a": np.array(5),
        "group/a": np.array(["x", "höhe"]),
        "empty": np.zeros((0, 4)),
        "fortran": np.asfortranarray(np.arange(12).reshape(3, 4)),
    }
    for save in (np.savez, np.savez_compressed):
        file = tmp_path / f"{save.__name__}.npz"
        save(file, **members)
        assert around(pool, file) == file.read_bytes()
    assert_exactly(pool["g0/group/inner/b"], members["group/inner/b"])
    assert pool["g0/group"].keys() == {"a", "inner"}


def test_an_archive_of_nothing_comes_back(pool: engram.Pool, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz")
    assert around(pool, tmp_path / "x.npz") == (tmp_path / "x.npz").read_bytes()


def test_an_archive_can_be_asked_to_be_compressed(pool: engram.Pool, tmp_path: Path) -> None:
    pool["x"] = np.zeros(100_000)
    for kind, small in (("npz", False), ("npz-stored", False), ("npz-compressed", True)):
        report = engram.export_file(pool, tmp_path / kind, format=kind)
        assert (report.file_nbytes < 10_000) is small
        assert report.format == "NPZ"
        assert np.array_equal(np.load(tmp_path / kind)["x"], np.zeros(100_000))


def test_part_of_an_archive_is_read(pool: engram.Pool, tmp_path: Path) -> None:
    members: Any = {"a/b": np.arange(3), "a/c": np.arange(4), "d": np.arange(5)}
    np.savez(tmp_path / "x.npz", **members)
    engram.import_file(tmp_path / "x.npz", pool, select="a/c")
    assert (list(pool), list(pool["a"])) == (["a"], ["c"])
    assert pool["a/c"][...].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("arranged", [np.ascontiguousarray, np.asfortranarray])
def test_any_region_of_a_file_is_read(tmp_path: Path, arranged: Any) -> None:
    value = arranged(np.arange(4096, dtype="<i4").reshape(8, 16, 32))
    np.save(tmp_path / "x.npy", value)
    region = (slice(1, 8, 3), slice(5, 6, 1), slice(0, 31, 7))
    with npy.FORMAT.open(tmp_path / "x.npy") as source:
        (node,) = source.nodes
        assert isinstance(node, ArrayNode)
        out = np.zeros((3, 1, 5), "<i4")
        node.read(out, region)
    assert np.array_equal(out, value[region])


def test_what_npy_has_no_place_for_is_left_out_and_told_once_for_each(
    pool: engram.Pool, tmp_path: Path
) -> None:
    pool.attrs["title"] = "run"
    inner = pool.create_group("g")
    inner.create_array("a", data=np.arange(6).reshape(2, 3), dims=("y", "x"), attrs={"units": "K"})
    inner.create_array("b", data=np.array(["x", "long"], dtype=TEXT))
    inner.create_blob("c", b"bytes")
    pool.create_group("empty")
    report = engram.export_file(pool, tmp_path / "x.npz")
    assert {entry.path: entry.what for entry in report.left_out} == {
        "/": "attribute title",
        "/g/a": "attribute units; dims y, x",
        "/empty": "group",
    }
    assert {e.path: e.what for e in report.noted} == {"/g/b": "strings", "/g/c": "blob"}
    assert (report.complete, report.attributes) == (False, 0)
    loaded = np.load(tmp_path / "x.npz")
    assert loaded["g/b"].tolist() == ["x", "long"]
    assert loaded["g/b"].dtype == np.dtype("<U4")
    assert loaded["g/c"].tobytes() == b"bytes"


def test_of_an_arrays_group_which_was_not_asked_for_nothing_is_told(
    pool: engram.Pool, tmp_path: Path
) -> None:
    pool.attrs["title"] = "run"
    inner = pool.create_group("g", attrs={"station": 7})
    inner["a"] = np.arange(3)
    inner["b"] = np.arange(3)
    inner["b"].attrs["units"] = "K"
    report = engram.export_file(inner["a"], tmp_path / "a.npy")
    assert (report.left_out, report.noted, report.complete) == ((), (), True)
    report = engram.export_file(inner["b"], tmp_path / "b.npy")
    assert [(e.path, e.what) for e in report.left_out] == [("/b", "attribute units")]
    report = engram.export_file([inner["a"]], tmp_path / "a.npz")
    assert report.complete
    both: list[Any] = [inner["a"], inner]
    for name, several in (("one", both), ("other", both[::-1])):
        report = engram.export_file(several, tmp_path / f"{name}.npz")
        assert [e.path for e in report.left_out] == ["/g", "/g/b"]


def test_a_members_bad_name_is_told_before_what_it_would_be_in(
    pool: engram.Pool, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for name in ("...npy", "../x.npy", "a.npy", "a/b.npy"):
            with archive.open(name, "w") as stream:
                np.save(stream, np.arange(3))
    report = engram.import_file(tmp_path / "x.npz", pool)
    assert {e.path: e.why for e in report.left_out} == {
        "/..": "'..' cannot be a name",
        "/../x": "'..' cannot be a name",
        "/a/b": "it would be in 'a', which is an array",
    }
    assert list(pool) == ["a"]


def test_more_than_one_array_is_refused_by_name(pool: engram.Pool, tmp_path: Path) -> None:
    for name in "abc":
        pool[name] = np.arange(3)
    with pytest.raises(engram.FormatError, match=r"/b: array: .*/c: array: .*\.npz holds many"):
        engram.export_file(pool, tmp_path / "x.npy")
    assert not list(tmp_path.iterdir())
    report = engram.export_file(pool, tmp_path / "x.npy", lossy=True)
    assert [e.path for e in report.left_out] == ["/b", "/c"]
    assert np.load(tmp_path / "x.npy").tolist() == [0, 1, 2]


def test_nothing_to_write_is_refused(pool: engram.Pool, tmp_path: Path) -> None:
    with pytest.raises(engram.FormatError, match="no array"):
        engram.export_file(pool, tmp_path / "x.npy")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (np.zeros(2, DTYPES[-4]), "overlapping"),
        (np.array(["x\0"], dtype=TEXT), "NUL"),
    ],
)
def test_what_numpy_cannot_save_is_refused(
    pool: engram.Pool, tmp_path: Path, value: np.ndarray[Any, Any], word: str
) -> None:
    pool["x"] = value
    for suffix in ("npy", "npz"):
        with pytest.raises(engram.FormatError, match=rf"/x: .*{word}"):
            engram.export_file(pool, tmp_path / f"x.{suffix}")
    assert not list(tmp_path.iterdir())


def test_pickles_are_refused_by_name(pool: engram.Pool, tmp_path: Path) -> None:
    pickled = np.array([{}], dtype=object)
    np.save(tmp_path / "x.npy", pickled, allow_pickle=True)
    with pytest.raises(engram.FormatError, match="pickle"):
        engram.import_file(tmp_path / "x.npy", pool)
    np.savez(tmp_path / "x.npz", a=pickled, b=np.arange(3))
    report = engram.import_file(tmp_path / "x.npz", pool)
    assert [(e.path, "pickle" in e.why) for e in report.left_out] == [("/a", True)]
    assert list(pool) == ["b"]


def test_members_that_cannot_stand_are_left_out_by_name(pool: engram.Pool, tmp_path: Path) -> None:
    members: Any = dict.fromkeys(("a", "a/b", "../c"), np.ones(1))
    np.savez(tmp_path / "x.npz", **members)
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
        archive.writestr("notes.txt", "hello")
    report = engram.import_file(tmp_path / "x.npz", pool)
    assert [e.path for e in report.left_out] == ["/../c", "/a/b", "/notes.txt"]
    assert list(pool) == ["a"]


def test_bytes_after_the_array_are_told(pool: engram.Pool, tmp_path: Path) -> None:
    with (tmp_path / "x.npy").open("wb") as stream:
        np.save(stream, np.arange(3))
        np.save(stream, np.arange(4))
    report = engram.import_file(tmp_path / "x.npy", pool)
    assert [e.what for e in report.left_out] == ["bytes after the array"]
    assert pool["x"][...].tolist() == [0, 1, 2]


@pytest.mark.parametrize("keep", [0, 5, 9, 40, 127, 128, 200, -1])
def test_a_truncated_file_is_refused(pool: engram.Pool, tmp_path: Path, keep: int) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.arange(99))
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(engram.FormatError, match=r"x\.npy"):
        engram.import_file(file, pool)
    assert not list(pool)


@pytest.mark.parametrize(
    "text",
    [
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (1.5,)}",
        b"{'descr': '<i8', 'fortran_order': 3, 'shape': (1,)}",
        b"{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}",
        b"{'descr': '<i8', 'shape': (1,)}",
        b"[" * 5000,
        b"__import__('os').system('true')",
        b"{'descr': ('<f4', (3,)), 'fortran_order': False, 'shape': (2,)}",  # arrays of arrays
    ],
)
def test_a_damaged_header_is_refused(pool: engram.Pool, tmp_path: Path, text: bytes) -> None:
    said = npy.MAGIC + bytes((1, 0)) + struct.pack("<H", len(text)) + text
    (tmp_path / "x.npy").write_bytes(said + bytes(100))
    with pytest.raises(engram.FormatError, match=r"x\.npy.*header"):
        engram.import_file(tmp_path / "x.npy", pool)
    assert not list(pool)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_member_fails_by_name(pool: engram.Pool, tmp_path: Path, save: Any) -> None:
    file = tmp_path / "x.npz"
    save(file, good=np.arange(9), bad=filled(np.dtype("f8"), (50_000,)))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(engram.FormatError, match=r"x\.npz.*/bad"):
        engram.import_file(file, pool)
    assert not list(pool)
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(engram.FormatError, match=r"x\.npz.*zip"):
        engram.import_file(file, pool)


def test_a_file_that_changes_while_it_is_read_is_refused(pool: engram.Pool, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.zeros(10_000_000))
    pieces = []

    def change(progress: Any) -> None:
        pieces.append(progress.done)
        os.utime(file, ns=(1, len(pieces)))

    with pytest.raises(engram.BusyError, match="changed while"):
        engram.import_file(file, pool, progress=change)
    assert len(pieces) > 1
    assert not list(pool)


def test_arrays_of_several_pieces_arrive_whole(pool: Any, tmp_path: Path) -> None:
    value = np.arange(5 << 20).reshape(1024, -1)
    np.save(tmp_path / "x.npy", value)
    np.savez(tmp_path / "y.npz", y=value)
    engram.import_file(tmp_path / "x.npy", pool)
    engram.import_file(tmp_path / "y.npz", pool)
    assert np.array_equal(pool["x"].view(), value)
    assert np.array_equal(pool["y"].view(), value)
