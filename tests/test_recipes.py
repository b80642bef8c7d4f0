"""Recipes for conda and Spack say what the package says of itself, and can be parsed."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from wheels import platforms

ROOT = Path(__file__).resolve().parents[1]
CONDA = ROOT / "recipes/conda/recipe.yaml"
SPACK = ROOT / "recipes/spack/package.py"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKSPACE: dict[str, Any] = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]


@pytest.fixture
def conda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Give the recipe as conda's own program has parsed and rendered it for a path."""
    parser = pytest.importorskip("rattler_build")
    monkeypatch.setenv("ENGRAM_VERSION", "1.2.3")
    monkeypatch.setenv("ENGRAM_SOURCE", str(tmp_path / "engram-1.2.3.tar.gz"))
    (variant,) = parser.Stage0Recipe.from_yaml(CONDA.read_text(encoding="utf-8")).render()
    rendered: dict[str, Any] = variant.recipe.to_dict()
    return rendered


def test_condas_parser_takes_the_recipe_and_the_path(conda: dict[str, Any], tmp_path: Path) -> None:
    assert conda["package"] == {"name": "engram", "version": "1.2.3"}
    (source,) = conda["source"]
    assert source["path"] == str(tmp_path / "engram-1.2.3.tar.gz")


def test_condas_parser_refuses_what_is_no_recipe() -> None:
    parser = pytest.importorskip("rattler_build")
    text = CONDA.read_text(encoding="utf-8").replace("requirements:", "requirement:")
    with pytest.raises(parser.RattlerBuildError):
        parser.Stage0Recipe.from_yaml(text)


def test_conda_needs_what_the_package_needs(conda: dict[str, Any]) -> None:
    run = [need.replace(" ", "") for need in conda["requirements"]["run"]]
    assert f"python{PROJECT['requires-python']}" in run
    assert set(PROJECT["dependencies"]) <= set(run)
    assert set(PROJECT["optional-dependencies"]["cli"]) <= set(run)
    assert conda["about"]["summary"] == PROJECT["description"]
    assert conda["about"]["license"] == PROJECT["license"]


@pytest.fixture
def spack() -> ast.ClassDef:
    """Give the class of the recipe for Spack."""
    tree = ast.parse(SPACK.read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return found


def directives(spack: ast.ClassDef, name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return what a directive is given, each time."""
    calls = [node.value for node in spack.body if isinstance(node, ast.Expr)]
    return [
        (
            ast.literal_eval(call.args[0]),
            {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg},
        )
        for call in calls
        if isinstance(call, ast.Call) and ast.unparse(call.func) == name
    ]


def test_spack_needs_what_the_package_needs(spack: ast.ClassDef) -> None:
    needs = dict(directives(spack, "depends_on"))
    assert f"python@{PROJECT['requires-python'].removeprefix('>=')}:" in needs
    assert f"rust@{WORKSPACE['package']['rust-version']}:" in needs
    for need in PROJECT["dependencies"]:
        name, version = need.split(">=")
        assert f"py-{name}@{version}:" in needs
    assert directives(spack, "license") == [(PROJECT["license"], {})]
    extra = {need for need, given in needs.items() if given.get("when") == "'+cli'"}
    assert extra == {f"py-{name}" for name in PROJECT["optional-dependencies"]["cli"]}


@pytest.mark.parametrize("recipe", [CONDA, SPACK])
def test_recipes_build_all_that_wheels_have(recipe: Path) -> None:
    named = set(re.findall(r"\bengram-[a-z-]+", recipe.read_text(encoding="utf-8")))
    assert {*platforms.PLATFORMS["x86_64"].parts, "engram-mount"} <= named
