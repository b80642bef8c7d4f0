"""What is said of a new array or blob beside its name and its value."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import DTypeLike

if TYPE_CHECKING:
    from engram._engram import _New


class NewMember(NamedTuple):
    """All that the natives are told of a new array or blob; `create_array` explains each.

    The order of the fields is that of the struct in `python/src/member.rs`. A tuple of them is as
    good for the natives: `member_fields` makes one.
    """

    shape: int | Sequence[int] | None = None
    dtype: DTypeLike | None = None
    attrs: Mapping[str, Any] | None = None
    dims: Sequence[str] | None = None
    overwrite: bool = False
    device: int | str | PathLike[str] | None = None
    index_mode: str | None = None
    read_only: bool = False
    scope: str | None = None
    chunks: int | Sequence[int] | bool | None = None
    codec: str | None = None
    origin: bytes = b""
    """What an import keeps beside it: JSON, or nothing."""


def member_fields(
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
    """Give the fields of a `NewMember` as a tuple, which takes a quarter of the time.

    That counts where a small array is put. This is the one place that has them by position.
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


REPLACING = NewMember(overwrite=True)
"""What `group[name] = x` says of what it puts."""
