"""Sealing what was written in place: each holder sums up its parts, and one transaction says so.

The sealed manifest is a publication of its own, and its parts are those that are there. So it has a
uuid of its own, and names the one by which its parts are asked for. Copies are made now: what has
some is never written again. A copy that is there already was left by a maker that died, or is of
one that seals the array, too. Its node knows which, and takes another when the first can never be
published: that is waited for.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engram.cluster import values
from engram.cluster.boxes import Box, decoded, raw_of
from engram.cluster.making import Holder, Made, Making, Places, give_back, may_be_published
from engram.cluster.natives import native
from engram.errors import ArgumentError, BusyError, ConflictError, ExistsError, NotFoundError

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster

_AT_ONCE = 8
_AGAIN_S = 0.1


def seal(cluster: Cluster, path: str, timeout: float) -> None:
    """Seal an array, unless it is sealed; a part that is written is waited for, in seconds.

    Raises
    ------
    NotFoundError
        If there is none of this name.
    ArgumentError
        If it is a group, or lies below one.
    BusyError
        If a process has memory of it for writing by then, or goes on to seal it.
    ConflictError
        If somebody else replaces it meanwhile.

    """
    draft = cluster._native.draft([path])
    found = cluster._native.look_up(path)
    if found is None:
        if path in cluster:
            raise ArgumentError(
                f"{path!r} lies below a group, where everything is published as it is stored: only "
                "arrays in parts, as create_array makes them, are sealed"
            )
        raise NotFoundError(f"there is no {path!r} in the cluster {cluster.name!r}")
    manifest, _ = decoded(path, *found)
    if manifest["sealed"]:
        return
    uuid = manifest["uuid"]
    holders: list[Holder] = [(each["node"], each["member"]) for each in manifest["holders"]]
    parts = list(enumerate(manifest["parts"]))

    waits = _Waits(path, timeout, time.monotonic() + timeout)

    def summed(numbered: tuple[int, dict[str, Any]]) -> int:
        number, part = numbered
        return _sum(cluster, waits, holders[part["h"][0]], uuid, number)

    with ThreadPoolExecutor(_AT_ONCE) as at_once:
        sums = list(at_once.map(summed, parts))
    making = Making(path, uuid, draft.maker, draft.begun)
    copies: list[Made] = []
    is_asked = False
    try:
        _copy(cluster, making, manifest, (holders, sums), copies)
        text = _sealed(manifest, draft.generation, holders, sums, copies)
        is_asked = True
        cluster._native.publish(draft, [text])
    except BaseException as error:
        if not (is_asked and may_be_published(error)):
            give_back(cluster, uuid, draft.maker, copies)
        raise


class _Waits(NamedTuple):
    """Which array is sealed, and how long and until when parts that are written are waited for."""

    path: str
    timeout: float
    until: float


def _sum(cluster: Cluster, waits: _Waits, holder: Holder, uuid: str, number: int) -> int:
    """Have a holder sum a part up, once nobody writes it."""
    while True:
        try:
            return cluster._native.seal_part(holder, uuid, number)
        except BusyError as error:
            if type(error) is not BusyError:  # it is not that of memory that is written
                raise
            if time.monotonic() < waits.until:
                continue
            hosts = {each.node: each.host for each in cluster.members}
            who = str(error).partition(" is locked by ")[2].partition(": waited")[0]
            raise BusyError(
                f"part {number} of {waits.path!r} on {hosts.get(holder[0], holder[0])} is still "
                f"written after {waits.timeout:g} s, by {who or 'somebody'}: let go of each array "
                "that part.array gave, and publish again; or wait longer (timeout=)"
            ) from error


def _copy(
    cluster: Cluster,
    making: Making,
    manifest: dict[str, Any],
    there: tuple[list[Holder], list[int]],
    copies: list[Made],
) -> None:
    """Make the copies of each part that the array is to have, at other hosts."""
    if manifest["replicas"] == 1:
        return
    places = Places(cluster, manifest["replicas"])
    dtype = values.dtype_of(manifest["dtype"])
    holders, sums = there
    for number, part in enumerate(manifest["parts"]):
        box = Box(tuple(part["o"]), tuple(part["n"]))
        own = [holders[at] for at in part["h"]]
        more = [holder for holder in places.beside(own[0]) if holder not in own]
        block = np.empty(box.counts, dtype)
        cluster._load(making.path, manifest["dtype"], manifest["shape"], box, raw_of(block))
        made: list[Holder] = []
        copies.append(Made(number, box, made, None))
        new = making.part(number, box, dtype)
        for holder in more:
            total = _made(cluster, making, holder, new, block)
            made.append(holder)
            if total != sums[number]:
                raise BusyError(
                    f"part {number} of {making.path!r} was written while it was published: have "
                    "its writers end, and publish it again"
                )


def _made(
    cluster: Cluster,
    making: Making,
    holder: Holder,
    new: native.NewPart,
    block: np.ndarray[Any, Any],
) -> int:
    """Make a copy at a holder; where another has made it, once that one cannot publish it."""
    until = time.monotonic() + cluster.deadline
    while True:
        try:
            return cluster._native.make_part(holder, new, raw_of(block))
        except ExistsError:
            path = making.path
            found = cluster._native.look_up(path)
            if found is None or json.loads(found[0])["uuid"] != making.uuid:
                raise ConflictError(f"{path!r} was published or replaced meanwhile") from None
            if time.monotonic() > until:
                raise BusyError(
                    f"another process publishes {path!r}, or has died while it did: try again "
                    "when its lease has ended"
                ) from None
            time.sleep(_AGAIN_S)


def _sealed(
    manifest: dict[str, Any],
    generation: int,
    holders: list[Holder],
    sums: list[int],
    copies: list[Made],
) -> str:
    """Give the manifest of the sealed array."""
    more = {each.number: each.holders for each in copies}
    every = list(dict.fromkeys([*holders, *(h for each in copies for h in each.holders)]))
    at = {holder: place for place, holder in enumerate(every)}
    parts = [
        {**part, "h": [*part["h"], *(at[holder] for holder in more.get(number, []))], "c": total}
        for number, (part, total) in enumerate(zip(manifest["parts"], sums, strict=True))
    ]
    sealed = {
        **manifest,
        "uuid": native.Cluster.new_uuid(),
        "made": manifest["uuid"],
        "generation": generation,
        "holders": [{"node": node, "member": member} for node, member in every],
        "sealed": True,
        "parts": parts,
    }
    return json.dumps(sealed)
