"""Objects as they travel to a home on another node: their fields, classes and notes, as data.

What is in a parcel runs no code where it is unpacked. A reference in it is to an object of the same
parcel, by its place there, or to one that stays where it is. References of the second kind are kept
for others before the parcel goes.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from engram.active.code import classes
from engram.active.places.ways import full
from engram.active.stored import values
from engram.active.stored.forms import Form, form_of
from engram.active.stored.home import Home
from engram.active.stored.identity import ByIdentity
from engram.active.transaction import field_view
from engram.errors import ArgumentError, NotFoundError

_INSIDE: Final = "inside"
"""Stands where a pool's uuid would, in a reference to an object of the same parcel."""


class Parcelled(NamedTuple):
    """One object of a parcel."""

    cls: str
    """The name of its class."""
    fields: dict[str, tuple[str, Any]]
    """Of each field that has a value its form, and what that is."""
    source: Any = None
    """The reference to what it is a copy of."""
    notes: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    """What it notes."""
    aliases: tuple[str, ...] = ()


class Parcel(NamedTuple):
    """Objects that travel together."""

    objects: list[Parcelled]
    classes: dict[str, bytes]
    """What pools keep of their classes, and of those that these build on; the latter first."""
    twins: dict[int, int] = {}  # noqa: RUF012 - never changed in place
    """Of objects after the first, which of them stands for which object of the target."""


class Packing:
    """Makes a parcel."""

    def __init__(self) -> None:
        self.places: ByIdentity[int] = ByIdentity()
        self.waiting: list[Any] = []
        self.classes: dict[str, bytes] = {}

    def add(self, obj: Any) -> int:
        """Have an object travel; give its place."""
        place = self.places.get(obj)
        if place is None:
            place = self.places[obj] = len(self.waiting)
            self.waiting.append(obj)
        return place

    def class_of(self, obj: Any) -> str:
        """Note an object's class; give its name."""
        kind = getattr(type(obj), "_near_class", None) or type(obj)
        for name, packed in classes.contents_of(kind):
            self.classes[name] = packed
        return values.name_of(kind)

    def form(self, obj: Any, name: str, value: Any, refer: Callable[[Any], Any]) -> tuple[str, Any]:
        """Give the form of a field's value."""
        made = form_of(obj._label(name), value, refer)
        if made.kind == "array":
            return made.kind, np.asarray(made.value)
        packed = made.value.tobytes() if isinstance(made.value, np.ndarray) else made.value
        return made.kind, packed

    def inside(self, other: Any) -> Any:
        """Give the reference to an object of the parcel."""
        return [_INSIDE, "", "", self.places[other]]


def of_volatile(obj: Any, *, recursive: bool) -> tuple[Parcel, list[Any]]:
    """Pack a volatile object with those that it refers to; give these, too, in their order.

    Raises
    ------
    ArgumentError
        If it refers to a volatile object, and these are not to come with it.
    UnsupportedFieldError
        If a field's value cannot be stored.

    """
    packing = Packing()
    packing.add(obj)

    def refer(other: Any) -> Any:
        if other._volatile is None:
            return stays(other)
        if not recursive and other is not obj:
            raise ArgumentError(
                f"{obj!r} refers to {other!r}, which is volatile: make that persistent first, or "
                "have recursive=True"
            )
        packing.add(other)
        return packing.inside(other)

    made = []
    for each in packing.waiting:
        fields = {
            name: packing.form(each, name, value, refer)
            for name, value in (each._volatile or {}).items()
        }
        made.append(Parcelled(packing.class_of(each), fields))
    return Parcel(made, packing.classes), packing.waiting


def of_stored(
    objects: list[Any],
    notes: Callable[[Any], dict[str, Any]] | None = None,
    others: list[tuple[Any, int]] = [],  # noqa: B006 - never changed in place
) -> Parcel:
    """Pack stored objects of this process's own homes.

    Objects of `others` do not travel: each has a twin of that id in the target.
    """
    packing = Packing()
    for obj in [*objects, *(other for other, _ in others)]:
        packing.add(obj)

    def refer(other: Any) -> Any:
        return packing.inside(other) if other in packing.places else stays(other)

    made = []
    for obj in objects:
        fields = {}
        for name, loaded in obj._loaded().items():
            value = loaded.value
            if loaded.member:
                value = np.asarray(field_view(obj, name, loaded, write=False))
            fields[name] = packing.form(obj, name, value, refer)
        source = full(obj._home, obj._gid)
        noted = {} if notes is None else notes(obj)
        made.append(Parcelled(packing.class_of(obj), fields, source, noted))
    twins = {packing.places[other]: gid for other, gid in others}
    return Parcel(made, packing.classes, twins)


def stays(other: Any) -> Any:
    """Give the reference to an object that stays where it is, which is kept for others."""
    if hasattr(other, "_full"):
        return other._full
    with contextlib.suppress(NotFoundError):
        other._home.keep_for_others(other._gid)
    uuid, namespace = other._home.key
    return [uuid, other._home.pool_path, namespace, other._gid]


def install(home: Home, parcel: Parcel) -> dict[str, str]:
    """Keep the classes of a parcel; give their names with versions."""
    return {name: classes.install(home, name, packed) for name, packed in parcel.classes.items()}


def unpack(home: Home, parcel: Parcel, gids: list[int], device: int | None = None) -> None:
    """Put the fields of a parcel's objects into those that were made for them; in a batch."""

    def refer(reference: Any) -> Any:
        if isinstance(reference, list) and reference[0] == _INSIDE:
            place = reference[3]
            return gids[place] if place < len(gids) else parcel.twins[place]
        if isinstance(reference, list) and (reference[0], reference[2]) == home.key:
            return reference[3]
        return reference

    for each, gid in zip(parcel.objects, gids, strict=True):
        for name, (kind, value) in each.fields.items():
            kept = value
            if isinstance(value, bytes):
                kept = values.referred_anew(value, refer)
            if isinstance(kept, bytes) and kind == "attribute":
                kept = np.frombuffer(kept, np.uint8)
            home.replace(gid, name, Form(kind, kept), device)
