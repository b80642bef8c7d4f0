"""Whether two Zarr stores are alike: documents as JSON, every value's bits, told by zarr alone.

This walks the folders and knows nothing of how Engram reads or writes them.
"""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.errors import UnstableSpecificationWarning

if TYPE_CHECKING:
    from pathlib import Path


def nodes(store: Path) -> dict[str, Any]:
    """Return the document of each node, by path."""
    return {
        str(file.parent.relative_to(store)): json.loads(file.read_bytes())
        for file in store.rglob("zarr.json")
    }


def spelled(document: Any) -> str:
    """Return JSON as text in which 1, 1.0 and true differ, NaN is NaN, and no order counts."""
    return json.dumps(document, sort_keys=True, indent=1)


def values(store: Path) -> Any:
    """Read all values of the array at a path."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        return np.asarray(zarr.open_array(store, mode="r")[...])


def assert_alike(found: Path, expected: Path) -> None:
    """Assert that two stores have the same nodes, the same documents and the same values."""
    theirs, ours = nodes(expected), nodes(found)
    assert set(ours) == set(theirs)
    assert theirs, "there is nothing to compare"
    for path, document in theirs.items():
        assert spelled(ours[path]) == spelled(document), path
        if document["node_type"] == "array":
            assert_same_values(values(found / path), values(expected / path))


def assert_same_values(found: Any, expected: Any) -> None:
    """Assert that two arrays have the same dtype, shape and bits."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype.kind in "TO":
        assert found.tolist() == expected.tolist()
    else:
        assert found.tobytes() == expected.tobytes()
