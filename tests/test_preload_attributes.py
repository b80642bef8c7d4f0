"""Extended attributes of a pool's files, without the kernel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import preloaded

if TYPE_CHECKING:
    from pathlib import Path

    import engram
    import native

pytestmark = preloaded.needs_library


def keeps_attributes(folder: Path) -> bool:
    """Tell whether the kernel keeps attributes there; on tmpfs it does since Linux 6.6."""
    try:
        os.setxattr(folder, "user.asked", b"1")
    except OSError:
        return False
    os.removexattr(folder, "user.asked")
    return True


def test_attributes_are_set_read_listed_and_removed_as_in_a_plain_folder(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    if not keeps_attributes(home):
        pytest.skip(f"the kernel keeps no attributes in {home}")
    preloaded.same(once, pool, home, "attributes")


def test_what_a_program_sets_is_an_attribute_of_the_pool(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.of(pool, home).run(
        preloaded.compiled(once, "attributes"), preloaded.of(pool, home).path
    )
    assert pool["file"].attrs["two"] == "2"
