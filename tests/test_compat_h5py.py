"""h5py's names on a pool: what is kept, what others see of it, and what is refused by name."""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py as real
import numpy as np
import pytest

import engram
from engram.compat import h5py
from engram.compat.h5py import making

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def path(home: Path) -> str:
    return str(home / "run.h5")


@pytest.fixture
def file(path: str) -> Iterator[Any]:
    with h5py.File(path, "w", force=True) as made:
        yield made


def pool_of(file: Any) -> engram.Pool:
    """Return the pool that a file is."""
    assert isinstance(file.pool, engram.Pool)
    return file.pool


def same(ours: Any, theirs: Any) -> None:
    """Compare a dataset or group of a pool with that of a file."""
    same_attributes(ours, theirs)
    if isinstance(theirs, real.Group):
        assert isinstance(ours, h5py.Group)
        assert list(ours) == [n for n in theirs if not is_bare(theirs.get(n))]
        for name in ours:
            link = theirs.get(name, getlink=True)
            assert type(ours.get(name, getlink=True)).__name__ == type(link).__name__
            if isinstance(link, real.HardLink):
                same(ours[name], theirs[name])
        return
    for word in WORDS:
        assert getattr(ours, word) == getattr(theirs, word), word
    for check in ("check_string_dtype", "check_enum_dtype", "check_vlen_dtype"):
        assert getattr(h5py, check)(ours.dtype) == getattr(real, check)(theirs.dtype)
    if not theirs.dtype.names or not theirs.dtype.hasobject:
        np.testing.assert_array_equal(ours.fillvalue, theirs.fillvalue)
    assert [d.label for d in ours.dims] == [d.label for d in theirs.dims]
    for our, their in zip(ours.dims, theirs.dims, strict=True):
        assert [s.name for s in our.values()] == [s.name for s in their.values() if not is_bare(s)]
    alike(ours[()], theirs[()])
    if theirs.shape:
        alike(ours[:1], theirs[:1])


def same_attributes(ours: Any, theirs: Any) -> None:
    """Compare attributes, but for those in which HDF5 keeps scales."""
    attrs = {n: v for n, v in theirs.attrs.items() if n not in STRUCTURE}
    assert list(ours.attrs) == list(attrs)
    for name, value in attrs.items():
        found = ours.attrs[name]
        if isinstance(value, real.Empty):
            assert found.dtype == value.dtype
            assert found.shape is None
        else:
            assert type(found) is type(value)
            np.testing.assert_array_equal(found, value)


def alike(ours: Any, theirs: Any) -> None:
    """Compare what was read."""
    if isinstance(theirs, real.Empty):
        assert ours.dtype == theirs.dtype
        return
    assert type(ours) is type(theirs)
    if getattr(theirs, "dtype", None) is not None and theirs.dtype.kind == "O":
        for our, their in zip(np.ravel(ours), np.ravel(theirs), strict=True):
            np.testing.assert_array_equal(our, their)
        return
    if getattr(theirs, "dtype", None) is not None and theirs.dtype.hasobject:
        assert ours.tolist() == theirs.tolist()
        return
    np.testing.assert_array_equal(ours, theirs)


WORDS = (
    *("shape", "dtype", "chunks", "maxshape", "compression", "compression_opts", "ndim", "name"),
    *("shuffle", "fletcher32", "scaleoffset", "size", "nbytes", "is_scale"),
)
STRUCTURE = {
    *("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS"),
    *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"),
}


def is_bare(dataset: Any) -> bool:
    """Whether a dataset of netCDF-4 stands for a dimension alone."""
    if not isinstance(dataset, real.Dataset):
        return False
    return bytes(dataset.attrs.get("NAME", b"")).startswith(b"This is a netCDF dimension but not")


