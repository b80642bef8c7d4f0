"""Aliens: values that are no active objects, as if they were."""

from typing import Any

from engram.active.code import classes
from engram.active.fields import Field
from engram.compat.dataclay.dataclay_object import DataClayObject
from engram.compat.dataclay.method import activemethod

_OWN = ("_dc_", "_volatile", "_home", "_gid", "_ended", "_replica_of")


class AlienDataClayObject(DataClayObject):
    """A list, dict, date, dataclass or pydantic model that is persistent by itself.

    Reading goes to the value; what is done by a method of it, by an item or by an attribute is
    stored. The value is of a type that a field can hold.
    """

    _fields = {"_dc_value": Field("AlienDataClayObject", "_dc_value", Any, None)}  # noqa: RUF012
    _dc_value = _fields["_dc_value"]

    def __init__(self, value: Any) -> None:
        self._dc_value = value

    @activemethod(locks=True)
    def _dc_call(self, name: str, args: Any, kwargs: Any) -> Any:
        return getattr(self._dc_value, name)(*args, **kwargs)

    @activemethod(locks=True)
    def _dc_set(self, name: str, value: Any) -> None:
        setattr(self._dc_value, name, value)

    @activemethod(locks=True)
    def _dc_delete(self, name: str) -> None:
        delattr(self._dc_value, name)

    def __getattr__(self, name: str) -> Any:
        """Give what the value has."""
        if name.startswith(_OWN) or name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._dc_value, name)
        if callable(found):
            return lambda *args, **kwargs: self._dc_call(name, args, kwargs)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith(_OWN):
            super().__setattr__(name, value)
        else:
            self._dc_set(name, value)

    def __delattr__(self, name: str) -> None:
        if name.startswith(_OWN):
            super().__delattr__(name)
        else:
            self._dc_delete(name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, AlienDataClayObject):
            return super().__eq__(other) or bool(self._dc_value == other._dc_value)
        return bool(self._dc_value == other)

    __hash__ = DataClayObject.__hash__

    def __len__(self) -> int:
        return len(self._dc_value)

    def __iter__(self) -> Any:
        return iter(self._dc_value)

    def __contains__(self, item: object) -> bool:
        return item in self._dc_value

    def __getitem__(self, key: Any) -> Any:
        return self._dc_value[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._dc_call("__setitem__", (key, value), {})

    def __delitem__(self, key: Any) -> None:
        self._dc_call("__delitem__", (key,), {})

    def __str__(self) -> str:
        return str(self._dc_value)

    def __bool__(self) -> bool:
        return bool(self._dc_value)


classes.enter(AlienDataClayObject)
