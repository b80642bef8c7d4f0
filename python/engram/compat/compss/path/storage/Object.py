"""`storage.Object`: the module's and the class's name in COMPSs' example of a storage."""  # noqa: N999

from engram.compat.compss.objects import StorageObject

SCO = StorageObject

__all__ = ["SCO"]
