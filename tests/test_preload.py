"""Files of a pool for unchanged programs, without the kernel: what any program does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
import mounted
import native
import pjdfstest
import preloaded

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = preloaded.needs_library
SUITE = native.ROOT / "tests/posix"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="it becomes other users, as root may")


def test_tables_that_begin_as_zeros_take_no_room_in_the_librarys_file() -> None:
    native.need("readelf")
    told = native.run("readelf", "--sections", "--wide", preloaded.LIBRARY)
    (data,) = (line.split("]")[1].split() for line in told.splitlines() if " .data " in line)
    assert int(data[4], 16) < 1 << 20


def test_maps_are_those_of_the_kernel(once: native.Once, pool: engram.Pool, home: Path) -> None:
    preloaded.same(once, pool, home, "maps")


def test_private_maps_keep_what_is_written_to_them(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "maps_private")


def test_a_map_ends_where_its_value_does(once: native.Once, pool: engram.Pool, home: Path) -> None:
    """Values that were put whole lie behind each other, also within a page."""
    lengths = [9280, 4160, 70000, 8192, 5000, 12352] * 4
    for number, length in enumerate(lengths):
        pool[f"b{number}"] = bytes([65 + number]) * length
    pool["array"] = np.arange(3001)
    program, prefix = preloaded.compiled(once, "maps_behind"), preloaded.of(pool, home)
    said = prefix.run(program, prefix.path, str(len(lengths)))
    assert said == f"looked at {len(lengths)}\n"
    for number, length in enumerate(lengths):
        assert bytes(pool[f"b{number}"][:]) == bytes([65 + number]) * length
    assert (pool["array"][...] == np.arange(3001)).all()


def test_the_offset_that_processes_share_is_nobodys_for_ever(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "offset_kept")


def test_descriptors_refuse_what_the_kernels_do(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "contents")


def test_what_is_open_is_opened_again_by_the_paths_that_name_it(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "opened")


def test_locks_end_where_the_kernels_do(once: native.Once, pool: engram.Pool, home: Path) -> None:
    preloaded.same(once, pool, home, "lock_ends")


def test_what_is_cut_while_it_is_mapped_is_behind_the_end(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "maps_cut")


def test_a_program_may_have_a_malloc_of_its_own(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "own_malloc")


BEGUN_AT_ONCE = """
cd "$1" && echo hi >x && mkdir made && cd made
for i in $(seq 100); do cat ../x & cat ../x; done; wait
seq 60 | xargs -P 3 -I @ sh -c 'echo @ >@'
cat * | sort -n | tail -1
"""


def test_programs_that_begin_at_once_all_reach_the_pool(pool: engram.Pool, home: Path) -> None:
    prefix = preloaded.of(pool, home)
    said = prefix.run("bash", "-c", BEGUN_AT_ONCE, "bash", prefix.path)
    assert sorted(said.splitlines()) == ["60", *["hi"] * 200]


@needs_root
def test_a_program_may_what_its_user_may(once: native.Once, pool: engram.Pool, home: Path) -> None:
    home.chmod(0o755)
    preloaded.same(once, pool, home, "users")


TWO_ENGINES = """
import os, sys, threading
import numpy as np
import engram

pool, here = engram.open(sys.argv[1]), sys.argv[2]

def files(number):
    for step in range(200):
        with open(f"{here}/f{number}-{step}", "wb") as file:
            file.write(b"x" * (step * 97))
        if step % 3 == 0:
            os.unlink(f"{here}/f{number}-{step}")

