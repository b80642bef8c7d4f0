"""The benchmark of active objects: all ways find the same, and its page can be written."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from bench.active import beyond, emulated, kernels, limited, table1, words
from bench.active.__main__ import added
from bench.active.drivers import (
    BIG,
    DRIVERS,
    SMALL,
    Addition,
    Histogram,
    KMeans,
    Multiplication,
    Sizes,
)
from bench.active.way import MEDIA, Fleet
from bench.active.ways.engram_here import Roomy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.active.ways.engram_here import Here

ROOT = Path(__file__).parents[1]
TINY = Sizes("small", 2, 64 << 10, 32, (2, 3, 2))


@pytest.fixture
def fleet(home: Path) -> Iterator[Fleet]:
    made = Fleet(["limit", "engram", "engram-copy"], home, print, once=True)
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


def test_a_run_writes_its_page_and_picture(tmp_path: Path, home: Path) -> None:
    results, page, picture = (tmp_path / name for name in ("r.json", "page.md", "picture.png"))
    run = [sys.executable, "-m", "bench.active", "--quick", "--ways", "limit,engram"]
    run += ["--disk", "/dev/shm"]
    subprocess.run([*run, "--where", str(home), "--out", str(results)], check=True, cwd=ROOT)
    page.write_text((ROOT / "docs" / "evaluation-active.md").read_text())
    write = [sys.executable, "-m", "bench.active.pages", *map(str, (results, page, picture))]
    subprocess.run(write, check=True, cwd=ROOT)
    assert picture.stat().st_size > 0
    text = page.read_text()
    assert all(line["title"] in text for line in json.loads(results.read_text())["lines"][-3:])
    assert text.startswith((ROOT / "docs" / "evaluation-active.md").read_text()[:500])
    assert all(f"<!-- tables: {mark} -->" in text for mark in ("begin", "end"))
    assert f"Left out is {beyond.NAME}: --disk is on tmpfs" in text
    assert all(about in text for about in (emulated.NOTE, table1.NOTE))


def test_ways_on_other_media_find_the_same(home: Path) -> None:
    with contextlib.closing(Fleet(["limit", "engram", *MEDIA], home, print, once=True)) as fleet:
        for kind in DRIVERS:
            drivers = [kind(way, TINY) for way in fleet.fresh()]
            for result in drivers[0].results:
                first, *others = [np.array(driver.answer(driver.run(result))) for driver in drivers]
                assert all(np.allclose(first, other) for other in others), result
                for driver in drivers:
                    driver.clean()


def test_an_emulated_way_has_a_pool_that_says_so(home: Path) -> None:
    names = ["engram", "engram-pre-copy", "engram-emulated", "engram-emulated-pre-copy"]
    with contextlib.closing(Fleet(names, home, print, once=True)) as fleet:
        said = {way.name: cast("Here", way).pool.emulated for way in fleet.fresh()}
    assert said == dict.fromkeys(names[:2]) | dict.fromkeys(names[2:], "pmem")


def test_a_method_that_copies_first_sees_private_arrays(home: Path) -> None:
    seen: list[np.ndarray[Any, Any]] = []
    with (
        contextlib.closing(Fleet(["engram", "engram-pre-copy"], home, print, once=True)) as fleet,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setitem(kernels.KERNELS, "look", lambda *arrays: seen.extend(arrays))
        for way in fleet.fresh():
            way.ask("look", *(way.put(np.ones(9)) for _ in range(2)))
        assert [array.flags.owndata for array in seen] == [False, False, True, True]
        seen.clear()


@pytest.mark.parametrize(
    ("kind", "reuse", "output", "is_sequential"),
    [
        (DRIVERS[0], 1, 140 / (4 * 8192), True),  # a count for each bin
        (DRIVERS[1], 10, 20 * 512 / (2 * 8192), True),  # the centres
        (DRIVERS[2], 1, 0.5, True),
        (DRIVERS[3], 2, 4 / 12, False),  # 2 x 3 by 3 x 2 blocks, each read twice; 2 x 2 come of it
    ],
)
def test_what_applications_are_like_is_counted(
    home: Path, kind: type, reuse: float, output: float, *, is_sequential: bool
) -> None:
    with contextlib.closing(Fleet(["limit"], home, print, once=True)) as fleet:
        row = table1.row(kind, fleet.fresh()[0], TINY, 1)
    assert row.reuse == reuse
    assert row.output_ratio == pytest.approx(output)
    assert row.is_sequential is is_sequential
    assert row.computation_to_data > row.method_index > 0


def test_table_1_has_each_application_beside_the_papers_value() -> None:
    kinds = (Histogram, KMeans, Addition, Multiplication)
    printed = {(kind.name, sizes.name) for kind in kinds for sizes in (SMALL, BIG)}
    assert set(table1.PRINTED) == printed


def test_texts_of_the_projects_size_are_counted_on_disks_too(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "WHOLE_SIZES", (4 << 10,))
    monkeypatch.setattr(Roomy, "most_bytes", 64 << 20)
    found = {line.title.rpartition(": ")[2]: line for line in words.whole(tmp_path, home, print)}
    disks = {"engram-disk", "engram-disk-background"}
    assert set(found["all"].samples) == {"limit", "engram", "engram, batched", *disks}
    assert set(found["settle"].samples) == {"engram-disk-background"}
    assert not list(tmp_path.glob("engram-bench-*"))


def test_a_command_that_wants_more_than_its_limit_is_ended_and_its_group_goes(
    tmp_path: Path,
) -> None:
    try:
        with limited.limited(64 << 20) as group:
            write = f"open({str(tmp_path / 'data')!r}, 'wb').write(bytes(1 << 20) * 9)"
            subprocess.run([*group.command, sys.executable, "-c", write], check=True)
            hog = [*group.command, sys.executable, "-c", "b'x' * (256 << 20)"]
            assert subprocess.run(hog, check=False).returncode == -signal.SIGKILL
        assert group.place is None or not group.place.exists()
    except limited.RefusedError as refusal:
        pytest.skip(str(refusal))


def test_where_no_group_can_be_made_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "OWN", tmp_path / "cgroup")
    monkeypatch.setattr(limited, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(limited, "SYSTEMD", tmp_path / "systemd")
    for listed, why in (("4:memory:/mine\n", "No such file"), ("0::/mine\n", "systemd")):
        limited.OWN.write_text(listed)
        with pytest.raises(limited.RefusedError, match=why), limited.limited(1 << 20):
            pass


def test_with_systemd_the_group_is_one_of_its_scopes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemd-run").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(limited, "SYSTEMD", tmp_path)
    command = limited.by_systemd(1 << 20).command
    assert command[0] == str(tmp_path / "systemd-run")
    assert {"--scope", "MemoryMax=1048576"} <= set(command)


def test_data_on_tmpfs_are_refused_by_name() -> None:
    memory = Path("/dev/shm")
    with pytest.raises(limited.RefusedError, match="tmpfs"):
        beyond.lines(memory, 1, quick=True, tell=print)


def test_data_beyond_memory_are_read_again_and_again(tmp_path: Path) -> None:
    try:
        lines, about = beyond.lines(tmp_path, 1, quick=True, tell=print)
    except limited.RefusedError as refusal:
        pytest.skip(str(refusal))
    assert [set(line.samples) for line in lines] == [set(beyond.FLEET)] * 2  # volatile and stored
    assert about["data"] == 2 * about["limit"]
    assert about["read"] > about["data"] / 3


def test_a_part_that_is_added_takes_the_place_of_its_own_lines_alone() -> None:
    before = {
        "commit": "old",
        "lines": [{"title": "a", "n": 1}, {"title": "b", "n": 1}],
        "parts": {"small": "then", "words": "then"},
        "table1": "then",
        "most_mib": 5,
        "seconds": 10,
    }
    held = {
        "commit": "new",
        "lines": [{"title": "b", "n": 2}, {"title": "c", "n": 2}],
        "parts": {"words": "now"},
        "most_mib": 3,
        "seconds": 7,
    }
    assert added(before, held) == {
        "commit": "old",
        "lines": [{"title": "a", "n": 1}, {"title": "b", "n": 2}, {"title": "c", "n": 2}],
        "parts": {"small": "then", "words": "now"},
        "table1": "then",
        "most_mib": 5,
        "seconds": 17,
    }