def write_all(f: Any, module: Any) -> None:
    """Write something of every kind by h5py's names, or by ours."""
    stored = {"compression": "gzip", "compression_opts": 7, "shuffle": True, "fillvalue": -3}
    shape, limits = (20, 30), (None, 30)
    d = f.create_dataset("a/chunked", shape, "i2", chunks=(5, 10), maxshape=limits, **stored)
    d[3:7, [0, 4]] = [[1, 2]] * 4
    f.create_dataset("a/lzf", data=np.arange(12.0), chunks=(4,), compression="lzf", fletcher32=True)
    f.create_dataset("a/szip_like", data=np.arange(12), scaleoffset=0, chunks=(6,))
    f.create_dataset("a/filled", (3, 2), ">f4", fillvalue=2.5)
    f["scalar"], f["complex"], f["flags"] = 3.5, 1 - 2j, np.array([True, False])
    f["text"], f["raw"], f["fixed"] = "Größe", b"bytes", np.array([b"a", b"bcd"])
    f.create_dataset("texts", data=["x", "", "yy"], maxshape=(None,), chunks=(2,))
    f.create_dataset("ascii", data=["x", "y"], dtype=module.string_dtype("ascii"))
    wide = module.string_dtype("utf-8", 6)
    f.create_dataset("wide", data=np.array(["é".encode(), b"b"], wide), dtype=wide)
    enum = module.enum_dtype({"OFF": 0, "ON": 1}, "u1")
    f.create_dataset("enum", data=np.array([1, 0, 1], "u1"), dtype=enum)
    record = np.dtype([("n", "i4"), ("xy", "f8", (2,)), ("s", "S4")])
    f.create_dataset("table", data=np.array([(1, (2, 3), b"ab"), (4, (5, 6), b"c")], record))
    f.create_dataset("vectors", (2, 2), np.dtype("(3,)f4"))[0] = np.ones((2, 3))
    ragged = f.create_dataset("ragged", (3,), module.vlen_dtype("i4"))
    ragged[0], ragged[2] = [1, 2, 3], [4]
    people = np.dtype([("name", module.string_dtype()), ("age", "i8")])
    f.create_dataset("people", data=np.array([("Ada", 36), ("Bob", 4)], people))
    f["empty"], f["none"] = np.zeros((0, 3)), module.Empty("f8")
    f["float16"] = np.array([0.5, 2], "f2")
    f["x"], f["field"] = np.arange(3.0), np.ones((2, 3))
    f["x"].make_scale("the x")
    f["field"].dims[1].attach_scale(f["x"])
    f["field"].dims[0].label = "row"
    f["soft"], f["dangling"] = module.SoftLink("/a/lzf"), module.SoftLink("nowhere")
    ordered = f.create_group("ordered", track_order=True)
    for name in ("z", "a", "m"):
        ordered[name] = 1
        ordered.attrs[name] = name
    attrs = f["table"].attrs
    attrs["number"], attrs["text"], attrs["bytes"] = 5, "Ö", np.bytes_(b"abc")
    attrs["texts"], attrs["array"], attrs["none"] = ["a", "ß"], np.eye(2), module.Empty("i4")
    attrs.create("utf8", np.array("é".encode(), wide), dtype=wide)
    attrs["record"] = np.array([(1, (2, 3), b"ab")], record)


def test_what_was_written_is_what_h5py_shows(file: Any, home: Path) -> None:
    write_all(file, h5py)
    with real.File(home / "real.h5", "w") as other:
        write_all(other, real)
        same(file, other)


