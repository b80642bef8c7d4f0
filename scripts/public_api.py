"""Compares the facade's public API with its snapshot, `engine/public-api.txt`.

`--write` writes the snapshot anew; a change of it is then read in the diff, as code is.

The facade re-exports what other crates of the workspace define. rustdoc's JSON, which nightly Rust
alone writes, has of such an item only where it is, so each crate's JSON is read, and re-exports
are followed from one to the next. An item is shown as its source has it, up to its body: such a
line is the same with each version of Rust, and one knows it again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
FACADE = ROOT / "engine" / "Cargo.toml"
SNAPSHOT = ROOT / "engine" / "public-api.txt"
VALUE_CHARACTERS = 60  # a longer value of a constant is not shown

MARKERS = {"Send", "Sync"}  # of the traits that the compiler derives, those that users notice

Item = dict[str, Any]


class Crate:
    """One crate, as rustdoc's JSON has it."""

    def __init__(self, name: str, told: Item) -> None:
        self.name = name
        self.index: dict[str, Item] = told["index"]
        self.paths: dict[str, Item] = told["paths"]
        self.root = self.index[str(told["root"])]
        self.others = {int(n): each["name"] for n, each in told["external_crates"].items()}
        self.ids = {tuple(at["path"]): n for n, at in self.paths.items() if at["crate_id"] == 0}


class Api:
    """All public lines of a crate, re-exports of the others' items among them."""

    def __init__(self, crates: dict[str, Crate]) -> None:
        self.crates = crates
        self.shown: dict[tuple[str, int], str] = {}

    def resolve(self, crate: Crate, number: int | None) -> tuple[Crate, Item] | None:
        """Find an item where it is defined; there is none if no crate of ours defines it."""
        key = str(number)
        while key in crate.index and "use" in crate.index[key]["inner"]:
            key = str(crate.index[key]["inner"]["use"]["id"])
        if key in crate.index:
            return crate, crate.index[key]
        if key not in crate.paths:
            return None
        at = crate.paths[key]
        other = self.crates.get(crate.others.get(at["crate_id"], ""))
        if other is None or tuple(at["path"]) not in other.ids:
            return None
        return self.resolve(other, int(other.ids[tuple(at["path"])]))

    def module(self, crate: Crate, module: Item, path: str) -> Iterator[str]:
        """Lines of what a module offers."""
        items = (crate.index.get(str(n)) for n in module["inner"]["module"]["items"])
        public = [item for item in items if item and item["visibility"] == "public"]
        # Modules last: what stands beside them and in them is told where it stands beside them.
        for item in sorted(public, key=lambda item: "module" in item["inner"]):
            if "use" not in item["inner"]:
                yield from self.item(crate, item, f"{path}{item['name']}")
                continue
            use = item["inner"]["use"]
            found = self.resolve(crate, use["id"])
            if found is None:
                yield f"{path}{use['name']}: pub use {use['source']}"
            elif use["is_glob"] and "module" in found[1]["inner"]:
                yield from self.module(*found, path)
            elif use["is_glob"]:
                yield from self.parts(*found, path.removesuffix("::"))
            else:
                yield from self.item(*found, f"{path}{use['name']}")

    def item(self, crate: Crate, item: Item, path: str) -> Iterator[str]:
        """Lines of one item and of what it consists of."""
        first = self.shown.setdefault((crate.name, item["id"]), path)
        if first != path:
            yield f"{path}: as {first}"
        elif "module" in item["inner"]:
            yield f"{path}: pub mod {item['name']}"
            yield from self.module(crate, item, f"{path}::")
        else:
            yield f"{path}: {signature(item)}"
            yield from self.parts(crate, item, path)

    def parts(self, crate: Crate, item: Item, path: str) -> Iterator[str]:
        """Lines of fields, variants, methods and traits."""
        ((kind, inner),) = item["inner"].items()
        if kind not in {"struct", "enum", "union", "trait", "variant"} or is_tuple(kind, inner):
            return
        numbers = fields(inner) + inner.get("variants", []) + inner.get("items", [])
        for number in numbers:
            part = crate.index.get(str(number))
            if part and (kind in {"enum", "trait", "variant"} or part["visibility"] == "public"):
                yield from self.item(crate, part, f"{path}::{part['name']}")
        if has_more(inner):
            yield f"{path}: has private fields"
        for number in inner.get("impls", []) if kind != "trait" else []:
            implemented = crate.index.get(str(number))
            if implemented is not None:
                yield from self.implementation(crate, implemented, path)

    def implementation(self, crate: Crate, item: Item, path: str) -> Iterator[str]:
        """Lines of the methods of a type, or the one that says which trait it has."""
        inner = item["inner"]["impl"]
        if inner["trait"] is None:
            for number in inner["items"]:
                part = crate.index.get(str(number))
                if part is not None and part["visibility"] == "public":
                    yield from self.item(crate, part, f"{path}::{part['name']}")
            return
        trait = inner["trait"]["path"].rsplit("::", 1)[-1]
        wanted = not inner["is_synthetic"] or (inner["is_negative"] and trait in MARKERS)
        if wanted and not inner["blanket_impl"] and trait != "StructuralPartialEq":
            head = source(item)
            derived = f"impl {'!' * inner['is_negative']}{trait}"
            yield f"{path}: {cut(head) if re.match(r'(unsafe )?impl', head) else derived}"


