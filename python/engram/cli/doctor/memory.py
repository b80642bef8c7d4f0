"""How much memory a pool may take before the kernel kills: cgroups, the machine, swap."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engram import machine
from engram.cli.doctor.finding import Finding, Verdict
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.cli.doctor.place import Place

_WANTED = 1 << 30
_NEEDED = 64 << 20
_MACHINE = "/proc/meminfo"
_NODES = Path("/sys/devices/system/node/has_memory")


def findings(place: Place) -> Iterator[Finding]:
    """Yield the limits of memory, each with what is left of it."""
    limits = machine.memory_limits()
    if not any(file != _MACHINE for file, _, _ in limits):
        yield Finding("memory limit", "none: no cgroup bounds this process")
    for file, limit, used in limits:
        yield _limit(file, limit, used)
    if place.in_memory:
        yield _swap(place)
        yield from _numa(place)


def left() -> int:
    """Return the bytes of memory that this process may still take."""
    return min((limit - used for _, limit, used in machine.memory_limits()), default=0)


def _limit(file: str, limit: int, used: int) -> Finding:
    """Tell of one limit."""
    left = max(limit - used, 0)
    verdict = Verdict.wrong if left < _NEEDED else Verdict.fair if left < _WANTED else Verdict.good
    numbers: dict[str, object] = {"limit": limit, "used": used, "left": left}
    if file == _MACHINE:
        told = f"{human(left)} of {human(limit)} can be had (with swap)"
        remedy = "" if verdict is Verdict.good else "end what holds it: `ps aux --sort -rss | head`"
        return Finding("memory", told, verdict, remedy, numbers)
    told = f"{human(left)} left of {human(limit)}; beyond it the kernel kills ({file})"
    remedy = "" if verdict is Verdict.good else _raise(file, limit)
    return Finding("memory limit", told, verdict, remedy, numbers)


def _raise(file: str, limit: int) -> str:
    """Return the command that doubles a limit."""
    return f"ask the scheduler for more (Slurm: --mem), or: echo {2 * limit} | sudo tee {file}"


def _swap(place: Place) -> Finding:
    """Tell whether the kernel may move the pool to a disk."""
    options = (place.standing.options or "").split(",")
    if "noswap" in options:
        return Finding("swap", "the mount keeps its files out of swap")
    areas = Path("/proc/swaps")
    lines = areas.read_text(encoding="utf-8").splitlines()[1:] if areas.exists() else []
    if not lines:
        return Finding("swap", "none: what is in memory stays there")
    told = "the kernel may move the pool's memory to swap when it is short"
    remedy = f"sudo swapoff -a, or mount a tmpfs of your own with -o noswap (not {place.mount})"
    return Finding("swap", told, Verdict.fair, remedy)


def _numa(place: Place) -> Iterator[Finding]:
    """Tell on which nodes a pool's memory lies, where there is more than one."""
    try:
        nodes = _NODES.read_text(encoding="ascii").strip()
    except OSError:
        return
    if not set(nodes) & set(",-"):
        return
    options = (place.standing.options or "").split(",")
    policy = next((word for word in options if word.startswith("mpol=")), "")
    if policy:
        yield Finding("NUMA", f"nodes {nodes} have memory; the mount chooses ({policy})")
        return
    told = f"nodes {nodes} have memory; space lies at the node of the process that takes it"
    remedy = f"sudo mount -o remount,mpol=interleave {place.mount} spreads new space over all"
    yield Finding("NUMA", told, remedy=remedy)