def test_an_export_is_the_file_that_was_meant(path: str, home: Path) -> None:
    with h5py.File(path, "w") as ours:
        write_all(ours, h5py)
        ours["hard"] = ours["x"]
    with real.File(home / "real.h5", "w") as other:
        write_all(other, real)
        other["hard"] = other["x"]
    with engram.open(path) as pool:
        engram.export_file(pool, home / "out.h5")
    with real.File(home / "out.h5") as out, real.File(home / "real.h5") as other:
        assert list(out) == list(other)
        assert out["hard"] == out["x"]
        for name in other:
            if other.get(name) is None:
                continue
            found, wanted = out[name], other[name]
            if isinstance(wanted, real.Group):
                assert list(found) == list(wanted)
                continue
            assert (found.dtype, found.shape, found.chunks) == (
                wanted.dtype,
                wanted.shape,
                wanted.chunks,
            )
            assert found.maxshape == wanted.maxshape
            assert real.check_enum_dtype(found.dtype) == real.check_enum_dtype(wanted.dtype)
            assert real.check_string_dtype(found.dtype) == real.check_string_dtype(wanted.dtype)
            alike(found[()], wanted[()])
        assert list(out["ordered"]) == ["z", "a", "m"]
        assert list(out["ordered"].attrs) == ["z", "a", "m"]
        chunked = out["a/chunked"]
        assert (chunked.compression, chunked.compression_opts, chunked.shuffle) == ("gzip", 7, True)
        assert chunked.fillvalue == -3
        assert out["soft"] == out["a/lzf"]
        assert out["field"].dims[1]["the x"] == out["x"]
        assert out["field"].dims[0].label == "row"
        assert out["table"].attrs["none"] == real.Empty("i4")


def test_what_is_imported_is_what_h5py_shows(path: str, home: Path) -> None:
    with real.File(home / "real.h5", "w") as other:
        write_all(other, real)
    for chunks in (False, "keep"):
        with h5py.File(path, "w") as ours:
            engram.import_file(home / "real.h5", pool_of(ours), chunks=chunks)
        with h5py.File(path) as ours, real.File(home / "real.h5") as other:
            same(ours, other)


def test_what_is_imported_into_a_group_is_a_file_of_its_own(path: str, home: Path) -> None:
    with real.File(home / "real.h5", "w") as other:
        write_all(other, real)
    with engram.create(path, size="64 MiB", force=True) as pool:
        engram.import_file(home / "real.h5", pool.create_group("run/17"))
    with h5py.File(f"{path}/run/17") as ours, real.File(home / "real.h5") as other:
        same(ours, other)
        assert ours["soft"].name == "/a/lzf"
    with h5py.File(path) as whole:
        assert whole["run/17/soft"].name == "/run/17/a/lzf"
        assert whole["run/17/field"].dims[1][0].name == "/run/17/x"


def test_imported_datasets_grow(path: str, home: Path) -> None:
    with real.File(home / "real.h5", "w") as other:
        write_all(other, real)
    with h5py.File(path, "w") as ours:
        engram.import_file(home / "real.h5", pool_of(ours))
        again = ours["a/chunked"]
        ours["a/chunked"].resize((25, 30))
        ours["a/chunked"][24] = 9
        assert again[24, 0] == 9
        assert again[23, 0] == -3
        assert again[3, 0] == 1
        ours["texts"].resize((5,))
        ours["texts"][4] = "last"
        assert ours["texts"].asstr()[:].tolist() == ["x", "", "yy", "", "last"]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (lambda f: f["d"].ref, "references"),
        (lambda f: f["d"].regionref, "references"),
        (lambda _: h5py.Reference(), "Reference"),
        (lambda f: f.create_dataset("r", (2,), h5py.ref_dtype), "references"),
        (lambda _: h5py.VirtualLayout((2,), "f4"), "VirtualLayout.*many processes"),
        (lambda f: f.create_virtual_dataset("v", None), "virtual"),
        (lambda f: f.__setitem__("e", h5py.ExternalLink("o.h5", "/x")), "import that file"),
        (lambda f: f.create_dataset(None, data=1), "no name"),
        (lambda f: f.create_dataset("e", (2,), "f4", external="raw.bin"), "external"),
        (lambda f: h5py.File(f.filename + "2", "w", driver="mpio"), "mpio"),
        (lambda f: h5py.File(f.filename + "2", "w", userblock_size=512), "userblock_size"),
        (lambda f: f.attrs.get_id("a"), "low-level"),
        (lambda f: f.attrs.create("v", [1, 2], dtype=h5py.vlen_dtype("i4")), "attribute"),
    ],
)
def test_what_cannot_be_is_refused_by_name(file: Any, what: Any, told: str) -> None:
    file["d"] = np.arange(3)
    before = list(file)
    with pytest.raises(h5py.RefusedError, match=told) as refused:
        what(file)
    assert isinstance(refused.value, engram.EngramError)
    assert list(file) == before


