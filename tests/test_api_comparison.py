"""The same program in each interface: how long ours is."""

from __future__ import annotations

import importlib.util
import re
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import native

PROGRAMS = Path(__file__).parents[1] / "examples" / "api-comparison"


FILES = {
    "engram.cpp": "Engram, pMEMCPY's interface",
    "published.cpp": "pMEMCPY, the program of its slides",
    "adios2.cpp": "ADIOS2",
    "netcdf.c": "NetCDF-4",
    "pnetcdf.c": "PnetCDF",
    "hdf5.c": "HDF5",
}
"""The programs, and what the page calls them."""
IN_PRINT = {"published.cpp": (16, 132), "adios2.cpp": (24, 164), "netcdf.c": (26, 180)} | {
    "hdf5.c": (42, 253)
}
"""Lines and tokens as pMEMCPY's slides print them, of programs that only pMEMCPY's is shown of."""


def counted() -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = runpy.run_path(str(PROGRAMS / "count.py"))["counts"]()
    return found


def test_a_program_takes_fewer_lines_and_tokens_than_with_any_other_interface() -> None:
    counts = counted()
    lines, tokens = counts.pop("engram.cpp")
    published = counts.pop("published.cpp")
    assert published == (17, 137)
    # Fewer than the slides' program has, by our counter and by theirs.
    for other in (published, IN_PRINT["published.cpp"]):
        assert lines < other[0]
        assert tokens < other[1]
    assert all(lines < others[0] and tokens < others[1] for others in counts.values()), counts


def test_the_page_has_the_slides_figures_and_those_of_our_counter() -> None:
    page = (native.ROOT / "docs" / "evaluation-mpi.md").read_text(encoding="utf-8")
    for name, figures in counted().items():
        printed = IN_PRINT.get(name, ("", ""))
        row = "".join(f" {figure} |".replace("  ", " ") for figure in (*figures, *printed))
        assert f"| {FILES[name]} |{row}\n" in page


def test_tokens_are_what_a_compiler_sees() -> None:
    count = runpy.run_path(str(PROGRAMS / "count.py"))["lines_and_tokens"]
    assert count("#include <mpi.h>\n") == (1, 3)
    assert count('// nothing\n\nint x = f("a b", y->z); /* more */') == (1, 12)
    assert count("std::vector<double> a{1}; a[0] += 2 << 3;") == (1, 20)


def packages(*names: str) -> list[str]:
    """Return how a compiler finds these packages; skip the test if they are not here."""
    native.need("mpicxx", "pkg-config")
    done = subprocess.run(
        ["pkg-config", "--cflags", *names], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"not installed: {', '.join(names)} (`make bench-mpi` installs it)")
    return shlex.split(done.stdout)


def compiles(source: Path, *flags: str) -> None:
    compiler = ("mpicxx", "-std=c++20") if source.suffix == ".cpp" else ("mpicc",)
    native.run(*compiler, "-fsyntax-only", "-Wall", *flags, source)


@pytest.mark.parametrize("name", ["engram", "published"])
def test_our_programs_compile(name: str) -> None:
    native.need("mpicxx")
    compiles(PROGRAMS / f"{name}.cpp", f"-I{native.ROOT / 'capi' / 'include'}")


@pytest.mark.parametrize(
    ("name", "needed"),
    [("hdf5", "hdf5-openmpi"), ("pnetcdf", "pnetcdf"), ("netcdf", "netcdf-mpi")],
)
def test_the_programs_that_ours_is_counted_against_compile(name: str, needed: str) -> None:
    flags = packages(needed)
    if name == "netcdf":  # whose header Debian keeps apart from the serial one
        where = native.run("pkg-config", "--variable=libdir", needed).strip()
        flags.append(f"-I{where}/netcdf/mpi/include")
    compiles(PROGRAMS / f"{name}.c", *flags)


def test_the_program_for_adios2_compiles_but_for_its_communicator(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("adios2")
    if spec is None or spec.origin is None or shutil.which("mpicxx") is None:
        pytest.skip("adios2 or MPI is not installed (`make bench-mpi` installs it)")
    # The wheel is serial, and knows no communicator.
    text, found = re.subn(
        r"adios\(MPI_COMM_WORLD\)", "adios", (PROGRAMS / "adios2.cpp").read_text()
    )
    assert found == 1
    source = tmp_path / "adios2.cpp"
    source.write_text(text)
    compiles(source, f"-I{Path(spec.origin).parent / 'include'}")
