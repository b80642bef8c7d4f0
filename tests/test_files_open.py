"""Files that are open: what they know of themselves, and what becomes of them."""

import os
import subprocess
import sys

import pytest

import engram

BIG = bytes(range(256)) * 400


def sparse(pool: engram.Pool) -> int:
    with pool.open_file("f", "wb") as file:
        file.seek(100_000)
        file.write(BIG)
        file.seek(1 << 20)
        file.write(b"end")
        assert len(file.segments) == 2
        return (1 << 20) + 3


def test_segments_are_told_of_a_file_that_was_just_opened(pool: engram.Pool) -> None:
    sparse(pool)
    assert len(pool["f"].segments) == 2


@pytest.mark.parametrize(("whence", "found"), [(os.SEEK_DATA, 98_304), (os.SEEK_HOLE, 0)])
def test_holes_are_found_in_a_file_that_was_just_opened(
    pool: engram.Pool, whence: int, found: int
) -> None:
    sparse(pool)
    with pool.open_file("f") as file:
        assert file.seek(0, whence) == found


@pytest.mark.parametrize("name", ["", "d/", "..", ".", "nul\0", "x" * 300])
def test_a_link_has_a_name_that_can_be(pool: engram.Pool, name: str) -> None:
    pool["f"] = BIG
    try:
        with pytest.raises(engram.InvalidNameError):
            pool.link("f", name)
    finally:
        assert engram.verify(pool.path).problems == []


def test_a_snapshots_file_has_as_many_bytes_as_it_says(pool: engram.Pool) -> None:
    with pool.open_file("f", "wb") as file:
        file.write(BIG)  # whole pages
    with pool.snapshot() as then:
        with pool.open_file("f", "ab") as file:
            file.write(b"more")
        assert len(then["f"]) == len(then["f"][...])


def test_a_path_through_a_file_is_refused_by_its_name(pool: engram.Pool) -> None:
    pool["f"] = b"x"
    with pytest.raises(engram.ArgumentError, match='"f'):
        pool.open_file("f/below")


REPLACER = """
import sys, engram
with engram.open(sys.argv[1]) as pool:
    for n in range(10_000):
        pool["current"] = b"%05d" % n * 1000
"""


def test_a_name_that_another_process_replaces_again_and_again_can_be_opened(
    pool: engram.Pool,
) -> None:
    pool["current"] = b"first" * 1000
    with subprocess.Popen([sys.executable, "-c", REPLACER, pool.path]) as replacer:
        while replacer.poll() is None:
            with pool.open_file("current") as file:
                data = file.readall()
            assert data == data[:5] * 1000
        assert replacer.returncode == 0
    assert engram.verify(pool.path).problems == []


@pytest.mark.parametrize("way", ["del", "put", "clear", "batch"])
@pytest.mark.parametrize("size", [10, len(BIG)])
def test_an_open_file_goes_on_without_a_name(pool: engram.Pool, way: str, size: int) -> None:
    with pool.open_file("g/f", "wb+") as file:
        file.write(BIG[:size])
        if way == "del":
            del pool["g/f"]
        elif way == "put":
            pool["g/f"] = b"other"
        elif way == "clear":
            pool.clear()
        else:
            with pool.batch():
                del pool["g/f"]
        file.write(b"more")
        file.seek(0)
        assert file.readall() == BIG[:size] + b"more"
