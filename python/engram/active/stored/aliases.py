"""Aliases: names of objects, one of their own each in a namespace.

An alias is a row, and stands in its object, too; both are written by one commit.
"""

from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, unquote

import numpy as np

from engram import _engram
from engram.active.errors import AliasNotFoundError, AliasTakenError
from engram.active.stored.layout import ALIASES, ALIASES_OF
from engram.active.stored.records import Records
from engram.errors import CorruptError, ExistsError, InvalidNameError, NotFoundError
from engram.member import new_member

_LONGEST_ALIAS: Final = 255
_SAFE: Final = " !#$&'()*+,-:;<=>?@[]^_`{|}~"


def alias_path(alias: str) -> str:
    """Give the path of an alias.

    Raises
    ------
    InvalidNameError
        If it is no text, empty, or too long.

    """
    if not isinstance(alias, str) or not alias:
        raise InvalidNameError(f"an alias is a text of some length, not {alias!r}")
    try:
        name = quote(alias, safe=_SAFE).replace(".", "%2E")
    except UnicodeEncodeError as error:
        raise InvalidNameError(f"the alias {alias!r} is no text in Unicode: {error}") from None
    if len(name) > _LONGEST_ALIAS:
        raise InvalidNameError(
            f"the alias {alias[:40]!r}... is too long: its name in the pool has {len(name)} bytes, "
            f"at most {_LONGEST_ALIAS} fit"
        )
    return f"{ALIASES}/{name}"


class Aliases(Records):
    """What a home can do about aliases."""

    def add_alias(self, gid: int, alias: str) -> None:
        """Give an object an alias; in a batch.

        Raises
        ------
        AliasTakenError
            If something has it.

        """
        path = alias_path(alias)
        target = np.uint64(gid)
        new = new_member(index_mode="none", scope=self.scope_of(gid))
        try:
            _engram.put_array(self.namespace, self.namespace.root, path, target, new)
        except ExistsError:
            raise AliasTakenError(
                f"the alias {alias!r} is taken: choose another, or delete_alias({alias!r}) first"
            ) from None
        self.hold(gid)
        have = self.notes(gid, ALIASES_OF) or []
        self.note(gid, ALIASES_OF, [*have, alias])

    def by_alias(self, alias: str) -> int:
        """Give the id of the object that has an alias.

        Raises
        ------
        AliasNotFoundError
            If none has.
        CorruptError
            If what stands there is no object's id.

        """
        found = _engram.find(self.namespace, self.namespace.root, alias_path(alias))
        if found is None or found[0] != 1:
            raise AliasNotFoundError(
                f"no object has the alias {alias!r} in {self.pool_path!r}: "
                "`engram active ls` lists those there are"
            )
        try:
            gid = self._target(found)
        except NotFoundError:  # deleted, or given to another object, meanwhile
            return self.by_alias(alias)
        if gid is None:
            raise CorruptError(
                f"the alias {alias!r} in {self.pool_path!r} is no object's id: something else has "
                f"written it; delete_alias({alias!r}) takes it away"
            )
        return gid

    def _target(self, found: Any) -> int | None:
        """Give the id that an alias's row holds; None if it holds something else."""
        _, oid, dtype, shape = found
        if np.dtype(dtype) != np.uint64 or tuple(shape):
            return None
        return int(_engram.read(self.namespace, oid, dtype, shape))

    def delete_alias(self, alias: str) -> None:
        """Take an alias away from its object; in a batch."""
        gid = None
        with suppress(CorruptError):
            gid = self.by_alias(alias)
        _engram.delete(self.namespace, self.namespace.root, alias_path(alias))
        if gid is None:  # it was no object's
            return
        try:
            self.hold(gid)
            have = self.notes(gid, ALIASES_OF) or []
        except NotFoundError:
            return
        self.note(gid, ALIASES_OF, [name for name in have if name != alias] or None)

    def aliases(self) -> dict[str, int | None]:
        """Give all aliases and the ids of their objects; None where something else stands."""
        group = self.group_if_there(ALIASES)
        found: dict[str, int | None] = {}
        after = None
        while group is not None:
            members, after = _engram.members(self.namespace, group, after, 1024)
            for name, row in members:
                if row[0] == 1:
                    found[unquote(name)] = self._target(row)
            if after is None:
                break
        return found
