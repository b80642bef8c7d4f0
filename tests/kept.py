"""Pools of earlier formats, kept: packed and unpacked, and all that a pool says, as JSON.

A pack has several folders' files as their non-zero pages: a pool says that it has gigabytes, and
most of them are holes. It is a length, JSON that lists folders and files, and their pages, in one
stream of xz.

    python tests/kept.py unpack tests/kept_format6.pack FOLDER

makes what is in it below `FOLDER`: the pools, and `manifest.json`, which has what `told` said of
them when they were made.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import stat
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 4096
FORMATS = (5, 6)
"""Earlier formats, of which a pack is kept."""


def packed(form: int) -> Path:
    """Say where the pack of a format is."""
    return Path(__file__).parent / f"kept_format{form}.pack"


def pack(folder: Path, into: Path) -> int:
    """Pack all that is in a folder; the length of the pack."""
    entries: list[list[Any]] = []
    pages: list[bytes] = []
    for path in sorted(folder.rglob("*")):
        status, name = path.lstat(), str(path.relative_to(folder))
        mode = stat.S_IMODE(status.st_mode)
        if path.is_dir():
            entries.append([name, mode])
            continue
        runs: list[list[int]] = []
        for number, page in _pages(path):
            if runs and sum(runs[-1]) == number:
                runs[-1][1] += 1
            else:
                runs.append([number, 1])
            pages.append(page.ljust(PAGE, b"\0"))
        entries.append([name, mode, status.st_size, runs])
    head = json.dumps(entries, separators=(",", ":")).encode()
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 26}]
    plain = len(head).to_bytes(8, "little") + head + b"".join(pages)
    into.write_bytes(lzma.compress(plain, filters=filters))
    return into.stat().st_size


def _pages(path: Path) -> Iterator[tuple[int, bytes]]:
    """Give the pages of a file that are not all zeros; holes are not read."""
    with path.open("rb") as file:
        at, end = 0, path.stat().st_size
        while at < end:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // PAGE * PAGE
            except OSError:  # only a hole is left
                return
            stop = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            file.seek(at)
            while at < stop:
                page = file.read(PAGE)
                if page.strip(b"\0"):
                    yield at // PAGE, page
                at += PAGE


def unpack(packed: Path, folder: Path) -> None:
    """Make the files of a pack below a folder, holes as holes."""
    plain = lzma.decompress(packed.read_bytes())
    begin = 8 + int.from_bytes(plain[:8], "little")
    folder.mkdir(parents=True, exist_ok=True)
    modes = []
    for name, mode, *file in json.loads(plain[8:begin]):
        path = folder / name
        modes.append((path, mode))
        if not file:
            path.mkdir()
            continue
        size, runs = file
        with path.open("xb") as made:
            made.truncate(size)
            for first, count in runs:
                made.seek(first * PAGE)
                end = begin + count * PAGE
                made.write(plain[begin:end])
                begin = end
            made.truncate(size)
    for path, mode in reversed(modes):
        path.chmod(mode)
    for marker in folder.glob("*/*/.pool.toml"):
        _settle(folder, marker)


def _settle(folder: Path, marker: Path) -> None:
    """Tell what a pool has on a further device where the pool's folder is now."""
    uuid = marker.parent.name
    for description in folder.glob("*/pool.toml"):
        text = description.read_text()
        if uuid not in text:
            continue
        place, pool = description.parent.stat(), description.parent.resolve()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        said = {"uuid": uuid, "pool": str(pool)}
        said |= {"device": f"{place.st_dev:x}", "inode": f"{place.st_ino:x}", "boot": boot}
        lines = (f"{key} = {json.dumps(value)}\n" for key, value in said.items())
        marker.write_text("".join(lines))
        device = marker.parent.parent.resolve()
        description.write_text(text.replace("@devices", str(device.parent)))


def digest(value: Any) -> list[Any]:
    """Give what says of a value, or an attribute, all that is to be as it was."""
    import numpy as np  # noqa: PLC0415 - what only unpacks needs no package

    if isinstance(value, str | bytes | bool | int | float):
        return [type(value).__name__, repr(value)]
    array = np.asarray(value)
    if array.dtype.kind in "TO":
        return [
            "text",
            list(array.shape),
            hashlib.sha256(repr(array.tolist()).encode()).hexdigest(),
        ]
    if array.nbytes <= 64:
        return [str(array.dtype.descr), list(array.shape), array.tobytes().hex()]
    return [str(array.dtype.descr), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]


QUERIES = (
    "n >= 3 and n < 9",
    'kind = "few"',
    "exists(rare) and not (n < 20)",
    "t < 0",
    "t between -1.5 and 2.5 or unique > 30",
    'name contains "ö"',
    '@path contains "1" and @nbytes > 8',
    '@name startswith "a0"',
    'when > "2020-01-01"',
    'group.date = "2014-09-28"',
    '@scope = "shared" and @ndim = 1',
    'under("index/split") and v >= 7',
    '@created > "2020-01-01" and @size = 3',
    "waiting = 1",
)


def told(pool: Any) -> dict[str, Any]:
    """Return all that is to be as it was in a pool, by namespace and path."""
    found: dict[str, Any] = {}
    for name in sorted(pool.namespaces):
        space = pool.namespaces[name]
        members = {"": _member(space)}
        space.visititems(lambda path, member, into=members: into.update({path: _member(member)}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not every pool has every attribute
            answers = {text: sorted(space.query(text).paths()) for text in QUERIES}
        mode = oct(pool.namespaces.info(name).mode)
        found[name] = {"mode": mode, "size": space.size, "members": members, "answers": answers}
        settings = {path: _settings(member) for path, member in _groups(space)}
        found[name]["index"] = {path: some for path, some in settings.items() if some}
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def _groups(space: Any) -> Iterator[tuple[str, Any]]:
    import engram  # noqa: PLC0415 - what only unpacks needs no package

    found = [("", space)]
    space.visititems(lambda path, member: found.append((path, member)))
    return ((path, member) for path, member in found if isinstance(member, engram.Group))


def _settings(group: Any) -> dict[str, Any]:
    return {key: repr(value) for key, value in sorted(group.index_settings.items())}


def _member(member: Any) -> dict[str, Any]:
    """Return all that is to be as it was of a member."""
    import engram  # noqa: PLC0415 - what only unpacks needs no package
    from engram import _engram  # noqa: PLC0415 - likewise

    said: dict[str, Any] = {"id": member._id}
    info: Any
    if isinstance(member, engram.Group):
        info = _engram.group_info(member._namespace, member._id)
    else:
        info = _engram.object_info(member._namespace, member._id)
        said |= {"kind": info.kind, "shape": list(info.shape), "dims": info.dims}
        said |= {"dtype": str(info.dtype), "nbytes": info.nbytes, "index": info.index}
        said |= {"chunks": info.chunks, "codec": info.codec, "inline": info.inline}
        said |= {"value": digest(member[...])}
    said |= {"created": info.created, "modified": info.modified}
    said |= {"owner": info.owner, "scope": info.scope, "parent": info.parent}
    said |= {"origin": info.origin.hex(), "read_only": member.read_only}
    said |= {"attrs": {key: digest(value) for key, value in sorted(member.attrs.items())}}
    return said


if __name__ == "__main__":
    verb, source, target = sys.argv[1:]
    if verb != "unpack":
        sys.exit("usage: python tests/kept.py unpack PACK FOLDER")
    unpack(Path(source), Path(target))
