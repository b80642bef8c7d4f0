"""fsspec's view of pools: blobs are files, written whole or not at all, and errors are built-in."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

import engram
from engram.fsspec import EngramFileSystem
from engram.fsspec import place as places
from support import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BIG = bytes(range(256)) * 1024


@pytest.fixture
def fs() -> Iterator[EngramFileSystem]:
    """Give a file system, whose pools are closed after the test."""
    made: EngramFileSystem = fsspec.filesystem("engram")
    yield made
    made.close()


@pytest.fixture
def top(pool: engram.Pool, fs: EngramFileSystem) -> str:
    """Give the path of a pool with two files, an array and an empty group."""
    assert fs
    pool["run/small"] = b"small"
    pool["run/big"] = BIG
    pool["run/T"] = np.arange(6.0).reshape(2, 3)
    pool.create_group("empty")
    return pool.path


def names(fs: EngramFileSystem, path: str, top: str) -> list[str]:
    """Return all files below a path, without the pool's."""
    return [each.removeprefix(f"{top}/") for each in fs.find(path)]


# Paths


def test_a_url_is_a_pools_path_and_what_follows(fs: EngramFileSystem, top: str) -> None:
    for path in (f"engram://{top}/run/small", f"{top}/run/small", f"{top}//run/small/", top[1:]):
        assert fs.exists(path)
    assert fs.cat(f"engram://{top}//run/small") == b"small"
    assert fs._strip_protocol(["engram:///a/b/", "a", "engram::/c"]) == ["/a/b", "/a", "/c"]
    assert fs.unstrip_protocol("/a") == "engram:///a"
    assert fs._parent("/a/b") == "/a"
    assert fs.info(Path(top))["type"] == "directory"
    with fsspec.open(f"engram://{top}/run/small") as file:
        assert file.read() == b"small"
    assert fsspec.core.url_to_fs(f"engram://{top}/x")[0] == fs


def test_a_name_in_the_hosts_place_is_refused_by_name(fs: EngramFileSystem) -> None:
    asks: list[Callable[[], Any]] = [
        lambda: fs.cat("engram://node7/pool/x"),
        lambda: fsspec.open("engram://node7/pool/x", "wb"),
        lambda: fsspec.filesystem("engram").ls("engram://node7"),
    ]
    for ask in asks:
        with pytest.raises(engram.ArgumentError, match=r"'node7'.*engram:///dev/shm"):
            ask()
    assert not fs.exists("engram://node7/pool/x")


