"""What the page changes, where it may: names, attributes, and what is there at all."""

from __future__ import annotations

import json
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
        If what came is not {"set": {NAME: VALUE}, "texts": {NAME: TEXT}, "remove": [NAME]}.

    """
    put, texts, gone = (ask.body.get(name, {}) for name in ("set", "texts", "remove"))
    gone = gone or []
    if (
        not isinstance(put, dict)
        or not isinstance(texts, dict)
        or not isinstance(gone, list)
        or len(put) + len(texts) + len(gone) > _ATTRIBUTES
    ):
        raise ArgumentError(
            'what came is not {"set": {NAME: VALUE}, "texts": {NAME: TEXT}, "remove": [NAME]}, '
            f"or it has over {_ATTRIBUTES:,} names"
        )
    put = put | {name: _read(name, text) for name, text in texts.items()}
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


def _read(name: str, text: Any) -> Any:
    """Return what somebody has typed: the value that it is as JSON, else the text itself.

    A browser would make 1 of 1.0, and has no whole numbers beyond 2^53.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"attribute {name!r}: what was typed is a text, and this is none")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity are no JSON


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
