"""Uses what a wheel brings, each part once: run by a Python with the wheel and numpy alone.

    python smoke.py VERSION [--without PART ...]

It prints a line for each part, and ends with 1 where one does not work. What the system lacks, such
as a compiler, is told and left out. A part that an emulator cannot do is left out by its name.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import engram

if TYPE_CHECKING:
    from collections.abc import Callable

    Part = Callable[[Path], None]

MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
PATIENCE = 300
PROGRAM = """
#include <engram.h>
#include <stdio.h>
int main(int argc, char **argv) {
    engram_pool *pool;
    if (engram_pool_open(argv[argc - 1], ENGRAM_OPEN_MODE_READ, true, &pool) != 0) {
        fprintf(stderr, "%s\\n", engram_last_error());
        return 1;
    }
    printf("%s\\n", engram_version());
    engram_pool_close(pool);
    return 0;
}
"""
PROGRAM_CPP = """
#include <pmemcpy/pmemcpy.hpp>
#include <cstdio>
int main(int argc, char **argv) {
    pmemcpy::PMEM pmem;
    pmem.mmap(argv[argc - 1], 64 << 20);
    pmem.store<double>("answer", 42.5);
    std::printf("%g\\n", pmem.load<double>("answer"));
}
"""
WRITER = """
import os, sys, numpy as np, engram
with engram.open(sys.argv[1]) as pool:
    for step in range(10**9):
        pool[f"kept/{step:06}"] = np.full(100, step)
        print(step, flush=True)
"""


class LackingError(Exception):
    """The system lacks what a part needs."""


def python(*words: str, **more: str) -> str:
    """Run Python in a process of its own; return what it prints."""
    return said(sys.executable, *words, **more)


def said(*words: str, **more: str) -> str:
    """Run a program; return what it prints, or raise with it."""
    ended = subprocess.run(
        words,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | more,
    )
    if ended.returncode:
        message = f"{words} ended with {ended.returncode}: {ended.stdout}{ended.stderr}"
        raise RuntimeError(message)
    return ended.stdout


def version(_: Path) -> None:
    """The version is one and the same everywhere."""
    names = {engram.__version__, importlib.metadata.version("engram"), sys.argv[1]}
    assert len(names) == 1, names


def arrays(home: Path) -> None:
    """What one process stores another finds."""
    with engram.create(home / "pool", size="64 MiB", force=True) as pool:
        run = pool.create_group("run-17")
        run.create_array("T", data=np.arange(24.0).reshape(4, 6), attrs={"orbit": 4})
        run.create_array("Z", data=np.zeros((64, 64)), chunks=(16, 16), codec="zstd")
        run.create_blob("log", b"all is well")
        assert [hit.name for hit in pool.query("orbit = 4")] == ["T"]
    code = "import engram, sys; print(engram.open(sys.argv[1])['run-17/T'].view().sum())"
    assert float(python("-c", code, str(home / "pool"))) == 276.0
    assert engram.verify(home / "pool").problems == []


def files(home: Path) -> None:
    """Files of NumPy and classic netCDF go out and come in."""
    with engram.open(home / "pool") as pool:
        for name, form in (("T.npy", "npy"), ("T.nc", "netcdf3")):
            engram.export_file(pool["run-17/T"], home / name, format=form)
            assert (home / name).stat().st_size > 192
        engram.import_file(home / "T.nc", pool.create_group("again"))
        assert np.array_equal(pool["again/T"][...], pool["run-17/T"][...])


def kill(home: Path) -> None:
    """A writer that is killed loses nothing that was acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home / "pool")], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        acknowledged = -1
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged == 200:
                os.kill(writer.pid, signal.SIGKILL)
    with engram.open(home / "pool") as pool:
        assert acknowledged >= 200
        for step in range(acknowledged + 1):
            assert pool[f"kept/{step:06}"].view()[-1] == step
        pool["after"] = np.ones(3)
    assert engram.verify(home / "pool").problems == []


def clusters(home: Path) -> None:
    """The natives of clusters load, and make a cluster's certificates."""
    from engram.cluster.certificates import make_authority  # noqa: PLC0415 - it loads them

    assert (make_authority("smoke", home / "authority") / "ca.pem").is_file()


def preload(home: Path) -> None:
    """A program that knows only files finds one in the pool."""
    if not platform.libc_ver()[0]:
        raise LackingError("it is for glibc, and this system has another C library")
    words = ["cat", "/p/run-17/log"]
    ended = engram.run(words, pool=home / "pool", prefix="/p", capture_output=True)
    assert ended.stdout == b"all is well", ended


