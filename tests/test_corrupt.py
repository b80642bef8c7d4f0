"""Damaged pools, through the public doors: found and named, and nobody dies of them.

The campaign with thousands of random places is the engine's, and `make corrupt` runs it.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import engram
from engram import _child
from shell import run

_PAGE = 4096


def _filled(where: Path, *, checksums: bool = True) -> Path:
    with engram.create(where, size="64 MiB", force=True, checksums=checksums) as pool:
        for n in range(60):
            array = pool.create_array(f"run/{n % 3}/small{n}", data=np.arange(n + 1) * n)
            array.attrs["n"] = n
        pool["run/T"] = np.arange(100_000, dtype="u4")
        pool.create_blob("run/log", b"all went well " * 1000)
    return where


def _file(pool: Path, name: str) -> Path:
    (found,) = (path for path in pool.rglob(name) if path.is_file())
    return found


def _overwrite(path: Path, at: int, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY)
    os.pwrite(handle, data, at)
    os.close(handle)


def _of_span(pool: Path, values: bytes) -> tuple[Path, int]:
    span = _file(pool, "span-0")
    return span, span.read_bytes().index(values)


def test_a_sound_pool_is_sound(home: Path) -> None:
    report = engram.verify(_filled(home / "pool"))
    assert report, report.problems
    assert report.counts["checked"] == 2
    assert report.counts["unchecked"] == 0


def test_one_turned_bit_of_a_value_is_found_by_path(home: Path) -> None:
    pool = _filled(home / "pool")
    values = np.arange(50_000, 50_010, dtype="u4").tobytes()
    span, at = _of_span(pool, values)
    _overwrite(span, at, bytes([values[0] ^ 1]))
    (problem,) = engram.verify(pool).problems
    assert '"run/T"' in problem
    assert "checksum" in problem


def test_writes_in_place_are_unchecked_until_flush(home: Path) -> None:
    where = _filled(home / "pool")
    with engram.open(where) as pool:
        pool["run/T"][5:10] = 0
        assert engram.verify(where).counts["unchecked"] == 1
        pool["run/T"].flush()
        view = pool["run/T"].view("r+")
        view += 1
        pool["run/T"].flush()
        view += 1
        assert engram.verify(where)
        del view
        report = engram.verify(where)
    assert report
    assert (report.counts["checked"], report.counts["unchecked"]) == (2, 0)


def _zero_pages(path: Path) -> None:
    for page in range(2, 40):
        _overwrite(path, page * _PAGE, bytes(_PAGE))


def _nonsense(path: Path) -> None:
    _overwrite(path, 2 * _PAGE, np.random.default_rng(5).bytes(30 * _PAGE))


def _shorten(path: Path) -> None:
    os.truncate(path, 10 * _PAGE)


def _lose_metas(path: Path) -> None:
    _overwrite(path, 0, bytes(2 * _PAGE))


@pytest.mark.parametrize("damage", [_zero_pages, _nonsense, _shorten, _lose_metas, Path.unlink])
def test_a_damaged_catalog_is_a_finding_and_kills_nobody(
    home: Path, damage: Callable[[Path], None]
) -> None:
    pool = _filled(home / "pool")
    damage(_file(pool, "data.mdb"))
    problems = engram.verify(pool).problems
    assert problems
    assert not any("killed" in problem for problem in problems), "named, not died of"
    code, out, _ = run("verify", pool, "--json")
    assert json.loads(out)["problems"] == problems
    assert code == 16


@pytest.mark.parametrize("name", ["growth", "lock.mdb", "realm.toml", "span-0"])
def test_a_missing_file_is_a_finding(home: Path, name: str) -> None:
    pool = _filled(home / "pool")
    _file(pool, name).unlink()
    assert engram.verify(pool).problems


def test_a_child_that_is_silent_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_child, "QUIET_SECONDS", 0.0)
    ended = _child.run("_verify", "/nowhere")
    assert ended.quiet
    assert "without a sign of life" in (ended.death or "")


def test_create_says_checksums(home: Path) -> None:
    run("create", home / "pool", "--checksums", "--size", "16 MiB", "--force")
    _, out, _ = run("info", home / "pool", "--json")
    assert json.loads(out)["checksums"] is True
