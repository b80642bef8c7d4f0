"""Files as members of a pool: their names, what is told of them and refused, where they go."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from pool_files import BIG, MIB, SMALL, content, sparse, written

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("sound")


# Names


def test_an_open_file_goes_on_without_a_name_and_its_space_comes_back(pool: engram.Pool) -> None:
    before = pool.used
    ways: list[Callable[[], object]] = [
        lambda: pool.__delitem__("g/f"),
        lambda: pool.__delitem__("g"),
        lambda: pool.__setitem__("g/f", SMALL),
    ]
    for way in ways:
        with pool.open_file("g/f", "wb+") as file:
            file.write(BIG)
            again = pool.open_file("g/f")
            assert file.blob.nbytes == len(BIG)
            way()
            assert file.name == hex(file.blob.oid)
            file.write(BIG)
            assert again.readall() == BIG * 2
            assert pool.used >= before + len(BIG) * 2
            assert engram.verify(pool.path).problems == []
            if "g/f" in pool:
                assert pool["g/f"][...] == SMALL
                assert pool["g/f"] != file.blob
        assert pool.used > before
        again.close()
        pool.clear()
        assert pool.used == before
        with pytest.raises(engram.NotFoundError):
            file.blob[...]
        assert file.blob.nbytes == len(BIG), "of one that is gone, how many it had"


def test_a_file_has_further_names_and_goes_with_the_last(pool: engram.Pool) -> None:
    before = pool.used
    blob = written(pool, "f")
    assert blob.nlink == 1
    pool.link("f", "new/group/g")
    pool["new"].link("group/g", "/h")
    assert (blob.nlink, pool["h"].nlink, pool["h"]) == (3, 3, blob)
    with pool.open_file("h", "rb+") as file:
        file.write(b"through h")
    del pool["f"]
    assert pool["new/group/g"][:9] == b"through h"
    assert blob.path in {"h", "new/group/g"}
    del pool["new"]
    assert (blob.nlink, blob.path) == (1, "h")
    pool.move("h", "i")
    assert (blob.path, blob[:9]) == ("i", b"through h")
    pool["array"] = np.arange(10.0)
    pool.link("array", "values")
    pool["values"][0] = 7
    assert (pool["array"][0], pool["values"].posix.nlink) == (7, 2)
    del pool["i"], pool["array"], pool["values"]
    assert pool.used == before


def test_links_that_cannot_be_are_refused(pool: engram.Pool) -> None:
    written(pool, "f")
    pool.create_group("g")
    with pytest.raises(engram.NotFoundError, match=r"there is no 'nothing' to give a further name"):
        pool.link("nothing", "l")
    with pytest.raises(engram.ArgumentError, match=r"'g' is a group, .*: use symlink"):
        pool.link("g", "l")
    for name in ("f", "g"):
        with pytest.raises(engram.ExistsError, match=f'"{name}" exists'):
            pool.link("f", name)
        with pytest.raises(engram.ExistsError, match=f'"{name}" exists'):
            pool.symlink("f", name)
        with pytest.raises(engram.ExistsError, match=f'"{name}" exists'):
            pool.create_file(name)
    private = pool.create_group("private", scope="private")
    with pytest.raises(engram.UnsupportedError, match=r'"l" .* is of another scope, .*copy it'):
        private.link("/f", "l")
    assert (pool["f"].nlink, list(private)) == (1, [])


def test_symbolic_links_are_followed(pool: engram.Pool) -> None:
    pool["a/b/f"] = SMALL
    for target, name in (
        ("b/f", "a/down"),
        ("../a/down", "c/chain"),
        ("./../c/./chain", "c/dots"),
        ("a", "group"),
        ("../../../a/b/f", "c/above-the-root-is-the-root"),
        ("new", "fresh"),
    ):
        link = pool.symlink(target, name)
        assert (pool[name], link[...], len(link)) == (link, target.encode(), len(target))
        assert (link.posix.kind, link.posix.mode, link.posix.size) == (
            *("symlink", 0o777),
            len(target),
        )
    for path in ("a/down", "c/chain", "c/dots", "group/down", "group/b/f", "c/../a/b/../b/f"):
        assert content(pool, path) == SMALL, path
    assert content(pool, "c/above-the-root-is-the-root") == SMALL
    with pool["c"].open_file("chain", "ab") as file:
        file.write(BIG)
        assert file.name == "a/b/f"
    assert pool["a/b/f"][...] == SMALL + BIG
    with pool.open_file("group/made", "xb") as file:
        file.write(SMALL)
    assert pool["a/made"][...] == SMALL
    # One that leads to nothing makes what it leads to, but is no free name.
    with pytest.raises(engram.NotFoundError, match="no file 'fresh'"):
        pool.open_file("fresh")
    with pytest.raises(engram.ExistsError, match="there is 'fresh' already"):
        pool.open_file("fresh", "xb")
    assert "new" not in pool
    with pool.open_file("fresh", "wb") as file:
        file.write(SMALL)
    assert pool["new"][...] == SMALL
    # It is its own name that is deleted.
    del pool["fresh"]
    assert pool["new"][...] == SMALL


def test_symbolic_links_that_lead_nowhere_are_refused(pool: engram.Pool) -> None:
    pool.symlink("two", "one")
    pool.symlink("one", "two")
    pool.symlink("itself", "itself")
    pool.symlink("no/group", "lost")
    pool.symlink("/etc/passwd", "out")
    for number in range(41):
        pool.symlink(f"chain{number + 1}", f"chain{number}")
    pool["chain41"] = SMALL
    assert content(pool, "chain1") == SMALL
    before = list(pool)
    for mode in ("rb", "rb+", "wb", "ab", "xb"):
        for path in ("one", "itself", "chain0"):
            with pytest.raises(engram.ArgumentError, match=f'"{path}" leads through more than 40'):
                pool.open_file(path, mode)
        with pytest.raises(engram.UnsupportedError, match=r'"out" leads to "/etc/passwd", out of'):
            pool.open_file("out", mode)
        kinds = engram.ExistsError if mode == "xb" else engram.NotFoundError
        with pytest.raises(kinds, match="'lost'"):
            pool.open_file("lost", mode)
    with pytest.raises(engram.EngramError, match="leads somewhere"):
        pool.symlink("", "empty")
    with pytest.raises(engram.EngramError, match="5000 bytes is too long"):
        pool.symlink("x" * 5000, "long")
    assert list(pool) == before


# What is told of files


def test_posix_tells_of_every_kind(pool: engram.Pool) -> None:
    made = pool.create_file("made", mode=0o4751)
    assert made.nbytes == 0
    assert made.segments == []
    written(pool, "f")
    pool["array"] = np.arange(1000.0)
    pool.create_group("g/inner")
    pool.link("f", "further")
    told = {name: member.posix for name, member in pool.items()}
    assert {name: posix.kind for name, posix in told.items()} == {
        **dict.fromkeys(("made", "f", "array", "further"), "file"),
        "g": "folder",
    }
    assert {name: (posix.mode, posix.nlink) for name, posix in told.items()} == {
        "made": (0o4751, 1),
        **dict.fromkeys(("f", "further"), (0o600, 2)),
        "array": (0o600, 1),
        "g": (0o700, 3),
    }
    assert (told["f"].size, told["array"].size) == (len(BIG), 8000)
    assert told["f"].ino == told["further"].ino
    assert len({posix.ino for posix in told.values()}) == 4
    assert {(posix.uid, posix.gid) for posix in told.values()} == {(os.getuid(), os.getgid())}
    assert pool.posix.kind == "folder"
    assert "file mode=0o4751" in repr(told["made"])


def test_writing_is_told_by_the_times(pool: engram.Pool) -> None:
    for data in (SMALL, BIG):
        blob = written(pool, "f", data)
        before = blob.posix
        assert before.mtime_ns > 10**18
        with pool.open_file("f", "rb+") as file:
            assert file.read(1) == data[:1]
            assert blob.posix.mtime_ns == before.mtime_ns
            while blob.posix.mtime_ns == before.mtime_ns:
                file.seek(0)
                file.write(b"x")
            assert blob.posix.mtime_ns > before.mtime_ns
            assert blob.posix.ctime_ns > before.ctime_ns


@pytest.mark.parametrize("mode", [-1, 0o10000, "640", 1.5], ids=repr)
def test_permissions_that_are_none_are_refused(pool: engram.Pool, mode: Any) -> None:
    with pytest.raises(engram.ArgumentError, match=r"mode (.+) is (none|no number): give "):
        pool.create_file("f", mode=mode)
    assert "f" not in pool


# What is refused


def test_a_batch_has_no_files(pool: engram.Pool) -> None:
    written(pool, "there")
    with pool.open_file("there", "rb+") as file, contextlib.suppress(ZeroDivisionError):
        with pool.batch():
            for path, mode in (("there", "rb"), ("there", "ab"), ("new", "wb"), ("new", "xb")):
                with pytest.raises(
                    engram.BusyError, match=r"runs a batch, which cannot undo .*end"
                ):
                    pool.open_file(path, mode)
            refused: list[Callable[[], object]] = [
                lambda: file.write(b"x"),
                lambda: file.truncate(0),
                lambda: file.punch(0, 1),
                lambda: file.allocate(0, 1 << 20),
                lambda: file.view("r+"),
                lambda: pool["there"].view("r+"),
                lambda: pool.symlink("there", "new"),
            ]
            for call in refused:
                with pytest.raises(engram.BusyError, match=r"batch.*cannot undo"):
                    call()
            assert file.readall() == BIG
            pool.link("there", "further")
            pool.create_file("made")
            _ = 1 // 0
        raise AssertionError
    assert list(pool) == ["there"]
    assert pool["there"][...] == BIG
    assert pool["there"].nlink == 1


def test_a_pool_that_is_read_has_its_files_read(pool: engram.Pool) -> None:
    written(pool, "f")
    with engram.open(pool.path, "r") as reader:
        assert content(reader, "f") == BIG
        with reader.open_file("f") as file:
            assert file.view().tobytes() == BIG
            with pytest.raises(engram.ReadOnlyError):
                file.view("r+")
        for path, modes in (("f", ("rb+", "wb", "ab")), ("new", ("wb", "ab", "xb"))):
            for mode in modes:
                with pytest.raises(engram.ReadOnlyError, match=r'read-only: open it .* "r\+"'):
                    reader.open_file(path, mode)
        refused: list[Callable[[], object]] = [
            lambda: reader.create_file("new"),
            lambda: reader.link("f", "new"),
            lambda: reader.symlink("f", "new"),
            lambda: reader["f"].__setitem__(0, 1),
        ]
        for call in refused:
            with pytest.raises(engram.ReadOnlyError):
                call()
    assert list(pool) == ["f"]
    assert content(pool, "f") == BIG


def test_a_read_only_member_is_read_and_not_written(pool: engram.Pool) -> None:
    written(pool, "g/f")
    for member in (pool["g/f"], pool["g"]):
        member.read_only = True
        assert content(pool, "g/f") == BIG
        for mode in ("rb+", "wb", "ab"):
            with pytest.raises(engram.ReadOnlyError, match=r"is read-only.*read_only = False"):
                pool.open_file("g/f", mode)
        with pytest.raises(engram.ReadOnlyError):
            pool.link("g/f", "further")
        member.read_only = False
    pool["g"].read_only = True
    refused: list[Callable[[], object]] = [
        lambda: pool.open_file("g/new", "wb"),
        lambda: pool.create_file("g/new"),
        lambda: pool.symlink("f", "g/new"),
    ]
    for call in refused:
        with pytest.raises(engram.ReadOnlyError, match=r'"new" cannot be made: the group "g"'):
            call()
    pool["g"].read_only = False
    assert list(pool["g"]) == ["f"]


@pytest.mark.parametrize("count", [10, 10_000], ids=["inline", "extent"])
def test_an_array_that_is_a_file_keeps_its_size(pool: engram.Pool, count: int) -> None:
    values = np.arange(count, dtype="f8")
    pool["a"] = values
    size = values.nbytes
    with pool.open_file("a", "rb+") as file:
        assert file.readall() == values.tobytes()
        file.seek(8)
        file.write(np.float64(77))
        values[1] = 77
        file.seek(-8, os.SEEK_END)
        file.write(np.float64(78))
        values[-1] = 78
        assert file.truncate(size) == size
        refused: list[Callable[[], object]] = [
            lambda: file.write(b"x"),
            lambda: file.truncate(size - 1),
            lambda: file.truncate(size + 1),
            lambda: file.allocate(0, size + 1),
            lambda: file.punch(0, 8),
        ]
        for call in refused:
            file.seek(0, os.SEEK_END)
            with pytest.raises(engram.ArgumentError, match="is an array, which keeps its size: "):
                call()
    for mode, act in (("wb", None), ("ab", b"x")):
        with (
            pytest.raises(engram.ArgumentError, match=f"{pool['a'].oid:#x} is an array, which"),
            pool.open_file("a", mode) as file,
        ):
            file.write(act)
    assert (pool["a"][...] == values).all()
    assert pool["a"].shape == (count,)


# Where files go


def test_a_snapshot_keeps_a_file_and_opens_none(pool: engram.Pool) -> None:
    written(pool, "f")
    with pool.snapshot() as then:
        with pytest.raises(engram.ArgumentError, match="read as it is now: open it from the pool"):
            then.open_file("f")
        refused: list[Callable[[], object]] = [
            lambda: then.create_file("new"),
            lambda: then.link("f", "new"),
            lambda: then.symlink("f", "new"),
        ]
        for call in refused:
            with pytest.raises(engram.ReadOnlyError):
                call()
        with pool.open_file("f", "rb+") as file:
            file.write(b"xyz")
        assert then["f"][...] == b"xyz" + BIG[3:], "what is written in place is seen"
        del pool["f"]
        written(pool, "f", SMALL)
        assert then["f"][...] == b"xyz" + BIG[3:]
        assert then["f"].nbytes == len(BIG)
    assert pool["f"][...] == SMALL


def test_a_file_with_pieces_survives_backup_and_compaction(home: Path, pool: engram.Pool) -> None:
    path, copied = str(home / "moved"), str(home / "copied")
    with engram.create(path, size="64 MiB", force=True) as made:
        expected = sparse(made, "g/f")
        made["g/f"].attrs["orbit"] = 4
        made.link("g/f", "further")
        made.symlink("g/f", "link")
        for n in range(20):
            written(made, f"gone-{n}")
        for n in range(20):
            del made[f"gone-{n}"]
        with made.open_file("open", "wb") as unfinished:
            unfinished.write(BIG)
            made.backup(copied, force=True)
            with pytest.raises(engram.BusyError):
                engram.compact(path)
    engram.compact(path)
    for where in (path, copied):
        assert engram.verify(where).problems == []
        for mode in ("r", "r+"):
            with engram.open(where, mode) as there:
                for name in ("g/f", "further", "link"):
                    assert content(there, name) == expected, name
                assert there["g/f"].view().tobytes() == expected
                assert there["g/f"].nlink == 2
                assert there["open"][...] == BIG
                assert there.used < 2 * MIB, "holes stay holes"
                assert set(there.query("orbit = 4").paths()) <= {"g/f", "further"}
                assert there.query("orbit = 4").count() == 1
        with engram.open(where) as there, there.open_file("further", "ab") as file:
            file.write(BIG)
        with engram.open(where) as there:
            assert there["g/f"][...] == expected + BIG
        assert engram.verify(where).problems == []
    assert pool.used == 0


def test_a_file_is_published_when_it_is_closed_and_has_one_name(pool: engram.Pool) -> None:
    expected = sparse(pool, "f")
    pool["f"].attrs["orbit"] = 4
    with (
        pool.open_file("f"),
        pytest.raises(engram.BusyError, match=r'"f" is open .*: move it when it is closed'),
    ):
        pool.publish("f", closed=True)
    pool.link("f", "g")
    with pytest.raises(engram.ArgumentError, match=r"has several names, .*: remove the others"):
        pool.publish("f", closed=True)
    del pool["g"]
    pool.publish("f", closed=True)
    assert engram.verify(pool.path).problems == []
    blob = pool["f"]
    assert (blob.scope, blob[...], blob.view().tobytes()) == ("published", expected, expected)
    assert content(pool, "f") == expected
    assert pool.query("orbit = 4").paths() == ["f"]
    for mode in ("rb+", "wb", "ab"):
        with pytest.raises(engram.ReadOnlyError, match=r"is published: .* unpublish it first"):
            pool.open_file("f", mode)
    with pytest.raises(engram.UnsupportedError, match="copy it"):
        pool.link("f", "g")
    pool.unpublish("f")
    with pool.open_file("f", "ab") as file:
        file.write(BIG)
    assert pool["f"][...] == expected + BIG


def test_a_file_is_found_by_its_attributes_and_size(pool: engram.Pool) -> None:
    written(pool, "a")
    written(pool, "b", SMALL)
    for name in "ab":
        pool[name].attrs["name"] = name
    with pool.open_file("b", "ab") as file:
        file.write(BIG)
        file.write(BIG)
        assert pool.query("name = 'b'").paths() == ["b"]
    assert pool.query("name in ('a', 'b')", order_by="name")[1][...] == SMALL + BIG + BIG
    assert pool.query(f"@nbytes > {len(BIG)}").paths() == ["b"]
    with pool.open_file("b", "rb+") as file:
        file.truncate(3)
    assert pool.query("@nbytes = 3").paths() == ["b"]


def test_a_file_is_copied_by_its_handle_and_replaced_while_it_is_open(pool: engram.Pool) -> None:
    expected = sparse(pool, "f")
    pool["copy"] = pool["f"]
    with pool.open_file("f", "rb+") as file:
        old = file.blob
        pool["f"] = SMALL
        file.write(b"to the old one")
        file.seek(0)
        assert file.read(14) == b"to the old one"
        assert file.blob != pool["f"]
    assert pool["f"][...] == SMALL
    assert pool["copy"][...] == expected
    with pytest.raises(engram.NotFoundError):
        old[...]
    with pytest.raises(engram.BusyError):
        old[0] = 1


def test_a_file_of_a_closed_pool_is_told_so(home: Path) -> None:
    path = str(home / "other")
    pool = engram.create(path, size="16 MiB", force=True)
    file = pool.open_file("f", "wb+")
    file.write(BIG)
    pool.close()
    calls: list[Callable[[], object]] = [
        file.readall,
        lambda: file.write(b"x"),
        lambda: file.truncate(0),
        lambda: file.segments,
        file.view,
        lambda: file.name,
    ]
    for call in calls:
        with pytest.raises(engram.ArgumentError, match=f"the pool {path} is closed: open it again"):
            call()
    assert "engram.File" in repr(file)
    file.close()
    assert engram.verify(path).problems == []
    with engram.open(path, "r") as again:
        assert again["f"][...] == BIG
