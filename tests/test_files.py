"""Files of a pool are what programs take for files, whatever lies below them."""

import contextlib
import io
import itertools
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engram
from engram import files
from pool_files import BIG, MIB, SMALL, content, sparse, written

PAGE = 4096

APPENDER = """
import sys, engram
who, count = sys.argv[2], int(sys.argv[3])
pool = engram.open(sys.argv[1])
with pool.open_file("log", "ab") as file:
    for n in range(count):
        file.write(f"{who} {n} {'.' * (n * 7 % 90)}\\n".encode())
"""

TOLD = """
import sys, engram
pool = engram.open(sys.argv[1])
file = None
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


pytestmark = pytest.mark.usefixtures("sound")


class Other:
    """Another process, which has the pool open and does as it is told."""

    def __init__(self, pool: engram.Pool) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TOLD, pool.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def does(self, line: str) -> None:
        """Let it run a line, to its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def other(pool: engram.Pool) -> Iterator[Other]:
    """Give another process, which ends after the test."""
    made = Other(pool)
    yield made
    made.process.communicate()
    assert made.process.returncode == 0


# Opening


@pytest.mark.parametrize("mode", ["r", "rb", "w", "wb", "a", "ab", "x", "xb"])
@pytest.mark.parametrize("plus", ["", "+"])
@pytest.mark.parametrize("data", [None, SMALL, BIG], ids=["absent", "small", "big"])
def test_modes_do_what_they_do_for_files_of_the_system(
    pool: engram.Pool, tmp_path: Path, mode: str, plus: str, data: bytes | None
) -> None:
    if data is not None:
        pool["f"] = data
        (tmp_path / "f").write_bytes(data)
    wanted = "b" + mode.replace("b", "") + plus
    try:
        theirs = io.FileIO(tmp_path / "f", mode.replace("b", "") + plus)
    except FileNotFoundError:
        with pytest.raises(engram.NotFoundError, match=r"no file 'f': open it with mode 'wb'"):
            pool.open_file("f", mode + plus)
        assert "f" not in pool
        return
    except FileExistsError:
        with pytest.raises(engram.ExistsError, match=r"there is 'f' already: .* mode 'wb'"):
            pool.open_file("f", mode + plus)
        assert pool["f"][...] == data
        return
    with theirs, pool.open_file("f", mode + plus) as ours:
        assert sorted(ours.mode) == sorted(wanted)
        assert (ours.readable(), ours.writable(), ours.seekable()) == (
            theirs.readable(),
            theirs.writable(),
            theirs.seekable(),
        )
        assert ours.name == "f"
        assert ours.blob == pool["f"]
        ours.seek(2)
        theirs.seek(2)
        for call in ("read", "readall"):
            if theirs.readable():
                assert getattr(ours, call)() == getattr(theirs, call)()
                continue
            with pytest.raises(io.UnsupportedOperation, match=r"'f' was opened as .*for reading"):
                getattr(ours, call)()
        ours.seek(1)
        theirs.seek(1)
        if theirs.writable():
            assert ours.write(b"XY") == theirs.write(b"XY")
            assert (ours.tell(), ours.truncate()) == (theirs.tell(), theirs.truncate())
        else:
            refused: list[Callable[[], object]] = [
                lambda: ours.write(b"XY"),
                lambda: ours.truncate(0),
                lambda: ours.punch(0, 1),
                lambda: ours.allocate(0, 1),
            ]
            for call_it in refused:
                with pytest.raises(io.UnsupportedOperation, match=r"opened as 'rb', not for writ"):
                    call_it()
    assert pool["f"][...] == (tmp_path / "f").read_bytes()


