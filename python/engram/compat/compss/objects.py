"""`StorageObject`: what COMPSs calls a persistent object, with fields or without.

A class that declares fields, by annotations or by a docstring's `@ClassField`, has just these, as
`DataClayObject` has. A class that declares none keeps all of its attributes that do not begin with
an underscore: each becomes a field when it is assigned first. (So it is with COMPSs' Redis, which
pickles the whole object.)
"""

import inspect
from typing import Any, ClassVar

from engram import _engram
from engram.active.code import schema
from engram.active.fields import NO_DEFAULT, Field
from engram.active.stored.layout import SHARING
from engram.compat.dataclay import DataClayObject
from engram.errors import NotFoundError


class _OpenField(Field):
    """A field that nobody declared; until it is assigned, it is what the class has there."""

    __slots__ = ()

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        try:
            return super().__get__(obj, owner)  # type: ignore[arg-type]
        except AttributeError:
            if self.default is NO_DEFAULT:
                raise
            return self.default


class StorageObject(DataClayObject):
    """An object that COMPSs can hand from task to task by its id."""

    _open: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Tell whether the class declares fields."""
        super().__init_subclass__(**kwargs)
        declares = bool(cls._declared())
        cls._open = not declares and all(getattr(base, "_open", True) for base in cls.__bases__)

    @classmethod
    def _declare(cls, name: str) -> None:
        """Make a field of a name, if it can be one."""
        there = inspect.getattr_static(cls, name, NO_DEFAULT)
        if isinstance(there, Field):
            cls._fields = {**cls._fields, name: there}
        elif not (callable(there) or hasattr(there, "__get__")):
            field = _OpenField(cls.__qualname__, name, Any, there)
            setattr(cls, name, field)
            cls._fields = {**cls._fields, name: field}
        cls._hints = None

    @classmethod
    def _facts(cls) -> dict[str, schema.Fact]:
        return {} if cls._open else super()._facts()

    @classmethod
    def _containers(cls) -> set[str]:
        return set(cls._fields) if cls._open else super()._containers()

    def _found(self) -> None:
        self._declare_stored()
        super()._found()

    def _declare_stored(self) -> None:
        """Make fields of all that a stored object has."""
        if not self._open:
            return
        home, gid = self._home, self._gid
        try:
            names = set(_engram.attr_names(home.namespace, True, gid))
            names.update(_engram.names(home.namespace, gid, None, 1_000_000))
            names.update((home.notes(gid, SHARING) or {}).get("borrowed", ()))
        except NotFoundError:
            return
        for name in sorted(names - self._fields.keys()):
            if not name.startswith("_"):
                self._declare(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._open and name[0] != "_" and name not in self._fields:
            self._declare(name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Look again for a field that another process has given the object."""
        known = name in self._fields  # its own error is not seen where there is this method
        if self._open and name[0] != "_" and self._volatile is None and not known:
            self._declare_stored()
            if name in self._fields:
                return getattr(self, name)
        return super().__getattr__(name)  # type: ignore[misc]  # it has one for others' eyes

    def getID(self) -> str | None:  # noqa: N802 - COMPSs' name
        """Give its id; None if it is not persistent."""
        self._dc_settle()
        return self.get_id()

    def updatePersistent(self) -> None:  # noqa: N802 - COMPSs' name
        """Make what was written in place durable; all else is stored when it is assigned."""
        if self._volatile is None:
            self.sync()
