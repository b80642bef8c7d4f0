"""What a dump says of a member: a block of fields that is the same wherever the member was made.

A block has what describes a member and its values' sum. What differs from one pool to another of
the same contents (ids, owners, times, what an import kept of its file, parts of tables) are further
fields, `MORE`, which are asked for apart.

A pool has a block of its settings, and a namespace one of its own, where all namespaces are dumped.

The sum is SHA-256 of the values in the order of C, in their own byte order, without the bytes of a
dtype that mean nothing. So it does not depend on chunks and codecs. Of strings of variable length
it is of the bytes of UTF-8, each string after its length (8 bytes, little-endian).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

import engram
from engram import owners
from engram.cli import describe
from engram.cli.literals import attribute, dtype_text, quoted, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engram.cli.describe import Member
    from engram.pool import Pool

    Fields = dict[str, str]

MORE = (
    *("oid", "owner", "created", "modified", "stored_nbytes", "parts", "origin"),
    *("uuid", "paths", "group"),
)
"""Fields that pools of the same contents do not share."""

MAGIC = "# engram-dump"
VERSION = 1
END = "# end"
"""The last line of a dump, by which one that is cut off is known."""

SUM = "sha256"
NO_VALUES = "no-values"
ALL = "all"
ALL_NAMESPACES = "all-namespaces"
ERROR = "error"
"""The field that stands where something could not be read: in place of the sum, or of all."""

MEMBERS = "members"
"""The field of a namespace that may not be entered: its members are left out."""

UNREADABLE = "unreadable"
"""The kind of a member that could not be read at all."""

POOL, NAMESPACE = "pool", "namespace"
"""The kinds of what stands above the members, where all namespaces are dumped."""

ATTRIBUTE = "attr "
"""What stands before the key in the name of an attribute's field."""

KEYED = (ATTRIBUTE, "column ", "setting ")
"""What the names of fields begin with that have a key; `=` follows it."""

_ACTIVE = ".active/"
"""What the paths of active objects begin with."""

_PIECE = 16 << 20
"""So many bytes of values are read at a time, unless they lie in one piece anyway."""

_MOST = 256 << 20
"""So many are, where chunks are that long, before some of them are decoded more than once."""

_ROWS = 1 << 16
"""So many rows of a table are read at a time."""

_X87 = 10
"""So many bytes of an extended-precision number of x86 mean something; the rest are anything."""


def kind_of(member: Member) -> str:
    """Return the word for what a member is."""
    if isinstance(member, engram.Blob) and member.posix.kind != "file":
        return member.posix.kind
    return describe.kind(member)


def fields_of(member: Member, path: str, *, more: bool) -> Fields:
    """Return what is said of a member, but for its values; its attributes come last."""
    about: Any = member._info()
    found: Fields = {}
    if isinstance(member, engram.Group):
        found |= {f"setting {key}": _json(value) for key, value in _settings(member)}
    elif isinstance(member, engram.Table):
        found["rows"] = str(len(member))
        for field in member.schema:
            what = f"{field.type}{'' if field.nullable else ' not null'}"
            found[f"column {word(field.name)}"] = quoted(what)
    else:
        found |= _of_object(member, about)
    found["scope"] = about.scope
    if member.read_only:
        found["read_only"] = "true"
    if more:
        found |= _more(member, about)
    attributes = dict(member.attrs.items())
    if path.startswith(_ACTIVE):
        found |= _class_of(path, attributes)
    return found | {f"{ATTRIBUTE}{word(key)}": attribute(v) for key, v in attributes.items()}


def _class_of(path: str, attributes: dict[str, Any]) -> Fields:
    """Return the class of an active object; nothing of what is none."""
    from engram.active.stored.layout import CLASS, OBJECTS  # noqa: PLC0415 - few pools have such

    is_one = path.rpartition("/")[0] == OBJECTS and CLASS in attributes
    return {"class": quoted(str(attributes[CLASS]))} if is_one else {}


def _of_object(member: engram.Array | engram.Blob, about: Any) -> Fields:
    """Return the fields of an array or a blob."""
    found: Fields = {}
    if isinstance(member, engram.Array):
        found |= {"dtype": dtype_text(about.dtype), "shape": _lengths(about.shape)}
        if about.dims is not None:
            found["dims"] = _texts(about.dims)
        found["layout"] = "contiguous" if about.chunks is None else "chunked"
        if about.chunks is not None:
            found |= {"chunks": _lengths(about.chunks), "codec": str(about.codec)}
    return found | {"nbytes": str(about.nbytes), "index": about.index}


def _lengths(lengths: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, lengths))}]"


