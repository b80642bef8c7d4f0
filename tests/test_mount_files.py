"""Files and folders of a mount, and the objects and groups of the pool that they are."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import stat
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import engram
from mounted import EXCHANGE, NOREPLACE, allocate, code_of, names, needs_fuse, rename
from support import BIG

pytestmark = needs_fuse

WHITEOUT = 4
KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE = 1, 2, 8, 16
PAGE = 4096


@pytest.mark.parametrize("nbytes", [0, 1, 1024, 1025, 65_536, 3_000_001])
def test_a_file_is_a_blob_of_these_bytes(
    pool: engram.Pool, seen: Path, rng: np.random.Generator, nbytes: int
) -> None:
    data = rng.bytes(nbytes)
    (seen / "out").mkdir()
    (seen / "out/file").write_bytes(data)
    blob = pool["out/file"]
    assert isinstance(blob, engram.Blob)
    assert blob.nbytes == nbytes
    assert bytes(blob) == data
    pool["out/other"] = data
    assert (seen / "out/other").read_bytes() == data
    assert names(seen / "out") == ["file", "other"]
    about = (seen / "out/other").stat()
    assert stat.S_ISREG(about.st_mode)
    assert (about.st_size, about.st_nlink) == (nbytes, 1)


def test_a_file_is_written_here_and_there_by_turns(
    pool: engram.Pool, seen: Path, rng: np.random.Generator
) -> None:
    expected = bytearray(300_000)
    path = seen / "file"
    path.write_bytes(expected)
    for nth in range(40):
        at, data = int(rng.integers(0, 310_000)), rng.bytes(int(rng.integers(1, 9000)))
        expected.extend(bytes(max(0, at + len(data) - len(expected))))
        expected[at : at + len(data)] = data
        if nth % 2:
            with pool.open_file("file", "r+") as file:
                file.seek(at)
                file.write(data)
        else:
            with path.open("r+b") as written:
                written.seek(at)
                written.write(data)
        assert bytes(pool["file"]) == expected
        assert path.read_bytes() == expected


def test_an_array_is_a_file_that_keeps_its_size(pool: engram.Pool, seen: Path) -> None:
    data = np.arange(60_000.0).reshape(200, 300)
    pool["T"] = data
    path = seen / "T"
    assert path.read_bytes() == data.tobytes()
    with path.open("r+b") as file:
        file.seek(8)
        file.write(np.float64(-1).tobytes())
        assert code_of(os.ftruncate, file.fileno(), 8) == "EPERM"
        file.seek(0, os.SEEK_END)
        assert code_of(os.write, file.fileno(), b"more") == "EPERM"
    data[0, 1] = -1
    assert np.array_equal(pool["T"][...], data)
    mapped = np.memmap(path, "f8", "r+", shape=(200, 300))
    mapped[-1, -1] = 7
    mapped.flush()
    del mapped
    assert pool["T"][-1, -1] == 7


def test_an_array_is_shown_as_a_file_of_numpys(pool: engram.Pool, seen: Path) -> None:
    arrays = {
        "T": np.arange(60_000.0).reshape(200, 300),
        "times": np.array(["2020-01-01", "2021-02-03"], "M8[D]"),
        "names": np.array(["a", "öß"]),
        "mixed": np.array([(1, 2.5)], [("x", "<i4"), ("y", ">f8")]),
        "one": np.array(3),
    }
    group = pool.create_group("g")
    for name, array in arrays.items():
        group[name] = array
        path = seen / "g" / f"{name}.npy"
        loaded = np.load(path)
        assert loaded.dtype == array.dtype
        assert np.array_equal(loaded, array)
        assert path.stat().st_size == len(path.read_bytes())
        assert code_of(path.open, "r+b") in {"EACCES", "EPERM"}
    mapped = np.load(seen / "g/T.npy", mmap_mode="r")
    assert np.array_equal(mapped, arrays["T"])
    assert names(seen / "g") == sorted(arrays)
    assert not (seen / "g/none.npy").exists()
    pool["g/blob"] = b"no array"
    assert not (seen / "g/blob.npy").exists()


def test_a_chunked_array_is_read_and_not_written(pool: engram.Pool, seen: Path) -> None:
    data = np.arange(24_000, dtype="i4").reshape(60, 400)
    pool.create_array("C", data=data, chunks=(16, 64), codec="zstd")
    assert (seen / "C").read_bytes() == data.tobytes()
    with (seen / "C").open("rb") as file:
        file.seek(1234)
        assert file.read(5678) == data.tobytes()[1234 : 1234 + 5678]
    assert code_of((seen / "C").open, "r+b") == "EPERM"


def test_a_query_is_a_folder_of_links_to_what_it_finds(pool: engram.Pool, seen: Path) -> None:
    for n in range(5):
        pool[f"run/{n}"] = np.full(3, n)
        pool[f"run/{n}"].attrs["orbit"] = n
    (seen / "text%").write_bytes(b"by hand")
    os.setxattr(seen / "text%", b"user.orbit:i8", b"9")
    hits = seen / ".engram/query/orbit > 2"
    assert names(hits) == ["run%2F3", "run%2F4", "text%25"]
    assert (hits / "run%2F3").readlink() == Path("../../../run/3")
    assert np.fromfile(hits / "run%2F4", int).tolist() == [4, 4, 4]
    assert (hits / "text%25").read_bytes() == b"by hand"
    assert names(seen / ".engram/query/orbit = 77") == []
    assert code_of(names, seen / ".engram/query/orbit >") == "ENOENT"
    assert ".engram" not in names(seen)
    assert names(seen / ".engram") == ["query"]
    assert code_of((seen / ".engram/file").write_bytes, b"") in {"EPERM", "EACCES"}
    assert code_of(os.mkdir, seen / ".engram/query/x") in {"EPERM", "EACCES", "ENOENT", "EEXIST"}


def test_attributes_are_extended_attributes_and_found(pool: engram.Pool, seen: Path) -> None:
    path = seen / "file"
    path.write_bytes(BIG)
    os.setxattr(path, b"user.title", "a täxt".encode())
    os.setxattr(path, b"user.temp:f8", b"-15.5")
    os.setxattr(path, b"user.step:u4", b"17")
    attrs = pool["file"].attrs
    assert dict(attrs) == {"title": "a täxt", "temp": -15.5, "step": 17}
    assert attrs["step"].dtype == np.uint32
    assert [hit.path for hit in pool.query("temp < -15 and step = 17")] == ["file"]
    attrs["units"] = "K"
    attrs["level"] = np.float32(2.5)
    assert os.getxattr(path, b"user.units") == b"K"
    assert os.getxattr(path, b"user.temp") == os.getxattr(path, b"user.temp:f8") == b"-15.5"
    assert float(os.getxattr(path, b"user.level:f4")) == 2.5
    keys = {"title", "temp", "step", "units", "level"}
    assert set(os.listxattr(path)) == {f"user.{key}" for key in keys}
    os.removexattr(path, b"user.temp")
    assert "temp" not in attrs
    assert list(pool.query("temp < -15")) == []
    pool.create_group("g")
    os.setxattr(seen / "g", b"user.of", b"a group")
    assert pool["g"].attrs["of"] == "a group"


def test_extended_attributes_are_refused_as_linux_does(pool: engram.Pool, seen: Path) -> None:
    path = seen / "file"
    path.write_bytes(b"")
    os.setxattr(path, b"user.k", b"v", os.XATTR_CREATE)
    assert code_of(os.setxattr, path, b"user.k", b"v", os.XATTR_CREATE) == "EEXIST"
    assert code_of(os.setxattr, path, b"user.other", b"v", os.XATTR_REPLACE) == "ENODATA"
    assert code_of(os.getxattr, path, b"user.other") == "ENODATA"
    assert code_of(os.getxattr, path, b"user.k:f8") == "ENODATA"
    assert code_of(os.removexattr, path, b"user.other") == "ENODATA"
    assert code_of(os.setxattr, path, b"user.k:f8", b"much") == "EINVAL"
    assert code_of(os.setxattr, path, b"user.engram.dtype", b"f8") == "EPERM"
    assert code_of(os.setxattr, path, b"trusted.k", b"v") in {"EOPNOTSUPP", "EPERM"}
    assert dict(pool["file"].attrs) == {"k": "v"}


def test_a_stage_tag_says_one_of_two_things(pool: engram.Pool, seen: Path) -> None:
    (seen / "out").mkdir()
    (seen / "out/file").write_bytes(b"x")
    os.setxattr(seen / "out", b"user.engram.stage", b"persistent")
    os.setxattr(seen / "out/file", b"user.engram.stage", b"temporary\0")
    assert pool["out"].attrs["engram.stage"] == "persistent"
    assert pool["out/file"].attrs["engram.stage"] == "temporary"
    assert os.getxattr(seen / "out", b"user.engram.stage") == b"persistent"
    for name, value in ((b"engram.stage", b"lasting"), (b"engram.stage:f8", b"1")):
        assert code_of(os.setxattr, seen / "out", b"user." + name, value) == "EINVAL"
    os.removexattr(seen / "out", b"user.engram.stage")
    assert "engram.stage" not in pool["out"].attrs


def test_an_array_says_what_it_is(pool: engram.Pool, seen: Path) -> None:
    pool.create_array("T", data=np.zeros((2, 3), "f4"), dims=("y", "x"))
    told = {
        key: os.getxattr(seen / "T", f"user.engram.{key}") for key in ("dtype", "shape", "dims")
    }
    assert told == {"dtype": b"float32", "shape": b"(2, 3)", "dims": b"y,x"}
    assert int(os.getxattr(seen / "T", b"user.engram.oid"), 16) == pool["T"].oid


def test_modes_owners_and_times_are_kept(pool: engram.Pool, seen: Path) -> None:
    path, folder = seen / "file", seen / "folder"
    path.write_bytes(BIG)
    folder.mkdir(0o750)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    path.chmod(0o4751 if os.geteuid() == 0 else 0o751)
    assert stat.S_IMODE(path.stat().st_mode) & 0o777 == 0o751
    assert pool["file"].posix.mode & 0o777 == 0o751
    if os.geteuid() == 0:
        os.chown(path, 1234, 5678)
        about = path.stat()
        assert (about.st_uid, about.st_gid) == (1234, 5678)
    (seen / "small").write_bytes(b"small")
    for node in (folder, seen / "small"):
        os.utime(node, ns=(10**18 + 1, 2 * 10**18 + 3))
        assert node.stat().st_mtime_ns == 2 * 10**18 + 3
    with path.open("r+b", buffering=0) as file:
        file.write(b"x")
        os.utime(file.fileno(), ns=(10**18 + 1, 2 * 10**18 + 3))
    assert (path.stat().st_atime_ns, path.stat().st_mtime_ns) == (10**18 + 1, 2 * 10**18 + 3)
    before = time.time_ns()
    (folder / "new").write_bytes(b"")
    assert before - 10**9 < folder.stat().st_mtime_ns < time.time_ns() + 10**9
    mask = os.umask(0o077)
    try:
        (seen / "mine").write_bytes(b"")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((seen / "mine").stat().st_mode) == 0o600


def test_symbolic_links_lead_anywhere(pool: engram.Pool, seen: Path) -> None:
    (seen / "a").mkdir()
    (seen / "a/file").write_bytes(b"found")
    for name, target in {"rel": "a/file", "up": "../mount/a", "out": "/etc", "not": "nö"}.items():
        (seen / name).symlink_to(target)
        assert (seen / name).readlink() == Path(target)
        assert (seen / name).is_symlink()
    assert (seen / "rel").read_bytes() == (seen / "up/file").read_bytes() == b"found"
    assert (seen / "out").is_dir()
    assert not (seen / "not").exists()
    (seen / "loop").symlink_to("loop")
    assert code_of(os.stat, seen / "loop") == "ELOOP"
    assert code_of(os.symlink, "x" * 5000, seen / "long") == "ENAMETOOLONG"
    assert sorted(pool) == names(seen)


def test_a_file_of_two_names_is_one(pool: engram.Pool, seen: Path) -> None:
    (seen / "sub").mkdir()
    first, second = seen / "first", seen / "sub/second"
    first.write_bytes(b"one")
    os.link(first, second)
    assert first.stat().st_ino == second.stat().st_ino
    assert first.stat().st_nlink == pool["first"].nlink == 2
    second.write_bytes(BIG)
    assert first.read_bytes() == bytes(pool["first"]) == bytes(pool["sub/second"]) == BIG
    first.unlink()
    assert second.stat().st_nlink == 1
    assert bytes(pool["sub/second"]) == BIG
    assert code_of(os.link, seen / "sub", seen / "other") == "EPERM"
    assert code_of(os.link, second, second) == "EEXIST"


def test_renaming_replaces_what_has_the_name(pool: engram.Pool, seen: Path) -> None:
    for name in "abc":
        (seen / name).write_bytes(name.encode() * 5000)
    (seen / "full").mkdir()
    (seen / "full/in").write_bytes(b"in")
    (seen / "empty").mkdir()
    with (seen / "b").open("rb") as replaced:
        (seen / "a").rename(seen / "b")
        assert replaced.read() == b"b" * 5000
    assert (seen / "b").read_bytes() == bytes(pool["b"]) == b"a" * 5000
    assert "a" not in pool
    assert code_of(os.rename, seen / "b", seen / "empty") == "EISDIR"
    assert code_of(os.rename, seen / "full", seen / "b") == "ENOTDIR"
    assert code_of(os.rename, seen / "empty", seen / "full") == "ENOTEMPTY"
    assert code_of(os.rename, seen / "full", seen / "full/in/x") == "ENOTDIR"
    assert code_of(os.rename, seen / "full", seen / "full/x") == "EINVAL"
    (seen / "full").rename(seen / "empty")
    assert bytes(pool["empty/in"]) == b"in"
    assert sorted(pool) == ["b", "c", "empty"]


def test_names_are_exchanged_or_not_replaced(pool: engram.Pool, seen: Path) -> None:
    (seen / "a").write_bytes(b"first")
    (seen / "b").mkdir()
    (seen / "b/c").write_bytes(BIG)
    rename(seen / "a", seen / "b", EXCHANGE)
    assert bytes(pool["b"]) == b"first"
    assert bytes(pool["a/c"]) == BIG
    assert code_of(rename, seen / "a", seen / "b", NOREPLACE) == "EEXIST"
    assert code_of(rename, seen / "a", seen / "none", EXCHANGE) == "ENOENT"
    assert code_of(rename, seen / "a", seen / "none", WHITEOUT) == "EINVAL"
    rename(seen / "b", seen / "d", NOREPLACE)
    assert sorted(pool) == ["a", "d"]


def test_an_unlinked_file_lives_while_it_is_open(pool: engram.Pool, seen: Path) -> None:
    path = seen / "file"
    with path.open("w+b", buffering=0) as file:
        file.write(BIG)
        path.unlink()
        assert "file" not in pool
        path.write_bytes(b"another of this name")
        file.write(BIG)
        file.seek(0)
        assert file.read() == BIG + BIG
        about = os.fstat(file.fileno())
        assert (about.st_size, about.st_nlink) == (2 * len(BIG), 0)
        os.ftruncate(file.fileno(), 10)
        os.fchmod(file.fileno(), 0o600)
        file.seek(0)
        assert file.read() == BIG[:10]
    assert path.read_bytes() == b"another of this name"


def test_unlinked_files_give_their_space_back(pool: engram.Pool, seen: Path) -> None:
    for nth in range(8):  # in all four times what fits
        with (seen / "file").open("w+b", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, 128 << 20)
            file.write(b"%d" % nth)
            (seen / "file").unlink()
            file.seek(0)
            assert file.read(1) == b"%d" % nth
    assert list(pool) == []


def test_sizes_go_up_and_down(pool: engram.Pool, seen: Path) -> None:
    path = seen / "file"
    path.write_bytes(BIG)
    for size in (100_000, 100_001, 5, 0, 70_000, 1 << 30, 3, 5000):
        with path.open("rb") as file:
            before = file.read(min(size, 1 << 18))
        os.truncate(path, size)
        assert path.stat().st_size == pool["file"].nbytes == size
        with path.open("rb") as file:
            assert file.read(1 << 18) == before.ljust(min(size, 1 << 18), b"\0")
    assert bytes(pool["file"]) == bytes(5000)
    with path.open("ab") as file:
        file.write(b"end")
    with path.open("wb") as file:
        assert os.fstat(file.fileno()).st_size == 0
    assert bytes(pool["file"]) == b""
    assert code_of(os.truncate, path, (1 << 63) - 1) == "EFBIG"


def test_holes_take_no_space_and_are_found(pool: engram.Pool, seen: Path) -> None:
    path = seen / "sparse"
    far = 1 << 32  # sixteen times the pool
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, BIG, 0)
    os.pwrite(fd, BIG, far)
    assert path.stat().st_size == far + len(BIG)
    assert path.stat().st_blocks * 512 < 16 << 20
    hole = os.lseek(fd, 0, os.SEEK_HOLE)
    assert len(BIG) <= hole < 16 << 20
    assert hole <= os.lseek(fd, hole, os.SEEK_DATA) <= far
    assert os.lseek(fd, far + 1, os.SEEK_DATA) == far + 1
    assert os.lseek(fd, far + 1, os.SEEK_HOLE) == far + len(BIG)
    assert code_of(os.lseek, fd, far + len(BIG), os.SEEK_DATA) == "ENXIO"
    assert os.pread(fd, 100, 1 << 31) == bytes(100)
    assert os.pread(fd, len(BIG) + 9, far) == BIG
    os.ftruncate(fd, far - 5)
    assert os.lseek(fd, 0, os.SEEK_HOLE) == hole
    os.close(fd)
    assert bytes(pool["sparse"][: len(BIG)]) == BIG


def test_space_is_seen_to_and_punched(pool: engram.Pool, seen: Path) -> None:
    fd = os.open(seen / "file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 1 << 20)
    assert os.fstat(fd).st_size == 1 << 20
    assert os.fstat(fd).st_blocks * 512 >= 1 << 20
    os.pwrite(fd, BIG * 4, 0)
    blocks = os.fstat(fd).st_blocks
    allocate(fd, PUNCH_HOLE | KEEP_SIZE, 1 << 18, 1 << 19)
    assert os.fstat(fd).st_size == 1 << 20
    assert blocks - os.fstat(fd).st_blocks == (1 << 19) // 512
    expected = bytearray(BIG * 4)
    expected[1 << 18 : 3 << 18] = bytes(1 << 19)
    assert bytes(pool["file"]) == os.pread(fd, 1 << 20, 0) == expected
    assert os.lseek(fd, 0, os.SEEK_HOLE) == 1 << 18
    allocate(fd, PUNCH_HOLE | KEEP_SIZE, 10, 100)
    allocate(fd, ZERO_RANGE, 3 << 18, 7)
    expected[10:110] = bytes(100)
    expected[3 << 18 : (3 << 18) + 7] = bytes(7)
    assert bytes(pool["file"]) == os.pread(fd, 1 << 20, 0) == expected
    allocate(fd, KEEP_SIZE, 1 << 20, 1 << 20)
    assert os.fstat(fd).st_size == 1 << 20
    assert code_of(allocate, fd, COLLAPSE_RANGE, 0, PAGE) == "EOPNOTSUPP"
    assert code_of(allocate, fd, 0, 0, 1 << 40) == "ENOSPC"
    assert os.fstat(fd).st_size == 1 << 20
    os.close(fd)
    assert bytes(pool["file"]) == expected


def test_a_map_of_a_file_is_written_back(pool: engram.Pool, seen: Path) -> None:
    path = seen / "file"
    path.write_bytes(BIG)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[5000:5005] = b"mmap!"
        mapped.flush()
        file.seek(5000)
        assert file.read(5) == b"mmap!"
        file.seek(6000)
        file.write(b"write")
        file.flush()
        assert mapped[6000:6005] == b"write"
    assert bytes(pool["file"][5000:5005]) == b"mmap!"


def test_folders_are_made_and_removed_when_they_are_empty(pool: engram.Pool, seen: Path) -> None:
    (seen / "a/b/c").mkdir(parents=True)
    assert isinstance(pool["a/b/c"], engram.Group)
    assert code_of(os.rmdir, seen / "a") == "ENOTEMPTY"
    assert code_of(os.unlink, seen / "a/b") == "EISDIR"
    assert code_of(os.mkdir, seen / "a") == "EEXIST"
    assert (seen / "a").stat().st_nlink == 3
    (seen / "a/b/c").rmdir()
    assert code_of(os.rmdir, seen / "a/b/c") == "ENOENT"
    (seen / "a/file").write_bytes(b"")
    assert code_of(os.rmdir, seen / "a/file") == "ENOTDIR"
    assert list(pool["a"]) == ["b", "file"]


def test_a_folder_of_many_is_listed_whole(pool: engram.Pool, seen: Path) -> None:
    many = sorted(f"{n}-{'x' * (n % 40)}" for n in range(3000))
    (seen / "many").mkdir()
    for name in many[::2]:
        (seen / "many" / name).write_bytes(b"")
    with pool.batch():
        for name in many[1::2]:
            pool[f"many/{name}"] = b""
    assert names(seen / "many") == many
    with os.scandir(seen / "many") as entries:
        assert all(entry.is_file(follow_symlinks=False) for entry in entries)
    for name in many:
        (seen / "many" / name).unlink()
    assert list(pool["many"]) == []


def test_names_are_text_of_at_most_255_bytes(pool: engram.Pool, seen: Path) -> None:
    for name in ("ü" * 127 + "x", "a b\tc", "日本", "-rf", "a\nb"):
        (seen / name).write_bytes(b"")
        assert name in pool
        (seen / name).unlink()
    long = seen / ("ü" * 128)
    wrong = os.fsencode(seen) + b"/\xff\xfe"
    for make in (lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)), os.mkdir):
        assert code_of(make, long) == "ENAMETOOLONG"
        assert code_of(make, wrong) == "EILSEQ"
    assert code_of(os.symlink, b"x", wrong) == "EILSEQ"
    link = seen / "link"  # where it leads is bytes
    link.symlink_to(os.fsdecode(b"\xff"))
    assert os.fsencode(link.readlink()) == b"\xff"
    assert list(pool) == ["link"]


def test_fifos_and_sockets_are_kept_and_work(pool: engram.Pool, seen: Path) -> None:
    os.mkfifo(seen / "fifo")
    assert stat.S_ISFIFO((seen / "fifo").stat().st_mode)
    with subprocess.Popen(["cat", seen / "fifo"], stdout=subprocess.PIPE) as reader:
        (seen / "fifo").write_bytes(b"through")
        assert reader.communicate(timeout=60)[0] == b"through"
    assert "fifo" in pool


def test_locks_keep_others_out(seen: Path) -> None:
    (seen / "lock").write_bytes(b"")
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+')\n"
        "try: getattr(fcntl, sys.argv[2])(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError as e: print(e.errno)\n"
    )
    for way in ("flock", "lockf"):
        command = ["python3", "-c", script, str(seen / "lock"), way]
        with (seen / "lock").open("r+") as file:
            getattr(fcntl, way)(file, fcntl.LOCK_EX)
            said = subprocess.run(command, check=True, capture_output=True).stdout
            assert int(said) == errno.EAGAIN
        assert subprocess.run(command, check=True, capture_output=True).stdout == b""


def test_what_is_asked_of_the_file_system_is_what_the_pool_has(seen: Path) -> None:
    before = os.statvfs(seen)
    assert before.f_namemax == 255
    assert 0.5 < before.f_blocks * before.f_frsize / (256 << 20) <= 1.01
    (seen / "file").write_bytes(bytes(32 << 20))
    after = os.statvfs(seen)
    assert after.f_blocks == before.f_blocks
    assert (before.f_bavail - after.f_bavail) * before.f_frsize >= 32 << 20


def test_bytes_are_the_same_in_every_way_that_the_kernel_may_keep_them(
    pool: engram.Pool, point: Path, rng: np.random.Generator
) -> None:
    data = rng.bytes(5_000_000)
    for cache in ("job", "shared", "none"):
        with engram.mount(pool, point, cache=cache):
            (point / cache).write_bytes(data)
            for name in pool:
                found = hashlib.sha256((point / name).read_bytes()).digest()
                assert found == hashlib.sha256(data).digest()
