"""pMEMCPY's interface: the published programs, ranks of MPI, and what is refused on each."""

from __future__ import annotations

import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from native import PATIENCE, PROGRAMS, SANITIZERS, STRICT, compiled, need, ranks, run

if TYPE_CHECKING:
    from pathlib import Path

    from native import Once

CPP = ("-std=c++17", *STRICT)
# Open MPI's own header for C++, which nobody uses any more, is not free of warnings.
MPI = (*CPP, "-DOMPI_SKIP_MPICXX")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_PMEMCPY_FORCE", "1")
    monkeypatch.setenv("ENGRAM_PMEMCPY_SIZE", "256 MiB")


@pytest.fixture(scope="session")
def programs(prefix: Path, once: Once) -> dict[str, Path]:
    """Give the programs of MPI, compiled; the published ones as they are published."""
    need("mpicxx", "mpirun")
    options = {"published": (), "older": (), "ranks": MPI}

    def compile_all(folder: Path) -> None:
        for name, given in options.items():
            compiled("mpicxx", PROGRAMS / f"{name}.cpp", prefix, folder / name, given)

    folder = once("ranks", compile_all)
    return {name: folder / name for name in options}


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_published_program_runs_as_published(
    programs: dict[str, Path], home: Path, count: int
) -> None:
    ranks(count, programs["published"], home / "pool")
    with engram.open(home / "pool") as pool:
        assert pool["A"].dtype == np.float64
        assert pool["A"][...].tolist() == list(range(100 * count))
    # And again, into the pool that is there.
    ranks(count, programs["published"], home / "pool")
    assert engram.verify(home / "pool").problems == []


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ranks_load_by_another_decomposition_than_they_stored(
    programs: dict[str, Path], home: Path, count: int
) -> None:
    assert "all is well" in ranks(count, programs["ranks"], home / "pool", "cube")
    x, y, z = np.indices((24, 24, 24))
    with engram.open(home / "pool") as pool:
        for kept in ("raw", "encoded"):
            for dim in range(3):
                assert np.array_equal(pool[f"{kept}/by-{dim}"][...], x * 10000 + y * 100 + z)
        assert pool["encoded/by-0"].codec == "shuffle+lz4"


@pytest.mark.parametrize("count", [2, 4])
def test_each_rank_gets_the_error_and_none_hangs(
    programs: dict[str, Path], home: Path, count: int
) -> None:
    assert "all is well" in ranks(count, programs["ranks"], home / "pool", "errors")


def test_ranks_that_make_one_array_at_once_take_the_room_of_one(
    programs: dict[str, Path], home: Path
) -> None:
    assert "all is well" in ranks(4, programs["ranks"], home / "pool", "crowd")


def test_a_rank_that_is_killed_hurts_no_other(programs: dict[str, Path], home: Path) -> None:
    ranks(3, programs["ranks"], home / "pool", "killed", options=("--enable-recovery",))
    with engram.open(home / "pool") as pool:
        assert sorted(pool) == ["A", "done-0", "done-1"]
        halves = pool["A"][...].reshape(6, -1)
        assert (halves == halves[:, :1]).all()
        assert halves[:5, 0].tolist() == [1, 1, 2, 2, 3]
    assert engram.verify(home / "pool").problems == []


def test_values_arrays_and_refusals_without_mpi_under_sanitizers(
    prefix: Path, home: Path, tmp_path: Path
) -> None:
    options = (*CPP, *SANITIZERS, "-pthread")
    program = compiled("c++", PROGRAMS / "values.cpp", prefix, tmp_path / "values", options)
    assert "all is well" in run(program, home / "pool")
    with engram.open(home / "pool") as pool:
        assert pool["raw/array"].chunks is None
        for codec in ("lz4", "zstd", "shuffle-lz4", "shuffle-zstd"):
            array = pool[f"{codec}/array"]
            assert array.codec == codec.replace("-", "+")
            assert array[3, 40, 7] == 1
            assert array[4, 49, 11] == 100
            assert array.stored_nbytes < array.nbytes / 100
        for name in ("own/part", "own/whole"):
            assert pool[name].codec == "shuffle+zstd"
            assert pool[name][...].tolist() == [1.0] * 100_000
    assert engram.verify(home / "pool").problems == []


@pytest.mark.parametrize("sanitizers", [(), SANITIZERS], ids=["plain", "sanitizers"])
def test_a_serializer_writes_into_the_pool_whole_or_not_at_all(
    prefix: Path, home: Path, tmp_path: Path, sanitizers: tuple[str, ...]
) -> None:
    options = (*CPP, *sanitizers, "-pthread")
    source = PROGRAMS / "serializers.cpp"
    program = compiled("c++", source, prefix, tmp_path / "serializers", options)
    assert "all is well" in run(program, home / "pool")
    with engram.open(home / "pool") as pool:
        assert sorted(pool) == [
            *("changing", "deep", "encoded", "kept", "no words", "number", "text", "words")
        ]
        assert pool["words"].dtype == np.dtype([("serializer:joined", "u1")])
        assert pool["words"][...].tobytes() == b"one,,three,"
        assert np.frombuffer(pool["deep/mesh"][...].tobytes(), "u8").tolist()[:2] == [1, 0]
        for name in ("text", "mesh"):
            assert [pool[f"encoded/{kind}-{name}"].codec for kind in (1, 4)] == [
                "lz4",
                "shuffle+zstd",
            ]
            assert pool[f"encoded/1-{name}"].stored_nbytes < 10_000
        assert pool["encoded/1-text"].dtype.names == ("serialized",)
    assert engram.verify(home / "pool").problems == []


