"""Classes of active objects: those of this program, and what a pool keeps of them.

A pool has a group `.active/classes/<module.Class>` for each class, with a blob "1", "2", ... for
each version of it: its fields, its methods and its source (`source.py`). An object names the
version that it was stored with. Registering writes a new version only if fields or source differ
from the last one.

**Code from a pool is run by nobody who did not ask for it.** An object is made of a class that the
program has, imported by itself; `load_class` runs the stored source, if the pool is its user's own,
so that nobody else can have put it there, or with `trust=True`; and it says what it runs.
"""

import hashlib
import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from engram import _engram, owners
from engram.active.code.schema import Fact, differences
from engram.active.code.source import run, source_of, standing_in
from engram.active.errors import ClassChangedError, ClassUnknownError, UntrustedCodeError
from engram.active.stored.home import Home
from engram.active.stored.layout import CLASS, CLASSES
from engram.active.stored.values import msgpack, name_of
from engram.active.undoing import if_undone
from engram.errors import CorruptError, ExistsError, NotFoundError
from engram.member import new_member

if TYPE_CHECKING:
    from engram.active.object import ActiveObject

_log = logging.getLogger("engram.active")

_ours: dict[str, type["ActiveObject"]] = {}
"""The classes of this program, by their names."""

_entered = 0
"""How many classes were entered so far: a thread that looks through them sees if any are new."""

finders: list[Callable[[str], type["ActiveObject"] | None]] = []
"""What knows how to get at classes of this program that are not there yet; workers have one."""

_registered: dict[tuple[tuple[str, str], type], str] = {}
"""What classes are called in pools: their names and versions."""

_checked: set[tuple[tuple[str, str], str, type]] = set()
"""Which stored versions were found to fit which classes."""


class StoredClass(NamedTuple):
    """A version of a class, as a pool keeps it."""

    name: str
    """Its name, with its module."""
    version: int
    """1, 2, ..."""
    fields: dict[str, Fact]
    """Its fields."""
    methods: list[str]
    """The names of its active methods, with their arguments."""
    source: str
    """Its source, with what it needs; "" if there was none."""
    missing: list[str]
    """Names that the source needs and that are not in it."""
    owner: str
    """Who stored it, as the pool says."""
    stored: datetime
    """When, in UTC."""


def enter(cls: type["ActiveObject"]) -> None:
    """Enter a class of this program; a later one of the same name takes its place."""
    _enter(name_of(cls), cls)


def _enter(name: str, cls: type["ActiveObject"]) -> None:
    global _entered  # noqa: PLW0603 - one count, beside one dictionary
    before = _ours.get(name)
    if before is not None and before is not cls:
        before._outdated = True
    _ours[name] = cls
    _entered += 1


def ours() -> tuple[int, dict[str, type["ActiveObject"]]]:
    """Give the classes of this program, and a number that grows when one is entered."""
    return _entered, _ours


def register(home: Home, cls: type["ActiveObject"], scope: str | None = None) -> str:
    """Keep a class's fields and source in a pool, unless it has them; give name and version."""
    key = (home.key, cls)
    known = _registered.get(key)
    if known is None or not _has(home, known):
        known = _registered[key] = _register(home, cls, scope)
        if_undone(lambda: _registered.pop(key, None))
    return known


def _has(home: Home, stored: str) -> bool:
    """Tell whether a pool has a version still: one look for each opening of it."""
    if stored in home.classes_seen:
        return True
    name, _, version = stored.rpartition("@")
    path = f"{CLASSES}/{_quoted(name)}/{version}"
    there = _engram.contains(home.namespace, home.namespace.root, path)
    if there:
        home.classes_seen.add(stored)
        if_undone(lambda: home.classes_seen.discard(stored))
    return there


def _quoted(name: str) -> str:
    return quote(name, safe="<>")


def _register(home: Home, cls: type["ActiveObject"], scope: str | None) -> str:
    for base in _bases_of(cls):
        register(home, base, scope)
    return install(home, name_of(cls), _packed(cls), scope)


def _bases_of(cls: type["ActiveObject"]) -> list[type["ActiveObject"]]:
    """Give the bases of other modules: a process without the class's module needs theirs, too."""
    return [
        base
        for base in cls.__mro__[1:]
        if getattr(base, "_fields", None) and base.__module__ != cls.__module__
    ]


def _packed(cls: type["ActiveObject"]) -> bytes:
    """Give what a pool keeps of a class."""
    source = source_of(cls)
    content = {
        "fields": {name: list(fact) for name, fact in cls._facts().items()},
        "methods": cls._signatures(),
        "source": source.text,
        "missing": list(source.missing),
    }
    packed: bytes = msgpack.packb(content)
    return packed


