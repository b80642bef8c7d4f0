"""One commit of objects: fields that change, and all that they refer to and is not stored yet."""

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from engram import _engram
from engram.active import undoing
from engram.active.code.classes import register
from engram.active.errors import (
    ConflictError,
    ObjectDeletedError,
    UnsupportedFieldError,
    gone,
)
from engram.active.places.placing import DEVICE
from engram.active.stored.forms import Form, form_of
from engram.active.stored.home import Home
from engram.active.stored.identity import ByIdentity
from engram.active.stored.layout import CLASS
from engram.active.stored.meanwhile import unless_changed
from engram.errors import NotFoundError

if TYPE_CHECKING:
    from engram.active.object import ActiveObject
    from engram.scope import Scope


class Storing:
    """A with-block whose changes happen all at once, or not at all.

    Objects that are not stored yet are made as soon as something refers to them, so that what
    refers to them knows their ids; their fields are put when the block ends. They become persistent
    with the commit, so an error leaves them as they were.
    """

    def __init__(
        self,
        home: Home,
        *,
        scope: "Scope | None" = None,
        recursive: bool = True,
        device: Any = None,
    ) -> None:
        self._home = home
        self._scope: Scope | None = "private" if scope == "private" else None
        self._recursive = recursive
        self._device = device
        if scope == "private":
            home.make_groups()
        self._batch = home.batch()
        self._made: ByIdentity[int] = ByIdentity()
        self._waiting: deque[ActiveObject] = deque()
        self._touched: set[int] = set()

    def __enter__(self) -> Self:
        self._batch.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._fill()
        except BaseException as failed:
            self._batch.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._batch.__exit__(kind, error, trace)
        if kind is None:
            undoing.note(*self._made)
            for obj, gid in self._made.items():
                obj._become(self._home, gid)

    def make(self, obj: "ActiveObject") -> int:
        """Make a volatile object persistent at the end of the block; give its id."""
        gid = self._made.get(obj)
        if gid is None:
            attributes = {CLASS: register(self._home, type(obj), self._scope), **self._placed()}
            gid = self._made[obj] = self._home.create(attributes, self._scope)
            self._waiting.append(obj)
        return gid

    def make_whole(self, obj: "ActiveObject") -> int:
        """Do as `make`, in one go where no other object is referred to."""
        try:
            forms = {
                name: form_of(obj._label(name), value, _refused)
                for name, value in (obj._volatile or {}).items()
            }
        except _RefersError:
            return self.make(obj)
        attributes = {name: form.value for name, form in forms.items() if form.kind == "attribute"}
        attributes |= {CLASS: register(self._home, type(obj), self._scope), **self._placed()}
        gid = self._made[obj] = self._home.create(attributes, self._scope)
        for name, form in forms.items():
            self._home.store(gid, name, form, self._device)
        return gid

    def _placed(self) -> dict[str, int]:
        """Give the note of the device that objects are made on, if one was named."""
        return {} if self._device is None else {DEVICE: self._device}

    def put(self, obj: "ActiveObject", name: str, value: Any) -> None:
        """Put a field of a stored object."""
        gid, home = obj._gid, self._home
        obj._check_writable()
        form = form_of(obj._label(name), value, self._refer)

        def replace() -> None:
            if form.kind != "attribute":
                home.hold(gid)
            if obj._follow():
                raise ConflictError(f"{obj!r} was moved by another process meanwhile: do it again")
            device = None if form.kind == "attribute" else home.notes(gid, DEVICE)
            obj._before_replacing(name)
            if form.refers:
                self._touch(form, home.references_of(gid, name))
            home.replace(gid, name, form, device)

        try:
            unless_changed(home, replace, gid)
        except ObjectDeletedError:
            if home.is_there(gid):  # what the value refers to is gone
                raise
            raise gone(type(obj).__qualname__, gid) from None

    def _fill(self) -> None:
        """Put the fields of all objects that are made, and of those that these refer to."""
        while self._waiting:
            obj = self._waiting.popleft()
            gid = self._made[obj]
            attributes = {}
            for name, value in (obj._volatile or {}).items():
                form = form_of(obj._label(name), value, self._refer)
                self._touch(form, [])
                if form.kind == "attribute":
                    attributes[name] = form.value
                else:
                    self._home.store(gid, name, form, self._device)
            if attributes:
                _engram.attr_set(self._home.namespace, True, gid, attributes)

    def _refer(self, target: "ActiveObject") -> Any:
        """Give what a reference is kept as."""
        if target._volatile is None:
            return target._reference_from(self._home)
        if not self._recursive and target not in self._made:
            raise UnsupportedFieldError(
                f"{target!r} is referred to and is not persistent: make it so first, or give "
                "recursive=True"
            )
        return self.make(target)

    def _touch(self, form: Form, before: list[Any]) -> None:
        """Tell objects that were stored already that they are referred to from now on."""
        for target in form.refers:
            if target._volatile is not None:
                continue
            gid = target._gid
            if gid in self._touched or (target._home.key == self._home.key and gid in before):
                continue
            try:
                if target._home.key == self._home.key and self._is_here(gid):
                    self._home.touch(gid)
                else:
                    target._home.keep_for_others(gid)
            except NotFoundError:
                raise gone(type(target).__qualname__, gid) from None
            self._touched.add(gid)

    def _is_here(self, gid: int) -> bool:
        """Tell whether an object is in the scope that this batch is in."""
        return self._home.scope_of(gid) == self._scope


class _RefersError(Exception):
    """An object refers to others, so it is not put in one go."""


def _refused(target: Any) -> Any:
    raise _RefersError(target)
