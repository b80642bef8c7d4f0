"""Classes of active objects may say which of their objects are equal; each is itself, still."""

from __future__ import annotations

import engram
from engram import active


class Even(engram.ActiveObject):
    """Equals all that has the same value, and has no hash."""

    value: int
    others: list[Even] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Even) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]

    @engram.activemethod
    def add(self, number: int) -> None:
        for each in (self, *self.others):
            each.value += number


def test_equal_objects_are_stored_and_changed_each_for_itself(pool: engram.Pool) -> None:
    with active.use(pool):
        first, second = Even(value=1), Even(value=1)
        both = Even(value=1, others=[first, second])
        both.make_persistent("both")
        assert first.is_persistent
        assert second.is_persistent
        assert first.get_id() != second.get_id()
        both.add(2)
        assert [each.value for each in (both, first, second)] == [3, 3, 3]
        both.new_replica(pool.devices[0].index)
