"""What is answered below `api/p/ID/`: a function for each address.

Each is given what is served, what was asked, and the work that it is a part of. It gives plain
values, which become JSON, or a response of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from engram.errors import ArgumentError
from engram.web import asking, changing, levels, members, objects, panels, picks, tables, wire
from engram.web.downloads import download
from engram.web.sources import Source

if TYPE_CHECKING:
    from engram.web.levels import Level
    from engram.web.served import Served, Shelf
    from engram.web.working import Work

_TRUE = {"1": True, "true": True, "0": False, "false": False}
_BINARY = "application/octet-stream"


class Ask:
    """What was asked: the words behind the question mark, and the body of a change.

    Raises
    ------
    ArgumentError
        If a word is not of its kind.

    """

    def __init__(self, words: dict[str, str], body: dict[str, Any], shelf: Shelf) -> None:
        self._words = words
        self.body = body
        self.shelf = shelf

    def text(self, name: str, default: str = "") -> str:
        """Give a text."""
        return self._words.get(name, default)

    def needed(self, name: str) -> str:
        """Give a text that has to be there."""
        if name not in self._words:
            raise ArgumentError(f"{name} is missing: add {name}=… to the address")
        return self._words[name]

    def whole(self, name: str, default: int) -> int:
        """Give a whole number."""
        word = self._words.get(name, "")
        try:
            return int(word) if word else default
        except ValueError:
            raise ArgumentError(f"{name} {word[:40]!r} is no whole number") from None

    def truth(self, name: str, default: bool) -> bool:
        """Give a truth value: 1 or 0."""
        word = self._words.get(name, "")
        if word and word not in _TRUE:
            raise ArgumentError(f"{name} {word[:40]!r} is neither 1 nor 0")
        return _TRUE[word] if word else default


Answer = Callable[["Served", Ask, "Work"], Any]


def source_of(served: Served, ask: Ask, work: Work, path: str | None = None) -> Source:
    """Give the array that is asked for, as numbers."""
    where = ask.needed("path") if path is None else path
    return Source(objects.array_at(served, where), work, is_decoded=ask.truth("decoded", True))


def binary(level: Level, **more: str) -> Response:
    """Return cells as bytes: float32, little-endian, row by row."""
    low, high = level.range
    headers = {
        "x-engram-shape": ",".join(map(str, level.values.shape)),
        "x-engram-box": ",".join(map(str, level.box)),
        "x-engram-range": f"{low!r},{high!r}",
        "x-engram-sampled": ",".join(map(str, level.sampled)),
    }
    content = level.values.astype("<f4", copy=False).tobytes()
    return Response(content, media_type=_BINARY, headers=headers | more)


def _members(served: Served, ask: Ask, work: Work) -> Any:
    asked = members.Asked(
        ask.text("path").strip("/"),
        ask.text("after") or None,
        ask.whole("limit", 500),
        ask.text("contains").casefold(),
    )
    return members.listed(served, asked, work)


def _object(served: Served, ask: Ask, work: Work) -> Any:
    return objects.about(served, ask.text("path"), work)


def _table(served: Served, ask: Ask, work: Work) -> Any:
    decoded = ask.truth("decoded", True)
    return tables.table(served, ask.needed("path"), ask.text("index"), work, is_decoded=decoded)


def _image(served: Served, ask: Ask, work: Work) -> Any:
    source = source_of(served, ask, work)
    pick = picks.read(ask.text("index"), source.shape, 2)
    size = ask.whole("height", 512), ask.whole("width", 512)
    reduce = ask.text("reduce", "mean")
    level = levels.image(source, pick, size, reduce, work)
    days = {"x-engram-units": "days since 1970-01-01"} if source.is_days else {}
    return binary(level, **days)


def _line(served: Served, ask: Ask, work: Work) -> Any:
    source = source_of(served, ask, work)
    pick = picks.read(ask.text("index"), source.shape, 1)
    level = levels.line(source, pick, ask.whole("bins", 1024), work)
    cells = level.values.shape[1]
    step = pick.shape[0] / cells if cells else 1
    more = {"x-engram-step": f"{step:.12g}"}
    more |= {"x-engram-units": "days since 1970-01-01"} if source.is_days else {}
    return binary(level, **more)


def _histogram(served: Served, ask: Ask, work: Work) -> Any:
    source = source_of(served, ask, work)
    pick = picks.read(ask.text("index"), source.shape)
    told = levels.histogram(source, pick, ask.whole("bins", 100), work)
    figures = ("mean", "std", "min", "max")
    return told | {name: wire.plain(told[name]) for name in figures}


def _coordinate(served: Served, ask: Ask, work: Work) -> Any:
    return objects.places(served, ask.needed("path"), ask.needed("dim"), ask.text("index"), work)


def _compare(served: Served, ask: Ask, work: Work) -> Any:
    other = ask.shelf[ask.text("with", served.number) or served.number]
    one = source_of(served, ask, work, ask.needed("a"))
    two = source_of(other, ask, work, ask.needed("b"))
    if one.shape != two.shape:
        shapes = f"{list(one.shape)} and {list(two.shape)}"
        raise ArgumentError(f"arrays of one shape are compared, and these have {shapes}")
    for each in (one, two):
        each.check_numbers()
    if one.meaning != two.meaning:
        raise ArgumentError(
            f"{one.array.path!r} has {one.meaning}, and {two.array.path!r} {two.meaning}: compare "
            "values of one kind, or stored ones with decoded=0"
        )
    pick = picks.read(ask.text("index"), one.shape, None if ask.text("index") else 2)
    if len(pick.ranges) not in {1, 2}:
        raise ArgumentError("what is compared has one range or two: write numbers elsewhere")
    size = ask.whole("height", 512), ask.whole("width", 512)
    level, stats = levels.difference(one, two, pick, size, work)
    told = {name: wire.number(value) for name, value in stats.items()}
    return binary(level, **{"x-engram-stats": wire.dumps(told).decode("ascii")})


def _query(served: Served, ask: Ask, work: Work) -> Any:
    del work
    page = ask.whole("limit", 100), ask.whole("offset", 0)
    return asking.found(served, ask.text("text"), ask.text("order"), *page)


def _complete(served: Served, ask: Ask, work: Work) -> Any:
    del work
    text = ask.text("text")
    return asking.completed(served, text, ask.whole("at", len(text)))


def _explain(served: Served, ask: Ask, work: Work) -> Any:
    del work
    return asking.explained(served, ask.text("text"))


READS: dict[str, Answer] = {
    "members": _members,
    "object": _object,
    "table": _table,
    "image": _image,
    "line": _line,
    "histogram": _histogram,
    "coordinate": _coordinate,
    "compare": _compare,
    "query": _query,
    "complete": _complete,
    "explain": _explain,
    "download": download,
    "index": lambda served, _ask, _work: panels.index(served),
    "active": lambda served, _ask, work: panels.active(served, work),
    "files": lambda served, _ask, _work: panels.files(served),
    "stages": lambda served, _ask, _work: panels.stages(served),
    "space": lambda served, _ask, _work: panels.space(served),
    "nodes": lambda served, _ask, _work: panels.nodes(served),
}
"""What is read, by address."""

CHANGES: dict[str, Answer] = {
    "delete": lambda served, ask, _work: changing.delete(served, ask),
    "rename": lambda served, ask, _work: changing.rename(served, ask),
    "attr": lambda served, ask, _work: changing.attr(served, ask),
}
"""What is changed, by address."""
