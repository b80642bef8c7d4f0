"""Programs that reach files in a pool without the kernel: a library is preloaded in them.

The library stands before the C library: calls for paths below a prefix it answers from the pool, in
the program's own process. All that it is told stands in the environment, and passes on to whatever
the program starts:

=======================  ==========================================================================
Variable                 Value
=======================  ==========================================================================
`LD_PRELOAD`             The library's path, before what else is preloaded.
`ENGRAM_RUN`             A line for each prefix: `POOL[:PATH]=PREFIX`. It is cut at its last `=`,
                         and what is before that at its last `:`, if a `/` follows.
`ENGRAM_RUN_NAMESPACE`   The namespace, where it is another than "default".
`ENGRAM_RUN_READ_ONLY`   1 where all changes are refused.
`ENGRAM_RUN_MOUNT`       A line for each prefix: where a mount shows the same, or nothing.
`ENGRAM_TRACE`           A file to which a line for each operation is appended.
`ENGRAM_TRACE_RING`      The same as a ring: FILE, or FILE:SIZE.
=======================  ==========================================================================

`ENGRAM_PRELOAD_LIBRARY` says where the library is, if not in the package.
"""

import itertools
import os
import re
import stat
import subprocess
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engram import _engram, programs
from engram.arguments import truth
from engram.errors import (
    AccessError,
    ArgumentError,
    EngramWarning,
    ExistsError,
    InvalidNameError,
    NotFoundError,
    UnsupportedError,
)
from engram.group import Group
from engram.mounts import mounted
from engram.paths import absolute, cluster_of
from engram.pool import Pool
from engram.pool import open as open_pool
from engram.programs import Program, is_within
from engram.size import parse

__all__ = ["Settings", "parse_place", "permit", "run", "run_environment"]

LIBRARY = "ENGRAM_PRELOAD_LIBRARY"
"""The variable that says where the library is."""
_IN_PACKAGE = "_native/libengram_preload.so"
_RUN = "ENGRAM_RUN"
_NAMESPACE, _READ_ONLY, _MOUNT = f"{_RUN}_NAMESPACE", f"{_RUN}_READ_ONLY", f"{_RUN}_MOUNT"
_TRACE, _TRACE_RING = "ENGRAM_TRACE", "ENGRAM_TRACE_RING"
_PRELOAD = "LD_PRELOAD"
_DEFAULT = "default"
_SHELL = "/bin/sh"


def run(
    args: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]",
    *,
    pool: "Pool | str | os.PathLike[str] | Mapping[str, Pool | str | os.PathLike[str]]",
    prefix: "str | os.PathLike[str] | None" = None,
    namespace: str | None = None,
    read_only: bool = False,
    trace: "str | os.PathLike[str] | None" = None,
    trace_ring: "str | os.PathLike[str] | None" = None,
    mount: "str | os.PathLike[str] | None" = None,
    anyway: bool = False,
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Run a program that finds files of a pool below a prefix, and wait for it.

    ::

        engram.run(["simulate", "--out", "/p/out"], pool="/dev/shm/run", prefix="/p", check=True)

    `pool` is a pool or its path, with the path of a group behind it if that alone is to be seen:
    `"/dev/shm/run:/case-7"`. Several are a mapping, `{"/p": "/dev/shm/run", "/q": other}`. `trace`
    is a file to which a line for each operation is appended, and `trace_ring` one of fixed size,
    ``FILE[:SIZE]``, that keeps the newest lines. `mount` is a mount of the pool, by which the
    program reaches what the library does not. A program of which the library reaches nothing is
    refused; with `mount`, or with `anyway`, it is started after a warning. All other arguments are
    those of `subprocess.run`.

    Raises
    ------
    NotFoundError
        If the pool, the namespace, the group, the mount, the program or the library is missing.
    ArgumentError
        If the prefix is none that can be, or an argument does not fit.
    ExistsError
        If there is a real file at the prefix, or a real folder with members.
    UnsupportedError
        If the library reaches nothing of the program: it is static, say, or a Go program.

    """
    settings = Settings(
        _places(pool, prefix), namespace, read_only, trace, trace_ring, mount, anyway
    )
    environment = settings.environment(options.pop("env", None))
    folder = os.fsdecode(options.get("cwd") or "")
    _check_folder(folder, settings.prefixes)
    program = programs.look(
        _program(args, options),
        search=os.get_exec_path(environment),
        folder=folder,
        prefixes=settings.prefixes,
    )
    for message in permit(program, settings):
        warnings.warn(message, EngramWarning, stacklevel=2)
    options.setdefault("check", False)
    return subprocess.run(args, env=environment, **options)  # noqa: PLW1510, S603 - as it is asked


def run_environment(
    *,
    pool: "Pool | str | os.PathLike[str] | Mapping[str, Pool | str | os.PathLike[str]]",
    prefix: "str | os.PathLike[str] | None" = None,
    namespace: str | None = None,
    read_only: bool = False,
    trace: "str | os.PathLike[str] | None" = None,
    trace_ring: "str | os.PathLike[str] | None" = None,
    mount: "str | os.PathLike[str] | None" = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Give the environment in which any program finds files of a pool below a prefix.

    ::

        env = engram.run_environment(pool="/dev/shm/run", prefix="/p")
        subprocess.Popen(["simulate", "--out", "/p/out"], env=env)

    The arguments are those of `engram.run`, and so is what is raised. `env` is what else stands in
    the environment: this process's own, if none is given. The program is not looked at.
    """
    places = _places(pool, prefix)
    settings = Settings(places, namespace, read_only, trace, trace_ring, mount)
    return settings.environment(env)