def contents_of(cls: type["ActiveObject"]) -> list[tuple[str, bytes]]:
    """Give what a pool keeps of a class and of those it builds on, the class last."""
    return [(name_of(kind), _packed(kind)) for kind in (*_bases_of(cls), cls)]


def install(home: Home, name: str, packed: bytes, scope: str | None = None) -> str:
    """Keep what `contents_of` gave of a class, unless the pool has it; give name and version."""
    path = f"{CLASSES}/{_quoted(name)}"
    while True:
        last = _last_version(home, path)
        if last and _read(home, f"{path}/{last}") == packed:
            return f"{name}@{last}"
        target, new = f"{path}/{last + 1}", new_member(index_mode="none", scope=scope)
        try:
            _engram.put_blob(home.namespace, home.namespace.root, target, packed, new)
        except ExistsError:  # somebody else was faster
            continue
        return f"{name}@{last + 1}"


def _last_version(home: Home, path: str) -> int:
    found = _engram.find(home.namespace, home.namespace.root, path)
    if found is None or found[0] != 0:
        return 0
    names = _engram.names(home.namespace, found[1], None, 1_000_000)
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _read(home: Home, path: str) -> bytes | None:
    found = _engram.find(home.namespace, home.namespace.root, path)
    if found is None or found[0] in {0, 1}:
        return None
    return _engram.read_blob(home.namespace, found[1])


def stored_class(home: Home, name: str, version: int | None = None) -> StoredClass:
    """Give what a pool keeps of a class: a version of it, or the last one.

    Raises
    ------
    ClassUnknownError
        If it keeps none.

    """
    if home.is_far:
        return home.stored_class(name, version)  # type: ignore[attr-defined, no-any-return]
    path = f"{CLASSES}/{_quoted(name)}"
    if version is None:
        version = _last_version(home, path)
    packed = _read(home, f"{path}/{version}")
    if packed is None:
        have = ", ".join(stored_names(home)) or "none"
        raise ClassUnknownError(f"{home.pool_path!r} keeps no class {name!r}; it keeps: {have}")
    found = _engram.find(home.namespace, home.namespace.root, f"{path}/{version}")
    if found is None:
        raise NotFoundError(f"the class {name!r} was deleted meanwhile")
    info = _engram.object_info(home.namespace, found[1])
    try:
        content = msgpack.unpackb(packed)
        fields = {field: Fact(*fact) for field, fact in content["fields"].items()}
        texts = (content["source"], *fields, *(fact.kind for fact in fields.values()))
        if not all(isinstance(text, str) for text in (*texts, *content["missing"])):
            raise TypeError(name)  # noqa: TRY301
        return StoredClass(
            name,
            version,
            fields,
            list(content["methods"]),
            content["source"],
            list(content["missing"]),
            owners.user(info.owner),
            datetime.fromtimestamp(info.created / 1e9, UTC),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"what the pool keeps of class {name!r} does not decode") from error


def parts(stored: str) -> tuple[str, int]:
    """Give the name and the version that an object's note names.

    Raises
    ------
    CorruptError
        If it is no such note.

    """
    name, _, version = stored.rpartition("@")
    if not name or not version.isdecimal():
        raise CorruptError(f"{stored!r:.60} is no class of active objects with its version")
    return name, int(version)


def known_as(home: Home, gid: int) -> str:
    """Give the name of a stored object's class."""
    return parts(str(home.notes(gid, CLASS)))[0]


def stored_names(home: Home) -> list[str]:
    """Give the names of the classes that a pool keeps."""
    group = home.group_if_there(CLASSES)
    if group is None:
        return []
    return [unquote(name) for name in _engram.names(home.namespace, group, None, 1_000_000)]


def class_of(home: Home, stored: str, wanted: type["ActiveObject"]) -> type["ActiveObject"]:
    """Give this program's class for a stored one; it must fit.

    Raises
    ------
    ClassUnknownError
        If this program has none of that name.
    ClassChangedError
        If its fields differ from those stored.

    """
    name, version = parts(stored)
    cls = _ours.get(name)
    for find in finders if cls is None else ():
        cls = cls or find(name)
    if cls is None and wanted._fields and wanted.__qualname__ == name.rpartition(".")[2]:
        cls = wanted  # the same class, of a module that is called otherwise here
    if cls is None:
        raise ClassUnknownError(
            f"the object is of class {name!r}, which this program does not have: import its "
            f"module, or run what the pool keeps of it: engram.active.load_class({name!r})"
        )
    key = (home.key, stored, cls)
    if key not in _checked:
        _check(home, name, version, cls)
        _checked.add(key)
        if_undone(lambda: _checked.discard(key))
    return cls