def test_low_level_names_say_what_to_use(file: Any) -> None:
    with pytest.raises(AttributeError, match=r"h5py\.h5d\.create: .*File, Group and Dataset"):
        _ = h5py.h5d.create
    with pytest.raises(AttributeError, match="low-level"):
        _ = file.id.get_create_plist
    assert h5py.h5t.string_dtype() == h5py.string_dtype()


def test_modes(path: str) -> None:
    with pytest.raises(FileNotFoundError):
        h5py.File(path, "r")
    with pytest.raises(FileNotFoundError):
        h5py.File(path, "r+")
    with h5py.File(path, "a") as f:
        f["x"] = 1
    with pytest.raises(FileExistsError):
        h5py.File(path, "x")
    with h5py.File(path, "a") as f:
        assert f["x"][()] == 1
        with pytest.raises(OSError, match="already open"):
            h5py.File(path, "w")
    with h5py.File(path, "r") as f:
        with pytest.raises(OSError, match="read-only"):
            f["x"][()] = 2
        with pytest.raises(ValueError, match="read-only"):
            f["y"] = 2
        with pytest.raises(KeyError, match="read-only"):
            del f["x"]
    with h5py.File(path, "w") as f:
        assert not list(f)
    assert not f
    with pytest.raises(ValueError, match="closed"):
        _ = f.mode
    assert h5py.is_hdf5(path)


def test_what_is_no_pool_is_not_replaced(home: Path) -> None:
    with real.File(home / "real.h5", "w") as other:
        other["x"] = 1
    for mode in ("r", "r+", "a"):
        with pytest.raises(OSError, match="is an HDF5 file, and no pool: import it"):
            h5py.File(home / "real.h5", mode)
    with pytest.raises(OSError, match="is not replaced"):
        h5py.File(home / "real.h5", "w")
    (home / "folder").mkdir()
    (home / "folder" / "precious").write_text("x")
    with pytest.raises(OSError, match="is not replaced"):
        h5py.File(home / "folder", "w")
    (home / "empty").touch()
    h5py.File(home / "empty", "w").close()
    with real.File(home / "real.h5") as other:
        assert other["x"][()] == 1


def test_a_group_is_a_file(path: str) -> None:
    with h5py.File(path, "w") as f:
        f["deep/er/x"] = np.arange(3)
        f["top"] = 1
    with h5py.File(path + "/deep", "r+") as f:
        assert list(f) == ["er"]
        assert f["/er/x"].name == "/er/x"
        assert f["er"].parent.name == "/"
        f["link"] = h5py.SoftLink("/er/x")
        assert f["link"][1] == 1
    with h5py.File(path + "/new", "w") as f:
        f["y"] = 2
    with engram.open(path) as pool:
        assert pool["new/y"][()] == 2
        with h5py.File(pool["deep"]) as f:
            assert f["link"][2] == 2
        assert pool
    with pytest.raises(FileNotFoundError, match="nothing"):
        h5py.File(path + "/nothing")
    with pytest.raises(OSError, match="is no group"):
        h5py.File(path + "/top")


def test_engram_sees_the_same(path: str) -> None:
    with h5py.File(path, "w") as f:
        d = f.create_dataset("d", data=np.arange(10.0), chunks=(5,), compression="lzf")
        d.attrs["unit"] = "m"
        f["s"] = ["a", "b"]
    with engram.open(path) as pool:
        assert pool["d"].codec == "lz4"
        assert pool["d"].attrs["unit"] == "m"
        assert pool["s"][...].tolist() == ["a", "b"]
        pool.create_array("own", data=np.zeros((4, 2)), chunks=(2, 2), dims=("t", "x"))
        pool.create_blob("blob", b"bytes")
    with h5py.File(path, "r+") as f:
        assert f["own"].maxshape == (None, None)
        assert [d.label for d in f["own"].dims] == ["t", "x"]
        f["own"].resize((6, 2))
        assert f["own"].shape == (6, 2)
        assert f["blob"][:].tobytes() == b"bytes"


