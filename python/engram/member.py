"""What is said of a new array or blob beside its name and its value."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

if TYPE_CHECKING:
    from engram._engram import _New


def new_member(
    *,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    attrs: Mapping[str, Any] | None = None,
    dims: Sequence[str] | None = None,
    overwrite: bool = False,
    device: int | str | PathLike[str] | None = None,
    index_mode: str | None = None,
    read_only: bool = False,
    scope: str | None = None,
    chunks: int | Sequence[int] | bool | None = None,
    codec: str | None = None,
    origin: bytes = b"",
) -> "_New":
    """Return what the natives are told of a new array or blob; `create_array` explains each.

    `origin` is what an import keeps beside it: JSON, or nothing. The result is a plain tuple, which
    is made four times as fast as a named one. Its order is that of the struct in
    `python/src/member.rs`, and stands nowhere else.
    """
    return (
        shape,
        dtype,
        attrs,
        dims,
        overwrite,
        device,
        index_mode,
        read_only,
        scope,
        chunks,
        codec,
        origin,
    )


REPLACING = new_member(overwrite=True)
"""What `group[name] = x` says of what it puts."""
