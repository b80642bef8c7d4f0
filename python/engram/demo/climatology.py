"""A netCDF file beside the simulation: written, imported, checked and computed on in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np

import engram
from engram.demo.layout import CHANNEL, STRIPS, array, views
from engram.demo.shallow_water import balanced_thickness, jet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKING_M_S = 0.001


def write_file(path: Path) -> None:
    """Write the state that the simulation starts around as a netCDF-4 file.

    A compressed thickness, a wind packed into shorts, a coordinate, a group and attributes.
    """
    with netCDF4.Dataset(path, "w") as file:
        file.title = "Climatology of a mid-latitude jet"
        file.Conventions = "CF-1.11"
        file.createDimension("y", CHANNEL.ny)
        file.createDimension("x", CHANNEL.nx)
        y = file.createVariable("y", "f8", ("y",))
        y.units, y.standard_name = "m", "projection_y_coordinate"
        y[:] = CHANNEL.y_m()
        thickness = file.createVariable("h", "f4", ("y", "x"), compression="zlib")
        thickness.units, thickness.long_name = "m", "layer thickness"
        thickness[:] = balanced_thickness(CHANNEL)[:, None] * np.ones(CHANNEL.nx)
        wind = file.createGroup("wind").createVariable("u", "i2", ("y",))
        wind.units, wind.scale_factor = "m s-1", PACKING_M_S
        wind.set_auto_maskandscale(False)
        wind[:] = np.round(jet(CHANNEL) / PACKING_M_S).astype("i2")


def eddy_share(pool: engram.Pool, imported: str, step: int) -> float:
    """How much of the kinetic energy at `step` is the flow's less the imported wind's, from 0 to 1.

    It meets the simulation's fields and the file's values where both lie, in the pool.
    """
    packed = array(pool, f"{imported}/wind/u")
    wind = np.asarray(packed) * float(packed.attrs["scale_factor"])
    eddies = whole = 0.0
    for name, strip in STRIPS.items():
        h, u, v = views(pool, name, step)
        eddy = u - wind[strip.first : strip.last, None]
        across = np.einsum("ij,ij,ij->", h, v, v)
        eddies += np.einsum("ij,ij,ij->", h, eddy, eddy) + across
        whole += np.einsum("ij,ij,ij->", h, u, u) + across
    return float(eddies / whole)


def variables(file: netCDF4.Dataset, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every variable of the file and its groups, with its path."""
    for name, variable in file.variables.items():
        yield prefix + name, variable
    for name, group in file.groups.items():
        yield from variables(group, f"{prefix}{name}/")


def compare(group: engram.Group, path: Path) -> tuple[list[str], list[str]]:
    """Compare the imported group with the file, value by value, as the file holds them.

    Returns the paths of the variables that are equal, and those of the others.
    """
    equal: list[str] = []
    unequal: list[str] = []
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        for name, variable in variables(file):
            there = group.get(name)
            same = isinstance(there, engram.Array) and np.array_equal(
                there[...], variable[...], equal_nan=variable.dtype.kind in "fc"
            )
            (equal if same else unequal).append(name)
    return equal, unequal


def summaries(group: engram.Group) -> list[tuple[str, str, float, float, float]]:
    """Path, dtype, least, mean and greatest finite value of every numeric array, in place."""
    rows = []
    found: list[engram.Array] = []
    group.visititems(lambda _, member: collect(found, member))
    for each in found:
        values = np.asarray(each)
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        if finite.size:
            ends = float(finite.min()), float(finite.mean()), float(finite.max())
            rows.append((each.path.removeprefix(f"{group.path}/"), str(each.dtype), *ends))
    return rows


def collect(found: list[engram.Array], member: object) -> None:
    """Keep `member` if it is an array of real numbers."""
    if isinstance(member, engram.Array) and member.dtype.kind in "iuf":
        found.append(member)
