"""What the page tells of a pool as a whole: its index, objects, files, stages, space and nodes."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram import _engram, owners, stage
from engram.active.code import classes as stored
from engram.active.stored import collect
from engram.active.stored.home import home_of
from engram.active.stored.layout import ALIASES_OF, CLASS
from engram.errors import AccessError, CorruptError, EngramError, NotFoundError
from engram.mounts import mounts_of
from engram.web.members import blob_kind
from engram.web.served import cluster_at, pool_of

if TYPE_CHECKING:
    from engram.web.served import Served, ServedCluster
    from engram.web.working import Work

_OBJECTS = 1000
_CLASSES = 200
_FILES = 200
_GROUPS = 500
_KEYS = 1000
_SOURCE = 1 << 16
_LEASES = 1000
_NANO = 10**9


def index(served: Served) -> dict[str, Any]:
    """Return what the index is made of: attribute groups, keys, bytes."""
    figures = pool_of(served, "the index").root.index_stats()
    counts: Counter[str] = Counter()
    kinds: dict[str, str] = {}
    for each in figures.groups:
        counts.update(each.keys)
        kinds |= dict.fromkeys(each.keys, each.kind)
    keys_of = [(each, list(each.keys)[:_KEYS]) for each in figures.groups[:_GROUPS]]
    groups = [
        {
            "gid": f"{each.family}.{each.group}",
            "path": each.tag,
            "kind": each.kind,
            "keys": names,
            "frequencies": {name: each.keys[name] for name in names},
            "sf": each.sf,
            "objects": each.objects,
            "segments": each.blocks,
            "bytes": each.nbytes,
            "splits": len(each.bounds),
            "bounds": list(each.bounds),
        }
        for each, names in keys_of
    ]
    keys = [
        {"key": key, "objects": count, "kind": kinds[key]}
        for key, count in counts.most_common(_KEYS)
    ]
    plain = {name: value for name, value in figures.items() if isinstance(value, int)}
    told = {"groups": groups, "keys": keys, "bytes": figures.nbytes, "figures": plain}
    return told | {"tail": figures.tail, "tables": figures.tables}


def active(served: Served, work: Work) -> dict[str, Any]:
    """Return the classes of active objects, and the objects with what they refer to."""
    root = pool_of(served, "what is active").root
    home = home_of(root)
    classes = []
    for name in stored.stored_names(home)[:_CLASSES]:
        try:
            each = stored.stored_class(home, name)
        except (CorruptError, NotFoundError):
            continue
        classes.append(
            {
                "name": each.name,
                "version": each.version,
                "stored": each.stored.isoformat(timespec="seconds"),
                "owner": each.owner,
                "fields": {field: fact.kind for field, fact in each.fields.items()},
                "methods": each.methods,
                "source": each.source[:_SOURCE],
            }
        )
    objects: list[dict[str, Any]] = []
    found = list(islice(collect.objects(home), _OBJECTS + 1))
    for gid in found[:_OBJECTS]:
        work.go_on()
        try:
            objects.append(
                {
                    "id": f"{gid:x}",
                    "path": _path(root._namespace, gid),
                    "class": str(home.notes(gid, CLASS)),
                    "aliases": sorted(home.notes(gid, ALIASES_OF) or []),
                    "refs": sorted(
                        _path(root._namespace, each) for each in collect.references(home, gid)
                    ),
                    "bytes": collect.nbytes_of(home, gid),
                }
            )
        except NotFoundError:  # deleted meanwhile
            continue
        except CorruptError as error:
            objects.append({"id": f"{gid:x}", "class": "unreadable", "why": str(error), "refs": []})
    return {"classes": classes, "objects": objects, "cut": len(found) > _OBJECTS}


def _path(namespace: _engram.Namespace, gid: int) -> str:
    try:
        return _engram.path_of(namespace, True, gid)
    except NotFoundError:
        return f"{gid:x} (gone)"


def files(served: Served) -> dict[str, Any]:
    """Return the mounts of a pool, and its files, the newest first."""
    pool = pool_of(served, "a list of files")
    mounted = [{"path": str(each.path), "pid": each.pid} for each in mounts_of(pool.place)]
    result = pool.root.query('@dtype = "bytes"', order_by="@modified desc", limit=_FILES + 1)
    told = []
    for blob in islice(result, _FILES):
        try:
            posix = blob.posix
            told.append(
                {
                    "path": blob.path,
                    "kind": blob_kind(blob._namespace, blob.oid),
                    "bytes": posix.size,
                    "mode": f"{posix.mode & 0o7777:04o}",
                    "owner": owners.user(posix.uid),
                    "modified": _moment(posix.mtime_ns),
                }
            )
        except NotFoundError:  # deleted meanwhile
            continue
    return {"mounts": mounted, "files": told, "cut": len(result) > _FILES}


def stages(served: Served) -> dict[str, Any]:
    """Return the stages of a pool.

    Their log is looked at by what writes it, which a pool that is open for reading refuses: so the
    pool is opened for a moment, as `engram stage status` does.
    """
    pool = pool_of(served, "a list of stages")
    place = pool.root if pool.pool.mode == "r+" else pool.place
    found = stage.stages(place, namespace=pool.root.name)
    return {
        "stages": [
            {
                "name": each.name,
                "direction": each.direction,
                "state": each.state,
                "paths": [list(pair) for pair in each.paths],
                "progress": each.progress._asdict(),
                "begun": _moment(int(each.begun * _NANO)),
                "noted": _moment(int(each.noted * _NANO)),
                "pid": each.pid,
                "troubles": [trouble._asdict() for trouble in each.troubles],
            }
            for each in found
        ]
    }


def _moment(nanoseconds: int) -> str:
    """Return a moment in ISO 8601, in UTC."""
    when = dt.datetime.fromtimestamp(nanoseconds / _NANO, dt.UTC)
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")


def space(served: Served) -> dict[str, Any]:
    """Return where the bytes of a pool are, and who holds what."""
    pool = pool_of(served, "space")
    root = pool.root
    there, stats = root.space, root.stats()
    kinds = ("used", "pending", "free", "vacant", "arena", "largest_free", "catalog")
    holders = [
        {
            "pid": lease["pid"],
            "user": owners.user(lease["user"]),
            "program": _program(lease["pid"]),
            "since": _moment(lease["since"]),
            "views": lease["views"],
            "leases": lease["reserved"],
            "held": lease["held"],
            "behind": lease["behind"],
            "alive": lease["alive"],
            "own": lease["own"],
        }
        for lease in stats["leases"][:_LEASES]
    ]
    told: dict[str, Any] = {
        "size": there.size,
        "used": there.used,
        "free": max(there.size - there.used, 0),
        "kinds": {kind: getattr(there, kind) for kind in kinds},
        "holders": holders,
        "deleted": {"viewed": stats["held"], "reclaimable": stats["reclaimable"]},
        "commits": stats["commits"],
    }
    told["quotas"] = list(_quotas(pool.pool))
    told["devices"] = [
        {
            "path": str(each.path),
            "filesystem": each.filesystem,
            "medium": each.medium,
            "durable": each.durable,
            "free": each.free,
        }
        for each in pool.pool.devices
    ]
    return told


def _quotas(pool: Any) -> Any:
    """Yield the bound of each namespace, where this user may know it."""
    for name in pool.namespaces:
        about = pool.namespaces.info(name)
        told = {"namespace": name, "owner": owners.user(about.owner), "mode": f"{about.mode:04o}"}
        try:
            there = pool.namespaces[name].space
        except (AccessError, EngramError):
            yield told
        else:
            yield told | {"size": there.size, "used": there.used}


def _program(pid: int) -> str | None:
    """Return a process's name; None if it cannot be seen."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def nodes(served: Served) -> dict[str, Any]:
    """Return the nodes of a cluster."""
    cluster: ServedCluster = cluster_at(served)
    told = []
    for each in cluster.cluster.members:
        room = cluster.cluster.space(each.node) if each.state == "serving" else None
        told.append(
            {
                "id": each.node,
                "host": each.host,
                "address": each.address,
                "pool": each.path,
                "state": each.state,
                "since": each.since.isoformat(timespec="seconds") if each.since else None,
                "weight": each.weight,
                "size": None if room is None else room.size,
                "free": None if room is None else room.free,
            }
        )
    return {"nodes": told, "epoch": cluster.cluster.epoch}