def test_links(file: Any) -> None:
    file["a/x"] = np.arange(4)
    file["hard"] = file["a/x"]
    file["hard2"] = file["a/x"]
    file["soft"] = h5py.SoftLink("a")
    file["loop"] = h5py.SoftLink("/loop")
    assert file["soft/x"][1] == 1
    assert file["hard"] == file["a/x"]
    assert file.get("hard", getlink=True, getclass=True) is h5py.HardLink
    assert "loop" in file
    with pytest.raises(KeyError, match="leads"):
        file["loop"]
    file["soft/new"] = 5
    assert file["a/new"][()] == 5
    with pytest.raises(ValueError, match="taken"):
        file.create_group("soft")
    file["a/x"][0] = 7
    del file["a"]
    assert file["hard"][0] == 7
    assert file["hard2"] == file["hard"]
    with pytest.raises(KeyError):
        file["soft/x"]
    del file["hard"]
    assert file["hard2"][0] == 7
    del file["hard2"], file["soft"], file["loop"]
    assert list(file) == []


def test_moves_and_copies_keep_what_is_said(file: Any, home: Path) -> None:
    d = file.create_dataset("d", data=np.arange(6).reshape(2, 3), chunks=(1, 3), compression="gzip")
    d.dims[0].label = "row"
    d.attrs["n"] = h5py.Empty("f4")
    file.create_group("g")
    file.move("d", "g/moved")
    assert file["g/moved"].dims[0].label == "row"
    assert file["g/moved"].attrs["n"] == h5py.Empty("f4")
    with h5py.File(home / "other", "w", force=True) as other:
        file.copy("g", other)
        for f in (file, other):
            found = f["g/moved"]
            assert (found.compression, found.chunks, found.dims[0].label) == ("gzip", (1, 3), "row")
            assert found.attrs["n"] == h5py.Empty("f4")
            assert found[1].tolist() == [3, 4, 5]
    with pytest.raises(ValueError, match="not there"):
        file.move("nothing", "x")
    with pytest.raises(ValueError, match="taken"):
        file.move("g", "g/moved")


def test_numbers_that_do_not_fit_are_the_nearest(file: Any) -> None:
    d = file.create_dataset("d", (4,), "u1")
    d[:] = np.array([300, -1, 2.7, np.nan])
    assert d[:].tolist() == [255, 0, 2, 0]
    d[:2] = np.array([1000, -1000])
    assert d[:].tolist() == [255, 0, 2, 0]
    assert d.astype("i1")[:].tolist() == [127, 0, 2, 0]


def test_fill_values_of_what_grows(file: Any) -> None:
    d = file.create_dataset("d", (2, 2), "f4", maxshape=(None, None), chunks=(2, 2), fillvalue=-1)
    d[0] = 5
    d.resize((3, 4))
    assert d[:].tolist() == [[5, 5, -1, -1], [-1] * 4, [-1] * 4]
    d.resize((1, 1))
    d.resize((2, 2))
    assert d[:].tolist() == [[5, -1], [-1, -1]]
    d.resize(4, axis=0)
    assert d.shape == (4, 2)
    t = file.create_dataset("t", (1,), h5py.string_dtype(), maxshape=(None,), fillvalue="none")
    t.resize((3,))
    assert t.asstr()[:].tolist() == ["none"] * 3


def test_handles_follow_what_is_put_anew(file: Any) -> None:
    d = file.create_dataset("t", data=["a"], maxshape=(None,), chunks=(2,))
    other = file["t"]
    file["alias"] = d
    d.dims[0].label = "n"
    d.resize((3,))
    other[2] = "c"
    assert d.asstr()[2] == file["alias"].asstr()[2] == "c"
    assert file["t"].dims[0].label == "n"


