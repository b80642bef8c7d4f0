"""dataClay: a Redis, a metadata service and a backend, which has the objects and runs methods.

It keeps objects in the backend's memory, and writes them to a file when memory is short or the
backend stops: what a method changes is not durable when the call returns.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.active.ways import servers

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence

    from bench.active.kernels import Values

ROOT = Path(__file__).parents[3]
WHO = "admin"
NOTHING = np.zeros(0)

if importlib.util.find_spec("dataclay") is None:
    raise ImportError("dataclay is not installed")
logging.getLogger("dataclay").setLevel(logging.WARNING)
with warnings.catch_warnings():  # that there is no folder of secrets
    warnings.simplefilter("ignore")
    from dataclay import Client

    from bench.active.ways.dataclay_blocks import Block, Tally


class DataClay:
    """Servers of its own; a handle is an object, the backend has what is in it."""

    name = "dataclay"

    def __init__(self, folder: Path) -> None:
        self.servers: list[subprocess.Popen[bytes]] = []
        store, metadata, backend = (servers.free_port() for _ in range(3))
        environment = {
            **os.environ,
            "DATACLAY_KV_HOST": servers.HOST,
            "DATACLAY_KV_PORT": str(store),
            "DATACLAY_STORAGE_PATH": str(folder),
            "DATACLAY_LOGLEVEL": "WARNING",
            **{f"DATACLAY_{word}": WHO for word in ("USERNAME", "PASSWORD", "DATASET")},
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.getenv("PYTHONPATH")])]),
        }
        for service, port in (("METADATA", metadata), ("BACKEND", backend)):
            environment |= {
                f"DATACLAY_{service}_HOST": servers.HOST,
                f"DATACLAY_{service}_LISTEN_ADDRESS": servers.HOST,
                f"DATACLAY_{service}_PORT": str(port),
            }
        try:
            redis = servers.start_redis(folder, "--port", str(store), "--bind", servers.HOST)
            self.begun(redis, store)
            for service, port in (("metadata", metadata), ("backend", backend)):
                command = [sys.executable, "-m", f"dataclay.{service}"]
                self.begun(servers.start(command, folder, environment), port)
            with contextlib.redirect_stdout(None), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.client = Client(
                    host=servers.HOST, port=metadata, username=WHO, password=WHO, dataset=WHO
                )
                self.client.start()
            servers.wait_until(self.is_ready, self.servers[-1])
        except BaseException:
            self.end()
            raise

    def begun(self, server: subprocess.Popen[bytes], port: int) -> None:
        """Wait for a server that was started."""
        self.servers.append(server)
        servers.wait_until(lambda: servers.listens(port), server)

    def is_ready(self) -> bool:
        """Whether an object can be stored: the backend listens before it makes itself known."""
        try:
            self.first = self.put(NOTHING)
        except RuntimeError:
            return False
        return True

    def put(self, values: Values) -> Block:
        block = Block(values)
        block.make_persistent()
        return block

    def put_many(self, many: Sequence[Values]) -> list[Block]:
        return [self.put(values) for values in many]

    def get(self, handle: Block) -> Values:
        values: Values = handle.data
        return values

    def ask(self, method: str, own: Block, *others: Any) -> Any:
        return own.ask(method, others)

    def keep(self, method: str, own: Block, *others: Any) -> Block:
        kept: Block = own.keep(method, others)
        return kept

    def change(self, method: str, own: Block, *others: Any) -> None:
        own.change(method, others)

    def drop(self, handles: Sequence[Block]) -> None:
        """Empty them: dataClay deletes no object."""
        for block in handles:
            block.data = NOTHING

    def spent(self) -> float:
        taken_s: float = self.first.spent()
        return taken_s

    def counter(self) -> Callable[[], object]:
        tally = Tally()
        tally.make_persistent()
        increment: Callable[[], object] = tally.increment
        return increment

    def make_small(self, count: int) -> None:
        for _ in range(count):
            Tally().make_persistent()

    def nothing(self) -> Callable[[], object]:
        tally = Tally()
        tally.make_persistent()
        nothing: Callable[[], object] = tally.nothing
        return nothing

    def end(self) -> None:
        """End the servers, the last one first."""
        while self.servers:
            servers.end(self.servers.pop())

    def close(self) -> None:
        self.client.stop()
        self.end()