def _check(home: Home, name: str, version: int, cls: type["ActiveObject"]) -> None:
    try:
        was = stored_class(home, name, version)
    except ClassUnknownError:  # deleted by somebody: the objects say what they have
        return
    differ = differences(was.fields, cls._facts())
    if differ:
        raise ClassChangedError(
            f"class {name!r} has changed since the object was stored (version {version}, "
            f"{was.stored:%Y-%m-%d %H:%M}): {'; '.join(differ)}. Give new fields a default; "
            f"engram.active.load_class({name!r}, version={version}) has the stored class"
        )


def load_class(
    name: str, pool: Any = None, *, trust: bool = False, version: int | None = None
) -> type["ActiveObject"]:
    """Make a class of the source that a pool keeps of it, for a program that lacks its module.

    ::

        Block = engram.active.load_class("model.Block", pool)
        Block.get_by_alias("result").mean()

    This runs the stored source, which is logged (logger `engram.active`) with its author and its
    digest. It is refused unless nobody but this user can have written it, or `trust` is True: look
    at it first, with `engram active classes POOL --source`.

    Raises
    ------
    UntrustedCodeError
        If others may write where it lies.
    ClassUnknownError
        If the pool has no such class, or no source of it.

    """
    from engram.active.using import home as used  # noqa: PLC0415 - it needs homes alone

    return _load(used(pool), name, trust=trust, version=version)


def _load(
    home: Home, name: str, *, trust: bool, version: int | None = None
) -> type["ActiveObject"]:
    stored = stored_class(home, name, version)
    if not stored.source:
        raise ClassUnknownError(
            f"the pool keeps no source of class {name!r}, which was typed into an interpreter"
        )
    others = _others_may_write(home)
    if others and trust is not True:
        raise UntrustedCodeError(
            f"the source of class {name!r} was not run: {others}. Look at it with `engram active "
            f"classes {home.pool_path} --source`, and load it with trust=True if it is good"
        )
    lacks = f"; it lacks {', '.join(stored.missing)}" if stored.missing else ""
    digest = hashlib.sha256(stored.source.encode()).hexdigest()[:16]
    _log.warning(
        "running the source of class %s, version %d, of pool %s: stored %s by %s, sha256 %s...%s",
        *(name, stored.version, home.pool_path, f"{stored.stored:%Y-%m-%d %H:%M}"),
        *(stored.owner, digest, lacks),
    )
    try:
        cls: type[ActiveObject] = run(
            name,
            stored.source,
            home.pool_path,
            stored.missing,
            lambda module: _stand_in(home, module, trust=trust),
        )
    except Exception as error:
        raise ClassUnknownError(
            f"the source of class {name!r} does not run here: {type(error).__name__}: {error}"
            f"{lacks}. Install the modules that it imports, or have PYTHONPATH say where they are"
        ) from error
    _enter(name, cls)
    _registered[home.key, cls] = f"{name}@{stored.version}"
    return cls


def _stand_in(home: Home, module: str, *, trust: bool) -> ModuleType | None:
    """Make a module that a class's source imports, of the classes that the pool keeps of it."""
    names = [name for name in stored_names(home) if name.rpartition(".")[0] == module]
    made = {}
    for name in names:
        with suppress(ClassUnknownError):  # a class that needs that one misses it
            made[name] = _ours.get(name) or _load(home, name, trust=trust)
    inner = [name for name in stored_names(home) if name.startswith(f"{module}.")]
    return standing_in(module, made | dict.fromkeys(set(inner) - set(names)))


def _others_may_write(home: Home) -> str | None:
    """Tell who else may have written into a namespace, or None if nobody can have."""
    if home.is_far:
        return None  # all nodes of a cluster are one user's, as their certificates prove
    folder = os.path.join(home.pool_path, "ns", home.namespace.name, "shared")  # noqa: PTH118
    for path in (home.pool_path, os.path.dirname(folder), folder):  # noqa: PTH120
        try:
            facts = os.stat(path)  # noqa: PTH116 - three names, not worth three objects
        except OSError:
            continue
        if facts.st_uid != os.geteuid():
            return f"{path} belongs to {owners.user(facts.st_uid)}, not to you"
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"others may write in {path}"
    return None
