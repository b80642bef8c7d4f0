"""Groups: h5py's mapping of names to groups, datasets and links, on a group of a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from engram import _engram
from engram.array import Array
from engram.batch import Batch
from engram.compat.h5py import aliases, copying, links, making, order, refused, words
from engram.compat.h5py.base import HLObject, Viewed, text_of
from engram.compat.h5py.dataset import Dataset
from engram.compat.h5py.datatype import Datatype
from engram.compat.h5py.errors import MissingError, NoWriteError, TakenError
from engram.compat.h5py.links import ExternalLink, HardLink, SoftLink, Spot
from engram.errors import (
    ArgumentError,
    BusyError,
    EngramError,
    ExistsError,
    InvalidNameError,
    ReadOnlyError,
)
from engram.formats import origin
from engram.member import new_member

if TYPE_CHECKING:
    from engram.compat.h5py.file import File

T = TypeVar("T")

_NEW = new_member()
_SHOWN = 8
"""Names that an error shows."""
_TRIES = 100
"""So often is something made anew, where others make the groups on its way meanwhile."""
_PLAIN = frozenset("biufcS")


class Group(Viewed, HLObject, MutableMapping[str, Any]):
    """A group of a file."""

    __slots__ = ()

    def __init__(self, file: File, gid: int | None = None) -> None:
        if gid is None:
            raise ValueError(f"a group is had by its name, file[name], and not of {file!r}")
        self._file = file
        self._id = gid

    # Reading

    def __getitem__(self, name: Any) -> Any:
        if name.__class__ is str and "/" not in name and name not in {"", "."}:
            try:
                found = _engram.find(self._file._ns, self._id, name)
            except EngramError:  # which the longer way tells
                found = None
            if found is not None and found[0] == 1:
                _, oid, dtype, shape = found
                array = Array(self._file._ns, oid, dtype, shape)  # type: ignore[arg-type]  # both
                return Dataset(self._file, array)
        return self._get(name)

    def _get(self, name: Any) -> Any:
        if isinstance(name, refused.Reference | refused.RegionReference):
            refused.refuse("a reference", refused.REFERENCES)
        if not isinstance(name, str | bytes):
            raise TypeError(f"Accessing a group is done with bytes or str, not {type(name)}")
        self._file._check()
        path = text_of(name)
        if not path:
            raise MissingError('"" is no name: a group itself is group["."]')
        way = self._file._way
        try:
            at = way.spot(self._id, path)
            found = way.follow(at)
        except InvalidNameError as error:
            raise MissingError(f"there is no {path!r}: {error}") from error
        if found is not None:
            return self._file._made(found)
        named = order.types_of(self._file._ns, at.gid).get(at.name)
        if named is not None:
            return Datatype(self._file, at, named)
        link = at.link(self._file._ns)
        if link is not None and "file" in link:
            shown = links.shown(link)
            refused.refuse(f"{path!r}, which is {shown!r}", refused.EXTERNAL)
        if link is not None:
            shown = links.shown(link)
            raise MissingError(
                f"{path!r} is {shown!r}, which leads to nothing: component not found"
            )
        raise MissingError(self._missing(at))

    def _missing(self, at: Spot) -> str:
        where = self._file._named(_engram.path_of(self._file._ns, True, at.gid))
        there = order.names_of(self._file._ns, at.gid)
        some = ", ".join(map(repr, there[:_SHOWN])) + (", ..." if len(there) > _SHOWN else "")
        return f"object {at.name!r} doesn't exist in {where!r}, which has {some or 'nothing'}"

    def get(
        self,
        name: Any,
        default: Any = None,
        getclass: bool = False,
        getlink: bool = False,
        **elink: Any,
    ) -> Any:
        """Give a member, its class, or the link that its name is; `default` if there is none."""
        del elink  # of links to other files, which are refused
        if not (getclass or getlink):
            try:
                return self[name]
            except KeyError:
                return default
        if name not in self:
            return default
        if getlink:
            shown = self._link(name)
            return type(shown) if getclass else shown
        kind = type(self[name])
        if issubclass(kind, Dataset):
            return Dataset
        return Group if issubclass(kind, Group) else kind

    def _link(self, name: Any) -> HardLink | SoftLink | ExternalLink:
        """Return the link that a name is."""
        at = self._file._way.spot(self._id, text_of(name))
        found = _engram.find(self._file._ns, at.gid, at.name) if at.name else True
        link = None if found else at.link(self._file._ns)
        return HardLink() if link is None else links.shown(link)

    def _is_there(self, at: Spot) -> bool:
        namespace = self._file._ns
        if not at.name:
            return True
        return (
            _engram.contains(namespace, at.gid, at.name)
            or at.link(namespace) is not None
            or at.name in order.types_of(namespace, at.gid)
        )

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str | bytes):
            raise TypeError(f"A name should be string or bytes, not {type(name)}")
        if not self._file._is_open:
            return False
        path = text_of(name)
        if not path:
            return False
        try:
            at = self._file._way.spot(self._id, path)
            return self._is_there(at)
        except (MissingError, InvalidNameError):
            return False

    def __iter__(self) -> Iterator[str]:
        self._file._check()
        yield from order.names_of(self._file._ns, self._id)

    def __reversed__(self) -> Iterator[str]:
        self._file._check()
        yield from reversed(order.names_of(self._file._ns, self._id))

    def __len__(self) -> int:
        self._file._check()
        namespace = self._file._ns
        more = len(links.of_group(namespace, self._id)) + len(order.types_of(namespace, self._id))
        return _engram.count(namespace, self._id) + more

    def visit(self, func: Callable[[str], Any]) -> Any:
        """Call `func(name)` for all that is below, until a call returns something."""
        return self._visit(lambda name, _: func(name))

    def visititems(self, func: Callable[[str, Any], Any]) -> Any:
        """Call `func(name, object)` for all that is below, until a call returns something."""
        return self._visit(func)

    def visit_links(self, func: Callable[[str], Any]) -> Any:
        """Call `func(name)` for all names below, links as well."""
        return self._visit(lambda name, _: func(name), with_links=True)

    def visititems_links(self, func: Callable[[str, Any], Any]) -> Any:
        """Call `func(name, link)` for all names below, links as well."""
        return self._visit(func, with_links=True)

    def _visit(self, func: Callable[[str, Any], Any], *, with_links: bool = False) -> Any:
        self._file._check()
        seen = {self._id}
        stack = [("", self._id, iter(order.sorted_names(self._file._ns, self._id)))]
        while stack:
            prefix, gid, names = stack[-1]
            for name in names:
                found = _engram.find(self._file._ns, gid, name)
                link = None if found else Spot(gid, name).link(self._file._ns)
                if found is None and link is not None and "alias" in link:
                    found = self._file._way.follow(Spot(gid, name))
                is_known = found is not None and found[1] in seen
                if not with_links and (found is None or is_known):
                    continue
                shown = HardLink() if link is None else links.shown(link)
                made = None if found is None else self._file._made(found)
                result = func(prefix + name, shown if with_links else made)
                if result is not None:
                    return result
                if found is not None and not is_known:
                    seen.add(found[1])
                    if isinstance(made, Group):
                        inner = iter(order.sorted_names(self._file._ns, found[1]))
                        stack.append((f"{prefix}{name}/", found[1], inner))
                        break
            else:
                stack.pop()
        return None

    # Creating

    def create_group(
        self, name: Any, track_order: bool | None = None, *, track_times: bool | None = False
    ) -> Group:
        """Create a group, and those above it.

        Raises
        ------
        ValueError
            If the name is taken, or the file was opened with mode "r".

        """
        if name is None:
            refused.refuse("create_group(None)", refused.ANONYMOUS)
        if track_times not in {None, True, False}:
            raise TypeError("track_times must be either True, False, or None")
        if track_order is None:
            track_order = _config[0].track_order
        said = b""
        if track_order:
            tracked = {"links": words.TRACKED, "attributes": words.TRACKED}
            said = origin.encode({"format": "HDF5", "tracked": tracked})

        def make(at: Spot) -> Group:
            place = (self._file._ns, at.gid, at.name)
            return Group(
                self._file, _engram.create_group(*place, attrs=None, origin=said, exist_ok=False)
            )

        return self._make(name, make)

    def _new(self, name: Any) -> Spot:
        """Return where something new is to be, if the name is free."""
        path = text_of(name)
        if "/" in path or path in {"", "."}:
            at = self._file._way.spot(self._id, path, make=True)
        else:
            at = Spot(self._id, path)
        raw = _engram.group_info(self._file._ns, at.gid).origin
        if b'"tracked"' in raw:
            self._file._ordered.add(at.gid)
        if not at.name or (raw and self._is_there(at)):
            raise TakenError(f"{path!r} is taken (name already exists): delete it first")
        return at

    def _make(self, name: Any, make: Callable[[Spot], T]) -> T:
        """Make something new: groups on its way are there with it, or are not."""
        with self._changing():
            for _ in range(_TRIES):
                if not self._makes_way(name):
                    break
                try:
                    with Batch(self._file._ns):
                        return make(self._new(name))
                except BusyError:  # others made the way meanwhile
                    if _engram.in_batch():
                        raise
            return make(self._new(name))

    def _makes_way(self, name: Any) -> bool:
        """Whether groups are to be made on the way to a new name."""
        path = text_of(name)
        above = path.rstrip("/").rpartition("/")[0]
        return bool(above.strip("/")) and self._file._way.find(self._id, above) is None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Tell in h5py's classes of errors what keeps a change from being made."""
        self._file._check()
        try:
            yield
        except (NoWriteError, TakenError):
            raise
        except ReadOnlyError as error:
            raise NoWriteError(f"{error} (no write intent on file)") from error
        except ExistsError as error:
            raise TakenError(f"{error} (name already exists)") from error

    def require_group(self, name: Any) -> Group:
        """Give a group, created if it is not there.

        Raises
        ------
        TypeError
            If the name is of something else.

        """
        if name not in self:
            return self.create_group(name)
        found = self[name]
        if not isinstance(found, Group):
            raise TypeError(f"Incompatible object ({type(found).__name__}) already exists")
        return found

    def create_dataset(
        self, name: Any, shape: Any = None, dtype: Any = None, data: Any = None, **kwds: Any
    ) -> Dataset:
        """Create a dataset.

        Keywords are h5py's: `chunks`, `maxshape`, `compression`, `compression_opts`, `shuffle`,
        `fletcher32`, `scaleoffset`, `fillvalue`, `fill_time`, `track_order`, `track_times`.
        Compression is done with what a pool has, and kept for an export as it was asked for.

        Raises
        ------
        ValueError
            If the name is taken, the file was opened with mode "r", or something does not fit.
        TypeError
            If there is no type for the data.

        """
        if (
            not kwds
            and shape is None
            and dtype is None
            and data.__class__ is np.ndarray
            and data.dtype.kind in _PLAIN
            and data.dtype.metadata is None
            and name.__class__ is str
            and "/" not in name
            and not _config[0].track_order
        ):
            return self._put_plain(name, data)
        if name is None:
            refused.refuse("create_dataset(None)", refused.ANONYMOUS)
        if kwds.get("track_order") is None and _config[0].track_order:
            kwds["track_order"] = True
        making.check_keywords(kwds)
        wanted = making.Wanted(shape, dtype, data, kwds)
        return self._make(name, lambda at: making.put(self._file, at, wanted))

    def _put_plain(self, name: str, data: np.ndarray[Any, Any]) -> Dataset:
        """Put an array of which nothing else is said."""
        namespace = self._file._ns
        try:
            if _engram.group_info(namespace, self._id).origin:
                self._new(name)
            _, oid, dtype, shape = _engram.put_array(namespace, self._id, name, data, _NEW)
        except EngramError:
            with self._changing():
                self._new(name)
                raise
        return Dataset(self._file, Array(namespace, oid, dtype, shape))

    def require_dataset(
        self, name: Any, shape: Any, dtype: Any, exact: bool = False, **kwds: Any
    ) -> Dataset:
        """Give a dataset, created if it is not there.

        One that is there has this shape, and with `exact` this dtype; else one that `dtype` can be
        cast to safely.

        Raises
        ------
        TypeError
            If what is there does not fit.

        """
        if name not in self:
            return self.create_dataset(name, shape, dtype, **kwds)
        if isinstance(shape, int):
            shape = (shape,)
        found = self[name]
        if not isinstance(found, Dataset):
            raise TypeError(f"Incompatible object ({type(found).__name__}) already exists")
        limits = kwds.get("maxshape")
        if tuple(shape) != found.shape and (limits is None or tuple(limits) != found.maxshape):
            raise TypeError(f"Shapes do not match (existing {found.shape} vs new {tuple(shape)})")
        wanted = np.dtype(dtype)
        if exact and wanted != found.dtype:
            raise TypeError(
                f"Datatypes do not exactly match (existing {found.dtype} vs new {dtype})"
            )
        if not np.can_cast(wanted, found.dtype):
            raise TypeError(
                f"Datatypes cannot be safely cast (existing {found.dtype} vs new {dtype})"
            )
        return found

    def create_dataset_like(self, name: Any, other: Dataset, **kwupdate: Any) -> Dataset:
        """Create a dataset of another's shape, dtype and storage, but for what is given."""
        kwds: dict[str, Any] = {}
        for word in ("shape", "dtype", "chunks", "compression", "compression_opts", "scaleoffset"):
            kwds[word] = getattr(other, word)
        for word in ("shuffle", "fletcher32", "fillvalue"):
            kwds[word] = getattr(other, word) or None
        if other.maxshape != other.shape:
            kwds["maxshape"] = other.maxshape
        said = other._words()
        kwds["track_order"] = bool((said.get("tracked") or {}).get("attributes"))
        return self.create_dataset(name, **{**kwds, **kwupdate})

    def create_virtual_dataset(self, name: Any, *_: Any, **__: Any) -> NoReturn:
        """Refuse: a pool has no virtual datasets."""
        refused.refuse(f"create_virtual_dataset({name!r})", refused.VIRTUAL)

    def build_virtual_dataset(self, name: Any, *_: Any, **__: Any) -> NoReturn:
        """Refuse: a pool has no virtual datasets."""
        refused.refuse(f"build_virtual_dataset({name!r})", refused.VIRTUAL)

    def __setitem__(self, name: Any, obj: Any) -> None:
        if isinstance(obj, ExternalLink):
            refused.refuse(f"{name!r} as {obj!r}", refused.EXTERNAL)
        if not isinstance(obj, HLObject | SoftLink | np.dtype | Datatype):
            if name is None:
                refused.refuse("a dataset without a name", refused.ANONYMOUS)
            self.create_dataset(name, data=obj)
            return

        def make(at: Spot) -> None:
            if isinstance(obj, SoftLink):
                links.put(self._file._ns, at, {"soft": obj.path})
            elif isinstance(obj, np.dtype | Datatype):
                order.put_type(self._file._ns, at, obj)
            else:
                self._alias(at, obj)
            order.keep(self._file._ns, at.gid, at.name)

        self._make(name, make)

    def _alias(self, at: Spot, obj: HLObject) -> None:
        if not obj._namespace.same_pool(self._file._ns) or obj._file._id != self._file._id:
            raise OSError(
                f"{obj!r} is of another file, and cannot be linked: copy it, with "
                "f.copy(object, name)"
            )
        aliases.put(self._file, at, obj._id, is_group=obj._is_group)

    # Changing

    def __delitem__(self, name: Any) -> None:
        path = text_of(name)
        with self._changing():
            at = self._file._way.spot(self._id, path)
            namespace = self._file._ns
            if not at.name or not self._is_there(at):
                raise MissingError(f"{path!r} is not there, and so cannot be deleted")
            order.forget(namespace, at.gid, at.name)
            if not _engram.contains(namespace, at.gid, at.name):
                if at.name in order.types_of(namespace, at.gid):
                    order.take_type(namespace, at)
                else:
                    links.take(namespace, at)
                return
            above = _engram.path_of(namespace, True, at.gid)
            if not aliases.keep(self._file, f"{above}/{at.name}".strip("/")):
                _engram.delete(namespace, at.gid, at.name)

    def move(self, source: Any, dest: Any) -> None:
        """Rename a member or a link, or move it.

        Raises
        ------
        ValueError
            If the new name is taken, or there is nothing to move.

        """
        old, new = text_of(source), text_of(dest)
        if old == new:
            return
        with self._changing():
            way, namespace = self._file._way, self._file._ns
            try:
                at = way.spot(self._id, old)
            except MissingError as error:
                raise ArgumentError(f"{old!r} cannot be moved: {error}") from error
            if not at.name or not self._is_there(at):
                raise ArgumentError(f"{old!r} cannot be moved: it is not there")
            to = self._new(new)
            found = _engram.find(namespace, at.gid, at.name)
            if found is None:
                self._move_link(at, to)
                order.forget(namespace, at.gid, at.name)
                return
            with Batch(namespace):
                above = _engram.path_of(namespace, True, at.gid)
                other = _engram.path_of(namespace, True, to.gid)
                paths = [f"{above}/{at.name}".strip("/"), f"{other}/{to.name}".strip("/")]
                _engram.rename(namespace, namespace.root, *paths)
            if found[0] and at.gid != to.gid:
                words.carry(namespace, at.gid, found[1], (namespace, to.gid, found[1]))
            order.forget(namespace, at.gid, at.name)
            order.keep(namespace, to.gid, to.name)

    def _move_link(self, at: Spot, to: Spot) -> None:
        namespace = self._file._ns
        link = at.link(namespace)
        if link is None:
            refused.refuse(f"{at.name!r}", refused.COMMITTED)
        links.put(namespace, to, link)
        links.take(namespace, at)
        order.keep(namespace, to.gid, to.name)

    def copy(  # noqa: PLR0917 - as h5py has it
        self,
        source: Any,
        dest: Any,
        name: Any = None,
        shallow: bool = False,
        expand_soft: bool = False,
        expand_external: bool = False,
        expand_refs: bool = False,
        without_attrs: bool = False,
    ) -> None:
        """Copy a member, with all that is below it, within the file or into another.

        Raises
        ------
        TypeError
            If the target is neither a path nor a group.

        """
        del expand_external, expand_refs  # there are none
        found = source if isinstance(source, HLObject) else self[source]
        if isinstance(dest, Group):
            target = dest
            path = text_of(name) if name is not None else (found.name or "").rpartition("/")[2]
        elif isinstance(dest, HLObject):
            raise TypeError("Destination must be path or Group object")
        else:
            target, path = self, text_of(dest)
        how = copying.How(shallow, expand_soft, without_attrs)
        target._make(path, lambda at: copying.copy(found, target._file, at, how))

    def clear(self) -> None:
        """Delete all members."""
        for name in list(self):
            del self[name]

    def __eq__(self, other: object) -> bool:
        return HLObject.__eq__(self, other)

    def __hash__(self) -> int:
        return HLObject.__hash__(self)

    def __repr__(self) -> str:
        if not self:
            return "<Closed HDF5 group>"
        name = self.name
        if name is None:
            return "<HDF5 group (anonymous): gone>"
        return f'<HDF5 group "{name}" ({len(self)} members)>'


class Config:
    """What h5py's `get_config()` gives: how files are made where nothing is said."""

    def __init__(self) -> None:
        self.complex_names = ("r", "i")
        self.bool_names = (b"FALSE", b"TRUE")
        self.track_order = False
        self.default_file_mode = "r"
        self.mpi = False
        self.ros3 = False
        self.direct_vfd = False
        self.has_native_complex = False
        self.vds_min_hdf5_version = (1, 9, 233)


_config = [Config()]


def get_config() -> Config:
    """Return how files are made where nothing is said."""
    return _config[0]
