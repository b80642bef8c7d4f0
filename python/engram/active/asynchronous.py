"""Twins for asyncio: each method of an object's life once more as a coroutine, named `a_...`.

They run in a thread of asyncio's own, so that the event loop goes on; the store itself waits for
nothing but locks and disks.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Twins:
    """What an active object can do, for asyncio."""

    @staticmethod
    def _twin(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def twin(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(function, *args, **kwargs)

        twin.__name__ = f"a_{function.__name__}"
        return twin

    async def a_make_persistent(self, *args: Any, **kwargs: Any) -> None:
        """Do as `make_persistent`."""
        await self._do("make_persistent", *args, **kwargs)

    async def a_add_alias(self, alias: str) -> None:
        """Do as `add_alias`."""
        await self._do("add_alias", alias)

    async def a_get_aliases(self) -> set[str]:
        """Do as `get_aliases`."""
        found: set[str] = await self._do("get_aliases")
        return found

    async def a_delete(self) -> None:
        """Do as `delete`."""
        await self._do("delete")

    async def a_get_properties(self) -> dict[str, Any]:
        """Do as `get_properties`."""
        found: dict[str, Any] = await self._do("get_properties")
        return found

    async def a_sync(self) -> None:
        """Do as `sync`."""
        await self._do("sync")

    async def a_move(self, *args: Any, **kwargs: Any) -> None:
        """Do as `move`."""
        await self._do("move", *args, **kwargs)

    async def a_new_version(self, *args: Any, **kwargs: Any) -> Any:
        """Do as `new_version`."""
        return await self._do("new_version", *args, **kwargs)

    async def a_consolidate_version(self) -> None:
        """Do as `consolidate_version`."""
        await self._do("consolidate_version")

    async def a_new_replica(self, *args: Any, **kwargs: Any) -> Any:
        """Do as `new_replica`."""
        return await self._do("new_replica", *args, **kwargs)

    @classmethod
    async def a_get_by_alias(cls, *args: Any, **kwargs: Any) -> Any:
        """Do as `get_by_alias`."""
        return await asyncio.to_thread(getattr(cls, "get_by_alias"), *args, **kwargs)  # noqa: B009

    @classmethod
    async def a_get_by_id(cls, *args: Any, **kwargs: Any) -> Any:
        """Do as `get_by_id`."""
        return await asyncio.to_thread(getattr(cls, "get_by_id"), *args, **kwargs)  # noqa: B009

    @classmethod
    async def a_delete_alias(cls, *args: Any, **kwargs: Any) -> Any:
        """Do as `delete_alias`."""
        return await asyncio.to_thread(getattr(cls, "delete_alias"), *args, **kwargs)  # noqa: B009

    async def _do(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(getattr(self, name), *args, **kwargs)
