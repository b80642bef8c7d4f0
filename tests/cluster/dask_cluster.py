"""A Dask cluster over hosts: a scheduler, workers that are single processes, and a client."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import distributed

from cluster.claims import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from cluster.hosts import Host
    from cluster.process import Process

PORT = 8786


class DaskCluster:
    """A scheduler on the first host, and a worker on each; the test's process has a `client`.

    A worker's name is that of its host, unless it is given another. A worker that ends is not
    started again: there is no nanny. `env` is for the scheduler and for all workers, such as
    `{"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "5s"}`.
    """

    client: Any
    """The client of the test's process, in the block."""

    def __init__(
        self,
        hosts: Sequence[Host],
        *,
        scheduler: Host | None = None,
        threads: int = 1,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._hosts, self._threads, self._options, self._env = hosts, threads, options, env
        self._place = scheduler or hosts[0]
        self.address = f"tcp://{self._place.address}:{PORT}"
        self.workers: dict[str, Process] = {}
        """The processes of the workers, by name."""
        self._last = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as last:
            self.start_scheduler()
            last.callback(self._end_all)
            for host in self._hosts:
                self.start_worker(host)
            self.client = distributed.Client(self.address, timeout=PATIENCE_S)
            last.callback(self.client.close)
            self.wait_for_workers()
            self._last = last.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._last.close()

    def start_scheduler(self) -> None:
        """Start the scheduler, also after it has ended: clients and workers find it again."""
        words = ["--host", self._place.address, "--port", str(PORT), "--no-dashboard"]
        self.scheduler = self._start(self._place, "dask_scheduler", words, "scheduler.log")

    def start_worker(self, host: Host, name: str = "", options: Sequence[str] = ()) -> Process:
        """Start a worker, and do not wait for it."""
        name = name or host.name
        folder = host.tmp / f"dask-{name}"
        words = [
            *(self.address, "--name", name, "--host", host.address),
            *("--no-nanny", "--no-dashboard", "--nthreads", str(self._threads)),
            *("--memory-limit", "0", "--local-directory", str(folder)),
            *(*self._options, *options),
        ]
        self.workers[name] = self._start(host, "dask_worker", words, f"worker-{name}.log")
        return self.workers[name]

    def _start(self, host: Host, program: str, words: list[str], log: str) -> Process:
        command = [sys.executable, "-m", f"distributed.cli.{program}", *words]
        return host.start(command, log=log, env=self._env)

    def addresses(self) -> dict[str, str]:
        """Return the addresses of the workers that the scheduler knows, by their names."""
        # Asked of the scheduler: what `Client.scheduler_info` keeps lacks workers at times.
        told = self.client.sync(self.client.scheduler.identity, n_workers=-1)
        return {str(worker["name"]): address for address, worker in told["workers"].items()}

    def wait_for_workers(self) -> None:
        """Wait until the scheduler knows all workers that run; one that has failed says why."""

        def all_are_known() -> bool:
            for name, worker in self.workers.items():
                if worker.has_failed:
                    raise AssertionError(f"worker {name} ended; it said:\n{worker.said()}")
            running = {name for name, worker in self.workers.items() if worker.is_running}
            return running <= self.addresses().keys()

        wait_for("all workers known", all_are_known)

    def _end_all(self) -> None:
        for process in (*self.workers.values(), self.scheduler):
            process.kill()
