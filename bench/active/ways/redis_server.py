"""Redis: get a block's bytes from a server, compute here, set the result's bytes.

The quickest way of it: a Unix socket, bytes as they lie in an array, which are looked at where the
client has received them, and the client keeps dtypes and shapes in its handles. `RedisPickle` is
what programs do as a rule.
"""

from __future__ import annotations

import pickle
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import redis

from bench.active import kernels
from bench.active.ways import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.active.kernels import Values

RECEIVED_AT_ONCE = 1 << 20


class Key(NamedTuple):
    """Where a block is, and what its bytes mean."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Redis:
    """A server of its own; a handle is a key."""

    name = "redis"

    def __init__(self, folder: Path) -> None:
        place = folder / "socket"
        self.server = servers.start_redis(folder, "--port", "0", "--unixsocket", str(place))
        servers.wait_until(place.exists, self.server)
        url = f"unix://{place}"
        self.client = redis.Redis.from_url(url, socket_read_size=RECEIVED_AT_ONCE)
        self.numbers = count()

    def encoded(self, values: Values) -> Any:
        """Return what is sent for a block."""
        return np.ascontiguousarray(values).data.cast("B")

    def decoded(self, packed: bytes, key: Key) -> Values:
        """Return a block from what was sent."""
        return np.frombuffer(packed, key.dtype).reshape(key.shape)

    def put(self, values: Values) -> Key:
        key = Key(f"block-{next(self.numbers)}", values.dtype, values.shape)
        self.client.set(key.name, self.encoded(values))
        return key

    def put_many(self, many: Sequence[Values]) -> list[Key]:
        with self.client.pipeline(transaction=True) as pipeline:
            keys = [Key(f"block-{next(self.numbers)}", v.dtype, v.shape) for v in many]
            for key, values in zip(keys, many, strict=True):
                pipeline.set(key.name, self.encoded(values))
            pipeline.execute()
        return keys

    def get(self, handle: Key) -> Values:
        return self.decoded(self.client.get(handle.name), handle)

    def fetched(self, argument: Any) -> Any:
        """Return a block's values for a key; what is none stays as it is."""
        return self.get(argument) if isinstance(argument, Key) else argument

    def ask(self, method: str, own: Key, *others: Any) -> Any:
        return kernels.run(method, *map(self.fetched, (own, *others)))

    def keep(self, method: str, own: Key, *others: Any) -> Key:
        return self.put(self.ask(method, own, *others))

    def change(self, method: str, own: Key, *others: Any) -> None:
        values = np.array(self.get(own))
        kernels.run(method, *map(self.fetched, others), out=values)
        self.client.set(own.name, self.encoded(values))

    def drop(self, handles: Sequence[Key]) -> None:
        if handles:
            self.client.delete(*(key.name for key in handles))

    def spent(self) -> float:
        return kernels.spent()

    def counter(self) -> Callable[[], object]:
        self.client.set("counter", 0)
        return lambda: self.client.incr("counter")

    def make_small(self, count: int) -> None:
        for _ in range(count):
            self.client.set(f"small-{next(self.numbers)}", 0)

    def nothing(self) -> Callable[[], object]:
        ping: Callable[[], object] = self.client.ping
        return ping

    def close(self) -> None:
        self.client.close()
        servers.end(self.server)


class RedisPickle(Redis):
    """The same with pickles, over the loopback's TCP."""

    name = "redis-pickle"

    def __init__(self, folder: Path) -> None:
        port = servers.free_port()
        self.server = servers.start_redis(folder, "--port", str(port), "--bind", servers.HOST)
        servers.wait_until(lambda: servers.listens(port), self.server)
        self.client = redis.Redis(host=servers.HOST, port=port)
        self.numbers = count()

    def encoded(self, values: Values) -> Any:
        return pickle.dumps(values, protocol=pickle.HIGHEST_PROTOCOL)

    def decoded(self, packed: bytes, key: Key) -> Values:
        del key
        values: Values = pickle.loads(packed)  # noqa: S301 - of our own making
        return values
