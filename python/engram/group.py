"""Groups: nested mappings of names to arrays, blobs and groups."""

from collections.abc import (
    Callable,
    ItemsView,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from engram import _engram, files, later
from engram.arguments import several, truth, whole_number
from engram.array import Allocation, Array
from engram.batch import Batch
from engram.blob import Blob
from engram.chunked import ChunkedArray, refuse_other_layout
from engram.errors import (
    ArgumentError,
    EngramError,
    ExistsError,
    InvalidNameError,
    NotFoundError,
)
from engram.handle import Handle, make, makers
from engram.index import IndexSettings, check_mode, check_settings
from engram.member import REPLACING, new_member
from engram.members import Items, Values, delete_all, missing
from engram.query import Asked, Consistency, QueryResult, ask, hints_of
from engram.sharing import Sharing

if TYPE_CHECKING:
    from engram._engram import _New
    from engram.copying import CopyProgress
    from engram.expression import Expression, Field, Measure
    from engram.figures import Figures
    from engram.index import IndexMode
    from engram.index_stats import IndexStats
    from engram.scope import Scope
    from engram.table import Table
    from engram.tree import Tree
    from engram.watch import Watch

    ShapeLike = int | Sequence[int]

T = TypeVar("T")

TABLE_MARK = ".table"
"""A group with a member of this name is a table's; it holds the schema."""

_PAGE = 1024
"""Names are listed this many at a time, each page as it is at one moment."""


class Group(Sharing, Handle, MutableMapping[str, Any]):
    """A group: a mapping of names to members (groups, arrays, blobs), in byte order of the names.

    Where a member is named, a path may stand, such as "run-17/T"; a leading slash begins at the
    namespace's root, and "/" is that. What is created makes the groups above it. `g[name] = x` puts
    an array (bytes: a blob), replacing what was there by a new object.

    Raises
    ------
    NotFoundError
        If there is no such member, or the group is gone.
    InvalidNameError
        If a component of a path is empty, `.`, `..`, over 255 bytes of UTF-8, or has NUL.
    ReadOnlyError
        On a change, if the pool was opened with mode "r".

    """

    __slots__ = ()

    _kind = 0
    _is_group = True
    _has_members = True

    def __init__(
        self, namespace: _engram.Namespace, gid: int, dtype: object = None, shape: object = None
    ) -> None:
        del dtype, shape  # of arrays only
        self._namespace = namespace
        self._id = gid

    # Reading

    def __getitem__(self, path: str) -> Any:
        found = _engram.find(self._namespace, self._id, path)
        if found is None:
            raise NotFoundError(missing(self, path))
        kind, member, dtype, shape = found
        if kind == 1:
            return Array(self._namespace, member, dtype, shape)  # type: ignore[arg-type]  # both
        return make(self._namespace, found)

    def __contains__(self, path: object) -> bool:
        try:
            return isinstance(path, str) and _engram.contains(self._namespace, self._id, path)
        except InvalidNameError:  # so nothing is called that
            return False

    def _ipython_key_completions_(self) -> list[str]:
        """Name the first members, for the tab key behind `group["`."""
        return _engram.names(self._namespace, self._id, None, _PAGE)

    def __iter__(self) -> Iterator[str]:
        after = None
        while names := _engram.names(self._namespace, self._id, after, _PAGE):
            yield from names
            after = names[-1]

    def __len__(self) -> int:
        return _engram.count(self._namespace, self._id)

    def get(self, path: str, default: Any = None) -> Any:
        """Give the member at `path`, or `default` if there is none."""
        found = _engram.find(self._namespace, self._id, path)
        return default if found is None else make(self._namespace, found)

    def items(self) -> ItemsView[str, Any]:
        """Names and members, read a page at a time."""
        return Items(self)

    def values(self) -> ValuesView[Any]:
        """Members in byte order of their names, read a page at a time."""
        return Values(self)

    def visititems(self, visit: Callable[[str, Any], T | None]) -> T | None:
        """Call `visit(path, member)` for all that is below, until a call returns something.

        Paths are relative to this group. Returns what ended it, or None.
        """
        if not callable(visit):
            raise ArgumentError(f"visit {visit!r} cannot be called: give a function of two")
        stack = [("", self._members())]
        while stack:
            prefix, members = stack[-1]
            for name, member in members:
                result = visit(prefix + name, member)
                if result is not None:
                    return result
                if isinstance(member, Group):
                    stack.append((f"{prefix}{name}/", member._members_if_there()))
                    break
            else:
                stack.pop()
        return None

    def tree(self, depth: int | None = None, limit: int = 100) -> "Tree":
        """Print all that is below, as a tree; in a notebook, show it.

        At most `depth` levels, and at most `limit` members of each group.
        """
        from engram.tree import Tree  # noqa: PLC0415 - seldom asked for

        tree = Tree(self, depth, limit)
        tree.show()
        return tree

    # Creating

    def create_group(
        self,
        name: str,
        *,
        attrs: Mapping[str, Any] | None = None,
        read_only: bool = False,
        scope: "Scope | None" = None,
        **index: Unpack[IndexSettings],
    ) -> "Group":
        """Create a group, and the groups above it.

        `index="async"`, `attributes_per_group=8` and what else `IndexSettings` has say how objects
        in it are indexed; `set_index` changes that later. With `read_only`, nothing is made in it
        until that is taken back (`Group.read_only`). `scope` is as for `create_array`; what is made
        in the group has its scope.

        Raises
        ------
        ExistsError
            If the name is taken.
        ArgumentError
            If a setting is none.

        """
        settings, read_only = check_settings(index), truth("read_only", read_only)
        if not settings and not read_only:
            return Group(self._namespace, self._create(name, attrs=attrs, scope=scope))
        with Batch(self._namespace):
            gid = self._create(name, attrs=attrs, scope=scope)
            if settings:
                _engram.set_index_settings(self._namespace, gid, settings)
            if read_only:
                _engram.set_read_only(self._namespace, True, gid, True)
        return Group(self._namespace, gid)

    def require_group(
        self, name: str, *, scope: "Scope | None" = None, **index: Unpack[IndexSettings]
    ) -> "Group":
        """Give the group at `name`, created if it is not there.

        `scope` and `index` are as for `create_group`, for a group that is made; one that is there
        keeps its own settings.

        Raises
        ------
        ExistsError
            If the name is taken by something else than a group.
        ArgumentError
            If a setting is none.

        """
        if index and name not in self:
            try:
                return self.create_group(name, scope=scope, **index)
            except ExistsError:  # made by another meanwhile
                pass
        check_settings(index)
        gid = self._create(name, exist_ok=True, scope=scope)
        if _engram.contains(self._namespace, gid, TABLE_MARK):
            raise ExistsError(
                f"{name!r} is a table, and no group: use another name, or its as_group()"
            )
        return Group(self._namespace, gid)

    def create_array(
        self,
        name: str,
        *,
        data: ArrayLike | None = None,
        shape: "ShapeLike | None" = None,
        dtype: DTypeLike | None = None,
        attrs: Mapping[str, Any] | None = None,
        dims: Sequence[str] | None = None,
        overwrite: bool = False,
        device: int | str | PathLike[str] | None = None,
        index: "IndexMode | None" = None,
        read_only: bool = False,
        scope: "Scope | None" = None,
        chunks: "ShapeLike | bool | None" = None,
        codec: str | None = None,
    ) -> Array:
        """Create an array of `data`; without data, of zeros, of `shape` and `dtype`.

        `data` is anything numpy takes for an array, kept in its own dtype or converted to `dtype`
        (default float64, where there is no data). A `str`, an array of `StringDType` and an object
        array of only `str` are kept as strings of variable length. `dims` names the dimensions.
        With `overwrite`, an object of that name is replaced, at once for all. `device` is the path
        or index of a device of the pool. `index` is when the attributes enter the index: "sync",
        "async" or "none" (`IndexMode`); the default is the group's mode. With `read_only`, the
        array cannot be changed once it is made (`Array.read_only`). `scope` is who sees it:
        "private" the user alone, "shared" all who share the namespace; the default is all who see
        its group.

        With `chunks`, the shape of a chunk (True chooses one), the array is kept in chunks
        (`ChunkedArray`): it can be resized and appended to, and each chunk is encoded as `codec`
        says: "none", "lz4", "zstd" or "zstd:9" (a level), or these with "shuffle+" before them.

        Raises
        ------
        ExistsError
            If the name is taken; with `overwrite`, by a group.
        ArgumentError
            If dtype, shape, data, dims, chunks, codec or an attribute do not fit.
        PoolFullError
            If there is no room; nothing is changed, and deleting makes room.

        """
        new = new_member(
            shape=shape,
            dtype=dtype,
            attrs=attrs,
            dims=dims,
            overwrite=overwrite,
            device=device,
            index_mode=index,
            read_only=read_only,
            scope=scope,
            chunks=chunks,
            codec=codec,
        )
        kind, oid, dtype, shape = _engram.put_array(self._namespace, self._id, name, data, new)
        return (Array if kind == 1 else ChunkedArray)(self._namespace, oid, dtype, shape)

    def allocate(
        self,
        name: str,
        *,
        shape: "ShapeLike",
        dtype: DTypeLike | None = None,
        attrs: Mapping[str, Any] | None = None,
        dims: Sequence[str] | None = None,
        overwrite: bool = False,
        device: int | str | PathLike[str] | None = None,
        index: "IndexMode | None" = None,
        read_only: bool = False,
        scope: "Scope | None" = None,
    ) -> Allocation:
        """Reserve space for an array, to be filled in place by a with-block.

        ::

            with g.allocate("T", shape=(ny, nx), dtype="f4") as buf:
                buf[...] = compute()

        The array is published when the block ends, whole and at once; if it raises, there was never
        an array, and the space returns. If the process dies, the space returns too.

        Raises
        ------
        ArgumentError, ExistsError, PoolFullError
            As `create_array`, when the block begins; `ExistsError` also when it ends, if somebody
            else took the name meanwhile.

        """
        new = new_member(
            shape=shape,
            dtype=dtype,
            attrs=attrs,
            dims=dims,
            overwrite=overwrite,
            device=device,
            index_mode=index,
            read_only=read_only,
            scope=scope,
        )
        return Allocation(self._namespace, self._id, name, new)

    def require_array(
        self,
        name: str,
        shape: "ShapeLike",
        dtype: DTypeLike | None = None,
        *,
        exact: bool = True,
        data: ArrayLike | None = None,
        **more: Any,
    ) -> Array:
        """Give the array at `name`, created as by `create_array` if it is not there.

        One that is there must have this shape and dtype; without `exact`, a dtype that values of
        `dtype` can be written to safely. Where `chunks` or `codec` are given, it must have
        those; `chunks=True` is content with any chunks.

        Raises
        ------
        ArgumentError
            If what is there does not fit.

        """
        if not isinstance(shape, int | np.integer):
            shape = tuple(whole_number("shape", n) for n in several("shape", shape))
        if name not in self:
            try:
                return self.create_array(name, data=data, shape=shape, dtype=dtype, **more)
            except ExistsError:  # somebody else was faster
                if name not in self:
                    raise
        there = self[name]
        if not isinstance(there, Array):
            raise ArgumentError(f"{name!r} is no array: {there!r}")
        asked = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        wanted = np.dtype(dtype)
        fits = wanted == there.dtype if exact else np.can_cast(wanted, there.dtype)
        if there.shape != asked or not fits:
            raise ArgumentError(
                f"{name!r} has shape {there.shape} and dtype {there.dtype}, not {asked} and "
                f"{wanted}: replace it with create_array(..., overwrite=True), or use another name"
            )
        refuse_other_layout(there, name, more.get("chunks"), more.get("codec"))
        return there

    def create_blob(
        self,
        name: str,
        data: bytes | bytearray | memoryview,
        *,
        attrs: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        device: int | str | PathLike[str] | None = None,
        index: "IndexMode | None" = None,
        read_only: bool = False,
        scope: "Scope | None" = None,
    ) -> Blob:
        """Create a blob of bytes.

        Raises
        ------
        ArgumentError, ExistsError, PoolFullError
            As `create_array`.

        """
        new = new_member(
            attrs=attrs,
            overwrite=overwrite,
            device=device,
            index_mode=index,
            read_only=read_only,
            scope=scope,
        )
        oid, nbytes = _engram.put_blob(self._namespace, self._id, name, data, new)
        return Blob(self._namespace, oid, None, (nbytes,))

    def create_table(
        self,
        name: str,
        data: Any = None,
        *,
        schema: Any = None,
        attrs: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        read_only: bool = False,
        scope: "Scope | None" = None,
    ) -> "Table":
        """Create a table of `data`: columns of one length, each of a type of its own.

        ::

            t = pool.create_table("events", schema={"time": "timestamp[us]", "energy": "float64"})
            t.append(frame)

        `g[name] = frame` does the same for whatever is a table already, and replaces what is there.

        Parameters
        ----------
        name
            The name, or path.
        data
            A DataFrame of pandas or polars, a table, record batch or reader of pyarrow, a dict of
            columns, or anything that has `__arrow_c_stream__` and tells of columns in it. None
            makes a table without rows.
        schema
            The columns' names and types, as `pyarrow.schema` takes them: data must fit. That of
            `data`, if it is not given.
        attrs, overwrite, read_only, scope
            As for `create_array`.

        Raises
        ------
        ExistsError
            If the name is taken; with `overwrite`, by a group.
        ArgumentError
            If it is no table, or has what a table cannot keep: which column, and why.
        PoolFullError
            If there is no room; nothing is changed.
        UnsupportedError
            If pyarrow is not installed.

        """
        made: Table = later.create_table(
            self,
            name,
            data,
            schema=schema,
            attrs=attrs,
            overwrite=truth("overwrite", overwrite),
            read_only=truth("read_only", read_only),
            scope=scope,
        )
        return made

    def require_table(self, name: str, schema: Any, **more: Any) -> "Table":
        """Give the table at `name`, created without rows if it is not there.

        One that is there must have the columns of `schema`, in their order and types. `more` is as
        for `create_table`, for a table that is made.

        Raises
        ------
        ArgumentError
            If what is there is no table, or has other columns.

        """
        found: Table = later.require_table(self, name, schema, more)
        return found

    def create_file(self, name: str, *, mode: int | None = None) -> Blob:
        """Create an empty file, to be filled with `open_file` or through a mount.

        `mode` are its permissions as a mount shows them, such as 0o640; the namespace's, if they
        are not given.

        Raises
        ------
        ExistsError
            If the name is taken.

        """
        return Blob(
            self._namespace, files.create_file(self._namespace, self._id, name, mode), None, (0,)
        )

    def open_file(self, path: str, mode: str = "rb") -> files.File:
        """Open a blob, or an array in one piece, as a file.

        `mode` is as for Python's `open`: "rb", "rb+", "wb" (made empty, or made), "ab" (behind the
        end), "xb" (made; the name must be free), and with "+" for both. Symbolic links are
        followed. An array keeps its size.

        Raises
        ------
        ArgumentError
            If it is a group, or the mode is none.
        ExistsError
            With "x", if the name is taken.
        BusyError
            Inside a batch, which could not undo what is written.
        UnsupportedError
            If it is a chunked array, or one of strings of variable length.

        """
        return files.open_file(self._namespace, self._id, path, mode)

    def link(self, old: str, new: str) -> None:
        """Give an array or blob a further name (a hard link): it goes with its last one.

        Raises
        ------
        ExistsError
            If the new name is taken.
        UnsupportedError
            If the names would be in two scopes.

        """
        files.link(self._namespace, self._id, old, new)

    def symlink(self, target: str, name: str) -> Blob:
        """Make a symbolic link: a name that stands for the path `target`, which need not be there.

        Mounts and `open_file` follow it; here it is a blob with the path in it.

        Raises
        ------
        ExistsError
            If the name is taken.

        """
        oid = files.symlink(self._namespace, self._id, target, name)
        return Blob(self._namespace, oid, None, (len(target.encode()),))

    def __setitem__(self, path: str, value: Any) -> None:
        if type(value) is np.ndarray:  # first: small puts are counted in tenths of a microsecond
            _put(_engram.put_array, self, path, value, REPLACING)
        elif isinstance(value, bytes | bytearray) and not isinstance(value, np.generic):
            _put_blob(self, path, value)
        elif isinstance(value, Blob):
            _put_blob(self, path, value.view(), _said_of(value))
        elif isinstance(value, Array):
            new = _said_of(value, dims=value.dims, chunks=value.chunks, codec=value.codec)
            _put_array(self, path, value, new)
        elif value is None:
            raise ArgumentError(
                f"None cannot be stored as {path!r}: numpy has no value for it; an empty array "
                "is create_array(name, shape=0), and del removes a member"
            )
        elif isinstance(value, Group):
            raise ArgumentError(
                f"{path!r} cannot be a second name of a group: move it with move(old, new), or "
                "copy it with copy(old, new)"
            )
        elif not later.put_labelled(self, path, value):
            _put_array(self, path, value, REPLACING)

    def setdefault(self, path: str, default: Any = None) -> Any:
        """Give the member at `path`; if there is none, put `default` there first."""
        if path not in self:
            self[path] = default
        return self[path]

    # Changing

    def __delitem__(self, path: str) -> None:
        _engram.delete(self._namespace, self._id, path)

    def clear(self) -> None:
        """Delete all members, or none of them: what one refuses is told before another is gone.

        All at once, if they are of one scope; those of several scopes go one after the other.
        """
        delete_all(self)

    def move(
        self,
        old: str,
        new: str,
        *,
        target: "Group | None" = None,
        scope: "Scope | None" = None,
        progress: "Callable[[CopyProgress], object] | None" = None,
    ) -> None:
        """Rename a member, or move it, with all that is below it: it stays the same object.

        ::

            pool.move("run-17/T", "archive/T")
            pool.move("run-17", "run-17", target=engram.open("/mnt/pmem/archive"))

        `target` is the group from which `new` is a path; this one, if none is given. In another
        namespace, or another pool, the member is made anew, as by `copy`, and goes here once it is
        there. Meanwhile all may read it, and nobody changes it. A move that is cut short leaves it
        where it was, or, at the last, in both places; never in none. Moved again, what is there
        already and equal only goes here.

        Parameters
        ----------
        old, new
            The paths.
        target
            A group of any pool.
        scope, progress
            As for `copy`, where the move is to another namespace.

        Raises
        ------
        ExistsError
            If the new name is taken by something else.
        ArgumentError
            If a group would be moved into itself.
        BusyError
            To another namespace: if it is locked, open as a file or on its way already, or a batch
            runs.
        ReadOnlyError
            If it is read-only or published, or a pool was opened with mode "r".
        PoolFullError
            If there is no room for it; it stays here.

        """
        if target is None and scope is None:
            _engram.rename(self._namespace, self._id, old, new)
            return
        from engram import copying  # noqa: PLC0415 - seldom asked for

        spots = copying.spot_of(self, old), copying.spot_of(self if target is None else target, new)
        copying.move(*spots, scope=scope, progress=progress)

    def copy(
        self,
        old: str,
        new: str,
        *,
        target: "Group | None" = None,
        overwrite: bool = False,
        scope: "Scope | None" = None,
        progress: "Callable[[CopyProgress], object] | None" = None,
    ) -> Any:
        """Copy a member, with all that is below it, and give the copy: all of it, or nothing.

        ::

            pool.copy("run-17", "run-17-before")
            pool.copy("run-17/T", "T", target=engram.open("/mnt/pmem/archive"))

        The copy has what the member is and what is said of it: values as they are stored, chunks
        and their codec, holes of files, attributes, dimensions, settings of the index, protection,
        further names below a group, and what a mount or an import keeps. It is a new object of
        this user's, with ids and times of its own.

        It is of one commit, and others see it whole, in one commit. What is written in place
        meanwhile may be in it half. If this process dies, nothing of it is there.

        Parameters
        ----------
        old, new
            The paths; "/" copies all of the namespace, to a group.
        target
            The group from which `new` is a path: of any namespace of any pool. This one, if none
            is given.
        overwrite
            Whether an object replaces the object that has its name.
        scope
            "private" or "shared". If it is not given, a copy is private if anything that is copied
            is, and else seen by all who see its group.
        progress
            Called with a `CopyProgress`, with its path, and bytes done and in total; what it raises
            ends the copy.

        Raises
        ------
        NotFoundError
            If there is no such member.
        ExistsError
            If the name is taken; with `overwrite`, by a group, or for one.
        ArgumentError
            If a group would be copied into itself.
        UnsupportedError
            If it is of active objects.
        BusyError
            If this thread runs a batch on either namespace.
        PoolFullError
            If there is no room; nothing is copied.
        CorruptError
            If a value is damaged, as its checksum tells.

        """
        from engram import copying  # noqa: PLC0415 - seldom asked for

        spots = copying.spot_of(self, old), copying.spot_of(self if target is None else target, new)
        made = copying.copy(*spots, overwrite=overwrite, scope=scope, progress=progress)
        if made.is_group:
            return makers[0](spots[1].namespace, made.id, None, None)
        (found,) = _engram.handles(spots[1].namespace, np.array([made.id], np.uint64))
        if found is None:
            raise NotFoundError(f"the copy {new!r} was deleted or replaced as soon as it was made")
        return make(spots[1].namespace, found)

    def query(
        self,
        expr: "str | Expression | None" = None,
        *,
        order_by: "str | Field | Sequence[str | Field] | None" = None,
        limit: int | None = None,
        offset: int | None = None,
        params: "Mapping[str, Any] | None" = None,
        consistency: Consistency = "strong",
        threads: int | None = None,
        split_on: tuple[str, Any] | None = None,
        split_threshold: int | None = None,
        merge: bool = False,
        strict: bool = False,
    ) -> QueryResult:
        """Find the objects below this group, at any depth, that a condition is true of.

        ::

            pool.query('temperature < -15 and pressure = 144', order_by="temperature", limit=10)
            pool.query(engram.attr("temperature") < -15)

        `docs/guide/queries.md` has the language. Objects are looked up when the result is used.

        Parameters
        ----------
        expr
            The condition, in the query language or as an expression; without one, all objects.
        order_by
            Fields to order by, each with " desc" or not. Objects that lack one come last; without
            it, objects come in the order of their ids.
        limit
            How many objects at most. It stands in the place of one in `expr`, as `order_by` and
            `offset` do.
        offset
            How many of the first objects are left out before these; it takes an order.
        params
            Values by the names of the query's parameters: `:low` in it is `params["low"]`.
        consistency
            "strong" sees all that is stored. "eventual" takes what waits in the queue of async
            indexing for what the index has of it, and need not read it.
        threads
            How many threads search at most; as many as help, if not given. None is started where
            there is less to do than it takes to start one.
        split_on, split_threshold, merge
            Hints for the index's layout, which maintenance takes up once, a little after the result
            is used: split what has a key at a value, such as ("temperature", 0); split what has the
            query's attributes and more objects than so many full segments; keep these attributes
            together. No setting changes, and a split leaves both parts a sixteenth of a segment at
            least. Of no effect in a pool that was opened with mode "r".
        strict
            Refuse a query that names an attribute which no object of the namespace has (for
            `group.x`, no group above one), instead of warning of it.

        Raises
        ------
        QueryError
            If the query is ill-formed, or `strict` and names what nothing has; with a caret.
        ArgumentError
            If another argument makes no sense.

        Warns
        -----
        EngramWarning
            If the query names an attribute that nothing has; with the nearest key there is.

        """
        hints = hints_of(split_on, split_threshold)
        how = (consistency, threads, merge, False, hints, truth("strict", strict))
        return ask(self._namespace, self._id, expr, Asked(order_by, limit, offset, params, *how))

    def aggregate(
        self,
        figures: "str | Measure | Sequence[str | Measure]",
        where: "str | Expression | None" = None,
        *,
        group_by: "str | Field | Sequence[str | Field] | None" = None,
        order_by: "str | Field | Measure | Sequence[str | Field | Measure] | None" = None,
        limit: int | None = None,
        offset: int | None = None,
        params: "Mapping[str, Any] | None" = None,
        consistency: Consistency = "strong",
        threads: int | None = None,
        strict: bool = False,
    ) -> "Figures":
        """Work out figures of the objects below this group that a condition is true of.

        ::

            pool.aggregate("count(), mean(temperature) where orbit = 4 group by level")
            pool.aggregate(engram.attr("temperature").mean(), engram.attr("orbit") == 4).item()

        There are count, min, max, mean, sum and distinct (how many different values there are).
        They leave out objects that lack the field. `docs/guide/queries.md` has more.

        Parameters
        ----------
        figures
            In the query language, with `where` and `group by` or without; or what `Field.mean`
            and the others give.
        where
            Of which objects; without it, and without one in `figures`, of all.
        group_by
            Fields: a row for each group of objects that have the same of them. Objects that lack
            one form a group, too.
        order_by
            Fields of `group_by` and figures, each with " desc" or not; without it, rows are in the
            order of their groups.
        limit
            How many rows at most. It stands in the place of one in `figures`, as `order_by` and
            `offset` do.
        offset
            How many of the first rows are left out before these; it takes an order.
        params
            Values by the names of the query's parameters: `:low` in it is `params["low"]`.
        consistency, threads, strict
            As those of `query`.

        Raises
        ------
        QueryError
            If the query is ill-formed, or a figure meets values that it cannot be of: text in a
            mean, texts and numbers in one minimum.
        ArgumentError
            If another argument makes no sense.

        Warns
        -----
        EngramWarning
            If the query names an attribute that nothing has; with the nearest key there is.

        """
        from engram.figures import ask as work_out  # noqa: PLC0415 - seldom asked for
        from engram.figures import text_of_figures  # noqa: PLC0415

        asked = Asked(order_by, limit, offset, params, consistency, threads)
        asked = asked._replace(strict=truth("strict", strict))
        return work_out(self._namespace, self._id, text_of_figures(figures, where, group_by), asked)

    def watch(
        self,
        expr: "str | Expression | None" = None,
        *,
        timeout: float | None = None,
        existing: bool = False,
        params: "Mapping[str, Any] | None" = None,
    ) -> "Watch":
        """Wait for objects below this group, at any depth, of which a condition becomes true.

        ::

            for array in pool.watch("exists(step)"):
                ...

        A commit of any process wakes who waits. Objects come in the order of their commits, or,
        where many have come since the last look, of their ids. What came and went between two looks
        is not given; `docs/guide/watching.md` tells more.

        Parameters
        ----------
        expr
            The condition, as for `query`; without one, all objects. It has no order and no limit.
        timeout
            After so many seconds in which nothing has come, an iteration ends; None is never. With
            0 it gives what is there already.
        existing
            First give the objects of which the condition is true now.
        params
            Values by the names of the condition's parameters: `:low` in it is `params["low"]`.

        Raises
        ------
        QueryError
            If the query is ill-formed.
        ArgumentError
            If this is of a snapshot, to which nothing comes; if `timeout` is no time.

        """
        from engram.watch import Watch  # noqa: PLC0415 - it loads threads

        found = truth("existing", existing)
        asked: Any = {"timeout": timeout, "existing": found, "params": params}
        return Watch(self._namespace, self._id, expr, **asked)

    # The index

    @property
    def index_settings(self) -> IndexSettings:
        """The settings that this group has itself; what it lacks, the group above decides."""
        return cast("IndexSettings", _engram.index_settings(self._namespace, self._id))

    def set_index(self, *, reset: bool = False, **index: Unpack[IndexSettings]) -> None:
        """Change how objects that are stored below this group from now on are indexed.

        ::

            group.set_index(index="async", attributes_per_group=8)

        What is not given stays. What is given as None is forgotten, and the group above decides
        (but `attributes_per_group=None` says all in one); with `reset`, so is all that is not
        given. `reindex` brings what is there already under them.

        Raises
        ------
        ArgumentError
            If a setting is none.

        """
        settings = check_settings(index)
        kept = {} if reset else _engram.index_settings(self._namespace, self._id)
        _engram.set_index_settings(self._namespace, self._id, kept | settings)

    def index_stats(self) -> "IndexStats":
        """Tell what the index is made of: attribute groups, sharing frequencies, segments, bytes.

        All figures but `groups` are of the whole namespace.
        """
        from engram.index_stats import stats_of  # noqa: PLC0415 - seldom asked for

        path = _engram.path_of(self._namespace, True, self._id)
        return stats_of(_engram.index_stats(self._namespace), path)

    def reindex(self, group: str | None = None, *, index: "IndexMode" = "sync") -> int:
        """Index all objects below this group, or the one named, anew; give how many it were.

        `index` is their mode from then on: objects that were stored with "none" are found by their
        attributes again. Some objects are done at a time; others may read and write meanwhile.

        Raises
        ------
        BusyError
            Inside a batch.

        """
        target = self if group is None else self[group]
        if not isinstance(target, Group):
            raise ArgumentError(f"{group!r} is no group: name one, or none for all below this one")
        return _engram.reindex(self._namespace, target._id, check_mode(index))

    # What helps them

    def _create(
        self,
        name: str,
        *,
        attrs: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
        scope: "Scope | None" = None,
    ) -> int:
        """Create a group below this one; its id."""
        place = (self._namespace, self._id, name)
        return _engram.create_group(*place, attrs=attrs, origin=b"", exist_ok=exist_ok, scope=scope)

    def _set_origin(self, origin: bytes) -> None:
        """Replace what an import keeps beside it: JSON, or nothing."""
        _engram.set_origin(self._namespace, self._id, origin)

    def _members(self) -> Iterator[tuple[str, Any]]:
        after = None
        while True:
            found, after = _engram.members(self._namespace, self._id, after, _PAGE)
            for name, facts in found:
                yield name, make(self._namespace, facts)
            if after is None:
                return

    def _members_if_there(self) -> Iterator[tuple[str, Any]]:
        try:
            yield from self._members()
        except NotFoundError:  # deleted meanwhile
            return

    def __repr__(self) -> str:
        try:
            count = len(self)
        except EngramError:
            return self._shown("")
        return self._shown(f"({count} member{'' if count == 1 else 's'})")


def _put_blob(group: Group, path: str, data: Any, new: "_New" = REPLACING) -> None:
    """Put a blob, replacing what was there."""
    _put(_engram.put_blob, group, path, data, new)


def _put_array(group: Group, path: str, data: Any, new: "_New") -> None:
    """Put an array, replacing what was there."""
    _put(_engram.put_array, group, path, data, new)


def _put(put: Callable[..., Any], group: Group, path: str, data: Any, new: "_New") -> None:
    """Put something by a native; a table that stands there goes in the same commit."""
    try:
        put(group._namespace, group._id, path, data, new)
    except ExistsError:
        found = group.get(path)
        if found is None or not found._is_group or found._has_members:
            raise  # before a batch is begun: one that fails is the end of the batch around it
        with Batch(group._namespace):
            later.delete_table(group, path)
            put(group._namespace, group._id, path, data, new)


def _made(namespace: _engram.Namespace, gid: int, dtype: Any = None, shape: Any = None) -> Any:
    """Make the handle of a group: of the table that it is, or of itself."""
    with suppress(NotFoundError):  # it went meanwhile, which whoever uses it is told
        if _engram.contains(namespace, gid, TABLE_MARK):
            return later.table(namespace, gid)
    return Group(namespace, gid, dtype, shape)


def _said_of(member: Array | Blob, **layout: Any) -> "_New":
    """Return what is said of a member beside its value, for a copy that replaces what is there."""
    attrs, origin = dict(member.attrs), member._origin
    return new_member(attrs=attrs, overwrite=True, origin=origin, **layout)


makers[0] = _made
