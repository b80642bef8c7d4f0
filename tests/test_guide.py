"""The documents' code runs as it stands there, and prints what stands below it."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from documents import RUN, Block, blocks, run
from engram.cli.app import VERBS
from engram.formats.registry import formats, writable

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
NOT_OURS = {
    "c": "another library's, or run by tests/test_simulations.py",
    "cpp": "run by tests/test_simulations.py",
    "fortran": "run by tests/test_simulations.py",
    "cmake": "such a project is built by tests/test_capi.py",
}
SHORTEST_REASON = 10
README_WORDS = 900  # beside its code


def _documents() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def _column(path: Path) -> None:
    """Make the file of carbon dioxide as the guide tells, in a pool beside it."""
    made = next(b for b in DOCUMENTS[MADE_IN] if f'"{path.name}"' in b.code)
    run([moved(made, path.parent)], MADE_IN, path.parent, dict(os.environ))


def moved(block: Block, pools: Path) -> Block:
    """Return a block with its pools in another folder."""
    return dataclasses.replace(block, code=block.code.replace("/dev/shm/", f"{pools}/"))


FILES: dict[str, Callable[[Path], None]] = {"total_column_co2.nc": _column}
"""Files that documents name and one of them makes, and what makes them for the others."""

MADE_IN = "docs/guide/files.md"
TOUR = "docs/guide/tour.md"

DOCUMENTS = {name: blocks((ROOT / name).read_text(encoding="utf-8")) for name in _documents()}
WITH_CODE = [name for name, found in DOCUMENTS.items() if any(block.runs for block in found)]


def session(name: str, home: Path) -> dict[Block, str]:
    """Run a document's blocks in a new folder, its pools in another; give what they printed."""
    folder, pools = home / "folder", home / "shm"
    folder.mkdir()
    pools.mkdir()
    wanted = [block for block in DOCUMENTS[name] if block.runs]
    for file, make in FILES.items():
        if any(file in b.code for b in wanted) and name != MADE_IN:
            make(folder / file)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("ENGRAM")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8",
    }
    printed = run([moved(block, pools) for block in wanted], name, folder, environment)
    plain = [text.replace(f"{pools}/", "/dev/shm/") for text in printed]
    return dict(zip(wanted, plain, strict=True))


def as_shown(shown: str, printed: str) -> bool:
    """Whether a text was printed as shown: `...` stands for anything, ends of lines for nothing."""
    expected = [line.rstrip() for line in shown.strip("\n").splitlines()]
    got = [line.rstrip() for line in printed.strip("\n").splitlines()]
    pattern = re.escape("\n".join(expected)).replace(re.escape("..."), "(?s:.*?)")
    return re.fullmatch(pattern, "\n".join(got)) is not None


@pytest.mark.parametrize("name", WITH_CODE)
def test_what_a_document_shows_runs_and_prints_what_it_says(name: str, home: Path) -> None:
    printed = session(name, home)
    found = DOCUMENTS[name]
    for before, block in itertools.pairwise(found):
        if block.language == "text" and block.joined and before.runs:
            assert as_shown(block.code, printed[before]), (
                f"{name}:{block.line}: shown\n{block.code}\nprinted\n{printed[before]}"
            )


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_block_runs_or_says_why_not(name: str) -> None:
    silent = []
    before = None
    for block in DOCUMENTS[name]:
        output = block.language == "text" and block.joined and before is not None and before.runs
        excused = block.language in NOT_OURS or len(block.reason) >= SHORTEST_REASON
        if not (block.runs or output or excused):
            silent.append(f"{name}:{block.line}: {block.language or 'no language'}")
        before = block
    assert not silent


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_a_document_does_not_make_is_said_to_be_any(file: str) -> None:
    naming = [n for n, found in DOCUMENTS.items() if any(file in b.code for b in found if b.runs)]
    assert {MADE_IN, TOUR} <= set(naming)
    for name in set(naming) - {MADE_IN}:
        prose = (ROOT / name).read_text(encoding="utf-8")
        assert f"({Path(MADE_IN).name})" in prose
        assert re.search(r"any\s+netCDF\s+file\s+of\s+yours", prose)


