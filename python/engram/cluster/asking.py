"""What Python itself asks a node server: whether a part is there, and its bytes, by plain HTTP.

Any client of HTTP can ask so. It is for `verify`, which wants a part of one holder, and no other:
what reads values takes any holder.
"""

from __future__ import annotations

import hashlib
import http.client
import ssl
from typing import TYPE_CHECKING, NamedTuple

from engram.cluster import certificates
from engram.errors import AccessError, FencedError, NodeAwayError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from engram.cluster.cluster import Member

_PIECE = 1 << 20
_STATUS = {403: AccessError, 404: NotFoundError, 421: NodeAwayError, 503: FencedError}


class PartThere(NamedTuple):
    """A part, as a holder tells of it."""

    nbytes: int
    digest: bytes | None
    """What its bytes sum up to here; None where they were not asked for."""


def digest_of(data: bytes | memoryview) -> bytes:
    """Sum up bytes, to compare them with others."""
    return hashlib.blake2b(data, digest_size=16).digest()


def ask_part(
    member: Member,
    uuid: str,
    number: int,
    *,
    deadline: float,
    tls: Path | None,
    whole: bool = False,
) -> PartThere:
    """Ask a node for a part, in the life that the member is; with `whole`, for all of its bytes.

    Parameters
    ----------
    member
        The node.
    uuid, number
        The part: the uuid with which it was made, and its number.
    deadline
        How long any answer is waited for, in seconds.
    tls
        The folder of certificates; None: connections are plain.
    whole
        Whether its bytes are pulled and summed up.

    Raises
    ------
    NotFoundError
        If the part is not there.
    NodeAwayError
        If the node does not answer, or is another member by now.
    FencedError
        If the node is no member for the moment.
    AccessError
        If the certificate is of a user who may not have it.

    """
    host, _, port = member.address.rpartition(":")
    connection = _connection(host.strip("[]"), int(port), deadline, tls)
    try:
        target = f"/parts/{uuid}/{number}?member={member.id}"
        connection.request("GET" if whole else "HEAD", target)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            said = answer.read(4096).decode("utf-8", "replace").strip() or answer.reason
            raise _STATUS.get(answer.status, NodeAwayError)(f"{member.host}: {said}")
        told = int(answer.headers.get("Content-Length", -1))
        if not whole:
            return PartThere(told, None)
        total, summed = 0, hashlib.blake2b(digest_size=16)
        while piece := answer.read(_PIECE):
            total += len(piece)
            summed.update(piece)
        return PartThere(total, summed.digest())
    except (OSError, http.client.HTTPException) as error:
        raise NodeAwayError(
            f"{member.host} ({member.address}) does not answer: {error}; try again later"
        ) from error
    finally:
        connection.close()


def _connection(
    host: str, port: int, deadline: float, tls: Path | None
) -> http.client.HTTPConnection:
    if tls is None:
        return http.client.HTTPConnection(host, port, timeout=deadline)
    own = certificates.files_of(tls) if not (tls / "user.pem").exists() else _of_user(tls)
    context = ssl.create_default_context(cafile=str(own["ca"]))
    context.load_cert_chain(own["cert"], own["key"])
    return http.client.HTTPSConnection(host, port, timeout=deadline, context=context)


def _of_user(tls: Path) -> dict[str, Path]:
    return {"ca": tls / "ca.pem", "cert": tls / "user.pem", "key": tls / "user.key"}