@pytest.mark.parametrize(
    "mode", ["", "b", "t", "rt", "rw", "rbb", "wa", "U", "r++", "R", 5, None, b"rb"], ids=repr
)
def test_a_mode_that_is_none_is_refused(pool: engram.Pool, mode: Any) -> None:
    for path in ("f", "there"):
        pool["there"] = SMALL
        with pytest.raises(engram.ArgumentError) as refused:
            pool.open_file(path, mode)
        assert f"mode {mode!r} is unknown" in str(refused.value)
        assert 'use "rb"' in str(refused.value)
        assert "TextIOWrapper" in str(refused.value)
    assert list(pool) == ["there"]
    assert pool["there"][...] == SMALL


@pytest.mark.parametrize("mode", ["rb", "rb+", "wb", "ab", "xb"])
def test_what_is_no_file_is_refused(pool: engram.Pool, mode: str) -> None:
    pool.create_group("g")
    pool["g/f"] = SMALL
    for path in ("g", "/g", "", "/", "g/.."):
        with pytest.raises(engram.ArgumentError, match="is a group, and no file") as refused:
            pool.open_file(path, mode)
        assert f'"{path}"' in str(refused.value)
    with pytest.raises(engram.ArgumentError, match="is no folder"):
        pool.open_file("g/f/below", mode)
    with pytest.raises(engram.ArgumentError, match="5 is of type int, and names and paths are str"):
        pool.open_file(5, mode)  # type: ignore[arg-type]
    assert (list(pool), list(pool["g"])) == (["g"], ["f"])


def test_chunked_arrays_and_text_are_refused(pool: engram.Pool) -> None:
    pool.create_array("chunked", shape=(100,), dtype="f8", chunks=(10,))
    pool["text"] = np.array(["a", "bb"], np.dtypes.StringDType())
    for mode in ("rb", "rb+", "ab"):
        with pytest.raises(engram.UnsupportedError, match=r'"chunked" is chunked.*: read boxes'):
            pool.open_file("chunked", mode)
        with pytest.raises(engram.UnsupportedError, match=r'"text" has strings.*: read them as an'):
            pool.open_file("text", mode)


def test_a_new_file_makes_its_groups(pool: engram.Pool) -> None:
    for mode in ("wb", "ab", "xb"):
        with pool.open_file(f"new/{mode}/f", mode) as file:
            file.write(SMALL)
        with pool["new"].open_file(f"/{mode}/f", mode) as file:  # from the root
            file.write(SMALL)
        assert content(pool, f"{mode}/f") == SMALL
    assert content(pool, "new/wb/f") == SMALL
    assert pool.create_file("made/with/it").parent == pool["made/with"]


def test_a_file_that_could_not_be_opened_leaves_nothing_to_close(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    pool["text"] = np.array(["a"], np.dtypes.StringDType())
    with pytest.raises(engram.UnsupportedError) as refused:
        pool.open_file("text")
    frame = refused.value.__traceback__
    while frame is not None:
        for local in frame.tb_frame.f_locals.values():
            if isinstance(local, files.File):
                assert local.closed
        frame = frame.tb_next
    assert said == []


def test_what_is_closed_does_nothing_any_more(pool: engram.Pool) -> None:
    file = pool.open_file("f", "wb+")
    file.write(BIG)
    assert "closed" not in repr(file)
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        file.read,
        file.readall,
        file.tell,
        file.sync,
        file.truncate,
        file.view,
        lambda: file.readinto(bytearray(1)),
        lambda: file.write(b"x"),
        lambda: file.seek(0),
        lambda: file.punch(0, 1),
        lambda: file.allocate(0, 1),
        lambda: file.segments,
        file.__enter__,
    ]
    for call in calls:
        with pytest.raises(ValueError, match="closed file"):
            call()
    assert file.closed
    assert "(closed)" in repr(file)
    assert (file.name, file.mode) == ("f", "wb+")
    assert pool["f"][...] == BIG


def test_the_kernel_has_no_number_for_it(pool: engram.Pool) -> None:
    with (
        pool.open_file("f", "wb") as file,
        pytest.raises(io.UnsupportedOperation, match="open it through a mount"),
    ):
        file.fileno()


