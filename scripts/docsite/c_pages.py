"""The reference of C and C++: Doxygen reads the headers, Breathe shows what it has found.

The headers explain each function in ordinary comments (`//`), as the rest of the code has them.
Doxygen takes no such comment for documentation. So it reads copies, in which the comments before a
declaration begin with `///`. Nothing else differs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from docsite.stage import write
from docsite.structure import ROOT

FOLDER = "reference/c"
INCLUDE = ROOT / "capi/include"


@dataclass(frozen=True)
class Page:
    """A page of the reference: a header, and what a reader wants to know before its functions."""

    header: str
    title: str

    @property
    def name(self) -> str:
        """What the page's file is called."""
        return self.header.replace("/", "-").replace(".", "-")


PAGES = (
    Page("engram.h", "C: engram.h"),
    Page("engram_cluster.h", "C, clusters: engram_cluster.h"),
    Page("engram.hpp", "C++: engram.hpp"),
    Page("engram/sharing.hpp", "C++, scopes and index settings: engram/sharing.hpp"),
    Page("engram/base.hpp", "C++, what engram.hpp stands on: engram/base.hpp"),
    Page("pmemcpy/pmemcpy.hpp", "C++, ranks of MPI: pmemcpy/pmemcpy.hpp"),
    Page("pmemcpy/types.hpp", "C++, types that pMEMCPY stores: pmemcpy/types.hpp"),
    Page("pmemcpy/serializers.hpp", "C++, serializers of one's own: pmemcpy/serializers.hpp"),
)
"""The headers that a program includes, in the order of the reference."""

GROUPED = "engram.h"
"""The header whose functions stand under headings, by what they are about."""
SECTIONS = {
    "Pools": r"pool_(?!options_)",
    "Options of pools": r"pool_options_",
    "Namespaces": r"namespace_",
    "Groups, names and lists": r"group_(?!set_index)|lookup|delete|move|list_",
    "Scopes": r"scope_",
    "Settings of the index": r"index_settings_|group_set_index",
    "Scratch memory": r"scratch_",
    "Arrays and blobs": r"(array|blob|object)_(?!allocate|view)",
    "Options of arrays and blobs": r"options_",
    "Views and allocations": r"view_|allocation_|array_allocate|object_view",
    "Types of items": r"dtype_",
    "Attributes": r"attr_|attribute_",
    "Queries and watches": r"query|watch_",
    "Batches and locks": r"batch_|lock_",
    "Errors, strings and versions": r"last_error|status_|string_|version|engine",
}
"""The headings, in their order, each with how names of its functions go on after `engram_`."""
_FUNCTIONS = re.compile(
    r'(?s)(?<=extern "C" \{\n#endif // __cplusplus\n).+?(?=#ifdef __cplusplus\n\}  // extern "C")'
)
_NAME = re.compile(r"(?m)^[^/\n]*?\bengram_(\w+)\(")

DOXYFILE = """
INPUT = {source}
OUTPUT_DIRECTORY = {out}
RECURSIVE = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
QUIET = YES
WARN_IF_UNDOCUMENTED = NO
EXTRACT_ALL = YES
MARKDOWN_SUPPORT = YES
AUTOLINK_SUPPORT = NO
ENABLE_PREPROCESSING = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = DOXYGEN __cplusplus=202002L ENGRAM_PMEMCPY_MPI=1
EXCLUDE_SYMBOLS = *::detail *::detail::*
"""


def beginning(header: str) -> str:
    """Return the comment at the top of a header, as Markdown: what holds for all of it."""
    lines = []
    for line in (INCLUDE / header).read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").removeprefix(" "))
    told = re.sub(r"Generated of \S+ by cbindgen: do not edit\. ", "", "\n".join(lines))
    return _fenced(told)


def _fenced(text: str) -> str:
    """Return a text whose indented examples of code are fenced."""
    return re.sub(
        r"(?m)(?<=\n\n)((?:^ {2,}(?![\s*-]).*\n(?:\n(?= {2}))?)+)",
        lambda found: f"```cpp\n{_dedented(found[1])}```\n" if ";" in found[1] else found[0],
        f"{text}\n",
    )


