"""The guide's climate week, in a pool and in netCDF files: the same script but for where data lie.

Seven days of hourly temperatures, packed and compressed as archives have them, become daily means,
anomalies from the week's mean of each hour, and those on a grid of half the resolution, by dask.
Each step is a script of its own as a rule, so each reads what it needs and keeps what it made. The
results leave as netCDF files, and are compared.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

import engram
from bench.harness import Bound, Contestant, Line, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.setting import Setting

DAYS, HOURS, ROWS, COLUMNS = 7, 24, 181, 360
RESULTS = ("daily", "anomalies", "regridded")


def lines(setting: Setting) -> Iterator[Line]:
    """Run the week both ways."""
    folder = setting.folder / "week"
    files = archive(folder / "archive")
    ways = {"engram": in_a_pool, "netCDF4": in_files}
    for name in ways:
        (folder / name).mkdir()
    contestants = [
        Contestant(name, running(way, files, folder / name)) for name, way in ways.items()
    ]
    bounds = [Bound("engram", "netCDF4", "speed", 2)]
    yield measure(Line("a climate week", "ms", bounds), contestants, setting.rounds)
    for result in RESULTS:
        compare(folder, result)
    shutil.rmtree(folder)


def archive(folder: Path) -> list[Path]:
    """Write the week as an archive has it: a file each day, packed and compressed."""
    folder.mkdir(parents=True)
    lat, lon = np.linspace(90, -90, ROWS), np.arange(COLUMNS, dtype="f8")
    random = np.random.default_rng(7)
    files = []
    for day in range(DAYS):
        start = np.datetime64("2003-01-01") + day
        time = start.astype("M8[ns]") + np.arange(HOURS) * np.timedelta64(1, "h")
        shape = (HOURS, ROWS, COLUMNS)
        smooth = 288 - 40 * np.sin(np.radians(lat))[None, :, None] ** 2
        values = smooth + 5 * np.sin(np.arange(HOURS) / 4)[:, None, None]
        values = values + random.normal(0, 1, shape)
        made = xr.Dataset(
            {"t2m": (("time", "lat", "lon"), values, {"units": "K"})},
            {"time": time, "lat": lat, "lon": lon},
        )
        packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768}
        file = folder / f"t2m-{day}.nc"
        made.to_netcdf(file, encoding={"t2m": {**packed, "zlib": True, "complevel": 4}})
        files.append(file)
    return files


def week(have: Callable[[str], Any], keep: Callable[[Any, str], None]) -> None:
    """Compute the week; `have` opens what is there by its name, `keep` stores what was made."""
    with have("week") as found:
        keep(found.resample(time="1D").mean(), "daily")
    with have("week") as found:
        hourly = found.groupby("time.hour")
        keep((hourly - hourly.mean()).drop_vars("hour"), "anomalies")
    with have("anomalies") as found:
        parts = found.chunk({"time": HOURS}).coarsen(lat=2, lon=2, boundary="trim")
        keep(parts.mean().compute(), "regridded")


def in_files(files: list[Path], folder: Path) -> None:
    """Run the week with netCDF files alone."""

    def have(name: str) -> Any:
        if name == "week":
            return xr.open_mfdataset(files, engine="netcdf4")
        return xr.open_dataset(folder / f"{name}.nc", engine="netcdf4")

    week(have, lambda made, name: made.to_netcdf(folder / f"{name}.nc", engine="netcdf4"))


def in_a_pool(files: list[Path], folder: Path) -> None:
    """Run the week in a pool: the files come in once, and the results go out."""
    with engram.create(folder / "pool", size="1 GiB") as pool:
        for file in files:
            engram.import_file(file, pool.create_group(file.stem))

        def have(name: str) -> Any:
            days: Any = [pool[file.stem] for file in files]
            return xr.open_mfdataset(days) if name == "week" else xr.open_dataset(pool[name])

        week(have, lambda made, name: made.engram.to_pool(pool.create_group(name)))
        for result in RESULTS:
            engram.export_file(pool[result], folder / f"{result}.nc")
    engram.destroy(folder / "pool")


def running(
    way: Callable[[list[Path], Path], None], files: list[Path], folder: Path
) -> Callable[[], float]:
    """Run a way, after what the round before has left was removed."""

    def run() -> float:
        for result in RESULTS:
            (folder / f"{result}.nc").unlink(missing_ok=True)
        return timed(lambda: way(files, folder))

    return run


def compare(folder: Path, result: str) -> None:
    """Refuse results that differ."""
    with (
        xr.open_dataset(folder / "engram" / f"{result}.nc") as ours,
        xr.open_dataset(folder / "netCDF4" / f"{result}.nc") as theirs,
    ):
        xr.testing.assert_allclose(ours, theirs)