# Seeking, cutting, holes


def test_places_that_are_none_are_refused(pool: engram.Pool) -> None:
    wrong: Any
    with pool.open_file("f", "wb+") as file:
        file.write(BIG)
        size = len(BIG)
        assert file.seek(-1, os.SEEK_END) == size - 1
        assert file.seek(-1, os.SEEK_CUR) == size - 2
        for args, place in (((-1,), -1), ((-size - 1, os.SEEK_END), -1), ((-size, 1), -2)):
            with pytest.raises(engram.ArgumentError, match=f"leads to {place}, before.* 'f'"):
                file.seek(*args)
        for wrong in ("1", 1.5, None):
            with pytest.raises(engram.ArgumentError, match=f"offset {wrong!r} is no number"):
                file.seek(wrong)
        for wrong in (9, -1):
            with pytest.raises(engram.ArgumentError, match=f"whence {wrong} is unknown: use os.S"):
                file.seek(0, wrong)
        assert file.tell() == size - 2, "a refusal moves nothing"
        for wrong in ("1", 1.5, -1):
            with pytest.raises(engram.ArgumentError, match=f"{wrong!r}"):
                file.truncate(wrong)
            with pytest.raises(engram.ArgumentError, match=f"offset {wrong!r} is no number"):
                file.punch(wrong, 1)
            with pytest.raises(engram.ArgumentError, match=f"nbytes {wrong!r} is no number"):
                file.allocate(0, wrong)
        with pytest.raises(engram.ArgumentError, match="at least one byte"):
            file.punch(0, 0)
        for call in (file.truncate, file.seek):
            with contextlib.suppress(engram.EngramError):
                call(2**62)
        file.seek(2**63 - 2)
        with pytest.raises(engram.EngramError):
            file.write(b"beyond")
        with pytest.raises(engram.PoolFullError):
            file.allocate(0, pool.size * 2)
        file.truncate(size)
    assert pool["f"][...] == BIG


def test_holes_read_as_zeros_and_are_found(pool: engram.Pool) -> None:
    expected = sparse(pool, "f")
    blob = pool["f"]
    with pool.open_file("f", "rb+") as file:
        assert file.readall() == expected
        segments = [(at, at + count) for at, count in file.segments]
        assert segments == sorted(segments)
        assert segments == [(at, at + count) for at, count in blob.segments]
        for (_, end), (begin, _) in itertools.pairwise(segments):
            assert end <= begin
        found, at = [], 0
        while at < len(expected):
            try:
                data = file.seek(at, os.SEEK_DATA)
            except engram.ArgumentError:
                break
            assert file.tell() == data
            at = file.seek(data, os.SEEK_HOLE)
            assert file.tell() == at
            found.append((data, at))
        covered = np.zeros(len(expected), bool)
        for data, at in found:
            covered[data:at] = True
        of_segments = np.zeros(len(expected), bool)
        for begin, end in segments:
            of_segments[begin:end] = True
        assert (covered == of_segments).all()
        values = np.frombuffer(expected, "u1")
        assert not values[~covered].any()
        assert not covered[2 * MIB + 8192 : 2 * MIB + 48_192 - PAGE].any(), "what was punched"
        assert file.seek(0, os.SEEK_HOLE) == 0
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            for place in (len(expected), len(expected) + 1, -1):
                with pytest.raises(engram.ArgumentError, match=f"'f' has nothing from {place} on"):
                    file.seek(place, whence)
        file.truncate(4 * MIB)
        with pytest.raises(engram.ArgumentError, match="has nothing from"):
            file.seek(4 * MIB - PAGE, os.SEEK_DATA)
        assert file.seek(4 * MIB - PAGE, os.SEEK_HOLE) == 4 * MIB - PAGE


