"""The stack of child processes, where this process has been given little (`ulimit -s`).

The limit of the main thread's stack goes from a process to its children. Under 64 KiB Python dies
as it starts, of the same signal that damage may cause. So children are begun with as much as
processes have by default, as far as the hard limit allows; and what a child does for long runs in a
thread, whose stack is no matter of that limit.
"""

import contextlib
import os
import resource
import threading
from collections.abc import Callable, Iterator

ENOUGH = 8 << 20
"""The bytes that processes have by default."""

SCARCE = 1 << 20
"""With fewer, the stack may be what a child has died of as it started."""

_one_at_a_time = threading.Lock()
_before: list[tuple[int, int]] = []
"""The limits that hold again once a child has begun, while one begins."""


def _in_forked_child() -> None:
    """Put right what another thread of the parent was at: it is not here."""
    global _one_at_a_time  # noqa: PLW0603
    _one_at_a_time = threading.Lock()
    while _before:
        resource.setrlimit(resource.RLIMIT_STACK, _before.pop())


os.register_at_fork(after_in_child=_in_forked_child)


@contextlib.contextmanager
def for_child() -> Iterator[None]:
    """Begin a child process in this with-block: it has enough stack, where the limits allow that.

    The limit is the whole process's, and is what it was at the end of the block.
    """
    with _one_at_a_time:
        soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
        most = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
        if soft == resource.RLIM_INFINITY or soft >= most:
            yield
            return
        _before.append((soft, hard))
        try:
            resource.setrlimit(resource.RLIMIT_STACK, (most, hard))
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
            _before.clear()


def begun() -> None:
    """Say on stderr, in a child, that Python has started, and has lived so far."""
    os.write(2, b".")


def scarcity() -> str | None:
    """Say that a child has little stack, and what to do; None if it has enough."""
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if hard == resource.RLIM_INFINITY or hard >= SCARCE:
        return None
    return (
        f"a process may have a stack of no more than {hard // 1024} KiB here (`ulimit -H -s`), and "
        f"Python dies of that as it starts: begin again where it may have {ENOUGH // 1024} KiB"
    )


def in_thread(work: Callable[[], None]) -> None:
    """Do something in a thread with enough stack; what it raises is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it goes to the caller
            raised.append(error)

    before = threading.stack_size(ENOUGH)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if raised:
        raise raised[0]
