"""In what form a field's value is kept, and how an attribute of one is read."""

from typing import Any, Final, NamedTuple

import numpy as np

from engram.active.errors import UnsupportedFieldError
from engram.active.stored import values
from engram.array import Array

MOST_INLINE: Final = 4096
"""The longest encoded value, in bytes, that is kept as an attribute."""

NATIVE: Final = frozenset((bool, int, float, str))
_I64: Final = range(-(2**63), 2**63)


class Form(NamedTuple):
    """How a field's value is kept."""

    kind: str
    """One of "attribute", "blob" and "array"."""
    value: Any
    """What the attribute's value is; the blob's bytes; the array."""
    refers: tuple[Any, ...] = ()
    """The active objects that it refers to."""


class Loaded(NamedTuple):
    """A field's value as it was read."""

    value: Any
    raw: Any
    """What tells whether it is still the same: the attribute, encoded bytes, or the OID."""

    member: bool = False
    """Whether it is an array: the value is then what was found, not what is in it."""


MISSING: Final = Loaded(None, None)
"""There is no such field in the object."""


def form_of(label: str, value: Any, refer: Any) -> Form:
    """Give the form in which a value is kept; `refer` is asked for each active object in it.

    Raises
    ------
    UnsupportedFieldError
        If it cannot be stored.

    """
    kind = type(value)
    if kind in NATIVE and is_plain(value):
        return Form("attribute", value)
    if isinstance(value, np.ndarray):
        return Form("array", _checked(label, value))
    if isinstance(value, Array):
        return Form("array", np.asarray(value) if value.dtype.kind != "T" else value[...])
    refers: list[Any] = []

    def referred(target: Any) -> Any:
        refers.append(target)
        return refer(target)

    packed = values.Encoder(label, referred).encode(value)
    if len(packed) > MOST_INLINE:
        return Form("blob", packed, tuple(refers))
    return Form("attribute", np.frombuffer(packed, np.uint8), tuple(refers))


def loaded_attribute(value: Any, label: str, refer: Any) -> Loaded:
    """Read a field of an attribute's value."""
    if isinstance(value, np.ndarray):
        packed = value.tobytes()
        return Loaded(values.Decoder(label, refer).decode(packed), packed)
    plain = value if type(value) is str else value.item()
    return Loaded(plain, plain)


def is_plain(value: Any) -> bool:
    """Tell whether a truth value, number or string is kept as it is."""
    if type(value) is int:
        return value in _I64
    if type(value) is str:
        return len(value) < MOST_INLINE // 4 and "\0" not in value and value.isprintable()
    return True


def _checked(label: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Refuse arrays that a pool cannot hold, before anything is written."""
    if isinstance(value, np.ma.MaskedArray):
        raise UnsupportedFieldError(
            f"{label}: a masked array cannot be stored: store its data and its mask in two fields"
        )
    if value.dtype.hasobject and value.dtype.kind != "T":
        texts = value.dtype.kind == "O" and all(type(item) is str for item in value.flat)
        if not texts:
            raise UnsupportedFieldError(
                f"{label}: an array of dtype {value.dtype} cannot be stored: its items are Python "
                "objects; give it a numeric, string or structured dtype"
            )
    return value
