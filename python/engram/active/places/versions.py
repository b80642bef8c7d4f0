"""Versions: a second state of an object, worked on beside it, that may take its place.

A version is an object of its own with the values of its original. Arrays are shared until one of
the two is about to change them: the version *borrows* the original's array, which *lends* it. Both
know (`__sharing__`), and the one that is about to write first *separates*: a lender that writes
gives the array, which stays what it is, to a borrower, and takes a copy; a borrower that writes
takes a copy. A view that somebody took before `new_version` and still writes through is not part of
this: it writes into what was shared.

Consolidating gives the original the version's values, arrays without a copy. The version, and the
versions between it and the original, become notes that lead there: references and aliases follow.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from engram import _engram
from engram.active import undoing
from engram.active.code import classes
from engram.active.errors import ObjectDeletedError, VersionError, gone
from engram.active.places import ways
from engram.active.places.far import follows
from engram.active.places.placing import DEVICE, Backend, backend_of
from engram.active.stored.aliases import alias_path
from engram.active.stored.forms import MISSING, Loaded, form_of
from engram.active.stored.home import Home
from engram.active.stored.identity import ByIdentity
from engram.active.stored.layout import ALIASES_OF, CLASS, SHARING
from engram.active.stored.meanwhile import again, unless_changed
from engram.active.transaction import local
from engram.errors import BusyError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engram.active.fields import Field

ORIGINAL = "__version_of__"
CHAIN = "__versions__"


class Versions:
    """What an active object can do about versions of it."""

    _home: Home
    _gid: int
    _volatile: dict[str, Any] | None
    _fields: "dict[str, Field]"
    _ended: bool = False
    _same: Any = None
    """The Python object that is used for the same stored one, which this one has become."""

    @follows
    def new_version(self, backend_id: Any = None) -> Self:
        """Make a version of the object: one of its own, of the same values.

        Arrays are shared until one of the two changes them (not so in another backend, which gets
        a copy). Other objects that it refers to are the same. A version can have versions.

        Raises
        ------
        ArgumentError
            If the object is volatile.

        """
        home = self._stored_home("new_version")
        target = backend_of(backend_id, home)
        if target.home.is_far:
            raise UnsupportedError(
                f"a version of {self!r} cannot be made on another node ({target}): make it where "
                "the object is, or new_replica() there"
            )
        first, chain = self._line()
        between = [each._reference_from(target.home) for each in chain]
        notes = {ORIGINAL: first._reference_from(target.home), CHAIN: between or None}
        near = target.home.key == home.key and target.device is None

        def make() -> int:
            for each in () if near else (self, first):
                if each._home.key != target.home.key:
                    each._home.keep_for_others(each._gid)
            with target.home.batch():
                gid = self._share() if near else self._copy_to(target, {})
                for name, value in notes.items():
                    target.home.note(gid, name, value)
            return gid

        try:
            gid = again(lambda: unless_changed(home, make, self._gid))
        except NotFoundError:
            raise gone(type(self).__qualname__, self._gid) from None
        made: Self = self._at(target.home, gid)
        return made

    def _line(self) -> tuple[Any, list[Any]]:
        """Give the original of a version of this object, and the versions between the two."""
        reference = self._noted(ORIGINAL)
        try:
            original = self if reference is None else self._at(self._home, reference)
        except ObjectDeletedError:
            original = self
        if original is self:
            return self, []
        return original, [*self._between(self._home, original), self]

    def _share(self) -> int:
        """Make a version in the same home, which borrows the arrays."""
        home, gid = self._home, self._gid
        info = _engram.group_info(home.namespace, gid)
        if info.scope != "published":
            home.hold(gid)
        scope = "private" if info.scope == "private" else None
        cls: Any = type(self)  # an active object, which this is a part of
        made = home.create({CLASS: classes.register(home, cls, scope)}, scope)
        borrowed: dict[str, int] = {}
        for name, loaded in self._loaded().items():
            owner = self._owner(name) if loaded.member else None
            if owner is not None and info.scope != "published":
                borrowed[name] = owner
                _lend(home, owner, name, made)
                continue
            value = self._contents(name, loaded)
            form = form_of(self._label(name), value, lambda o: o._reference_from(home))
            home.replace(made, name, form)
            _touch(home, home.references_of(made, name))
        if borrowed:
            home.note(made, SHARING, {"borrowed": borrowed})
        home.touch(gid)
        return made

    def _owner(self, name: str) -> int:
        """Give the object whose member the array of a field is."""
        borrowed: dict[str, int] = _sharing(self._home, self._gid).get("borrowed", {})
        return borrowed.get(name, self._gid)

    @follows
    def consolidate_version(self) -> None:
        """Give the original this version's values; from then on the two are one object.

        References to the original see the new values; so do references to this version, which is
        the original now. If this process has the original in hand, too, there are two Python
        objects for the one: whatever is done with either is done with both, but `is` tells them
        apart. An alias of a version in another pool is the original's in both, unless another
        object of the original's pool has it. What others have changed in the original meanwhile is
        replaced.

        Raises
        ------
        VersionError
            If this is no version, or was consolidated already.

        """
        home = self._stored_home("consolidate_version")
        reference = None if self._ended else self._noted(ORIGINAL)
        if reference is None:
            why = "was consolidated already" if self._ended else "is no version of another object"
            raise VersionError(f"{self!r} {why}: new_version() makes one")
        there = ways.end_of(*ways.place_of(home, reference))
        had = there[0].live.get(there[1])  # somebody has it in hand
        original = self._at(home, reference)
        if original._home.is_far:
            raise UnsupportedError(
                f"{self!r} cannot be consolidated: its original has moved to {original._home!r}; "
                "move it back first"
            )
        ending = [self, *self._between(home, original)]
        if any(each._home.key != original._home.key for each in ending):
            undoing.refuse_batch(f"consolidating {self!r}, which lies elsewhere than its original,")
        try:
            again(
                lambda: unless_changed(
                    home,
                    lambda: self._consolidate(original, ending),
                    *(each._gid for each in (self, original) if each._home is home),
                )
            )
        except NotFoundError:
            raise gone(type(self).__qualname__, self._gid) from None
        undoing.note(original, *ending)
        running = local.transaction
        if running is not None:
            running.changes_life(original)
            running.changes_life(self)
        for version in ending:
            if version._home.key != original._home.key:
                version._lead_to(original)
            version._home.live.pop(version._gid, None)
            version._ended = True
            version._home, version._gid = original._home, original._gid
            version._same = original
        if had is None:
            self._same, original._same = None, self
            original._home.live[original._gid] = self

    def _consolidate(self, original: Any, ending: list[Any]) -> None:
        """Give the original all values, and end the versions that are in its home; one commit."""
        home = original._home
        near = [each for each in ending if each._home.key == home.key]
        far = [each for each in ending if each._home.key != home.key]
        aliases = [alias for each in far for alias in each._noted(ALIASES_OF) or []]
        with home.batch():
            for each in (original, *near):
                home.hold(each._gid)
            if self._noted(ORIGINAL) is None:
                raise VersionError(f"{self!r} was consolidated already, by another process")
            if self._home.key == home.key:
                self._give_to(original, {each._gid for each in near})
            else:
                self._give_far(original)
            for version in near:
                before_deletion(home, version._gid)
                _give_aliases(home, version._gid, original._gid)
                home.forward(version._gid, original._gid)
            have = home.aliases() if aliases else {}
            for alias in aliases:
                if alias not in have:
                    home.add_alias(original._gid, alias)

    def _between(self, home: Home, original: Any) -> list[Any]:
        """Give the versions between this one and the original that are versions still."""
        found = []
        for reference in self._noted(CHAIN) or []:
            try:
                version = self._at(home, reference)
                if version is not original and version._noted(ORIGINAL) is not None:
                    found.append(version)
            except ObjectDeletedError:
                continue
        return found

    def _give_to(self, original: Any, ending: set[int]) -> None:
        """Move all values to the original, of the same home; in a batch."""
        home, gid, target = self._home, self._gid, original._gid
        for name in self._fields:
            value = _engram.attr_get(home.namespace, True, gid, name)
            owner = gid
            if value is None and not home.has_member(gid, name):
                owner = self._owner(name)
            if owner == target:
                continue
            original._before_replacing(name)
            home.delete_field(target, name)
            if value is not None:
                _engram.attr_set(home.namespace, True, target, {name: value})
            elif owner in ending and home.has_member(owner, name):
                _pass_on(home, owner, name, target)
            elif owner != gid:
                _lend(home, owner, name, target)
                sharing = _held(home, target)
                sharing.setdefault("borrowed", {})[name] = owner
                _note(home, target, sharing)
            _touch(home, set(home.references_of(target, name)) - {gid, target})

    def _give_far(self, original: Any) -> None:
        """Copy all values to the original, of another home; in a batch of that."""
        for name in self._fields:
            original._before_replacing(name)
            original._home.delete_field(original._gid, name)
        twin = ByIdentity.of(self, original._gid)
        self._copy_to(Backend(original._home), twin, original._gid)

    def _lead_to(self, original: Any) -> None:
        """Leave a note that leads to the original, of another home."""
        original._home.keep_for_others(original._gid)

        def lead() -> None:
            with self._home.batch():
                self._home.hold(self._gid)
                before_deletion(self._home, self._gid)
                self._home.forward(self._gid, original._reference_from(self._home))

        again(lead)

    # Sharing

    def _borrowed(self, name: str) -> Loaded:
        """Read a field whose array is borrowed."""
        borrowed = _sharing(self._home, self._gid).get("borrowed", {})
        if name not in borrowed:
            return MISSING
        found = _engram.find(self._home.namespace, borrowed[name], name)
        return MISSING if found is None else Loaded(found, found[1], member=True)

    def _own(self, name: str, loaded: Loaded) -> Loaded:
        """Make a field's array this object's alone, before it is written into."""
        sharing = _sharing(self._home, self._gid)
        if not sharing:
            return loaded
        lent, borrowed = sharing.get("lent", {}), sharing.get("borrowed", {})
        if not lent.get(name) and name not in borrowed:
            return loaded
        home = self._home

        def separate() -> None:
            with home.batch():
                home.hold(self._gid)
                array = self._contents(name, loaded)
                self._before_replacing(name)
                form = form_of(name, array, None)
                home.replace(self._gid, name, form, self._noted(DEVICE))

        again(lambda: unless_changed(home, separate, self._gid))
        return self._fields[name].load(self)  # type: ignore[arg-type]

    def _before_replacing(self, name: str) -> None:
        """Let others keep what they share of a field that is about to be replaced; in a batch."""
        before_replacing(self._home, self._gid, name)

    def _before_deletion(self) -> None:
        """Let others keep all that they share of this object; in a batch."""
        before_deletion(self._home, self._gid)

    def _contents(self, name: str, loaded: Loaded) -> Any:
        """Give a field's value to be copied."""
        if not loaded.member:
            return loaded.value
        _, oid, dtype, shape = loaded.value
        namespace = self._home.namespace
        if dtype.kind == "T":
            return _engram.read(namespace, oid, dtype, shape)
        del name
        return np.asarray(_engram.view(namespace, oid, dtype, shape, False))

    # Of the other parts of an active object

    if TYPE_CHECKING:

        def _stored_home(self, what: str) -> Home: ...
        def _label(self, name: str) -> str: ...
        def _noted(self, name: str) -> Any: ...
        def _loaded(self) -> dict[str, Loaded]: ...
        def _copy_to(
            self, target: Backend, twins: Mapping[Any, int], gid: int | None = None
        ) -> int: ...
        def _reference_from(self, home: Home) -> Any: ...
        @classmethod
        def _at(cls, home: Home, reference: Any) -> Any: ...


