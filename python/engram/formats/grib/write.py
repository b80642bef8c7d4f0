"""Writing GRIB: what came from it goes out as the messages that it was, of the same edition.

A message is what its array has kept of it (`keep`), with the array's values, packed as they were.
It is decoded before it is written: where packing would change a value, the message's values are
IEEE's numbers instead. They are so from the start where a value is larger than packing can say:
eccodes would complain on stderr, or end the process. So nothing is lost. Nothing else can go out:
names and attributes of other arrays do not say what GRIB needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import eccodes
import numpy as np

from engram.errors import FormatError
from engram.formats.grib import keep
from engram.formats.target import ArrayItem, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engram.formats.grib.grid import Scan
    from engram.formats.grib.keep import Kept
    from engram.formats.target import Item, Tell, Tree

Array = np.ndarray[Any, Any]

_MISSING = 1e30
_IEEE = "grid_ieee"
_DECIMAL = "decimalScaleFactor"
_MOST, _DECIMAL_MOST = 2.0**127, 300
"""The largest number that values are packed relative to, rounded down, and powers of 10 of it."""

_WIDENED = "as IEEE's numbers, since eccodes cannot pack them as they came without a change"
"""What is true of values that no packing holds, and of those that eccodes packs otherwise than the
program that wrote them: with spatial differencing, the bits that a message tells are fewer."""

_LACKS = (
    "it did not come from GRIB, and lacks what a message says: the parameter, the grid, the level, "
    "the time and the centre"
)


def problems(tree: Tree) -> list[Problem]:
    """Return what no message has come in for, and what has been changed that messages say."""
    found = [problem for item in tree.items for problem in _problems(item)]
    if not found and all("values" in item.origin for item in tree.arrays):  # these are coordinates
        why = f"there is nothing that came from GRIB: {_LACKS}"
        found.append(Problem("", "messages", why))
    return found


def _problems(item: Item) -> Iterator[Problem]:
    """Yield what is wrong with one group or array."""
    is_array = isinstance(item, ArrayItem)
    known = item.origin.get(keep.SUMS) if item.origin.get("format") == "GRIB" else None
    if is_array and not isinstance(known, dict):
        yield Problem(item.path, "array", _LACKS)
        return
    if isinstance(item, ArrayItem):
        why = _changed(item)
        if why is not None:
            yield Problem(item.path, "array", why)
            return
    known = known if isinstance(known, dict) else {}
    for name, total in keep.sums(item.attrs).items():
        if known.get(name) != total:
            why = "it is not as the messages say it, and GRIB has no place for others"
            yield Problem(item.path, f"attribute {name}", why, name)


def _changed(item: ArrayItem) -> str | None:
    """Say why an array is not the one that came in; None if its messages can take it."""
    if "values" in item.origin:
        same = item.origin["values"] == keep.sum_of(item.load())
        return None if same else "a coordinate that was changed, or cut: the messages say it"
    found = keep.messages(item.origin.get(keep.WORD))
    if found is None or not found[0]:
        return "its messages are packed in a way that can be read alone"
    kept, scan = found
    outer = item.shape[: len(item.shape) - len(scan.shape)]
    if item.shape[len(outer) :] != scan.shape or item.origin.get("shape") != list(item.shape):
        return (
            f"its shape was {item.origin.get('shape')}, and is {list(item.shape)}: export all of it"
        )
    if item.dtype not in {np.dtype("f4"), np.dtype("f8")}:
        return f"its dtype is {item.dtype}, and a message has real numbers"
    places = {message.place for message in kept}
    values = item.load()
    for place in np.ndindex(outer):
        if place not in places and not np.isnan(values[place]).all():
            return f"it has values at {place}, where no message came in"
    return None


def write_tree(tree: Tree, path: Path, tell: Tell) -> str:
    """Write the messages of a tree that has no problems, in the order in which they came."""
    found: list[tuple[Any, ArrayItem, Kept, Scan]] = []
    roots = [g.path for g in tree.groups if "source" in g.origin]
    for item in tree.arrays:
        kept = keep.messages(item.origin.get(keep.WORD))
        if kept is None:
            continue
        above = [
            n for n, root in enumerate(roots) if f"{item.path}/".startswith(f"{root}/".lstrip("/"))
        ]
        found += [((max(above, default=-1), m.order), item, m, kept[1]) for m in kept[0]]
    found.sort(key=lambda each: each[0])
    widened: set[str] = set()
    with path.open("wb") as file:
        for _, item, message, scan in found:
            tell(item.path, 0)
            values = item.load()[message.place]
            content, packed = _message(item, message, _stored(values, scan))
            file.write(content)
            tell(item.path, values.nbytes)
            if not packed and item.path not in widened:
                widened.add(item.path)
                tree.note(item.path, "values", _WIDENED)
    return "GRIB"


def _stored(values: Array, scan: Scan) -> Array:
    """Return a grid's values in the order in which a message stores them."""
    lines = values.T if scan.columns else values
    if scan.alternating:
        lines = lines.copy()
        lines[1::2] = lines[1::2, ::-1]
    return lines.ravel()


