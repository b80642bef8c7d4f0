"""`engram config`: what a compiler has to be told, in an installation with the C library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import engram
import native
from engram import _engram, libraries
from engram.errors import ArgumentError, NotFoundError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from wheels import archive

if TYPE_CHECKING:
    from collections.abc import Callable

C = """
#include <engram.h>
#include <stdio.h>
int main(int argc, char **argv) {
    engram_pool *pool;
    if (engram_pool_open(argv[argc - 1], ENGRAM_OPEN_MODE_READ, true, &pool) != 0) return 1;
    printf("%s\\n", engram_version());
    return engram_pool_close(pool) != 0;
}
"""
CPP = """
#include <pmemcpy/pmemcpy.hpp>
#include <cstdio>
int main(int argc, char **argv) {
    pmemcpy::PMEM pmem;
    pmem.mmap(argv[argc - 1]);
    pmem.store<double>("answer", 42.5);
    std::printf("%g\\n", pmem.load<double>("answer"));
}
"""
CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(try C)
find_package(engram REQUIRED)
add_executable(main main.c)
target_link_libraries(main engram::engram)
if(TARGET engram::static)
  message(FATAL_ERROR "a wheel has no static library")
endif()
"""


@pytest.fixture
def wheel_like(prefix: Path, tmp_path: Path) -> Path:
    """Give a package whose natives have the C library beside them, as a wheel lays it."""
    package = tmp_path / "site/engram"
    shutil.copytree(
        Path(engram.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "page")
    )
    natives = Path(_engram.__file__ or "")
    shutil.copy(natives, package / natives.name)
    for name, (data, mode) in archive.tree(prefix).items():
        path = package.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
    assert not [path for path in package.rglob("*") if path.is_symlink()]
    return package.parent


@pytest.fixture
def config(wheel_like: Path) -> Callable[..., str]:
    """Give what asks that package, without the libraries of the command line."""

    def ask(*words: str) -> str:
        code = "import sys; sys.modules['typer'] = None; from engram.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, "config", *words],
            env=os.environ | {"PYTHONPATH": str(wheel_like)},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    return ask


def test_what_config_tells_compiles_programs_that_run(
    config: Callable[..., str], home: Path, tmp_path: Path
) -> None:
    engram.create(home / "pool", size="16 MiB", force=True).close()
    flags = config("--cflags", "--libs").split()
    for name, text, compiler in (("a.c", C, "cc"), ("b.cpp", CPP, "c++")):
        native.need(compiler)
        (tmp_path / name).write_text(text)
        words = ["-std=c++17", "-DENGRAM_NO_MPI"] if compiler == "c++" else ["-std=c11"]
        program = tmp_path / f"{name}.out"
        native.run(compiler, *words, tmp_path / name, *flags, "-o", program)
        told = native.run(program, home / "pool").strip()
        assert told == ("42.5" if compiler == "c++" else engram.__version__)
    with engram.open(home / "pool") as pool:
        assert float(pool["answer"][...]) == 42.5


def test_cmake_finds_it_by_the_folder_that_config_tells(
    config: Callable[..., str], home: Path, tmp_path: Path
) -> None:
    native.need("cc", "cmake")
    engram.create(home / "pool", size="16 MiB", force=True).close()
    source, build = tmp_path / "source", tmp_path / "build"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(CMAKE)
    (source / "main.c").write_text(C)
    native.run("cmake", "-S", source, "-B", build, f"-Dengram_DIR={config('--cmakedir')}")
    native.run("cmake", "--build", build)
    assert native.run(build / "main", home / "pool").strip() == engram.__version__


def test_without_an_option_all_of_it_is_told(config: Callable[..., str], wheel_like: Path) -> None:
    told = dict(line.split(": ", 1) for line in config().splitlines())
    assert list(told) == list(libraries.WORDS)
    assert told["prefix"] == str(wheel_like / "engram/_native")
    assert Path(told["cmakedir"], "engram-config.cmake").is_file()


def test_an_installation_without_the_library_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_engram, "__file__", str(tmp_path / "_engram.so"))
    with pytest.raises(NotFoundError, match=r"from a wheel, or run `make install PREFIX="):
        libraries.find()


def test_a_path_that_compilers_cut_is_refused(tmp_path: Path) -> None:
    found = libraries.Libraries(tmp_path / "my own")
    for word in ("cflags", "libs"):
        with pytest.raises(ArgumentError, match="has a blank or a comma"):
            getattr(found, word)
    assert found.cmakedir.endswith("my own/lib/cmake/engram")


def test_natives_for_another_c_library_are_refused_in_one_sentence(tmp_path: Path) -> None:
    native.need("cc")
    package = tmp_path / "engram"
    package.mkdir()
    source = Path(engram.__file__).parent
    shutil.copy(source / "natives.py", package)
    (package / "__init__.py").write_text("from engram import natives\n")
    (tmp_path / "old.c").write_text("void newer(void) {}\n")
    (tmp_path / "versions").write_text("GLIBC_2.99 { newer; };\n")
    (tmp_path / "natives.c").write_text("void newer(void); void PyInit__engram(void) {newer();}\n")
    shared = ("cc", "-shared", "-fPIC")
    stub = tmp_path / "libc.so.6"
    script = f"-Wl,--version-script={tmp_path / 'versions'}"
    native.run(
        *shared, tmp_path / "old.c", script, "-Wl,-soname,libc.so.6", "-nostdlib", "-o", stub
    )
    native.run(
        *shared, tmp_path / "natives.c", "-nostdlib", stub, "-o", package / "_engram.abi3.so"
    )
    said = _import_error(tmp_path)
    assert "are for another system than this one" in said
    assert "GLIBC_2.99" in said
    assert "install the wheel for this system" in said


def test_a_tree_in_which_nothing_is_built_says_how_to(tmp_path: Path) -> None:
    package = tmp_path / "engram"
    package.mkdir()
    shutil.copy(Path(engram.__file__).parent / "natives.py", package)
    (package / "__init__.py").write_text("from engram import natives\n")
    assert "install a wheel, or build them with `pip install .` in a clone" in _import_error(
        tmp_path
    )


def _import_error(folder: Path) -> str:
    """Import the package in a folder, and give the error's last line, which is all that it says."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import engram"],
        env={"PYTHONPATH": str(folder), "PATH": os.environ["PATH"]},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "During handling" not in done.stderr
    return done.stderr.splitlines()[-1]
