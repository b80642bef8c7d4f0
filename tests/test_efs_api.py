"""echofs's C interface: files that a job's program loads and unloads while it runs."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import engram
from mounted import needs_fuse
from native import PROGRAMS, STRICT, compiled, run

COMMAND = (sys.executable, "-m", "engram.cli", "job")
FRONTS = [pytest.param("mount", marks=needs_fuse), "run"]


@pytest.fixture
def place(home: Path) -> Path:
    """Give a folder with a parallel file system's folder and a job's description."""
    (home / "root/data").mkdir(parents=True)
    (home / "root/data/late").write_text("line\n", encoding="utf-8")
    (home / "memory").mkdir()
    backend = {"id": "near", "type": "DRAM", "capacity": "64 MiB", "daxfs": str(home / "memory")}
    described: dict[str, Any] = {
        "global-settings": {
            "root-dir": str(home / "root"),
            "mount-dir": str(home / "mnt"),
            "results-dir": str(home / "results"),
        },
        "backends": [backend],
        "resources": [
            {"path": str(home / "root/out"), "backend": "near", "flags": "persistent"},
        ],
    }
    (home / "job.yaml").write_text(json.dumps(described), encoding="utf-8")
    return home


@pytest.fixture(scope="module")
def program(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the program that loads and unloads."""
    folder = tmp_path_factory.mktemp("efs")
    return compiled("cc", PROGRAMS / "efs.c", prefix, folder / "efs", ("-std=c11", *STRICT))


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("backend", ["near", "DRAM", ""])
def test_a_file_is_loaded_changed_and_unloaded(
    program: Path, place: Path, front: str, backend: str
) -> None:
    late = place / "root/data/late"
    words = ("-c", place / "job.yaml", "--front", front, "--")
    said = run(*COMMAND, *words, program, late, place / "mnt/data/late", backend)
    assert "line" in said
    assert late.read_text(encoding="utf-8") == "line\nmore\n"
    assert [path.name for path in late.parent.iterdir()] == ["late"]


def test_wrong_requests_have_their_numbers(program: Path, place: Path) -> None:
    # -6: no job's environment; -2: nothing was given.
    assert run(program).split() == ["-2", "-2", "-6", "-6", "-6", "unknown"]
    with engram.create(place / "pool", size="16 MiB", force=True):
        pass
    settings = {"ENGRAM_POOL": str(place / "pool"), "ENGRAM_ROOT": "/nowhere"}
    assert run(program, env=settings).split() == ["-2", "-2", "-14", "-14", "-12", "unknown"]
    settings["ENGRAM_ROOT"] = str(place / "root")
    assert run(program, env=settings).split()[2:4] == ["-2", "-2"]


def test_what_is_unloaded_is_gone_if_it_is_safe(program: Path, place: Path) -> None:
    data = place / "root/data"
    (data / "deep").mkdir()
    (data / "deep/file").write_text("deep\n", encoding="utf-8")
    (data / "link").symlink_to("late")
    (place / "short").symlink_to("root")
    with engram.create(place / "pool", size="16 MiB", force=True) as pool:
        settings = {"ENGRAM_POOL": str(place / "pool"), "ENGRAM_ROOT": str(place / "short")}

        def asked(verb: str, path: str) -> int:
            return int(run(program, verb, place / path, env=settings))

        # Through the link or not, a file that nobody has changed goes.
        for path in ("root/data/late", "short/data/late", "root/data/deep", "root/data/link"):
            assert asked("load", path) == 0
            inside = path.partition("/")[2]
            assert inside in pool, path
            assert asked("unload", path) == 0
            assert inside not in pool, path
        assert (data / "link").is_symlink()
        # Changed on both sides: the newer one outside stays, and so does the one in the pool.
        assert asked("load", "root/data/late") == 0
        with pool.open_file("data/late", "ab") as file:
            file.write(b"inside\n")
        later = (data / "late").stat().st_mtime_ns + 10_000_000_000
        (data / "late").write_text("outside\n", encoding="utf-8")
        os.utime(data / "late", ns=(later, later))
        assert asked("unload", "root/data/late") == -15
        assert bytes(pool["data/late"][:]) == b"line\ninside\n"
        assert (data / "late").read_text(encoding="utf-8") == "outside\n"
        # What the job has made comes to a place where nothing was.
        with pool.open_file("data/made", "wb") as file:
            file.write(b"made\n")
        assert asked("unload", "short/data/made") == 0
        assert (data / "made").read_text(encoding="utf-8") == "made\n"


def test_a_program_of_echofs_runs_as_it_is(prefix: Path, place: Path, tmp_path: Path) -> None:
    source = os.environ.get("ECHOFS_SRC")
    if source is None:
        pytest.skip("needs ECHOFS_SRC, a folder with echofs's source")
    text = Path(source, "examples/api/file_load_unload.c").read_text(encoding="utf-8")
    # The one thing in it that is of its author's machine.
    text = re.sub(r'"/home/[^"]*"', json.dumps(str(place / "root/data/late")), text)
    text = text.replace('"NVRAM-NVML"', '"DRAM"')
    example = tmp_path / "example.c"
    example.write_text(text, encoding="utf-8")
    built = compiled("cc", example, prefix, tmp_path / "example")
    run(*COMMAND, "-c", place / "job.yaml", "--front", "run", "--", built)
    assert (place / "root/data/late").read_text(encoding="utf-8") == "line\n"
