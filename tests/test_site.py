"""What the site needs of the documents: anchors that exist, a place for each page and each name.

`make docs` builds the site, and fails at more than this. These tests take seconds.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import engram
import engram.active
import engram.cluster
import engram.jobs
import engram.stage
from engram.cli.app import VERBS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from docsite import c_pages, cli_pages, gallery, python_pages, stage, structure

ROOT = structure.ROOT
RECIPES = 30
LINK = re.compile(r"\]\(([^)\s#]*)#([^)\s]+)\)")


def without_code(text: str) -> str:
    """Return a document without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and MyST make it."""
    said = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", said.strip().lower()).replace(" ", "-")


@cache
def anchors(document: str) -> frozenset[str]:
    """Return the anchors of a document's headings."""
    text = without_code((ROOT / document).read_text(encoding="utf-8"))
    found: dict[str, int] = {}
    every = set()
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        name = slug(heading)
        again = found.get(name, 0)
        every.add(f"{name}-{again}" if again else name)
        found[name] = again + 1
    return frozenset(every)


@pytest.mark.parametrize("document", structure.documents())
def test_no_heading_leaves_a_level_out(document: str) -> None:
    text = without_code((ROOT / document).read_text(encoding="utf-8"))
    levels = [len(signs) for signs in re.findall(r"^(#{1,6}) ", text, re.MULTILINE)]
    assert all(below <= above + 1 for above, below in pairwise(levels))


@pytest.mark.parametrize("document", structure.documents())
def test_each_link_to_a_heading_leads_to_one(document: str) -> None:
    text = without_code((ROOT / document).read_text(encoding="utf-8"))
    missing = []
    for path, anchor in LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        if ":" in path:
            continue
        target = ((ROOT / document).parent / path).resolve() if path else ROOT / document
        name = str(target.relative_to(ROOT))
        if name.endswith(".md") and anchor not in anchors(name):
            missing.append(f"{path}#{anchor}")
    assert not missing


def test_anchors_are_made_as_the_site_makes_them() -> None:
    assert slug("What removes a pool") == "what-removes-a-pool"
    assert slug("`engram run`: C, C++ and [more](a.md#b)") == "engram-run-c-c-and-more"


def test_each_document_has_one_place_on_the_site() -> None:
    pages = [str(structure.page_of(document)) for document in structure.documents()]
    written = {"index.md", *(page for page in pages if re.match(r"decisions/0", page))}
    wanted = {page.removesuffix(".md") for page in pages if page not in written}
    made = {"reference/index", *(f"reference/{part}/index" for part in ("python", "c"))}
    made.add("reference/command-line/index")
    listed = structure.listed()
    assert len(listed) == len(set(listed))
    assert set(listed) == wanted | made


def test_each_public_name_is_on_one_page_of_the_reference() -> None:
    found: dict[str, list[str]] = {}
    for page in python_pages.PAGES:
        for module, names in page.names.items():
            for name in names:
                found.setdefault(module, []).append(name)
    for each in (engram, engram.active, engram.cluster, engram.jobs, engram.stage):
        told = found[each.__name__]
        assert len(told) == len(set(told))
        assert set(each.__all__) - python_pages.ELSEWHERE <= set(told)


def test_links_lead_to_pages_and_code_stays_as_it_is(tmp_path: Path) -> None:
    text = (
        "[a](../../ARCHITECTURE.md#x) `[b](no.md)` ![c](images/trace.png)\n"
        "```python\n[d](no.md)\n```\n[e](../../examples/quickstart.py)"
    )
    moved = stage.moved_links("docs/guide/trace.md", text, tmp_path)
    assert "[a](../architecture.md#x) `[b](no.md)` ![c](images/trace.png)" in moved
    assert "[d](no.md)" in moved
    assert "[e](../downloads/examples/quickstart.py)" in moved
    assert (tmp_path / "downloads/examples/quickstart.py").is_file()
    with pytest.raises(stage.BrokenLinkError, match=r"docs/guide/nowhere\.md"):
        stage.moved_links("docs/guide/trace.md", "[a](nowhere.md)", tmp_path)


def test_there_are_thirty_recipes() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (structure.DOCS / "recipes").glob("*.md")]
    recipes = [heading for text in texts for heading in re.findall(r"^## .*", text, re.MULTILINE)]
    assert len(recipes) >= RECIPES


def test_the_command_lines_pages_have_each_verb_with_its_options(tmp_path: Path) -> None:
    cli_pages.write_pages(tmp_path)
    pages = tmp_path / cli_pages.FOLDER
    verbs = (pages / "pools.md").read_text(encoding="utf-8")
    assert "## engram create" in verbs
    assert "`--size`" in verbs
    assert "engram create /dev/shm" in verbs
    assert "### engram cluster start" in (pages / "clusters.md").read_text(encoding="utf-8")
    index = (pages / "index.md").read_text(encoding="utf-8")
    assert index.count("](") > len(VERBS)


def test_comments_of_headers_become_documentation() -> None:
    text = "// One.\n// Two.\nint f(void); // three\n    // Four.\n    int g;\n"
    assert c_pages.as_doxygen_reads(text) == (
        "/// One.\n/// Two.\nint f(void); // three\n    /// Four.\n    int g;\n"
    )
    assert "```cpp\nauto pool = engram::Pool::create" in c_pages.beginning("engram.hpp")
    assert "```" not in c_pages.beginning("engram.h")
    assert "cbindgen" not in c_pages.beginning("engram_cluster.h")


def test_each_function_of_c_stands_under_one_heading() -> None:
    header = (c_pages.INCLUDE / c_pages.GROUPED).read_text(encoding="utf-8")
    name = r"(?m)^[^/\n]*?\b(engram_\w+)\("
    grouped = c_pages.by_section(header)
    assert sorted(re.findall(name, grouped)) == sorted(re.findall(name, header))
    parts = {part.split("\n")[0]: part for part in grouped.split("// \\defgroup ")[1:]}
    assert len(parts) == len(c_pages.SECTIONS)
    assert all(re.search(name, part.split("// @}")[0]) for part in parts.values())
    assert "engram_pool_create(" in parts["c_pools Pools"]
    with pytest.raises(ValueError, match="0 headings"):
        c_pages.section_of("// What is this?\nint engram_unheard_of(void);")


def test_drawings_have_a_text_and_colours_of_both_themes() -> None:
    drawings = sorted((structure.DOCS / "concepts/images").glob("*.svg"))
    shown = "".join(
        path.read_text(encoding="utf-8") for path in (structure.DOCS / "concepts").glob("*.md")
    )
    assert drawings
    for path in drawings:
        svg = path.read_text(encoding="utf-8")
        assert "<title>" in svg
        assert "prefers-color-scheme: dark" in svg
        assert f"](images/{path.name})" in shown


@pytest.mark.parametrize("name", gallery.ORDER)
def test_each_script_of_the_gallery_draws_its_picture(name: str) -> None:
    script = gallery.SCRIPTS / f"{name}.py"
    picture = gallery.draw(script, "light")
    assert picture.startswith(b"\x89PNG")
    heading, text, code = gallery.told(script)
    assert heading
    assert text
    assert f'savefig("{name}.png")' in code


def test_a_script_that_draws_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text('"""Nothing."""\n')
    with pytest.raises(gallery.ScriptError, match=r"empty\.py drew no empty\.png"):
        gallery.draw(tmp_path / "empty.py", "dark")


def test_the_gallery_shows_each_script() -> None:
    assert sorted(gallery.ORDER) == sorted(path.stem for path in gallery.SCRIPTS.glob("*.py"))
