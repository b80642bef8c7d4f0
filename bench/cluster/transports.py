"""How others bring an array to another process: Arrow Flight, and one worker of Dask to another."""

from __future__ import annotations

import contextlib
import mmap
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.harness import timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FLIGHT = """
import sys
import numpy as np, pyarrow as pa, pyarrow.flight as flight
values = np.random.default_rng(1).random(int(sys.argv[1]) // 8)
batch = pa.record_batch([pa.array(values)], names=["T"])
class Server(flight.FlightServerBase):
    def do_get(self, context, ticket):
        return flight.RecordBatchStream(pa.Table.from_batches([batch]))
server = Server("grpc://127.0.0.1:0")
print(server.port, flush=True)
server.serve()
"""


@contextlib.contextmanager
def flight(folder: Path, nbytes: int) -> Iterator[Callable[[], float]]:
    """Give what gets an array by Arrow Flight, and copies it into mapped memory; seconds."""
    from pyarrow import flight as arrow  # noqa: PLC0415 - a peer's

    words = [sys.executable, "-c", FLIGHT, str(nbytes)]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server,  # noqa: S603 - own
        (folder / "flight").open("w+b") as file,
    ):
        try:
            port = int((server.stdout or sys.stdin).readline())
            file.truncate(nbytes)
            with (
                _mapped(file.fileno(), nbytes) as into,
                arrow.connect(f"grpc://127.0.0.1:{port}") as client,
            ):
                yield lambda: timed(lambda: _got(client, into))
        finally:
            server.kill()


@contextlib.contextmanager
def _mapped(file: int, nbytes: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Give memory of a file, whose pages are there."""
    memory = mmap.mmap(file, nbytes)
    into = np.frombuffer(memory, np.float64)
    into[:] = 0
    yield into


def _got(client: object, into: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    from pyarrow import flight as arrow  # noqa: PLC0415 - a peer's

    at = 0
    for chunk in client.do_get(arrow.Ticket(b"")):  # type: ignore[attr-defined]
        values = chunk.data.column(0).to_numpy()
        into[at : at + len(values)] = values
        at += len(values)
    if at != len(into):
        raise OSError(f"{at} of {len(into)} values have come")


@contextlib.contextmanager
def workers(nbytes: int) -> Iterator[Callable[[], float]]:
    """Give what has a worker of Dask get an array from another one; seconds."""
    from distributed import Client, LocalCluster, wait  # noqa: PLC0415 - a peer

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, protocol="tcp"
        ) as local,
        Client(local) as client,
    ):
        one, other = (each.worker_address for each in local.workers.values())

        def get() -> float:
            # What a worker got it keeps, so it is another array each time.
            made = client.submit(_random, nbytes // 8, workers=[one], pure=False)
            wait(made)
            seconds = client.submit(_arrived, made, time.time(), workers=[other], pure=False)
            taken: float = seconds.result()
            return taken

        yield get


def _random(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.default_rng(1).random(count)


def _arrived(values: np.ndarray[tuple[int], np.dtype[np.float64]], begun: float) -> float:
    """Say how long it took until the values were here."""
    if not len(values):
        raise ValueError("nothing has come")
    return time.time() - begun
