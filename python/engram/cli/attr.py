"""`engram attr`: the attributes of an object or a group listed, set and deleted."""

from __future__ import annotations

import functools
import json as json_text
import math
import shlex
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from engram.cli import completion, literals, terminal
from engram.cli.app import JsonOption, NamespaceOption, PoolArgument, app, clean, examples, opened
from engram.errors import ArgumentError, NotFoundError
from engram.naming import nearest

if TYPE_CHECKING:
    from engram.attrs import Attributes
    from engram.cli.describe import Member

_SHOWN = 60
"""So many characters of a value that is refused are shown."""


@app.command(
    epilog=examples(
        "engram attr /dev/shm/run run-17/T",
        "engram attr /dev/shm/run run-17/T units=K levels=[1,2,5]",
        "engram attr /dev/shm/run run-17/T orbit=4 --dtype int16",
        "engram attr /dev/shm/run run-17 'version=\"2017\"'    # text, no number",
        "engram attr /dev/shm/run run-17 'solver={\"tol\":1e-6}'",
        "engram attr /dev/shm/run run-17 --delete draft",
    )
)
def attr(
    pool: PoolArgument,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="An object or a group in the pool; / is the root.",
            autocompletion=completion.members,
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="What to set; without any, all are listed."),
    ] = None,
    *,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", "-d", metavar="KEY", help="Delete an attribute; repeatable."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="DTYPE", help="The dtype of the values that are set, such as int16 or f4."
        ),
    ] = None,
    namespace: NamespaceOption = "default",
    json: JsonOption = False,
) -> None:
    """List the attributes of an object or a group, or set and delete some in one commit.

    A value is read as JSON where it is a number, true, false, a string in quotes, a list or an
    object; all else is text. What begins with [ or { has to be JSON; as text it stands in double
    quotes. A key that has = in it stands in double quotes, too.
    """
    given = _given(changes or [], dtype)
    gone = _once(delete or [])
    if dtype is not None and not given:
        message = f"--dtype {dtype} is of values that are set: give KEY=VALUE, or leave it out"
        raise ArgumentError(message)
    for key in gone:
        if key in given:
            message = f"attribute {key!r} is set and deleted: leave one of them out"
            raise ArgumentError(message)
    with opened(pool, namespace, "r+" if given or gone else "r") as (_, root):
        where = clean(path)
        member: Member = root[where] if where else root
        if given or gone:
            with root.batch():
                _change(member.attrs, where or "/", given, gone)
        if json:
            terminal.print_json(dict(member.attrs.items()))
        elif not given and not gone:
            for key, value in member.attrs.items():
                sys.stdout.write(f"{literals.word(key)} = {literals.attribute(value)}\n")


def _change(attributes: Attributes, where: str, given: dict[str, Any], gone: list[str]) -> None:
    """Set and delete attributes; inside a batch."""
    there = list(attributes) if gone else []
    for key in gone:
        if key not in there:
            near = nearest(key, there)
            hint = f"did you mean {near!r}?" if near is not None else _some(there)
            message = f"{where}: has no attribute {key!r} to delete: {hint}"
            raise NotFoundError(message)
        del attributes[key]
    attributes.update(given)


def _some(there: list[str]) -> str:
    """Name the first keys that there are."""
    shown = 8
    names = ", ".join(map(repr, there[:shown])) + (", ..." if len(there) > shown else "")
    return f"it has {names}" if there else "it has none"


def _once(keys: list[str]) -> list[str]:
    """Return keys, of which each may be named more than once."""
    return list(dict.fromkeys(keys))


def _given(changes: list[str], dtype: str | None) -> dict[str, Any]:
    """Return the values that are to be set by their keys."""
    wanted = None if dtype is None else _dtype(dtype)
    given: dict[str, Any] = {}
    for change in changes:
        key, text = _split(change)
        if key in given:
            message = f"attribute {key!r} is set twice: set it once"
            raise ArgumentError(message)
        value = _value(key, text)
        given[key] = value if wanted is None else _exactly(key, value, wanted)
    return given


