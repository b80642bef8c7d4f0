"""What stages and jobs refuse: what would be lost, places of others, and what is no number."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import engram
from engram.jobs import pools, registry
from job_place import Place, placed
from shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="files are given away by root alone")


@pytest.fixture
def tree(home: Path) -> Path:
    """Give a folder outside with a file."""
    made = home / "tree"
    made.mkdir()
    (made / "file").write_bytes(b"x" * 8192)
    return made


def by_view(pool: engram.Pool) -> None:
    """Write through a view."""
    view: Any = pool["tree/file"].view("r+")
    view[5000:5004] = list(b"MINE")


def by_map(pool: engram.Pool) -> None:
    """Write through a program's mapping, below a prefix."""
    code = (
        "import mmap; f = open('/p/tree/file', 'r+b'); m = mmap.mmap(f.fileno(), 0); "
        "m[5000:5004] = b'MINE'; m.close()"
    )
    engram.run(["python3", "-c", code], pool=pool, prefix="/p").check_returncode()


@pytest.mark.parametrize("write", [by_view, by_map])
def test_a_write_that_no_time_tells_is_not_lost(
    pool: engram.Pool, tree: Path, home: Path, write: Any
) -> None:
    assert engram.stage.bring_in(pool, {str(tree): "tree"}, name="in").whole
    assert engram.stage.bring_out(pool, {"tree": str(home / "out")}, name="out").whole
    write(pool)
    for name in ("in", "out"):
        with pytest.raises(engram.BusyError, match="1 of 1 files"):
            engram.stage.drop(pool, name)
    (tree / "file").write_bytes(b"new")
    report = engram.stage.bring_in(pool, {str(tree): "tree"}, name="in")
    assert [trouble.path for trouble in report.troubles] == [str(tree / "file")]
    assert engram.stage.bring_out(pool, {"tree": str(home / "out")}, name="out").whole
    assert (home / "out/file").read_bytes()[5000:5004] == b"MINE"
    assert engram.stage.drop(pool, "out").files == 1


@pytest.fixture
def place(home: Path) -> Iterator[Place]:
    """Give a place for a job; nothing of it stays."""
    with placed(home) as made:
        yield made


@needs_root
def test_a_job_takes_no_pool_that_somebody_else_has_made(place: Place) -> None:
    config = place.write(reuse="weather")
    folder = pools.folder_of(engram.jobs.Description.read(config))
    engram.create(folder, size="16 MiB").close()
    os.chown(folder, STRANGER, STRANGER)
    with pytest.raises(engram.AccessError, match=rf"user {STRANGER} has made it"):
        engram.jobs.run(config, ["true"], front="run")
    registry.note("weather", folder, 1 << 24)
    with pytest.raises(engram.AccessError, match="has made it"):
        engram.jobs.drop("weather", force=True)
    os.chown(folder, os.geteuid(), os.getegid())
    engram.destroy(folder)


def test_a_pool_that_cannot_be_looked_at_stops_no_job(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = place.memory / "hidden"
    registry.note("old", hidden, 1 << 24, lifetime=0)
    looked = Path.lstat

    def lstat(self: Path) -> os.stat_result:
        if hidden in self.parents:
            raise PermissionError(13, "Permission denied")
        return looked(self)

    monkeypatch.setattr(Path, "lstat", lstat)
    assert [pool.path for pool in registry.here()] == [hidden], "nobody can say that it is gone"
    came = engram.jobs.run(place.write(), place.script("echo >>state"), front="run")
    assert came.whole


def test_a_result_with_the_manifests_name_keeps_the_pool(place: Place) -> None:
    program = place.script("mkdir out", "echo mine >out/MANIFEST.engram")
    came = engram.jobs.run(place.write(), program, front="run")
    assert (came.exit_code, came.whole) == (74, False)
    assert "MANIFEST.engram" in came.troubles[0].path
    assert came.pool is not None
    with engram.open(came.pool) as pool:
        assert pool.open_file("out/MANIFEST.engram").read() == b"mine\n"
    engram.destroy(came.pool)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": 0}, r"rate=0: pass bytes a second"),
        ({"rate": "fast"}, r"rate: size 'fast' cannot be read"),
        ({"files_per_second": 0}, r"files_per_second=0"),
    ],
)
def test_a_speed_that_never_ends_is_refused(
    pool: engram.Pool, tree: Path, options: Any, said: str
) -> None:
    with pytest.raises(engram.ArgumentError, match=said):
        engram.stage.bring_in(pool, {str(tree): "tree"}, **options)