def is_tuple(kind: str, inner: Item) -> bool:
    """Tell whether this is a variant whose line has its fields already."""
    return kind == "variant" and isinstance(inner["kind"], dict) and "tuple" in inner["kind"]


def fields(inner: Item) -> list[int]:
    """Numbers of the fields of a structure or of a variant."""
    kind = inner.get("kind")
    if isinstance(kind, dict):
        ((_, told),) = kind.items()
        numbers = told["fields"] if isinstance(told, dict) else told
        return [number for number in numbers if number is not None]
    return []


def has_more(inner: Item) -> bool:
    """Tell whether a structure has fields that only its own crate sees."""
    kind = inner.get("kind")
    if not isinstance(kind, dict):
        return False
    if "tuple" in kind:
        return None in kind["tuple"]
    return bool(kind.get("plain", {}).get("has_stripped_fields"))


@cache
def lines(name: str) -> list[str]:
    """Return the lines of a source file."""
    return (ROOT / name).read_text(encoding="utf-8").splitlines()


def source(item: Item) -> str:
    """Return an item's source, comments left out, on one line."""
    span = item["span"]
    if span is None or not (ROOT / span["filename"]).is_file():
        return ""
    (first, begin), (last, end) = span["begin"], span["end"]
    text = list(lines(span["filename"])[first - 1 : last])
    text[-1] = text[-1][: end - 1]
    text[0] = text[0][begin - 1 :]
    code = (re.sub(r"(^|\s)//.*", "", line).strip() for line in text)
    return re.sub(r",? ([)\]])", r"\1", re.sub(r"([(\[]) ", r"\1", " ".join(filter(None, code))))


def cut(text: str) -> str:
    """Cut a signature where the body begins: at a brace outside of parentheses and brackets."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter in "{;":
            return text[:place].rstrip()
    return text


def signature(item: Item) -> str:
    """Say what an item is, without its body and its fields."""
    ((kind, inner),) = item["inner"].items()
    text = source(item)
    if kind != "struct_field" and item["name"] not in text:  # a macro has written it
        return f"{kind} {item['name']}"
    if any("non_exhaustive" in str(attribute) for attribute in item["attrs"]):
        text = f"#[non_exhaustive] {text}"
    if kind in {"variant", "struct_field", "type_alias", "assoc_type"}:
        return (cut(text) if kind == "variant" and fields(inner) else text).rstrip(";,")
    if kind in {"constant", "assoc_const", "static"}:
        said, _, value = text.rstrip(";").partition(" = ")
        return f"{said} = {value}" if 0 < len(value) <= VALUE_CHARACTERS else said
    if kind == "struct":
        return re.sub(r"\(.*", "", cut(text)) if "where" not in text else cut(text)
    return cut(text)


def workspace() -> dict[str, Item]:
    """Each crate of the workspace by its name, as cargo tells of it."""
    told = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version=1"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    graph = json.loads(told.stdout)
    return {
        each["name"]: each | {"target": graph["target_directory"]} for each in graph["packages"]
    }


def documented() -> tuple[dict[str, Crate], str]:
    """Have rustdoc tell of the facade and of all crates under it; return these, and its name."""
    crates = workspace()
    facade = next(name for name, each in crates.items() if Path(each["manifest_path"]) == FACADE)
    names, left = set[str](), [facade]
    while left:
        if (name := left.pop()) not in names:
            names.add(name)
            uses = (each["name"] for each in crates[name]["dependencies"] if each["kind"] is None)
            left += [used for used in uses if used in crates]
    asked = [word for name in sorted(names) for word in ("-p", name)]
    subprocess.run(
        ["cargo", "+nightly", "doc", "--quiet", "--no-deps", "--lib", "--locked", *asked],
        cwd=ROOT,
        check=True,
        env=os.environ
        | {"RUSTDOCFLAGS": "-Zunstable-options --output-format=json --cap-lints=allow"},
    )
    found = {}
    for name in names:
        library = next(t["name"] for t in crates[name]["targets"] if "lib" in t["kind"])
        page = Path(crates[name]["target"]) / "doc" / f"{library}.json"
        found[library] = Crate(library, json.loads(page.read_text(encoding="utf-8")))
        if name == facade:
            top = library
    return found, top


def main() -> str | None:
    """Write the snapshot or compare it; what is returned is what differs."""
    crates, facade = documented()
    api = Api(crates)
    made = sorted(set(api.module(crates[facade], crates[facade].root, "")))
    if "--write" in sys.argv[1:]:
        SNAPSHOT.write_text("\n".join([*made, ""]), encoding="utf-8")
        return None
    kept = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    gone = [f"- {line}" for line in kept if line not in set(made)]
    new = [f"+ {line}" for line in made if line not in set(kept)]
    if not gone + new:
        return None
    how = "python3 scripts/public_api.py --write"
    return "\n".join([*gone, *new, f"The public API is another than {SNAPSHOT.name} says: {how}"])


if __name__ == "__main__":
    sys.exit(main())
