"""Stubs: classes by their names, for programs that do not import their modules."""

import importlib
from typing import Any

from engram.active import load_class
from engram.active.code import classes
from engram.compat.dataclay.runtime import home


class StubDataClayObject:
    """`StubDataClayObject["model.Person"]`: that class, whose new objects are persistent at once.

    It is the program's own class, if it has it or can import it; else the one whose source the pool
    keeps (`engram.active.load_class`, which runs it only if nobody else can have written it).
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __class_getitem__(cls, name: str) -> "StubDataClayObject":
        """Give the class of a name."""
        if name not in classes._ours:
            try:
                importlib.import_module(name.rpartition(".")[0])
            except ImportError:
                load_class(name, _Used())
        return cls(classes._ours[name])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make an object, which is persistent."""
        made = self._kind(*args, **kwargs)
        made.make_persistent()
        return made

    def __getattr__(self, name: str) -> Any:
        """Give what the class has."""
        return getattr(self._kind, name)


class _Used:
    """The namespace in use, for `load_class`."""

    @property
    def _namespace(self) -> Any:
        return home().namespace
