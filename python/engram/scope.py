"""Scopes: who sees a group or an object."""

from typing import Literal, TypeAlias

Scope: TypeAlias = Literal["private", "shared", "published"]
"""Who sees it: the user whose it is; all who share the namespace; all who may enter it."""
