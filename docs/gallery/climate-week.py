"""A climate week: daily means and anomalies.

A week of hourly temperatures is in a pool as an xarray dataset. Another process could have
written it. Means and anomalies are computed on the pool's own memory, without copying the hourly
values first.

The guide [A climate week](../guide/climate-week.md) does the same from files to files.
"""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.dates import DateFormatter

import engram

lat, lon = np.linspace(88, -88, 45), np.arange(0, 360, 5.0)
hours = np.datetime64("2003-01-01", "ns") + np.arange(24 * 7) * np.timedelta64(1, "h")
random = np.random.default_rng(7)
y, x = np.radians(lat)[:, None], np.radians(lon)[None, :]
t = np.arange(len(hours))[:, None, None] / 24
mean = 288 - 40 * np.sin(y) ** 2 + 0 * x
day = 3 * np.cos(y) * np.cos(2 * np.pi * t - x)
waves = 7 * np.cos(y) ** 2 * np.sin(2 * y) * np.cos(5 * x - 1.3 * t)
noise = random.normal(0, 0.4, (len(hours), len(lat), len(lon)))
values = mean + day + waves + noise

with engram.create("/dev/shm/week", size="256 MiB") as pool:
    hourly = xr.Dataset(
        {"t2m": (("time", "lat", "lon"), values, {"units": "K"})},
        {"time": hours, "lat": lat, "lon": lon},
    )
    hourly.engram.to_pool(pool.create_group("hourly"))

    with xr.open_dataset(pool["hourly"]) as found:  # no copy
        place = found["t2m"].sel(lat=52, lon=10)
        daily = place.resample(time="1D").mean()
        anomaly = found["t2m"].isel(time=-1) - found["t2m"].mean("time")

        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4), width_ratios=(1, 1.1))
        left.plot(place["time"], place, lw=1, color="#3b82c4", label="hourly")
        noon = daily["time"] + np.timedelta64(12, "h")
        left.plot(noon, daily, "o-", lw=2, color="#d97706", label="daily mean")
        left.set_title("52° N, 10° E")
        left.set_ylabel("K")
        left.xaxis.set_major_formatter(DateFormatter("%-d %b"))
        left.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1.08))
        drawn = right.pcolormesh(lon, lat, anomaly, cmap="RdBu_r", vmin=-8, vmax=8)
        right.set_title("Last hour, less the week's mean")
        right.set(xlabel="longitude", ylabel="latitude")
        figure.colorbar(drawn, ax=right, label="K")
        figure.tight_layout()
        figure.savefig("climate-week.png")

engram.destroy("/dev/shm/week")
