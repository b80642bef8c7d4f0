"""Rotating shallow water on a C-grid: the small real simulation that the main job runs.

A barotropically unstable jet in a channel: periodic from west to east, walls in the south and the
north. The scheme is Sadourny's energy-conserving one (J. Atmos. Sci. 32, 1975, 680-689) with three
Runge-Kutta stages (Wicker and Skamarock, Mon. Wea. Rev. 130, 2002, 2088-2097) and a little
viscosity. Mass is in flux form, so it is conserved to rounding.

The channel is cut into strips of rows, one for each writer. A strip computes on its own rows and a
halo of its neighbour's, as if the halo's far edge were a wall. What is wrong there creeps inwards
by one row a stage, so a halo of `HALO` rows keeps the strip's own rows right for `SUBSTEPS` time
steps; nothing else is exchanged. All arithmetic in the loop is IEEE addition, multiplication and
division, element by element, so however the channel is cut the result is the same, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float64]

FIELDS = ("h", "u", "v")
UNITS = {"h": "m", "u": "m s-1", "v": "m s-1"}
LONG_NAMES = {"h": "layer thickness", "u": "eastward velocity", "v": "northward velocity"}

STAGES = 3
SUBSTEPS = 12
HALO = STAGES * SUBSTEPS + 1

GRAVITY_M_S2 = 9.81
JET_M_S = 32.0
JET_WIDTH_M = 110e3
BUMP_M = 25.0


@dataclass(frozen=True)
class Channel:
    """The whole channel: `ny` rows of `nx` square cells, on an f-plane."""

    ny: int = 192
    nx: int = 384
    cell_m: float = 10e3
    dt_s: float = 60.0
    depth_m: float = 400.0
    coriolis_s: float = 1e-4
    viscosity_m2_s: float = 3000.0

    @property
    def step_s(self) -> float:
        """Seconds of the model's time in one published step."""
        return SUBSTEPS * self.dt_s

    def y_m(self) -> Field:
        """Distances of the rows' centres from the southern wall, shape (ny,), in metres."""
        return (np.arange(self.ny, dtype=np.float64) + 0.5) * self.cell_m


class State(NamedTuple):
    """Thickness `h` (cell centres), `u` (western faces), `v` (southern faces); equal shapes."""

    h: Field
    u: Field
    v: Field


@dataclass(frozen=True)
class Strip:
    """Rows `first` to `last` (exclusive) of a channel: what one writer owns."""

    channel: Channel
    first: int
    last: int

    @property
    def reach(self) -> slice:
        """The channel's rows that one published step of this strip depends on."""
        return slice(max(self.first - HALO, 0), min(self.last + HALO, self.channel.ny))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of this strip's fields."""
        return self.last - self.first, self.channel.nx

    def advance(self, state: State, into: State) -> None:
        """Advance `SUBSTEPS` time steps from `state` on the rows of `reach`.

        `state` is not changed. The last stage's sums are written to `into`, the strip's own rows,
        wherever its memory may lie.
        """
        channel = self.channel
        own = slice(self.first - self.reach.start, self.last - self.reach.start)
        now = padded(state)
        for substep in range(SUBSTEPS):
            stage = now
            for part in (3, 2):
                stage = added(now, tendency(stage, channel), channel.dt_s / part)
            change = tendency(stage, channel)
            if substep < SUBSTEPS - 1:
                now = added(now, change, channel.dt_s)
            else:
                for old, rate, new in zip(now, change, into, strict=True):
                    np.add(old[1:-1, 1:-1][own], channel.dt_s * rate[own], out=new)


def strips(channel: Channel, count: int) -> list[Strip]:
    """Return the channel in `count` strips of equal height, from south to north."""
    edges = np.linspace(0, channel.ny, count + 1).astype(int).tolist()
    return [Strip(channel, first, last) for first, last in pairwise(edges)]


def jet(channel: Channel) -> Field:
    """Return the jet's eastward velocity on each row, shape (ny,), in metres per second."""
    across: Field = (channel.y_m() - 0.5 * channel.ny * channel.cell_m) / JET_WIDTH_M
    return JET_M_S / np.cosh(across) ** 2


def balanced_thickness(channel: Channel) -> Field:
    """Return the thickness that balances the jet on each row, shape (ny,), in metres."""
    wind = jet(channel)
    slope = -channel.coriolis_s / GRAVITY_M_S2 * channel.cell_m * 0.5 * (wind[1:] + wind[:-1])
    height: Field = np.concatenate([[0.0], np.cumsum(slope)])
    height += channel.depth_m - height.mean()
    return height