def test_holes_take_no_space_and_punching_gives_it_back(pool: engram.Pool) -> None:
    before = pool.used
    with pool.open_file("f", "wb+") as file:
        file.truncate(1 << 40)
        assert pool.used - before < MIB
        file.seek(1 << 39)
        file.write(BIG)
        assert pool.used - before < 4 * MIB
        file.seek(1 << 39)
        assert file.read(len(BIG) + 2) == BIG + b"\0\0"
        file.truncate(len(BIG))
        assert file.segments == []
        file.allocate(0, 40 * MIB)
        assert pool.used - before >= 40 * MIB
        assert pool["f"].nbytes == 40 * MIB
        file.punch(0, 40 * MIB)
        assert pool.used - before < MIB
        assert file.seek(0, os.SEEK_END) == 40 * MIB
    del pool["f"]
    assert pool.used == before


def test_what_is_cut_off_does_not_come_back(pool: engram.Pool) -> None:
    for size in (300, 5000, 100_000):
        with pool.open_file("f", "wb+") as file:
            file.write(b"x" * size)
            file.truncate(size // 3)
            file.truncate(size)
            file.seek(0)
            assert file.read() == b"x" * (size // 3) + bytes(size - size // 3)


# What takes a binary file takes it


def test_a_file_is_read_and_written_through_buffers(pool: engram.Pool) -> None:
    with io.BufferedWriter(pool.open_file("f", "wb"), 1000) as writer:
        for n in range(0, len(BIG), 77):
            writer.write(BIG[n : n + 77])
    assert pool["f"][...] == BIG
    with io.BufferedReader(pool.open_file("f"), 1000) as reader:
        assert reader.peek(3)[:3] == BIG[:3]
        assert b"".join(iter(lambda: reader.read(77), b"")) == BIG
        reader.seek(-5, os.SEEK_END)
        assert reader.read1(100) == BIG[-5:]
    with io.BufferedRandom(pool.open_file("f", "rb+")) as both:
        both.seek(100)
        both.write(b"here")
        both.seek(98)
        assert both.read(8) == BIG[98:100] + b"here" + BIG[104:106]
        both.truncate(50)
        both.seek(0, os.SEEK_END)
        assert both.tell() == 50
    assert pool["f"][...] == BIG[:50]


def test_a_file_has_lines_of_text(pool: engram.Pool) -> None:
    lines = [f"Zeile {n}: {'ü' * (n % 50)}\n" for n in range(1000)]
    with io.TextIOWrapper(io.BufferedWriter(pool.open_file("t", "wb")), "utf-8") as text:
        text.writelines(lines)
    with io.TextIOWrapper(io.BufferedReader(pool.open_file("t")), "utf-8") as text:
        assert list(text) == lines
        text.seek(0)
        assert text.readline() == lines[0]
    raw = pool.open_file("t")
    assert raw.readline() == lines[0].encode()
    assert [*raw] == [line.encode() for line in lines[1:]]
    raw.close()
    with io.TextIOWrapper(io.BufferedRandom(pool.open_file("t", "rb+")), "utf-8") as text:
        text.seek(0, os.SEEK_END)
        text.write("End\n")
    assert content(pool, "t").decode() == "".join([*lines, "End\n"])


def test_a_file_is_copied_in_and_out(pool: engram.Pool, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(BIG * 30)
    with (tmp_path / "f").open("rb") as source, pool.open_file("f", "wb") as target:
        shutil.copyfileobj(source, target)
    with pool.open_file("f") as source, (tmp_path / "g").open("wb") as target_there:
        shutil.copyfileobj(source, target_there)
    assert (tmp_path / "g").read_bytes() == BIG * 30
    with pool.open_file("f") as source, pool.open_file("copy", "xb") as target:
        shutil.copyfileobj(source, target, 12_345)
    assert pool["copy"][...] == BIG * 30


def test_numpy_saves_and_loads_arrays(pool: engram.Pool, rng: np.random.Generator) -> None:
    arrays = {"a": rng.normal(size=(300, 40)), "b": np.arange(5, dtype=">i2")}
    with pool.open_file("f.npy", "wb") as file:
        np.save(file, arrays["a"])
        np.save(file, arrays["b"])
    with pool.open_file("f.npy") as file:
        assert (np.load(file) == arrays["a"]).all()
        again = np.load(file)
        assert again.dtype == ">i2"
        assert (again == arrays["b"]).all()
    with pool.open_file("f.npz", "wb") as file:
        np.savez_compressed(file, a=arrays["a"], b=arrays["b"])
    with pool.open_file("f.npz") as file, np.load(file) as loaded:
        assert {name: loaded[name].tolist() for name in loaded} == {
            name: array.tolist() for name, array in arrays.items()
        }


def test_an_archive_is_written_read_and_added_to(pool: engram.Pool) -> None:
    with pool.open_file("z", "wb+") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("stored", BIG)
        archive.writestr("deflated", BIG, zipfile.ZIP_DEFLATED)
    with pool.open_file("z", "rb+") as file, zipfile.ZipFile(file, "a") as archive:
        archive.writestr("more", SMALL)
    with pool.open_file("z") as file, zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["stored", "deflated", "more"]
        assert (archive.read("deflated"), archive.read("more")) == (BIG, SMALL)


def test_hdf5_lives_in_a_file(pool: engram.Pool, rng: np.random.Generator) -> None:
    values = rng.normal(size=(200, 300))
    with pool.open_file("h", "wb+") as file, h5py.File(file, "w", driver="fileobj") as made:
        made["g/whole"] = values
        made.create_dataset("chunked", data=values, chunks=(50, 50), compression="gzip")
        made.attrs["units"] = "K"
    with pool.open_file("h", "rb+") as file, h5py.File(file, "r+", driver="fileobj") as there:
        there["g/whole"][3, 5] = 77
        there["late"] = np.arange(1000)
    with pool.open_file("h") as file, h5py.File(file, "r", driver="fileobj") as found:
        assert (found["chunked"][...] == values).all()
        assert found["g/whole"][3, 5] == 77
        assert (found["g/whole"][4:] == values[4:]).all()
        assert found.attrs["units"] == "K"
        assert (found["late"][...] == np.arange(1000)).all()


def test_pickles_are_dumped_and_loaded_but_an_open_file_is_none(pool: engram.Pool) -> None:
    things = [{"a": np.arange(10_000)}, "text", BIG]
    with pool.open_file("p", "wb") as file:
        for thing in things:
            pickle.dump(thing, file)
        with pytest.raises(TypeError):
            pickle.dumps(file)
    with pool.open_file("p") as file:
        assert (pickle.load(file)["a"] == np.arange(10_000)).all()
        assert [pickle.load(file), pickle.load(file)] == things[1:]
        with pytest.raises(EOFError):
            pickle.load(file)
    assert pickle.loads(pickle.dumps(pool["p"]))[...] == content(pool, "p")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", bytearray(BIG), memoryview(BIG)[5:], np.arange(1000.0), np.zeros((0, 3))),
        *(np.arange(6, dtype=">i2").reshape(2, 3), np.array(["2024-02-29"], "M8[s]")),
        np.array([(1, "x"), (2, "y")], [("n", "<i4"), ("s", "U5")]),
    ],
    ids=lambda data: f"{type(data).__name__}-{getattr(data, 'dtype', '')}",
)
def test_whatever_has_bytes_is_written_and_filled(pool: engram.Pool, data: Any) -> None:
    expected = data.tobytes() if hasattr(data, "tobytes") else bytes(data)
    with pool.open_file("f", "wb+") as file:
        assert file.write(data) == len(expected) == file.tell()
        file.seek(0)
        assert file.readall() == expected
        file.seek(0)
        into = np.zeros_like(data) if isinstance(data, np.ndarray) else bytearray(len(expected))
        assert file.readinto(into) == len(expected)
        assert bytes(into.tobytes() if isinstance(into, np.ndarray) else into) == expected


def test_what_has_no_bytes_in_a_row_is_not_written(pool: engram.Pool) -> None:
    wrong: Any
    with pool.open_file("f", "wb+") as file:
        file.write(SMALL)
        for wrong in ("text", 5, None, [1]):
            with pytest.raises(TypeError):
                file.write(wrong)
        for wrong in (memoryview(b"abcdef")[::2], np.zeros((3, 4)).T):
            with pytest.raises((BufferError, ValueError)):
                file.write(wrong)
        objects = np.array([{}, []], object)
        for call in (file.write, file.readinto):
            with pytest.raises(engram.ArgumentError, match="dtype object holds references"):
                call(objects)
        file.seek(0)
        with pytest.raises(engram.ArgumentError, match="may be written is read into"):
            file.readinto(b"constant")
        assert (file.tell(), file.read()) == (0, SMALL)


# As bytes of the system's own files


SIZES = st.sampled_from([0, 1, 700, 1023, 1024, 1025, 4095, 4096, 4097, 20_000, 65_536, 150_000])
PLACES = st.builds(lambda size, more: max(size + more, 0), SIZES, st.integers(-3, 3))
DATA = st.builds(
    lambda size, seed: np.random.default_rng(seed).bytes(size), PLACES, st.integers(0, 99)
)
OPERATIONS = st.one_of(
    st.tuples(st.just("read"), PLACES),
    st.tuples(st.just("readall")),
    st.tuples(st.just("write"), DATA),
    st.tuples(st.just("seek"), PLACES),
    st.tuples(st.just("seek"), st.integers(-2000, 0), st.just(os.SEEK_END)),
    st.tuples(st.just("seek"), st.integers(-2000, 2000), st.just(os.SEEK_CUR)),
    st.tuples(st.just("truncate"), st.one_of(st.none(), PLACES)),
    st.tuples(st.just("append"), DATA),
    st.tuples(st.just("punch"), PLACES, PLACES.filter(bool)),
    st.tuples(st.just("allocate"), PLACES, PLACES.filter(bool)),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("in place"), PLACES, DATA),
    st.tuples(st.just("view")),
)