def test_the_guide_tells_each_suffix_and_code_once() -> None:
    files = (ROOT / MADE_IN).read_text(encoding="utf-8").split("## Formats")[1].split("\n\n")
    table = next(part for part in files if part.startswith("|"))
    for suffix in (suffix for found in writable() for suffix in found.suffixes):
        assert f"`{suffix}`" in table, suffix
    verbs = (ROOT / "docs/guide/command-line.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| (\d+) \| (.*?) \|", verbs, re.MULTILINE)
    assert len(codes) > 10
    assert len(codes) == len(set(codes))
    # Kinds of errors may share a code; what is no kind has its own.
    plain = [code for code, kind in codes if not kind.strip()]
    assert not set(plain) & {code for code, kind in codes if kind.strip()}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_code_hides_in_an_indented_block(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^(?:[^-*\d\s].*)?\n\n {4}\S.*$", prose, re.MULTILINE)
    assert not indented


def test_each_link_to_a_file_leads_to_one() -> None:
    linked = {
        ((ROOT / name).parent / target).resolve()
        for name in DOCUMENTS
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text(encoding="utf-8"))
    }
    assert not [path for path in linked if not path.is_file()]
    pictures = set((ROOT / "docs/guide/images").glob("*.png"))
    assert pictures
    assert pictures <= linked
    assert all(picture.stat().st_size < 150_000 for picture in pictures)


@pytest.mark.parametrize(
    ("name", "shown"), [("README.md", ["python"] * 2), (TOUR, ["python"] * 6 + ["sh"])]
)
def test_the_readme_shows_two_processes_and_the_tour_the_rest(name: str, shown: list[str]) -> None:
    assert [block.language for block in DOCUMENTS[name] if block.runs] == shown


def test_the_readme_stays_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) <= README_WORDS


def test_the_guides_tell_of_each_verb_and_format() -> None:
    verbs = (ROOT / "docs/guide/command-line.md").read_text(encoding="utf-8")
    table = verbs.split("## The verbs")[1].split("```")[0]
    assert set(VERBS) <= set(re.findall(r"`([a-z]+)`", table))
    files = (ROOT / "docs/guide/files.md").read_text(encoding="utf-8")
    table = files.split("## Formats")[1].split("## ")[0]
    words = set(re.findall(r"[a-z0-9-]+", table.lower()))
    assert {found.name for found in formats()} <= words
    assert {kind for found in writable() for kind in found.kinds} <= words


def test_blocks_are_found_with_their_reasons() -> None:
    text = (
        "a\n```python\nx = 1\n```\n\n```text\n1\n```\n\nwords\n"
        "<!-- not run: needs another machine -->\n```sh\nls\n```\n```c\n```\n"
    )
    found = blocks(text)
    assert [block.language for block in found] == ["python", "text", "sh", "c"]
    assert [block.joined for block in found] == [False, True, False, True]
    assert [block.reason for block in found] == ["", "", "needs another machine", ""]
    assert [block.runs for block in found] == [True, False, False, False]
    assert found[0].code == "x = 1\n"
    assert found[0].line == 3
    assert {"python", "sh"} == RUN


@pytest.mark.parametrize(
    "code", [Block("python", "1 / 0\n", 7, "", False), Block("sh", "false | true\n", 7, "", False)]
)
def test_a_block_that_fails_is_told_with_its_line(code: Block, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"some\.md(\", line |:)7"):
        run([code], "some.md", tmp_path, dict(os.environ))


def test_output_is_compared_line_by_line() -> None:
    assert as_shown("a\n...\nd\n", "a  \nb\nc\nd\n")
    assert as_shown("a ... c\n", "a b c\n")
    assert not as_shown("a\n", "a\nb\n")
    assert not as_shown("a\nb\n", "a\nc\n")
