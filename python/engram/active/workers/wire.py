"""Messages between a program and its workers, over a socket that both were born with.

A message is a kind, a body and buffers: the body is a pickle, and the buffers are the arrays that
it refers to, as protocol 5 of pickle takes them out of it. So an array is written from where it
lies, and read to where it stays.

Pickle runs whatever the bytes name. Here they come from nobody else: one end of the socketpair is
the program's, the other its own child's; it has no name, no port and no file that others could
open, and is closed in all other children.
"""

import os
import pickle
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

HELLO, CALL, READY, RESULT, FAILURE, UNFIT = range(6)
"""What a message is: to the worker HELLO and CALL; back READY, and RESULT, FAILURE or UNFIT."""

APART: Final = 2048
"""Arrays of so many bytes go beside the pickle; smaller ones in it."""

_HEAD: Final = struct.Struct("<BQI")
_ROOM: Final = 1 << 16
_MOST_AT_ONCE: Final = 512
"""How many pieces one system call gets; the kernel takes 1024."""


class Message(NamedTuple):
    """What was sent, or is to be."""

    kind: int
    body: Any
    buffers: Sequence[Any] = ()


class Thrown(NamedTuple):
    """An exception whose class cannot be called with its `args` alone, as pickle does."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    state: dict[str, Any]

    def again(self) -> BaseException:
        """Make it again, without its `__init__`."""
        made = self.kind.__new__(self.kind, *self.args)
        made.args = self.args
        vars(made).update(self.state)
        return made


class Wire:
    """One end of the socket.

    Invariant: each message is answered before the next one, so nothing follows one that is read.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._room = bytearray(_ROOM)
        self._glance = bytearray(1)

    def send(self, message: Message) -> None:
        """Send a message; wait while the other side does not read.

        Raises
        ------
        OSError
            If the other side is gone.

        """
        kind, body, buffers = message
        sizes = [buffer.nbytes for buffer in buffers]
        head = _HEAD.pack(kind, len(body), len(sizes))
        if not sizes:
            whole = head + body
            sent = self._socket.send(whole)
            if sent != len(whole):
                self._socket.sendall(memoryview(whole)[sent:])
            return
        pieces = [memoryview(head + struct.pack(f"<{len(sizes)}Q", *sizes)), memoryview(body)]
        pieces += [buffer for buffer in buffers if buffer.nbytes]
        while pieces:
            sent = self._socket.sendmsg(pieces[:_MOST_AT_ONCE])
            while pieces and sent >= pieces[0].nbytes:
                sent -= pieces.pop(0).nbytes
            if sent:
                pieces[0] = pieces[0][sent:]

    def receive(self) -> Message:
        """Wait for a message.

        Raises
        ------
        EOFError, OSError
            If the other side is gone.

        """
        room = memoryview(self._room)
        have = self._fill(room, 0, _HEAD.size)
        kind, length, count = _HEAD.unpack_from(room)
        start = _HEAD.size + 8 * count
        end = start + length
        if end > len(room):
            larger = memoryview(bytearray(end))
            larger[:have] = room[:have]
            room = larger
        have = max(have, self._fill(room, have, end))
        body = bytes(room[start:end])
        buffers: list[Any] = []
        for size in struct.unpack_from(f"<{count}Q", room, _HEAD.size):
            buffer = np.empty(size, np.uint8).data
            early = min(have - end, size)
            buffer[:early] = room[end : end + early]
            end += early
            self._fill(buffer, early, size)
            buffers.append(buffer)
        return Message(kind, body, buffers)

    def comes(self, awake: float = 0.0) -> bool:
        """Tell whether something is there to read, or comes soon; or the other side is gone.

        It asks again and again for so many seconds: to be woken takes longer than a short call,
        where a processor has gone idle.
        """
        until = time.monotonic() + awake
        while True:
            try:
                self._socket.recv_into(self._glance, 1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
            else:
                return True

    def _fill(self, room: memoryview, have: int, need: int) -> int:
        """Read until there is as much as is needed, or more; tell how much there is."""
        while have < need:
            got = self._socket.recv_into(room[have:])
            if not got:
                raise EOFError
            have += got
        return have

    def fileno(self) -> int:
        """Give what can be polled."""
        return self._socket.fileno()

    def no_more(self) -> None:
        """Tell the other side that nothing more comes."""
        _quietly(self._socket.shutdown, socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        _quietly(self._socket.close)


def _quietly(function: Any, *arguments: Any) -> None:
    try:
        function(*arguments)
    except OSError:
        return


def apart(buffers: list[Any]) -> Any:
    """Give what decides, for each array in a pickle, whether it goes beside it."""

    def decide(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < APART:
            return True
        buffers.append(raw)
        return False

    return decide


def packed(kind: int, content: Any) -> Message:
    """Make a message of something that pickles."""
    buffers: list[Any] = []
    body = pickle.dumps(content, protocol=5, buffer_callback=apart(buffers))
    return Message(kind, body, buffers)


def kept(buffers: Iterable[Any]) -> list[Any]:
    """Copy buffers, so that they stay as they are while their message waits."""
    return [memoryview(bytes(buffer)) for buffer in buffers]


def pair() -> tuple[socket.socket, socket.socket]:
    """Make both ends; neither goes to children that are not given it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    assert not os.get_inheritable(ours.fileno())  # noqa: S101 - what the docstring above says
    return ours, theirs