class Twins:
    """A file of a pool and one of the system, to which the same is done."""

    def __init__(self, pool: engram.Pool, path: Path) -> None:
        self.pool, self.path = pool, path
        path.unlink(missing_ok=True)
        self.ours, self.theirs = pool.open_file("f", "wb+"), io.FileIO(path, "w+")

    def size(self) -> int:
        """How many bytes the system's has."""
        return self.path.stat().st_size

    def do(self, name: str, *args: Any) -> None:
        """Do one thing to both: they answer the same."""
        own = getattr(self, "_" + name.replace(" ", "_"), None)
        if own is not None:
            own(*args)
            return
        try:
            expected = getattr(self.theirs, name)(*args)
        except OSError:  # of a seek before the beginning
            with pytest.raises(engram.ArgumentError):
                getattr(self.ours, name)(*args)
        else:
            assert getattr(self.ours, name)(*args) == expected
        assert self.ours.tell() == self.theirs.tell()

    def _append(self, data: bytes) -> None:
        with self.pool.open_file("f", "ab") as ours, io.FileIO(self.path, "a") as theirs:
            assert ours.write(data) == theirs.write(data)
            assert ours.tell() == theirs.tell() or not data

    def _punch(self, at: int, count: int) -> None:
        self.ours.punch(at, count)
        within = min(count, max(self.size() - at, 0))
        os.pwrite(self.theirs.fileno(), bytes(within), at)

    def _allocate(self, at: int, count: int) -> None:
        self.ours.allocate(at, count)
        os.posix_fallocate(self.theirs.fileno(), at, count)

    def _reopen(self) -> None:
        self.ours.close()
        self.ours = self.pool.open_file("f", "rb+")
        self.theirs.seek(0)

    def _in_place(self, at: int, data: bytes) -> None:
        data = data[: max(self.size() - at, 0)]
        if data:
            self.pool["f"][at : at + len(data)] = data
            os.pwrite(self.theirs.fileno(), data, at)

    def _view(self) -> None:
        assert self.ours.view().tobytes() == self.path.read_bytes()

    def end(self) -> None:
        """Compare all that can be looked at, then delete both."""
        expected = self.path.read_bytes()
        blob = self.pool["f"]
        assert (blob.nbytes, len(blob), blob.posix.size) == (len(expected),) * 3
        assert blob[...] == bytes(blob) == expected
        assert blob[3:-3] == expected[3:-3]
        shown = np.frombuffer(expected, "u1").copy()
        for at, count in blob.segments:
            shown[at : at + count] = 0
        assert not shown.any() or not blob.segments, "what is in no segment is zero"
        self.ours.close()
        self.theirs.close()
        assert self.pool["f"].nbytes == len(expected)
        assert content(self.pool, "f") == expected
        assert engram.verify(self.pool.path).problems == []
        del self.pool["f"]