def test_mpi_can_be_left_out_where_it_is(prefix: Path, home: Path, tmp_path: Path) -> None:
    need("mpicxx")
    options = (*CPP, "-DENGRAM_NO_MPI")
    program = compiled("mpicxx", PROGRAMS / "older.cpp", prefix, tmp_path / "older", options)
    assert "good" in run(program, home / "pool", "0", "PMDK_FS", "CAPNPROTO", "1")
    assert "MPI_" not in run("nm", "-u", program)


@pytest.mark.parametrize("mpi", [False, True])
def test_programs_of_the_older_header_run_unchanged(
    prefix: Path, home: Path, tmp_path: Path, mpi: bool
) -> None:
    compiler = "mpicxx" if mpi else "c++"
    program = compiled(compiler, PROGRAMS / "older.cpp", prefix, tmp_path / "older")
    pool = home / "pool"
    pool.mkdir()  # as the script of its authors does
    older = (program, pool)
    names = ("PMDK_HASHTABLE", "CAPNPROTO", "1")
    assert "good" in run(*older, "0", *names)
    assert "good" in run(*older, "1", "POSIX", "NO_SERIALIZER", "0")
    assert "(2, 2)" in run(*older, "3", *names, code=11)
    assert "BP5" in run(*older, "1", "POSIX", "BP5", "1", code=11)
    with engram.open(pool) as opened:
        assert opened["global"].shape == (4, 6)
        assert opened["global"][1:3, 2:5].tolist() == [[1, 2, 3], [4, 5, 6]]
        assert opened["global"].dtype == np.float64
    assert "good" in run(*older, "2", *names)
    assert not pool.exists()


def at_once(commands: list[list[object]]) -> list[bytes]:
    """Run programs at the same time; what each has said."""
    running = [
        subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for command in commands
    ]
    return [process.communicate(timeout=PATIENCE)[0] for process in running]


def test_processes_that_find_no_pool_make_one_together(
    prefix: Path, home: Path, tmp_path: Path
) -> None:
    program = compiled("c++", PROGRAMS / "older.cpp", prefix, tmp_path / "older")
    for again in range(5):
        command = [program, home / f"pool-{again}", "0", "POSIX", "CAPNPROTO", "1"]
        said = at_once([[*command, f"{process}-"] for process in range(6)])
        assert said == [b"good\n"] * 6
        assert engram.verify(home / f"pool-{again}").problems == []


def test_processes_that_store_and_load_the_same_names_meet_no_error(
    prefix: Path, home: Path, tmp_path: Path
) -> None:
    program = compiled("c++", PROGRAMS / "older.cpp", prefix, tmp_path / "older")
    command = [program, home / "pool", "0", "POSIX", "CAPNPROTO", "1"]
    for _ in range(5):
        # Each stores `square` twice: one that loads between the two of another has the first.
        assert set(at_once([command] * 6)) <= {b"good\n", b"bad\n"}
    assert run(program, home / "pool", "1", "POSIX", "CAPNPROTO", "1") == "good\n"
    assert engram.verify(home / "pool").problems == []


def test_a_pool_that_mmap_makes_is_as_large_as_said(
    prefix: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "sizes.cpp"
    source.write_text(
        "#include <pmemcpy/pmemcpy.hpp>\n"
        "int main(int, char **argv) { pmemcpy::PMEM pmem; pmem.mmap(argv[1]); }\n",
        encoding="utf-8",
    )
    program = compiled("c++", source, prefix, tmp_path / "sizes", CPP)
    run(program, home / "said")
    with engram.open(home / "said") as pool:
        assert pool.size == 256 << 20
    monkeypatch.delenv("ENGRAM_PMEMCPY_SIZE")
    run(program, home / "unsaid")
    with engram.open(home / "unsaid") as pool:
        half = shutil.disk_usage(home).free / 2
        assert 0.5 * half < pool.size < 1.5 * half
    assert '"much"' in run(
        program, home / "wrong", code=-signal.SIGABRT, env={"ENGRAM_PMEMCPY_SIZE": "much"}
    )


@pytest.mark.parametrize("count", [1, 2])
def test_fortran_stores_and_loads_blocks(
    prefix: Path, home: Path, tmp_path: Path, count: int
) -> None:
    need("gfortran", "mpifort")
    options = ("-Wall", "-Werror", "-J", str(tmp_path), str(prefix / "share/engram/engram.f90"))
    program = compiled("mpifort", PROGRAMS / "blocks.f90", prefix, tmp_path / "blocks", options)
    assert "all is well" in ranks(count, program, home / "pool")
    with engram.open(home / "pool") as pool:
        # The other way round than Fortran has it: its first dimension is the contiguous one.
        y, x = np.indices((8, 6)) + 1
        assert np.array_equal(pool["field/T"][...], x + 100 * y)
        assert pool["field/encoded"].codec == "shuffle+lz4"
        assert np.array_equal(pool["field/encoded"][...], x + 100 * y)
