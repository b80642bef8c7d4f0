"""What a YAML file says, with the line and column of each thing, and refusals that name them.

A map is also taken as a list of maps of one pair each, `[a: 1, b: 2]`: echofs's files are written
so. No tag of the file makes anything but texts, numbers, lists and maps.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from engram import size
from engram.errors import ArgumentError, FormatError
from engram.extras import library

_STR, _INT, _NULL = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "null"))
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_KINDS = {
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "a truth value",
    "null": "nothing",
    "timestamp": "a date",
}


class Place(NamedTuple):
    """Where something stands in a file."""

    file: str
    line: int
    """Its line; the first is 1."""
    column: int
    """Its column; the first is 1."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def refuse(self, message: str) -> NoReturn:
        """Refuse what stands there."""
        raise FormatError(f"{self}: {message}")


class Node:
    """A part of a file, with what it is called in refusals."""

    def __init__(self, node: Any, file: str, what: str) -> None:
        self._node = node
        self.what = what
        mark = node.start_mark
        self.place = Place(file, mark.line + 1, mark.column + 1)

    def _inner(self, node: Any, what: str) -> "Node":
        return Node(node, self.place.file, what)

    def refuse(self, message: str) -> NoReturn:
        """Refuse it, with its place."""
        self.place.refuse(message)

    def pairs(self, keys: Mapping[str, bool]) -> "dict[str, Node]":
        """Give what it has by key, of which those that are True must be there."""
        found: dict[str, Node] = {}
        for key_node, value in self._pairs():
            key_at = self._inner(key_node, "the key")
            key = key_at.text()
            if key not in keys:
                near = difflib.get_close_matches(key, keys, 1)
                hint = f"did you mean {near[0]}? " if near else ""
                key_at.refuse(
                    f"{self.what} has no key {key!r}: {hint}Its keys are {', '.join(keys)}"
                )
            if key in found:
                key_at.refuse(
                    f"{key} is there already, at line {found[key].place.line}: leave one of them"
                )
            found[key] = self._inner(value, key)
        for key, needed in keys.items():
            if needed and key not in found:
                self.refuse(f"{self.what} lacks {key}: add it")
        return found

    def _pairs(self) -> list[tuple[Any, Any]]:
        kind = self._node.id
        if kind == "mapping":
            return list(self._node.value)
        if kind != "sequence":
            self.refuse(
                f"{self.what} is {self._kind()}, and has to be a map, or a list of pairs, as in "
                f"[key: value, key: value]"
            )
        pairs = []
        for item in self._node.value:
            if item.id != "mapping" or len(item.value) != 1:
                self._inner(item, "").refuse(
                    f"{self.what} is a list, and this item is no single pair: write it as "
                    f"key: value, with a comma behind it"
                )
            pairs.append(item.value[0])
        return pairs

    def items(self, what: str) -> "list[Node]":
        """Give what it lists; each is called so in refusals."""
        if self._node.id != "sequence":
            self.refuse(f"{self.what} is {self._kind()}, and has to be a list: put it into [ ]")
        return [self._inner(item, what) for item in self._node.value]

    def text(self) -> str:
        """Give a text that is not empty."""
        if self._node.id != "scalar" or self._node.tag != _STR:
            quoted = f': put it into quotes, as "{self._node.value}"' if self._is_plain() else ""
            self.refuse(f"{self.what} is {self._kind()}, and has to be a text{quoted}")
        found: str = self._node.value
        if not found or "\0" in found:
            self.refuse(f"{self.what} is {found!r}, which says nothing: give a text")
        return found

    def one_of(self, words: tuple[str, ...]) -> str:
        """Give one of some words."""
        word = self.text()
        if word not in words:
            self.refuse(f"{self.what} is {word!r}, and has to be one of {', '.join(words)}")
        return word

    def number(self, least: int, most: int) -> int:
        """Give a whole number within bounds, which are allowed, too."""
        text = self._node.value
        plain = self._is_plain() and self._node.tag == _INT and re.fullmatch(r"[0-9]{1,18}", text)
        number = int(text) if plain else least - 1
        if not least <= number <= most:
            shown = repr(text) if self._node.id == "scalar" else self._kind()
            self.refuse(
                f"{self.what} is {shown}, and has to be a whole number from {least} to {most}, "
                f"without quotes"
            )
        return number

    def size(self, least: int = 1) -> int:
        """Give a size in bytes, of at least so many."""
        if self._node.id != "scalar" or self._node.tag not in {_STR, _INT}:
            self.refuse(f'{self.what} is {self._kind()}, and has to be a size, as "2 GiB"')
        text: str = self._node.value
        nbytes = self._asked(lambda: size.parse(text))
        if nbytes < least:
            self.refuse(f"{self.what} is {text!r}: at least {size.human(least)} are needed")
        return nbytes

    def seconds(self) -> int:
        """Give a time that is no moment but a length, in seconds, of at least one."""
        if self._node.id != "scalar" or self._node.tag not in {_STR, _INT}:
            self.refuse(f'{self.what} is {self._kind()}, and has to be a length of time, as "7d"')
        text: str = self._node.value
        said = re.fullmatch(r"([0-9]{1,9})\s*(s|min|h|d|w)", text)
        if said is None or int(said[1]) == 0:
            self.refuse(
                f"{self.what} is {text!r}, and has to be a length of time: a whole number and one "
                f"of s, min, h, d, w, as 12h or 7d"
            )
        return int(said[1]) * _SECONDS[said[2]]

    def _asked(self, read: Callable[[], int]) -> int:
        try:
            return read()
        except ArgumentError as error:
            self.refuse(f"{self.what}: {error}")

    def _is_plain(self) -> bool:
        return bool(self._node.id == "scalar" and self._node.tag != _NULL)

    def _kind(self) -> str:
        if self._node.id != "scalar":
            return "a list" if self._node.id == "sequence" else "a map"
        kind = self._node.tag.rpartition(":")[2]
        return _KINDS.get(kind, f"of the kind {self._node.tag}")


def read(text: str, file: str, what: str) -> Node:
    """Read a text as YAML; what it is and where it comes from stands in refusals.

    Raises
    ------
    FormatError
        If it is no YAML, or empty; with line and column.
    UnsupportedError
        If PyYAML is not installed.

    """
    yaml = library("yaml", "stage", f"{file}: reading {what}")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = ", ".join(part for part in (error.context, error.problem) if part)
        Place(file, mark.line + 1, mark.column + 1).refuse(f"this is no YAML: {why}")
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        sign = f"U+{error.character:04X}"
        Place(file, line, column).refuse(f"the character {sign} cannot stand in YAML: remove it")
    except RecursionError:
        Place(file, 1, 1).refuse("lists or maps are nested too deep for what this is to say")
    if node is None:
        Place(file, 1, 1).refuse(f"the file is empty: {what} is to stand here")
    return Node(node, file, what)