@settings(max_examples=40)
@given(operations=st.lists(OPERATIONS, max_size=25))
def test_a_file_does_what_one_of_the_system_does(
    pool: engram.Pool, tmp_path: Path, operations: list[tuple[Any, ...]]
) -> None:
    used = pool.used
    twins = Twins(pool, tmp_path / "twin")
    try:
        for operation in operations:
            twins.do(*operation)
        twins.end()
    finally:
        twins.ours.close()
        twins.theirs.close()
        pool.clear()
    assert pool.used == used


# Several processes


def test_of_what_several_processes_append_nothing_is_lost_torn_or_doubled(
    pool: engram.Pool,
) -> None:
    count = 1500
    appenders = [
        subprocess.Popen([sys.executable, "-c", APPENDER, pool.path, str(who), str(count)])
        for who in range(3)
    ]
    with pool.open_file("log", "ab") as file:
        for n in range(count):
            file.write(f"3 {n} {'.' * (n * 7 % 90)}\n".encode())
    for appender in appenders:
        assert appender.wait() == 0
    following = [0] * 4
    for line in content(pool, "log").decode().splitlines():
        who, number, dots = line.split(" ")
        assert int(number) == following[int(who)]
        assert dots == "." * (int(number) * 7 % 90)
        following[int(who)] += 1
    assert following == [count] * 4


