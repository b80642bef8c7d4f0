"""zarr's own tests of stores, from the installed package: its suite and its two state machines.

All of them pass: there are no exceptions.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from zarr.core.buffer import Buffer, cpu
from zarr.testing.stateful import ZarrHierarchyStateMachine, ZarrStoreStateMachine
from zarr.testing.store import StoreTests

from engram.zarr import Store

if TYPE_CHECKING:
    import engram

EXAMPLES = int(os.environ.get("ENGRAM_EXAMPLES", "25"))
"""How many walks of each state machine; more of them find more."""

pytestmark = pytest.mark.filterwarnings("ignore")


class TestStore(StoreTests[Store, cpu.Buffer]):  # type: ignore[misc] # mypy does not read zarr
    """A group of a pool, in all that zarr asks of a store."""

    store_cls = Store
    buffer_cls = cpu.Buffer

    async def set(self, store: Store, key: str, value: Buffer) -> None:
        store.group[key] = value.to_bytes()

    async def get(self, store: Store, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(bytes(store.group[key]))

    @pytest.fixture
    def store_kwargs(self, pool: engram.Pool) -> dict[str, Any]:
        return {"group": pool.require_group("keys"), "read_only": False}

    def test_store_repr(self, store: Store) -> None:
        assert repr(store) == f"Store('{store}')"
        assert str(store) == f"engram://{store.group._namespace.pool_path}/keys"

    def test_store_supports_writes(self, store: Store) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: Store) -> None:
        assert store.supports_listing


@pytest.mark.parametrize("machine", [ZarrStoreStateMachine, ZarrHierarchyStateMachine])
def test_state_machines(machine: Any, pool: engram.Pool) -> None:
    store = Store(pool.create_group("keys"))
    how = settings(max_examples=EXAMPLES, stateful_step_count=30)
    walked: Any = partial(machine, store)
    run_state_machine_as_test(walked, settings=how)
