"""A live view: one process writes, another draws.

A model steps in a process of its own and writes its field in place. The reader sleeps until a
commit brings the next step (`watch`), and draws the field from the pool's own memory. A notebook
can do the same.

The guide [Watching](../guide/watching.md) has more of it.
"""

import subprocess
import sys
import textwrap

import matplotlib.pyplot as plt
import numpy as np

import engram

MODEL = """
    import numpy as np
    import engram

    y, x = np.mgrid[-1:1:96j, -1:1:96j]
    with engram.open("/dev/shm/model") as pool:
        for step in range(1, 7):
            front = np.hypot(x + 0.25, y - 0.1) - 0.16 * step
            field = np.exp(-40 * front**2)
            pool.create_array(f"steps/{step:02}", data=field, attrs={"step": step})
"""

with engram.create("/dev/shm/model", size="64 MiB") as pool:
    model = subprocess.Popen([sys.executable, "-c", textwrap.dedent(MODEL)])
    figure, axes = plt.subplots(1, 6, figsize=(9.5, 1.9))
    seen = []
    for axis, found in zip(
        axes, pool.watch("exists(step)", existing=True, timeout=30), strict=False
    ):
        axis.imshow(found.view(), cmap="magma", vmin=0, vmax=1)
        axis.set_title(f"step {found.attrs['step']}", size=10)
        axis.set_axis_off()
        seen.append(found.attrs["step"])
        if len(seen) == len(axes):
            break
    model.wait()
    assert seen == sorted(seen)
    assert np.isfinite(pool["steps/06"].view()).all()
    figure.savefig("live.png")

engram.destroy("/dev/shm/model")
