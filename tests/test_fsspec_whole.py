"""Files by URL are written whole or not at all, alone and in transactions."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

import engram
from engram.fsspec import EngramFileSystem
from engram.fsspec import place as places
from support import BIG, names_below

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
    assert names_below(fs, f"{top}/t", top) == ["t/1", "t/2", "t/3", "t/4"]
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
    assert names_below(fs, f"{top}/t", top) == ["t/whole"]


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
    assert names_below(fs, top, top)[0] == "committed"
    assert not fs.exists(f"{top}/discarded")
    with pytest.raises(ValueError, match="given up"):
        file.commit()
