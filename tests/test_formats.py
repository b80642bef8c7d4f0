"""Another package's format: found by its entry point, and as good as those that come along."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from documents import Block, blocks

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "formats.md"
MODULE, PACKAGE, SESSION, PRINTED = blocks(GUIDE.read_text(encoding="utf-8"))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Install the guide's package into a folder: its module, and what its metadata say."""
    said = tomllib.loads(PACKAGE.code)["project"]
    folder = tmp_path / "site"
    about = folder / f"{said['name'].replace('-', '_')}-{said['version']}.dist-info"
    about.mkdir(parents=True)
    (folder / "engram_asc.py").write_text(MODULE.code, encoding="utf-8")
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {said['name']}\nVersion: {said['version']}\n"
    )
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in entries.items())
        for group, entries in said["entry-points"].items()
    )
    (about / "entry_points.txt").write_text(points)
    return folder


def run(site: Path, home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an empty folder, where the package is installed."""
    folder = home / "folder"
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def python(code: Block | str, home: Path) -> tuple[str, ...]:
    """Return the command that runs Python code, its pools in `home`."""
    text = code if isinstance(code, str) else code.code
    return sys.executable, "-W", "error", "-c", text.replace("/dev/shm/", f"{home}/")


def test_the_guide_shows_a_module_its_package_and_a_session() -> None:
    found = [MODULE.language, PACKAGE.language, SESSION.language, PRINTED.language]
    assert found == ["python", "toml", "python", "text"]


def test_another_packages_format_brings_files_in_and_out(site: Path, home: Path) -> None:
    ran = run(site, home, *python(SESSION, home))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == PRINTED.code.split()


def test_the_command_line_knows_another_packages_format(site: Path, home: Path) -> None:
    run(site, home, *python(SESSION, home))
    verbs = (
        ("create", f"{home}/pool", "--size", "16 MiB", "--force"),
        ("import", f"{home}/pool", "/", "again.asc"),
        ("export", f"{home}/pool", "/", "more.txt", "--format", "asc"),
    )
    for verb in verbs:
        ran = run(site, home, sys.executable, "-m", "engram.cli", *verb)
        assert ran.returncode == 0, ran.stderr
    assert (home / "folder/more.txt").read_text() == (home / "folder/again.asc").read_text()


def test_what_another_packages_format_cannot_hold_is_refused_by_name(
    site: Path, home: Path
) -> None:
    code = (
        "import engram, numpy\n"
        "with engram.create('/dev/shm/refused', size='16 MiB', force=True) as pool:\n"
        "    pool['a'] = numpy.ones((2, 3)); pool['g/b'] = numpy.ones(3)\n"
        "    try: engram.export_file(pool, 'x.asc')\n"
        "    except engram.FormatError as error: print(error)\n"
        "    print(engram.export_file(pool, 'x.asc', lossy=True).left_out[0].path)\n"
    )
    ran = run(site, home, *python(code, home))
    assert ran.returncode == 0, ran.stderr
    refusal, left_out = ran.stdout.splitlines()
    assert "/g/b: array: a grid is one array" in refusal
    assert left_out == "/g/b"


@pytest.mark.parametrize("text", ["ncols 3\n", "ncols 2\nnrows 2\na 1\nb 1\nc 1\nd 1\n1 2\n3\n"])
def test_damage_in_another_packages_file_is_told_with_the_file(
    site: Path, home: Path, text: str
) -> None:
    code = (
        "import engram, pathlib\n"
        f"pathlib.Path('x.asc').write_text({text!r})\n"
        "with engram.create('/dev/shm/damaged', size='16 MiB', force=True) as pool:\n"
        "    try: engram.import_file('x.asc', pool)\n"
        "    except engram.FormatError as error: print(error, list(pool))\n"
    )
    ran = run(site, home, *python(code, home))
    assert ran.returncode == 0, ran.stderr
    assert "x.asc" in ran.stdout
    assert ran.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    ("module", "word"),
    [
        ("import a_library_that_is_not_there\n", "a_library_that_is_not_there"),
        ("NO_FORMAT = 1\n", "FORMAT"),
        ("1 / 0\n", "division by zero"),
    ],
)
def test_a_format_that_cannot_be_loaded_keeps_no_other_from_its_files(
    site: Path, home: Path, module: str, word: str
) -> None:
    (site / "engram_asc.py").write_text(module)
    code = (
        "import engram, numpy, warnings\n"
        "numpy.save('x.npy', numpy.arange(3))\n"
        "with engram.create('/dev/shm/others', size='16 MiB', force=True) as pool:\n"
        "    with warnings.catch_warnings(record=True, action='always') as told:\n"
        "        print(engram.import_file('x.npy', pool).format)\n"
        "    print(*[warning.message for warning in told])\n"
    )
    ran = run(site, home, *python(code, home))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "NPY"
    told = ran.stdout.splitlines()[1]
    assert told.startswith("the format 'asc' cannot be loaded: ")
    assert word in told
