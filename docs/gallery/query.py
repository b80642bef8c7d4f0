"""What a query finds, as a data frame and as a picture.

Six orbits have fifty profiles each. One query finds the cold ones of some orbits by their
attributes and by those of their groups. `to_pandas` gives one row for each profile that was
found.

The guide [Queries](../guide/queries.md) has the whole language.
"""

import matplotlib.pyplot as plt
import numpy as np

import engram

random = np.random.default_rng(17)
with engram.create("/dev/shm/profiles", size="256 MiB") as pool:
    with pool.batch():
        for orbit in range(1, 7):
            group = pool.create_group(f"orbit-{orbit:04}", attrs={"orbit": orbit})
            for place in range(50):
                temperature = round(float(random.normal(-12, 6)), 1)
                attrs = {"temperature": temperature, "latitude": -60 + 2.4 * place}
                heights = random.normal(1200, 15, 40)
                group.create_array(f"profile-{place:03}", data=heights, attrs=attrs)

    wanted = ["group.orbit", "latitude", "temperature"]
    everything = pool.query("exists(temperature)").to_pandas(wanted)
    cold = pool.query("temperature < -15 and group.orbit in (2, 3, 5)").to_pandas(wanted)

    figure, axes = plt.subplots(figsize=(8, 3.6))
    axes.scatter(
        everything["latitude"], everything["temperature"], s=14, color="#9aa5b1", label="all"
    )
    for orbit, found in cold.groupby("group.orbit"):
        axes.scatter(found["latitude"], found["temperature"], s=26, label=f"orbit {orbit}")
    axes.axhline(-15, lw=1, ls="--", color="#d97706")
    axes.set(xlabel="latitude", ylabel="temperature, °C")
    axes.set_title("temperature < -15 and group.orbit in (2, 3, 5)", family="monospace", size=10)
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    figure.savefig("query.png")

engram.destroy("/dev/shm/profiles")
