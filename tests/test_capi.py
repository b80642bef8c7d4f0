"""The C library: from C and C++ under sanitizers, and as it is installed."""

from __future__ import annotations

import re
import sys
import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from native import PROGRAMS, ROOT, SANITIZERS, STRICT, compiled, need, run

if TYPE_CHECKING:
    from pathlib import Path

C = ("-std=c11", *STRICT)
CPP = ("-std=c++20", *STRICT)
INCLUDE = ROOT / "capi/include"


def test_c_stores_and_finds_and_is_refused_under_sanitizers(
    prefix: Path, home: Path, tmp_path: Path
) -> None:
    program = compiled(
        "cc", PROGRAMS / "store.c", prefix, tmp_path / "store", (*C, *SANITIZERS, "-pthread")
    )
    said = run(program, home / "pool")
    assert int(said.split()[0]) > 200
    # What C has stored is what Python finds.
    with engram.open(home / "pool") as pool:
        assert pool["particles"]["x"].tolist() == [[1, 2, 3], [6, 7, 8]]
        assert pool["particles"].dtype["mass"] == np.float32
        assert pool["run/made"].dims == ("x",)
        assert pool["run/made"][...].tolist() == list(range(5000))
        assert pool["run/made"].attrs["levels"].tolist() == ["four", "", "five"]
        assert pool["run/made"].attrs["unit"] == "K"
        assert pool["by-child"][...] == b"1"


def test_cpp_stores_and_finds_and_is_refused_under_sanitizers(
    prefix: Path, home: Path, tmp_path: Path
) -> None:
    program = compiled(
        "c++", PROGRAMS / "store.cpp", prefix, tmp_path / "store", (*CPP, *SANITIZERS)
    )
    assert "all is well" in run(program, home / "pool")
    with engram.open(home / "pool") as pool:
        assert pool["made"].shape == (3, 1000)
        assert pool["log"][...] == b"more lines"
        assert engram.verify(home / "pool").problems == []


def test_the_listing_of_the_paper_on_mosiqs_runs_call_by_call(
    prefix: Path, home: Path, tmp_path: Path
) -> None:
    engram.create(home / "pool", size="64 MiB", force=True, mode=0o700).close()
    program = compiled(
        "c++", PROGRAMS / "mosiqs.cpp", prefix, tmp_path / "mosiqs", (*CPP, *SANITIZERS)
    )
    assert "all is well" in run(program, home / "pool")
    with engram.open(home / "pool") as pool:
        group = pool["group-name"]
        assert (group.scope, group.attrs["file"]) == ("shared", "sim-v0.1")
        assert group.index_settings["split_on"] == ("iteration", 1000)
        assert group.index_settings["split_threshold"] == 100
        assert pool.index_settings["split_on"] == ("timestamp", "t2")
        stored = group["pmo-name"]
        assert dict(stored.attrs) == {"file": "foo.hdf5", "timestamp": "t4", "iteration": 1401}
        assert (stored[...]["naxis"].tolist(), stored[...]["exposure"]) == ([512, 256], 0.5)


def test_each_function_is_called_by_some_program() -> None:
    header = (INCLUDE / "engram.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"\b(engram_\w+)\(", re.sub(r"//.*", "", header)))
    used = "\n".join(p.read_text(encoding="utf-8") for p in PROGRAMS.iterdir())
    assert len(declared) > 80
    assert not [name for name in sorted(declared) if not re.search(rf"\b{name}\b", used)]


def test_the_cpp_header_is_short() -> None:
    assert len((INCLUDE / "engram.hpp").read_text(encoding="utf-8").splitlines()) < 400


def test_a_second_engine_in_a_process_is_refused(prefix: Path, home: Path) -> None:
    engram.create(home / "pool", size="16 MiB", force=True).close()
    script = """
        import ctypes, sys, engram
        library = ctypes.CDLL(sys.argv[2])
        library.engram_last_error.restype = ctypes.c_char_p
        pool = ctypes.c_void_p()
        def opened():
            return library.engram_pool_open(sys.argv[1].encode(), 1, True, ctypes.byref(pool))
        with engram.open(sys.argv[1]):
            assert opened() == 8, opened()
            assert b"another copy of the engine" in library.engram_last_error()
        assert opened() == 0, library.engram_last_error()
        try:
            engram.open(sys.argv[1])
        except engram.BusyError as error:
            assert "another copy of the engine" in str(error)
        else:
            raise AssertionError("opened by two engines")
        assert library.engram_pool_close(pool) == 0
        engram.open(sys.argv[1]).close()
    """
    library = prefix / "lib/libengram.so.0"
    run(sys.executable, "-c", textwrap.dedent(script), home / "pool", library)


CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(user {languages})
find_package(engram {version} REQUIRED)
add_executable(user {source})
target_link_libraries(user {target})
"""


def built_by_cmake(folder: Path, prefix: Path, **filled: str) -> Path:
    """Build a program of one source as a project of CMake."""
    need("cmake")
    (folder / "CMakeLists.txt").write_text(CMAKE.format(**filled), encoding="utf-8")
    run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder / "build")
    return folder / "build/user"


@pytest.mark.parametrize("target", ["engram::engram", "engram::static"])
def test_cmake_finds_the_library(prefix: Path, home: Path, tmp_path: Path, target: str) -> None:
    source = str(PROGRAMS / "store.c")
    program = built_by_cmake(
        tmp_path, prefix, languages="C", version="0.1", source=source, target=target
    )
    run(program, home / "pool")
    linked = run("ldd", program)
    assert ("libengram.so.0" in linked) == (target == "engram::engram")


def test_cmake_finds_the_interface_of_pmemcpy(prefix: Path, home: Path, tmp_path: Path) -> None:
    source = str(PROGRAMS / "older.cpp")
    program = built_by_cmake(
        tmp_path, prefix, languages="CXX", version="", source=source, target="engram::pmemcpy"
    )
    assert "good" in run(program, home / "pool", "0", "POSIX", "NO_SERIALIZER", "1")


def test_cmake_refuses_another_version(prefix: Path, tmp_path: Path) -> None:
    need("cmake")
    lists = CMAKE.format(languages="C", version="99", source="x.c", target="engram::engram")
    (tmp_path / "CMakeLists.txt").write_text(lists, encoding="utf-8")
    (tmp_path / "x.c").write_text("int main(void) { return 0; }\n", encoding="utf-8")
    folders = ("-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert engram.__version__ in run("cmake", *folders, code=1)


def test_the_installed_tree_can_be_moved(prefix: Path, home: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere/else"
    moved.parent.mkdir()
    run("cp", "-a", prefix, moved)
    program = compiled("c++", PROGRAMS / "store.cpp", moved, tmp_path / "store", CPP)
    assert "all is well" in run(program, home / "pool")
    names = [str(prefix), str(ROOT)]
    texts = [p for p in moved.rglob("*") if p.is_file() and not p.name.startswith("lib")]
    assert texts
    assert not [p for p in texts if any(name.encode() in p.read_bytes() for name in names)]
