"""`make hot`: a ratio that became worse than the one that landed last is marked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench import hot
from bench.harness import Line

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_what_became_slower_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *others = hot.HOT
    lines = {each.title: Line(each.title, "us", []) for each in hot.HOT}
    for each in (first, second):
        lines[each.title].samples = {each.ours: [3.0, 9.0, 3.0], each.against: [2.0, 2.0, 2.0]}
    out = tmp_path / "hot.json"
    monkeypatch.setattr(hot, "measured", lambda: lines)
    monkeypatch.setattr(hot, "landed", lambda: {first.title: 1.2, second.title: 1.45})
    monkeypatch.setattr("bench.own.rust.build", lambda: None)
    monkeypatch.setattr("sys.argv", ["hot", "--out", str(out)])
    assert hot.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.endswith("  <")] == [
        f"  1.50    1.20  {first.title}: engram / bare LMDB  <"
    ]
    assert f"     -       -  {others[0].title}" in "\n".join(said)
    assert json.loads(out.read_text())["ratios"] == {first.title: 1.5, second.title: 1.5}
