"""What the served pool has: something for each view, and names that are attacks."""

import numpy as np

import engram

SIDE = (300, 400)
HOSTILE = [
    "<script>window.broken=1<\u2215script>",
    "<img src=x onerror=window.broken=1>",
    "quo\"te's",
    "right\u202eleft",
    "x" * 200,
    "a&amp;b?c#d%20e",
]
"""Names that a page must neither run nor mangle."""


def stock(pool: engram.Pool) -> None:
    """Fill a pool; what it has does not change from run to run."""
    _climate(pool)
    rng = np.random.default_rng(24)
    rows, columns = np.indices(SIDE)
    frame = np.sin(rows / 30) + np.cos(columns / 50)
    pool.create_array(
        "detector/frame", data=frame.astype("f4"), dims=("y", "x"), attrs={"units": "counts"}
    )
    signal = np.cumsum(rng.normal(size=100_000)).astype("f4")
    pool.create_array("detector/signal", data=signal, dims=("sample",), attrs={"units": "mV"})
    records = np.array([(n, n * 1.5) for n in range(500)], [("id", "i4"), ("energy", "f8")])
    pool.create_array("detector/events", data=records)
    pool.create_array("scalar", data=np.float64(3.5))
    pool.create_blob("notes", b"some notes")
    for name in HOSTILE:
        pool.create_array(f"hostile/{name}", data=np.arange(4.0), attrs={"<b>key</b>": name})
    with pool.batch():
        for place in range(60):
            attrs = {"temperature": float(place - 30), "level": "four"}
            pool.create_array(f"profiles/p-{place:03}", data=np.arange(8.0), attrs=attrs)


def _climate(pool: engram.Pool) -> None:
    lat, lon = np.linspace(-90, 90, 37), np.arange(0, 360, 5.0)
    axes = {
        "lat": (lat, {"units": "degrees_north"}),
        "lon": (lon, {"units": "degrees_east"}),
        "time": (np.arange(12) * 30.0, {"units": "days since 2001-01-01"}),
    }
    for name, (values, attrs) in axes.items():
        pool.create_array(f"climate/{name}", data=values, dims=(name,), attrs=attrs)
    warm = 30 * np.cos(np.deg2rad(lat))[None, :, None] + np.zeros((12, 37, 72))
    warm += np.arange(12)[:, None, None]
    pool.create_array(
        "climate/temperature",
        data=(warm * 100).astype("i2"),
        dims=("time", "lat", "lon"),
        attrs={"units": "degC", "scale_factor": 0.01},
    )
    other = (warm * 100).astype("i2")
    other[:, 10:20, 30:40] += 250
    pool.create_array(
        "climate/other",
        data=other,
        dims=("time", "lat", "lon"),
        attrs={"units": "degC", "scale_factor": 0.01},
    )
