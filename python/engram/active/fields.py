"""Fields: what an annotation makes of a name, on a volatile object and on a stored one."""

import copy
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from engram.active.code.schema import is_array, is_array_alone
from engram.active.errors import (
    ObjectDeletedError,
    UnsupportedFieldError,
    WentFarError,
    gone,
)
from engram.active.stored.forms import MISSING, Loaded, form_of
from engram.active.transaction import DELETED, MOST_TRIES, field_view, found_view, local
from engram.errors import BusyError, NotFoundError

if TYPE_CHECKING:
    from engram.active.object import ActiveObject

NO_DEFAULT = object()

_NO_ARRAYS = (str, bytes, bytearray)
"""What no field holds whose annotation names arrays alone. Lists and numbers, of which numpy makes
arrays, are kept as they are; no other annotation is enforced."""

_SHOWN = 40


class Field:
    """A declared field of a class of active objects.

    Reading one of a stored object reads the pool; an array is then a numpy array on its memory.
    Outside of a method a container is a copy: assign it to change it. Assigning is a commit.
    """

    __slots__ = ("array_alone", "array_first", "default", "hint", "label", "name")

    def __init__(self, owner: str, name: str, hint: Any, default: Any) -> None:
        self.name = name
        self.label = f"{owner}.{name}"
        self.hint = hint
        self.default = default
        self.array_alone = is_array_alone(hint)
        self.array_first = is_array(hint if isinstance(hint, str) else repr(hint))

    @overload
    def __get__(self, obj: None, owner: type) -> Self: ...
    @overload
    def __get__(self, obj: "ActiveObject", owner: type) -> Any: ...
    def __get__(self, obj: "ActiveObject | None", owner: type | None = None) -> Any:
        if obj is None:
            return self
        if obj._volatile is not None:
            if self.name not in obj._volatile:
                obj._volatile[self.name] = self.again(obj)
            return obj._volatile[self.name]
        if local.transaction is not None:
            return local.transaction.read(obj, self)
        try:
            return self._read(obj)
        except WentFarError:
            return getattr(obj, self.name)
        except AttributeError:  # a batch that nobody could end any more was undone by the look
            if obj._volatile is None:
                raise
            return self.__get__(obj, owner)

    def _read(self, obj: "ActiveObject") -> Any:
        """Read the value of a stored object, outside of a method."""
        if self.array_first:
            found = found_view(obj, self.name, write=True)
            if found is not None:
                return found[1]
        for left in range(MOST_TRIES, -1, -1):
            loaded = self.load(obj)
            if loaded is MISSING:
                raise self.missing(obj)
            if not loaded.member:
                return loaded.value
            try:
                return field_view(obj, self.name, loaded, write=True)
            except (NotFoundError, BusyError):  # the array was replaced meanwhile
                if not obj._home.is_there(obj._gid):
                    raise gone(type(obj).__qualname__, obj._gid) from None
                if not left:
                    raise
        raise AssertionError

    def __set__(self, obj: "ActiveObject", value: Any) -> None:
        if self.array_alone and isinstance(value, _NO_ARRAYS):
            raise UnsupportedFieldError(
                f"{self.label} is a field for arrays, and {_shown(value)} is a "
                f"{type(value).__name__}: assign an array (numpy.array makes one), or annotate the "
                f"field as one that may be a {type(value).__name__}, too"
            )
        if obj._volatile is not None:
            obj._volatile[self.name] = value
        elif local.transaction is not None:
            local.transaction.write(obj, self, value)
        else:
            obj._put({self.name: value})

    def __delete__(self, obj: "ActiveObject") -> None:
        if obj._volatile is not None:
            if obj._volatile.pop(self.name, DELETED) is DELETED:
                raise self.missing(obj)
        elif local.transaction is not None:
            local.transaction.write(obj, self, DELETED)
        else:
            obj._put({self.name: DELETED})

    def load(self, obj: "ActiveObject", refer: Any = None) -> Loaded:
        """Read the field of a stored object; `refer` gives others than the objects referred to.

        Raises
        ------
        ObjectDeletedError
            If the object is gone.
        WentFarError
            If it has moved to another node.

        """
        before, left = None, MOST_TRIES
        while True:
            try:
                loaded = self._find(obj, refer or obj._object_of)
                if loaded is not MISSING:
                    return loaded
                now = obj._home.modified(obj._gid)
            except ObjectDeletedError:  # what it refers to is
                raise
            except NotFoundError:  # deleted, or what was found is replaced meanwhile
                if not obj._home.is_there(obj._gid):
                    raise gone(type(obj).__qualname__, obj._gid) from None
                if not left:  # what is missing is not here: the pool of what it refers to
                    raise
                left -= 1
                continue
            if now == before:  # not about to change its form, when it is seen in neither
                return self._defaulted(obj)
            before = None if obj._follow() else now
            if obj._home.is_far:
                raise WentFarError(f"{obj!r} was moved by another process meanwhile: do it again")

    def _find(self, obj: "ActiveObject", refer: Any) -> Loaded:
        """Look once for what the field has."""
        loaded = obj._home.load(
            obj._gid, self.name, self.label, refer, array_first=self.array_first
        )
        return loaded if loaded is not MISSING else obj._borrowed(self.name)

    def _defaulted(self, obj: "ActiveObject") -> Loaded:
        """Give the class's default, for an object that was stored before there was the field."""
        if self.default is NO_DEFAULT or not obj._home.is_there(obj._gid):
            return MISSING
        value = copy.deepcopy(self.default)
        form = form_of(self.label, value, lambda _other: None)
        raw = form.value
        if isinstance(raw, np.ndarray) and form.kind == "attribute":
            raw = raw.tobytes()
        return Loaded(value, raw.copy() if isinstance(raw, np.ndarray) else raw)

    def again(self, obj: "ActiveObject") -> Any:
        """Give what the field has once its value was deleted: the class's default."""
        if self.default is NO_DEFAULT:
            raise self.missing(obj)
        return copy.deepcopy(self.default)

    def missing(self, obj: "ActiveObject") -> AttributeError:
        """Say that the object has no value for the field."""
        if obj._volatile is None and not obj._home.is_there(obj._gid):
            raise gone(type(obj).__qualname__, obj._gid)
        return AttributeError(
            f"{self.label} has no value yet in this object: assign one", name=self.name, obj=None
        )

    def __repr__(self) -> str:
        return f"<field {self.label}>"


def _shown(value: Any) -> str:
    """Write a value as text, not all of a long one."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 2] + " …"
