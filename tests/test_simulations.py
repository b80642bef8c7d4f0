"""The programs of the guide for simulation codes: compiled as it says, and run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from documents import Block, blocks
from native import ROOT, STRICT, compiled, need, ranks, run

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = "docs/guide/from-simulations.md"
SUFFIXES = {"c": "c", "cpp": "cpp", "fortran": "f90"}
# Open MPI's own header for C++, which nobody uses any more, is not free of warnings.
OPTIONS = {
    "c": ("-std=c11", *STRICT),
    "cpp": ("-std=c++20", *STRICT, "-DOMPI_SKIP_MPICXX"),
    "fortran": ("-Wall", "-Werror"),
}


def _programs() -> list[Block]:
    found = blocks((ROOT / GUIDE).read_text(encoding="utf-8"))
    return [block for block in found if block.language in SUFFIXES]


def said(block: Block, prefix: Path, pools: Path, folder: Path) -> str:
    """Compile a program of the guide, run it with its pools in a folder, and give what it says."""
    source = folder / f"program.{SUFFIXES[block.language]}"
    source.write_text(block.code.replace("/dev/shm/", f"{pools}/"), encoding="utf-8")
    options = [*OPTIONS[block.language]]
    mpi = "MPI_Init" in block.code
    compiler = {"c": "cc", "cpp": "mpicxx" if mpi else "c++", "fortran": "mpifort"}
    if block.language == "fortran":
        options += ["-J", str(folder), str(prefix / "share/engram/engram.f90")]
    program = compiled(compiler[block.language], source, prefix, folder / "program", options)
    return ranks(2, program) if mpi else run(program)


@pytest.fixture
def shown(prefix: Path, home: Path, tmp_path: Path) -> dict[str, str]:
    """Run all programs of the guide; give what each says, by its pool's name."""
    need("mpicxx", "mpirun", "gfortran")
    pools = ("climate", "particles", "run-17", "from-c", "fortran")
    given = {}
    for pool, block in zip(pools, _programs(), strict=True):
        folder = tmp_path / pool
        folder.mkdir()
        assert f"/dev/shm/{pool}" in block.code
        given[pool] = said(block, prefix, home, folder)
    return given


def test_the_programs_of_the_guide_run_and_python_finds_what_they_store(
    shown: dict[str, str], home: Path
) -> None:
    for pool in ("climate", "fortran"):
        with engram.open(home / pool) as opened:
            array = opened["step-0001/T"]
            assert array.shape == (2000, 400)
            expected = np.repeat([273.15, 274.15], 1000)[:, None]
            assert np.array_equal(array[...], np.broadcast_to(expected, array.shape))
    implicit, refused = shown["particles"].splitlines()
    assert implicit == "implicit"
    assert '"particles"' in refused
    assert "(1000,)" in refused
    assert "(2,)" in refused
    with engram.open(home / "particles") as opened:
        assert opened["particles"][10:12]["x"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert shown["run-17"].split() == ["step-1/T", "119999", "400"]
    assert shown["from-c"] == "6\n"