def _dedented(code: str) -> str:
    return "".join(line.removeprefix("  ") for line in code.splitlines(keepends=True))


def by_section(text: str) -> str:
    """Return the text of the header whose functions are a group of Doxygen's for each heading."""
    return _FUNCTIONS.sub(lambda found: _sections(found[0]), text)


def _sections(functions: str) -> str:
    parts: dict[str, list[str]] = {title: [] for title in SECTIONS}
    for each in functions.strip("\n").split("\n\n"):
        parts[section_of(each)].append(each)
    return "".join(
        f"\n// \\defgroup {anchor(title)} {title}\n// @{{\n\n" + "\n\n".join(found) + "\n\n// @}\n"
        for title, found in parts.items()
    )


def section_of(declared: str) -> str:
    """Return the heading of a function, as it is declared with its comment."""
    named = _NAME.search(declared)
    told = [title for title, rest in SECTIONS.items() if named and re.match(rest, named[1])]
    if len(told) != 1:
        message = f"{GROUPED} has a function of {len(told)} headings of SECTIONS: {declared}"
        raise ValueError(message)
    return told[0]


def anchor(title: str) -> str:
    """Return what Doxygen calls the group of a heading."""
    return "c_" + re.sub(r"\W+", "_", title.lower())


def as_doxygen_reads(text: str) -> str:
    """Return a header's text whose comments on lines of their own are documentation."""
    return re.sub(r"(?m)^( *)//(?= |$)", r"\1///", text)


def xml(out: Path) -> Path:
    """Have Doxygen read the headers; return the folder of what it found."""
    doxygen = shutil.which("doxygen")
    if doxygen is None:
        sys.exit("doxygen is missing: apt install doxygen")
    source = out / "include"
    for header in sorted(INCLUDE.rglob("*.h*")):
        text = header.read_text(encoding="utf-8")
        if header.relative_to(INCLUDE) == Path(GROUPED):
            text = by_section(text)
        _, _, code = text.partition("\n#ifndef")  # its beginning is on the page already
        write(source / header.relative_to(INCLUDE), as_doxygen_reads(f"\n#ifndef{code}"))
    write(out / "Doxyfile", DOXYFILE.format(source=source, out=out))
    subprocess.run([doxygen, str(out / "Doxyfile")], check=True)
    for found in (out / "xml").glob("*.xml"):  # which file a class is of, its page says
        write(found, re.sub(r"(?m)^ *<includes .*\n", "", found.read_text(encoding="utf-8")))
    return out / "xml"


def write_pages(tree: Path, out: Path) -> Path:
    """Write a page for each header into `tree`; return the folder of Doxygen's XML."""
    for page in PAGES:
        text = f"# {page.title}\n\n{beginning(page.header)}\n\n"
        if page.header == GROUPED:
            text += "".join(
                f"## {title}\n\n```{{doxygengroup}} {anchor(title)}\n:content-only:\n```\n\n"
                for title in SECTIONS
            )
            text += "## Types of the library\n\n"
        functions = "" if page.header == GROUPED else "func "
        text += (
            f"```{{doxygenfile}} {Path(page.header).name}\n:sections: {functions}typedef enum"
            " innerclass public-func public-type public-attrib public-static-func innernamespace"
            " briefdescription detaileddescription\n```\n"
        )
        write(tree / FOLDER / f"{page.name}.md", text)
    rows = [f"| [{page.title}]({page.name}.md) | `#include <{page.header}>` |" for page in PAGES]
    index = [
        "# C and C++",
        "",
        "`make install PREFIX=...` installs the library with these headers, a pkg-config file and",
        "a CMake package. [Simulation codes](/guide/from-simulations.md) begins with programs that",
        "run.",
        "[The conventions](/c-conventions.md) say what holds for every function.",
        "",
        "| Page | Include |",
        "|---|---|",
        *rows,
        "",
        "```{toctree}",
        ":hidden:",
        "",
        *(page.name for page in PAGES),
        "```",
    ]
    write(tree / FOLDER / "index.md", "\n".join(index) + "\n")
    return xml(out)
