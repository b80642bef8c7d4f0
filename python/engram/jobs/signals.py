"""Signals that a batch system or a user sends to a job: what they ask for, and to whom they go."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_ASKED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
_BLINK_SECONDS = 0.1


class Signals:
    """Listens for signals that ask a job to end, within a with-block, in the main thread."""

    def __init__(self) -> None:
        self.first: int | None = None
        """The first that came."""
        self._interrupts = 0
        self._waiting: list[int] = []
        self._before: dict[int, Any] = {}
        self._program: subprocess.Popen[bytes] | None = None
        self._own_group = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _ASKED:
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:  # nohup has said so
                    self._before[number] = signal.signal(number, self._come)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _come(self, number: int, _frame: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        if self.first is None:
            self.first = number
        if number == signal.SIGINT and self._has_terminal():
            return  # the terminal has sent it to the program, too
        if self._program is None:
            self._waiting.append(number)
        else:
            self._send(number)

    def came(self) -> bool:
        """Whether the job is to end."""
        return self.first is not None

    def forget(self) -> None:
        """Have what came so far be no reason to stop: the job has ended for it."""
        self._interrupts = 0

    def insist(self) -> bool:
        """Whether Ctrl-C came twice since: what is under way is to be left as it is."""
        return self._interrupts > 1

    def run(
        self,
        words: list[str],
        environment: dict[str, str],
        grace: float,
        begun: Callable[[], None],
    ) -> int:
        """Run a program, and give what it ends with; one that was signalled, 128 and its number.

        `begun` is called once its process is there. What comes meanwhile is handed on to it, and to
        all that it has started. Once `grace` seconds have gone by since, they are killed.
        """
        self._own_group = not self._has_terminal()
        # On a terminal it stays in the foreground, where Ctrl-C reaches it without us.
        group = 0 if self._own_group else None
        self._program = subprocess.Popen(  # noqa: S603 - as it is asked
            words, env=environment, process_group=group
        )
        while self._waiting:  # what came before there was a program to hand it on to
            self._send(self._waiting.pop())
        ends: float | None = None
        try:
            begun()
            while (code := self._polled()) is None:
                if self.first is not None:
                    ends = ends or time.monotonic() + grace
                    if time.monotonic() >= ends:
                        self._send(signal.SIGKILL)
            if self.first is not None:
                self._send(signal.SIGKILL)  # what it has left behind
        except BaseException:
            self._send(signal.SIGKILL)
            self._program.wait()
            raise
        finally:
            self._program = None
        return 128 - code if code < 0 else code

    @property
    def program(self) -> int:
        """The process that runs; 0: none."""
        return 0 if self._program is None else self._program.pid

    def _polled(self) -> int | None:
        if self._program is None:
            return 0
        try:
            return self._program.wait(_BLINK_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def _send(self, number: int) -> None:
        program = self._program
        if program is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._own_group:
                os.killpg(program.pid, number)
            elif program.returncode is None:
                program.send_signal(number)

    @staticmethod
    def _has_terminal() -> bool:
        """Whether this process is in the foreground of a terminal."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
        return False
