"""Programs that know nothing of Engram, unchanged, on a mount; what they get when it is full."""

from __future__ import annotations

import filecmp
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import engram
from mounted import begin, code_of, ended, names, needs_fuse, tool
from native import ROOT, need, ranks, run
from support import BIG

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs_fuse

MIB = 1 << 20
TRANSFER, SEGMENTS = 128 << 10, 8
"""Of `blocks.py`: how much each rank writes at a time, and how often."""
FSX = ROOT / "tests/posix/fsx.toml"


def tree(folder: Path) -> Path:
    """Make folders, files of many sizes, links and modes."""
    made = folder / "tree"
    (made / "empty").mkdir(parents=True)
    for n in range(60):
        path = made / f"d{n % 7}/e{n % 3}" / f"file {n}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([n]) * (n * n * 37 % 90_001))
        path.chmod(0o600 + n % 64)
    (made / "link").symlink_to("d1/e1")
    os.link(made / "d0/e0/file 0", made / "d2/other name")
    return made


def told(folder: Path) -> list[str]:
    """Give all that `find` tells of a tree, but for what may differ."""
    said = run("find", folder, "-printf", "%P|%y|%m|%n|%U|%G|%l|\\n")
    return sorted(said.splitlines())


def assert_alike(one: Path, other: Path) -> None:
    assert told(one) == told(other)
    compared = [filecmp.dircmp(one, other)]
    while compared:
        found = compared.pop()
        _, differ, odd = filecmp.cmpfiles(found.left, found.right, found.common_files, False)
        assert [*differ, *odd, *found.left_only, *found.right_only] == []
        compared.extend(found.subdirs.values())


def test_trees_are_copied_packed_and_unpacked(
    pool: engram.Pool, seen: Path, tmp_path: Path
) -> None:
    made = tree(tmp_path)
    run("cp", "-a", made, seen / "copy")
    assert_alike(made, seen / "copy")
    run("tar", "-C", seen, "-cf", seen / "packed.tar", "copy")
    (seen / "un").mkdir()
    run("tar", "-C", seen / "un", "-xpf", seen / "packed.tar")
    assert_alike(made, seen / "un/copy")
    run("cp", "-a", seen / "un/copy", tmp_path / "back")
    assert_alike(made, tmp_path / "back")
    found = run("find", seen / "copy", "-name", "file 1*", "-size", "+10k").splitlines()
    expected = run("find", made, "-name", "file 1*", "-size", "+10k").splitlines()
    assert len(found) == len(expected) > 0
    run("rm", "-r", seen / "un", seen / "copy")
    assert list(pool) == ["packed.tar"]


def test_rsync_keeps_a_copy(seen: Path, tmp_path: Path) -> None:
    if shutil.which("rsync") is None:
        pytest.skip("needs rsync")
    made = tree(tmp_path)
    for _ in range(2):
        run("rsync", "-aH", "--delete", f"{made}/", f"{seen}/copy/")
        assert_alike(made, seen / "copy")
        (made / "d0/e0/file 0").unlink(missing_ok=True)
        (made / "d1/new").write_bytes(BIG)


