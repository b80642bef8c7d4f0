"""Prints what `make lint` installs: of `pyproject.toml`, all that mypy sees the types of.

What mypy is told to do without (`ignore_missing_imports`) changes nothing in what it says, and is
left out: these are the large libraries of file formats and tables. So there is one list of
requirements, and lint needs neither them nor the built package.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def name(requirement: str) -> str:
    """Return the name of what is required, without its version."""
    found = re.match(r"[\w.-]+", requirement)
    return found[0].lower().replace("-", "_") if found else ""


def requirements(project: dict[str, Any]) -> list[str]:
    """Give what the package and all its extras require, but for what has no types."""
    table, tools = project["project"], project["tool"]
    untyped = {
        module.split(".")[0].lower()
        for override in tools["mypy"]["overrides"]
        if override.get("ignore_missing_imports")
        for module in override["module"]
    }
    listed = [table["dependencies"], *table["optional-dependencies"].values()]
    wanted = {requirement for each in listed for requirement in each}
    return sorted(each for each in wanted if name(each) not in {*untyped, table["name"]})


if __name__ == "__main__":
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    print("\n".join(requirements(tomllib.loads(text))))  # noqa: T201
