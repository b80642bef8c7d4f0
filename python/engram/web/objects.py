"""What one object is: its facts, attributes, decoding, coordinates, and how it can be looked at."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np

import engram
from engram import conventions
from engram.active.stored.layout import OBJECTS
from engram.conventions import Role
from engram.conventions.reading import can_be_drawn
from engram.errors import ArgumentError, EngramError, NotFoundError
from engram.web import picks
from engram.web.members import blob_kind
from engram.web.served import ServedCluster
from engram.web.sources import Source, encoding_of
from engram.web.wire import attributes, dtype_text, number, plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engram.decoded import Encoding
    from engram.web.served import Served
    from engram.web.working import Work

PLACES_MOST = 8192
_LOOKED_AT = 1 << 16
"""So many places of a coordinate tell whether it is regular."""
_READ_MOST = 64 << 20
"""But so many bytes of chunks are read for that."""
_NOISE = 1e-4
_PARTS = 1000
_PLANE = 2


def about(served: Served, path: str, work: Work) -> dict[str, Any]:
    """Return all that the page shows of an object or a group beside its values."""
    thing = served.found(path)
    told: dict[str, Any] = {"path": path.strip("/"), "name": path.strip("/").rpartition("/")[2]}
    if isinstance(served, ServedCluster):
        told |= _of_cluster(served, thing)
    else:
        told |= _of_pool(thing)
    told["attrs"] = attributes(thing.attrs)
    if told["kind"] == "array":
        told |= _of_array(served, thing, work)
    elif told["kind"] == "table":
        told |= _of_table(thing)
    return told


def array_at(served: Served, path: str) -> Any:
    """Give the array at a path.

    Raises
    ------
    ArgumentError
        If what is there is no array.

    """
    thing = served.found(path)
    if isinstance(thing, engram.Blob | engram.Table) or getattr(thing, "dtype", None) is None:
        raise ArgumentError(f"{path!r} is no array: look at it as what it is")
    return thing


def _of_pool(thing: Any) -> dict[str, Any]:
    posix = thing.posix
    told: dict[str, Any] = {
        "kind": _kind(thing),
        "owner": thing.owner,
        "mode": f"{posix.mode & 0o7777:04o}",
        "scope": thing.scope,
        "created": _iso(thing.created),
        "modified": _iso(thing.modified),
    }
    if isinstance(thing, engram.Array | engram.Blob):
        told |= {"oid": f"{thing.oid:x}", "bytes": thing.nbytes, "index": thing.index}
    if isinstance(thing, engram.Array):
        told["stored_bytes"] = thing.stored_nbytes
        if thing.chunks is not None:
            told |= {"chunks": list(thing.chunks), "codec": thing.codec}
    if told["kind"] == "link":
        told["target"] = plain(bytes(thing[:]).decode("utf-8", "replace"))
    return told


def _kind(thing: Any) -> str:
    if isinstance(thing, engram.Group):
        return "active" if thing.path.rpartition("/")[0] == OBJECTS else "group"
    if isinstance(thing, engram.Table):
        return "table"
    if isinstance(thing, engram.Blob):
        return blob_kind(thing._namespace, thing._id)
    return "array"


def _iso(when: dt.datetime) -> str:
    return when.astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _of_cluster(served: ServedCluster, thing: Any) -> dict[str, Any]:
    from engram.cluster.listing import is_group  # noqa: PLC0415 - a pool needs none of it

    if is_group(thing):
        nodes = getattr(thing, "nodes", None)
        return {"kind": "group"} | ({} if nodes is None else {"nodes": nodes})
    if isinstance(thing, engram.Array | engram.Blob | engram.Table):  # on this host's node
        return _of_pool(thing) | {"nodes": [served.cluster.node]}
    is_blob = getattr(thing, "dtype", None) is None
    told: dict[str, Any] = {"kind": "blob" if is_blob else "array", "bytes": thing.nbytes}
    if hasattr(thing, "parts"):
        hosts = {each.node: each.host for each in served.cluster.members}
        told["parts"] = [
            {
                "offsets": list(part.box.offsets),
                "counts": list(part.box.counts),
                "bytes": part.nbytes,
                "nodes": list(part.nodes),
                "hosts": [hosts.get(node, node) for node in part.nodes],
            }
            for part in thing.parts[:_PARTS]
        ]
        return told | {"sealed": thing.sealed, "replicas": thing.replicas}
    told |= {"owner": thing.owner, "created": _iso(thing.created), "nodes": [thing.node]}
    return told | {"modified": _iso(thing.modified)}


def _of_table(table: engram.Table) -> dict[str, Any]:
    fields = [{"name": each.name, "dtype": str(each.type)} for each in table.schema]
    told = {"shape": [len(table), len(fields)], "fields": fields, "views": ["table"]}
    return told | {"bytes": table.nbytes, "parts": table.num_parts}


def _of_array(served: Served, array: Any, work: Work) -> dict[str, Any]:
    encoding = encoding_of(array)
    dims = array.dims
    told: dict[str, Any] = {
        "dtype": dtype_text(array.dtype),
        "shape": list(array.shape),
        "dims": list(dims) if dims else [],
        "decoding": _decoding(array, encoding),
    }
    if array.dtype.names:
        told["fields"] = [
            {"name": name, "dtype": dtype_text(array.dtype[name])} for name in array.dtype.names
        ]
    found = {dim: _coordinate(served, array, dim) for dim in dims or ()}
    coordinates = {dim: each for dim, each in found.items() if each is not None}
    told["coordinates"] = {
        dim: _coordinate_facts(served, each, work) for dim, each in coordinates.items()
    }
    told["views"] = _views(array, coordinates)
    return told


def _decoding(array: Any, encoding: Encoding) -> dict[str, Any]:
    attrs = array.attrs
    told: dict[str, Any] = {"kind": "none"}
    if encoding.times is not None:
        told = {"kind": "time"}
    elif encoding._scale is not None or encoding._offset is not None or encoding._fills:
        told = {"kind": "scale"}
        for name, value in (
            *(("scale_factor", encoding._scale), ("add_offset", encoding._offset)),
            ("fill", encoding._fills[0] if encoding._fills else None),
        ):
            if value is not None:
                told[name] = plain(value)
    elif "flag_meanings" in attrs and ("flag_values" in attrs or "flag_masks" in attrs):
        told = {"kind": "flags", "meanings": plain(attrs["flag_meanings"])}
        for name in ("flag_values", "flag_masks"):
            if name in attrs:
                told[name.removeprefix("flag_")] = plain(attrs[name])
    units = attrs.get("units")
    return told | ({"units": units} if isinstance(units, str) else {})


def _views(array: Any, coordinates: dict[str, Any]) -> list[str]:
    views = ["table"]
    if not can_be_drawn(array.dtype) or not array.ndim or not array.size:
        return views
    views.append("line")
    if array.ndim >= _PLANE:
        views.append("image")
    roles = {conventions.role(each) for each in coordinates.values()}
    if {Role.latitude, Role.longitude} <= roles:
        views.append("map")
    return [*views, "histogram"]


def _coordinate(served: Served, array: Any, dim: str) -> Any:
    """Give the array that has a dimension's places, if there is one."""
    if isinstance(array, engram.Array):
        return conventions.coordinate(array, dim)
    size = dict(zip(array.dims or (), array.shape, strict=False)).get(dim)
    if not dim or "/" in dim or not isinstance(served, ServedCluster):
        return None
    above = served.relative(array.path).rpartition("/")[0]
    while True:  # beside it, or above
        path = f"{above}/{dim}".strip("/")
        if path != served.relative(array.path):
            try:
                found = served.found(path)
            except (NotFoundError, EngramError):
                found = None
            if getattr(found, "dtype", None) is not None and tuple(found.shape) == (size,):
                return found if found.dtype.kind in "biufM" else None
        if not above:
            return None
        above = above.rpartition("/")[0]