def initial(channel: Channel) -> State:
    """Return the whole channel at the start: the balanced jet and a bump that upsets it."""
    ones = np.ones((channel.ny, channel.nx))
    h = balanced_thickness(channel)[:, None] * ones
    u = jet(channel)[:, None] * ones
    x = (np.arange(channel.nx) + 0.5) / channel.nx
    y = (channel.y_m() / (channel.ny * channel.cell_m) - 0.5) / 0.06
    waves = sum(np.cos(2 * np.pi * (k * x + 0.37 * k * k)) / 3 for k in (4, 5, 6, 7))
    h += BUMP_M * np.exp(-(y**2))[:, None] * np.asarray(waves)[None, :]
    return State(h, u, np.zeros_like(h))


def padded(state: State) -> State:
    """Return the state with a ghost cell on every side, filled.

    Walls at the rows' ends, periodic west to east; the last row of `v` is the northern wall's.
    """
    copies = State(*(np.zeros((field.shape[0] + 2, field.shape[1] + 2)) for field in state))
    for copy, field in zip(copies, state, strict=True):
        copy[1:-1, 1:-1] = field
    return with_ghosts(copies)


def added(state: State, change: State, seconds: float) -> State:
    """`state` (padded) plus `seconds` of `change` (not padded), with ghosts filled."""
    new = State(*(np.empty_like(field) for field in state))
    for target, old, rate in zip(new, state, change, strict=True):
        np.multiply(rate, seconds, out=target[1:-1, 1:-1])
        target[1:-1, 1:-1] += old[1:-1, 1:-1]
    return with_ghosts(new)


def with_ghosts(state: State) -> State:
    """Fill the ghost cells of a padded state and hold `v` at zero on both walls; the state."""
    for field in (state.h, state.u):
        field[0], field[-1] = field[1], field[-2]
    state.v[0], state.v[1], state.v[-1] = -state.v[2], 0.0, 0.0
    for field in state:
        field[:, 0], field[:, -1] = field[:, -2], field[:, 1]
    return state


def tendency(state: State, channel: Channel) -> State:
    """Return the rates of change of a padded state, without ghosts.

    Names of places: `x` and `y` after a quantity say along which direction it is averaged. Rows of
    corners and of `v` faces run from the southern wall to the northern one, one more than cells.
    """
    h, u, v = state
    per_m = 1.0 / channel.cell_m
    flux_x = 0.5 * u[:, 1:] * (h[:, 1:] + h[:, :-1])
    flux_y = 0.5 * v[1:] * (h[1:] + h[:-1])
    h_corner = 0.25 * (h[1:, 1:] + h[:-1, 1:] + h[1:, :-1] + h[:-1, :-1])
    spin = (v[1:, 1:] - v[1:, :-1] - u[1:, 1:] + u[:-1, 1:]) * per_m
    vorticity = 0.5 * (channel.coriolis_s + spin) / h_corner
    turn_u = vorticity * (flux_y[:, 1:] + flux_y[:, :-1])
    turn_v = vorticity * (flux_x[1:] + flux_x[:-1])
    u_squared, v_squared = u[1:-1] * u[1:-1], v[1:, :-1] * v[1:, :-1]
    bernoulli = GRAVITY_M_S2 * h[1:-1, :-1]
    bernoulli += 0.25 * (u_squared[:, 1:] + u_squared[:, :-1] + v_squared[1:] + v_squared[:-1])

    dh = (flux_x[1:-1, :-1] - flux_x[1:-1, 1:] + flux_y[:-1, 1:-1] - flux_y[1:, 1:-1]) * per_m
    du = 0.5 * (turn_u[:-1, :-1] + turn_u[1:, :-1])
    du -= (bernoulli[:, 1:] - bernoulli[:, :-1]) * per_m
    du += spread(u, channel)
    dv = spread(v, channel)
    dv[0] = 0.0
    dv[1:] -= 0.5 * (turn_v[1:-1, :-1] + turn_v[1:-1, 1:])
    dv[1:] -= (bernoulli[1:, 1:] - bernoulli[:-1, 1:]) * per_m
    return State(dh, du, dv)


def spread(field: Field, channel: Channel) -> Field:
    """Viscosity times the Laplacian of a padded field, without ghosts."""
    around = field[1:-1, 2:] + field[1:-1, :-2]
    around += field[2:, 1:-1]
    around += field[:-2, 1:-1]
    around -= 4.0 * field[1:-1, 1:-1]
    around *= channel.viscosity_m2_s / channel.cell_m**2
    return around


def relative_vorticity(state: State, channel: Channel) -> Field:
    """Relative vorticity at the cells' south-western corners, the state's shape, in 1/s."""
    _, u, v = padded(state)
    spin = v[1:-1, 1:-1] - v[1:-1, :-2] - u[1:-1, 1:-1] + u[:-2, 1:-1]
    return spin / channel.cell_m
