"""Schemas of dataClay 2: what a class's docstring says of its fields and of what it imports.

::

    class Block(DataClayObject):
        '''A block of a matrix.

        @dclayImport numpy as np
        @ClassField block numpy.ndarray
        '''

The names of types are dataClay's: `int`, `float`, `bool`, `str`, `bytes`, `None`, `anything`,
`storageobject`; `list`, `tuple`, `set` and `dict`, also `list<int>`; numpy's with `numpy.` before
them; classes with their module's name before theirs. `[` and `]` stand for `<` and `>`.
"""

import re
import sys
from typing import Any, Final

from engram.compat.dataclay.exceptions import InvalidPythonSignature

_FIELD: Final = re.compile(r"^\s*@ClassField\s+([\w.]+)[ \t]+([\w.\[\]<> ,]+)", re.MULTILINE)
_IMPORT: Final = re.compile(r"^\s*@d[cC]layImport(From)?\s+(.+)$", re.MULTILINE)

_PLAIN: Final = frozenset(
    ("int", "float", "bool", "None", "str", "bytes", "anything", "storageobject")
)
_CONTAINERS: Final = ("list", "tuple", "set", "dict")


def fields_of(cls: type) -> dict[str, str]:
    """Give the fields that a class's own docstring declares, with their types' names.

    Raises
    ------
    InvalidPythonSignature
        If it is of a type that dataClay does not have.

    """
    text = vars(cls).get("__doc__") or ""
    return {
        name: checked(kind.strip(), f"field {name!r} of {cls.__qualname__}")
        for name, kind in _FIELD.findall(text)
    }


def checked(kind: Any, what: str) -> str:
    """Give the name of a type in one spelling.

    Raises
    ------
    InvalidPythonSignature
        If it is none.

    """
    if kind is None or isinstance(kind, type):
        return "None" if kind is None else kind.__qualname__
    if isinstance(kind, str):
        name = re.sub(r"\s+", " ", kind.replace("[", "<").replace("]", ">")).strip()
        if name in _PLAIN or name.startswith(_CONTAINERS):
            return name
        if re.fullmatch(r"\w+(\.\w+)+", name):
            return name
    raise InvalidPythonSignature(
        f"{what}: type {kind!r} is none of dataClay's: write {', '.join(sorted(_PLAIN))}, a "
        "container such as list<int>, numpy.ndarray, or a class with its module, such as "
        "model.block.Block"
    )


def import_into_module(cls: type) -> None:
    """Do the imports that a class's docstring asks for, into its module, where they lack there.

    Raises
    ------
    ImportError
        If one of them cannot be done.

    """
    module = sys.modules.get(cls.__module__)
    known = vars(module) if module is not None else {}
    for mode, what in _IMPORT.findall(vars(cls).get("__doc__") or ""):
        line = f"from {what}" if mode else f"import {what}"
        scratch: dict[str, Any] = {}
        try:
            exec(line, scratch)  # noqa: S102 - a line of the class's own file, as Python has it
        except (ImportError, SyntaxError) as error:
            raise ImportError(
                f"{cls.__qualname__}: its docstring says {line!r}, which failed: {error}"
            ) from error
        for name, value in scratch.items():
            if name != "__builtins__":
                known.setdefault(name, value)
