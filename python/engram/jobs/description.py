"""The description of a job: which files it needs, where they lie while it runs, what comes back.

It is a YAML file with the keys of echofs's configuration, and a few of ours.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, Self, cast

from engram.errors import AccessError, FormatError, NotFoundError
from engram.jobs.yaml_parts import Node, Place, read
from engram.paths import absolute

WORKERS = 8
"""So many files are copied at a time, if nothing else is said."""
TRANSFER_SIZE = 128 << 10
"""The size in bytes of one transfer, if nothing else is said."""
CAPACITY_LEAST = 1 << 20
"""No backend is smaller, in bytes."""

BackendType = Literal["NVRAM-NVML", "NVRAM-DEVDAX", "DRAM"]
ResourceFlags = Literal["persistent", "temporary"]
ResourceType = Literal["file", "array"]

_TYPES = ("NVRAM-NVML", "NVRAM-DEVDAX", "DRAM")
_FLAGS = ("persistent", "temporary")
_KINDS = ("file", "array")
_TOP = {"global-settings": True, "backends": True, "resources": True}
_SETTINGS = dict.fromkeys(("root-dir", "mount-dir", "results-dir"), True) | dict.fromkeys(
    ("log-file", "workers", "transfer-size", "reuse", "expires", "rate"), False
)
_BACKEND = {"id": True, "type": True, "capacity": True, "daxfs": False}
_RESOURCE = {"path": True, "backend": True, "flags": True, "to": False, "type": False}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WHAT = "the description of a job"
_TEXT_MOST = 4 << 20
_OURS = (".engram", ".engram-stage")
"""Names in the root of a pool that no job's files have."""


class Backend(NamedTuple):
    """Memory that files lie in while the job runs."""

    id: str
    """What resources call it."""
    type: BackendType
    """A folder on persistent memory, a node of it, or the machine's memory."""
    capacity: int
    """How many bytes it may hold."""
    daxfs: Path
    """The folder; of "NVRAM-DEVDAX" the node."""
    place: Place
    """Where it stands in the file."""


class Resource(NamedTuple):
    """A file or folder that the job reads or makes."""

    path: Path
    """Where it lies outside."""
    to: str
    """Its path in the pool, and below the mount; "" is all of it."""
    backend: Backend
    """Where it lies while the job runs."""
    flags: ResourceFlags
    """Whether it is brought out at the end."""
    type: ResourceType
    """Whether it is kept as a file, or imported as arrays."""
    place: Place
    """Where it stands in the file."""

    @property
    def is_persistent(self) -> bool:
        """Whether it is brought out at the end."""
        return self.flags == "persistent"


