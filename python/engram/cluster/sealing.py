"""Sealing what was written in place: each holder sums up its parts, and one transaction says so.

The sealed manifest is a publication of its own, and its parts are those that are there. So it has a
uuid of its own, and names the one by which its parts are asked for. Copies are made now: what has
some is never written again. A copy that is there already was left by a maker that died, or is of
one that seals the array, too. Its node knows which, and takes another when the first can never be
published: that is waited for.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.cluster import values
from engram.cluster.boxes import Box, decoded, raw_of
from engram.cluster.known import check_timeout
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
        If it is a group, or lies below one, or `timeout` is no number of seconds from 0 to a day.
    BusyError
        If a process has memory of it for writing by then, or goes on to seal it.
    ConflictError
        If somebody else replaces it meanwhile.

    """
    timeout = check_timeout(timeout)
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

    sums = _Summing(cluster, path, uuid, timeout).all(
        [(number, holders[part["h"][0]]) for number, part in parts]
    )
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


class _Summing:
    """Holders sum up the parts of one array, each once nobody writes it any more.

    The first error ends it, and so does an interrupt: what is still waited for then is given up.
    """

    def __init__(self, cluster: Cluster, path: str, uuid: str, timeout: float) -> None:
        self._cluster = cluster
        self._path = path
        self._uuid = uuid
        self._timeout = timeout
        self._until = time.monotonic() + timeout
        self._given_up = threading.Event()

    def all(self, parts: list[tuple[int, Holder]]) -> list[int]:
        """Give the sums of parts, each by its number and its first holder."""
        with ThreadPoolExecutor(_AT_ONCE) as at_once:
            try:
                sums = [at_once.submit(self._sum, *part) for part in parts]
                for each in as_completed(sums):
                    each.result()
            except BaseException:
                self._given_up.set()
                at_once.shutdown(wait=False, cancel_futures=True)
                raise
        return [each.result() for each in sums]

    def _sum(self, number: int, holder: Holder) -> int:
        while True:
            try:
                return self._cluster._native.seal_part(holder, self._uuid, number)
            except BusyError as error:
                if type(error) is not BusyError:  # it is not that of memory that is written
                    raise
                if time.monotonic() >= self._until or self._given_up.wait(_AGAIN_S):
                    hosts = {each.node: each.host for each in self._cluster.members}
                    raise BusyError(
                        f"part {number} of {self._path!r} on {hosts.get(holder[0], holder[0])} is "
                        f"still written after {self._timeout:g} s: let go of each array that "
                        "part.array gave, and publish again; or wait longer (timeout=). There: "
                        f"{error}"
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