def test_what_another_process_does_is_seen_at_once(pool: engram.Pool, other: Other) -> None:
    blob = pool.create_file("f")
    other.does("file = pool.open_file('f', 'rb+')")
    sizes = []
    for data in (SMALL, BIG, SMALL):
        other.does(f"file.seek(0, 2); file.write({data!r})")
        sizes.append((blob.nbytes, len(blob), blob.size, blob.view().size, blob.posix.size))
    expected = [len(SMALL), len(SMALL + BIG), len(SMALL + BIG + SMALL)]
    assert sizes == [(size,) * 5 for size in expected]
    with pool.open_file("f") as file:
        assert file.readall() == SMALL + BIG + SMALL
        other.does("file.truncate(1)")
        assert (blob.nbytes, file.seek(0, os.SEEK_END), blob[...]) == (1, 1, SMALL[:1])
        other.does("file.truncate(7000); file.seek(6999); file.write(b'!')")
        assert file.seek(0, os.SEEK_END) == 7000
        assert blob[-1] == ord("!")
        assert "7000 bytes" in repr(blob)


def test_a_file_that_another_process_has_open_goes_on_without_a_name(
    pool: engram.Pool, other: Other
) -> None:
    before = pool.used
    written(pool, "f")
    other.does("file = pool.open_file('f', 'rb+')")
    del pool["f"]
    assert "f" not in pool
    assert pool.used > before
    other.does("file.seek(0, 2); file.write(bytes(1 << 20))")
    assert pool.used >= before + MIB
    assert engram.verify(pool.path).problems == []
    other.does("file.close()")
    assert pool.used == before


