"""Locks: with-blocks that keep out others who ask. The block itself is native."""

from engram._engram import Lock

__all__ = ["Lock"]
