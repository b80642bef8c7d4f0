"""What dataClay keeps of an object, as far as there is something of the kind here; and ids.

An object's id is a UUID that is made of its pool, its namespace and its number in it, so that an
object can be found by it without a table of ids. It is the same in every process, and changes only
when the object moves to another pool, where the old one leads on for as long as the old pool is
open.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self
from uuid import UUID, uuid5

from engram.active import using
from engram.active.stored.home import Home
from engram.errors import EngramError
from engram.pool import Pool, _shared_opening

_BACKENDS: Final = UUID("5f0e3a52-6d6c-5b1f-9f0c-6f6a4b1d7c11")
_HALF: Final = 64


@dataclass
class ObjectMetadata:
    """An object's metadata, as they are when one asks."""

    id: UUID | None
    dataset_name: str | None
    class_name: str
    master_backend_id: UUID | None = None
    replica_backend_ids: set[UUID] = field(default_factory=set)
    is_read_only: bool = False
    original_object_id: UUID | None = None
    versions_object_ids: list[UUID] = field(default_factory=list)

    def model_dump_json(self) -> str:
        """Write them as JSON without any whitespace."""
        facts = {
            name: _plain(value) if not isinstance(value, set | list) else [*map(str, value)]
            for name, value in vars(self).items()
        }
        return json.dumps(facts, separators=(",", ":"))

    @classmethod
    def model_validate_json(cls, text: str) -> Self:
        """Read them from JSON."""
        facts = json.loads(text)
        found = cls(UUID(facts["id"]), facts.get("dataset_name"), facts.get("class_name", ""))
        if facts.get("master_backend_id"):
            found.master_backend_id = UUID(facts["master_backend_id"])
        return found


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


def _digest(home: Home) -> int:
    text = "/".join(home.key).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") & ((1 << 62) - 1)


def object_id(home: Home, gid: int) -> UUID:
    """Give the id of a stored object."""
    return UUID(int=gid << _HALF | 0b10 << 62 | _digest(home))


def found(number: UUID) -> tuple[Home, int] | None:
    """Give the home and the number of an object with an id, if its pool is open."""
    half = number.int & ((1 << 62) - 1)
    for homes in (using.all_homes, _homes):
        for home in homes():
            if _digest(home) == half:
                return home, number.int >> _HALF
    return None


def _homes() -> list[Home]:
    """Give the homes of objects in all pools that are open, in all their namespaces."""
    homes = {home.key: home for home in using.all_homes()}
    for home in list(homes.values()):
        mode = "r+" if home.namespace.writable else "r"
        opening = _shared_opening(home.pool_path, mode, home.key[0])
        for name in Pool(opening).namespaces:
            if (home.key[0], name) not in homes:
                with suppress(EngramError):  # another user's
                    homes[home.key[0], name] = using.other_namespace(home, name)
    return list(homes.values())


def backend_id(home: Home, device: int) -> UUID:
    """Give the id of a device of a pool, as a backend."""
    return uuid5(_BACKENDS, f"{home.key[0]}/{home.key[1]}/{device}")