def _message(item: ArrayItem, message: Kept, values: Array) -> tuple[bytes, bool]:
    """Return a message with values, and whether they are packed as they were.

    Raises
    ------
    FormatError
        GRIB cannot hold them.

    """
    kind, bits = message.packing
    precision = 1 if values.dtype.itemsize == 4 else 2  # noqa: PLR2004 - float32
    for packing, keys in ((kind, {"bitsPerValue": bits}), (_IEEE, {"precision": precision})):
        content = _packed(message, packing, keys, values)
        if content is not None:
            return content, packing == kind
    message_of = f"/{item.path}: GRIB cannot hold its values at {message.place} without a loss"
    raise FormatError(message_of)


def _packed(message: Kept, packing: str, keys: dict[str, int], values: Array) -> bytes | None:
    """Return a message with values packed in a way; None if they, or its grid, would be others."""
    missing = np.isnan(values)
    handle = eccodes.codes_new_from_message(message.content)
    try:
        if eccodes.codes_get(handle, "packingType") != packing:
            eccodes.codes_set(handle, "packingType", packing)
        if packing != _IEEE and not _has_room(handle, values):
            return None
        for key, value in keys.items():
            eccodes.codes_set(handle, key, value)
        if missing.any():
            eccodes.codes_set(handle, "bitmapPresent", 1)
            eccodes.codes_set(handle, "missingValue", _MISSING)
            if (values == _MISSING).any():  # it would be read as missing, too
                return None
        eccodes.codes_set_values(handle, np.where(missing, _MISSING, values.astype("f8")))
        content: bytes = eccodes.codes_get_message(handle)
        return content if _is_read_as(content, message.section, values) else None
    except eccodes.CodesInternalError:
        return None
    finally:
        eccodes.codes_release(handle)


def _has_room(handle: Any, values: Array) -> bool:
    """Whether values are not too large to be packed. If they are, eccodes may end the process."""
    decimal = 0
    if eccodes.codes_is_defined(handle, _DECIMAL):
        decimal = min(max(0, eccodes.codes_get(handle, _DECIMAL)), _DECIMAL_MOST)
    most = float(np.fmax.reduce(np.abs(values), initial=0.0))
    return most <= _MOST / 10.0**decimal


def _is_read_as(content: bytes, section: str, values: Array) -> bool:
    """Whether a message has this grid, and these values."""
    handle = eccodes.codes_new_from_message(content)
    try:
        eccodes.codes_set(handle, "missingValue", _MISSING)
        found = eccodes.codes_get_values(handle)
        found = np.where(np.isnan(values) & (found == _MISSING), np.nan, found)
        same = np.array_equal(found.astype(values.dtype), values, equal_nan=True)
        return same and keep.grid_of(handle) == section
    finally:
        eccodes.codes_release(handle)
