"""What bounds this process: addresses, open files, file sizes, mappings, overcommitting."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from engram.cli.doctor.finding import Finding, Verdict
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNLIMITED = resource.RLIM_INFINITY
_PER_NAMESPACE = 1 << 40
"""The addresses that a namespace reserves; half of it, and again, if there are fewer."""
_LEAST = 65 << 30
"""The addresses without which no namespace can be opened: its catalog has 64 GiB of them."""
_FILES_WANTED = 256
_MAPS_WANTED = 10_000
_NEVER = 2
"""The mode of overcommitting in which memory is counted when it is promised."""


def findings() -> Iterator[Finding]:
    """Yield the limits of this process and of the kernel that a pool can meet."""
    yield _addresses()
    yield _files()
    yield _file_size()
    yield _locked()
    yield from _kernel()


def _addresses() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == _UNLIMITED:
        return Finding("addresses", "unlimited (ulimit -v)")
    told = f"{human(soft)} (ulimit -v); an open namespace reserves up to {human(_PER_NAMESPACE)}"
    verdict = Verdict.wrong if soft < _LEAST else Verdict.fair
    return Finding("addresses", told, verdict, "ulimit -v unlimited", {"limit": soft})


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = f"{soft} (ulimit -n); an open namespace takes a few"
    if soft >= _FILES_WANTED:
        return Finding("open files", told, numbers={"limit": soft})
    return Finding("open files", told, Verdict.fair, f"ulimit -n {hard}", {"limit": soft})


def _file_size() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft == _UNLIMITED:
        return Finding("file size", "unlimited (ulimit -f)")
    told = f"{human(soft)} (ulimit -f): a pool's file beyond it ends the process"
    return Finding("file size", told, Verdict.wrong, "ulimit -f unlimited", {"limit": soft})


def _locked() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    shown = "unlimited" if soft == _UNLIMITED else human(soft)
    return Finding("locked memory", f"{shown} (ulimit -l); a pool locks none")


def _kernel() -> Iterator[Finding]:
    maps = _number("/proc/sys/vm/max_map_count")
    if maps is not None:
        few = maps < _MAPS_WANTED
        yield Finding(
            "mappings",
            f"{maps} a process (vm.max_map_count); a pool takes one for each span",
            Verdict.fair if few else Verdict.good,
            "sudo sysctl vm.max_map_count=65530" if few else "",
            {"limit": maps},
        )
    mode = _number("/proc/sys/vm/overcommit_memory")
    if mode == _NEVER:
        told = "never (vm.overcommit_memory=2): reserving much for private memory can fail"
        yield Finding("overcommit", told, Verdict.fair, "sudo sysctl vm.overcommit_memory=0")
    elif mode is not None:
        yield Finding("overcommit", f"allowed (vm.overcommit_memory={mode})")


def _number(file: str) -> int | None:
    """Return the number in a file of the kernel's; None if it has none."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path(file).read_text(encoding="ascii"))
    return None
