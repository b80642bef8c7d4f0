"""The client: `from engram.compat.dataclay.client import Client`."""

from engram.compat.dataclay.client.api import Client, finish, init

__all__ = ["Client", "finish", "init"]
