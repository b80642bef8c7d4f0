"""Batches: many operations, one commit. The block itself is native."""

from engram._engram import Batch

__all__ = ["Batch"]
