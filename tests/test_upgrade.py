"""Pools of earlier formats: what is kept of them, upgraded, and compared with what it said then."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
import kept
from shell import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the kept pools are root's")

POOLS = ("whole", "killed", "leaving", "arrived", "spread", "durable")


@pytest.fixture(params=kept.FORMATS)
def form(request: pytest.FixtureRequest) -> int:
    """Give an earlier format."""
    found: int = request.param
    return found


@pytest.fixture
def pools(home: Path, form: int) -> Path:
    """Give a folder with the kept pools of a format, and what they said."""
    kept.unpack(kept.packed(form), home / "kept")
    return home / "kept"


def said(pools: Path, name: str) -> dict[str, Any]:
    """Return what a pool said when it was made."""
    manifest = json.loads((pools / "manifest.json").read_text())[name]
    assert manifest["format"] in kept.FORMATS
    told: dict[str, Any] = manifest["told"]
    return told


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two values of JSON differ: a report that can be read."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            difference
            for key in sorted({*one, *other})
            for difference in differences(one.get(key), other.get(key), f"{where}/{key}")
        ]
    return [] if one == other else [f"{where}: {one!r} is {other!r}"]


def test_the_kept_pools_are_small_and_packed_as_they_were(
    pools: Path, form: int, tmp_path: Path
) -> None:
    assert kept.packed(form).stat().st_size <= 200_000
    again = tmp_path / "again.pack"
    spread = pools / "spread/pool.toml"
    spread.write_text(spread.read_text().replace(str(pools), "@devices"))
    kept.pack(pools, again)
    kept.unpack(again, tmp_path / "again")
    for path in sorted(pools.rglob("*")):
        other = tmp_path / "again" / path.relative_to(pools)
        assert path.is_dir() == other.is_dir()
        assert path.lstat().st_mode == other.lstat().st_mode
        if path.is_file() and path.name not in {"pool.toml", ".pool.toml"}:
            assert list(kept._pages(path)) == list(kept._pages(other)), path


@pytest.mark.parametrize("name", POOLS)
def test_an_upgraded_pool_says_what_it_said_before(pools: Path, form: int, name: str) -> None:
    """Values, attributes, dtypes, shapes, times, owners, scopes, ids, settings, answers."""
    path, expected = pools / name, said(pools, name)
    done = engram.upgrade(path)
    assert (done.path, done.before, done.after, done.skipped) == (str(path), form, 7, ())
    with engram.open(path, mode="r") as pool:
        assert differences(expected, kept.told(pool)) == []
    assert engram.verify(path)
    with engram.open(path) as pool:
        known = {
            member["id"] for space in expected.values() for member in space["members"].values()
        }
        for n in range(300):
            made = pool.create_array(f"new/{n}", data=np.full(n * 10, n), attrs={"new": n})
            assert made.oid not in known
        assert pool.query("new >= 295").count() == 5
        pool.move("new/0", "moved")
        del pool["new"]
        assert pool.query("exists(new)").paths() == ["moved"]
        del pool["moved"]
        assert differences(expected, kept.told(pool)) == []
    engram.compact(path)
    assert engram.verify(path)
    with engram.open(path) as pool:
        pool.backup(pools / "copy")
    assert engram.verify(pools / "copy")
    with engram.open(pools / "copy") as pool:
        assert differences(expected, kept.told(pool)) == []


@pytest.mark.parametrize("name", POOLS)
def test_a_copy_says_the_same_and_the_earlier_pool_stays(pools: Path, form: int, name: str) -> None:
    before = (pools / name / "pool.toml").read_text()
    told = json.loads(run("upgrade", pools / name, "--to", pools / "new", "--json").out)
    assert (told["path"], told["before"], told["after"]) == (str(pools / "new"), form, 7)
    assert (pools / name / "pool.toml").read_text() == before
    with engram.open(pools / "new") as pool:
        assert pool.uuid not in before
        assert differences(said(pools, name), kept.told(pool)) == []
    assert engram.verify(pools / "new")
    assert run("upgrade", pools / name, "--to", pools / "new").code == 11
    again = run("upgrade", pools / name)
    assert (again.code, f"upgraded from format {form} to 7" in again.out) == (0, True)


def test_what_is_shared_published_and_done_goes_on(
    pools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(pools))
    engram.upgrade(pools / "whole")
    with engram.open(pools / "whole") as pool:
        with pytest.raises(engram.ReadOnlyError, match="published"):
            del pool["run/result-0/T"]
        with pytest.raises(engram.ReadOnlyError, match="read-only"):
            pool["marked/free"] = 2
        pool.unpublish("run/result-2")
        pool["run/result-2/grid"][5, 5] = -1.0
        pool.publish("run/result-2")
        pool.share("run/mine")
        pool["kinds/chunks-lz4"][3, 3] = 99
        pool["kinds/chunks-grown"].append(np.arange(3.0))
        assert pool["kinds/chunks-grown"].shape == (20,)
        engram.export_file(pool["file"], pools / "out.h5")
        block = _block().get_by_alias("block")
        assert (block.label, block.next.label, block.raise_calls(1)) == ("one", "two", 8)
        assert block.data.sum() == np.arange(5000.0).sum()
    assert engram.verify(pools / "whole")


def _block() -> Any:
    """Return the class of the kept active objects, from the module that is kept beside them."""
    import importlib  # noqa: PLC0415 - for this alone

    return importlib.import_module("active_kept").Block


def test_commands_name_what_to_do_with_another_format(pools: Path, form: int) -> None:
    path = pools / "killed"
    for words in (["ls", path], ["info", path], ["verify", path], ["compact", path]):
        ended = run(*words)
        assert ended.code == engram.FormatError.exit_code
        assert ended.err.count("\n") == 1
        assert f"engram upgrade {path}" in ended.err
    description = path / "pool.toml"
    text = description.read_text()
    # Without the line of its checksum, if it has one.
    edited = text.partition("\n")[2] if text.startswith("#") else text
    for other, advice in ((4, "use the engram that made it"), (8, "upgrade engram")):
        description.write_text(edited.replace(f"format = {form}", f"format = {other}"))
        for words in (["ls", path], ["upgrade", path], ["upgrade", path, "--to", pools / "new"]):
            ended = run(*words)
            assert (ended.code, ended.err.count("\n")) == (engram.FormatError.exit_code, 1)
            assert f"format {other}" in ended.err
            assert advice in ended.err
    description.write_text(text)
    assert run("upgrade", pools / "none").code == engram.PoolNotFoundError.exit_code
    assert run("upgrade", path).code == 0
    ended = run("upgrade", path)
    assert (ended.code, "there is nothing to do" in ended.out) == (0, True)
    assert not json.loads(run("upgrade", path, "--json").out)["resumed"]
    ended = run("upgrade", path, "--to", pools / "new")
    assert (ended.code, "engram backup" in ended.err) == (engram.ArgumentError.exit_code, True)


def test_a_damaged_pool_is_left_as_it_is_and_salvaged(pools: Path) -> None:
    path = pools / "killed"
    data = path / "ns/default/shared/catalog/data.mdb"
    with data.open("r+b") as file:
        start = file.read(1 << 21)
        at = start.index(b"small")
        while at >= 0:
            file.seek(at)
            file.write(b"smbll")
            at = start.find(b"small", at + 1)
    ended = run("upgrade", path)
    assert ended.code == engram.CorruptError.exit_code
    assert f"engram export {path} / NEW --format pool --salvage" in ended.err
    assert sorted(one.name for one in pools.glob("killed*")) == ["killed"]
    assert run("export", path, "/", pools / "saved", "--format", "pool", "--salvage").code == 16
    with engram.open(pools / "saved") as saved:
        assert len(saved["queue"]) == 25
        assert np.array_equal(saved["a"], np.arange(2000.0))
        assert np.array_equal(saved["grid"], np.arange(400).reshape(20, 20))
    assert engram.verify(pools / "saved")


UPGRADE = "import sys, engram; engram.upgrade(sys.argv[1])"


def test_an_upgrade_is_killed_at_any_instant_and_the_next_one_ends_it(pools: Path) -> None:
    chance = random.Random(6)  # noqa: S311 - instants to kill at
    for name in ("arrived", "spread", "whole"):
        expected, path = said(pools, name), pools / name
        for _ in range(4):
            child = subprocess.Popen([sys.executable, "-c", UPGRADE, path])
            time.sleep(0.25 + 0.2 * chance.random())
            child.send_signal(signal.SIGKILL)
            child.wait()
        engram.upgrade(path)
        with engram.open(path) as pool:
            assert differences(expected, kept.told(pool)) == []
        assert engram.verify(path)
        assert sorted(one.name for one in pools.glob(f"{name}*")) == [name]
