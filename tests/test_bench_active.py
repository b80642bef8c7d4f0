"""The benchmark of active objects: all ways find the same, and its page can be written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bench.active import kernels, pages, words
from bench.active.drivers import DRIVERS, Sizes
from bench.active.way import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
TINY = Sizes("small", 2, 64 << 10, 32, (2, 3, 2))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(["limit", "engram", "engram-copy"], tmp_path, print, once=True)
    yield made
    made.close()


@pytest.mark.parametrize("kind", DRIVERS)
def test_all_ways_find_the_same(fleet: Fleet, kind: type) -> None:
    drivers = [kind(way, TINY) for way in fleet.fresh()]
    assert not fleet.absent
    for result in drivers[0].results:
        first, *others = [np.array(driver.answer(driver.run(result))) for driver in drivers]
        assert first.any()
        assert all(np.allclose(first, other) for other in others), result
        for driver in drivers:
            driver.clean()


def test_results_of_all_kinds_are_the_same(fleet: Fleet) -> None:
    for kind in DRIVERS:
        driver = kind(fleet.fresh()[1], TINY)
        first, *others = [np.array(driver.answer(driver.run(r))) for r in driver.results]
        assert all(np.allclose(first, other) for other in others), driver.name


def test_the_clock_runs_while_a_kernel_does() -> None:
    kernels.spent()
    kernels.run("add", np.ones(9), np.ones(9))
    assert kernels.spent() > 0
    assert kernels.spent() == 0


def test_texts_are_the_same_each_time_and_have_their_size(tmp_path: Path) -> None:
    made = [[place.read_bytes() for place in words.texts(tmp_path, 1000)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) == words.FILES
    assert {len(text) for text in made[0]} == {1000}


def test_a_run_writes_its_page_and_picture(tmp_path: Path) -> None:
    results, page, picture = (tmp_path / name for name in ("r.json", "page.md", "picture.png"))
    run = [sys.executable, "-m", "bench.active", "--quick", "--ways", "limit,engram"]
    subprocess.run([*run, "--where", str(tmp_path), "--out", str(results)], check=True, cwd=ROOT)
    page.write_text((ROOT / "docs" / "evaluation-active.md").read_text())
    write = [sys.executable, "-m", "bench.active.pages", *map(str, (results, page, picture))]
    subprocess.run(write, check=True, cwd=ROOT)
    assert picture.stat().st_size > 0
    text = page.read_text()
    assert all(line["title"] in text for line in json.loads(results.read_text())["lines"][-3:])
    assert text.startswith((ROOT / "docs" / "evaluation-active.md").read_text()[:500])
    assert pages.BEGIN in text
    assert pages.END in text
