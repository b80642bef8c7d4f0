"""What the page changes, where it may: names, attributes, and what is there at all."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from engram.errors import ArgumentError, BusyError
from engram.web.served import ServedCluster, pool_of

if TYPE_CHECKING:
    from engram.web.answers import Ask
    from engram.web.served import Served

_ATTRIBUTES = 1000
_DONE = {"done": True}
_PATIENCE_S = 2.0
"""So long a change is tried again where others change the same."""
_REST_S = 0.02


def delete(served: Served, ask: Ask) -> dict[str, Any]:
    """Delete a member, with all that is below it."""
    path = _named(ask, "path")
    if isinstance(served, ServedCluster):
        whole = "/".join(filter(None, (served.below, path)))
        del served.cluster[whole]
    else:
        del pool_of(served, "a deletion").root[path]
    return _DONE


def rename(served: Served, ask: Ask) -> dict[str, Any]:
    """Rename a member, or move it."""
    pool_of(served, "a new name").root.move(_named(ask, "path"), _named(ask, "to"))
    return _DONE


def attr(served: Served, ask: Ask) -> dict[str, Any]:
    """Set attributes and remove some, all in one commit of a pool.

    Raises
    ------
    ArgumentError
        If what came is not {"set": {NAME: VALUE}, "remove": [NAME]}.

    """
    put, gone = ask.body.get("set", {}), ask.body.get("remove", [])
    if (
        not isinstance(put, dict)
        or not isinstance(gone, list)
        or len(put) + len(gone) > _ATTRIBUTES
    ):
        raise ArgumentError('what came is not {"set": {NAME: VALUE}, "remove": [NAME]}')
    values = {name: _value(name, value) for name, value in put.items()}
    thing = served.found(ask.text("path"))
    if isinstance(served, ServedCluster):
        thing.attrs.update(values)
        for name in gone:
            del thing.attrs[name]
        return _DONE
    root = pool_of(served, "a change").root
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with root.batch():
                for name in gone:
                    del thing.attrs[name]
                thing.attrs.update(values)
        except BusyError:  # somebody else has changed it since the batch looked at it
            if time.monotonic() > until:
                raise
            time.sleep(random.uniform(0.0, _REST_S))  # noqa: S311 - no secret comes of it
        else:
            return _DONE


def _value(name: str, value: Any) -> Any:
    """Return a value of JSON as an attribute: also as `wire` writes whole numbers and floats."""
    if isinstance(value, dict):
        try:
            ((kind, text),) = value.items()
            return {"int": int, "float": float}[kind](text)
        except (KeyError, TypeError, ValueError):
            raise ArgumentError(f"attribute {name!r}: an object of JSON cannot be kept") from None
    if value is None:
        raise ArgumentError(f"attribute {name!r}: null cannot be kept; remove it")
    return value


def _named(ask: Ask, name: str) -> str:
    path = ask.needed(name).strip("/")
    if not path:
        raise ArgumentError(f"{name} is the root: name what lies below it")
    return path
