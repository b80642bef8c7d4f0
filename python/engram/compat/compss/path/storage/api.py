"""`storage.api`, which pycompss imports: see `engram.compat.compss.api`."""

from engram.compat.compss.api import *  # noqa: F403 - it is that module, under COMPSs' name

__pipelining__ = False
