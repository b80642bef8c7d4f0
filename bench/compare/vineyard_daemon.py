"""vineyard: immutable shared-memory objects of a daemon, which is started here."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import vineyard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peer import Values

MEMORY = "1024Mi"
PATIENCE_S = 10.0


class Vineyard:
    """A daemon with its metadata in its own memory; names are kept on this side."""

    name = "vineyard"
    replaces = True

    def __init__(self, folder: Path) -> None:
        socket = folder / "peer.socket"
        program = Path(vineyard.__file__).parent / "bdist" / "vineyardd"
        command = [str(program), "--socket", str(socket), "--size", MEMORY]
        command += ["--meta", "local", "--rpc=false"]
        self.daemon = subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + PATIENCE_S
        while not socket.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.client = vineyard.connect(str(socket))
        self.ids: dict[str, vineyard.ObjectID] = {}

    def reset(self) -> None:
        self.client.delete(list(self.ids.values()))
        self.ids.clear()

    def put(self, name: str, values: Values) -> None:
        self.create(name, values)

    def total(self, name: str) -> float:
        return float(self.client.get(self.ids[name]).sum())

    def create(self, name: str, values: Values) -> None:
        old = self.ids.pop(name, None)
        if old is not None:
            self.client.delete(old)
        self.ids[name] = self.client.put(values)

    def create_many(self, names: Sequence[str], values: Values) -> None:
        for name in names:
            self.create(name, values)

    def read(self, name: str) -> Values:
        values: Values = self.client.get(self.ids[name]).copy()
        return values

    def close(self) -> None:
        self.client.close()
        self.daemon.terminate()
        self.daemon.wait()
