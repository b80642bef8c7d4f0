"""The main job's processes: started apart, watched through their logs, one of them killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from engram.demo.layout import wait_until

if TYPE_CHECKING:
    from pathlib import Path


class Worker:
    """A process of its own (not a fork), with its output kept in files."""

    def __init__(self, module: str, arguments: list[str], output: Path) -> None:
        """Start `python -m engram.demo.<module>` with `arguments`."""
        self.output = output
        command = [sys.executable, "-m", f"engram.demo.{module}", *arguments]
        with output.open("wb") as standard, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=standard, stderr=errors)  # noqa: S603

    @property
    def errors(self) -> Path:
        """The file with what it wrote to standard error."""
        return self.output.with_suffix(".err")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def kill(self) -> None:
        """Kill it, as a node's operator or the kernel's memory killer would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def check(self) -> None:
        """Raise RuntimeError with its last words if it has failed."""
        code = self.process.poll()
        if code not in (None, 0):
            words = self.errors.read_text(encoding="utf-8", errors="replace").strip()
            message = f"process {self.pid} ended with {code}:\n{words[-2000:]}"
            raise RuntimeError(message)

    def finish(self) -> str:
        """Wait for its end; what it printed."""
        wait_until(lambda: self.process.poll() is not None, f"process {self.pid} to end")
        self.check()
        return self.output.read_text(encoding="utf-8")


class Log:
    """What a writer, and its successor, has acknowledged."""

    def __init__(self, path: Path) -> None:
        """Read the log at `path`, which may not be there yet."""
        self.path = path

    def steps(self, event: str) -> list[int]:
        """Return the steps of which the log has `event` (`begin` or `published`), in its order."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="ascii").split("\n")[:-1]  # whole ones
        words = [line.split() for line in lines]
        return [int(step) for kind, step in words if kind == event]


class Writer(Worker):
    """A writer of one strip."""

    def __init__(self, pool: Path, strip: str, steps: int, folder: Path, attempt: int = 1) -> None:
        """Start it; its log is `<folder>/<strip>.log`, whichever attempt it is."""
        self.log = Log(folder / f"{strip}.log")
        arguments = [str(pool), strip, str(steps), str(self.log.path)]
        super().__init__("writer", arguments, folder / f"{strip}-{attempt}.out")
