"""The licences of all that a wheel links or bundles, in one text.

Linked are the crates that its natives are made of, as cargo tells: those that a build script or a
macro needs are run and not linked. Some bring sources of others, with licences of their own, which
lie in folders of the crate. Rust brings its library, with a list of whose it is; zig brings one
that unwinds stacks, and what a C library links into each. Bundled are the scripts of the page:
`web/build.mjs`, which knows what it bundles, writes their texts.

`python -m wheels.notices` writes what concerns crates and the page, for who builds without zig.

A crate whose package has no text is an error: somebody has to find the text. The text of Apache-2.0
is the same for all, and is Engram's own.
"""

from __future__ import annotations

import html
import importlib.util
import json
import os
import platform as machine
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wheels.outcomes import FailedError, run
from wheels.platforms import NATIVES, PLATFORMS, ROOT

if TYPE_CHECKING:
    from wheels.platforms import Platform

PAGE = ROOT / "python/engram/web/page/assets/THIRD-PARTY.txt"
NAMES = re.compile(r"(?i)^(licen[cs]e|copying|copyright|notice|unlicense)")
SOURCES = {".c", ".h", ".json", ".py", ".rs", ".sh", ".toml"}
"""Suffixes of files that are no text, whatever their name begins with."""
RULE = "=" * 80
NOT_CHOSEN = {"zstd-sys": ("zstd/COPYING", "of zstd's licences, BSD or GPL-2.0, BSD is chosen")}
"""Texts of licences that others may choose, and what is said of the choice."""


def linked(platform: Platform) -> list[dict[str, Any]]:
    """Return the crates that are linked for a platform, without those of this workspace."""
    told = run(
        *("cargo", "metadata", "--format-version=1", "--locked", "--quiet"),
        *("--filter-platform", platform.triple),
        cwd=ROOT,
        around=dict(os.environ),
    )
    return reached(json.loads(told), {NATIVES, *platform.parts})


def reached(graph: dict[str, Any], shipped: set[str]) -> list[dict[str, Any]]:
    """Follow the edges of what is linked, from the crates that are shipped."""
    packages = {package["id"]: package for package in graph["packages"]}
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    own = set(graph["workspace_members"])
    todo = [name for name in own if packages[name]["name"] in shipped]
    seen = set(todo)
    while todo:
        for edge in nodes[todo.pop()]["deps"]:
            kinds = {kind["kind"] for kind in edge["dep_kinds"]}
            to = packages[edge["pkg"]]
            is_macro = any("proc-macro" in target["kind"] for target in to["targets"])
            if None in kinds and not is_macro and edge["pkg"] not in seen:
                seen.add(edge["pkg"])
                todo.append(edge["pkg"])
    found = [packages[name] for name in seen - own]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def of_crate(package: dict[str, Any]) -> list[str]:
    """Return the crate's own texts, and those of the sources of others in its package."""
    folder = Path(package["manifest_path"]).parent
    found = {
        path
        for path in folder.rglob("*")
        if NAMES.match(path.name) and path.suffix not in SOURCES and path.is_file()
    }
    if package.get("license_file"):
        found.add(folder / package["license_file"])
    skipped, _ = NOT_CHOSEN.get(package["name"], ("", ""))
    own = [read(path) for path in sorted(found) if path.parent == folder]
    others = [read(path) for path in sorted(found - {folder / skipped}) if path.parent != folder]
    if not any(own) and "Apache-2.0" in re.split(" OR |/", package["license"] or ""):
        own = [read(ROOT / "LICENSE")]
    if not any(own):
        raise FailedError(
            f"the package of the crate {package['name']} has no text of its licence "
            f"({package['license']}): say here where it is, or do without the crate"
        )
    return [text for text in own + others if text]


def crates(packages: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return each crate with its licences, and their texts."""
    found = []
    for package in packages:
        _, chosen = NOT_CHOSEN.get(package["name"], ("", ""))
        licence = "; ".join(part for part in (package["license"], chosen) if part)
        found.append((f"{package['name']} {package['version']} ({licence})", of_crate(package)))
    return found


def of_rust() -> tuple[str, list[str]]:
    """Return what Rust's library is made of, and under which licences."""
    version = run("rustc", "--version", around=dict(os.environ)).split()[1]
    root = run("rustc", "--print", "sysroot", around=dict(os.environ)).strip()
    page = Path(root) / "share/doc/rust/COPYRIGHT-library.html"
    return f"the library of Rust {version} (Apache-2.0 OR MIT, and see there)", [plain(read(page))]


def plain(page: str) -> str:
    """Return the text of a page in HTML."""
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    lines = (line.rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def of_zig(platform: Platform) -> list[tuple[str, list[str]]]:
    """Return the texts of what zig links: its compiler-rt has parts that come from musl."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise FailedError("ziglang is missing: pip install -r scripts/wheels/requirements.txt")
    folder = Path(spec.origin).parent
    files = {
        "zig's compiler-rt (MIT)": "LICENSE",
        "LLVM's libunwind (Apache-2.0 WITH LLVM-exception)": "lib/libunwind/LICENSE.TXT",
        "what of musl is in zig's compiler-rt, or in each library (MIT)": "lib/libc/musl/COPYRIGHT",
    }
    if platform.is_gnu:
        files["what glibc links into each library (see there)"] = "lib/libc/glibc/LICENSES"
    return [(name, [read(folder / path)]) for name, path in files.items()]


def read(path: Path) -> str:
    """Return a text without what surrounds it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise FailedError(f"the text of a licence is missing: {error}") from None


def together(found: list[tuple[str, list[str]]]) -> str:
    """Write each text once, below the names of all that have it; then those of the page."""
    if not PAGE.is_file():
        raise FailedError(f"the page is not built, whose licences are {PAGE.name}: run `make web`")
    having: dict[str, list[str]] = defaultdict(list)
    for name, said in found:
        for text in said:
            if name not in having[text]:
                having[text].append(name)
    parts = ["What Engram's natives link, and under which licences."]
    parts += ["\n".join([RULE, *names, "", text]) for text, names in having.items()]
    return "\n\n".join([*parts, RULE]) + f"\n{read(PAGE)}\n"


def notices(platform: Platform) -> str:
    """Return all texts of a wheel for a platform.

    Raises
    ------
    FailedError
        A text is missing: of a crate, of a compiler, or of the page, which `make web` builds.

    """
    return together([*crates(linked(platform)), of_rust(), *of_zig(platform)])


if __name__ == "__main__":
    sys.stdout.write(together(crates(linked(PLATFORMS[machine.machine()]))))
