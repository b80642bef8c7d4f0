"""Salvage: what is sound comes out of a damaged pool, and what is not is told."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import engram
from engram import _child
from engram.salvaging import salvage
from shell import run
from support import spoil

_PAGE = 4096
_CORRUPT = 16


@pytest.fixture
def damaged(home: Path) -> Path:
    """Give a pool whose array `run/bad` is damaged, and `other/x` in another namespace."""
    where = home / "pool"
    with engram.create(where, size="64 MiB", force=True, checksums=True) as pool:
        pool.attrs["title"] = "all of it"
        run_17 = pool.create_group("run", attrs={"orbit": 17})
        run_17.create_array("good", data=np.arange(20_000.0), dims=("x",), attrs={"units": "K"})
        run_17["bad"] = np.arange(30_000, dtype="u4")
        run_17["small"] = np.arange(5)
        run_17["words"] = np.array(["a", "bc", ""], dtype=np.dtypes.StringDType())
        run_17.create_blob("log", b"x" * 5000)
        pool.create_namespace("other", 0o700)["x"] = 1.5
    spoil(where, np.arange(7000, 7010, dtype="u4").tobytes())
    return where


def _as_before(run_17: engram.Group) -> None:
    assert run_17.attrs["orbit"] == 17
    assert run_17["good"].dims == ("x",)
    assert run_17["good"].attrs["units"] == "K"
    np.testing.assert_array_equal(run_17["good"][...], np.arange(20_000.0))
    np.testing.assert_array_equal(run_17["small"][...], np.arange(5))
    assert list(run_17["words"][...]) == ["a", "bc", ""]
    assert run_17["log"][...] == b"x" * 5000
    assert "bad" not in run_17


def test_a_new_pool_has_what_is_sound(damaged: Path, home: Path) -> None:
    report = salvage(damaged, home / "saved")
    assert [(loss.namespace, loss.path) for loss in report.left_out] == [("default", "run/bad")]
    assert "checksum" in report.left_out[0].what
    with pytest.raises(engram.CorruptError, match="run/bad"):
        report.check()
    assert engram.verify(home / "saved")
    with engram.open(home / "saved") as pool:
        assert pool.attrs["title"] == "all of it"
        assert pool.namespaces["other"]["x"][()] == 1.5
        _as_before(pool["run"])


def test_a_file_has_what_is_sound_and_the_exit_code_says_that_it_is_not_all(
    damaged: Path, home: Path
) -> None:
    code, out, err = run("export", damaged, "run", home / "saved.h5", "--salvage")
    assert code == _CORRUPT, err
    assert "run/bad" in out
    assert [path.name for path in home.iterdir() if path.name.startswith(".engram")] == []
    with engram.create(home / "back", size="64 MiB", force=True) as pool:
        engram.import_file(home / "saved.h5", pool.create_group("run"))
        np.testing.assert_array_equal(pool["run/good"][...], np.arange(20_000.0))
        assert "bad" not in pool["run"]


def test_the_command_makes_a_pool_and_tells_in_json(damaged: Path, home: Path) -> None:
    code, out, _ = run(
        "export", damaged, "/", home / "saved", "--salvage", "--format", "pool", "--json"
    )
    assert code == _CORRUPT
    assert [loss["path"] for loss in json.loads(out)["left_out"]] == ["run/bad"]
    with engram.open(home / "saved") as pool:
        _as_before(pool["run"])


def test_what_salvage_does_not_keep_is_noted(home: Path) -> None:
    where = home / "pool"
    with engram.create(where, size="64 MiB", force=True, checksums=True, mode=0o755) as pool:
        pool.create_array("fixed", data=np.arange(5), read_only=True)
        pool["run/x"] = np.arange(3000)
        pool["run"].read_only = True
        pool["open/y"] = np.arange(7)
        pool.publish("open")
        pool.create_array("own", data=np.arange(9), scope="private")
    report = salvage(where, home / "saved")
    assert report, "nothing is lost"
    mode, private, published = [note.what for note in report.noted]
    assert "its mode was 755" in mode
    assert private.startswith(f"1 object and 0 groups of it were private to user {os.getuid()}")
    assert published.startswith("1 object and 1 group of it were published")
    with engram.open(home / "saved") as pool:
        assert pool.checksums
        assert pool["fixed"].read_only
        assert pool["run"].read_only
        with pytest.raises(engram.ReadOnlyError):
            del pool["run/x"]
        assert {pool[name].scope for name in ("run/x", "open/y", "own")} == {"shared"}
    code, out, _ = run("export", where, "/", home / "again", "--salvage", "--format", "pool")
    assert (code, out.count("  noted: ")) == (0, 3)
    code, out, _ = run("export", where, "/", home / "all.h5", "--salvage")
    assert (code, "  noted: default" in out) == (0, False)


def test_of_a_sound_pool_nothing_is_lost(home: Path) -> None:
    with engram.create(home / "pool", size="16 MiB", force=True) as pool:
        pool["a/b"] = np.arange(3000)
    code, _, err = run("export", home / "pool", "/", home / "all.h5", "--salvage")
    assert code == 0, err
    assert salvage(home / "pool", home / "saved")


def test_leaves_whose_tree_is_damaged_are_found(home: Path) -> None:
    where = home / "pool"
    with engram.create(where, size="64 MiB", force=True, checksums=True) as pool, pool.batch():
        for n in range(2000):
            pool.create_array(f"run/{n:04}", data=np.arange(n % 50), attrs={"n": n})
    (data,) = where.rglob("data.mdb")
    handle = os.open(data, os.O_RDWR)
    branches = [
        page for page in range(2, 1024) if os.pread(handle, 12, page * _PAGE)[10:12] == b"\x01\x00"
    ]
    assert branches
    for page in branches:
        os.pwrite(handle, bytes(_PAGE), page * _PAGE)
    os.close(handle)
    assert not engram.verify(where)
    salvage(where, home / "saved")
    with engram.open(home / "saved") as pool:
        assert len(pool["run"]) == 2000
        np.testing.assert_array_equal(pool["run/0049"][...], np.arange(49))
        assert pool["run/1999"].attrs["n"] == 1999


def test_a_member_that_kills_the_reader_costs_itself_alone(
    damaged: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _child.run
    deaths: list[tuple[str, ...]] = []

    def deadly(module: str, *arguments: str) -> _child.Ended:
        ended = real(module, *arguments)
        if len(arguments) < 4 or deaths:
            return ended
        # As if it had been killed when it came to the second member.
        deaths.append(arguments)
        lines = ended.said.splitlines(keepends=True)
        second = next(i for i, line in enumerate(lines) if '"at": [1' in line)
        return _child.Ended(-11, "".join(lines[: second + 1]), "", quiet=False)

    monkeypatch.setattr(_child, "run", deadly)
    report = salvage(damaged, home / "saved")
    assert deaths
    assert any("SIGSEGV" in loss.what for loss in report.left_out)


def test_what_is_no_pool_is_refused(home: Path) -> None:
    with pytest.raises(engram.PoolNotFoundError):
        salvage(home / "nothing", home / "saved")
    assert not (home / "saved").exists()


def test_files_keep_their_bytes_holes_and_further_names(home: Path) -> None:
    with engram.create(home / "pool", size="64 MiB", force=True) as pool:
        with pool.open_file("a", "wb") as file:
            file.write(b"begin" * 1000)
            file.seek(1_000_000)
            file.write(b"end")
        pool.create_group("g")
        pool.link("a", "b")
        pool.link("a", "g/c")
    assert salvage(home / "pool", home / "saved")
    assert engram.verify(home / "saved")
    with engram.open(home / "saved") as pool:
        blobs = [pool[path] for path in ("a", "b", "g/c")]
        assert len({blob.oid for blob in blobs}) == 1
        assert isinstance(blobs[0], engram.Blob)
        assert blobs[0].nlink == 3
        assert bytes(blobs[0]) == (b"begin" * 1000).ljust(1_000_000, b"\0") + b"end"
