"""A program that the rig has started, as a test looks at it and ends it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.claims import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Process:
    """A program at work; what it says is in its log."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.command, self.log = list(command), log
        with log.open("ab") as out:
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(env),
                cwd="/",
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Return its number, which is the same in every host."""
        return self._popen.pid

    @property
    def name(self) -> str:
        """Return what the kernel calls its program; "" if it has ended."""
        try:
            return Path(f"/proc/{self.pid}/comm").read_text().strip() if self.is_running else ""
        except OSError:
            return ""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; one that is stopped runs."""
        return self._popen.poll() is None

    @property
    def has_failed(self) -> bool:
        """Whether it has ended by itself, and not well."""
        return not self.is_running and self._popen.returncode > 0

    def said(self) -> str:
        """Return what it has said, or its end."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-8000:]

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """Wait for its end, and return its code: negative if a signal ended it."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"after {seconds} s {self.command} runs; it said:\n{self.said()}"
            ) from None

    def signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """End it by SIGKILL, and wait until it is gone; nothing happens if it has ended."""
        self._popen.kill()
        self._popen.wait()

    def end(self, seconds: float = 10.0) -> int:
        """Ask it to end by SIGTERM, end it by SIGKILL if it does not, and return its code."""
        self._popen.terminate()
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._popen.returncode

    def stop(self) -> None:
        """Stop it by SIGSTOP: when this returns, none of its threads runs."""
        self.signal(signal.SIGSTOP)
        wait_for(f"process {self.pid} stopped", lambda: states(self.pid) == {"T"})

    def cont(self) -> None:
        """Let it go on after `stop`."""
        self.signal(signal.SIGCONT)
        wait_for(f"process {self.pid} going on", lambda: "T" not in states(self.pid))


def states(pid: int) -> set[str]:
    """Return the states of a process's threads, in the letters of /proc; none if it is gone."""
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            text = (task / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found.add(text.rpartition(")")[2].split()[0])
    return found
