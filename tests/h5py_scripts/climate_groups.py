"""Gridded fields with coordinates as dimension scales, as netCDF has them."""

import sys

import h5py
import numpy as np

lat, lon, time = np.linspace(-90, 90, 19), np.arange(0, 360, 10.0), np.arange(4)
with h5py.File(sys.argv[1], "w") as f:
    f["lat"], f["lon"], f["time"] = lat, lon, time
    for name in ("lat", "lon", "time"):
        f[name].make_scale(name)
    T = f.create_dataset(
        "T", (4, 19, 36), "f4", chunks=(1, 19, 36), compression="gzip", fillvalue=-999
    )
    for axis, name in enumerate(("time", "lat", "lon")):
        T.dims[axis].attach_scale(f[name])
        T.dims[axis].label = name
    T.attrs["units"], T.attrs["_FillValue"] = "K", np.float32(-999)
    T.attrs["valid_range"] = np.array([180, 330], "f4")
    f["lat"].attrs["units"], f["lon"].attrs["units"] = "degrees_north", "degrees_east"
    for k in range(3):
        T[k] = 250 + 30 * np.cos(np.radians(lat))[:, None] + np.sin(np.radians(lon)) + k

with h5py.File(sys.argv[1], "r") as f:
    T = f["T"]
    print([d.label for d in T.dims], [list(d.keys()) for d in T.dims], f["lat"].is_scale)
    print(T.dims[1][0].name, T.dims[1]["lat"][:3], len(T.dims[2]), T.dims[0].values())
    values = np.ma.masked_equal(T[:], T.attrs["_FillValue"])
    print(values.count(), np.round(values.mean(axis=(1, 2)), 3), T.fillvalue)
    weights = np.cos(np.radians(T.dims[1][0][:]))
    print(np.round(np.average(T[0].mean(1), weights=weights), 4), T.attrs["valid_range"])
    band = (lat > -30) & (lat < 30)
    print(T[0][band].shape, T[0, band, 0], T[2, 9, ::12])
    print([n for n in sorted(T.attrs) if not n.startswith("DIM")], f["lon"].attrs["units"])
