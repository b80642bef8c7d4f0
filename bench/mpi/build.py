"""Building the programs: with what is installed, or with a reason why one is left out."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
ROOT = HERE.parents[1]
FLAGS = ("-O2", "-Wall", "-Wextra")


class CannotBuildError(Exception):
    """A program cannot be built here; the reason."""


def _flags(*packages: str) -> list[str]:
    """Return what pkg-config says of these packages."""
    done = subprocess.run(
        ["pkg-config", "--cflags", "--libs", *packages], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CannotBuildError(done.stderr.strip() or f"pkg-config knows no {packages}")
    return shlex.split(done.stdout)


def versions() -> dict[str, str]:
    """Return the versions of what pkg-config knows of the libraries compared, and of MPI."""
    said = {}
    for package in ("netcdf-mpi", "hdf5-openmpi", "pnetcdf", "ompi"):
        command = ["pkg-config", "--modversion", package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            said[package] = done.stdout.strip()
    return said


def _netcdf() -> list[str]:
    # Debian keeps the header of the parallel library apart, so that it is not the serial one's.
    found = _flags("netcdf-mpi", "hdf5-openmpi")
    where = subprocess.run(
        ["pkg-config", "--variable=libdir", "netcdf-mpi"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return [f"-I{Path(where) / 'netcdf' / 'mpi' / 'include'}", *found]


def _adios2() -> list[str]:
    spec = importlib.util.find_spec("adios2")
    if spec is None or spec.origin is None:
        message = "the package adios2 is not installed"
        raise CannotBuildError(message)
    home = Path(spec.origin).parent
    # What the wheel's libraries need in turn lies beside them, under names of the wheel's own.
    return [
        *(f"-I{home / 'include'}", f"-L{home}", f"-Wl,-rpath,{home}"),
        *("-Wl,--unresolved-symbols=ignore-in-shared-libs", "-ladios2_c", "-ladios2_core"),
    ]


def engram_flags(prefix: Path) -> list[str]:
    """Return how a program finds an Engram that was installed to `prefix`."""
    lib = prefix / "lib"
    return [f"-I{prefix / 'include'}", f"-L{lib}", f"-Wl,-rpath,{lib}", "-lengram"]


def install(prefix: Path) -> None:
    """Install the C library and its headers, as its users do."""
    subprocess.run(
        ["make", "--silent", "install", f"PREFIX={prefix}"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def compiled(name: str, into: Path, prefix: Path) -> Path:
    """Compile the program of this name; where it is.

    Raises
    ------
    CannotBuildError
        If something that it needs is not installed.

    """
    flags = {
        "engram": lambda: engram_flags(prefix),
        "hdf5": lambda: _flags("hdf5-openmpi"),
        "netcdf": _netcdf,
        "pnetcdf": lambda: _flags("pnetcdf"),
        "adios2": _adios2,
    }[name]()
    program = into / name
    kernel = into / "s3d.o"
    _run("mpicc", *FLAGS, "-c", "-o", str(kernel), str(PROGRAMS / "s3d.c"))
    if name == "engram":
        source = str(PROGRAMS / "engram.cpp")
        _run("mpicxx", "-std=c++20", *FLAGS, "-o", str(program), source, str(kernel), *flags)
    else:
        _run("mpicc", *FLAGS, "-o", str(program), str(PROGRAMS / f"{name}.c"), str(kernel), *flags)
    return program


def alone(name: str, into: Path, prefix: Path) -> Path:
    """Compile a program of Engram's alone; where it is."""
    program = into / name
    source = str(PROGRAMS / f"{name}.cpp")
    flags = engram_flags(prefix)
    _run("mpicxx", "-std=c++20", *FLAGS, "-o", str(program), source, *flags)
    return program


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        message = f"{missing.filename} is not installed"
        raise CannotBuildError(message) from missing
    if done.returncode != 0:
        message = f"{' '.join(command)}: {done.stderr.strip()[-2000:]}"
        raise CannotBuildError(message)