def mount(home: Path) -> None:
    """A pool shows as a folder, by the package and by `engram-mount`."""
    program = str(Path(sys.executable).parent / "engram-mount")
    assert said(program, "--help").startswith("Usage: engram-mount POOL DIR ")
    told = subprocess.run([program], check=False, capture_output=True, text=True)
    assert told.stderr.startswith("engram-mount: "), told
    assert "engram-mount POOL DIR" in told.stderr, told
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise LackingError("engram-mount starts; the kernel offers no FUSE here")
    (home / "shown").mkdir()
    with engram.mount(home / "pool", home / "shown"):
        assert (home / "shown/run-17/log").read_bytes() == b"all is well"
    said(program, str(home / "pool"), str(home / "shown"), "--read-only")
    assert (home / "shown/run-17/log").read_bytes() == b"all is well"
    engram.unmount(home / "shown")
    assert not (home / "shown/run-17").exists()


def library(home: Path) -> None:
    """The C library of the wheel opens the pool, in a process without Python's engine."""
    prefix = python("-m", "engram", "config", "--prefix").strip()
    code = (
        "import ctypes, sys; own = ctypes.CDLL(sys.argv[1]); pool = ctypes.c_void_p();"
        "own.engram_version.restype = own.engram_last_error.restype = ctypes.c_char_p;"
        "code = own.engram_pool_open(sys.argv[2].encode(), 0, True, ctypes.byref(pool));"
        "print(own.engram_last_error() if code else own.engram_version().decode())"
    )
    told = python("-c", code, f"{prefix}/lib/libengram.so.0", str(home / "pool"))
    assert told.strip() == engram.__version__, told
    assert ctypes.CDLL(f"{prefix}/lib/libengram_cluster.so.0")


def compiler(home: Path) -> None:
    """A program in C and one in C++ are compiled with what `config` tells, and run."""
    missing = [program for program in ("cc", "c++") if not shutil.which(program)]
    if missing:
        raise LackingError(f"{' and '.join(missing)} cannot be found")
    flags = python("-m", "engram", "config", "--cflags", "--libs").split()
    (home / "a.c").write_text(PROGRAM)
    said("cc", str(home / "a.c"), *flags, "-o", str(home / "c"))
    assert said(str(home / "c"), str(home / "pool")).strip() == engram.__version__
    (home / "b.cpp").write_text(PROGRAM_CPP)
    no_mpi = ("-std=c++17", "-DENGRAM_NO_MPI")
    said("c++", *no_mpi, str(home / "b.cpp"), *flags, "-o", str(home / "cpp"))
    there = said(str(home / "cpp"), str(home / "other"), ENGRAM_PMEMCPY_FORCE="1")
    assert there.strip() == "42.5"


def carried(_: Path) -> None:
    """The page and the licences are there."""
    page = Path(engram.__file__).parent / "web/page/index.html"
    assert "<script" in page.read_text(encoding="utf-8")
    (text,) = (
        file.read_text()
        for file in importlib.metadata.files("engram") or ()
        if file.name == "THIRD-PARTY.txt" and "licenses" in file.parts
    )
    for words in (
        *("fiat-crypto authors", "OpenLDAP Public License", "Meta Platforms", "gimli", "uplot"),
        *("LLVM Exceptions", "Rich Felker"),
    ):
        assert words in text, words


PARTS: dict[str, Part] = {
    each.__name__: each
    for each in (version, arrays, files, kill, clusters, preload, mount, library, compiler, carried)
}


def main() -> int:
    """Use each part, in a process of its own; return 1 if one does not work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        return use(given.only[0], Path(given.only[1]))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="engram-smoke-", dir=MEMORY) as folder:
        for name in PARTS:
            if name in given.without:
                print(f"    {name}: skipped: it is left out by name", flush=True)  # noqa: T201
                continue
            words = [sys.executable, "-I", __file__, given.version, "--only", name, folder]
            failed += subprocess.run(words, check=False).returncode != 0
    return int(failed > 0)


def use(name: str, home: Path) -> int:
    """Use a part, and print how that went; return 1 if it does not work."""
    how, code = "works", 0
    try:
        PARTS[name](home)
    except LackingError as error:
        how = f"skipped: {error}"
    except Exception:  # noqa: BLE001 - whatever it is, the other parts are tried
        how, code = f"FAILS\n{traceback.format_exc()}", 1
    print(f"    {name}: {how}", flush=True)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
