"""Signals amid calls below a prefix: what programs may do in their handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import engram
import preloaded

if TYPE_CHECKING:
    from pathlib import Path

    import native

pytestmark = preloaded.needs_library


def test_a_handler_may_do_amid_each_call_what_it_may_elsewhere(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "signals")
    assert engram.verify(pool.path).problems == []


def test_what_signals_are_set_to_do_they_do(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "handlers")