def _split(change: str) -> tuple[str, str]:
    """Split KEY=VALUE."""
    if change.startswith('"'):
        try:
            key, rest = literals.split_word(change)
        except ValueError:
            key, rest = "", ""
        sign, text = rest[:1], rest[1:]
    else:
        key, sign, text = change.partition("=")
    if sign != "=" or not key:
        message = (
            f"{change!r} sets no attribute: write KEY=VALUE, such as units=K, or --delete KEY; "
            "without any, all are listed"
        )
        raise ArgumentError(message)
    return key, text


def _value(key: str, text: str) -> Any:
    """Return a value: of JSON, where the text is some, else the text."""
    wrong: list[str] = []
    try:
        value = json_text.loads(
            text,
            object_pairs_hook=functools.partial(_object, wrong),
            parse_float=functools.partial(_float, wrong),
        )
    except (ValueError, RecursionError) as error:
        _refuse_ill_formed(key, text, error)
        return text
    if wrong:
        message = f"attribute {key!r} {wrong[0]}"
        raise ArgumentError(message)
    if value is None:
        message = (
            f"attribute {key!r} cannot be null: delete it with --delete {key}, or set the text "
            f"with '{key}=\"null\"'"
        )
        raise ArgumentError(message)
    return value


def _object(wrong: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; note a key that is there twice, of which one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        wrong.append(f"has the key {twice!r} twice: give each once")
    return found


def _float(wrong: list[str], text: str) -> float:
    """Return a number; note one that float64 does not reach to."""
    found = float(text)
    if math.isinf(found):
        wrong.append(f"has {text:.60}, which is beyond float64: give Infinity, or text in quotes")
    return found


def _refuse_ill_formed(key: str, text: str, error: Exception) -> None:
    """Refuse text that begins as a list or an object of JSON does, and is none."""
    what = {"[": "a list", "{": "an object"}.get(text.lstrip()[:1])
    if what is None:
        return
    wrong = str(error)
    if isinstance(error, json_text.JSONDecodeError):
        wrong = f"{error.msg} at character {error.pos + 1}"
    is_cut = len(text) > _SHOWN
    shown = f"{text[:_SHOWN]}..." if is_cut else text
    as_text = 'in double quotes, each double quote in it as \\" and each backslash as \\\\'
    if not is_cut:
        as_text = f"with {shlex.quote(f'{literals.word(key)}={literals.quoted(text)}')}"
    message = (
        f"attribute {key!r} cannot be {shown!r}: it begins as {what} of JSON does, and "
        f"is none ({wrong}): write it as JSON, in single quotes, which keep the shell from taking "
        f"its double quotes away; or set it as text {as_text}"
    )
    raise ArgumentError(message)


def _dtype(text: str) -> np.dtype[Any]:
    """Return the dtype that a word names."""
    try:
        return np.dtypes.StringDType() if text == "string" else np.dtype(text)
    except (TypeError, ValueError, SyntaxError):
        message = f"--dtype {text!r} is no dtype of numpy: give one such as int16, f4, >i4 or U8"
        raise ArgumentError(message) from None


def _exactly(key: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a value in a dtype that has it.

    A number that is rounded to a narrower floating-point dtype is the number that was meant.
    """
    message = f"attribute {key!r} cannot be {value!r} as {dtype}: give another value or --dtype"
    try:
        with np.errstate(over="raise", invalid="raise"):
            made = np.array(value, dtype)
            plain = np.asarray(value)
            fits = plain.dtype.kind not in "biuf" or dtype.kind not in "biu"
            fits = fits or bool((made == plain).all())
            if plain.dtype.kind in "US" and dtype.kind in "US":
                fits = bool((made.astype(plain.dtype.kind) == plain).all())
    except (ValueError, TypeError, OverflowError, FloatingPointError) as error:
        raise ArgumentError(f"{message} ({error})") from None
    if not fits or made.dtype.kind == "O":
        raise ArgumentError(message)
    return made[()]