def _coordinate_facts(served: Served, array: Any, work: Work) -> dict[str, Any]:
    path = served.relative(array.path) if isinstance(served, ServedCluster) else array.path
    told: dict[str, Any] = {"path": path, "role": conventions.role(array).value}
    units = array.attrs.get("units")
    if isinstance(units, str):
        told["units"] = units
    size = array.shape[0]
    if not size:
        return told | {"first": None, "last": None, "regular": False}
    source = Source(array, work)
    step = max(-(-size // _LOOKED_AT), 1)
    if step > 1 and source.chunks is not None:  # rather few chunks than parts of them all
        few = max(_READ_MOST // source.chunk_bytes, _PLANE)
        step = max(step, -(-size // few)) if -(-size // source.chunks[0]) > few else step
    raw = source.raw((slice(0, size, step),))
    ends = np.concatenate([raw[:1], source.raw((slice(size - 1, size),))])
    first, last = shown(source, ends)
    return told | {"first": first, "last": last, "regular": _is_regular(raw)}


def _is_regular(raw: NDArray[Any]) -> bool:
    """Whether the places that were looked at lie at equal distances."""
    values = raw.astype("i8").astype("f8") if raw.dtype.kind == "M" else raw.astype("f8")
    if len(values) < _PLANE:
        return True
    steps = np.diff(values)
    mean = (values[-1] - values[0]) / (len(values) - 1)
    return bool(np.isfinite(mean) and mean and np.all(np.abs(steps - mean) <= _NOISE * abs(mean)))


def shown(source: Source, raw: NDArray[Any]) -> list[Any]:
    """Return places as the page shows them: times as ISO 8601, else numbers."""
    if source.dtype.kind == "M" or source.encoding.times is not None:
        if isinstance(source.array, engram.Array):
            times = conventions.times(source.array, raw)
        else:
            times = source.encoding.decode(raw).astype("M8[s]").tolist()
        if times is not None:
            return [plain(word) for word in conventions.iso(times)]
    values = source.decode(raw)
    return [
        number(each) if isinstance(each, int | float) else plain(each) for each in values.tolist()
    ]


def places(served: Served, path: str, dim: str, index: str, work: Work) -> dict[str, Any]:
    """Return places of a dimension: the values of its coordinate, or the indices.

    Raises
    ------
    ArgumentError
        If the array has no such dimension, or more is asked for than is told at once.

    """
    array = array_at(served, path)
    if not array.dims or dim not in array.dims:
        names = ", ".join(array.dims or ()) or "none with a name"
        raise ArgumentError(f"{path!r} has no dimension {dim!r}: it has {names}")
    size = array.shape[array.dims.index(dim)]
    pick = picks.read(index or ":", (size,))
    part = pick.parts[0]
    along = part if isinstance(part, range) else range(part, part + 1)
    if len(along) > PLACES_MOST:
        raise ArgumentError(
            f"{len(along):,} places are asked for: ask for {PLACES_MOST:,} at most, such as "
            f"::{-(-len(along) // PLACES_MOST)}"
        )
    found = _coordinate(served, array, dim)
    if found is None:
        return {"values": list(along), "index": True}
    source = Source(found, work)
    raw = source.raw((slice(along.start, along.stop, along.step),))
    units = found.attrs.get("units")
    told: dict[str, Any] = {"values": shown(source, raw)}
    return told | ({"units": units} if isinstance(units, str) else {})