def test_files_that_are_dropped_are_closed(path: str) -> None:
    h5py.File(path, "w")["x"] = 1
    h5py.File(path, "w").close()  # which refuses what is open


def test_objects_do_not_pickle(file: Any) -> None:
    file["d"] = 1
    for thing in (file, file["d"], file.create_group("g")):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(thing)


def test_threads_append_to_datasets_of_their_own(file: Any) -> None:
    def work(name: str) -> None:
        d = file.create_dataset(name, (0,), "i4", maxshape=(None,), chunks=(8,))
        d.dims[0].label = name
        for n in range(20):
            d.resize((n + 1,))
            d[n] = n

    threads = [threading.Thread(target=work, args=(f"d{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(file) == ["d0", "d1", "d2", "d3"]
    for name, dataset in file.items():
        assert dataset[:].tolist() == list(range(20))
        assert dataset.dims[0].label == name


WRITER = """
import sys, numpy as np
import engram.compat.h5py as h5py
with h5py.File(sys.argv[1], "r+") as f:
    d = f[sys.argv[2]]
    print("ready", flush=True)
    for n in range(10**6):
        d.resize((d.shape[0] + 4, 3))
        d[-4:] = n
        d.attrs["n"] = n
        f[f"{sys.argv[2]}-{n % 5}-{sys.argv[3]}"] = np.arange(3)
        del f[f"{sys.argv[2]}-{n % 5}-{sys.argv[3]}"]
"""


def test_writers_that_are_killed_leave_a_file_that_reads(path: str) -> None:
    with h5py.File(path, "w", force=True) as f:
        for name in ("a", "b"):
            f.create_dataset(name, (0, 3), "i8", maxshape=(None, 3), chunks=(8, 3))
    for round_ in range(3):
        writers = []
        for name in ("a", "b"):
            command = [sys.executable, "-c", WRITER, path, name, str(round_)]
            writers.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        with h5py.File(path) as f:
            seen = [f["a"].shape[0]]
            for _ in range(50):
                rows = f["a"][:]
                assert rows.shape[1] == 3
                seen.append(f["a"].shape[0])
            assert seen == sorted(seen)
        time.sleep(0.05)
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
    with h5py.File(path, "r+") as f:
        for name in ("a", "b"):
            assert f[name].shape[0] % 4 == 0
            f[name].resize((4, 3))
            assert (f[name][:] == f[name][0]).all()
    assert engram.verify(path)


def test_a_fork_reads_and_writes(file: Any) -> None:
    d = file.create_dataset("d", (4,), "i4")
    pid = os.fork()
    if not pid:
        try:
            d[1] = 7
            file["child"] = 1
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert d[:].tolist() == [0, 7, 0, 0]
    assert "child" in file


def test_a_pool_that_is_full_leaves_nothing(home: Path) -> None:
    with h5py.File(home / "small", "w", size="8 MiB", force=True) as f:
        with pytest.raises(engram.PoolFullError):
            f["big"] = np.zeros(4 << 20)
        with pytest.raises(engram.PoolFullError):
            f.create_dataset("filled", (4 << 20,), "f8", fillvalue=1)
        assert list(f) == []
        f["small"] = 1


def test_many_files_are_open_at_once(home: Path) -> None:
    """Each is bounded by its filesystem alone; what it reserves leaves room for others."""
    files = [h5py.File(home / f"{n}", "w", size="512 GiB") for n in range(100)]
    with engram.create(home / "pool", size="1 GiB", force=True) as pool:
        pool["x"] = 1
    assert list(h5py.File(home / "90", "r")) == []
    for file in files:
        file.close()


LISTS = [
    (5, ..., [0, 2]), (slice(1, 3), [0, 2], slice(None), 1), (0, slice(None), [1], slice(1, 3)),
    (slice(None), 1, slice(None), [0, 1, 3]), (slice(None), [2], 1), (2, slice(None), 1, [0, 3]),
]  # fmt: skip
"""Lists apart from integers: their axis stays where it is, where numpy puts it first."""


@pytest.mark.parametrize("key", LISTS, ids=str)
@pytest.mark.parametrize("kind", ["plain", "chunks", "pairs", "records", "parts"])
def test_a_list_selects_along_its_axis_whatever_integers_stand_apart_from_it(
    file: Any, tmp_path: Path, kind: str, key: Any
) -> None:
    shape = (6, 3, 4, 4)
    with real.File(tmp_path / "real.h5", "w") as other:
        ours, theirs = _counted(h5py, file, shape, kind), _counted(real, other, shape, kind)
        alike(ours[key], theirs[key])
        old = theirs["a", *key] if kind in {"records", "parts"} else theirs[key]
        new = 1000 + np.arange(old.size).reshape(old.shape)
        for dataset in (ours, theirs):
            whole = dataset[key]
            if kind == "parts":  # of which h5py writes no single field
                whole["a"] = new
                dataset[key] = whole
            else:
                dataset[("a", *key) if kind == "records" else key] = new
        alike(ours[()], theirs[()])


def _counted(module: Any, target: Any, shape: tuple[int, ...], kind: str) -> Any:
    """Make a dataset of a kind, which counts."""
    dtype = {
        "pairs": np.dtype(("i8", (2,))),
        "records": np.dtype([("a", "i8"), ("b", "f4")]),
        "parts": np.dtype([("a", "i8"), ("s", module.string_dtype())]),
    }.get(kind, np.dtype("i8"))
    made = target.create_dataset(
        "x", shape, dtype, chunks=(2, 2, 3, 4) if kind == "chunks" else None
    )
    counted = np.arange(math.prod(shape)).reshape(shape)
    if dtype.names is None:
        made[...] = np.stack([counted, -counted], -1) if kind == "pairs" else counted
    else:
        whole = made[...]
        whole["a"] = counted
        made[...] = whole
    return made


def test_what_is_read_into_and_written_of_an_array_lies_along_its_axes(file: Any) -> None:
    made = file.create_dataset("x", data=np.zeros((2, 3, 4)))
    source = np.arange(24.0).reshape(2, 3, 4)
    key = (1, slice(None), [0, 2, 3])
    made.write_direct(source, key, key)
    assert made[1][:, [0, 2, 3]].tolist() == source[1][:, [0, 2, 3]].tolist()
    into = np.zeros((2, 3, 4))
    made.read_direct(into, key, key)
    assert into.tolist() == made[()].tolist()


def test_no_strings_are_written_where_nothing_is_selected(file: Any, tmp_path: Path) -> None:
    with real.File(tmp_path / "real.h5", "w") as other:
        for target in (file, other):
            made = target.create_dataset("one", (2, 3), "S3")
            made[2:] = np.empty((0, 3), object)
            assert made[()].tolist() == [[b""] * 3] * 2


def test_a_dataset_in_chunks_grows_back_to_the_shape_that_it_had(file: Any, tmp_path: Path) -> None:
    with real.File(tmp_path / "real.h5", "w") as other:
        for module, target in ((h5py, file), (real, other)):
            for name, dtype in (("plain", "i4"), ("text", module.string_dtype())):
                made = target.create_dataset(name, (7, 2), dtype, chunks=(3, 2))
                made.resize((1, 2))
                assert made.maxshape == (7, 2)
                made.resize(7, axis=0)
                with pytest.raises((RuntimeError, ValueError)):
                    made.resize((8, 2))
                assert (made.shape, made.maxshape) == ((7, 2), (7, 2))


@pytest.mark.parametrize("mode", ["w", "a"])
def test_an_empty_file_as_tempfile_makes_it_becomes_a_pool(home: Path, mode: str) -> None:
    (home / "made").touch()
    with h5py.File(home / "made", mode, force=True) as file:
        file["x"] = 1
    (home / "other").write_text("text")
    with pytest.raises(OSError, match="import"):
        h5py.File(home / "other", "a", force=True)
    assert (home / "other").read_text() == "text"


def test_an_attribute_that_is_set_anew_is_the_last_in_the_order(path: str, tmp_path: Path) -> None:
    orders = []
    for module, name, more in ((h5py, path, {"force": True}), (real, tmp_path / "real.h5", {})):
        with module.File(name, "w", track_order=True, **more) as file:
            for attribute in "zaq":
                file.attrs[attribute] = 1
            file.attrs["z"] = 2
            file.attrs.modify("a", 3)
            orders.append(list(file.attrs))
    assert orders[0] == orders[1] == ["a", "q", "z"]


def test_what_fails_leaves_no_groups_on_its_way(home: Path) -> None:
    with (
        h5py.File(home / "small", "w", size="8 MiB", force=True) as f,
        h5py.File(home / "other", "w", force=True) as other,
    ):
        other["x"] = 1
        long = "n" * 300
        fails: list[Callable[[], Any]] = [
            lambda: f.create_dataset("a/b/c", data=np.zeros(4 << 20)),
            lambda: f.create_dataset("a/b/c", (4 << 20,), "f8", fillvalue=1),
            lambda: f.create_dataset("a/b/c", data=[object()], dtype=h5py.vlen_dtype("i4")),
            lambda: f.create_group(f"/a/b/{long}"),
            lambda: f.__setitem__("a/b/c", other["x"]),
            lambda: other.copy("x", f, f"a/{long}"),
        ]
        for fail in fails:
            with pytest.raises(Exception, match=r".") as told:
                fail()
            assert list(f) == [], told.value
        f.create_dataset("a/b/c", (3,), "f8", fillvalue=1)
        f["d/e"] = h5py.SoftLink("/a")
        assert f["d/e/b/c"][()].tolist() == [1, 1, 1]


def test_many_make_one_way_at_once(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put, others = making.put, iter(range(2))

    def put_after_another(target: Any, at: Any, wanted: Any) -> Any:
        number = next(others, None)
        if number is not None:
            make = threading.Thread(
                target=file.create_dataset, args=(f"way/to/{number}",), kwargs={"data": number}
            )
            make.start()
            make.join()
        return put(target, at, wanted)

    monkeypatch.setattr(making, "put", put_after_another)
    file.create_dataset("way/to/mine", data=[7])
    assert list(file["way/to"]) == ["0", "1", "mine"]


@pytest.mark.parametrize("end", ["close", "drop", "exit"])
def test_a_file_in_memory_alone_goes_with_its_process(path: str, end: str) -> None:
    child = f"""
import os, sys
import engram.compat.h5py as h5py
file = h5py.File({path!r}, "w", driver="core", backing_store=False, force=True)
values = file.create_dataset("x", data=[1])
if not os.fork():
    del file, values
    sys.exit()
os.wait()
assert os.path.exists({path!r}) and values[0] == 1
if {end!r} == "close":
    file.close()
elif {end!r} == "drop":
    del file, values
assert os.path.exists({path!r}) == ({end!r} == "exit")
"""
    subprocess.run([sys.executable, "-c", child], check=True)
    assert not Path(path).exists()


@pytest.mark.parametrize("mode", ["r", "r+", "a", "w", "w-"])
def test_what_is_there_is_never_removed_as_if_it_were_in_memory_alone(path: str, mode: str) -> None:
    with h5py.File(path, "w", force=True) as file:
        file["group/x"] = 1
    for name in (path, f"{path}/group", f"{path}/new"):
        how: dict[str, Any] = {"driver": "core", "backing_store": False, "force": True}
        if mode == "r" and not name.endswith("new"):
            with h5py.File(name, mode, **how) as file:
                assert file.mode == "r"
        else:
            with pytest.raises(
                (h5py.RefusedError, FileNotFoundError), match=r"there is no|where nothing is"
            ):
                h5py.File(name, mode, **how)
        with h5py.File(path) as file:
            assert list(file) == ["group"]
            assert file["group/x"][()] == 1