# Memory


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_view_shows_all_pieces_as_one(pool: engram.Pool, mode: str) -> None:
    expected = sparse(pool, "f")
    view = pool["f"].view(mode)
    assert (view.shape, view.dtype, view.flags.c_contiguous) == ((len(expected),), np.uint8, True)
    assert view.tobytes() == expected
    assert np.asarray(pool["f"]).tobytes() == expected
    assert view.flags.writeable == (mode == "r+")
    with pool.open_file("f", "rb+") as file:
        file.seek(MIB)
        file.write(b"MIDDLE")
        assert view[MIB:][:6].tobytes() == b"MIDDLE", "it is the file's own memory"
        assert file.view(mode).tobytes() == view.tobytes()
    with pytest.raises(engram.ArgumentError, match="mode 'w' is unknown"):
        pool["f"].view("w")


def test_a_view_for_writing_gives_holes_memory(pool: engram.Pool) -> None:
    expected = np.frombuffer(sparse(pool, "f"), "u1").copy()
    before = pool.used
    view = pool["f"].view("r+")
    assert pool.used >= before + MIB
    for at in (0, MIB - 1, MIB + 100_000, 3 * MIB - 7, len(view) - 1):
        view[at] = expected[at] = 77
    assert content(pool, "f") == expected.tobytes()
    with pool.open_file("f") as file:
        file.read(1)
        covered = np.zeros(len(expected), bool)
        for at, count in file.segments:
            covered[at : at + count] = True
        assert covered.all()


def test_views_stay_valid_whatever_becomes_of_the_file(home: Path) -> None:
    path = str(home / "other")
    with engram.create(path, size="64 MiB", force=True) as pool:
        expected = sparse(pool, "f")
        first, part = pool["f"].view(), pool["f"].view()[MIB : MIB + 6]
        with pool.open_file("f", "rb+") as file:
            file.truncate(10_100)
            other = written(pool, "other").view()
            file.seek(10_000)
            file.write(b"x" * 100)
            short = file.view()
            assert (short.size, first.size) == (10_100, len(expected))
            del pool["f"]
        for n in range(20):
            written(pool, f"more-{n}")
        assert first[3 * PAGE :].tobytes() == expected[3 * PAGE :], "whole pages are nobody else's"
        assert first[10_000:10_100].tobytes() == short[10_000:].tobytes() == b"x" * 100
        assert pool.space.pending >= 0
    assert part.tobytes() == b"middle"
    assert other.tobytes() == BIG
    assert first[3 * PAGE :].tobytes() == expected[3 * PAGE :]
    assert engram.verify(path).problems == []
    del first, part, other, short
    with engram.open(path) as pool:
        pool.clear()
        assert pool.used == 0


def test_a_blobs_bytes_are_those_of_the_file(pool: engram.Pool) -> None:
    expected = bytearray(sparse(pool, "f"))
    blob = pool["f"]
    for key in (slice(9990, 10_010), slice(-10, None), slice(None, None, 777), Ellipsis):
        assert blob[key] == (bytes(expected) if key is Ellipsis else bytes(expected[key]))
    assert (blob[MIB], blob[-1], blob[0]) == (expected[MIB], expected[-1], 0)
    with pytest.raises(IndexError):
        blob[len(expected)]
    blob[MIB + 500_000 : MIB + 500_004] = b"hole"
    blob[10_000] = 9
    expected[MIB + 500_000 : MIB + 500_004] = b"hole"
    expected[10_000] = 9
    assert blob[...] == bytes(expected) == content(pool, "f")
    for key, selected in ((slice(0, 3), 3), (Ellipsis, len(expected))):
        with pytest.raises(engram.ArgumentError, match=rf"4 bytes .* over {selected}: .*open_file"):
            blob[key] = b"long"
    assert blob[...] == bytes(expected)
