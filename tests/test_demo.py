"""The main job: its simulation is right, and a short run of it holds every claim."""

from __future__ import annotations

import itertools
import json
import runpy
import time
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from engram import demo
from engram.demo import layout
from engram.demo.shallow_water import Channel, State, initial, padded, strips, tendency

CHANNEL = Channel(ny=120, nx=48)
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def empty(shape: tuple[int, int]) -> State:
    """Give a state with space for every field."""
    return State(*(np.empty(shape) for _ in range(3)))


def advanced(pieces: int, steps: int) -> State:
    """Compute the channel after `steps` published steps, computed in so many strips."""
    now = initial(CHANNEL)
    for _ in range(steps):
        new = empty((CHANNEL.ny, CHANNEL.nx))
        for strip in strips(CHANNEL, pieces):
            rows = slice(strip.first, strip.last)
            strip.advance(
                State(*(field[strip.reach] for field in now)),
                State(*(field[rows] for field in new)),
            )
        now = new
    return now


@pytest.mark.parametrize("pieces", [2, 3])
def test_a_channel_in_strips_goes_the_same_way_bit_for_bit(pieces: int) -> None:
    for whole, cut in zip(advanced(1, 3), advanced(pieces, 3), strict=True):
        assert whole.tobytes() == cut.tobytes()


def test_mass_is_conserved_to_rounding() -> None:
    before, after = initial(CHANNEL).h.sum(), advanced(1, 3).h.sum()
    assert abs(after / before - 1) < 1e-14


def test_a_balanced_jet_without_a_bump_stays_as_it_is() -> None:
    state = initial(CHANNEL)
    calm = State(state.h.mean(axis=1, keepdims=True) + 0 * state.h, state.u, state.v)
    change = tendency(padded(calm), CHANNEL)
    scale = CHANNEL.coriolis_s * state.u.max()
    assert np.abs(change.h).max() == 0
    assert np.abs(change.v).max() < 0.05 * scale


def test_a_short_run_of_the_main_job_holds_every_claim(tmp_path: Path) -> None:
    said = Console(file=StringIO(), width=200)
    held = demo.run(tmp_path / "out", pool=tmp_path / "pool", steps=12, console=said)
    claims = json.loads((tmp_path / "out" / "report.json").read_text())["claims"]
    assert held, [claim for claim in claims if not claim["held"]]
    assert (tmp_path / "out" / "vorticity.png").read_bytes().startswith(b"\x89PNG")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "quickstart.py"))
    assert "anomaly" in capsys.readouterr().out


def test_a_slow_machine_is_waited_for_as_long_as_something_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "PATIENCE_S", 0.2)
    began = time.monotonic()
    steps = itertools.count()
    layout.wait_until(
        lambda: time.monotonic() > began + 0.6, "more time than it has", lambda: next(steps)
    )
    with pytest.raises(TimeoutError, match="towards step 240"):
        layout.wait_until(lambda: False, "step 240", lambda: 239)
