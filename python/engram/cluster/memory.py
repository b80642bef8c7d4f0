"""Memory of a worker of Dask's that is its pool's, and is not counted as its own.

Whoever reads a part in place has its pages mapped, and the kernel counts them as resident. Dask
compares what is resident with a worker's limit: it spills, pauses and restarts workers for memory
that goes with no process. So here pages that are shared are left out.
"""

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import Any


def spare_pools(client: Any) -> None:
    """Have all workers of a client, and those who watch them, leave shared pages out."""
    client.run(spare_worker)
    client.run(spare_nanny, nanny=True, on_error="ignore")


def spare_worker(dask_worker: Any) -> None:
    """Have a worker count its own pages alone, as its limit is meant."""
    dask_worker.monitor.get_process_memory = partial(own_bytes, os.getpid())


def own_bytes(pid: int) -> int:
    """Give the bytes of a process's resident pages that are no file's, and no shared memory's."""
    with contextlib.suppress(OSError):
        resident, shared = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0


def spare_nanny(dask_worker: Any) -> None:
    """Have a nanny, if that is what it is, restart its worker for the worker's own pages alone."""
    manager = dask_worker.memory_manager
    callback = dask_worker.periodic_callbacks.get("memory_monitor")
    if callback is not None and not isinstance(callback.callback, _Watch):
        callback.callback = _Watch(callback.callback, dask_worker, manager)


class _Watch:
    """A nanny's look at its worker's memory, left out while the worker's own pages are few."""

    def __init__(self, look: Any, nanny: Any, manager: Any) -> None:
        self._look, self._nanny, self._manager = look, nanny, manager

    def __call__(self) -> None:
        process = getattr(self._nanny.process, "process", None)
        limit, most = self._manager.memory_limit, self._manager.memory_terminate_fraction
        if process is None or not limit or most is False:
            return
        if own_bytes(process.pid) > limit * most:
            self._look()
