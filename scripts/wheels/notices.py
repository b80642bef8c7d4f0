"""The licences of all that a wheel links or bundles, in one text.

Linked are the crates that its natives are made of, as cargo tells: those that a build script or a
macro needs are run and not linked. Two of them bring sources in C, with licences of their own. Rust
brings its library; zig brings one that unwinds stacks, and what a C library links into each.
Bundled are the scripts of the page: `web/build.mjs`, which knows what it bundles, writes their
texts.

A crate whose package has no text is an error: somebody has to find the text.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LINKED = (
    *("engram-python", "engram-cluster-python", "engram-mount", "engram-preload"),
    *("engram-capi", "engram-cluster-c"),
)
PAGE = ROOT / "python/engram/web/page/assets/THIRD-PARTY.txt"
NAMES = re.compile(r"(?i)^(licen[cs]e|copying|copyright|notice|unlicense)")
RULE = "=" * 80
WITHIN = {
    "lmdb-master-sys": ("lmdb/libraries/liblmdb",),
    "zstd-sys": ("zstd",),
}
"""Folders of crates with sources of others, which have their own texts."""


class NoticeError(Exception):
    """Something is linked or bundled, and its licence is not there."""


def linked(triple: str) -> list[dict[str, Any]]:
    """Return the crates that are linked for a target, without those of this workspace."""
    told = subprocess.run(
        [
            *("cargo", "metadata", "--format-version=1", "--locked"),
            *("--filter-platform", triple),
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    return reached(json.loads(told.stdout))


def reached(graph: dict[str, Any]) -> list[dict[str, Any]]:
    """Follow the edges of what is linked, from the crates that are shipped."""
    packages = {package["id"]: package for package in graph["packages"]}
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    own = set(graph["workspace_members"])
    todo = [name for name in own if packages[name]["name"] in LINKED]
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


def texts(folder: Path) -> list[str]:
    """Return the texts of licences in a folder."""
    files = sorted(path for path in folder.iterdir() if NAMES.match(path.name) and path.is_file())
    found = [read(path) for path in files]
    return [text for text in found if text]


def of_crate(package: dict[str, Any]) -> list[str]:
    """Return the texts in a crate's package, those of its sources in C too."""
    folder = Path(package["manifest_path"]).parent
    found = texts(folder)
    if package.get("license_file"):
        text = read(folder / package["license_file"])
        found += [text] if text not in found else []
    for within in WITHIN.get(package["name"], ()):
        more = texts(folder / within)
        if not more:
            raise NoticeError(f"{package['name']} has no licence in {within}: look where it is now")
        found += more
    return found


def of_toolchain(triple: str) -> list[tuple[str, list[str]]]:
    """Return the texts of what the compilers link: Rust's library, and what zig has of others."""
    version = subprocess.run(
        ["rustc", "--version"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()[1]
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise NoticeError("ziglang is missing: pip install -r scripts/wheels/requirements.txt")
    zig = Path(spec.origin).parent
    of_zig = {
        "zig's compiler-rt (MIT)": "LICENSE",
        "LLVM's libunwind (Apache-2.0 WITH LLVM-exception)": "lib/libunwind/LICENSE.TXT",
    }
    if triple.endswith("gnu"):
        of_zig["what glibc links into each library (see there)"] = "lib/libc/glibc/LICENSES"
    else:
        of_zig["what musl links into each library (MIT)"] = "lib/libc/musl/COPYRIGHT"
    found = [(f"the library of Rust {version} (Apache-2.0 OR MIT)", [read(ROOT / "LICENSE")])]
    return found + [(name, [read(zig / path)]) for name, path in of_zig.items()]


def read(path: Path) -> str:
    """Return a text without what surrounds it."""
    return path.read_text(encoding="utf-8", errors="replace").strip()


def crates(packages: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return each crate with its licences, and their texts."""
    found = []
    for package in packages:
        said = of_crate(package)
        if not said:
            raise NoticeError(
                f"the package of the crate {package['name']} has no text of its licence "
                f"({package['license']}): say here where it is, or do without the crate"
            )
        found.append((f"{package['name']} {package['version']} ({package['license']})", said))
    return found


def together(found: list[tuple[str, list[str]]]) -> str:
    """Write each text once, below the names of all that have it."""
    having: dict[str, list[str]] = defaultdict(list)
    for name, said in found:
        for text in said:
            if name not in having[text]:
                having[text].append(name)
    parts = ["What Engram's natives link, and under which licences."]
    parts += ["\n".join([RULE, *names, "", text]) for text, names in having.items()]
    return "\n\n".join(parts) + "\n"


def notices(triple: str) -> str:
    """Return all texts of a wheel for a target.

    Raises
    ------
    NoticeError
        A text is missing: of a crate, or of the page, which `make web` builds.

    """
    if not PAGE.is_file():
        raise NoticeError(f"the page is not built, whose licences are {PAGE.name}: run `make web`")
    return together(crates(linked(triple)) + of_toolchain(triple)) + f"\n{RULE}\n{read(PAGE)}\n"
