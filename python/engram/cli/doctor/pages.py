"""Huge pages: what the settings say, and whether a pool has them.

The settings alone do not tell: on a tmpfs with `huge=never` the engine still gets huge pages, by
asking for each. So the memory of a small pool, made for this, is looked at.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from engram.cli.doctor.finding import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    import engram
    from engram.cli.doctor.place import Place

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_AREA = re.compile(r"^[0-9a-f]+-[0-9a-f]+ .*$", re.MULTILINE)
_HUGE = re.compile(r"^(?:Shmem|File)PmdMapped: +([1-9]\d*) kB", re.MULTILINE)


def findings(place: Place, pool: engram.Pool) -> Iterator[Finding]:
    """Yield what is to be told of huge pages, with a small pool at this place."""
    pool.scratch((1 << 20,), "u1")[:] = 1  # so that there is memory to look at
    options = (place.standing.options or "").split(",")
    mount = next((word for word in options if word.startswith("huge=")), "huge=never, the default")
    has_them = _mapped_huge(pool)
    numbers: dict[str, object] = {"huge": has_them, "shmem_enabled": _setting("shmem_enabled")}
    if has_them:
        told = f"a pool has them here (mount: {mount})" if place.in_memory else "a pool has them"
        yield Finding("huge pages", told, numbers=numbers)
    elif not place.in_memory:
        told = "none: files on a disk are mapped by small pages"
        yield Finding("huge pages", told, numbers=numbers)
    else:
        remedy = f"sudo mount -o remount,huge=advise {place.mount}, or Linux 6.1 or newer"
        told = f"none, though the engine asks for them (mount: {mount}): a fault at each 4 KiB"
        yield Finding("huge pages", told, Verdict.fair, remedy, numbers)
    yield from _private()


def _private() -> Iterator[Finding]:
    """Yield whether memory that is not a pool's has huge pages."""
    setting = _setting("enabled")
    if setting == "never":
        remedy = f"echo madvise | sudo tee {_SETTINGS / 'enabled'}"
        told = "never, on this machine: numpy's own arrays have none either"
        yield Finding("THP", told, Verdict.fair, remedy)
    elif setting is not None:
        who = "for all" if setting == "always" else "for programs that ask for them, as numpy does"
        yield Finding("THP", f"{setting}: {who}")


def _mapped_huge(pool: engram.Pool) -> bool:
    """Whether any of a pool's memory is mapped by huge pages in this process."""
    smaps = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
    starts = [found.start() for found in _AREA.finditer(smaps)]
    areas = (smaps[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True))
    own = f"/{pool.uuid}/"
    return any(own in area.partition("\n")[0] and _HUGE.search(area) for area in areas)


def _setting(name: str) -> str | None:
    """Return the word in brackets of a setting; None if the kernel has none."""
    with contextlib.suppress(OSError):
        found = re.search(r"\[(\S+)\]", (_SETTINGS / name).read_text(encoding="ascii"))
        return found[1] if found else None
    return None
