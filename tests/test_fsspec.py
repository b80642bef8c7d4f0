"""fsspec's view of pools: blobs are files, groups are directories, and errors are built-in."""

from __future__ import annotations

import io
import pickle
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest

import engram
from support import BIG, TEXT, names_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from engram.fsspec import EngramFileSystem


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


def test_a_name_in_the_hosts_place_is_a_clusters(fs: EngramFileSystem) -> None:
    asks: list[Callable[[], Any]] = [
        lambda: fs.cat("engram://node7/pool/x"),
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
    assert names_below(fs, top, top) == ["run/T", "run/big", "run/small"]
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
    assert names_below(fs, f"{top}/copy", top) == ["copy/T", "copy/big", "copy/small"]
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
    assert names_below(fs, f"{top}/gone", top) == ["gone/T", "gone/small"]
    fs.mv(f"{top}/gone", f"{top}/empty")  # into a group that is there
    fs.mv(f"{top}/empty/gone", f"{top}/empty/gone")
    assert pool["empty/gone/small"].oid == oid
    fs.mv(f"{top}/empty/gone/*", f"{top}/many")
    assert names_below(fs, f"{top}/many", top) == ["many/T", "many/small"]
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
        assert names_below(fs, other.path, other.path) == ["run/T", "run/big"]
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
    assert names_below(fs, f"{top}/many", top) == ["many/a.b"]
    fs.rm([f"{top}/many", f"{top}/many/a.b"], recursive=True)
    fs.rm([f"{top}/run/big", f"{top}/run/T"])
    assert names_below(fs, f"{top}/run", top) == ["run/small"]
    fs.pipe(f"{top}/run/deep/er/x", b"")
    fs.rm(f"{top}/run", recursive=True, maxdepth=1)
    assert names_below(fs, f"{top}/run", top) == ["run/deep/er/x"]
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
    assert names_below(fs, f"{top}/in", top) == ["in/a", "in/sub/b"]
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
