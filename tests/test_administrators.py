"""The scripts of docs/guide/administrators.md keep what they have to keep."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import engram
from documents import blocks

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parents[1] / "docs/guide/administrators.md"
MADE = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run one of the page's scripts, as it stands there."""
    found = [MADE.match(block.code) for block in blocks(PAGE.read_text(encoding="utf-8"))]
    texts = {made[1]: made[2] for made in found if made}
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(name: str, *words: object) -> subprocess.CompletedProcess[str]:
        (tmp_path / name).write_text(texts[name], encoding="utf-8")
        command = ["/bin/sh", name, *map(str, words)]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run


def made(path: Path, value: int) -> Path:
    """Make a pool with a value."""
    with engram.create(path, size="16 MiB") as pool:
        pool["value"] = value
    return path


def value(path: Path) -> int:
    with engram.open(path, mode="r") as pool:
        return int(pool["value"][()])


def test_old_copies_of_one_pool_go_and_those_of_others_stay(
    tmp_path: Path, script: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    copies = tmp_path / "copies"
    for name in ("run", "run-2025"):
        pool = made(tmp_path / name, 7)
        assert script("engram-backup", pool, copies, 1).returncode == 0
        (first,) = (copies / name).iterdir()
        first.rename(first.with_name("2025-01-01T000000"))
    assert script("engram-backup", tmp_path / "run", copies, 1).returncode == 0
    (left,) = (copies / "run").iterdir()
    assert left.name > "2025-01-01T000000"
    assert value(left) == 7
    assert value(copies / "run-2025/2025-01-01T000000") == 7


def test_a_backup_that_fails_removes_no_copy(
    tmp_path: Path, script: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    copies, name = tmp_path / "copies", "2025-01-01T000000"
    (copies / "run").mkdir(parents=True)
    made(copies / "run" / name, 7)
    assert script("engram-backup", tmp_path / "run", copies, 0).returncode != 0
    assert value(copies / "run" / name) == 7


def test_a_restore_leaves_the_old_pool_beside_the_new_one(
    tmp_path: Path, script: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    copy, pool = made(tmp_path / "copy", 1), made(tmp_path / "run", 2)
    assert script("engram-restore", copy, pool).returncode == 0
    assert (value(pool), value(tmp_path / "run.old"), value(copy)) == (1, 2, 1)
    # The second time, what the first has left is in the way, and everything stays.
    assert script("engram-restore", copy, pool).returncode != 0
    assert (value(pool), value(tmp_path / "run.old"), value(copy)) == (1, 2, 1)


def test_a_restore_leaves_alone_a_pool_that_is_open(
    tmp_path: Path, script: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    copy, path = made(tmp_path / "copy", 1), made(tmp_path / "run", 2)
    with engram.open(path) as pool:
        ended = script("engram-restore", copy, path)
        assert ended.returncode == 1
        assert "is open: close it" in ended.stderr
        pool["value"][()] = 3
    assert value(path) == 3
    assert not (tmp_path / "run.old").exists()


def test_a_copy_that_is_damaged_is_not_restored(
    tmp_path: Path, script: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    copy, pool = made(tmp_path / "copy", 1), made(tmp_path / "run", 2)
    (copy / "ns/default/namespace.toml").write_text("nonsense")
    assert script("engram-restore", copy, pool).returncode != 0
    assert value(pool) == 2
    assert not (tmp_path / "run.old").exists()