def before_replacing(home: Home, gid: int, name: str) -> None:
    """Let others keep what they share of a field that is about to be replaced; in a batch."""
    if not _sharing(home, gid):
        return
    sharing = _held(home, gid)
    if name in sharing.get("borrowed", {}):
        owner = sharing["borrowed"].pop(name)
        _note(home, gid, sharing)
        _forget(home, owner, name, gid)
    else:
        hand_over(home, gid, name)


def before_deletion(home: Home, gid: int) -> None:
    """Let others keep all that they share of an object; in a batch."""
    sharing = _sharing(home, gid)
    for name in [*sharing.get("lent", {}), *sharing.get("borrowed", {})]:
        before_replacing(home, gid, name)


def hand_over(home: Home, gid: int, only: str | None = None) -> None:
    """Give what an object lends to those that borrow it; in a batch."""
    sharing = _held(home, gid)
    lent: dict[str, list[int]] = sharing.get("lent", {})
    for name in [only] if only is not None else list(lent):
        borrowers = [each for each in lent.pop(name, []) if _borrows(home, each, name, gid)]
        if borrowers:
            _pass_on(home, gid, name, borrowers[0])
    if sharing:
        _note(home, gid, sharing)


def _pass_on(home: Home, owner: int, name: str, heir: int) -> None:
    """Let an array be another object's, which lends it to those that borrow it; in a batch."""
    sharing = _held(home, owner)
    lent = sharing.get("lent", {}).pop(name, [])
    others = [each for each in lent if each != heir and _borrows(home, each, name, owner)]
    home.rename_member(owner, name, heir)
    _note(home, owner, sharing)
    theirs = _held(home, heir)
    theirs.get("borrowed", {}).pop(name, None)
    if others:
        theirs.setdefault("lent", {})[name] = others
    _note(home, heir, theirs)
    for other in others:
        has = _held(home, other)
        if has.get("borrowed", {}).get(name) != owner:
            raise BusyError(f"the active object {other:#x} was changed meanwhile")
        has["borrowed"][name] = heir
        _note(home, other, has)


