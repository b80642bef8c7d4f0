"""`export --salvage`: what a format cannot hold, parts of a damaged pool, what errors name."""

import json
from pathlib import Path

import numpy as np
import pytest

import engram
from shell import Ended, run
from support import spoil

FORMAT, CORRUPT, ARGUMENT, MISSING = 18, 16, 20, 10


@pytest.fixture
def damaged(home: Path) -> Path:
    """Give a pool whose array `run/bad` is damaged, and a namespace beside it that is sound."""
    where = home / "pool"
    with engram.create(where, size="64 MiB", force=True, checksums=True) as pool:
        pool.create_array("run/good", data=np.arange(20_000.0), dims=("x",), attrs={"units": "K"})
        pool.create_array("run/bad", data=np.arange(30_000, dtype="u4"), dims=("z",))
        pool["run/deep/small"] = np.arange(5)
        pool.create_array("beside/y", data=np.arange(7.0), dims=("y",))
        pool.create_namespace("other", 0o700)["x"] = 1.5
    spoil(where, np.arange(7000, 7010, dtype="u4").tobytes())
    return where


def salvage(pool: Path, path: str, file: Path, *more: object) -> Ended:
    """Run `engram export --salvage`, which leaves nothing hidden."""
    ended = run("export", pool, path, file, "--salvage", *more)
    assert list(file.parent.glob(".engram*")) == []
    assert ".engram-salvage" not in ended.out + ended.err
    return ended


@pytest.mark.parametrize(("name", "more"), [("o.nc", ["--format", "netcdf3"]), ("o.npy", [])])
def test_what_a_format_cannot_hold_is_refused(home: Path, name: str, more: list[str]) -> None:
    with engram.create(home / "pool", size="64 MiB", force=True) as pool:
        pool["g/a"] = np.arange(3)
        pool.create_array("top", data=np.arange(3), dims=("x",))
    plain = run("export", home / "pool", "/", home / name, *more)
    ended = salvage(home / "pool", "/", home / name, *more)
    assert (ended.code, ended.err) == (plain.code, plain.err)
    assert ended.code == FORMAT
    assert "--lossy" in ended.err
    assert not (home / name).exists()


def test_lossy_leaves_out_what_a_format_cannot_hold_and_only_damage_gives_16(
    damaged: Path, home: Path
) -> None:
    ended = salvage(damaged, "beside", home / "a.nc", "--format", "netcdf3", "--lossy")
    assert ended.code == 0, ended.err
    classic = ["--format", "netcdf3", "--lossy"]
    ended = salvage(damaged, "run", home / "b.nc", *classic)
    assert ended.code == CORRUPT
    assert "left out: /deep: group" in ended.out
    assert "not saved: default/run/bad" in ended.out


def test_select_and_slice_hold(damaged: Path, home: Path) -> None:
    ended = salvage(damaged, "run", home / "a.h5", "--select", "good", "--slice", "x=0:3")
    assert ended.code == 0, ended.err
    assert "not saved" not in ended.out
    with engram.create(home / "back", size="64 MiB", force=True) as pool:
        engram.import_file(home / "a.h5", pool)
        assert list(pool) == ["good"]
        assert pool["good"].shape == (3,)
    both = ["--select", "good", "--select", "b*"]
    ended = salvage(damaged, "run", home / "b.h5", *both)
    assert ended.code == CORRUPT
    assert "run/bad" in ended.err
    assert (home / "b.h5").exists()
    ended = salvage(damaged, "run", home / "c.h5", "--select", "bad")
    assert ended.code == CORRUPT
    assert not (home / "c.h5").exists()
    for more in (["--select", "nope"], ["--slice", "t=0:3"]):
        ended = salvage(damaged, "beside", home / "d.h5", *more)
        assert ended.code == MISSING, more


@pytest.mark.parametrize(
    "option",
    ["--select run", "--slice x=0:3", "-n other", "--lossy", "--overwrite", "--select a --lossy"],
)
def test_a_new_pool_is_of_all_that_is_sound(home: Path, damaged: Path, option: str) -> None:
    ended = salvage(damaged, "/", home / "new", "--format", "pool", *option.split())
    assert ended.code == ARGUMENT
    name = "--namespace" if option.startswith("-n") else option.split(maxsplit=1)[0]
    assert f"no {name}" in ended.err
    assert not (home / "new").exists()


def test_only_what_was_asked_for_is_judged(damaged: Path, home: Path) -> None:
    asked = [("run/good", "default"), ("beside", "default"), ("/", "other")]
    for number, (path, namespace) in enumerate(asked):
        file = home / f"{number}.h5"
        ended = salvage(damaged, path, file, "-n", namespace)
        assert ended.code == 0, ended.err
        assert "not saved" not in ended.out
        assert ended.err.startswith("engram: the pool is damaged elsewhere, in what")
        assert "default/run/bad" in ended.err
        assert ended.err.count("\n") == 1
    ended = salvage(damaged, "beside", home / "json.h5", "--json")
    told = json.loads(ended.out)
    assert (told["left_out"], [loss["path"] for loss in told["elsewhere"]]) == ([], ["run/bad"])
    assert told["target"] == str(home / "json.h5")
    assert "elsewhere" in json.loads(ended.err)["note"]["message"]


def test_what_could_not_be_salvaged_at_all_is_damaged_and_not_missing(
    damaged: Path, home: Path
) -> None:
    ended = salvage(damaged, "run/bad", home / "a.npy")
    assert ended.code == CORRUPT
    assert "checksum" in ended.err
    assert salvage(damaged, "run/nope", home / "a.npy").code == MISSING


def test_errors_name_what_the_user_typed(damaged: Path, home: Path) -> None:
    ended = salvage(damaged, "/", home / "a.h5", "-n", "nope")
    assert ended.code == MISSING
    assert f"no namespace 'nope' in {damaged}; there are: default, other" in ended.err
    ended = run("export", damaged, "/", home / "nowhere" / "a.h5", "--salvage")
    assert ended.code == MISSING
    assert ended.err.startswith(f"engram: {home}/nowhere: no such folder to write a.h5 into")
    (home / "there.h5").touch()
    ended = salvage(damaged, "/", home / "there.h5")
    assert ended.code == engram.ExistsError.exit_code
    assert "--overwrite" in ended.err
    assert salvage(damaged, "beside", home / "there.h5", "--overwrite").code == 0