class Description(NamedTuple):
    """The description of a job.

    ::

        description = engram.jobs.Description.read("job.yaml")
        engram.jobs.run(description, ["simulate", "--steps", "10"])
    """

    path: Path
    """The file."""
    text: str
    """What stands in it."""
    root_dir: Path
    """The folder outside whose names are mirrored below the mount."""
    mount_dir: Path
    """Where the job finds its files."""
    results_dir: Path
    """Where what is persistent is brought at the end, by its path below the mount."""
    log_file: Path | None
    """A file to which is appended what is done; None: there is none."""
    workers: int
    """So many files are copied at a time."""
    transfer_size: int
    """The size in bytes of one transfer. It is read and kept, and changes nothing here."""
    reuse: str | None
    """The name by which the pool is found by further jobs; None: it goes at the end."""
    expires: int | None
    """So many seconds after a job had it last that pool may go; None: it stays until it is dropped.
    """
    rate: int | None
    """So many bytes a second are copied at most; None: as fast as it goes."""
    backends: tuple[Backend, ...]
    """What files lie in while the job runs; at least one."""
    resources: tuple[Resource, ...]
    """The files and folders."""

    @classmethod
    def read(cls, path: "str | os.PathLike[str]") -> Self:
        """Read a description. Relative paths in it begin at its own folder.

        Raises
        ------
        NotFoundError, AccessError
            If there is no such file, or this user may not read it.
        FormatError
            If it is none: an unknown, missing or doubled key, a value that cannot be, a backend
            that is not defined, a path outside `root-dir`; with line and column.
        UnsupportedError
            If PyYAML is not installed.

        """
        file = absolute(path)
        try:
            with file.open("rb") as opened:
                content = opened.read(_TEXT_MOST + 1)
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {file}: it was to describe the job") from None
        except IsADirectoryError:
            raise FormatError(f"{file} is a folder: name the file that describes the job") from None
        except PermissionError as error:
            raise AccessError(f"{file} cannot be read: {error.strerror}") from None
        if len(content) > _TEXT_MOST:
            raise FormatError(f"{file} has more than {_TEXT_MOST} bytes: it describes no job")
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            before = content[: error.start]
            line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
            Place(str(file), line, column).refuse("this byte is not UTF-8: save the file as UTF-8")
        return cls.parse(text, file)

    @classmethod
    def parse(cls, text: str, path: "str | os.PathLike[str]" = "job.yaml") -> Self:
        """Read a description that is a text, as if it stood in a file at `path`.

        What is raised is that of `read`, but for what the file itself has.
        """
        file = absolute(path)
        folder = file.parent
        parts = read(text, str(file), _WHAT).pairs(_TOP)
        settings = parts["global-settings"].pairs(_SETTINGS)
        root, mount, results = (
            _path(settings[key], folder) for key in ("root-dir", "mount-dir", "results-dir")
        )
        log = settings.get("log-file")
        workers, size = settings.get("workers"), settings.get("transfer-size")
        reuse, rate = settings.get("reuse"), settings.get("rate")
        expires = settings.get("expires")
        if expires is not None and reuse is None:
            expires.refuse(
                "expires is for a pool that stays after its job, and this one goes: add reuse with "
                "a name, or leave expires away"
            )
        backends = _backends(parts["backends"], folder)
        resources = _resources(parts["resources"], folder, root, backends)
        made = cls(
            file,
            text,
            root,
            mount,
            results,
            None if log is None else _path(log, folder),
            WORKERS if workers is None else workers.number(1, 1024),
            TRANSFER_SIZE if size is None else size.size(),
            None if reuse is None else _name(reuse),
            None if expires is None else expires.seconds(),
            None if rate is None else rate.size(),
            backends,
            resources,
        )
        _check_apart(made, settings)
        return made


def _path(node: Node, folder: Path) -> Path:
    """Give a path without dots and slashes at its end; links are kept as they are."""
    return Path(os.path.normpath(folder / node.text()))


def _name(node: Node) -> str:
    name = node.text()
    if not _NAME.fullmatch(name):
        node.refuse(
            f"reuse is {name!r}, and has to be a name: letters, digits, '.', '_' and '-', as "
            f"weather-2026"
        )
    return name


def _backends(node: Node, folder: Path) -> tuple[Backend, ...]:
    found: dict[str, Backend] = {}
    for item in node.items("a backend"):
        keys = item.pairs(_BACKEND)
        name = keys["id"].text()
        if name in found:
            keys["id"].refuse(
                f"the backend {name!r} is defined at line {found[name].place.line} already: give "
                f"this one another id"
            )
        kind = cast("BackendType", keys["type"].one_of(_TYPES))
        if "daxfs" in keys:
            daxfs = _path(keys["daxfs"], folder)
        elif kind == "DRAM":
            daxfs = Path("/dev/shm")  # noqa: S108 - memory is what is asked for
        else:
            what = "node, as /dev/dax0.0" if kind == "NVRAM-DEVDAX" else "folder, as /mnt/pmem"
            item.refuse(f"a backend of the type {kind} lacks daxfs: add the path of its {what}")
        capacity = keys["capacity"].size(CAPACITY_LEAST)
        found[name] = Backend(name, kind, capacity, daxfs, keys["capacity"].place)
    if not found:
        node.refuse("there is no backend: define at least one, for the files to lie in")
    return tuple(found.values())


