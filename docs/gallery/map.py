"""A map of an array, drawn from a view.

`view()` gives a numpy array on the pool's own memory. Matplotlib draws it as it draws any other
array. The longitudes and latitudes are found by the array's dimensions.
"""

import matplotlib.pyplot as plt
import numpy as np

import engram

with engram.create("/dev/shm/ocean", size="64 MiB") as pool:
    lat, lon = np.linspace(-89.5, 89.5, 180), np.linspace(-179.5, 179.5, 360)
    run = pool.create_group("run-17", attrs={"model": "shallow water"})
    run.create_array("lat", data=lat, dims=("lat",), attrs={"units": "degrees_north"})
    run.create_array("lon", data=lon, dims=("lon",), attrs={"units": "degrees_east"})
    y, x = np.radians(lat)[:, None], np.radians(lon)[None, :]
    waves = np.cos(y) ** 4 * np.cos(4 * x + 3 * np.sin(2 * y)) + 0.3 * np.sin(3 * y)
    run.create_array("height", data=waves, dims=("lat", "lon"), attrs={"units": "m"})

with engram.open("/dev/shm/ocean") as pool:  # as another process would
    height = pool["run-17/height"]
    y, x = (np.radians(pool["run-17"][name].view()) for name in height.dims)

    figure, axes = plt.subplots(figsize=(8, 4.2), subplot_kw={"projection": "mollweide"})
    drawn = axes.pcolormesh(x, y, height.view(), cmap="viridis", rasterized=True)
    axes.grid(lw=0.5)
    axes.set_xticklabels([])
    axes.set_title(f"{height.path}, a {pool['run-17'].attrs['model']} model", pad=18)
    figure.colorbar(drawn, ax=axes, shrink=0.75, label=height.attrs["units"])
    figure.savefig("map.png")

engram.destroy("/dev/shm/ocean")
