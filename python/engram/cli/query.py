"""`engram query`: objects found by their attributes, names and built-in fields."""

from __future__ import annotations

import contextlib
import dataclasses
import json as json_text
from pathlib import Path  # noqa: TC003 - read by Typer
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

import engram
from engram.cli import completion, describe, terminal
from engram.cli.app import (
    JsonOption,
    PoolOrClusterArgument,
    app,
    clean,
    examples,
    file_path,
    opened,
)
from engram.cli.bar import Bar
from engram.cli.entries import tell_entries
from engram.cli.terminal import counted
from engram.errors import ArgumentError, NotFoundError
from engram.query import Asked, QueryResult, native_query
from engram.size import human

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.array import Array
    from engram.blob import Blob
    from engram.explanation import Explanation
    from engram.figures import Figures
    from engram.namespace import Namespace
    from engram.pool import Pool
    from engram.united import UnitedResult

_ATTRIBUTE, _GROUPS, _BUILTIN = 0, 1, 2
_HAD = {(_BUILTIN, name) for name in ("path", "dtype", "shape")}
"""Built-in fields that have columns anyway."""

QueryArgument = Annotated[
    str, typer.Argument(metavar="QUERY", help="The condition, in quotes; all if none.")
]
BelowOption = Annotated[
    str,
    typer.Option(
        metavar="GROUP", help="Only objects below this.", autocompletion=completion.groups
    ),
]


NamespacesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="The namespace to look in; repeatable, for several.  [default: default]",
        autocompletion=completion.namespaces,
    ),
]
ThreadsOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Threads; default: as many as help.")
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Refuse attributes that nothing has.")]
OffsetOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="Leave out so many of the first, in an order."),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        help="The value of :NAME: a number, a list such as [1, 2], or text; repeatable.",
    ),
]


