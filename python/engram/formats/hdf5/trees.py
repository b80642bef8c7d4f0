"""Trees in HDF5: as structures, which show what is in them, and else as JSON text.

A structure is written where HDF5 gives it back: a key may be one that a field cannot have, an array
may be of no elements, and a compound type of the fields r and i is a complex number to h5py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engram import nested
from engram.formats import trees
from engram.formats.hdf5.build import build, problem
from engram.formats.hdf5.types import plain

if TYPE_CHECKING:
    import numpy as np

    from engram.formats.source import Attributes

TYPE_BYTES = 60_000
"""The longest datatype of an attribute: HDF5 keeps its length in 16 bits."""

_AS_STRUCTURE = (
    f"a tree, as a structure, which the attribute {trees.MARK} tells from others; text within it "
    "is opaque, as h5py has it"
)


def stored(attrs: Attributes) -> tuple[Attributes, dict[str, str]]:
    """Return attributes as HDF5 has them, and in which way each tree stands there."""
    values: Attributes = {}
    forms: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for name, value in attrs.items():
        values[name] = value
        if not trees.is_tree(value):
            continue
        if _is_kept(value.dtype):
            forms[name], notes[name] = nested.kinds(value.dtype), _AS_STRUCTURE
        else:
            values[name], forms[name] = trees.text_of(value)
            notes[name] = trees.AS_TEXT
    if forms:
        values[trees.MARK] = trees.mark_of(forms)
    return values, notes


def _is_kept(dtype: np.dtype[Any]) -> bool:
    """Whether HDF5 gives a tree's structure back as it is."""
    if problem(dtype) is not None:
        return False
    try:
        made = build(dtype)
        found = nested.titled(plain(made.dtype), nested.kinds(dtype))
    except (ValueError, RuntimeError, TypeError):
        return False
    return len(made.encode()) <= TYPE_BYTES and found == dtype
