"""The native module of clusters, which is built apart: one node needs none of it."""

from typing import TYPE_CHECKING

from engram.errors import UnsupportedError

if TYPE_CHECKING:
    from engram.cluster import _cluster as native
else:
    try:
        from engram.cluster import _cluster as native
    except ImportError as error:
        message = (
            f"clusters need the module engram.cluster._cluster, which cannot be loaded ({error}): "
            "a wheel has it, and `make cluster` builds it in a clone"
        )
        raise UnsupportedError(message) from None

__all__ = ["native"]
