"""Trees of files brought into a pool and back: by `engram.stage` and by `engram stage`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import engram
import native

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture
def tree(home: Path) -> Path:
    """Give a folder with files of each kind that a stage keeps."""
    folder = home / "from"
    (folder / "out").mkdir(parents=True)
    (folder / "small").write_bytes(b"small")
    (folder / "out/empty").touch()
    (folder / "out/a name\nof two lines").write_bytes(b"x" * 5000)
    large = folder / "out/large"
    large.write_bytes(os.urandom(3 * MIB + 17))
    (folder / "link").symlink_to("out/large")
    os.link(large, folder / "again")
    with (folder / "sparse").open("wb") as file:
        file.seek(4 * MIB)
        file.write(b"end")
    os.setxattr(large, "user.run", b"7")
    (folder / "small").chmod(0o640)
    os.utime(large, ns=(1, 1_700_000_000_123_456_789))
    os.utime(folder / "out", ns=(1, 1_600_000_000_000_000_000))
    return folder


def told(folder: Path) -> dict[str, tuple[object, ...]]:
    """Say what is in a folder, without the manifests."""
    all_of_it: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        if path.name.startswith("MANIFEST."):
            continue
        stat = path.lstat()
        content: object = None
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        attributes = sorted(os.listxattr(path, follow_symlinks=False))
        links = 0 if path.is_dir() else stat.st_nlink
        all_of_it[str(path.relative_to(folder))] = (
            *(stat.st_mode, stat.st_uid, stat.st_gid, stat.st_mtime_ns),
            *(links, attributes, content),
        )
    return all_of_it


def test_a_tree_comes_out_as_it_went_in(pool: engram.Pool, tree: Path, home: Path) -> None:
    before = told(tree)
    brought = engram.stage.bring_in(pool, {str(tree): "case"})
    assert brought.whole, brought.troubles
    assert brought.files_reused == 0
    taken = engram.stage.bring_out(pool, {"case": str(home / "to")}, sha256=True)
    assert taken.whole, taken.troubles
    assert told(home / "to") == before
    assert (home / "to/sparse").stat().st_blocks * 512 < 4 * MIB, "a hole stays one"
    assert engram.stage.verify(home / "to").troubles == ()
    native.run("sh", "-c", f"cd {home}/to && sha256sum --quiet -c MANIFEST.sha256")
    assert engram.verify(pool.path).problems == []


def test_what_is_there_is_not_copied_again(pool: engram.Pool, tree: Path, home: Path) -> None:
    first = engram.stage.bring_in(pool, {str(tree): "case"})
    again = engram.stage.bring_in(pool, {str(tree): "case"})
    assert again.whole
    assert again.files == first.files
    assert again.files_reused == again.files - 1, "one is a further name"
    (tree / "small").write_bytes(b"changed")
    changed = engram.stage.bring_in(pool, {str(tree): "case"})
    assert changed.files_reused == again.files_reused - 1
    assert bytes(pool["case/small"][:]) == b"changed"
    out = {"case": str(home / "to")}
    assert engram.stage.bring_out(pool, out).files_reused == 0
    again = engram.stage.bring_out(pool, out)
    assert again.whole
    assert again.files_reused == changed.files - 1
    # A copy that somebody has changed is no copy any more.
    (home / "to/small").write_bytes(b"other")
    kept = engram.stage.bring_out(pool, out)
    assert [trouble.path for trouble in kept.troubles] == ["small"]
    assert "--overwrite" in kept.troubles[0].why
    assert engram.stage.bring_out(pool, out, existing="overwrite").whole
    assert (home / "to/small").read_bytes() == b"changed"


def test_a_program_sees_what_was_staged(pool: engram.Pool, tree: Path, home: Path) -> None:
    engram.stage.bring_in(pool, {str(tree): "case", str(tree / "small"): "one/renamed"})
    work = "cat one/renamed && wc -c <case/again && echo done >case/out/result"
    done = engram.run(
        ["sh", "-c", f"cd {home}/p && {work}"],
        pool={str(home / "p"): pool},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == (f"small{3 * MIB + 17}\n", "")
    engram.stage.bring_out(pool, {"case/out": str(home / "out")})
    assert (home / "out/result").read_text() == "done\n"
    one = engram.stage.bring_out(pool, {"one/renamed": str(home / "deep/er/named")})
    assert one.whole
    assert (home / "deep/er/named").read_bytes() == b"small"
    assert not (home / "deep/er/MANIFEST.engram").exists(), "the folder is not the stage's"


def test_what_is_wrong_is_named(pool: engram.Pool, tree: Path, home: Path) -> None:
    missing = engram.stage.bring_in(pool, {str(home / "none"): "x", str(tree): "case"})
    assert [trouble.path for trouble in missing.troubles] == [str(home / "none")]
    assert not missing.whole
    assert bytes(pool["case/small"][:]) == b"small", "the rest was brought"
    nothing = engram.stage.bring_out(pool, {"nowhere": str(home / "to")})
    assert [trouble.path for trouble in nothing.troubles] == ["nowhere"]
    with pytest.raises(engram.ArgumentError, match="nothing to stage"):
        engram.stage.bring_in(pool, {})
    with pytest.raises(engram.ArgumentError, match="'often'"):
        engram.stage.bring_in(pool, {str(tree): "x"}, verify="often")
    with pytest.raises(engram.NotFoundError, match="MANIFEST"):
        engram.stage.verify(tree)


def test_a_full_pool_ends_a_stage_that_goes_on_when_there_is_room(home: Path) -> None:
    source = home / "from"
    source.mkdir()
    for number in range(8):
        (source / f"f{number}").write_bytes(os.urandom(2 * MIB))
    pool = engram.create(home / "pool", size="8 MiB", force=True)
    with pytest.raises(engram.PoolFullError):
        engram.stage.bring_in(pool, {str(source): "in"})
    assert engram.verify(pool.path).problems == []
    pool.resize("64 MiB")
    report = engram.stage.bring_in(pool, {str(source): "in"})
    assert report.whole, report.troubles
    assert 0 < report.files_reused < 8
    for number in range(8):
        assert bytes(pool[f"in/f{number}"][:]) == (source / f"f{number}").read_bytes()
    assert ".engram-stage" in pool
    assert len(pool[".engram-stage"]) == 0, "nothing is left half-done"
    pool.close()


def test_a_stage_goes_on_beside_the_program(pool: engram.Pool, tree: Path) -> None:
    with engram.stage.begin_in(pool, {str(tree): "case"}, rate="1 MiB") as stage:
        assert stage.wait(0.01) is None
        assert stage.progress().nbytes_in_all > 3 * MIB
        stage.set_rate(None)
    assert "case/out/large" in pool
    stage = engram.stage.begin_in(pool, {str(tree): "other"}, rate="64 KiB")
    stage.stop()
    report = stage.wait()
    assert report is not None
    assert not report.whole


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engram", "stage", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_line(pool: engram.Pool, tree: Path, home: Path) -> None:
    done = command("in", pool.path, tree, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["whole"] is True
    done = command("out", pool.path, "from/out", "--to", home / "to")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "3 files" in done.stdout
    assert command("verify", home / "to").returncode == 0
    (home / "to/large").write_bytes(b"short")
    wrong = command("verify", home / "to")
    assert wrong.returncode == 4
    assert "large: has 5 bytes" in wrong.stderr
    again = command("out", pool.path, "from/out", "--to", home / "to")
    assert again.returncode == 4
    assert "--overwrite" in again.stderr
    assert command("out", pool.path, "from/out", "--to", home / "to", "--overwrite").returncode == 0
    both = command("in", pool.path, tree, "--overwrite", "--update")
    assert both.returncode == engram.ArgumentError.exit_code
    assert "pass one of them" in both.stderr


def test_a_killed_stage_is_ended_by_the_next(home: Path) -> None:
    source = home / "from"
    source.mkdir()
    for number in range(40):
        (source / f"f{number}").write_bytes(os.urandom(number * 40_000))
    pool = home / "pool"
    engram.create(pool, size="128 MiB", force=True).close()
    ways: list[list[str | Path]] = [
        ["in", pool, source],
        ["out", pool, "from", "--to", home / "to"],
    ]
    for words in ways:
        for wait in (0.3, 0.4, 0.5):
            line = [sys.executable, "-m", "engram", "stage", *map(str, words), "--rate", "20MiB"]
            process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
            process.wait()
            for path in (home / "to").glob("f*"):
                assert path.read_bytes() == (source / path.name).read_bytes()
        done = command(*words)
        assert done.returncode == 0, done.stderr
    assert told(home / "to") == told(source)
    assert not list((home / "to").glob(".engram-*"))
    assert engram.verify(pool).problems == []
    shutil.rmtree(home / "to")
