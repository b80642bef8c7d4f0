"""Where pools and their devices are: copies, moves, what is missing; what a closed pool keeps."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator


def copy(pool: Path, to: Path) -> None:
    """Copy a pool's folder, holes as holes: a catalog has addresses for what it may become."""
    subprocess.run(["cp", "-a", pool, to], check=True)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Give a folder with a closed pool `p`, which has a value on a second device, `d`."""
    (tmp_path / "d").mkdir()
    with engram.create(tmp_path / "p", size="32 MiB", devices=[tmp_path / "d"]) as pool:
        pool.create_array("T", data=np.full(100_000, 1.0), device=1)
    yield tmp_path
    if (tmp_path / "p").exists():
        engram.destroy(tmp_path / "p", force=True)


def test_a_copy_with_the_originals_device_is_refused_and_removed_alone(place: Path) -> None:
    copy(place / "p", place / "q")
    with pytest.raises(engram.BusyError, match=r"copy of the pool .*engram backup"):
        engram.open(place / "q")
    with pytest.raises(engram.BusyError, match="copy of the pool"):
        engram.verify(place / "q")
    with pytest.raises(engram.BusyError, match="copy of the pool"):
        engram.adopt(place / "q")
    engram.destroy(place / "q")
    with engram.open(place / "p") as pool:
        assert (pool["T"][...] == 1).all()
    assert engram.verify(place / "p")


def test_a_restored_pool_is_adopted(place: Path) -> None:
    copy(place / "p", place / "q")
    shutil.rmtree(place / "p")
    with pytest.raises(engram.FormatError, match="engram adopt"):
        engram.open(place / "q")
    said = run("adopt", place / "q")
    assert "adopted" in said.out + said.err
    with engram.open(place / "q") as pool:
        assert (pool["T"][...] == 1).all()
    engram.destroy(place / "q")
    assert not list((place / "d").iterdir())
    with pytest.raises(engram.PoolNotFoundError):
        engram.adopt(place / "q")


def test_a_missing_device_is_named_and_left_alone_with_force(place: Path) -> None:
    (place / "d").rename(place / "away")
    with pytest.raises(engram.NotFoundError, match=r"d is missing.*--force") as caught:
        engram.destroy(place / "p")
    assert not isinstance(caught.value, engram.PoolNotFoundError)
    (place / "away").rename(place / "d")
    with engram.open(place / "p") as pool:
        assert (pool["T"][...] == 1).all()
    (place / "d").rename(place / "away")
    assert run("destroy", place / "p", "--yes", "--force").code == 0
    assert not (place / "p").exists()
    assert list((place / "away").iterdir())


def test_objects_of_a_copy_are_other_objects(tmp_path: Path) -> None:
    with engram.create(tmp_path / "p", size="16 MiB") as pool:
        pool["a"] = np.arange(5000)
    copy(tmp_path / "p", tmp_path / "q")
    (tmp_path / "link").symlink_to(tmp_path / "p")
    with (
        engram.open(tmp_path / "p") as one,
        engram.open(tmp_path / "q") as two,
        engram.open(tmp_path / "link") as again,
    ):
        assert one["a"] != two["a"]
        assert one != two
        assert len({one["a"], two["a"]}) == 2
        assert one["a"] == again["a"]
        assert len({one["a"], again["a"]}) == 1
        (tmp_path / "p").rename(tmp_path / "moved")
        with engram.open(tmp_path / "moved") as moved:
            assert one["a"] == moved["a"]
    engram.destroy(tmp_path / "moved")
    engram.destroy(tmp_path / "q")


def test_a_closed_pool_has_nothing_mapped(tmp_path: Path) -> None:
    with engram.create(tmp_path / "closed-pool", size="16 MiB") as pool:
        pool["a"] = np.arange(5000)
    assert "closed-pool" not in Path("/proc/self/maps").read_text()
    with pytest.raises(engram.ArgumentError, match="closed"):
        pool["a"]
    engram.destroy(tmp_path / "closed-pool")