def test_a_pool_on_another_path_to_it_is_the_same(top: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(top)
    fs = fsspec.filesystem("engram")
    fs.pipe(f"{tmp_path}/link/run/new", b"1")
    assert fs.cat(f"{top}/run/new") == b"1"


# Looking


def test_info_tells_what_a_member_is(fs: EngramFileSystem, top: str, pool: engram.Pool) -> None:
    blob, array, group = pool["run/big"], pool["run/T"], pool["run"]
    assert fs.info(f"{top}/run/big") == {
        "name": f"{top}/run/big",
        "size": len(BIG),
        "type": "file",
        "ino": blob.oid,
        "created": pytest.approx(blob.created.timestamp()),
        "mtime": pytest.approx(blob.modified.timestamp()),
    }
    told = fs.info(f"{top}/run/T")
    assert (told["type"], told["size"], told["dtype"]) == ("array", 48, "float64")
    assert (told["shape"], told["ino"]) == ((2, 3), array.oid)
    told = fs.info(f"{top}/run")
    assert (told["type"], told["size"], told["ino"]) == ("directory", 0, group._id)
    assert fs.info(top)["name"] == top
    assert fs.created(f"{top}/run/big") == blob.created
    assert fs.modified(f"{top}/run") <= datetime.now(UTC)
    kinds = [(fs.isdir(f"{top}/{n}"), fs.isfile(f"{top}/{n}")) for n in ("run", "run/big", "run/T")]
    assert kinds == [(True, False), (False, True), (False, False)]
    assert (fs.exists(f"{top}/run/T"), fs.exists(f"{top}/run/x")) == (True, False)
    assert (fs.size(f"{top}/run/big"), fs.sizes([f"{top}/run/small"])) == (len(BIG), [5])


def test_listings_are_as_info_and_in_order(fs: EngramFileSystem, top: str) -> None:
    listed = fs.ls(f"{top}/run")
    assert [each["name"] for each in listed] == [f"{top}/run/{n}" for n in ("T", "big", "small")]
    assert listed == [fs.info(each["name"]) for each in listed]
    assert fs.ls(f"{top}/run", detail=False) == [each["name"] for each in listed]
    assert fs.ls(f"{top}/run/big") == [fs.info(f"{top}/run/big")]
    assert fs.ls(f"{top}/empty") == []
    assert names(fs, top, top) == ["run/T", "run/big", "run/small"]
    assert fs.glob(f"engram://{top}/r*/*al*") == [f"{top}/run/small"]
    assert fs.du(top) == 48 + len(BIG) + 5
    walked = [(path, dirs, files) for path, dirs, files in fs.walk(top)]
    assert walked == [
        (top, ["empty", "run"], []),
        (f"{top}/empty", [], []),
        (f"{top}/run", [], ["T", "big", "small"]),
    ]
    assert fs.find(f"{top}/run/big") == [f"{top}/run/big"]


def test_long_listings_come_in_pages(fs: EngramFileSystem, pool: engram.Pool) -> None:
    with pool.batch():
        for n in range(2500):
            pool[f"many/{n:04}"] = b""
    listed = fs.ls(f"{pool.path}/many")
    assert [each["name"][-4:] for each in listed] == [f"{n:04}" for n in range(2500)]
    assert len(fs.ls(f"{pool.path}/many", detail=False)) == 2500


def test_ukey_and_checksum_change_with_the_file(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    path = f"{top}/run/big"
    before = (fs.ukey(path), fs.checksum(path))
    assert before == (fs.ukey(path), fs.checksum(path))
    fs.pipe(path, BIG)
    assert fs.ukey(path) != before[0]
    assert fs.checksum(path) == before[1]
    pool["run/big"][0:1] = b"\xff"  # in place: the same object, other bytes
    assert fs.checksum(path) != before[1]


# Reading


def test_parts_are_by_the_rules_of_slices(fs: EngramFileSystem, top: str) -> None:
    for name, whole in (("small", b"small"), ("big", BIG)):
        path = f"{top}/run/{name}"
        for start in (None, 0, 2, -3, 10**9):
            for end in (None, 0, 3, -1, 10**9):
                assert fs.cat_file(path, start, end) == whole[start:end]
        assert (fs.head(path, 3), fs.tail(path, 3)) == (whole[:3], whole[-3:])
        assert fs.read_block(path, 1, 2) == whole[1:3]
    found = fs.cat([f"{top}/run/small", f"{top}/run/big"])
    assert found == {f"{top}/run/small": b"small", f"{top}/run/big": BIG}
    assert fs.cat(f"{top}/run/*", recursive=True)[f"{top}/run/T"] == np.arange(6.0).tobytes()


def test_ranges_are_given_one_by_one_and_errors_with_them(fs: EngramFileSystem, top: str) -> None:
    small, big, none = (f"{top}/run/{name}" for name in ("small", "big", "none"))
    found = fs.cat_ranges([small, big, small, none], [0, 256, -2, 0], [2, 260, None, 1])
    assert found[:3] == [b"sm", BIG[256:260], b"ll"]
    assert isinstance(found[3], FileNotFoundError)
    assert fs.cat_ranges([small, big], 0, 2) == [b"sm", BIG[:2]]
    assert fs.cat_ranges([], [], []) == []
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([none], [0], [1], on_error="raise")
    with pytest.raises(ValueError, match="do not match"):
        fs.cat_ranges([small], [0, 1], [1])
    with pytest.raises(TypeError):
        fs.cat_ranges(small, 0, 1)  # type: ignore[arg-type]  # what is refused


def test_a_file_that_is_read_is_the_pools_own_memory(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    with fs.open(f"{top}/run/big") as file:
        memory = pool["run/big"].view()
        assert np.shares_memory(np.asarray(file.getbuffer()), memory)
        file.seek(256)
        assert np.shares_memory(np.asarray(file.read_buffer(256)), memory)
        assert file.tell() == 512
        assert bytes(file.read_buffer()) == BIG[512:]
        assert file.getbuffer().readonly


def test_a_file_reads_as_files_do(fs: EngramFileSystem, top: str, tmp_path: Path) -> None:
    text = b"".join(b"line %d\n" % n for n in range(20_000)) + b"no end"
    (tmp_path / "file").write_bytes(text)
    fs.pipe(f"{top}/text", text)
    rng = np.random.default_rng(7)
    with fs.open(f"{top}/text") as ours, (tmp_path / "file").open("rb") as theirs:
        assert (ours.size, ours.mode, ours.readable(), ours.writable()) == (
            *(len(text), "rb", True),
            False,
        )
        into, expected = bytearray(70_000), bytearray(70_000)
        for _ in range(300):
            at, much = int(rng.integers(len(text) + 9)), int(rng.integers(100_000))
            assert ours.seek(at) == theirs.seek(at)
            assert ours.read(much) == theirs.read(much)
            assert ours.readline() == theirs.readline()
            assert ours.readinto(into) == theirs.readinto(expected)
            assert into == expected
            assert ours.tell() == theirs.tell()
        ours.seek(-9, io.SEEK_END)
        assert list(ours) == [b"99\n", b"no end"]
        ours.seek(0)
        assert ours.readuntil(b"2\n") == text[: text.index(b"2\n") + 2]
        assert ours.tell() == text.index(b"2\n") + 2
        with pytest.raises(ValueError, match="seek"):
            ours.seek(-1)
        with pytest.raises(io.UnsupportedOperation):
            ours.write(b"1")
    with fs.open(f"{top}/text", "r", encoding="ascii") as lines:
        assert sum(1 for _ in lines) == 20_001
    with pytest.raises(ValueError, match="closed"):
        ours.read()


def test_a_reader_goes_on_with_what_it_opened(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    with fs.open(f"{top}/run/big") as file:
        assert file.read(10) == BIG[:10]
        fs.pipe(f"{top}/run/big", b"new")
        del pool["run/big"]
        pool["else"] = np.ones(100_000)
        assert file.read() == BIG[10:]
        with pytest.raises(FileNotFoundError):
            file.info()
    with fs.open(f"{top}/run/small") as file:
        assert file.info() == file.details == fs.info(f"{top}/run/small")
        fs.close()
        assert file.read() == b"small"


def test_an_array_is_read_as_its_values_lie(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    values: dict[str, Any] = {
        "T": np.arange(6.0).reshape(2, 3),
        "large": np.arange(50_000, dtype=">i4"),
        "scalar": np.float32(7),
        "time": np.array(["2000-01-01"], "M8[ns]"),
        "pairs": np.array([(1, 2.5)], [("a", "i2"), ("b", "f8")]),
        "none": np.zeros((0, 3)),
        "width": np.zeros(3, "V0"),
    }
    for name, value in values.items():
        pool[f"arrays/{name}"] = value
    pool.create_array("arrays/chunked", data=values["large"], chunks=(999,), codec="lz4")
    values["chunked"] = values["large"]
    for name, value in values.items():
        path = f"{top}/arrays/{name}"
        assert fs.cat(path) == value.tobytes()
        assert fs.size(path) == value.nbytes
        with fs.open(path) as file:
            assert file.read() == value.tobytes()
            assert file.getbuffer().readonly
    with fs.open(f"{top}/arrays/large") as file:
        assert np.shares_memory(np.asarray(file.getbuffer()), pool["arrays/large"].view())
    pool["arrays/text"] = np.array(["a", "bc"], TEXT)
    with pytest.raises(engram.UnsupportedError, match=r"pool\['arrays/text'\]") as refused:
        fs.cat(f"{top}/arrays/text")
    assert isinstance(refused.value, OSError)


@pytest.mark.parametrize("mode", ["wb", "xb", "ab", "r+b", "w"])
def test_an_array_is_not_written_as_a_file(
    fs: EngramFileSystem, top: str, pool: engram.Pool, mode: str
) -> None:
    with pytest.raises(PermissionError, match="is an array"):
        fs.open(f"{top}/run/T", mode)
    for write in (
        lambda: fs.pipe(f"{top}/run/T", b"1"),
        lambda: fs.touch(f"{top}/run/T"),
        lambda: fs.cp(f"{top}/run/small", f"{top}/run/T"),
    ):
        with pytest.raises(PermissionError, match="is an array"):
            write()
    assert pool["run/T"].shape == (2, 3)


# Writing


@pytest.mark.parametrize("data", [b"", b"x", BIG, bytearray(BIG), memoryview(BIG)])
def test_what_is_written_is_read(fs: EngramFileSystem, top: str, data: Any) -> None:
    with fs.open(f"{top}/deep/er/file", "wb") as file:
        assert file.write(data) == len(data)
        assert file.tell() == len(data) == file.size
        assert not fs.exists(f"{top}/deep")
        assert not file.readable()
        with pytest.raises(io.UnsupportedOperation, match=r"w\+b"):
            file.read()
    assert file.closed
    fs.pipe_file(f"{top}/piped", data)
    for path in (f"{top}/deep/er/file", f"{top}/piped"):
        assert fs.cat(path) == bytes(data)
        assert fs.isfile(path)


def test_text_is_written_and_read(fs: EngramFileSystem, top: str) -> None:
    with fs.open(f"{top}/t", "w", encoding="utf-16", newline="\r\n") as file:
        file.write("höhe\n")
    with fs.open(f"{top}/t", "r", encoding="utf-16") as file:
        assert file.read() == "höhe\n"
    assert fs.write_text(f"{top}/t", "a\nb") == 3
    assert fs.read_text(f"{top}/t") == "a\nb"
    with fs.open(f"{top}/t", "at") as file:
        print("c", file=file)
    assert fs.read_text(f"{top}/t") == "a\nbc\n"


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz", "zip"])
@pytest.mark.parametrize("mode", ["b", "t"])
def test_what_is_compressed_is_there_at_the_close(
    fs: EngramFileSystem, top: str, compression: str, mode: str
) -> None:
    content: Any = BIG if mode == "b" else "häuser\n" * 999
    with fs.open(f"{top}/c", f"w{mode}", compression=compression) as file:
        file.write(content)
        assert not fs.exists(f"{top}/c")
    with fs.open(f"{top}/c", f"r{mode}", compression=compression) as file:
        assert file.read() == content
    if compression != "zip":  # which fsspec stores as it is
        assert fs.size(f"{top}/c") < len(content)
    with pytest.raises(ValueError, match="not supported"):
        fs.open(f"{top}/c", "wb", compression="squeeze")


def test_modes_are_those_of_files(fs: EngramFileSystem, top: str) -> None:
    path = f"{top}/f"
    with fs.open(path, "xb") as file:
        file.write(b"0123456789")
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    with fs.open(path, "ab") as file:
        assert file.tell() == 10
        file.write(b"ab")
        assert file.tell() == 12
        assert file.seek(0, io.SEEK_END) == 12
        with pytest.raises(io.UnsupportedOperation, match="appended"):
            file.seek(3)
        with pytest.raises(io.UnsupportedOperation, match=r"r\+b"):
            file.truncate(3)
    with fs.open(path, "r+b") as file:
        assert file.read(3) == b"012"
        file.write(b"---")
        file.seek(-1, io.SEEK_END)
        file.write(b"BCD")
        assert file.truncate() == 14
    assert fs.cat(path) == b"012---6789aBCD"
    with fs.open(path, "w+b") as file:
        file.write(b"abc")
        file.seek(0)
        assert file.read() == b"abc"
        assert file.truncate(5) == 5
    assert fs.cat(path) == b"abc\0\0"
    with fs.open(path, "r+") as text:
        text.write("A")
    assert fs.cat(path) == b"Abc\0\0"
    with fs.open(f"{top}/g", "ab") as file:
        file.write(b"new")
    assert fs.cat(f"{top}/g") == b"new"
    with pytest.raises(FileNotFoundError):
        fs.open(f"{top}/none", "r+b")
    for mode in ("a+b", "q", "rwb", "b", "+b"):
        with pytest.raises(ValueError, match="mode"):
            fs.open(path, mode)


def test_pipe_creates_or_replaces(fs: EngramFileSystem, top: str) -> None:
    fs.pipe_file(f"{top}/p", b"1", mode="create")
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{top}/p", b"2", mode="create")
    fs.pipe({f"{top}/p": b"3", f"engram://{top}/q": b"4"})
    assert fs.cat([f"{top}/p", f"{top}/q"]) == {f"{top}/p": b"3", f"{top}/q": b"4"}
    with pytest.raises(ValueError, match="mode"):
        fs.pipe_file(f"{top}/p", b"2", mode="append")


def test_attributes_are_given_kept_and_left(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    fs.pipe_file(f"{top}/f", b"1", attrs={"units": "K"})
    with fs.open(f"{top}/f", "ab") as file:
        file.write(b"2")
    with fs.open(f"{top}/f", "r+b", attrs={"level": 4}) as file:
        file.write(b"-")
    assert (pool["f"][...], dict(pool["f"].attrs)) == (b"-2", {"units": "K", "level": 4})
    fs.cp(f"{top}/f", f"{top}/copy")
    fs.mv(f"{top}/f", f"{top}/moved")
    assert dict(pool["copy"].attrs) == dict(pool["moved"].attrs) == {"units": "K", "level": 4}
    fs.pipe_file(f"{top}/moved", b"anew")
    assert dict(pool["moved"].attrs) == {}


def test_a_change_without_a_change_writes_nothing(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    before = pool["run/big"].oid
    with fs.open(f"{top}/run/big", "r+b") as file:
        file.write(BIG[:10])
    with fs.open(f"{top}/run/big", "ab"):
        pass
    assert pool["run/big"].oid == before


def test_appends_of_many_lose_nothing(fs: EngramFileSystem, top: str) -> None:
    def add(name: int) -> None:
        own = fsspec.filesystem("engram")
        for n in range(30):
            with own.open(f"{top}/log", "ab") as file:
                file.write(b"%d %d\n" % (name, n))

    threads = [threading.Thread(target=add, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = fs.read_text(f"{top}/log").splitlines()
    for name in range(4):
        own = [line for line in lines if line.startswith(f"{name} ")]
        assert own == [f"{name} {n}" for n in range(30)]


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("way", ["append", "replace", "remove"])
def test_an_append_adds_to_what_is_there_by_then(
    fs: EngramFileSystem,
    top: str,
    monkeypatch: pytest.MonkeyPatch,
    is_there: bool,
    way: str,
) -> None:
    """Whatever others do between its look and its commit, once."""
    changed: list[str] = []
    put = engram._engram.put_blob

    def change() -> None:
        own = fsspec.filesystem("engram")
        if way == "append":
            with own.open(f"{top}/log", "ab") as file:
                file.write(b"other\n")
        elif way == "replace":
            own.pipe(f"{top}/log", b"other\n")
        elif own.exists(f"{top}/log"):
            own.rm(f"{top}/log")

    def put_after_another(*what: Any) -> Any:
        if not changed:
            changed.append(way)
            other = threading.Thread(target=change)
            other.start()
            other.join()
        return put(*what)

    if is_there:
        fs.pipe(f"{top}/log", b"first\n")
    with fs.open(f"{top}/log", "ab") as file:
        file.write(b"mine\n")
        monkeypatch.setattr(engram._engram, "put_blob", put_after_another)
    found = fs.read_text(f"{top}/log").split()
    before = {"append": ["first", "other"], "replace": ["other"], "remove": []}[way]
    assert changed
    assert found == [word for word in before if is_there or word != "first"] + ["mine"]


def test_a_part_is_not_changed_of_another_file_than_was_opened(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    def replace() -> None:
        fs.pipe(f"{top}/run/big", b"another")

    def remove() -> None:
        del pool["run/big"]

    def move() -> None:
        pool.move("run/big", "run/moved")

    for change in (replace, remove, move):
        fs.pipe(f"{top}/run/big", BIG)
        again = pytest.raises(OSError, match="open it again")
        with again as refused, fs.open(f"{top}/run/big", "r+b") as file:
            file.write(b"mine")
            change()
        assert isinstance(refused.value, engram.BusyError)
        assert fs.exists(f"{top}/run/big") == (change is replace)
    assert fs.cat(f"{top}/run/moved") == BIG


# Whole, or not at all


def broken(opened: Callable[[], Any]) -> None:
    """Write half of a file, and raise."""
    with pytest.raises(ZeroDivisionError), opened() as file:
        file.write("half" if isinstance(file, io.TextIOBase) else b"half")
        file.flush()
        raise ZeroDivisionError


@pytest.mark.parametrize("mode", ["wb", "w", "xb", "ab", "w+b"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_block_that_raises_leaves_no_file(
    fs: EngramFileSystem, top: str, mode: str, compression: str | None
) -> None:
    broken(lambda: fs.open(f"{top}/f", mode, compression=compression))
    assert not fs.exists(f"{top}/f")
    with pytest.warns(engram.EngramWarning, match="not written"):
        broken(lambda: fsspec.open(f"engram://{top}/f", mode, compression=compression))
    assert not fs.exists(f"{top}/f")


@pytest.mark.parametrize("mode", ["wb", "r+b", "ab", "w"])
def test_a_block_that_raises_leaves_what_was_there(
    fs: EngramFileSystem, top: str, mode: str
) -> None:
    broken(lambda: fs.open(f"{top}/run/big", mode))
    assert fs.cat(f"{top}/run/big") == BIG


def test_a_close_while_an_error_passes_is_no_end(fs: EngramFileSystem, top: str) -> None:
    file = fs.open(f"{top}/f", "wb")

    def fail() -> None:
        try:
            1 / 0  # noqa: B018 - it raises
        finally:
            file.close()

    with pytest.raises(ZeroDivisionError), pytest.warns(engram.EngramWarning, match="by zero"):
        fail()
    assert not fs.exists(f"{top}/f")


def test_a_file_that_is_opened_while_an_error_is_handled_is_written(
    fs: EngramFileSystem, top: str
) -> None:
    try:
        1 / 0  # noqa: B018 - it raises
    except ZeroDivisionError:
        with fsspec.open(f"engram://{top}/f", "w") as file:
            file.write("what happened")
        other = fs.open(f"{top}/g", "wb")
        other.close()
    assert fs.cat(f"{top}/f") == b"what happened"
    assert fs.exists(f"{top}/g")
    late = fs.open(f"{top}/h", "wb")
    try:
        1 / 0  # noqa: B018 - it raises
    except ZeroDivisionError:
        with late:
            late.write(b"its own block ends well")
    assert fs.exists(f"{top}/h")


@pytest.mark.parametrize("mode", ["wb", "w", "wt"])
def test_a_file_that_is_dropped_is_not_written(fs: EngramFileSystem, top: str, mode: str) -> None:
    compression = "gzip" if mode == "wt" else None
    with pytest.warns(engram.EngramWarning, match="dropped without a close"):
        fs.open(f"{top}/f", mode, compression=compression).write(b"" if mode == "wb" else "x")
    assert not fs.exists(f"{top}/f")


@pytest.mark.parametrize(
    "ending",
    ["raise ZeroDivisionError", "import sys; sys.exit()", "import os; os._exit(0)", "pass"],
)
def test_a_program_that_ends_in_mid_write_leaves_nothing(
    fs: EngramFileSystem, top: str, ending: str
) -> None:
    code = (
        "import fsspec, sys\n"
        "binary = fsspec.filesystem('engram').open(sys.argv[1] + '/a', 'wb')\n"
        "text = fsspec.open('engram://' + sys.argv[1] + '/b', 'w').open()\n"
        "def write():\n"
        "    mine = fsspec.filesystem('engram').open(sys.argv[1] + '/c', 'wb')\n"
        "    for file in (binary, mine): file.write(b'half')\n"
        "    text.write('half')\n"
        f"    {ending}\n"
        "write()\n"
    )
    subprocess.run([sys.executable, "-c", code, top], check=False, capture_output=True)
    assert [name for name in "abc" if fs.exists(f"{top}/{name}")] == []


def test_a_full_pool_leaves_what_was_there(fs: EngramFileSystem, top: str) -> None:
    no_room = pytest.raises(OSError, match="no room")
    with no_room as refused, fs.open(f"{top}/run/big", "wb") as file:
        file.write(bytes(300 << 20))
    assert isinstance(refused.value, engram.PoolFullError)
    assert refused.value.errno == 28
    assert fs.cat(f"{top}/run/big") == BIG
    with pytest.raises(OSError, match="no room"):
        fs.pipe(f"{top}/f", bytes(300 << 20))
    assert not fs.exists(f"{top}/f")
    fs.pipe(f"{top}/f", b"there is room for this")


# Transactions


def test_a_transaction_is_there_whole_at_its_end(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    with fs.transaction:
        fs.pipe(f"{top}/t/1", b"one")
        with fs.open(f"{top}/t/2", "w") as text:
            text.write("two")
        with fs.open(f"{top}/run/small", "r+b") as file:
            file.write(b"S")
        with fs.open(f"{top}/run/small", "ab") as file:
            file.write(b"!")
        with fs.open(f"{top}/t/3", "wb", compression="gzip") as file:
            file.write(b"three")
        fs.put_file(__file__, f"{top}/t/4")
        assert "t" not in pool
        assert fs.cat(f"{top}/run/small") == b"small"
    assert names(fs, f"{top}/t", top) == ["t/1", "t/2", "t/3", "t/4"]
    assert fs.cat(f"{top}/run/small") == b"Small!"
    fs.start_transaction()
    fs.pipe(f"{top}/u", b"1")
    assert "u" not in pool
    fs.end_transaction()
    assert "u" in pool
    fs.pipe(f"{top}/v", b"1")
    assert "v" in pool


def test_a_transaction_is_one_commit(fs: EngramFileSystem, top: str, pool: engram.Pool) -> None:
    with engram.open(top) as other:
        seen: list[int] = []
        with fs.transaction:
            for n in range(100):
                fs.pipe(f"{top}/t/{n}", BIG)
            snapshot = other.snapshot()
            seen.append("t" in snapshot)
            snapshot.close()
        seen.append(len(pool["t"]))
    assert seen == [False, 100]


def test_a_transaction_that_fails_leaves_nothing(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    def raises() -> None:
        raise ZeroDivisionError

    def taken() -> None:
        fs.open(f"{top}/t/new", "xb").close()
        pool["t/new"] = b"another's"

    def too_much() -> None:
        fs.pipe(f"{top}/t/large", bytes(300 << 20))

    def still_open() -> None:
        opened.append(fs.open(f"{top}/t/open", "wb"))

    def changed() -> None:
        with fs.open(f"{top}/run/big", "r+b") as file:
            file.write(b"-")
        pool["run/big"] = BIG

    opened: list[Any] = []
    for fails in (raises, taken, too_much, still_open, changed):
        with pytest.raises((ZeroDivisionError, OSError, ValueError)), fs.transaction:
            fs.pipe(f"{top}/t/1", b"1")
            fs.pipe(f"{top}/run/small", b"new")
            fails()
        assert "t/1" not in pool
        assert pool["run/small"][...] == b"small"
        assert pool["run/big"][...] == BIG
        assert not fs._intrans
        fs.pipe(f"{top}/after", b"1")
        assert pool["after"][...] == b"1"
        del pool["after"]


def test_a_file_that_was_given_up_is_no_part_of_its_transaction(
    fs: EngramFileSystem, top: str
) -> None:
    with fs.transaction:
        broken(lambda: fs.open(f"{top}/t/broken", "wb"))
        fs.pipe(f"{top}/t/whole", b"1")
    assert names(fs, f"{top}/t", top) == ["t/whole"]


def test_a_transaction_is_of_one_pool(fs: EngramFileSystem, top: str, home: Path) -> None:
    with engram.create(home / "other", size="16 MiB", force=True) as other:
        with pytest.raises(engram.ArgumentError, match="two pools"), fs.transaction:
            fs.pipe(f"{top}/t", b"1")
            fs.pipe(f"{other.path}/t", b"1")
        assert not fs.exists(f"{top}/t")
        assert not fs.exists(f"{other.path}/t")


def test_a_transaction_is_of_one_scope(fs: EngramFileSystem, top: str, pool: engram.Pool) -> None:
    pool.create_blob("mine", b"1", scope="private")
    fs.pipe(f"{top}/mine", b"2")
    assert pool["mine"].scope == "private"
    with pytest.raises(OSError, match="one scope"), fs.transaction:
        fs.pipe(f"{top}/mine", b"3")
        fs.pipe(f"{top}/shared", b"3")
    assert pool["mine"][...] == b"2"
    assert not fs.exists(f"{top}/shared")


def test_files_of_more_pools_than_are_kept_open_are_read(
    fs: EngramFileSystem, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engram.fsspec.place._MOST", 3)
    paths = [str(home / f"p{n}") for n in range(6)]
    for path in paths:
        engram.create(path, size="1 MiB", force=True).close()
        fs.pipe(f"{path}/x", path.encode())
    for path in paths * 2:
        assert fs.cat(f"{path}/x") == path.encode()
    assert len(places._openings) == 3
    for path in paths:
        engram.destroy(path)


def test_published_files_are_read_alone(fs: EngramFileSystem, home: Path) -> None:
    with engram.create(home / "open", size="16 MiB", force=True, mode=0o755) as pool:
        path = f"{pool.path}/pub/f"
        fs.pipe(path, b"1")
        pool.publish("pub")
        writes: list[Callable[[], Any]] = [
            lambda: fs.pipe(path, b"2"),
            lambda: fs.rm(path),
            lambda: fs.mv(path, f"{pool.path}/x"),
        ]
        for write in writes:
            with pytest.raises(PermissionError, match="publish"):
                write()
        with pytest.raises(PermissionError, match="publish"), fs.open(path, "ab") as file:
            file.write(b"2")
        assert fs.cat(path) == b"1"
        fs.cp(path, f"{pool.path}/copy")
        assert fs.cat(f"{pool.path}/copy") == b"1"


def test_files_are_part_of_the_pools_own_batch(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    with pytest.raises(ZeroDivisionError), pool.batch():
        fs.pipe(f"{top}/t/1", b"1")
        with fs.open(f"{top}/t/2", "wb") as file:
            file.write(b"2")
        fs.mv(f"{top}/run", f"{top}/moved")
        assert fs.cat(f"{top}/t/2") == b"2"
        raise ZeroDivisionError
    assert "t" not in pool
    assert "run/small" in pool


def test_what_waits_for_its_commit_is_committed_or_discarded(
    fs: EngramFileSystem, top: str
) -> None:
    for name in ("committed", "discarded"):
        file = fs.open(f"{top}/{name}", "wb", autocommit=False)
        file.write(b"1")
        file.close()
        assert not fs.exists(f"{top}/{name}")
        file.commit() if name == "committed" else file.discard()
    assert names(fs, top, top)[0] == "committed"
    assert not fs.exists(f"{top}/discarded")
    with pytest.raises(ValueError, match="given up"):
        file.commit()


# Directories, copying, moving, removing


def test_directories_are_made_and_removed(fs: EngramFileSystem, top: str) -> None:
    fs.mkdir(f"{top}/a/b")
    fs.makedirs(f"{top}/a/b", exist_ok=True)
    refused: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: fs.mkdir(f"{top}/a"), FileExistsError),
        (lambda: fs.mkdir(top), FileExistsError),
        (lambda: fs.makedirs(f"{top}/a/b"), FileExistsError),
        (lambda: fs.makedirs(f"{top}/run/small", exist_ok=True), FileExistsError),
        (lambda: fs.mkdir(f"{top}/x/y", create_parents=False), FileNotFoundError),
        (lambda: fs.mkdir(f"{top}/run/small/y"), NotADirectoryError),
        (lambda: fs.rmdir(f"{top}/a"), OSError),
        (lambda: fs.rmdir(f"{top}/run/small"), NotADirectoryError),
        (lambda: fs.rmdir(f"{top}/x"), FileNotFoundError),
        (lambda: fs.rmdir(top), IsADirectoryError),
    ]
    for fails, error in refused:
        with pytest.raises(error):
            fails()
    fs.mkdir(f"{top}/a/c", create_parents=False)
    fs.rmdir(f"{top}/a/b")
    assert fs.ls(f"{top}/a", detail=False) == [f"{top}/a/c"]


def test_a_group_that_gets_a_member_is_not_removed_as_empty(
    fs: EngramFileSystem, top: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever puts something in at any moment of it keeps it."""
    fs.mkdir(f"{top}/late")
    delete = engram._engram.delete

    def put_first(*what: Any) -> None:
        other = threading.Thread(
            target=fsspec.filesystem("engram").pipe, args=(f"{top}/late/x", b"1")
        )
        other.start()
        other.join()
        delete(*what)

    monkeypatch.setattr(engram._engram, "delete", put_first)
    with pytest.raises(OSError, match="1 members"):
        fs.rmdir(f"{top}/late")
    assert fs.cat(f"{top}/late/x") == b"1"


def test_copies_are_of_files_arrays_and_trees(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    fs.cp(f"{top}/run", f"{top}/copy", recursive=True)
    assert names(fs, f"{top}/copy", top) == ["copy/T", "copy/big", "copy/small"]
    np.testing.assert_array_equal(pool["copy/T"], pool["run/T"])
    fs.cp(f"{top}/run/big", f"{top}/copy/small")
    assert pool["copy/small"][...] == BIG
    before = pool["run/big"].oid
    fs.cp(f"{top}/run/big", f"{top}/run/big")
    assert pool["run/big"].oid == before
    refused: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: fs.cp(f"{top}/none", f"{top}/x"), FileNotFoundError),
        (lambda: fs.cp_file(f"{top}/run/big", f"{top}/empty"), IsADirectoryError),
        (lambda: fs.cp(f"{top}/run/big", f"{top}/run/small/x"), NotADirectoryError),
    ]
    for fails, error in refused:
        with pytest.raises(error):
            fails()


def test_moves_keep_the_object_and_replace_files_alone(
    fs: EngramFileSystem, top: str, pool: engram.Pool
) -> None:
    oid = pool["run/big"].oid
    fs.mv(f"{top}/run/big", f"{top}/new/way/big")
    assert pool["new/way/big"].oid == oid
    fs.mv(f"{top}/new/way/big", f"{top}/run/small")
    assert pool["run/small"].oid == oid
    fs.mv(f"{top}/run", f"{top}/gone")
    assert names(fs, f"{top}/gone", top) == ["gone/T", "gone/small"]
    fs.mv(f"{top}/gone", f"{top}/empty")  # into a group that is there
    fs.mv(f"{top}/empty/gone", f"{top}/empty/gone")
    assert pool["empty/gone/small"].oid == oid
    fs.mv(f"{top}/empty/gone/*", f"{top}/many")
    assert names(fs, f"{top}/many", top) == ["many/T", "many/small"]
    fs.mv([f"{top}/many/T", f"{top}/many/small"], [f"{top}/T", f"{top}/s"])
    assert (pool["s"].oid, pool["T"].shape) == (oid, (2, 3))
    refused: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: fs.mv(f"{top}/none", f"{top}/x"), FileNotFoundError),
        (lambda: fs.mv(f"{top}/s", f"{top}/T"), FileExistsError),
        (lambda: fs.mv(f"{top}/empty", f"{top}/s"), FileExistsError),
        (lambda: fs.mv(f"{top}/empty", f"{top}/empty/x"), ValueError),
        (lambda: fs.mv(f"{top}/s", f"{top}/T/x"), NotADirectoryError),
        (lambda: fs.mv(top, f"{top}/x"), IsADirectoryError),
        (lambda: fs.mv([f"{top}/s", f"{top}/none"], f"{top}/into"), FileNotFoundError),
    ]
    for fails, error in refused:
        with pytest.raises(error):
            fails()
        assert pool["s"].oid == oid


def test_moves_between_pools_are_copies(fs: EngramFileSystem, top: str, home: Path) -> None:
    with engram.create(home / "other", size="16 MiB", force=True) as other:
        fs.mv(f"{top}/run", f"{other.path}/run")
        fs.mv(f"{other.path}/run/small", f"{top}/small")
        assert names(fs, other.path, other.path) == ["run/T", "run/big"]
        assert fs.cat(f"{top}/small") == b"small"
        assert not fs.exists(f"{top}/run")
        with pytest.raises(FileExistsError):
            fs.mv(f"{other.path}/run/T", f"{top}/small")


@pytest.mark.parametrize("way", ["cp", "mv"])
def test_a_copy_of_a_group_keeps_what_is_said_of_it_and_of_what_is_below(
    fs: EngramFileSystem, top: str, home: Path, way: str
) -> None:
    from engram.compat import h5py  # noqa: PLC0415

    dtype = np.dtype([("id", "i4"), ("name", h5py.string_dtype())])
    with h5py.File(f"{top}/model", "w") as file:
        file.attrs["title"] = "warm"
        file.create_group("in").attrs["unit"] = "K"
        file["in"].create_dataset("state", data=[0, 1, 0], dtype=h5py.enum_dtype({"OFF": 0}))
        file["in/state"].dims[0].label = "time"
        file.create_dataset("table", (2,), dtype)[0] = (1, "one")
        file["soft"], file["hard"] = h5py.SoftLink("/in"), file["in"]
    with engram.create(home / "other", size="16 MiB", force=True) as other:
        getattr(fs, way)(f"{top}/model", f"{other.path}/model", recursive=True)
        with h5py.File(f"{other.path}/model") as file:
            assert file.attrs["title"] == "warm"
            assert file["in"].attrs["unit"] == file["soft"].attrs["unit"] == "K"
            assert h5py.check_enum_dtype(file["in/state"].dtype) == {"OFF": 0}
            assert file["in/state"].dims[0].label == "time"
            assert file["table"][0]["name"] == b"one"
            assert "hard" not in file  # it knows the object by the id that it had
        other["model"].attrs["title"] = "cold"
        fs.cp(f"{top}/run", f"{other.path}/model", recursive=True)
        assert other["model"].attrs["title"] == "cold"


def test_lines_that_are_appended_come_after_all_others(fs: EngramFileSystem, top: str) -> None:
    with fs.open(f"{top}/run/small", "ab") as file:
        file.write(b"123")
        file.seek(-2, io.SEEK_END)
        file.writelines([b"4", b"5"])
    assert fs.cat(f"{top}/run/small") == b"small12345"


def test_what_is_removed_is_gone_and_nothing_else(fs: EngramFileSystem, top: str) -> None:
    refused: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: fs.rm(f"{top}/run"), IsADirectoryError),
        (lambda: fs.rm_file(f"{top}/run"), IsADirectoryError),
        (lambda: fs.rm(f"{top}/none"), FileNotFoundError),
        (lambda: fs.rm([f"{top}/run/big", f"{top}/none"]), FileNotFoundError),
        (lambda: fs.rm(top, recursive=True), IsADirectoryError),
        (lambda: fs.rm_file(f"{top}/none"), FileNotFoundError),
    ]
    for fails, error in refused:
        with pytest.raises(error):
            fails()
        assert fs.exists(f"{top}/run/big")
    fs.pipe({f"{top}/f[1]": b"", f"{top}/f1": b""})
    fs.rm(f"{top}/f[1]")  # what has this name goes, not what the pattern matches
    assert fs.exists(f"{top}/f1")
    fs.rm(f"{top}/f?")
    assert not fs.exists(f"{top}/f1")
    fs.pipe({f"{top}/many/a/b/c": b"", f"{top}/many/a/d": b"", f"{top}/many/a.b": b""})
    fs.rm(f"{top}/many/*/**", recursive=True)  # what is below goes with what is above it
    assert names(fs, f"{top}/many", top) == ["many/a.b"]
    fs.rm([f"{top}/many", f"{top}/many/a.b"], recursive=True)
    fs.rm([f"{top}/run/big", f"{top}/run/T"])
    assert names(fs, f"{top}/run", top) == ["run/small"]
    fs.pipe(f"{top}/run/deep/er/x", b"")
    fs.rm(f"{top}/run", recursive=True, maxdepth=1)
    assert names(fs, f"{top}/run", top) == ["run/deep/er/x"]
    fs.rm(f"{top}/run", recursive=True)
    assert not fs.exists(f"{top}/run")


def test_local_files_come_and_go(fs: EngramFileSystem, top: str, tmp_path: Path) -> None:
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/a").write_bytes(BIG)
    (tmp_path / "in/sub/b").write_bytes(b"b")
    told: list[int] = []

    class Callback(fsspec.callbacks.Callback):  # type: ignore[misc]  # fsspec has no types
        def relative_update(self, inc: int = 1) -> None:
            told.append(inc)

        def branched(self, *_: Any, **__: Any) -> Callback:
            return self

    fs.put(str(tmp_path / "in"), f"{top}/in", recursive=True, callback=Callback())
    assert sum(told) - told.count(1) >= len(BIG)
    assert names(fs, f"{top}/in", top) == ["in/a", "in/sub/b"]
    fs.get(f"{top}/in", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out/a").read_bytes() == BIG
    assert (tmp_path / "out/sub/b").read_bytes() == b"b"
    fs.put_file(str(tmp_path / "in/a"), f"{top}/made", mode="create")
    with pytest.raises(FileExistsError):
        fs.put_file(str(tmp_path / "in/a"), f"{top}/made", mode="create")
    with pytest.raises(FileNotFoundError):
        fs.put_file(str(tmp_path / "none"), f"{top}/made")
    assert fs.cat(f"{top}/made") == BIG
    into = io.BytesIO()
    fs.get_file(f"{top}/in/a", into)
    assert into.getvalue() == BIG
    with pytest.raises(FileNotFoundError):
        fs.get_file(f"{top}/none", str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_touch_makes_empties_and_dates(fs: EngramFileSystem, top: str, pool: engram.Pool) -> None:
    fs.touch(f"{top}/new")
    assert fs.cat(f"{top}/new") == b""
    before = fs.modified(f"{top}/run/small")
    fs.touch(f"{top}/run/small", truncate=False)
    assert fs.modified(f"{top}/run/small") > before
    assert pool["run/small"][...] == b"small"
    fs.touch(f"{top}/run/small")
    assert fs.size(f"{top}/run/small") == 0


# Errors


def test_errors_are_those_of_files_and_of_engram(fs: EngramFileSystem, top: str) -> None:
    cases: list[tuple[Callable[[], Any], type[OSError], type[Exception], str]] = [
        (lambda: fs.open(f"{top}/none"), FileNotFoundError, engram.NotFoundError, "/none"),
        (lambda: fs.info(f"{top}/none"), FileNotFoundError, engram.NotFoundError, "/none"),
        (lambda: fs.ls(f"{top}/none"), FileNotFoundError, engram.NotFoundError, "/none"),
        (lambda: fs.cat(f"{top}/none"), FileNotFoundError, engram.NotFoundError, "/none"),
        (lambda: fs.touch(f"{top}/run"), IsADirectoryError, engram.ArgumentError, "/run"),
        (lambda: fs.cat_file(f"{top}/run"), IsADirectoryError, engram.ArgumentError, "/run"),
        (lambda: fs.open(f"{top}/run", "wb"), IsADirectoryError, engram.ArgumentError, "/run"),
        (lambda: fs.open(top, "wb"), IsADirectoryError, engram.ArgumentError, "pool"),
        (
            lambda: fs.pipe(f"{top}/run/small/x", b""),
            *(NotADirectoryError, engram.ArgumentError, "/run/small is no group"),
        ),
        (lambda: fs.pipe(f"{top}/{'x' * 300}", b""), OSError, engram.InvalidNameError, "255"),
        (lambda: fs.cat(f"{top}/run/../x"), OSError, engram.InvalidNameError, "reserved"),
        (
            lambda: fs.ls(str(Path(top).parent / "none")),
            *(FileNotFoundError, engram.PoolNotFoundError, "no pool is at"),
        ),
        (
            lambda: fsspec.filesystem("engram", namespace="none").ls(top),
            *(FileNotFoundError, engram.NotFoundError, "none"),
        ),
    ]
    for fails, error, kin, says in cases:
        with pytest.raises(error, match=says) as told:
            fails()
        assert isinstance(told.value, kin)
        assert told.value.errno
        again = pickle.loads(pickle.dumps(told.value))
        assert (str(again), again.errno) == (str(told.value), told.value.errno)
    with pytest.raises(ValueError, match="pool_mode 'w'"):
        fsspec.filesystem("engram", pool_mode="w")
    with pytest.raises(RuntimeError, match="not implemented"):
        fs.sign(f"{top}/run/small")


def test_a_pool_that_is_read_is_not_written(top: str, pool: engram.Pool) -> None:
    fs = fsspec.filesystem("engram", pool_mode="r")
    assert fs.cat(f"{top}/run/small") == b"small"
    writes: list[Callable[[], Any]] = [
        lambda: fs.pipe(f"{top}/x", b""),
        lambda: fs.open(f"{top}/x", "wb"),
        lambda: fs.open(f"{top}/run/small", "ab"),
        lambda: fs.rm(f"{top}/run/small"),
        lambda: fs.mkdir(f"{top}/x"),
        lambda: fs.mv(f"{top}/run/small", f"{top}/x"),
        lambda: fs.cp(f"{top}/run/small", f"{top}/x"),
        lambda: fs.touch(f"{top}/run/small"),
    ]
    for fails in writes:
        with pytest.raises(PermissionError, match=r"pool_mode='r\+'") as refused:
            fails()
        assert isinstance(refused.value, engram.ReadOnlyError)
    pool["run/small"].read_only = True
    writing = fsspec.filesystem("engram")
    with pytest.raises(PermissionError, match="read-only"):
        writing.pipe(f"{top}/run/small", b"1")
    with pytest.raises(PermissionError, match="read-only"):
        writing.rm(f"{top}/run/small")


def test_what_is_no_pool_is_told(fs: EngramFileSystem, home: Path) -> None:
    (home / "broken").mkdir()
    (home / "broken/pool.toml").write_text("format = 'none of ours'")
    with pytest.raises(OSError, match="broken") as told:
        fs.ls(str(home / "broken"))
    assert isinstance(told.value, engram.FormatError)


# Pools that stay open


def test_a_pool_that_is_made_anew_is_opened_anew(fs: EngramFileSystem, home: Path) -> None:
    path = str(home / "anew")
    for n in range(3):
        with engram.create(path, size="16 MiB", force=True) as pool:
            pool["n"] = b"%d" % n
            assert fs.cat(f"{path}/n") == b"%d" % n
            fs.pipe(f"{path}/m", b"1")
        engram.destroy(path)  # what paths keep open is no hindrance in their own process
        with pytest.raises(FileNotFoundError):
            fs.cat(f"{path}/n")
    for n in range(3):
        with engram.create(path, size="16 MiB", force=True) as pool:
            pool["n"] = b"%d" % n
        assert fs.cat(f"{path}/n") == b"%d" % n
        shutil.rmtree(path)
        with pytest.raises(FileNotFoundError):
            fs.cat(f"{path}/n")


def test_a_file_goes_into_the_pool_that_is_there_when_it_is_closed(
    fs: EngramFileSystem, home: Path
) -> None:
    path = str(home / "p")
    engram.create(path, size="16 MiB", force=True).close()
    file = fs.open(f"{path}/f", "wb")
    file.write(b"1")
    engram.destroy(path)
    engram.create(path, size="16 MiB", force=True).close()
    file.close()
    assert fs.cat(f"{path}/f") == b"1"


def test_closing_lets_others_destroy_a_pool(home: Path) -> None:
    path = str(home / "p")
    with engram.create(path, size="16 MiB", force=True) as pool:
        pool["x"] = b"1"
    code = (
        "import fsspec, sys\n"
        "fs = fsspec.filesystem('engram')\n"
        "for line in sys.stdin:\n"
        "    fs.close() if line == 'close\\n' else fs.cat(sys.argv[1] + '/x')\n"
        "    print('done', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], text=True, stdin=-1, stdout=-1
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None

        def ask(what: str) -> None:
            print(what, file=other.stdin, flush=True)
            assert other.stdout is not None
            assert other.stdout.readline() == "done\n"

        ask("read")
        with pytest.raises(engram.BusyError):
            engram.destroy(path)
        ask("close")
        ask("read")
        ask("close")
        engram.destroy(path)
        other.stdin.close()


def test_a_users_own_opening_is_left_alone(fs: EngramFileSystem, top: str, home: Path) -> None:
    with engram.open(top) as own:
        assert fs.cat(f"{top}/run/small") == b"small"
        fs.close()
        assert own["run/small"][...] == b"small"
    assert fs.cat(f"{top}/run/small") == b"small"
    assert home


def test_a_namespace_is_an_option(top: str, pool: engram.Pool) -> None:
    pool.create_namespace("icesat", mode=0o700)["f"] = b"of icesat"
    fs = fsspec.filesystem("engram", namespace="icesat")
    assert fs.cat(f"{top}/f") == b"of icesat"
    assert fs.fsid != fsspec.filesystem("engram").fsid
    with fsspec.open(f"engram://{top}/g", "wb", namespace="icesat") as file:
        file.write(b"1")
    assert "g" not in pool
    assert "g" in pool.namespaces["icesat"]


def test_file_systems_and_files_pickle(fs: EngramFileSystem, top: str, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(fs))
    assert again is fs
    reading = fsspec.filesystem("engram", pool_mode="r")
    assert fsspec.AbstractFileSystem.from_json(reading.to_json()) is reading
    assert fsspec.filesystem("engram", skip_instance_cache=True) is not fs
    with fs.open(f"{top}/run/big") as file:
        file.seek(10)
        (tmp_path / "packed").write_bytes(pickle.dumps((reading, file)))
    code = (
        "import pickle, sys\n"
        "fs, file = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(fs.size(file.path), file.tell(), len(file.read()))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "packed"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert ran.stdout.split() == [str(len(BIG)), "10", str(len(BIG) - 10)]
    with fs.open(f"{top}/x", "wb") as file, pytest.raises(ValueError, match="for writing"):
        pickle.dumps(file)


def test_a_forked_child_reads_and_writes(fs: EngramFileSystem, top: str) -> None:
    assert fs.cat(f"{top}/run/small") == b"small"
    with fs.open(f"{top}/run/big") as opened:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                own = fsspec.filesystem("engram")
                assert own is not fs
                own.pipe(f"{top}/child", opened.read() + own.cat(f"{top}/run/small"))
                fs.pipe(f"{top}/child2", b"of what was the parent's")
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert fs.cat(f"{top}/child") == BIG + b"small"
        assert fs.exists(f"{top}/child2")
        fs.pipe(f"{top}/parent", b"1")
        assert opened.read() == BIG


def test_a_child_that_ends_leaves_its_parents_files_alone(top: str) -> None:
    code = (
        "import fsspec, os, sys\n"
        "fs = fsspec.filesystem('engram')\n"
        "fs.pipe(sys.argv[1] + '/a', b'1')\n"
        "file = fs.open(sys.argv[1] + '/b', 'wb')\n"
        "file.write(b'of the parent')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert not fs.exists(sys.argv[1] + '/b')\n"
        "file.close()\n"
        "print(fs.cat(sys.argv[1] + '/a') + fs.cat(sys.argv[1] + '/b'))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, top], capture_output=True, check=False, text=True
    )
    assert (ran.stdout, ran.stderr) == ("b'1of the parent'\n", "")


def test_threads_share_the_pools_that_are_open(top: str) -> None:
    errors: list[BaseException] = []

    def work(name: int) -> None:
        try:
            fs = fsspec.filesystem("engram")
            for n in range(40):
                fs.pipe(f"{top}/threads/{name}/{n}", BIG)
                assert fs.cat(f"{top}/threads/{name}/{n}") == BIG
                if n % 10 == 9:
                    fs.rm(f"{top}/threads/{name}", recursive=True)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_the_library_that_is_missing_is_named(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['fsspec'] = None\n"
        "import engram\n"
        "try:\n"
        "    import engram.fsspec\n"
        "except engram.UnsupportedError as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, cwd=tmp_path
    )
    assert "pip install 'engram[fsspec]'" in ran.stdout


def test_a_local_file_system_is_not_taken_for_it() -> None:
    assert fsspec.get_filesystem_class("engram") is EngramFileSystem
    assert not issubclass(EngramFileSystem, LocalFileSystem)
