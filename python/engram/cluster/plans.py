"""What names are to be, of what callers say."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from engram.cluster import values
from engram.cluster.boxes import boxes_of
from engram.cluster.making import EmptyPlan, ValuePlan
from engram.errors import ArgumentError

if TYPE_CHECKING:
    from engram.cluster.cluster import Cluster


def value_of(  # noqa: PLR0917 - what the caller says
    cluster: "Cluster",
    path: str,
    value: Any,
    parts: Sequence[int] | None,
    dims: Sequence[str] | None,
    attrs: Mapping[str, Any] | None,
    replicas: int,
) -> ValuePlan:
    """Give the plan of an array of this process."""
    array = values.array_of(f"the value of {path!r}", value)
    boxes = boxes_of(array.shape, parts, _nodes(cluster))
    return ValuePlan(path, array.shape, array.dtype, boxes, dims, attrs, replicas, value=array)


def empty_of(  # noqa: PLR0917 - what the caller says
    cluster: "Cluster",
    path: str,
    shape: int | Sequence[int],
    dtype: DTypeLike,
    parts: Sequence[int] | None,
    dims: Sequence[str] | None,
    attrs: Mapping[str, Any] | None,
    fill: Any,
    replicas: int,
) -> EmptyPlan:
    """Give the plan of an array that is written in place."""
    lengths = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in lengths):
        raise ArgumentError(f"shape {shape!r}: give a length from 0 on for each dimension")
    lengths = tuple(map(int, lengths))
    try:
        items = np.dtype(dtype)
    except TypeError as error:
        raise ArgumentError(f"dtype {dtype!r} is none that numpy knows") from error
    if items.subdtype is not None:
        items, lengths = items.base, (*lengths, *items.shape)
    item = values.item_bytes(fill, items)
    boxes = boxes_of(lengths, parts, _nodes(cluster))
    said = (path, lengths, items, boxes, dims, attrs, replicas)
    return EmptyPlan(*said, sealed=False, item=item)


def _nodes(cluster: "Cluster") -> int:
    """Give the number of nodes that are there."""
    return max(sum(each.state == "serving" for each in cluster.members), 1)
