"""Files and names in a pool that nobody has yet, without the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import preloaded

if TYPE_CHECKING:
    from pathlib import Path

    import engram
    import native

pytestmark = preloaded.needs_library


def test_templates_are_filled_as_in_a_plain_folder(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "temporary")
