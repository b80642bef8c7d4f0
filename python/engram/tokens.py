"""Tokens: by what name dask knows a value, so that it computes what is known only once.

Two values of one token are one value to dask, in every process and for as long as a cluster holds
it. So a token is the same only where the values cannot change:

- An object of what is published is never written again. It may be withdrawn, changed and published
  anew under its id; but each publishing makes another version, which the token has.
- In a snapshot, small values, chunked arrays and strings are as its commit has left them: whoever
  writes them commits others. Larger values lie in memory that is written in place, and such writes
  show in a snapshot, too. So these get a new token there as well, and so does a group, which may
  hold them.

All else gets a token that nothing ever had, and is computed anew.
"""

import os

from engram import _engram
from engram.errors import EngramError

_NEW_BYTES = 16
"""Random bytes of a new token."""


def new() -> str:
    """Return a token that nothing else has, in any process."""
    return os.urandom(_NEW_BYTES).hex()


def of_object(namespace: _engram.Namespace, oid: int, *, is_kept: bool = False) -> object:
    """Return the token of an object's values.

    Parameters
    ----------
    namespace
        The namespace through which the object is seen.
    oid
        The object.
    is_kept
        Whether writing such an object leaves its old values where they are, however many they are.

    """
    try:
        version = namespace.published_version
        info = _engram.object_info(namespace, oid)
        if info.scope == "published":
            # What it was found in, unless a version came meanwhile.
            if version is None or version != namespace.published_version:
                return new()
            return _token(namespace, "published", version, oid)
        if namespace.is_snapshot and (is_kept or info.inline or info.chunks is not None):
            return _token(namespace, "snapshot", namespace.snapshot_name, oid)
    except EngramError:  # it is gone, or its pool is closed: who reads it is told
        pass
    return new()


def _token(namespace: _engram.Namespace, what: str, which: object, oid: int) -> object:
    """Return a token of what no two objects have in common, in any pool, at any time."""
    place = (namespace.uuid, str(namespace.pool_path), namespace.name)
    return ("engram", *place, what, which, oid)
