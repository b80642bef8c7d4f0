"""xarray: groups as datasets, beside netCDF files and Zarr stores on the same filesystem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

import engram
from bench.harness import Bound, Contestant, Line, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.setting import Setting

SIDE = (16, 512, 1024)  # 64 MiB of float64
VARIABLES = 100


def lines(setting: Setting) -> Iterator[Line]:
    """Open a dataset of one large variable, and one of many."""
    yield from large(setting)
    yield from many(setting)


def large(setting: Setting) -> Iterator[Line]:
    """Open, have the values, and take their mean."""
    values = np.random.default_rng(1).random(SIDE)
    ways = stored(setting.folder / "large", xr.Dataset({"T": (("time", "y", "x"), values)}))
    bounds = [Bound("engram", "netCDF4", "speed", 8), Bound("engram", "zarr", "speed", 3)]
    line = Line("open, and a variable of 64 MiB", "ms", bounds)
    contestants = [Contestant(name, had(way)) for name, way in ways.items()]
    yield measure(line, contestants, setting.rounds)
    line = Line("mean of 64 MiB, opened", "ms", [Bound("engram", "numpy", "speed", 0.95)])
    with ways["engram"]() as opened:
        contestants = [
            Contestant("engram", lambda: timed(lambda: opened.T.mean(skipna=False).item())),
            Contestant("plain mean()", lambda: timed(lambda: opened.T.mean().item())),
            Contestant("numpy", lambda: timed(lambda: values.mean().item())),
        ]
        yield measure(line, contestants, setting.rounds)
    engram.destroy(setting.folder / "large")


def many(setting: Setting) -> Iterator[Line]:
    """Open a dataset of many variables, decoded and not."""
    coords = {"time": np.arange("2000-01-01", "2000-01-11", dtype="M8[D]").astype("M8[ns]")}
    packed = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -1}
    names = [f"v{number:03}" for number in range(VARIABLES)]
    series = ("time", np.arange(10.0), {"units": "K"})
    dataset = xr.Dataset(dict.fromkeys(names, series), coords)
    for name in names[::2]:
        dataset[name].encoding = packed
    ways = stored(setting.folder / "many", dataset)
    for decoded, limit in ((False, 3), (True, 1.5)):
        title = f"open {VARIABLES} variables, {'decoded' if decoded else 'as they are'}"
        bounds = [Bound("engram", "netCDF4", "speed", limit), Bound("engram", "zarr", "show")]
        contestants = [
            Contestant(name, opened(way, decode_cf=decoded)) for name, way in ways.items()
        ]
        yield measure(Line(title, "ms", bounds), contestants, setting.rounds)
    engram.destroy(setting.folder / "many")


def stored(place: Path, dataset: xr.Dataset) -> dict[str, Callable[..., Any]]:
    """Store a dataset in a pool, a file and a Zarr store; how each is opened."""
    file, store = place.with_suffix(".nc"), place.with_suffix(".zarr")
    with engram.create(place, size="256 MiB") as pool:
        dataset.engram.to_pool(pool.create_group("data"))
    dataset.to_netcdf(file, engine="netcdf4")
    plain = {str(name): {"compressors": None} for name in dataset.variables}
    for name in dataset.variables:
        plain[str(name)] |= dict(dataset[name].encoding)
    dataset.to_zarr(store, encoding=plain, zarr_format=3)
    return {
        "engram": lambda **options: xr.open_dataset(place / "data", **options),
        "netCDF4": lambda **options: xr.open_dataset(file, engine="netcdf4", **options),
        "zarr": lambda **options: xr.open_dataset(store, engine="zarr", **options),
    }


def had(way: Callable[..., Any]) -> Callable[[], float]:
    """Open, and have the values of `T`, each round anew."""

    def work() -> None:
        with way() as found:
            found.T.values  # noqa: B018 - which reads them

    return lambda: timed(work)


def opened(way: Callable[..., Any], *, decode_cf: bool) -> Callable[[], float]:
    """Open, and close."""
    return lambda: timed(lambda: way(decode_cf=decode_cf).close())