class Place(NamedTuple):
    """A group of a pool, and the prefix at which a program is to find it."""

    pool: Path
    path: str
    """The group's path from the root, which is "/"."""
    prefix: str

    def line(self) -> str:
        """Give it as the library is told of it."""
        # A folder that looks as if a path followed is told from one by the root's own.
        path = "" if self.path == "/" and ":/" not in str(self.pool) else f":{self.path}"
        return f"{self.pool}{path}={self.prefix}"


class Settings(NamedTuple):
    """How a program is to be run."""

    places: Sequence[Place]
    namespace: str | None = None
    read_only: bool = False
    trace: "str | os.PathLike[str] | None" = None
    trace_ring: "str | os.PathLike[str] | None" = None
    mount: "str | os.PathLike[str] | None" = None
    anyway: bool = False

    @property
    def prefixes(self) -> list[str]:
        """The prefixes."""
        return [place.prefix for place in self.places]

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Give the environment of the program, once all is found to be as it has to be."""
        library = str(_library())
        made = dict(os.environ if env is None else env)
        for name in (_RUN, _NAMESPACE, _READ_ONLY, _MOUNT):  # of a run around this one
            made.pop(name, None)
        others = [each for each in re.split(r"[ :]", made.get(_PRELOAD, "")) if each]
        made[_PRELOAD] = ":".join([library, *(each for each in others if each != library)])
        namespace = _DEFAULT if self.namespace is None else self.namespace
        _check_pools(self.places, namespace)
        _check_prefixes(self.places)
        mount = None if self.mount is None else Path(absolute(self.mount))
        if mount is not None:
            shown = _check_mount(mount, self.places, namespace)
            seen = [place.pool.resolve() == shown for place in self.places]
            made[_MOUNT] = "\n".join(
                os.path.normpath(f"{mount}/{place.path}") if is_seen else ""
                for place, is_seen in zip(self.places, seen, strict=True)
            )
        for place in self.places:
            _check_room(place, mount)
        made[_RUN] = "\n".join(place.line() for place in self.places)
        if namespace != _DEFAULT:
            made[_NAMESPACE] = namespace
        if truth("read_only", self.read_only):
            made[_READ_ONLY] = "1"
        traces = _traces(self.trace, self.trace_ring)
        if traces:
            made.pop(_TRACE, None)
            made.pop(_TRACE_RING, None)
        return made | traces


def permit(program: Program, settings: Settings) -> list[str]:
    """Give what is to be said of a program before it starts.

    Raises
    ------
    UnsupportedError
        If it would see nothing of the pool, and is not to be started all the same.

    """
    mount, anyway = settings.mount, truth("anyway", settings.anyway)
    said = []
    for obstacle in program.obstacles:
        instead = (
            f"what it asks for below {os.fspath(mount)} it reaches"
            if mount is not None
            else "mount the pool (`engram mount POOL DIR`), and give it paths below DIR"
        )
        what = f"{obstacle.path}: {obstacle.why}"
        if not obstacle.hides:
            said.append(f"{what}; {instead}")
        elif mount is None and not anyway:
            raise UnsupportedError(
                f"{what}. It would find nothing below the prefix: {instead}; mount=DIR or "
                f"anyway=True starts it as it is"
            )
        else:
            said.append(f"{what}. It finds nothing below the prefix: {instead}")
    return said


def parse_place(text: str) -> Place:
    """Read `POOL[:PATH]=PREFIX`."""
    pool, sign, prefix = text.rpartition("=")
    if not sign or not pool:
        raise ArgumentError(
            f"{text!r} does not say where a pool is to be found: give POOL=/prefix, or "
            f"POOL:/PATH=/prefix"
        )
    return _place(pool, prefix)


def _places(pool: Any, prefix: Any) -> list[Place]:
    """Give what is to be shown, of one pool or of several by their prefixes."""
    if not isinstance(pool, Mapping) or isinstance(pool, Group):
        if prefix is None:
            raise ArgumentError(
                'the prefix is missing: say where the pool is found, as prefix="/p"'
            )
        return [_place(pool, prefix)]
    if prefix is not None:
        raise ArgumentError(f"prefix {prefix!r} is one too many: the pools have theirs")
    if not pool:
        raise ArgumentError("there is no pool: give at least one by its prefix")
    return [_place(each, at) for at, each in pool.items()]


def _place(pool: Any, prefix: Any) -> Place:
    """Give the group that is meant by a pool, or by text."""
    path = ""
    if isinstance(pool, Group):
        if not isinstance(pool, Pool):
            raise ArgumentError(
                f"{pool!r} is a group: give the pool's path with the group's behind it, as in "
                f'"POOL:/{pool.path}"'
            )
        folder = absolute(pool.path)
    else:
        text = str(os.fspath(pool)) if isinstance(pool, str | os.PathLike) else pool
        if cluster_of(text) is not None:
            raise ArgumentError(
                f"{text!r} is of a cluster: a program finds the pool of its own node, so give that "
                "pool's path"
            )
        if isinstance(text, str):
            before, colon, after = text.rpartition(":")
            text, path = (before, after) if colon and after.startswith("/") else (text, "")
        folder = absolute(text)
    at = str(os.fspath(prefix)) if isinstance(prefix, str | os.PathLike) else prefix
    _check_text(str(folder), path, at)
    return Place(folder, _clean(path), at.rstrip("/") or at[:1])


def _clean(path: str) -> str:
    """Give the path of a group, from the root on and without a slash at its end."""
    parts = [part for part in path.split("/") if part]
    if {".", ".."} & set(parts):
        raise InvalidNameError(f"{path!r} has . or .. in it, which no group can be called")
    return "/" + "/".join(parts)


def _check_text(pool: str, path: str, prefix: Any) -> None:
    """Refuse what cannot stand in the line that the library reads."""
    if not isinstance(prefix, str):
        raise ArgumentError(f"prefix {prefix!r} is no path: give one from the root on, as /p")
    for text in (pool, path, prefix):
        if "\n" in text or "\0" in text:
            raise InvalidNameError(f"{text!r} has a character in it that no line can have")
    if "=" in prefix:
        raise InvalidNameError(f"prefix {prefix!r} has = in it, where it begins: choose another")


def _library() -> Path:
    """Find the library that is preloaded."""
    named = os.environ.get(LIBRARY)
    if named:
        path = absolute(named)
        remedy = f"{LIBRARY} names it, and `make` builds it"
    else:
        path = Path(_engram.__file__ or "").parent / _IN_PACKAGE
        remedy = f"wheels for glibc have it, `make` builds it, or {LIBRARY} says where it is"
    if not path.is_file():
        raise NotFoundError(f"the library to preload is not at {path}: {remedy}")
    if re.search(r"[ :]", str(path)):
        raise InvalidNameError(
            f"the library's path {str(path)!r} has a blank or a colon in it, where the dynamic "
            f"linker takes it to end: copy it, and name the copy in {LIBRARY}"
        )
    programs.check_library(path)
    return path


def _check_prefixes(places: Sequence[Place]) -> None:
    """Refuse prefixes that are none, or lead into each other or to a pool."""
    for place in places:
        prefix = place.prefix
        if not prefix.startswith("/"):
            raise ArgumentError(f"prefix {prefix!r} does not begin at the root: give one as /p")
        if prefix == "/":
            raise ArgumentError("the prefix / is the root, below which all files are: give /p, say")
        if prefix != "/" + "/".join(_parts(prefix)):
            raise ArgumentError(f"prefix {prefix!r} is not clean: leave out //, . and ..")
        for folder in {str(place.pool), os.path.realpath(place.pool)}:
            if is_within(prefix, folder) or is_within(folder, prefix):
                where = "is, or lies in," if is_within(prefix, folder) else "lies above"
                raise ArgumentError(
                    f"prefix {prefix!r} {where} the pool's own folder {folder}: choose another path"
                )
    for one, other in itertools.permutations(places, 2):
        if is_within(one.prefix, other.prefix):
            raise ArgumentError(
                f"prefix {one.prefix!r} is the same as {other.prefix!r}, or lies in it: each pool "
                f"needs one of its own"
            )


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", ".", ".."}]


def _check_pools(places: Iterable[Place], namespace: str) -> None:
    """See that the pools open, and have what is to be shown of them."""
    by_pool: dict[Path, list[str]] = {}
    for place in places:
        by_pool.setdefault(place.pool, []).append(place.path)
    for folder, paths in by_pool.items():
        with open_pool(folder, "r") as pool:
            if namespace not in pool.namespaces:
                names = ", ".join(pool.namespaces)
                raise NotFoundError(f"no namespace {namespace!r} in {folder}; there are: {names}")
            root = pool.namespaces[namespace]
            for path in paths:
                if path != "/" and not getattr(root[path], "_is_group", False):
                    raise ArgumentError(f"{path} in {folder} is no group: name the one it is in")


def _check_mount(mount: Path, places: Sequence[Place], namespace: str) -> Path:
    """See that one of the pools is mounted somewhere; give that pool."""
    found = mounted(mount)
    first = places[0].pool
    if found is None:
        raise NotFoundError(
            f"no pool is mounted at {mount}: `engram mount {first} {mount}` mounts one"
        )
    shown, named = found
    if shown.resolve() not in {place.pool.resolve() for place in places}:
        raise ArgumentError(f"the mount {mount} shows {shown}, not {first}: name one that does")
    if named not in {"", namespace}:
        raise ArgumentError(
            f"the mount {mount} shows the namespace {named!r}, not {namespace!r}: name another"
        )
    return shown.resolve()


def _check_room(place: Place, mount: Path | None) -> None:
    """See that nothing real is at a prefix, but an empty folder or a mount of the same."""
    prefix = place.prefix
    if mount is not None and prefix == os.path.normpath(f"{mount}/{place.path}"):
        return
    try:
        status = Path(prefix).lstat()
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise ArgumentError(
            f"prefix {prefix!r} leads through a real file: choose another"
        ) from None
    except PermissionError:  # nor can the program look there
        return
    if not stat.S_ISDIR(status.st_mode):
        what = "link" if stat.S_ISLNK(status.st_mode) else "file"
        raise ExistsError(f"prefix {prefix!r} is a real {what}: choose a path at which nothing is")
    try:
        with os.scandir(prefix) as members:
            first = next(members, None)
    except PermissionError:
        raise AccessError(
            f"prefix {prefix!r} is a real folder that this user cannot look into: choose another"
        ) from None
    if first is not None:
        raise ExistsError(
            f"prefix {prefix!r} is a real folder with members, such as {first.name!r}, which the "
            f"program would not see: choose a path at which nothing is"
        )


def _traces(trace: Any, ring: Any) -> dict[str, str]:
    """Give what the library is told of a trace."""
    if trace is not None and ring is not None:
        raise ArgumentError("a program has one trace: give trace or trace_ring, not both")
    if trace is not None:
        return {_TRACE: str(_trace_file(absolute(trace)))}
    if ring is None:
        return {}
    path, colon, size = os.fspath(ring).rpartition(":")
    if not colon or not size[:1].isdigit():
        return {_TRACE_RING: str(_trace_file(absolute(ring)))}
    return {_TRACE_RING: f"{_trace_file(absolute(path))}:{parse(size)}"}


def _trace_file(path: Path) -> Path:
    """See that a trace can be written."""
    if not path.parent.is_dir():
        raise NotFoundError(f"there is no folder {path.parent} for the trace {path.name}: make it")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise AccessError(f"this user may not write the trace {path}: choose another folder")
    return path


def _program(args: Any, options: Mapping[str, Any]) -> str:
    """Give the program that `subprocess.run` starts."""
    if (executable := options.get("executable")) is not None:
        return os.fsdecode(executable)
    if options.get("shell"):
        return _SHELL
    first = args if isinstance(args, str | bytes | os.PathLike) else next(iter(args), "")
    try:
        return os.fsdecode(first)
    except TypeError:
        raise ArgumentError(f"{first!r} is no program: give its name or path") from None


def _check_folder(folder: str, prefixes: Iterable[str]) -> None:
    """Refuse to start a program where the kernel knows no folder."""
    whole = os.path.normpath(Path(folder).absolute())
    for prefix in prefixes:
        if is_within(whole, prefix):
            raise ArgumentError(
                f"cwd {folder!r} lies below the prefix {prefix}, where the kernel knows no folder: "
                f'let the program go there itself, as in ["env", "-C", {folder!r}, ...]'
            )
