"""Draws the workspace's crates and their arrows into ARCHITECTURE.md, from `cargo metadata`.

`make layers` writes the drawing between two markers. With `--check`, as `make lint` calls it, the
script fails where the drawing is not what the manifests say.

A crate's row names what the crate uses. What it has anyway, through another crate of its row, is
left out, so that rows stay short.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
OPENS = "<!-- layers: `make layers` writes this from the manifests -->\n"
CLOSES = "<!-- end of layers -->\n"
FAMILY = "engram-"


def packages() -> dict[str, dict[str, Any]]:
    """Each crate of the workspace by its name, as cargo tells of it."""
    told = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version=1"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    return {each["name"]: each for each in json.loads(told.stdout)["packages"]}


def arrows(crates: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """Which crates of the workspace each one uses; what tests alone use is left out."""
    return {
        name: {
            dependency["name"]
            for dependency in crate["dependencies"]
            if dependency["name"] in crates and dependency["kind"] != "dev"
        }
        for name, crate in crates.items()
    }


def below(name: str, uses: dict[str, set[str]]) -> set[str]:
    """All that a crate uses, directly or through another."""
    return uses[name].union(*(below(used, uses) for used in uses[name]))


def rows(crates: dict[str, dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Name, arrows and description of each crate; each stands under all that it uses."""
    uses = arrows(crates)
    drawn: list[tuple[str, str, str]] = []
    for name in sorted(uses, key=lambda name: (len(below(name, uses)), name)):
        through = set().union(*(below(used, uses) for used in uses[name]))
        direct = sorted(short(used) for used in uses[name] - through)
        arrow = "← " + " ".join(direct) if direct else ""
        drawn.append((short(name), arrow, crates[name]["description"] or ""))
    return drawn


def short(name: str) -> str:
    """Give a crate's name without what all of them begin with."""
    return name.removeprefix(FAMILY)


def drawing(crates: dict[str, dict[str, Any]]) -> str:
    """Return what stands between the markers."""
    table = rows(crates)
    wide = [max(len(row[column]) for row in table) for column in range(2)]
    lines = [f"{n:<{wide[0]}}  {a:<{wide[1]}}  {d}".rstrip() for n, a, d in table]
    return "\n".join(
        ["<!-- not run: it draws the crates, and is no program -->", "```text", *lines, "```", ""]
    )


def main() -> str | None:
    """Write the drawing, or compare it; what is returned is why that failed."""
    crates = packages()
    silent = [name for name, crate in crates.items() if not crate["description"]]
    if silent:
        return f"a description is missing in Cargo.toml of: {', '.join(silent)}"
    page = PAGE.read_text(encoding="utf-8")
    before, opens, rest = page.partition(OPENS)
    _, closes, after = rest.partition(CLOSES)
    if not (opens and closes):
        return f"{PAGE.name} lacks the markers of the drawing:\n{OPENS}{CLOSES}"
    drawn = before + opens + drawing(crates) + closes + after
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(drawn, encoding="utf-8")
    elif drawn != page:
        return f"{PAGE.name} shows other crates than the manifests; `make layers` draws them anew"
    return None


if __name__ == "__main__":
    sys.exit(main())
