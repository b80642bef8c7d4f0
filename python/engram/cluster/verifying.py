"""Verifying a cluster: the pools of its nodes, and manifests against the parts that they name.

A pool is walked on its own host alone, since only there it can be opened: those of other hosts are
named with the command that does so. Each holder is asked for each part that a manifest names, by
HTTP. Of a sealed array all bytes are read: once as any reader does, who compares them with the
checksum of the manifest, and then from each further holder, which must have the same.

What is told apart: what is wrong; what cannot be looked at for now, since a node is away; what is
to be looked at elsewhere; and parts that no manifest names, which are no damage: their publication
may be under way, and else the node frees them.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.cluster import values
from engram.cluster.asking import ask_part, digest_of
from engram.cluster.boxes import Box, raw_of
from engram.cluster.natives import native
from engram.cluster.space import pool_here
from engram.errors import (
    AccessError,
    BusyError,
    CorruptError,
    EngramError,
    NotFoundError,
    PartsLostError,
)
from engram.pool import open as open_pool
from engram.verifying import Report
from engram.verifying import verify as verify_pool

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster, Member
    from engram.pool import Pool

PARTS = ".cluster/parts"


@dataclass(frozen=True)
class ClusterReport(Report):
    """What `Cluster.verify` found; it is true if nothing is wrong.

    `path` is the cluster's URL. `counts` has nodes, pools (that were walked), names, arrays,
    groups, parts, copies (parts at all their holders), checked_bytes, and unnamed parts. `skipped`
    names what cannot be looked at for now, with the reason.
    """

    elsewhere: list[str] = field(default_factory=list)
    """Pools of other hosts, each with the command that verifies it there."""

    unnamed: list[str] = field(default_factory=list)
    """Parts in the pools that were walked which no manifest names: no damage."""

    pools: dict[str, Report] = field(default_factory=dict)
    """The reports of the pools that were walked, by their nodes."""


def verify(cluster: Cluster | str, *, checksums: bool = True) -> ClusterReport:
    """Verify a cluster: one that is open, or by its name or URL; see `Cluster.verify`.

    Raises
    ------
    NotFoundError
        If nothing is known here of a cluster of this name.
    CoordinatorError
        If etcd does not answer.

    """
    if not isinstance(cluster, str):
        return _Verifying(cluster, checksums=checksums).run()
    from engram.cluster.cluster import open as open_cluster  # noqa: PLC0415 - it knows this module

    with open_cluster(cluster) as opened:
        return _Verifying(opened, checksums=checksums).run()


class _Verifying:
    """One look at all of a cluster."""

    def __init__(self, cluster: Cluster, *, checksums: bool) -> None:
        self.cluster = cluster
        self._sums = checksums
        etcd, self._tls = cluster._given
        self._deadline, ttl = cluster.deadline, cluster.ttl
        # One that has no pool of its own asks node servers for everything, and so compares all.
        self._reader = native.Cluster(
            cluster.name, etcd, deadline=self._deadline, ttl=ttl, tls_folder=self._tls
        )
        self.members = {each.node: each for each in cluster.members}
        self._counts: Counter[str] = Counter()
        self._problems: list[str] = []
        self._skipped: dict[str, None] = {}
        self._elsewhere: list[str] = []
        self._unnamed: list[str] = []
        self._reports: dict[str, Report] = {}
        self._pools: dict[str, Pool] = {}
        self._named: dict[str, set[str]] = {}
        """The parts that manifests name at each node, each as `UUID/NUMBER`."""

    def run(self) -> ClusterReport:
        """Look at everything."""
        try:
            self._walk_pools()
            held = {node: _held(pool) for node, pool in self._pools.items()}
            # What lies in the pools was listed before: what is published since is not unnamed.
            for path, text in self.cluster._native.names(""):
                manifest = json.loads(text)
                self._counts["names"] += 1
                if manifest["kind"] == "array":
                    self._array(path, manifest)
                else:
                    self._tree(path, manifest, text)
            self._tell_unnamed(held)
        finally:
            self._reader.close()
            for pool in self._pools.values():
                pool.close()
        names = ("names", "arrays", "groups", "parts", "copies", "checked_bytes")
        counts = {
            "nodes": len(self.members),
            "pools": len(self._reports),
            **{name: self._counts[name] for name in names},
            "unnamed": len(self._unnamed),
        }
        told = (self._problems, list(self._skipped), self._elsewhere, self._unnamed, self._reports)
        return ClusterReport(self.cluster.url(), counts, *told)

    def _walk_pools(self) -> None:
        for node, member in self.members.items():
            path = pool_here(self.cluster, member)
            if path is None:
                command = f"`engram verify {member.path}` on {member.host}"
                self._elsewhere.append(f"the pool of node {node}: {command}")
                continue
            try:
                report = verify_pool(path)
                self._reports[node] = report
                self._problems += [f"the pool {path} of node {node}: {p}" for p in report.problems]
                if report:
                    self._pools[node] = open_pool(path, "r")
            except EngramError as error:
                self._skipped[f"the pool {path} of node {node}: {error}"] = None

    # Arrays

    def _array(self, path: str, manifest: dict[str, Any]) -> None:
        """Compare the manifest of an array with its parts."""
        self._counts["arrays"] += 1
        holders = manifest["holders"]
        uuid = manifest.get("made", manifest["uuid"])
        for number, part in enumerate(manifest["parts"]):
            self._counts["parts"] += 1
            there: list[Member] = []
            for at in part["h"]:
                node, member = holders[at]["node"], holders[at]["member"]
                self._named.setdefault(node, set()).add(f"{uuid}/{number}")
                what = f"part {number} of {path!r} at {self._called(node)}"
                holder = self._holder(node, member, what)
                if holder is not None and self._is_there(path, manifest, number, holder):
                    there.append(holder)
            if self._sums and "c" in part and there:
                self._compare(path, manifest, number, there)

    def _called(self, node: str) -> str:
        member = self.members.get(node)
        return f"node {node}" if member is None else f"{member.host} (node {node})"

    def _holder(self, node: str, member: int, what: str) -> Member | None:
        """Give the node that holds something, if it can be asked."""
        found = self.members.get(node)
        if found is None:
            self._problems.append(f"{what}: the cluster's map has no such node")
        elif found.state == "lost":
            self._problems.append(f"{what}: the node is lost, with what lay on it alone")
        elif found.state != "serving":
            self._skipped[f"{what}: the node is away since {found.since}"] = None
        elif int(found.id, 16) != member:
            why = f"it is member {found.id} now, and has not entered it as {member:x} yet"
            self._skipped[f"{what}: the node has come back: {why}"] = None
        else:
            return found
        return None

    def _is_there(self, path: str, manifest: dict[str, Any], number: int, holder: Member) -> bool:
        """Whether a holder has a part, of the size that it must have, as what it must be."""
        what = f"part {number} of {path!r} at {self._called(holder.node)}"
        uuid = manifest.get("made", manifest["uuid"])
        part = manifest["parts"][number]
        dtype = values.dtype_of(manifest["dtype"])
        expected = int(np.prod(part["n"], dtype=np.int64)) * dtype.itemsize
        try:
            found = ask_part(holder, uuid, number, deadline=self._deadline, tls=self._tls)
        except NotFoundError:
            if self._is_current(path, manifest):
                self._problems.append(f"{what}: it is not there")
            return False
        except (BusyError, AccessError) as error:
            self._skipped[f"{what}: {error}"] = None
            return False
        self._counts["copies"] += 1
        if found.nbytes != expected:
            self._problems.append(f"{what}: it has {found.nbytes} bytes, and not {expected}")
            return False
        pool = self._pools.get(holder.node)
        return pool is None or self._is_as_told(pool, f"{uuid}/{number}", part, dtype, what)

    def _is_as_told(
        self, pool: Pool, name: str, part: dict[str, Any], dtype: np.dtype[Any], what: str
    ) -> bool:
        """Whether a part of a pool here has the box, dtype and checksum that the manifest has."""
        try:
            kept = pool[f"{PARTS}/{name}"]
            mark = json.loads(kept._origin)
        except (NotFoundError, ValueError):
            self._problems.append(f"{what}: its record in the pool says nothing of a part")
            return False
        facts = [
            ("dtype", kept.dtype, dtype),
            ("box", (list(mark["offsets"]), list(kept.shape)), (part["o"], part["n"])),
        ]
        if "c" in part:
            facts.append(("checksum", mark.get("checksum"), part["c"]))
        wrong = [
            f"{what}: its {fact} is {found} there, and {expected} in the manifest"
            for fact, found, expected in facts
            if found != expected
        ]
        self._problems += wrong
        return not wrong

    def _is_current(self, path: str, manifest: dict[str, Any]) -> bool:
        """Whether the manifest is that of now still: else what it names may be gone."""
        found = self.cluster._native.look_up(path)
        return found is not None and json.loads(found[0])["uuid"] == manifest["uuid"]

    def _compare(
        self, path: str, manifest: dict[str, Any], number: int, there: list[Member]
    ) -> None:
        """Compare the bytes of a sealed part with its checksum, at each holder."""
        part = manifest["parts"][number]
        box = Box(tuple(part["o"]), tuple(part["n"]))
        out = np.empty(box.counts, values.dtype_of(manifest["dtype"]))
        raw = raw_of(out)
        said = (
            manifest["dtype"],
            list(manifest["shape"]),
            list(box.offsets),
            list(box.counts),
            raw,
        )
        try:
            text, _ = self._reader.load(path, *said)
        except (CorruptError, PartsLostError) as error:
            self._problems.append(f"part {number} of {path!r}: {error}")
            return
        except NotFoundError:
            return  # removed meanwhile
        except BusyError as error:
            if "other bytes" in str(error):
                self._problems.append(f"part {number} of {path!r}: {error}")
            else:
                self._skipped[f"part {number} of {path!r}: {error}"] = None
            return
        if json.loads(text)["uuid"] != manifest["uuid"]:
            return  # replaced meanwhile
        self._counts["checked_bytes"] += raw.nbytes
        if len(there) > 1:
            self._compare_copies(path, manifest, number, there, digest_of(raw.data))

    def _compare_copies(
        self,
        path: str,
        manifest: dict[str, Any],
        number: int,
        there: list[Member],
        digest: bytes,
    ) -> None:
        """Compare each holder's bytes with those that are known to be right."""
        uuid = manifest.get("made", manifest["uuid"])
        for holder in there:
            what = f"part {number} of {path!r} at {self._called(holder.node)}"
            try:
                found = ask_part(
                    holder, uuid, number, deadline=self._deadline, tls=self._tls, whole=True
                )
            except (NotFoundError, BusyError, AccessError) as error:
                if self._is_current(path, manifest):
                    self._skipped[f"{what}: {error}"] = None
                continue
            self._counts["checked_bytes"] += found.nbytes
            if found.digest != digest:
                self._problems.append(f"{what}: it has other bytes than were published")

    # Groups

    def _tree(self, path: str, manifest: dict[str, Any], text: str) -> None:
        """Look whether each holder of a group has it."""
        self._counts["groups"] += 1
        tree = native.Tree(self._reader, path, text)
        for place, each in enumerate(manifest["holders"]):
            self._named.setdefault(each["node"], set()).add(f"{manifest['uuid']}/0")
            what = f"the group {path!r} at {self._called(each['node'])}"
            if self._holder(each["node"], each["member"], what) is None:
                continue
            try:
                tree.list(place, "", "", 1)
            except NotFoundError:
                if self._is_current(path, manifest):
                    self._problems.append(f"{what}: it is not there")
            except (BusyError, AccessError) as error:
                self._skipped[f"{what}: {error}"] = None

    # What no manifest names

    def _tell_unnamed(self, held: dict[str, dict[str, str]]) -> None:
        for node, parts in held.items():
            for name, told in parts.items():
                if name not in self._named.get(node, ()):
                    self._unnamed.append(f"{told} at {self._called(node)}")


def _held(pool: Pool) -> dict[str, str]:
    """Give the parts that lie in a pool, each as `UUID/NUMBER`, with what is told of it."""
    if PARTS not in pool:
        return {}
    found = {}
    for uuid, parts in pool[PARTS].items():
        for number, part in parts.items():
            try:
                path = json.loads(part._origin or b"{}").get("path")
            except ValueError:
                path = None
            found[f"{uuid}/{number}"] = f"{PARTS}/{uuid}/{number}, of {path!r}, {part.nbytes} bytes"
    return found
