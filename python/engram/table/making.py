"""Making a table: whole, with its first rows, under its name from the first moment on."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from engram import _engram
from engram.batch import Batch
from engram.errors import ArgumentError, ExistsError, NotFoundError
from engram.group import Group
from engram.member import new_member
from engram.table.arrow import pa
from engram.table.given import Given, fitted, given, is_column, refusal
from engram.table.handle import Table
from engram.table.layout import MARK, new_token
from engram.table.writing import Place, abandon, drafts

if TYPE_CHECKING:
    from engram.scope import Scope


def put(group: Group, path: str, value: Any) -> None:
    """Put what another library has made of columns: a table, which replaces what was there.

    Raises
    ------
    ArgumentError
        If it is one column, which is no table, or has what a table cannot keep.

    """
    if is_column(value):
        raise refusal(path, value)
    create(group, path, value, overwrite=True)


def create(
    group: Group,
    path: str,
    data: Any = None,
    *,
    schema: Any = None,
    attrs: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    read_only: bool = False,
    scope: "Scope | None" = None,
) -> Table:
    """Make a table in a group; `Group.create_table` explains each argument."""
    kept = None if schema is None else schema_given(schema)
    found = _found(path, data, kept)
    kept = found.schema if kept is None else kept
    if not overwrite and path in group:
        raise _taken(path)
    namespace = group._namespace
    token = new_token()
    place = Place(namespace, group._id, f"{token}/", scope)
    orders: dict[int, Any] = {}
    made = drafts(place, (fitted(table, kept, orders) for table in found.tables))
    try:
        with Batch(namespace):
            above = (namespace, group._id)
            gid = _engram.create_group(*above, token, attrs, b"", False, scope)
            told = kept.serialize().to_pybytes()
            _engram.put_blob(namespace, gid, MARK, told, new_member(index_mode="none"))
            stamp = time.time_ns()
            for later, draft in enumerate(made):
                draft.publish(stamp + later)
            if overwrite:
                make_room(group, path)
            _engram.rename(*above, token, path)
            if read_only:
                _engram.set_read_only(namespace, True, gid, True)
    except BaseException:
        abandon(made)
        raise
    return Table(namespace, gid)


def require(group: Group, path: str, schema: Any, more: Mapping[str, Any]) -> Table:
    """Give a table that is there and has a schema, or make it; see `Group.require_table`."""
    kept = schema_given(schema)
    there = group.get(path)
    if there is None:
        try:
            return create(group, path, schema=kept, **more)
        except ExistsError:  # somebody else was faster
            there = group[path]
    if not isinstance(there, Table):
        raise ArgumentError(f"{path!r} is no table: {there!r}")
    found = there.schema
    for place in range(max(len(found), len(kept))):
        one = found.field(place) if place < len(found) else None
        asked = kept.field(place) if place < len(kept) else None
        if one is None or asked is None or (one.name, one.type) != (asked.name, asked.type):
            raise ArgumentError(
                f"column {place} of the table {path!r} is {_field(one)}, not {_field(asked)}: "
                "use another name, or replace the table with create_table(..., overwrite=True)"
            )
    return there


def _field(field: Any) -> str:
    return "none" if field is None else f"{field.name!r} of {field.type}"


def _found(path: str, data: Any, kept: Any) -> Given:
    """Return what is given as the content, whose schema fits that which is given."""
    if data is None:
        if kept is None:
            raise ArgumentError(f"{path!r} has no columns: give data, or a schema for it")
        return Given(kept, [])
    found = given(data, kept)
    if kept is not None:
        fitted(found.schema.empty_table(), kept)
    return found


def schema_given(schema: Any) -> Any:
    """Return a schema of Arrow's of what is given for one.

    Raises
    ------
    ArgumentError
        If it is none.

    """
    if isinstance(schema, Table):
        return schema.schema
    try:
        return pa.schema(schema)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise ArgumentError(
            f"schema {schema!r} is none ({error}): give pyarrow.schema, or a dict of names and "
            "types, such as {'x': 'float64'}"
        ) from error


def make_room(group: Group, path: str) -> None:
    """Delete what is at a path, in a batch; not a group, unless it is a table's.

    Raises
    ------
    ExistsError
        If it is a group.

    """
    there = group.get(path)
    if isinstance(there, Group):
        raise ExistsError(
            f"{path!r} is a group, and is not replaced by a table: delete it first, or use "
            "another name"
        )
    if there is not None:
        _engram.delete(group._namespace, group._id, path)


def _taken(path: str) -> ExistsError:
    return ExistsError(
        f"{path!r} is taken: use another name, append to it if it is a table, or replace it with "
        "overwrite=True"
    )


def replace(group: Group, path: str) -> bool:
    """Delete a table that stands where something else is to be put; whether it was one.

    It goes in the batch of the caller.
    """
    if not isinstance(group.get(path), Table):
        return False
    with suppress(NotFoundError):  # somebody else was faster
        _engram.delete(group._namespace, group._id, path)
    return True
