"""Whether two values are the same: dtype, byte order, shape, and every byte but padding."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same(got: Any, expected: Any) -> None:
    """Assert that two values are equal in dtype, shape and every byte; strings in their text."""
    if isinstance(expected, bytes) and not isinstance(expected, np.bytes_):
        expected = np.array(expected, dtype=f"S{len(expected)}")
    if isinstance(expected, str | list) or np.asarray(expected).dtype.kind in "TO":
        assert np.asarray(got).tolist() == np.asarray(expected).tolist()
        return
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    assert got.dtype.byteorder == expected.dtype.byteorder
    assert got.shape == expected.shape
    if got.dtype.names:
        for name in got.dtype.names:
            assert_same(got[name], expected[name])
    else:
        assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(expected).tobytes()
