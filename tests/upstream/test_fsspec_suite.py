"""fsspec's own tests of file systems, from the installed package, run against pools.

The adapter says where files lie: in a new pool for each test. None of the tests is left out, and
none may fail. A class of tests that fsspec has and that is not run here fails the run, and so does
a test that asks nothing of the file system. (`mv.py` there has tests of local files alone.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from fsspec.tests import abstract

from engram.fsspec import EngramFileSystem
from engram.fsspec import place as places

if TYPE_CHECKING:
    from collections.abc import Iterator

    import engram


class Pools(abstract.AbstractFixtures):  # type: ignore[misc]  # fsspec has no types
    """A file system, and a folder in a pool."""

    @pytest.fixture
    def fs(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngramFileSystem]:
        asked: list[str] = []
        place_of = places.place_of

        def asking(path: str, *more: Any) -> Any:
            asked.append(path)
            return place_of(path, *more)

        monkeypatch.setattr(places, "place_of", asking)
        made = fsspec.filesystem("engram")
        assert isinstance(made, EngramFileSystem)
        yield made
        made.close()
        assert asked, "this test asks nothing of the file system"

    @pytest.fixture
    def fs_path(self, pool: engram.Pool) -> str:
        return f"{pool.path}/inner"


class TestCopy(Pools, abstract.AbstractCopyTests):  # type: ignore[misc]
    """Copying within a pool."""


class TestGet(Pools, abstract.AbstractGetTests):  # type: ignore[misc]
    """Copying out of a pool."""


class TestPut(Pools, abstract.AbstractPutTests):  # type: ignore[misc]
    """Copying into a pool."""


class TestOpen(Pools, abstract.AbstractOpenTests):  # type: ignore[misc]
    """Opening files."""


class TestPipe(Pools, abstract.AbstractPipeTests):  # type: ignore[misc]
    """Writing whole files."""


def test_each_class_of_tests_is_run() -> None:
    there = {name for name in dir(abstract) if name.endswith("Tests")}
    run = {each.__name__ for cls in Pools.__subclasses__() for each in cls.__mro__}
    assert there == there & run
    assert len(there) == 5
