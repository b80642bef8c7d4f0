"""Walks over trees of a pool, and patterns of names there, without the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import preloaded

if TYPE_CHECKING:
    from pathlib import Path

    import engram
    import native

pytestmark = preloaded.needs_library


def test_nftw_fts_and_glob_meet_what_they_meet_in_a_plain_folder(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "walks")