@app.command(
    epilog=examples(
        "engram query /dev/shm/run 'temperature < -15 and pressure = 144'",
        "engram query /dev/shm/run '@path contains \"9610/Inf\"' --paths",
        "engram query /dev/shm/run 'exists(orbit)' --order-by 'orbit desc' --limit 10",
        "engram query /dev/shm/run 'group.orbit = 4' --count --json",
        "engram query /dev/shm/run 'count(), mean(temperature) group by level'",
        "engram query /dev/shm/run '@name = :name' --param name=log",
        "engram query /dev/shm/run 'under(\"run-17\")' --export run-17.nc",
        "engram query /dev/shm/run 'T < -15' --namespace ice --namespace sea",
    )
)
def query(
    pool: PoolOrClusterArgument,
    expression: QueryArgument = "",
    *,
    below: BelowOption = "/",
    order_by: Annotated[
        list[str] | None,
        typer.Option(
            "--order-by",
            metavar="FIELD",
            help="Such as 'temperature desc' or @path; repeatable.",
            autocompletion=completion.fields,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="At most so many objects.")
    ] = None,
    offset: OffsetOption = None,
    param: ParamOption = None,
    count: Annotated[bool, typer.Option("--count", help="Print how many there are.")] = False,
    count_attributes: Annotated[
        bool, typer.Option("--count-attributes", help="Print how many attributes they have.")
    ] = False,
    names: Annotated[bool, typer.Option("--names", help="Print names alone.")] = False,
    paths: Annotated[bool, typer.Option("--paths", help="Print paths alone.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what of the index is read, and why.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the objects as a file.", parser=file_path),
    ] = None,
    threads: ThreadsOption = None,
    eventual: Annotated[
        bool, typer.Option("--eventual", help="Take queued objects as the index has them.")
    ] = False,
    strict: StrictOption = False,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Of a cluster: do without nodes that do not answer."),
    ] = False,
    namespace: NamespacesOption = None,
    all_namespaces: Annotated[
        bool,
        typer.Option("--all-namespaces", help="Look in all namespaces that you may enter."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find objects by their attributes, names and built-in fields.

    The table has what the query names, or the figures that it begins with.
    docs/guide/queries.md has the language.
    """
    if partial:
        raise ArgumentError(f"--partial is of clusters, and {pool} is one pool: leave it out")
    way = _one_way(
        {"--count": count, "--count-attributes": count_attributes, "--names": names}
        | {"--paths": paths, "--explain": explain, "--export": export is not None}
    )
    consistency: Literal["strong", "eventual"] = "eventual" if eventual else "strong"
    given: Any = {"order_by": order_by, "limit": limit, "offset": offset, "strict": strict}
    given |= {"params": params_of(param), "consistency": consistency, "threads": threads}
    of_totals = native_query(expression, Asked(params=given["params"])).is_of_totals
    asked = [] if all_namespaces else namespace or ["default"]
    _refuse_of_several(namespace, way, is_all=all_namespaces)
    with _looked_in(pool, asked, below) as (group, where):
        with terminal.noting():
            found = (group.aggregate if of_totals else group.query)(expression, **given, **where)
        _tell_found(found, way, export, json=json)


def _tell_found(found: Any, way: str, export: Path | None, *, json: bool) -> None:
    """Print what was asked for, or write it."""
    if isinstance(found, engram.Figures):
        _tell_figures(found, way, json=json)
    elif export is not None:
        _export(found, export, json=json)
    else:
        _tell(found, way, json=json)


@contextlib.contextmanager
def _looked_in(pool: Path, names: list[str], below: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Give what is asked: a group, or several namespaces, and which; all of them by no name."""
    if len(names) == 1:
        with opened(pool, names[0]) as (_, root):
            yield group_below(root, below), {}
        return
    with engram.open(pool, mode="r") as handle:
        yield handle.namespaces, {"names": names or None, "below": clean(below)}


def _refuse_of_several(namespace: list[str] | None, way: str, *, is_all: bool) -> None:
    """Refuse what is said of several namespaces and has no meaning there."""
    if is_all and namespace:
        message = "--namespace and --all-namespaces exclude each other: give one of them"
        raise ArgumentError(message)
    if way in {"--explain", "--export"} and (is_all or len(namespace or ()) > 1):
        message = f"{way} is of one namespace: ask one at a time, by --namespace"
        raise ArgumentError(message)


def params_of(given: list[str] | None) -> dict[str, Any] | None:
    """Give parameters by their names: numbers, texts in quotes and lists as in JSON, else text."""
    params: dict[str, Any] = {}
    for each in given or ():
        name, sign, text = each.partition("=")
        if not sign:
            raise ArgumentError(f"{each!r} gives no value: write NAME=VALUE, such as low=-15")
        if name in params:
            raise ArgumentError(f"parameter {name!r} is given twice: give it once")
        params[name] = _given(text)
    return params or None


def _given(text: str) -> Any:
    """Give a value: a text in quotes and a list as JSON has them, a number, else text."""
    if text[:1] in {'"', "["}:
        try:
            return json_text.loads(text)
        except ValueError:
            return text
    return _number_or_text(text)


def _number_or_text(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            number: int | float = kind(text)
        except ValueError:
            continue
        return number if number == number and "_" not in text else text  # noqa: PLR0124 - NaN
    return text


def _tell_figures(figures: Figures, way: str, *, json: bool) -> None:
    """Print a row for each group."""
    if way:
        message = f"{way} is of objects, and the query gives figures: leave one of them out"
        raise ArgumentError(message)
    if json:
        plain = [
            {
                name: str(value) if isinstance(value, np.datetime64) else value
                for name, value in zip(figures.columns, row, strict=True)
            }
            for row in figures
        ]
        terminal.print_json(plain)
        return
    rows = (tuple("-" if v is None else str(v) for v in row) for row in figures)
    terminal.print_stream(figures.columns, rows, key=figures.columns[-1])


def _one_way(ways: dict[str, bool]) -> str:
    """Return the one option that says what is printed; "" for the table."""
    chosen = [name for name, given in ways.items() if given]
    if len(chosen) > 1:
        message = f"{' and '.join(chosen)} exclude each other: give one of them"
        raise ArgumentError(message)
    return chosen[0] if chosen else ""


def group_below(root: Namespace | Pool, below: str) -> engram.Group:
    """Return the group whose objects are asked for."""
    where = clean(below)
    group = root[where] if where else root
    if not isinstance(group, engram.Group):
        message = f"{where!r} is no group: give --below a group, or none for all"
        raise ArgumentError(message)
    return group


def _tell(found: QueryResult | UnitedResult, way: str, *, json: bool) -> None:
    """Print what was asked for."""
    if way in {"--count", "--count-attributes"}:
        number = found.count() if way == "--count" else found.count_attributes()
        terminal.print_json(number) if json else terminal.say(str(number))
    elif way in {"--names", "--paths"}:
        _tell_words(found.names() if way == "--names" else found.paths(), json=json)
    elif isinstance(found, QueryResult) and way == "--explain":
        told = found.explain()
        terminal.print_json(_explained(told)) if json else terminal.print_lines([str(told)])
    elif json:
        terminal.print_json(list(_facts(found)))
    else:
        _table(found)


def _tell_words(words: list[str] | list[tuple[str, str]], *, json: bool) -> None:
    """Print names or paths; of several namespaces each with its own."""
    plain = [word if isinstance(word, str) else ":".join(word) for word in words]
    if json:
        names = ("namespace", "path")
        terminal.print_json(
            [
                word if isinstance(word, str) else dict(zip(names, word, strict=True))
                for word in words
            ]
        )
    else:
        terminal.print_lines(plain)


def _explained(told: Explanation) -> dict[str, Any]:
    """Return an explanation as plain values."""
    facts = {each.name: getattr(told, each.name) for each in dataclasses.fields(told)}
    facts["conditions"] = [condition._asdict() for condition in told.conditions]
    facts["segments"] = [segment._asdict() for segment in told.segments]
    return facts


def _facts(found: QueryResult | UnitedResult) -> Iterator[dict[str, Any]]:
    """Yield each object's facts with its attributes; what is deleted meanwhile is left out."""
    for member in found:
        try:
            facts = describe.facts(member.name, member)
            where = {} if isinstance(found, QueryResult) else {"namespace": member.namespace}
            yield {**facts, **where, "attributes": dict(member.attrs.items())}
        except NotFoundError:
            continue


def _table(found: QueryResult | UnitedResult) -> None:
    """Print the objects with what the query names."""
    if not len(found):
        terminal.say("no objects")
        return
    fields = [field for field in found._query.fields if field not in _HAD]
    named = [f"{('', 'group.', '@')[kind]}{key}" for kind, key in fields]
    where = () if isinstance(found, QueryResult) else ("namespace",)
    columns = ("dtype", "shape", *named, *where, "path")
    terminal.print_stream(columns, _rows(found, fields), key="path")


def _rows(
    found: QueryResult | UnitedResult, fields: list[tuple[int, str]]
) -> Iterator[tuple[str, ...]]:
    """Yield a row of words for each object; what somebody deletes meanwhile is left out."""
    for member in found:
        try:
            values = [_value(member, kind, key) for kind, key in fields]
            words = ["-" if value is None else _word(value) for value in values]
            if isinstance(member, engram.Array):
                of = (describe.dtype_text(member.dtype), describe.shape_text(member.shape))
            else:
                of = ("blob", human(member.nbytes))
            where = () if isinstance(found, QueryResult) else (member.namespace,)
            yield (*of, *words, *where, member.path)
        except NotFoundError:
            continue


def _word(value: Any) -> str:
    """Return a value as a word of a table: a single one without its dtype."""
    array = np.asarray(value)
    return describe.attribute_text(value if array.shape else str(array[()]))


def _value(member: Array | Blob, kind: int, key: str) -> Any:
    """Return what an object has for a field; None where it lacks it."""
    if kind == _ATTRIBUTE:
        return member.attrs.get(key)
    if kind == _BUILTIN:
        facts = describe.facts(member.name, member)
        given = {"group": member.path.rpartition("/")[0], "scope": member.scope}
        shape = member.shape if isinstance(member, engram.Array) else (member.nbytes,)
        given |= {"ndim": str(len(shape)), "size": str(member.size), "nbytes": str(member.nbytes)}
        return given.get(key, facts.get(key))
    group = member.parent
    while (found := group.attrs.get(key)) is None and group.path:
        group = group.parent
    return found


def _export(found: QueryResult, file: Path, *, json: bool) -> None:
    """Write the objects as a file."""
    with Bar(file.name, 0) as bar:
        report = engram.export_file(
            found, file, progress=lambda p: bar.update(p.done, f"{file.name}{p.path}", p.total)
        )
    if json:
        terminal.print_json(report.to_dict())
        return
    terminal.say(f"{counted(report.arrays, 'array')}, {human(report.nbytes)} into {report.file}")
    tell_entries(report)
