"""Programs of every kind, unchanged, below a prefix: they say and leave what they do elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
import native
import preloaded

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = preloaded.needs_library

BLOCKS = native.ROOT / "tests/posix/blocks.py"
TRANSFER, SEGMENTS, RANKS = 128 << 10, 8, 4
"""Of `blocks.py`: how much each rank writes at a time, and how often."""


@pytest.fixture
def prefix(pool: engram.Pool, home: Path) -> Iterator[preloaded.Prefix]:
    """Give a prefix, whose pool has no problems afterwards."""
    yield preloaded.of(pool, home)
    assert engram.verify(pool.path).problems == []


SCRIPTS = {
    "sqlite3": """
        for mode in wal delete; do
            sqlite3 $mode.db "pragma journal_mode=$mode; create table t(a integer, b text);"
            seq 2000 | sed 's/.*/&,row &/' > rows.csv
            sqlite3 -cmd '.mode csv' $mode.db '.import rows.csv t'
            sqlite3 $mode.db "delete from t where a % 3 = 0; vacuum; pragma integrity_check;"
            sqlite3 $mode.db "select count(*), sum(a) from t; select b from t where a = 1999;"
        done
        sqlite3 wal.db .dump > dump; sqlite3 again.db < dump; sqlite3 again.db .dump | cmp - dump
    """,
    "sed": """
        seq 3000 > f; chmod 640 f; ln f g; ln -s f s
        sed -i.old 's/^1/one /' f; cksum f f.old g; stat -c '%a %h' f g
        sed -i --follow-symlinks '$d' s; stat -c %F s; tail -n 1 f
        perl -pi -e 's/one/uno/' f; head -n 1 f; mv -f f g; cp -p g f; cmp f g && ls
    """,
    "make": """
        mkdir -p src/lib; cd src
        printf 'int part(int n) { return n + 1; }\\n' > lib/part.c
        printf '#include <stdio.h>\\nint part(int);\\n' > main.c
        printf 'int main(void) { printf("%%d\\\\n", part(41)); return 0; }\\n' >> main.c
        printf 'main: main.o lib/libpart.a\\n\\tcc -o $@ $^\\n' > Makefile
        printf 'lib/libpart.a: lib/part.o\\n\\tar rcs $@ $^\\n' >> Makefile
        printf '%%.o: %%.c\\n\\tcc -O1 -c $< -o $@\\n' >> Makefile
        make -s -j2; ./main; make -q && echo up to date
        touch -d '2 hours' lib/part.c; make -n | wc -l; make -s; ./main; ls . lib
    """,
    "bash": """
        mkdir -p a/b; cd a; pwd -P | sed 's:.*/::'; echo one > b/f; cd b; cat f ../b/f; cd -  > x
        diff <(sort b/f) <(echo one) && paste <(seq 3) <(seq 4 6) > pasted; cat pasted
        tee >(tr a-z A-Z > upper) > lower < b/f; while [ ! -s upper ]; do sleep 0.01; done
        cat upper lower; mapfile -t all < pasted; echo ${#all[@]} "${all[2]}"
        cat > doc <<END
$(cat b/f) and $((1 + 1))
END
        read -r word rest < doc; echo "$word|$rest"; { cat <&5; } 5< doc; exec 6>> doc
        echo more >&6; exec 6>&-; wc -l < doc; for f in b/* *; do [ -f $f ] && echo $f; done
        trap 'rm -r b; ls' EXIT
    """,
    "tee": """
        echo data > in; cp /dev/stdin copied < in; cat copied /dev/stdin < in
        exec 5< in; cat /dev/fd/5; [ /dev/stdin -ef in ] < in && echo the same
        echo 'echo sourced' > f; source /dev/stdin < f; sh -c 'echo x > /dev/stdout' > out
        tee /dev/fd/3 < in 3> teed; sort -o /dev/stdout in > sorted
        python3 -c 'open("/dev/stdout", "a").write("written\\n")' >> out; cat out teed sorted
        stat -L -c %s /dev/stdin < in; readlink /proc/self/fd/0 < in | sed 's:.*/::'
        mkdir d; ls /proc/self/cwd; md5sum /dev/stdin < in
    """,
    "tar": """
        mkdir -p t/deep; seq 9000 > t/deep/f; truncate -s 3M t/sparse; echo x >> t/sparse
        ln t/deep/f t/hard; ln -s deep/f t/soft
        for how in '' z S; do
            tar c${how}f $how.tar t; mkdir un$how; tar x${how}f $how.tar -C un$how
            diff -r --no-dereference t un$how/t && stat -c %h un$how/t/hard
        done
        tar cf - t | (mkdir piped; tar xf - -C piped); cmp t/sparse piped/t/sparse && ls
    """,
    "git": """
        export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git config --global user.email x@y
        git config --global user.name x; git init -q -b main r; cd r
        for n in 1 2 3; do seq $n$n$n > f$n; git add .; git commit -q -m $n; done
        git checkout -q -b side HEAD~1; echo side > s; git add s; git commit -q -m side
        git checkout -q main; git merge -q -m merged side; git tag v1; git gc -q --prune=now
        git fsck --strict 2>&1; git log --format=%s | sort; git stash list; echo y >> s
        git stash -q
        git status --porcelain; git stash pop -q; git diff --stat
        git worktree add -q ../w side
        git -C ../w status --short; git bundle create -q ../b main
        git clone -q -b main ../b ../c
        ls ../c
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_program_says_and_leaves_the_same(
    name: str, prefix: preloaded.Prefix, home: Path
) -> None:
    if shutil.which(name) is None or (name == "make" and shutil.which("cc") is None):
        pytest.skip(f"needs {name}")
    plain = home / "plain"
    plain.mkdir()
    script = f'set -e; cd "$1"; {SCRIPTS[name]}'
    expected = native.run("bash", "-c", script, "bash", plain, env={"LC_ALL": "C"})
    found = prefix.run("bash", "-c", script, "bash", prefix.path)
    assert found.replace(str(prefix.path), str(plain)) == expected
    assert len(expected.splitlines()) > 3


HDF5 = """
import sys
import h5py, netCDF4, numpy as np

top = sys.argv[1]
data = np.arange(300_000.0).reshape(300, 1000)
with h5py.File(f"{top}/out.h5", "w", libver="latest") as file:
    file["g/T"] = data
    file.create_dataset("packed", data=data, chunks=(50, 100), compression="gzip")
    grown = file.create_dataset("grown", (0,), maxshape=(None,), chunks=(100,))
    file.swmr_mode = True
    for n in range(20):
        grown.resize((n + 1) * 50, 0)
        grown[-50:] = n
        grown.flush()
        with h5py.File(f"{top}/out.h5", "r", libver="latest", swmr=True) as reader:
            assert reader["grown"].shape == ((n + 1) * 50,)
with h5py.File(f"{top}/out.h5", "r+") as file:
    file["g/T"][5] = -1
    file["late"] = "text"
for kind in ("NETCDF4", "NETCDF3_64BIT_OFFSET"):
    with netCDF4.Dataset(f"{top}/{kind}.nc", "w", format=kind) as file:
        file.createDimension("t", None)
        file.createDimension("x", 1000)
        file.createVariable("T", "f8", ("t", "x"))[:] = data
    with netCDF4.Dataset(f"{top}/{kind}.nc", "a") as file:
        file["T"].units = "K"
        file["T"][300:302] = 7
    with netCDF4.Dataset(f"{top}/{kind}.nc") as file:
        print(kind, file["T"].shape, float(file["T"][:].sum()), file["T"].units)
"""


def test_h5py_and_netcdf_write_change_and_read_files(
    pool: engram.Pool, prefix: preloaded.Prefix, home: Path
) -> None:
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("netCDF4")
    script, plain = home / "hdf5.py", home / "plain"
    script.write_text(HDF5)
    plain.mkdir()
    expected = native.run(sys.executable, script, plain)
    assert prefix.run(sys.executable, script, prefix.path) == expected
    with h5py.File(pool.open_file("out.h5"), "r") as file:
        assert np.array_equal(file["packed"][...].ravel(), np.arange(300_000.0))
        assert file["g/T"][5, 0] == -1


@pytest.mark.parametrize("each", [False, True], ids=["one file", "one file each"])
@pytest.mark.parametrize("by", ["posix", "mpi"])
def test_ranks_write_and_read_each_others_blocks(
    pool: engram.Pool, prefix: preloaded.Prefix, by: str, each: bool
) -> None:
    native.need("mpirun")
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    words = (by, "each" if each else "shared", prefix.path / "data")
    native.ranks(RANKS, Path(sys.executable), BLOCKS, *words, env=prefix.settings)
    expected = [
        [bytes([1 + rank, segment]) * (TRANSFER // 2) for rank in range(RANKS)]
        for segment in range(SEGMENTS)
    ]
    if each:
        for rank in range(RANKS):
            mine = b"".join(blocks[rank] for blocks in expected)
            assert bytes(pool[f"data.{rank}"]) == mine
    else:
        assert bytes(pool["data"]) == b"".join(b"".join(blocks) for blocks in expected)


def built(name: str) -> Path:
    """Give a program of IOR's, where `$IOR_SRC` names the folder in which it was built."""
    native.need("mpirun")
    folder = os.environ.get("IOR_SRC")
    program = Path(folder or ".") / "src" / name
    if folder is None or not program.is_file():
        pytest.skip("needs IOR: $IOR_SRC names a folder in which it was built")
    return program


@pytest.mark.parametrize("mode", [(), ("-F",), ("-c",)], ids=["shared", "file each", "together"])
@pytest.mark.parametrize("api", ["POSIX", "MPIIO", "MMAP"])
def test_ior_finds_what_it_wrote(prefix: preloaded.Prefix, api: str, mode: tuple[str, ...]) -> None:
    if "-c" in mode and api != "MPIIO":
        pytest.skip("MPI-IO alone writes together")
    words = ("-a", api, "-b", "4m", "-t", "128k", "-s", "2", "-C", "-w", "-r", "-R", "-e")
    program, path = built("ior"), prefix.path / "ior"
    said = native.ranks(RANKS, program, *words, *mode, "-o", path, env=prefix.settings)
    assert "incorrect data" not in said
    assert {"write", "read"} <= set(re.findall(r"^(\w+) +[\d.]+ ", said, re.MULTILINE)), said


def test_mdtest_makes_looks_at_and_removes_names(
    pool: engram.Pool, prefix: preloaded.Prefix
) -> None:
    words = ("-n", "500", "-b", "2", "-z", "2", "-w", "3901", "-e", "3901", "-d", prefix.path / "m")
    said = native.ranks(RANKS, built("mdtest"), *words, env=prefix.settings)
    assert "File removal" in said
    assert list(pool) in ([], ["m"])
