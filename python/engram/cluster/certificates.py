"""A cluster's certificates: in which folder a process finds its own, and who issues them.

A cluster has an authority of its own, a folder that nobody else can read. Processes that can read
it issue their certificates themselves, so hosts that share a home need nothing more. Other hosts
and other users are given a folder each, with a certificate that `certify` has issued.
"""

import fcntl
import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from engram.cluster import known
from engram.cluster.natives import native
from engram.errors import ArgumentError, NotFoundError

OWN: Final = "own"
NONE: Final = "none"
_FOLDER: Final = "tls"
_HOST: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
"""Names of hosts, as a certificate can have them."""


def own_folder(name: str) -> Path:
    """Give the folder of the authority that this user has for a cluster; it need not be there."""
    return known.place(name) / _FOLDER


def make_authority(name: str, folder: Path | None = None) -> Path:
    """Make the authority of a cluster, unless it is there; give its folder."""
    bare = known.check_name(name)
    path = own_folder(bare) if folder is None else folder
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(path):  # another process may be about to
        if not (path / "ca.pem").exists():
            for left in ("ca.key", "users.key", "users.pem"):  # of a process that was killed
                (path / left).unlink(missing_ok=True)
        native.make_authority(path, bare)
    return path


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes of this user from writing in a folder of certificates."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def of_node(name: str, tls: str | os.PathLike[str] | None, address: str) -> Path | None:
    """Give the folder from which a node has its certificate; None: its connections are plain.

    Parameters
    ----------
    name
        The cluster's name.
    tls
        A folder; "own": that of this user's authority for the cluster, which is made if it is not
        there; "none": plain; None: "own" beyond loopback, and plain on it, but for what is known.
    address
        Where the node is to be reached.

    """
    if tls is None:
        tls = _known(name)
    if tls is None:
        tls = NONE if is_loopback(address) else OWN
    if tls == NONE:
        return None
    return make_authority(name) if tls == OWN else _there(Path(tls))


def of_user(name: str, tls: str | os.PathLike[str] | None) -> Path | None:
    """Give the folder from which a process that opens a cluster has its certificate."""
    if tls is None:
        tls = _known(name)
    if tls is None or tls == NONE:
        return None
    return _there(own_folder(name) if tls == OWN else Path(tls))


def _known(name: str) -> str | None:
    with suppress(NotFoundError):
        return known.read(name).tls
    return None


def _there(folder: Path) -> Path:
    if not folder.is_dir():
        raise NotFoundError(
            f"there is no folder of certificates at {str(folder)!r}: `engram cluster certify` "
            "writes one, to be copied there"
        )
    return folder.absolute()


def is_loopback(address: str) -> bool:
    """Tell whether an address is reached from this host alone."""
    with suppress(ValueError):
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    return False


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    return False


def certify(
    name: str,
    out: str | os.PathLike[str],
    *,
    hosts: Sequence[str] = (),
    user: int | None = None,
    authority: str | os.PathLike[str] | None = None,
) -> Path:
    """Issue a certificate into a folder: of a host of the cluster, or of another user.

    A host's processes serve a node with it, and do whatever members do. A user reads what has been
    published, and does nothing else. Copy the folder to where it is used, and keep it from others:
    who has it is whom it speaks for.

    Parameters
    ----------
    name
        The cluster's name.
    out
        The folder; it is made if it is not there.
    hosts
        The names and addresses at which others find the host.
    user
        The uid of another user.
    authority
        The folder of the authority; without it, this user's own for the cluster.

    Raises
    ------
    ArgumentError
        If it is neither a host's nor a user's, or `out` is a file.
    NotFoundError
        If there is no authority.

    """
    if isinstance(hosts, str):
        hosts = [hosts]
    if user is not None and (type(user) is not int or not 0 <= user < 1 << 32):
        raise ArgumentError(f"user={user!r} is no uid: give the number of a user")
    if (user is None) == (not hosts):
        raise ArgumentError("a certificate is of a host, by its names, or of a user: give one")
    for host in hosts:
        if not isinstance(host, str) or not (_is_address(host) or _HOST.fullmatch(host)):
            raise ArgumentError(
                f"host {host!r} is no name of a host, and no address: give such as h3 or 10.0.0.3"
            )
    source = own_folder(name) if authority is None else Path(authority)
    if not (source / "ca.key").exists():
        raise NotFoundError(
            f"there is no authority of the cluster {name!r} in {str(source)!r}: start a node of it "
            'beyond loopback, or with tls="own"'
        )
    folder = Path(out).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ArgumentError(
            f"{str(folder)!r} cannot be a folder, as there is a file in its place or above it: "
            "name another"
        ) from None
    if user is None:
        native.certify_host(source, list(hosts), folder, "member")
    else:
        native.certify_user(source, user, folder)
    return folder


def files_of(folder: Path, *, host: str | None = None) -> dict[str, Path]:
    """Give the files that other programs take, such as etcd and Dask: `ca`, `cert` and `key`.

    They are of this host, issued into the folder if the authority is there.
    """
    member = folder / "member.pem"
    if member.exists():
        return {"ca": folder / "ca.pem", "cert": member, "key": folder / "member.key"}
    own = f"files-{socket.gethostname()}-{host or 'here'}".replace(":", "_")
    hosts = [host] if host is not None else []
    with _locked(folder):  # a pair that another process has made is taken as it is
        if not all((folder / f"{own}.{kind}").exists() for kind in ("pem", "key")):
            native.certify_host(folder, hosts, folder, own)
    return {
        "ca": folder / "ca.pem",
        "cert": folder / f"{own}.pem",
        "key": folder / f"{own}.key",
    }