threads = [threading.Thread(target=files, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
for step in range(150):
    pool[f"a{step}"] = np.arange(step + 1000)
    if step % 4 == 0:
        del pool[f"a{step}"]
for thread in threads:
    thread.join()
for _ in range(5):
    pool.close()
    pool = engram.open(sys.argv[1])
    assert os.stat(f"{here}/a1").st_size == 1001 * 8
    assert bytes(pool["f0-100"][:2]) == b"xx"
child = os.fork()
if child == 0:
    pool["child"] = np.ones(3)
    with open(f"{here}/child-file", "w") as file:
        file.write("child")
    pool.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert pool["child"][...].sum() == 3 and open(f"{here}/child-file").read() == "child"
print(sorted({name[0] for name in os.listdir(here)}))
"""


def test_a_preloaded_program_may_use_engram_itself(pool: engram.Pool, home: Path) -> None:
    path, prefix = pool.path, preloaded.of(pool, home)
    pool.close()
    script = home / "two.py"
    script.write_text(TWO_ENGINES)
    said = prefix.run(sys.executable, script, path, prefix.path)
    assert said == "['a', 'c', 'f']\n"
    assert engram.verify(path).problems == []


BUILD = """
set -e
cd "$1"; git init -q r; cd r
git config user.email a@b; git config user.name n
for i in 1 2 3; do seq 1 ${i}000 > f$i; done
git add .; git commit -qm one; git gc -q; git fsck --strict
cd ..; git clone -q r c; diff -r -x .git r c
printf '#include <stdio.h>\\nint main(void) { puts("built"); return 0; }\\n' > a.c
cc -O1 -o a a.c; ./a
tar cf x.tar r; mkdir t; tar xf x.tar -C t; diff -r r t/r
"""


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_git_a_compiler_and_tar_run(pool: engram.Pool, home: Path, shell: str) -> None:
    for program in (shell, "git", "cc", "tar"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    script, prefix = home / "build.sh", preloaded.of(pool, home)
    script.write_text(BUILD)
    assert "built\n" in prefix.run(shell, script, prefix.path)
    assert engram.verify(pool.path).problems == []


SQLITE = """
import sqlite3, sys
place = sys.argv[1]
for mode in ("wal", "delete"):
    with sqlite3.connect(f"{place}/{mode}.db") as base:
        assert base.execute(f"pragma journal_mode={mode}").fetchone()[0] == mode
        base.execute("create table t(a)")
        base.executemany("insert into t values (?)", [(n,) for n in range(1000)])
        base.commit()
        assert base.execute("pragma integrity_check").fetchone()[0] == "ok"
    print(sqlite3.connect(f"{place}/{mode}.db").execute("select sum(a) from t").fetchone()[0])
"""


def test_sqlite_keeps_its_bases(pool: engram.Pool, home: Path) -> None:
    script, prefix = home / "sqlite.py", preloaded.of(pool, home)
    script.write_text(SQLITE)
    assert prefix.run(sys.executable, script, prefix.path) == "499500\n499500\n"


def test_fsx_finds_nothing(pool: engram.Pool, home: Path, tmp_path: Path) -> None:
    fsx, prefix = mounted.tool("fsx"), preloaded.of(pool, home)
    settings = ("-f", str(SUITE / "fsx.toml"), "-N", "5000", "-P", str(tmp_path))
    for seed in "12":
        prefix.run(fsx, "-q", *settings, "-S", seed, prefix.path / seed)
    assert engram.verify(pool.path).problems == []


@needs_root
@pytest.mark.parametrize("call", ["chmod", "rename", "open"])
def test_pjdfstest_ends_as_on_a_tmpfs(pool: engram.Pool, home: Path, call: str) -> None:
    home.chmod(0o755)
    prefix = preloaded.of(pool, home)
    plain = home / "plain"
    plain.mkdir(mode=0o755)
    prefix.run("chmod", "755", prefix.path)
    program = mounted.tool("pjdfstest")
    found = pjdfstest.outcomes(program, plain, only=(call,))
    below = pjdfstest.outcomes(program, prefix.path, prefix.settings, only=(call,))
    assert found.keys() == below.keys()
    other = {name for name, ended in below.items() if ended != found[name]}
    assert {name for name in other if not pjdfstest.is_known(name)} == set()


def test_what_two_processes_append_is_whole(pool: engram.Pool, home: Path) -> None:
    prefix, lines = preloaded.of(pool, home), 5000
    loop = f"for i in $(seq {lines}); do echo $1 $i; done >> {prefix.path}/log"
    both = [
        subprocess.Popen(["sh", "-c", loop, "sh", name], env={**os.environ, **prefix.settings})
        for name in "ab"
    ]
    assert [process.wait() for process in both] == [0, 0]
    found = bytes(pool["log"][:]).decode().splitlines()
    for name in "ab":
        own = [line for line in found if line.startswith(name)]
        assert own == [f"{name} {number}" for number in range(1, lines + 1)]
    assert len(found) == 2 * lines
