"""The Python package in MPI codes: ranks of one pool."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import engram
import native

PROGRAM = Path(__file__).parent / "mpi_program.py"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_make_an_array_together_and_store_their_parts_at_once(home: Path, ranks: int) -> None:
    native.need("mpirun")
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    native.ranks(ranks, Path(sys.executable), PROGRAM, home / "pool")
    with engram.open(home / "pool", force=True) as pool:
        assert pool["run/A"].shape == (100 * ranks, 8)
        assert np.array_equal(pool["run/A"][:, 0], np.repeat(np.arange(ranks), 100))
    assert engram.verify(home / "pool").problems == []
