"""What an index selects for a write on another node: the boxes of what numpy would write."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from engram.cluster.excerpts import Excerpt

SHAPE = (5, 4, 3)


def basic() -> st.SearchStrategy[Any]:
    return npst.basic_indices(SHAPE, allow_newaxis=True)


def of_lists() -> st.SearchStrategy[Any]:
    """Give indices of which some parts are lists, masks and bools."""
    parts = [
        st.one_of(
            st.lists(st.integers(-length, length - 1), min_size=2, max_size=2),
            st.lists(st.booleans(), min_size=length, max_size=length).map(np.array),
            st.integers(-length, length - 1),
            st.slices(length),
        )
        for length in SHAPE
    ]
    several = st.tuples(*parts)
    fewer = st.tuples(st.one_of(st.booleans(), st.none(), st.just(...)), *parts[:2])
    masks = npst.arrays(bool, SHAPE) | npst.arrays(bool, SHAPE[:2])
    return several | fewer | masks


@given(key=basic() | of_lists())
def test_boxes_have_what_numpy_writes_and_nothing_else(key: Any) -> None:
    expected, found = np.zeros(SHAPE, int), np.zeros(SHAPE, int)
    try:
        shape = expected[key].shape
    except IndexError:  # lists of which numpy can make no points
        return
    values = np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape)
    expected[key] = values
    excerpt = Excerpt(key, SHAPE)
    block = np.zeros(excerpt.shape, int)
    block[excerpt.key] = values
    boxes = list(excerpt.boxes())
    assert len(boxes) == excerpt.count
    for place, box in boxes:
        assert all(box.counts)
        assert not found[box.slices].any()
        found[box.slices] = block[place.slices]
    np.testing.assert_array_equal(found, expected)