def _resources(
    node: Node, folder: Path, root: Path, backends: tuple[Backend, ...]
) -> tuple[Resource, ...]:
    by_id = {backend.id: backend for backend in backends}
    found: dict[str, Resource] = {}
    for item in node.items("a resource"):
        keys = item.pairs(_RESOURCE)
        path = _path(keys["path"], folder)
        name = keys["backend"].text()
        if name not in by_id:
            keys["backend"].refuse(
                f"there is no backend {name!r}: define it below backends, or name one of "
                f"{', '.join(map(repr, by_id))}"
            )
        flags = cast("ResourceFlags", keys["flags"].one_of(_FLAGS))
        kind = keys["type"].one_of(_KINDS) if "type" in keys else "file"
        to = _target(keys, path, root)
        if to in found:
            keys["path"].refuse(
                f"{to or '/'} in the pool is the resource of line {found[to].place.line} already: "
                f"leave one of them, or give this one another `to`"
            )
        place = keys["path"].place
        made = Resource(path, to, by_id[name], flags, cast("ResourceType", kind), place)
        found[to] = made
    _check_arrays(found)
    return tuple(found.values())


def _target(keys: dict[str, Node], path: Path, root: Path) -> str:
    """Give the path that a resource is to have in the pool."""
    if "to" not in keys:
        if not path.is_relative_to(root):
            keys["path"].refuse(
                f"{path} is not below root-dir, which is {root}: name a path below it, or say by "
                f"`to` where this one is to be below mount-dir"
            )
        to = path.relative_to(root).as_posix()
        return "" if to == "." else to
    text = keys["to"].text()
    parts = PurePosixPath(text).parts
    if text.startswith("/") or ".." in parts or not parts:
        keys["to"].refuse(
            f"to is {text!r}, and has to be a path below mount-dir, without .. and not from the "
            f"root on: as input/grid.nc"
        )
    if parts[0] in _OURS:
        keys["to"].refuse(f"to is {text!r}, which is kept for Engram's own: choose another path")
    return "/".join(parts)


def _check_arrays(found: dict[str, Resource]) -> None:
    """Refuse an array that lies in a folder which brings it as a file."""
    for resource in found.values():
        for other in found.values():
            inside = other is not resource and is_below(resource.to, other.to)
            if inside and other.type == "array":
                resource.place.refuse(
                    f"{resource.to} lies in what line {other.place.line} imports as an array: "
                    f"give it a `to` elsewhere"
                )
            if inside and resource.type == "array":
                resource.place.refuse(
                    f"{resource.to} is to be an array, and lies in the folder of line "
                    f"{other.place.line}, which brings it as a file: give it a `to` elsewhere"
                )


def _check_apart(made: Description, settings: dict[str, Node]) -> None:
    """Refuse folders that lie in each other where that would bring what is brought."""
    if made.mount_dir == Path("/"):
        settings["mount-dir"].refuse("mount-dir is the root: choose a folder of its own")
    for key, folder in (("mount-dir", made.mount_dir), ("results-dir", made.results_dir)):
        for resource in made.resources:
            if folder.is_relative_to(resource.path):
                settings[key].refuse(
                    f"{folder} lies in {resource.path}, which is a resource (line "
                    f"{resource.place.line}): it would be brought in, too; choose another folder"
                )
    if made.results_dir.is_relative_to(made.mount_dir):
        settings["results-dir"].refuse(
            f"{made.results_dir} lies below mount-dir, which goes with the job: choose a folder "
            f"that stays"
        )


def is_below(path: str, folder: str) -> bool:
    """Whether a path in a pool lies in a folder there, or is it; "" is all of it."""
    return not folder or path == folder or path.startswith(f"{folder}/")
