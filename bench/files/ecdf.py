"""The paper's figure 9: how steady a mount's bandwidth is, by the file system below the pool.

    python -m bench.files.ecdf RESULTS.json PICTURE.png

draws it from what `python -m bench.files` has measured. ext4 and XFS lie in images in memory, as
the paper's lay on DRAM; without DAX, which this machine's block devices do not offer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

import engram
from bench.files import ior
from bench.files.places import mount
from bench.files.turns import by_turns
from bench.harness import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.files.turns import Phases
    from bench.setting import Setting

DISKS = {"ext4": ("mkfs.ext4", "-q", "-F"), "XFS": ("mkfs.xfs", "-q", "-f")}
"""How an image becomes a file system."""
IMAGE_BYTES = 512 << 20
"""The size of an image beyond twice what is written there."""
COLOURS = {"tmpfs": "#1f6f8b", "ext4": "#d9822b", "XFS": "#7a7a7a"}
SHOWN = (0, 25, 50, 75, 100)
"""The percentiles that are written down."""
DPI = 120


@contextmanager
def image(folder: Path, name: str, size: int) -> Iterator[Path]:
    """Give a file system of its own in an image, which goes afterwards."""
    file, place = folder / f"{name}.image", folder / name
    place.mkdir()
    with file.open("wb") as opened:
        opened.truncate(size)
    subprocess.run([*DISKS[name], str(file)], check=True)  # noqa: S603
    subprocess.run(["mount", "-o", "loop", str(file), str(place)], check=True)  # noqa: S603, S607
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)  # noqa: S603, S607
        place.rmdir()
        file.unlink()


def refusal(disk: str) -> str | None:
    """Say why a file system cannot be made here."""
    if os.geteuid() != 0:
        return "only root mounts an image"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    tool = DISKS[disk][0]
    return None if shutil.which(tool) else f"{tool} is not installed"


def lines(setting: Setting) -> Iterator[Line]:
    """Measure both ways of IOR on a mount of a pool on each."""
    setting.absent["DAX"] = "measured in the machine with persistent memory (`make test-pmem`) only"
    size = ior.block(setting) // 4
    room = ior.RANKS * size + (128 << 20)
    for mode in ior.MODES:
        with ExitStack() as stack:
            runs: dict[str, Callable[[], Phases]] = {}
            for disk in ("tmpfs", *DISKS):
                why = refusal(disk) if disk in DISKS else None
                if why is not None:
                    setting.absent[disk] = why
                    continue
                below = setting.folder
                if disk in DISKS:
                    below = stack.enter_context(image(below, disk, 2 * room + IMAGE_BYTES))
                place = setting.folder / f"mount-{disk}"
                try:
                    stack.enter_context(mount(below / "pool", place, room))
                except engram.UnsupportedError as refused:
                    setting.absent["a pool's mount"] = str(refused)
                    return
                runs[disk] = ior.work(place, mode, size)
            samples = by_turns(runs, ior.QUICK if setting.quick else ior.REPETITIONS)
        for phase in ior.PHASES:
            yield Line(title(mode, phase), "us", [], samples[phase])


def title(mode: str, phase: str) -> str:
    """Name a line."""
    return f"{ior.title(mode, phase)}, by the file system below the pool"


def percentiles(lines: Sequence[Line]) -> dict[str, Any]:
    """Return MiB/s of the least, the middle and the greatest repetitions, by line."""
    found: dict[str, Any] = {}
    for line in lines:
        for disk, taken in line.samples.items():
            rates = sorted(ior.rate(seconds) for seconds in taken)
            at = {f"p{part}": rates[round(part / 100 * (len(rates) - 1))] for part in SHOWN}
            found.setdefault(line.title, {})[disk] = {name: round(at[name]) for name in at}
    return found


def main() -> None:
    """Draw the figure, a panel for each way and phase."""
    source, picture = Path(sys.argv[1]), Path(sys.argv[2])
    lines = {line["title"]: line for line in json.loads(source.read_text("utf-8"))["lines"]}
    panels = [(mode, phase) for mode in ior.MODES for phase in ior.PHASES]
    figure = Figure(figsize=(9, 5), layout="constrained")
    for axes, (mode, phase) in zip(figure.subplots(2, 3).flat, panels, strict=True):
        samples = lines[title(mode, phase)]["samples"]
        for disk, taken in samples.items():
            rates = sorted(ior.rate(seconds) / 1024 for seconds in taken)
            shares = [(place + 1) / len(rates) for place in range(len(rates))]
            axes.step([rates[0], *rates], [0, *shares], where="post", color=COLOURS[disk])
            axes.lines[-1].set_label(disk)
        axes.set_title(f"{mode}: {phase}", fontsize=9)
        axes.set_xlim(left=0)
        axes.set_xlabel("GiB/s", fontsize=8)
    figure.axes[0].set_ylabel("share of the repetitions")
    figure.axes[0].legend(fontsize=8)
    figure.suptitle("A mount's bandwidth, by the file system below its pool", fontsize=10)
    figure.savefig(picture, dpi=DPI)
    print(picture)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
