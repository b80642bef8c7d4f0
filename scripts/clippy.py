"""Runs clippy on the whole workspace, and finds dependencies that no target of a crate uses.

rustc's `unused_crate_dependencies` judges one target at a time: a test program is blamed for all
that only other tests use. So its words are collected here, from the run of clippy that lint needs
anyway, and a dependency is unused if it is so wherever it could be used: in `[dependencies]` by
the library and the programs, in `[dev-dependencies]` by tests, benches and examples and the unit
tests, in `[build-dependencies]` by the build script.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINT = "unused_crate_dependencies"
CLIPPY = (
    *("cargo", "clippy", "--quiet", "--workspace", "--all-targets", "--message-format=json"),
    *("--", "-D", "warnings", "--force-warn", LINT),
)
TABLES = {None: "dependencies", "dev": "dev-dependencies", "build": "build-dependencies"}


class Target:
    """One target of a crate: how it was compiled, and which crates it was given in vain."""

    def __init__(self) -> None:
        self.as_test = False
        self.as_itself = False
        self.in_vain: set[str] = set()

    def could_use(self, table: str | None) -> bool:
        """Tell whether what stands in `table` is given to this target."""
        return self.as_test if table == "dev" else self.as_itself


def kind(target: dict[str, Any]) -> str:
    """Say of which kind a target is, where all kinds of libraries and programs are one."""
    names = {"custom-build": "build", "test": "dev", "bench": "dev", "example": "dev"}
    return names.get(target["kind"][0], "normal")


def clippy() -> tuple[int, dict[tuple[str, str, str], Target]]:
    """Run clippy and show what it says; return how it ended, and each crate's targets."""
    targets: dict[tuple[str, str, str], Target] = defaultdict(Target)
    with subprocess.Popen(CLIPPY, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout or ():
            if not line.startswith("{"):
                continue
            told: dict[str, Any] = json.loads(line)
            if told["reason"] == "compiler-artifact":
                target = targets[told["package_id"], kind(told["target"]), told["target"]["name"]]
                test = told["profile"]["test"] or kind(told["target"]) == "dev"
                target.as_test |= test
                target.as_itself |= not test
            elif told["reason"] == "compiler-message":
                message = told["message"]
                if (message["code"] or {}).get("code") == LINT:
                    key = told["package_id"], kind(told["target"]), told["target"]["name"]
                    named = re.search(r"extern crate `(\w+)`", message["message"])
                    targets[key].in_vain |= {named[1]} if named else set()
                elif not re.search(r"\d+ warnings? emitted", message["message"]):
                    sys.stderr.write(message["rendered"])
    return running.returncode, targets


def given() -> dict[str, dict[str, set[str | None]]]:
    """Which crates each crate of the workspace names, by its own names, and in which tables."""
    told = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version=1"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    graph = json.loads(told.stdout)
    return {
        node["id"]: {
            dependency["name"]: {each["kind"] for each in dependency["dep_kinds"]}
            for dependency in node["deps"]
        }
        for node in graph["resolve"]["nodes"]
        if node["id"] in graph["workspace_members"]
    }


def unused(
    crates: dict[str, dict[str, set[str | None]]],
    targets: dict[tuple[str, str, str], Target],
) -> list[str]:
    """Name each dependency that is given in vain wherever its table gives it."""
    found = []
    for crate, names in crates.items():
        for name, tables in names.items():
            for table in tables - ({"dev"} if None in tables else set()):
                could = [
                    target
                    for (package, sort, _), target in targets.items()
                    if package == crate
                    and (sort == "build") == (table == "build")
                    and target.could_use(table)
                ]
                if could and all(name in target.in_vain for target in could):
                    found.append(f"{crate}: {name} in [{TABLES[table]}] is used by nothing there")
    return sorted(found)


def main() -> int:
    """Return clippy's status, or a failure where a dependency is unused."""
    status, targets = clippy()
    found = [] if status else unused(given(), targets)
    for line in found:
        sys.stderr.write(f"{line}\n")
    return status or bool(found)


if __name__ == "__main__":
    sys.exit(main())
