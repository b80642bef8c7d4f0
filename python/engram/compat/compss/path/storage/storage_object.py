"""`storage.storage_object`: the older module of the class."""

from engram.compat.compss.objects import StorageObject

storage_object = StorageObject

__all__ = ["StorageObject", "storage_object"]
