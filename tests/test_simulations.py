"""The programs of the guide for simulation codes: compiled as it says, and run."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from cluster.etcd import why_not
from cluster.operator import Operator
from documents import Block, blocks
from documents import run as run_blocks
from engram import cluster as clusters
from native import ROOT, STRICT, compiled, need, ranks, run

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDE = "docs/guide/from-simulations.md"
SUFFIXES = {"c": "c", "cpp": "cpp", "fortran": "f90"}
# Open MPI's own header for C++, which nobody uses any more, is not free of warnings.
OPTIONS = {
    "c": ("-std=c11", *STRICT),
    "cpp": ("-std=c++20", *STRICT, "-DOMPI_SKIP_MPICXX"),
    "fortran": ("-Wall", "-Werror"),
}


def _blocks() -> list[Block]:
    return blocks((ROOT / GUIDE).read_text(encoding="utf-8"))


def _programs() -> list[Block]:
    return [block for block in _blocks() if block.language in SUFFIXES]


def _told(reason: str) -> Block:
    """Give the one block of the guide that is run here for this reason."""
    (found,) = [block for block in _blocks() if reason in block.reason]
    return found


def built(block: Block, prefix: Path, pools: Path, folder: Path) -> Path:
    """Compile a program of the guide, with its pools in a folder."""
    source = folder / f"program.{SUFFIXES[block.language]}"
    source.write_text(block.code.replace("/dev/shm/", f"{pools}/"), encoding="utf-8")
    options = [*OPTIONS[block.language]]
    compiler = {"c": "cc", "cpp": "mpicxx" if with_mpi(block) else "c++", "fortran": "mpifort"}
    if block.language == "fortran":
        options += ["-J", str(folder), str(prefix / "share/engram/engram.f90")]
    return compiled(compiler[block.language], source, prefix, folder / "program", options)


def with_mpi(block: Block) -> bool:
    return "MPI_Init" in block.code


def exported(block: Block, pools: Path, folder: Path) -> np.ndarray:
    """Run the block that exports a step; give what the file has."""
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    code = block.code.replace("/dev/shm/", f"{pools}/")
    run_blocks([replace(block, code=code)], GUIDE, folder, environment)
    with h5py.File(folder / "step-0001.nc") as file:
        values: np.ndarray = file["T"][...]
    return values


def of_two_ranks() -> np.ndarray:
    """Give what two ranks store at the top of the guide."""
    rows = np.repeat([273.15, 274.15], 1000)[:, None]
    return np.broadcast_to(rows, (2000, 400))


@pytest.fixture
def shown(prefix: Path, home: Path, tmp_path: Path) -> dict[str, str]:
    """Run all programs of the guide; give what each says, by its pool's name."""
    need("mpicxx", "mpirun", "gfortran")
    pools = ("climate", "particles", "mesh", "named", "restart", "run-17", "from-c", "fortran")
    given = {}
    for pool, block in zip(pools, _programs(), strict=True):
        folder = tmp_path / pool
        folder.mkdir()
        assert f"/dev/shm/{pool}" in block.code
        program = built(block, prefix, home, folder)
        given[pool] = ranks(2, program) if with_mpi(block) else run(program)
        if pool in ("restart", "fortran"):  # once more, over what is there
            given[pool] += ranks(3 if pool == "restart" else 2, program)
    return given


def test_the_programs_of_the_guide_run_and_python_finds_what_they_store(
    shown: dict[str, str], home: Path, tmp_path: Path
) -> None:
    for pool in ("climate", "fortran"):
        with engram.open(home / pool) as opened:
            assert np.array_equal(opened["step-0001/T"][...], of_two_ranks())
    found = exported(_told("after the programs above"), home, tmp_path)
    assert np.array_equal(found, of_two_ranks())
    implicit, refused = shown["particles"].splitlines()
    assert implicit == "implicit"
    assert '"particles"' in refused
    assert "(1000,)" in refused
    assert "(2,)" in refused
    with engram.open(home / "particles") as opened:
        assert opened["particles"][10:12]["x"].tolist() == [[1, 2, 3], [4, 5, 6]]
    *counts, refused = shown["mesh"].splitlines()
    assert counts == ["4 cells", "2 points"]
    assert 'serializer "mesh, coarse" made, and what the serializer "mesh" makes was' in refused
    with engram.open(home / "mesh") as opened:
        assert opened["mesh"].dtype.names == ("serializer:mesh",)
        assert len(opened["mesh"][...].tobytes()) == 8 + 3 * 8 + 4 * 4
    with engram.open(home / "named") as opened:
        named = opened["step-1/T"]
        assert (named.dims, named.attrs["units"]) == (("y", "x"), "K")
        assert (named[...] == 273.15).all()
    assert shown["restart"] == "from step 0\nfrom step 3\n"
    with engram.open(home / "restart") as opened:
        assert opened["latest"][...] == 6
        assert (opened["step-6/T"][...] == 273.15 + 6 * 0.5).all()
        assert opened["step-6/T"].shape == (1200, 400)
    assert shown["run-17"].split() == ["step-1/T", "119999", "400"]
    assert shown["from-c"] == "6\n"


@pytest.fixture
def served(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[clusters.Cluster]:
    """Give the cluster `job` of one node, started as the guide says."""
    if why := why_not():
        pytest.skip(why)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    operator = Operator(home)
    try:
        operator.leave(0, "--detach")
        with clusters.open("job") as cluster:
            yield cluster
    finally:
        operator.end()


def test_programs_of_the_guide_run_on_a_cluster(
    served: clusters.Cluster, prefix: Path, home: Path, tmp_path: Path
) -> None:
    need("mpicxx", "mpirun")
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    # Python's ranks.
    program = tmp_path / "program.py"
    program.write_text(_told("runs it with two ranks").code, encoding="utf-8")
    told = ranks(2, Path(sys.executable), program)
    assert sorted(told.splitlines()) == ["0 274.15", "1 273.15"]
    assert served["step-0001/T"].attrs == {"units": "K"}
    found = exported(_told("after the program for a cluster"), home, tmp_path)
    assert np.array_equal(found, of_two_ranks())
    # The program at the top, and the one that restarts, changed as the guide says.
    served.remove("step-0001/T")
    top, restart = (each for each in _programs() if each.language == "cpp" and with_mpi(each))
    over_nodes = top.code.replace('mmap("/dev/shm/climate"', 'mmap("engram://job"')
    lines = restart.code.replace('mmap("/dev/shm/restart"', 'mmap("engram://job/run-7"')
    barrier, latest = (
        line for line in lines.splitlines() if "// all" in line or "// whole" in line
    )
    together = 'if (rank == 0) pmem.store<int>("latest", step); pmem.publish();'
    assert together in (ROOT / GUIDE).read_text(encoding="utf-8")
    lines = lines.replace(f"{barrier}\n{latest}\n", together.replace("; pmem", ";\npmem"))
    for name, code in (("top", over_nodes), ("restart", lines)):
        (tmp_path / name).mkdir()
        written = built(replace(top, code=code), prefix, home, tmp_path / name)
        assert "engram://job" in code
        said = ranks(2, written)
        if name == "restart":
            assert (said, ranks(3, written)) == ("from step 0\n", "from step 3\n")
    assert np.array_equal(served["step-0001/T"][...], of_two_ranks())
    assert served["run-7/latest"][...] == 6
    assert (served["run-7/step-6/T"][...] == 273.15 + 6 * 0.5).all()