def test_git_clones_commits_packs_and_checks(seen: Path, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    settings = {
        "HOME": str(tmp_path),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{
            f"GIT_{who}_{what}": "x@y"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    made = tree(tmp_path)

    def git(where: Path, *words: str | Path) -> str:
        return run("git", "-C", where, *words, env=settings)

    git(made, "init", "-q", "-b", "main")
    for n in range(3):
        (made / "log").write_text(f"{n}\n" * 1000)
        git(made, "add", "-A")
        git(made, "commit", "-q", "-m", str(n))
    git(seen, "clone", "-q", f"file://{made}", "clone")
    clone = seen / "clone"
    git(clone, "checkout", "-q", "-b", "other", "HEAD~1")
    (clone / "new").write_bytes(BIG)
    git(clone, "add", "new")
    git(clone, "commit", "-q", "-m", "new")
    git(clone, "checkout", "-q", "main")
    git(clone, "gc", "-q", "--prune=now")
    git(clone, "fsck", "--full", "--strict")
    assert git(clone, "status", "--porcelain") == ""
    assert (clone / "log").read_text() == "2\n" * 1000
    assert git(clone, "rev-list", "--all", "--count").strip() == "4"
    git(tmp_path, "clone", "-q", "-b", "other", clone, "back")
    assert (tmp_path / "back/new").read_bytes() == BIG


def test_a_program_is_built_and_runs_there(seen: Path) -> None:
    need("cc")
    (seen / "part.h").write_text("int part(int);\n")
    (seen / "part.c").write_text('#include "part.h"\nint part(int n) { return n + 1; }\n')
    (seen / "main.c").write_text(
        '#include <stdio.h>\n#include "part.h"\n'
        'int main(int argc, char **argv) { FILE *f = fopen(argv[1], "w");\n'
        'fprintf(f, "%d\\n", part(41)); return fclose(f) + argc - 2; }\n'
    )
    for name in ("part", "main"):
        run("cc", "-O1", "-c", seen / f"{name}.c", "-o", seen / f"{name}.o")
    run("ar", "rcs", seen / "libpart.a", seen / "part.o")
    for way in ([], ["-static"]):
        program = seen / f"program{len(way)}"
        run("cc", *way, seen / "main.o", seen / "libpart.a", "-o", program)
        run(program, seen / "out")
        assert (seen / "out").read_text() == "42\n"
        (seen / "out").unlink()


RECORDER = """
import sqlite3, sys
path, name, journal = sys.argv[1:4]
db = sqlite3.connect(path, timeout=60, isolation_level=None)
assert db.execute(f"pragma journal_mode={journal}").fetchone()[0] == journal
db.execute("create table if not exists rows (who text, n integer, filler blob)")
print(flush=True)
for n in range(60):
    db.execute("begin immediate")
    db.execute("insert into rows values (?, ?, zeroblob(900))", (name, n))
    db.execute("commit" if n % 10 else "rollback")
db.close()
"""

CHECKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("pragma integrity_check").fetchone()[0])
for row in db.execute("select who, count(*), sum(n) from rows group by who order by who"):
    print(*row)
"""


@pytest.mark.parametrize("cache", ["shared", "job"])
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_sqlite_keeps_what_two_processes_record(
    pool: engram.Pool, point: Path, journal: str, cache: Any
) -> None:
    with engram.mount(pool, point, cache=cache):
        # SQLite waits for nobody where two change the journal's mode: it is set before.
        ended(begin(RECORDER.replace("range(60)", "range(0)"), point / "db", "-", journal))
        writers = [begin(RECORDER, point / "db", name, journal) for name in "ab"]
        for writer in writers:
            ended(writer)
        said = ended(begin(CHECKER, point / "db")).split()
        total = sum(n for n in range(60) if n % 10)
        assert said == ["ok", "a", "54", str(total), "b", "54", str(total)]
    assert engram.verify(pool.path).problems == []


KEEPER = RECORDER.replace("range(60)", "range(10**9)").replace(
    '"rollback")', '"rollback")\n    print(n, flush=True)'
)
"""Records without an end, and says after each row that it is recorded, or taken back."""

HOLDS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("pragma integrity_check").fetchone()[0])
for (n,) in db.execute("select n from rows where who = ? order by n", (sys.argv[2],)):
    print(n)
"""


@pytest.mark.parametrize("victim", ["writer", "both writers", "mount"])
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_sqlite_keeps_what_it_recorded_whoever_is_killed(
    pool: engram.Pool, point: Path, journal: str, victim: str
) -> None:
    mount = engram.mount(pool, point)
    ended(begin(RECORDER.replace("range(60)", "range(0)"), point / "db", "-", journal))
    writers = [begin(KEEPER, point / "db", name, journal) for name in "ab"]
    said: list[list[str]] = []
    for writer in writers:
        assert writer.stdout is not None
        said.append([writer.stdout.readline() for _ in range(15)])
    if victim == "mount":
        os.kill(mount.pid, signal.SIGKILL)
    for writer in writers[: 1 if victim == "writer" else 2]:
        writer.kill()
    for writer, lines in zip(writers, said, strict=True):
        assert writer.stdout is not None
        if victim == "writer" and writer is writers[1]:  # it goes on, and then ends
            lines.extend(writer.stdout.readline() for _ in range(15))
            writer.kill()
        lines.extend(line for line in writer.stdout if line.strip().isdigit())
        writer.communicate()
    if victim == "mount":
        mount.unmount()
        mount = engram.mount(pool, point)
    for name, lines in zip("ab", said, strict=True):
        told = [int(line) for line in lines if line.strip()]
        sound, *found = ended(begin(HOLDS, point / "db", name)).split()
        assert sound == "ok"
        kept = [n for n in told if n % 10]
        assert [int(n) for n in found[: len(kept)]] == kept
        assert len(found) <= len(kept) + 1  # one that was not said yet
    mount.unmount()
    assert engram.verify(pool.path).problems == []


def test_a_program_of_system_calls_alone_works(seen: Path) -> None:
    need("cc")
    if platform.machine() != "x86_64":
        pytest.skip("its system calls are those of x86-64")
    program = seen / "raw"
    flags = ("-O1", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-no-pie")
    run("cc", *flags, ROOT / "tests/posix/raw.c", "-o", program)
    folder = seen / "by raw"
    folder.mkdir()
    run(program, folder)
    assert names(folder) == ["renamed"]
    assert (folder / "renamed").read_bytes() == b"seven! " * 1000 + b"end\n"


@pytest.mark.parametrize("each", [False, True], ids=["one file", "one file each"])
@pytest.mark.parametrize("by", ["posix", "mpi"])
def test_ranks_write_and_read_each_others_blocks(
    pool: engram.Pool, seen: Path, by: str, each: bool
) -> None:
    need("mpirun")
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    words = (by, "each" if each else "shared", seen / "data")
    ranks(4, Path(sys.executable), ROOT / "tests/posix/blocks.py", *words)
    expected = [
        [bytes([1 + rank, segment]) * (TRANSFER // 2) for rank in range(4)]
        for segment in range(SEGMENTS)
    ]
    if each:
        for rank in range(4):
            mine = b"".join(blocks[rank] for blocks in expected)
            assert bytes(pool[f"data.{rank}"]) == mine
    else:
        assert bytes(pool["data"]) == b"".join(b"".join(blocks) for blocks in expected)


def test_h5py_writes_and_reads_a_file(pool: engram.Pool, seen: Path) -> None:
    data = np.arange(300_000.0).reshape(300, 1000)
    with h5py.File(seen / "out.h5", "w") as file:
        file["g/T"] = data
        file.create_dataset("g/packed", data=data, chunks=(50, 100), compression="gzip")
        file["g/T"].attrs["units"] = "K"
    with h5py.File(seen / "out.h5", "r+") as file:
        file["g/T"][5] = -1
        file["late"] = "text"
    data[5] = -1
    with h5py.File(seen / "out.h5", "r") as file:
        assert np.array_equal(file["g/T"][...], data)
        assert file["g/packed"][299, 999] == 299_999
        assert file["g/T"].attrs["units"] == "K"
    with h5py.File(pool.open_file("out.h5"), "r") as file:
        assert np.array_equal(file["g/T"][...], data)


def test_numpy_maps_a_file_and_writes_it(pool: engram.Pool, seen: Path) -> None:
    path = seen / "map.npy"
    mapped = np.lib.format.open_memmap(path, "w+", "f8", (500, 1000))
    mapped[...] = np.arange(500_000.0).reshape(500, 1000)
    mapped.flush()
    del mapped
    mapped = np.load(path, mmap_mode="r+")
    mapped[7] *= 2
    mapped.flush()
    del mapped
    expected = np.arange(500_000.0).reshape(500, 1000)
    expected[7] *= 2
    assert np.array_equal(np.load(path), expected)
    assert bytes(pool["map.npy"])[-expected.nbytes :] == expected.tobytes()


@pytest.mark.parametrize("cache", ["job", "shared"])
def test_fsx_finds_nothing(pool: engram.Pool, point: Path, tmp_path: Path, cache: Any) -> None:
    fsx = tool("fsx")
    with engram.mount(pool, point, cache=cache):
        words = [fsx, "-q", "-f", str(FSX), "-N", "5000", "-P", str(tmp_path)]
        both = [
            subprocess.Popen([*words, "-S", seed, str(point / seed)], stdout=subprocess.PIPE)
            for seed in "12"
        ]
        for process in both:
            said, _ = process.communicate()
            assert process.returncode == 0, said
    assert engram.verify(pool.path).problems == []


@pytest.fixture
def small(home: Path, point: Path) -> Iterator[Path]:
    """Mount a pool of 16 MiB; it has no problems afterwards."""
    with engram.create(home / "small", size="16 MiB", force=True) as pool:
        with engram.mount(pool, point):
            yield point
        assert engram.verify(pool.path).problems == []


def fill(path: Path, unit: int) -> int:
    """Write pieces to a file until there is no room; give how many bytes were taken."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    taken = 0
    with pytest.raises(OSError, match="No space left on device"):
        while True:
            taken += os.write(fd, b"%07d\n" % (taken // unit) * (unit // 8))
    os.close(fd)
    return taken


@pytest.mark.parametrize("unit", [8000, 512 << 10])
def test_a_full_pool_takes_no_more_and_keeps_what_it_took(small: Path, unit: int) -> None:
    for nth in range(3):
        taken = fill(small / "file", unit)
        assert taken > 8 * MIB, nth
        assert (small / "file").stat().st_size == taken
        with (small / "file").open("rb") as file:
            for n in range(taken // unit):
                assert file.read(unit) == b"%07d\n" % n * (unit // 8)
        (small / "file").unlink()


def test_on_a_full_pool_names_are_refused_or_made_whole(small: Path) -> None:
    fill(small / "file", 8000)
    for n in range(1000):
        codes = {
            code_of(os.mkdir, small / f"d{n}"),
            code_of(os.symlink, "x" * 900, small / f"s{n}"),
            code_of((small / f"f{n}").write_bytes, b"x" * 1000),
        }
        assert codes <= {"", "ENOSPC"}
    for name in names(small):
        if name.startswith("s"):
            assert (small / name).readlink() == Path("x" * 900)
    (small / "file").rename(small / "renamed")
    assert code_of(os.truncate, small / "renamed", 1000) == ""
    for name in names(small):
        path = small / name
        path.rmdir() if name.startswith("d") else path.unlink()
    (small / "again").write_bytes(BIG)
    assert (small / "again").read_bytes() == BIG


MAPPER = """
import mmap, os, sys
path, how, nbytes = sys.argv[1], sys.argv[2], 4 << 20
fd = os.open(path, os.O_RDWR | os.O_CREAT)
if how == "allocated":
    os.posix_fallocate(fd, 0, nbytes)
else:
    os.pwrite(fd, b"w" * nbytes, 0)
mapped = mmap.mmap(fd, nbytes)
print("mapped", flush=True)
input()
for at in range(0, nbytes, 4096):
    mapped[at] = at // 4096 % 251
mapped.flush()
print("written", flush=True)
"""


@pytest.mark.parametrize("how", ["allocated", "written"])
def test_a_map_is_written_on_a_full_pool_where_there_is_space_for_it(small: Path, how: str) -> None:
    mapper = begin(MAPPER, small / "map", how)
    assert mapper.stdout is not None
    assert mapper.stdout.readline() == "mapped\n"
    fill(small / "file", 8000)
    assert mapper.communicate("\n", timeout=60)[0] == "written\n"
    assert mapper.returncode == 0
    found = (small / "map").read_bytes()
    assert found[::4096] == bytes(n % 251 for n in range(1024))
    assert set(found[1:4096]) == {0 if how == "allocated" else ord("w")}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_let_in_as_modes_say(pool: engram.Pool, seen: Path) -> None:
    seen.chmod(0o755)
    for name, mode in {"open": 0o777, "sticky": 0o1777, "read": 0o755, "closed": 0o700}.items():
        (seen / name).mkdir()
        (seen / name).chmod(mode)
        (seen / name / "public").write_bytes(b"public")
        (seen / name / "secret").write_bytes(b"secret")
        (seen / name / "secret").chmod(0o600)

    def tries(command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=seen,
            user="nobody",
            group="nogroup",
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout if done.returncode == 0 else done.stderr

    denied = "Permission denied"
    refused = "Operation not permitted"
    assert tries("cat open/public") == tries("cat read/public") == "public"
    for command in (
        "cat open/secret",
        "echo x >> read/public",
        "echo x > read/new",
        "rm -f read/public",
        "ls closed",
        "cat closed/public",
        "mkdir new",
        "mv read/public open/",
    ):
        assert denied in tries(command), command
    for command in ("chmod 777 open/secret", "chown nobody open/secret", "mv sticky/secret x"):
        assert refused in tries(command) or denied in tries(command), command
    assert refused in tries("rm -f sticky/public")
    assert tries("umask 022; mkdir open/mine; echo mine > open/mine/file; rm -f open/public") == ""
    assert pool["open/mine/file"].posix.uid == (seen / "open/mine").stat().st_uid != 0
    assert "public" not in pool["open"]
    assert tries("chmod 000 open/mine/file; cat open/mine/file 2>&1 || true").endswith(
        f"{denied}\n"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_set_user_id_goes_where_somebody_else_writes(seen: Path) -> None:
    def modes(folder: Path) -> dict[str, str]:
        folder.chmod(0o777)
        found = {}
        changes = {
            "append": "echo x >> {}",
            "truncate": "truncate -s 1 {}",
            "open": "echo x > {}",
            "allocate": "fallocate -l 9000 {}",
            "give": "true",
            "root appends": "true",
        }
        for bits in (0o6777, 0o2767, 0o4766):
            for what, command in changes.items():
                file = folder / f"{what.replace(' ', '-')}-{bits:o}"
                file.write_bytes(b"before")
                file.chmod(bits)
                if what == "give":
                    os.chown(file, 1, 1)
                if what == "root appends":
                    with file.open("ab") as opened:
                        opened.write(b"x")
                words = ["sh", "-c", command.format(file)]
                subprocess.run(words, user="nobody", extra_groups=[], check=True)
                found[file.name] = oct(file.stat().st_mode)
        return found

    with tempfile.TemporaryDirectory() as plain:
        expected = modes(Path(plain))
    assert len({mode[-4] for mode in expected.values()}) > 1  # some go, and some stay
    assert modes(seen) == expected
