"""`make versus`: two trees do their rounds by turns, and each line has a sample of each round."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from bench import versus

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MADE = {  # a tree of Engram with what the child of `versus` asks of one
    "__init__.py": "",
    "harness.py": """
        from dataclasses import dataclass, field
        @dataclass
        class Line:
            title: str
            unit: str
            samples: dict = field(default_factory=dict)
        @dataclass
        class Contestant:
            name: str
            run: object
        def measure(line, contestants, rounds):
            raise AssertionError
        """,
    "setting.py": """
        PEERS = {"h5py": "x"}
        class Setting:
            rounds = 9
            def __init__(self, *_):
                pass
        """,
    "own/__init__.py": "",
    "own/rust.py": """
        import time
        from pathlib import Path
        tree = Path(__file__).parents[2]
        def build():
            pass
        def run(*words):
            with (tree.parent / "turns").open("a") as turns:
                turns.write(tree.name)
                turns.flush()
                time.sleep(0.02)
                turns.write(tree.name)
            return {"still": {"async": [2.0] * words[-1]}}
        def repeated(*words):
            return run(*words)
        """,
    "evaluation/__init__.py": "",
    "evaluation/setup.py": """
        from bench.own import rust
        class Stage:
            def ask(self, rounds, *names):
                rust.run("ask", rounds)
                return {"Q1": {"hits": [7.0], **{name: [1.0] * rounds for name in names}}}
        """,
    "__main__.py": """
        from bench.evaluation.setup import Stage
        from bench.harness import Contestant, Line, measure
        from bench.own import rust
        def queries(setting):
            answer = Stage().ask(setting.rounds, "MIQS+", "SQLite", "brute force", "engram")
            hits = answer["Q1"].pop("hits")
            assert set(hits) == {7.0}
            yield Line("Q1, Rust", "us", answer["Q1"])
            both = [Contestant("engram", lambda: 3.0), Contestant("DuckDB", lambda: 4.0)]
            yield measure(Line("Q1, Python", "us"), both, setting.rounds)
        def modes(setting):
            yield Line("modes", "us", rust.repeated("modes", 1)["still"])
        def policies(setting):
            answer = Stage().ask(1, "engram")["Q1"]
            del answer["hits"]
            yield Line("policies", "us", answer)
        LINES = {"queries": queries, "modes": modes, "policies": policies}
        """,
}


def tree(folder: Path) -> Path:
    """Make a tree that is measured in no time."""
    for name, code in MADE.items():
        file = folder / "bench" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(line.removeprefix(" " * 8) for line in code.splitlines()))
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / ".built").touch()
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    return folder


def test_each_line_has_a_sample_of_each_round_of_both_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, out = tree(tmp_path / "old"), tree(tmp_path / "new"), tmp_path / "out.json"
    monkeypatch.setattr(versus, "HERE", new)
    monkeypatch.setattr("bench.report.commit", lambda tree: tree.name)
    only = [word for part in ("queries", "modes", "policies") for word in ("--only", part)]
    monkeypatch.setattr(sys, "argv", ["versus", str(old), *only, "--out", str(out)])
    assert versus.main() == 0
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
    found = {(row["line"], row["what"]) for row in rows}
    assert found == {
        ("Q1, Rust", "engram"),
        ("Q1, Rust", "brute force"),
        ("Q1, Python", "engram"),
        ("modes", "async"),
        ("policies", "engram"),
    }
    for row in rows:
        assert len(row["old"]) == len(row["new"]) == versus.ROUNDS >= 5, row


def test_the_trees_run_the_program_by_turns(tmp_path: Path) -> None:
    sides = [versus.Side(tree(tmp_path / name), ["queries"], tmp_path, quick=True) for name in "ab"]
    steps = versus.by_turns(sides)
    # Each has ended a run before the other begins one, and neither is always the first.
    turns = (tmp_path / "turns").read_text()
    assert {turns[at : at + 4] for at in range(0, len(turns), 4)} == {"aabb", "bbaa"}
    assert len(turns) == 4 * versus.ROUNDS
    # One for the part, one for each run of the program, one for each round and the one to warm up.
    assert steps == 1 + versus.ROUNDS + (versus.ROUNDS + 1)
    for side in sides:
        assert side.process.wait() == 0
