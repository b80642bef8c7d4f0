"""Fields: what an annotation makes of a name, on a volatile object and on a stored one."""

from typing import TYPE_CHECKING, Any, Self, overload

from engram import _engram
from engram.active.home import MISSING, Loaded, gone
from engram.active.schema import is_array
from engram.active.transaction import DELETED, field_view, local
from engram.errors import NotFoundError

if TYPE_CHECKING:
    from engram.active.object import ActiveObject

NO_DEFAULT = object()


class Field:
    """A declared field of a class of active objects.

    Reading one of a stored object reads the pool; an array is then a numpy array on its memory.
    Outside of a method a container is a copy: assign it to change it. Assigning is a commit.
    """

    __slots__ = ("array_first", "default", "hint", "label", "name")

    def __init__(self, owner: str, name: str, hint: Any, default: Any) -> None:
        self.name = name
        self.label = f"{owner}.{name}"
        self.hint = hint
        self.default = default
        self.array_first = is_array(hint if isinstance(hint, str) else repr(hint))

    @overload
    def __get__(self, obj: None, owner: type) -> Self: ...
    @overload
    def __get__(self, obj: "ActiveObject", owner: type) -> Any: ...
    def __get__(self, obj: "ActiveObject | None", owner: type | None = None) -> Any:
        if obj is None:
            return self
        if obj._volatile is not None:
            try:
                return obj._volatile[self.name]
            except KeyError:
                raise self.missing(obj) from None
        if local.transaction is not None:
            return local.transaction.read(obj, self)
        loaded = self.load(obj)
        if loaded is MISSING:
            raise self.missing(obj)
        return field_view(obj, self.name, loaded, write=True) if loaded.member else loaded.value

    def __set__(self, obj: "ActiveObject", value: Any) -> None:
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

    def load(self, obj: "ActiveObject") -> Loaded:
        """Read the field of a stored object.

        Raises
        ------
        ObjectDeletedError
            If the object is gone.

        """
        home = obj._home
        try:
            loaded = home.load(
                obj._gid, self.name, self.label, obj._object_of, array_first=self.array_first
            )
            return loaded if loaded is not MISSING else obj._borrowed(self.name)
        except NotFoundError:
            if not _is_there(obj):
                raise gone(type(obj).__qualname__, obj._gid) from None
            raise

    def missing(self, obj: "ActiveObject") -> AttributeError:
        """Say that the object has no value for the field."""
        if obj._volatile is None and not _is_there(obj):
            raise gone(type(obj).__qualname__, obj._gid)
        return AttributeError(
            f"{self.label} has no value yet in this object: assign one", name=self.name, obj=None
        )

    def __repr__(self) -> str:
        return f"<field {self.label}>"


def _is_there(obj: "ActiveObject") -> bool:
    try:
        _engram.group_info(obj._home.realm, obj._gid)
    except NotFoundError:
        return False
    return True
