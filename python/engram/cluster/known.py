"""Where a process finds what it must know of a cluster: where its etcd is, and this host's pool.

It is a file of the user, `~/.local/state/engram/clusters/NAME.json` if nothing else is said, which
whoever serves a node writes. On hosts that share a home it is one for all of them.
"""

import contextlib
import json
import os
import re
import socket
from pathlib import Path
from typing import NamedTuple

from engram.errors import ArgumentError, CorruptError, NotFoundError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TTL_S = 15.0
"""How long a member's lease runs without being renewed, in seconds, if nothing else is said."""
TTL_LEAST_S = 1.0
TTL_MOST_S = 86_400.0
"""A member that falls silent counts for so long at most: a day."""
DEADLINE_S = 30.0
"""How long anything is waited for, in seconds, if nothing else is said."""
DEADLINE_MOST_S = 86_400.0


class Known(NamedTuple):
    """What a process must know of a cluster."""

    name: str
    etcd: list[str]
    """The endpoints of etcd, each `HOST:PORT`."""
    ttl: float = TTL_S
    """How long leases run, in seconds."""
    tls: str | None = None
    """The folder of this user's certificates; None: connections are plain."""
    pools: dict[str, str] = {}  # noqa: RUF012 - never changed in place
    """The node pool of each host by the host's name."""

    @property
    def pool(self) -> Path | None:
        """The node pool of this host, if it has one."""
        found = self.pools.get(socket.gethostname())
        return Path(found) if found and Path(found).exists() else None


def check_name(name: str) -> str:
    """Give a cluster's name, also where it is a URL, if it can be one.

    Raises
    ------
    ArgumentError
        If it has other signs than letters, digits, dots, dashes and underscores.

    """
    bare = name.removeprefix("engram://").rstrip("/") if isinstance(name, str) else ""
    if not _NAME.fullmatch(bare):
        raise ArgumentError(
            f"{name!r} cannot be a cluster's name: up to 64 letters, digits, dots, dashes and "
            "underscores, such as engram://job"
        )
    return bare


def check_ttl(ttl: float) -> float:
    """Give how long a lease runs, in seconds, if one can.

    Raises
    ------
    ArgumentError
        If it is no number, less than a second, or more than a day.

    """
    is_number = isinstance(ttl, int | float) and not isinstance(ttl, bool)
    if not is_number or not TTL_LEAST_S <= ttl <= TTL_MOST_S:
        raise ArgumentError(
            f"ttl {ttl!r} cannot be how long a lease runs: give seconds, from {TTL_LEAST_S:g} to "
            f"{TTL_MOST_S:g}"
        )
    return float(ttl)


def check_deadline(deadline: float) -> float:
    """Give how long anything is waited for, in seconds, if that can be.

    Raises
    ------
    ArgumentError
        If it is no number, not above 0, or more than a day.

    """
    is_number = isinstance(deadline, int | float) and not isinstance(deadline, bool)
    if not is_number or not 0 < deadline <= DEADLINE_MOST_S:
        raise ArgumentError(
            f"deadline {deadline!r} cannot be waited for: give seconds, above 0 and up to "
            f"{DEADLINE_MOST_S:g}"
        )
    return float(deadline)


def check_timeout(timeout: float) -> float:
    """Give how long one call waits, in seconds, if that can be; 0 does not wait.

    Raises
    ------
    ArgumentError
        If it is no number, below 0, or more than a day.

    """
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 <= timeout <= DEADLINE_MOST_S:
        raise ArgumentError(
            f"timeout {timeout!r} cannot be waited for: give seconds, from 0 to {DEADLINE_MOST_S:g}"
        )
    return float(timeout)


def folder() -> Path:
    """Give the folder of these files."""
    base = os.environ.get("XDG_STATE_HOME")
    return Path(base or "~/.local/state").expanduser() / "engram/clusters"


def place(name: str) -> Path:
    """Give the folder of what processes of this user keep of a cluster: it need not be there."""
    return folder() / f"{check_name(name)}.d"


def read(name: str) -> Known:
    """Read what is known of a cluster.

    Raises
    ------
    NotFoundError
        If nothing is.

    """
    path = folder() / f"{check_name(name)}.json"
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return Known(**said)
    except FileNotFoundError:
        raise NotFoundError(
            f"nothing is known here of the cluster {name!r}: {path} is not there. Start a node of "
            "it on this host, or open it with etcd=[…]"
        ) from None
    except (ValueError, TypeError) as error:
        raise CorruptError(f"{path} cannot be read: {error}; remove it, and start a node") from None


def learn(name: str, etcd: list[str]) -> None:
    """Write where else the etcd of a cluster is, of which something is known here."""
    with contextlib.suppress(NotFoundError, CorruptError):
        found = read(name)
        if more := [each for each in etcd if each not in found.etcd]:
            write(found._replace(etcd=[*found.etcd, *more]))


def write(known: Known) -> None:
    """Write what is known, beside the pools of other hosts that stand there already."""
    path = folder() / f"{known.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(NotFoundError, CorruptError):
        known = known._replace(pools={**read(known.name).pools, **known.pools})
    made = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    made.write_text(json.dumps(known._asdict(), indent=1), encoding="utf-8")
    made.replace(path)
