"""Locks: with-blocks that keep out who else asks. The block itself is native."""

from engram._engram import Lock

__all__ = ["Lock"]