def _touch(home: Home, references: "Iterable[Any]") -> None:
    """Tell objects of the same home that something more refers to them; in a batch."""
    for reference in references:
        if isinstance(reference, int):
            with suppress(NotFoundError):  # a reference to what was deleted stays one
                home.touch(reference)


def _sharing(home: Home, gid: int) -> dict[str, Any]:
    found: dict[str, Any] | None = home.notes(gid, SHARING)
    return found or {}


def _held(home: Home, gid: int) -> dict[str, Any]:
    """Read what an object shares, for a batch that changes it."""
    home.hold(gid)
    return _sharing(home, gid)


def _note(home: Home, gid: int, sharing: dict[str, Any]) -> None:
    left = {key: value for key, value in sharing.items() if value}
    home.note(gid, SHARING, left or None)


def _lend(home: Home, owner: int, name: str, borrower: int) -> None:
    sharing = _held(home, owner)
    sharing.setdefault("lent", {}).setdefault(name, []).append(borrower)
    _note(home, owner, sharing)


def _forget(home: Home, owner: int, name: str, borrower: int) -> None:
    """Note that somebody borrows no more."""
    try:
        sharing = _held(home, owner)
    except NotFoundError:
        return
    borrowers = sharing.get("lent", {}).get(name, [])
    if borrower in borrowers:
        borrowers.remove(borrower)
        if not borrowers:
            del sharing["lent"][name]
        _note(home, owner, sharing)


def _borrows(home: Home, gid: int, name: str, owner: int) -> bool:
    try:
        borrowed = _sharing(home, gid).get("borrowed", {})
    except NotFoundError:
        return False
    return bool(borrowed.get(name) == owner)


def _give_aliases(home: Home, gid: int, target: int) -> None:
    """Let an object's aliases be those of another one; in a batch."""
    home.hold(gid)
    aliases = home.notes(gid, ALIASES_OF) or []
    for alias in aliases:
        _engram.delete(home.namespace, home.namespace.root, alias_path(alias))
        home.add_alias(target, alias)
    if aliases:
        home.note(gid, ALIASES_OF, None)
