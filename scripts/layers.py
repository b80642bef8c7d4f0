"""Draws the workspace's crates and their arrows into ARCHITECTURE.md, from `cargo metadata`.

`make layers` writes the drawing between two markers. With `--check`, as `make lint` calls it, the
script fails where the drawing is not what the manifests say.

A crate's row names what the crate uses. What it has anyway, through another crate of its row, is
left out, so that rows stay short. A list under the drawing has these arrows, so that the two name
every crate that a manifest names. Tests obey the same order: a dev-dependency on a crate that is
not below is refused.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import wrap
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
OPENS = "<!-- layers: `make layers` writes this from the manifests -->\n"
CLOSES = "<!-- end of layers -->\n"
FAMILY = "engram-"
COLUMNS = 118
NAMED = "These manifests also name crates that follow from the drawing:"


def packages() -> dict[str, dict[str, Any]]:
    """Each crate of the workspace by its name, as cargo tells of it."""
    told = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version=1"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    return {each["name"]: each for each in json.loads(told.stdout)["packages"]}


def arrows(crates: dict[str, dict[str, Any]], *, of_tests: bool = False) -> dict[str, set[str]]:
    """Which crates of the workspace each one uses: itself, or in its tests alone."""
    return {
        name: {
            dependency["name"]
            for dependency in crate["dependencies"]
            if dependency["name"] in crates and (dependency["kind"] == "dev") == of_tests
        }
        for name, crate in crates.items()
    }


def below(name: str, uses: dict[str, set[str]]) -> set[str]:
    """All that a crate uses, directly or through another."""
    return uses[name].union(*(below(used, uses) for used in uses[name]))


def through(name: str, uses: dict[str, set[str]]) -> set[str]:
    """All that a crate has anyway, through what it uses."""
    return set().union(*(below(used, uses) for used in uses[name]))


def from_bottom(uses: dict[str, set[str]]) -> list[str]:
    """Return the names of the crates; each comes after all that it uses."""
    return sorted(uses, key=lambda name: (len(below(name, uses)), name))


def upward(crates: dict[str, dict[str, Any]]) -> list[str]:
    """Each crate whose tests use one that is not below it, and that one."""
    uses, tested = arrows(crates), arrows(crates, of_tests=True)
    return [
        f"{short(name)} ← {short(used)}"
        for name in from_bottom(uses)
        for used in sorted(tested[name] - below(name, uses) - {name})
    ]


def rows(crates: dict[str, dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Name, arrows and description of each crate; each stands under all that it uses."""
    uses = arrows(crates)
    drawn: list[tuple[str, str, str]] = []
    for name in from_bottom(uses):
        direct = sorted(short(used) for used in uses[name] - through(name, uses))
        arrow = "← " + " ".join(direct) if direct else ""
        drawn.append((short(name), arrow, crates[name]["description"] or ""))
    return drawn


def besides(crates: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """Each crate that names some which follow from its row of the drawing, and these."""
    uses = arrows(crates)
    implied = {name: uses[name] & through(name, uses) for name in from_bottom(uses)}
    return [
        (short(name), "← " + " ".join(sorted(map(short, named))))
        for name, named in implied.items()
        if named
    ]


def short(name: str) -> str:
    """Give a crate's name without what all of them begin with."""
    return name.removeprefix(FAMILY)


def drawing(crates: dict[str, dict[str, Any]]) -> str:
    """Return what stands between the markers."""
    table = rows(crates)
    wide = [max(len(row[column]) for row in table) for column in range(2)]
    lines = [f"{n:<{wide[0]}}  {a:<{wide[1]}}  {d}".rstrip() for n, a, d in table]
    named = "; ".join(f"{name} {arrow}" for name, arrow in besides(crates))
    return "\n".join([*_block(lines), "", NAMED, "", *_block(wrap(named, COLUMNS)), ""])


def _block(lines: list[str]) -> list[str]:
    return ["<!-- not run: it draws the crates, and is no program -->", "```text", *lines, "```"]


def main() -> str | None:
    """Write the drawing, or compare it; what is returned is why that failed."""
    crates = packages()
    silent = [name for name, crate in crates.items() if not crate["description"]]
    if silent:
        return f"a description is missing in Cargo.toml of: {', '.join(silent)}"
    if found := upward(crates):
        return f"tests may use their crate and those below it, unlike: {', '.join(found)}"
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
