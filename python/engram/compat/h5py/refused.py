"""What h5py has and a pool cannot have: names that import, and say why when they are used."""

from typing import Any, NoReturn

from engram.compat.h5py.errors import RefusedError

REFERENCES = (
    "references to objects and regions have no meaning outside an HDF5 file: keep the path of the "
    "object as a string, and what of it is meant as numbers"
)
VIRTUAL = (
    "a pool has no virtual datasets: put the parts into one chunked dataset (create_dataset with "
    "maxshape=), which many processes can write at once"
)
EXTERNAL = (
    "a pool has no links to other files: import that file into a group of this pool "
    "(engram.import_file), or open its pool as well"
)
LOW_LEVEL = (
    "HDF5's low-level interface is of HDF5's files: use what File, Group and Dataset have, or "
    "engram's own handles"
)
ANONYMOUS = "what has no name cannot be in a pool: give it one, and delete it when it is done with"
COMMITTED = "a named datatype is kept for export alone: give create_dataset its .dtype"


def refuse(what: str, why: str) -> NoReturn:
    """Raise that something cannot be."""
    raise RefusedError(f"{what}: {why}")


class Reference:
    """h5py's reference to an object, which a pool does not have."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse("h5py.Reference", REFERENCES)


class RegionReference:
    """h5py's reference to a part of a dataset, which a pool does not have."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse("h5py.RegionReference", REFERENCES)


class VirtualLayout:
    """h5py's plan of a virtual dataset, which a pool does not have."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse("h5py.VirtualLayout", VIRTUAL)


class VirtualSource:
    """h5py's source of a virtual dataset, which a pool does not have."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse("h5py.VirtualSource", VIRTUAL)


class MultiBlockSlice:
    """h5py's selection of blocks side by side, which is read and written block by block here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse("h5py.MultiBlockSlice", "read or write block by block")


class LowLevel:
    """One of h5py's low-level modules: it is there, and next to nothing in it is.

    What is given as well is what h5py has there of names that it has elsewhere.
    """

    def __init__(self, name: str, **names: Any) -> None:
        self.__name__ = f"h5py.{name}"
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"{self.__name__}.{name}: {LOW_LEVEL}")

    def __repr__(self) -> str:
        return f"<{self.__name__}, of which a pool has next to nothing>"
