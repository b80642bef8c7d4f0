"""One pool by a mount, by preloaded programs and from Python, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import engram
import front_machine
import preloaded
from mounted import needs_fuse

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_fuse, preloaded.needs_library]

EXAMPLES = {"none": 25, "shared": 1}
"""`make posix-suites` has more."""


@pytest.mark.parametrize("cache", EXAMPLES)
def test_all_fronts_have_what_the_kernel_has(
    pool: engram.Pool, point: Path, home: Path, cache: str
) -> None:
    front_machine.run(pool, point, preloaded.of(pool, home), cache, EXAMPLES[cache])
    assert engram.verify(pool.path).problems == []