def _texts(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def _settings(group: engram.Group) -> list[tuple[str, Any]]:
    """Return the settings of the index that a group has itself, in order."""
    return sorted(group.index_settings.items())


def _more(member: Member, about: Any) -> Fields:
    """Return what pools of the same contents do not share."""
    found: Fields = {}
    if isinstance(member, engram.Array | engram.Blob):
        found["oid"] = f"{member.oid:#x}"
    found["owner"] = quoted(owners.user(about.owner))
    for name in ("created", "modified"):
        instant = np.datetime64(getattr(about, name), "ns")
        found[name] = f"{instant}Z"
    if isinstance(member, engram.Array):
        found["stored_nbytes"] = str(member.stored_nbytes)
    if isinstance(member, engram.Table):
        found |= {"nbytes": str(member.nbytes), "parts": str(member.num_parts)}
    if about.origin:
        found["origin"] = quoted(about.origin.decode("utf-8", "backslashreplace"))
    return found


def fields_of_pool(pool: Pool, *, more: bool) -> Fields:
    """Return the settings of a pool that are not those of a namespace."""
    devices = pool.devices
    found = {"checksums": _json(pool.checksums), "devices": str(len(devices))}
    found["durability"] = pool.durability
    if pool.emulated is not None:
        found["emulated"] = pool.emulated
    if more:
        found |= {"uuid": pool.uuid, "paths": _texts(str(each.path) for each in devices)}
    return found


def fields_of_namespace(pool: Pool, name: str, *, more: bool) -> Fields:
    """Return what a pool says of a namespace, whoever may enter it."""
    about = pool.namespaces.info(name)
    found = {"mode": f"{about.mode:03o}"}
    if more:
        found["owner"] = quoted(owners.user(about.owner))
        found["group"] = quoted(owners.unix_group(about.group))
    return found


def _json(value: Any) -> str:
    """Return plain values as JSON; what JSON has not is told as text."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True, default=str)


def sum_of(member: engram.Array | engram.Blob | engram.Table) -> str:
    """Return the sum of a member's values."""
    if isinstance(member, engram.Table):
        return _sum_of_table(member)
    digest = hashlib.sha256()
    for piece in _pieces(member):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(member: engram.Array | engram.Blob) -> Iterator[Any]:
    """Yield the bytes that are summed up."""
    if isinstance(member, engram.Blob):
        yield member.view()
        return
    shape, dtype = member.shape, member.dtype
    if 0 in shape:
        return
    if dtype.kind == "T":
        for text in member[...].flat:
            encoded = str(text).encode()
            yield len(encoded).to_bytes(8, "little")
            yield encoded
        return
    meant = _gaps(dtype)
    whole = member.view() if member.chunks is None else member
    for box in _boxes(shape, dtype.itemsize, member.chunks or (1,) * len(shape)):
        part = np.ascontiguousarray(whole[box]).reshape(-1).view(np.uint8)
        yield part if meant is None else part.reshape(-1, dtype.itemsize)[:, meant].tobytes()


def _boxes(
    shape: tuple[int, ...], itemsize: int, chunks: tuple[int, ...]
) -> Iterator[tuple[int | slice, ...]]:
    """Yield parts of an array, in the order of C, that are no larger than a piece if they can be.

    Along a dimension they end where chunks end, so that each chunk is decoded once, unless a row of
    chunks is very long.
    """
    if not shape:
        yield ()
        return
    row = max(1, itemsize) * math.prod(shape[1:])
    rows = _PIECE // row // chunks[0] * chunks[0] or min(chunks[0], _MOST // row)
    if rows == 0:
        for place in range(shape[0]):
            for box in _boxes(shape[1:], itemsize, chunks[1:]):
                yield (place, *box)
        return
    for start in range(0, shape[0], rows):
        yield (slice(start, min(start + rows, shape[0])),)


@functools.lru_cache(maxsize=256)
def _gaps(dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Return which bytes of an item mean something; None if all do."""
    if dtype.kind in "biuSUMm":
        return None
    meant = _meant(dtype)
    return None if meant.all() else meant


def _meant(dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which bytes of an item mean something: not those between fields, nor of padding."""
    meant = np.zeros(dtype.itemsize, bool)
    if dtype.subdtype is not None:
        base, lengths = dtype.subdtype
        return np.tile(_meant(base), math.prod(lengths))
    if dtype.names is not None:
        for name in dtype.names:
            inner, offset = dtype.fields[name][:2]  # type: ignore[index]  # it has fields
            meant[offset : offset + inner.itemsize] |= _meant(inner)
        return meant
    item = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    if dtype.kind in "fc" and item > _X87:
        for start in range(0, dtype.itemsize, item):
            meant[start : start + _X87] = True
        return meant
    return np.ones(dtype.itemsize, bool)


def _sum_of_table(table: engram.Table) -> str:
    """Return the sum of a table: of its columns' names and values, however its parts lie."""
    names = table.column_names
    digests = [hashlib.sha256() for _ in names]
    for start in range(0, len(table), _ROWS):
        rows = table.read(rows=slice(start, start + _ROWS))
        for digest, column in zip(digests, rows.columns, strict=True):
            for value in column.to_pylist():
                encoded = repr(value).encode("utf-8", "backslashreplace")
                digest.update(len(encoded).to_bytes(8, "little"))
                digest.update(encoded)
    whole = hashlib.sha256()
    for name, digest in zip(names, digests, strict=True):
        whole.update(f"{quoted(name)} {digest.hexdigest()}\n".encode())
    return whole.hexdigest()


def header(*, values: bool, more: bool, everywhere: bool) -> str:
    """Return the first line of a dump: its format, the version of that, and what is in it."""
    words = [MAGIC, str(VERSION), SUM if values else NO_VALUES]
    return " ".join([*words, *([ALL] * more), *([ALL_NAMESPACES] * everywhere)])


def block(kind: str, path: str, fields: Fields) -> str:
    """Return the lines of a block."""
    lines = "".join(
        f"  {name}{' =' if name.startswith(KEYED) else ''} {text}\n"
        for name, text in fields.items()
    )
    return f"{kind} {word(path)}\n{lines}\n"
