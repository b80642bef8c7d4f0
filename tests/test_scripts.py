"""The scripts of lint find what they are for."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import aarch64
import clippy
import layers
import licences
import requirements

ALLOWED = {"Apache-2.0", "MIT", "Apache-2.0 WITH LLVM-exception"}


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("", None),
        ("MIT OR GPL-3.0-only", True),
        ("MIT/GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only AND MIT OR MIT", True),
        ("GPL-3.0-only AND (MIT OR MIT)", False),
        ("(MIT OR Apache-2.0) AND (GPL-3.0-only OR MIT)", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("MIT WITH LLVM-exception", False),
        ("MIT OR", None),
        ("(MIT", None),
        ("MIT)", None),
        ("MIT GPL-3.0-only", None),
    ],
)
def test_licences_are_read_as_spdx_defines_them(expression: str, met: bool | None) -> None:
    if met is None:
        with pytest.raises(ValueError, match="SPDX expression"):
            licences.is_allowed(expression, ALLOWED)
    else:
        assert licences.is_allowed(expression, ALLOWED) == met


def package(name: str, kind: str, licence: str) -> dict[str, Any]:
    """One crate, as cargo tells of it."""
    targets = [{"kind": [kind]}]
    return {"id": name, "name": name, "version": "1", "license": licence, "targets": targets}


@pytest.mark.parametrize("kind", ["lib", "bin"])
@pytest.mark.parametrize("dependency", [None, "dev", "build"])
def test_an_exception_holds_for_tools_alone(kind: str, dependency: str | None) -> None:
    edge = {"pkg": "copyleft", "dep_kinds": [{"kind": dependency}]}
    graph = {
        "workspace_members": ["ours"],
        "packages": [package("ours", kind, "MIT"), package("copyleft", "lib", "MPL-2.0")],
        "resolve": {"nodes": [{"id": "ours", "deps": [edge]}, {"id": "copyleft", "deps": []}]},
    }
    excepted = [{"crate": "copyleft", "allow": ["MPL-2.0"]}]
    found = licences.refused(graph, {"allow": ["MIT"], "exceptions": excepted})
    assert bool(found) == (kind == "lib" and dependency != "dev")


def crate(*uses: tuple[str, str | None]) -> dict[str, Any]:
    """One crate of a workspace, as cargo tells of it."""
    named = [{"name": name, "kind": kind} for name, kind in uses]
    return {"description": "What it is", "dependencies": named}


def test_layers_stand_on_what_they_use_and_name_it_once() -> None:
    crates = {
        "engram-pool": crate(("engram-base", None), ("engram-media", None), ("serde", None)),
        "engram-media": crate(("engram-base", None), ("engram-pool", "dev")),
        "engram-base": crate(("libc", None)),
    }
    assert layers.rows(crates) == [
        ("base", "", "What it is"),
        ("media", "← base", "What it is"),
        ("pool", "← media", "What it is"),
    ]


def three(*more: tuple[str, tuple[str, str | None]]) -> dict[str, Any]:
    """Three crates, each on the one before, and what they use besides."""
    uses: dict[str, list[tuple[str, str | None]]] = {
        "engram-base": [],
        "engram-media": [("engram-base", None)],
        "engram-pool": [("engram-media", None)],
    }
    for name, use in more:
        uses[name].append(use)
    return {name: crate(*used) for name, used in uses.items()}


def test_an_arrow_that_follows_from_others_is_drawn_too() -> None:
    without, named = three(), three(("engram-pool", ("engram-base", None)))
    assert layers.rows(without) == layers.rows(named)
    assert layers.besides(without) == []
    assert layers.besides(named) == [("pool", "← base")]
    assert layers.drawing(without) != layers.drawing(named)


@pytest.mark.parametrize(
    ("user", "used", "refused"),
    [
        ("engram-media", "engram-pool", ["media ← pool"]),
        ("engram-base", "engram-media", ["base ← media"]),
        ("engram-pool", "engram-base", []),
        ("engram-media", "engram-media", []),
    ],
)
def test_tests_use_their_crate_and_those_below_it(user: str, used: str, refused: list[str]) -> None:
    assert layers.upward(three((user, (used, "dev")))) == refused


def test_an_arrow_that_the_page_lacks_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "ARCHITECTURE.md"
    page.write_text(f"before\n{layers.OPENS}{layers.CLOSES}after\n", encoding="utf-8")
    monkeypatch.setattr(layers, "PAGE", page)

    def run(crates: dict[str, Any], *words: str) -> str | None:
        monkeypatch.setattr(layers, "packages", lambda: crates)
        monkeypatch.setattr(sys, "argv", ["layers.py", *words])
        return layers.main()

    assert run(three()) is None
    assert run(three(), "--check") is None
    implied = three(("engram-pool", ("engram-base", None)))
    assert "other crates" in (run(implied, "--check") or "")
    assert "media ← pool" in (run(three(("engram-media", ("engram-pool", "dev"))), "--check") or "")
    assert run(implied) is None
    assert run(implied, "--check") is None
    assert page.read_text(encoding="utf-8").endswith("after\n")


def target(*in_vain: str, itself: bool, test: bool) -> clippy.Target:
    """One target that was compiled as itself, as a test, or both."""
    made = clippy.Target()
    made.as_itself, made.as_test, made.in_vain = itself, test, set(in_vain)
    return made


@pytest.mark.parametrize(
    ("table", "library", "program", "test", "is_unused"),
    [
        (None, "x", "x", "x", True),
        (None, "x", "x", "", True),
        (None, "x", "", "x", False),
        (None, "", "x", "x", False),
        ("dev", "x", "x", "", False),
        ("dev", "", "x", "x", False),
        ("dev", "x", "x", "x", True),
    ],
)
def test_a_dependency_is_unused_if_nothing_that_its_table_is_for_uses_it(
    table: str | None, library: str, program: str, test: str, is_unused: bool
) -> None:
    targets = {
        ("ours", "normal", "ours"): target(library, itself=True, test=True),
        ("ours", "normal", "program"): target(program, itself=True, test=True),
        ("ours", "dev", "claims"): target(test, itself=False, test=True),
        ("other", "normal", "other"): target(itself=True, test=True),
        ("ours", "build", "build-script-build"): target(itself=True, test=False),
    }
    found = clippy.unused({"ours": {"x": {table}}}, targets)
    assert bool(found) == is_unused


def test_lint_installs_what_has_types_and_nothing_that_mypy_does_without() -> None:
    project = {
        "project": {
            "name": "engram",
            "dependencies": ["numpy>=2"],
            "optional-dependencies": {"hdf5": ["h5py"], "dev": ["pytest", "h5py", "engram[x]"]},
        },
        "tool": {"mypy": {"overrides": [{"module": ["h5py.*"], "ignore_missing_imports": True}]}},
    }
    assert requirements.requirements(project) == ["numpy>=2", "pytest"]


def test_what_is_left_out_on_arm_is_there() -> None:
    root = Path(__file__).resolve().parents[1]
    written = "\n".join(path.read_text("utf-8") for path in root.glob("engine/**/*.rs"))
    assert all(f"fn {name}(" in written for name in aarch64.LEFT_OUT)
