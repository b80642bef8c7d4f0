"""Compares the licences of all dependencies with those that `deny.toml` allows.

An expression is read as SPDX defines it: `AND` binds closer than `OR`, `WITH` closer than both,
and `/` is what crates wrote for `OR` before. What `deny.toml` excepts holds for tools alone: an
excepted crate that a library of the workspace depends on is an error.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Tell whether the allowed licences satisfy an SPDX expression."""
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    words = re.sub(r" WITH ", "\x00", " ".join(words)).split()
    met = _alternatives(words, {name.replace(" WITH ", "\x00") for name in allowed})
    if words:
        message = f"{expression!r} is no SPDX expression: {words[0]!r} is left over"
        raise ValueError(message)
    return met


def _alternatives(words: list[str], allowed: set[str]) -> bool:
    met = _together(words, allowed)
    while words[:1] == ["OR"]:
        words.pop(0)
        met |= _together(words, allowed)
    return met


def _together(words: list[str], allowed: set[str]) -> bool:
    met = _single(words, allowed)
    while words[:1] == ["AND"]:
        words.pop(0)
        met &= _single(words, allowed)
    return met


def _single(words: list[str], allowed: set[str]) -> bool:
    if not words or words[0] in {")", "AND", "OR"}:
        message = "an SPDX expression lacks a licence"
        raise ValueError(message)
    if (word := words.pop(0)) != "(":
        return word in allowed
    met = _alternatives(words, allowed)
    if not words or words.pop(0) != ")":
        message = "an SPDX expression lacks a closing parenthesis"
        raise ValueError(message)
    return met


def metadata() -> dict[str, Any]:
    """Return what cargo tells of the workspace and all that it depends on."""
    told = subprocess.run(
        ["cargo", "metadata", "--locked", "--all-features", "--format-version=1"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    graph: dict[str, Any] = json.loads(told.stdout)
    return graph


def shipped(graph: dict[str, Any]) -> set[str]:
    """Ids of all that libraries of the workspace are built of; tools and tests are left out."""
    nodes = {node["id"]: node["deps"] for node in graph["resolve"]["nodes"]}
    members = set(graph["workspace_members"])
    programs = {"bin", "test", "bench", "example", "custom-build"}
    left = [
        package["id"]
        for package in graph["packages"]
        if package["id"] in members
        and any(set(target["kind"]) - programs for target in package["targets"])
    ]
    found: set[str] = set()
    while left:
        if (package := left.pop()) not in found:
            found.add(package)
            left += [
                dependency["pkg"]
                for dependency in nodes[package]
                if any(each["kind"] != "dev" for each in dependency["dep_kinds"])
            ]
    return found


def refused(graph: dict[str, Any], rules: dict[str, Any]) -> list[str]:
    """Say of each dependency whose licence is not allowed what it is."""
    allowed = set(rules["allow"])
    excepted = {each["crate"]: set(each["allow"]) for each in rules.get("exceptions", ())}
    libraries = shipped(graph)
    found = []
    for package in graph["packages"]:
        name, licence = package["name"], package["license"] or ""
        more = set() if package["id"] in libraries else excepted.get(name, set())
        try:
            met = is_allowed(licence, allowed | more)
        except ValueError as error:
            met, licence = False, f"{licence!r} ({error})"
        if not met:
            found.append(f"{name} {package['version']}: deny.toml does not allow {licence}")
    return sorted(found)


def main() -> str | None:
    """Compare; what is returned is what was found."""
    rules = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))["licenses"]
    return "\n".join(refused(metadata(), rules)) or None


if __name__ == "__main__":
    sys.exit(main())