@pytest.mark.parametrize("given", ["tree", ["tree"], None])
def test_what_is_no_mapping_is_refused(pool: engram.Pool, given: Any) -> None:
    with pytest.raises(engram.ArgumentError, match="pass a mapping"):
        engram.stage.bring_in(pool, given)
    with pytest.raises(engram.ArgumentError, match="pass a mapping"):
        engram.stage.bring_out(pool, given)


def test_nothing_is_staged_into_the_pools_own_folder(pool: engram.Pool, tree: Path) -> None:
    own = Path(pool.path)
    with pytest.raises(engram.ArgumentError, match="the pool's own folder"):
        engram.stage.bring_in(pool, {str(own / "ns"): "ns"})
    with pytest.raises(engram.ArgumentError, match="holds the pool itself"):
        engram.stage.bring_in(pool, {str(own.parent): "all"})
    with pytest.raises(engram.ArgumentError, match="the stages' own folder"):
        engram.stage.bring_in(pool, {str(tree): ".engram-stage/x"})
    assert engram.stage.bring_in(pool, {str(tree): "tree"}).whole
    with pytest.raises(engram.ArgumentError, match="the pool's own folder"):
        engram.stage.bring_out(pool, {"tree": str(own / "out")})


def test_a_folder_that_has_no_slots_is_not_taken_for_one(
    pool: engram.Pool, tree: Path, home: Path
) -> None:
    with pytest.raises(engram.NotFoundError, match="is no folder of slots"):
        engram.stage.bring_in(pool, {str(tree): "tree"}, slots=home)
    assert not (home / "slot-0").exists()


def test_a_list_that_is_no_text_is_refused_at_its_line(home: Path, pool: engram.Pool) -> None:
    file = home / "list"
    file.write_bytes(b"a b\n\xff\xfe q\n")
    done = run("stage", "in", pool.path, "--list", file)
    assert done.code == engram.FormatError.exit_code, done.err
    assert f"{file}:2: " in done.err
    assert "Traceback" not in done.err


@needs_root
def test_a_file_that_may_not_be_written_to_keeps_its_attributes(home: Path, tree: Path) -> None:
    """As a user who is not root, whom the modes bind."""
    os.setxattr(tree / "file", "user.note", b"kept")
    (tree / "file").chmod(0o444)
    os.chown(tree, STRANGER, STRANGER)
    os.chown(tree / "file", STRANGER, STRANGER)
    home.chmod(0o777)
    words = f"""
import os, engram
os.setgid({STRANGER}); os.setuid({STRANGER})
engram.create({str(home / "theirs")!r}, size="16 MiB").close()
assert engram.stage.bring_in({str(home / "theirs")!r}, {{{str(tree)!r}: "tree"}}).whole
report = engram.stage.bring_out({str(home / "theirs")!r}, {{"tree": {str(home / "out")!r}}})
assert report.whole, report.troubles
"""
    for above in home.parents:
        if not above.stat().st_mode & stat.S_IXOTH:
            pytest.skip(f"{above} is closed to others")
    pid = os.fork()
    if pid == 0:
        try:
            exec(compile(words, "child", "exec"), {})  # noqa: S102 - our own words
        except BaseException:  # noqa: BLE001 - the parent hears of it
            import traceback  # noqa: PLC0415

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.getxattr(home / "out/file", "user.note") == b"kept"
    assert stat.S_IMODE((home / "out/file").stat().st_mode) == 0o444
