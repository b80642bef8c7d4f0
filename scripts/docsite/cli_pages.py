"""The reference of the command line: each verb with its help, made from the application itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich.text import Text
from typer.main import get_command

from docsite.stage import write
from docsite.structure import ROOT, page_of
from engram.cli.app import SECTIONS, app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = "reference/command-line"
_DOCUMENT = re.compile(r"\bdocs/[\w/-]+\.md\b")


def plain(text: str | None) -> str:
    """Return help without its markup for terminals; documents become links, angles stay angles."""
    said = Text.from_markup(text or "").plain.replace("<", "\\<").replace("*", "\\*")

    def link(found: re.Match[str]) -> str:
        page = page_of(found[0])
        there = page is not None and (ROOT / found[0]).is_file()
        return f"[{found[0].removeprefix('docs/')}](/{page})" if there else found[0]

    return _DOCUMENT.sub(link, said)


def examples(epilog: str | None) -> list[str]:
    """Return the commands of a verb's epilog."""
    lines = Text.from_markup(epilog or "").plain.split("\n\n")
    return [line.strip() for line in lines[1:] if line.strip()]


def _option(param: Any) -> str:
    """Return an option with what it takes, as a cell of a table."""
    names = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
    takes = "" if param.is_flag else f" `{param.metavar or param.name.upper()}`"
    return f"{names}{takes}".replace("|", "\\|")


def _said(param: Any) -> str:
    """Return an argument's or option's help, as a cell of a table."""
    said = plain(getattr(param, "help", None)).replace("|", "\\|").replace("\n", " ")
    default = param.default
    if param.required or isinstance(default, bool) or default in (None, "", ()):
        return said
    return f"{said} `{getattr(default, 'value', default)}` if not given."


def _table(command: Any) -> Iterator[str]:
    rows = []
    for param in command.params:
        if param.param_type_name == "argument":
            rows.append(f"| `{param.metavar or param.human_readable_name}` | {_said(param)} |")
        elif not param.hidden and param.name != "help":
            rows.append(f"| {_option(param)} | {_said(param)} |")
    if rows:
        yield from ("| Argument or option | What it does |", "|---|---|", *rows, "")


def usage(command: Any, words: str) -> str:
    """Return the line that says how a verb is called."""
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    shown = []
    for param in arguments:
        name = param.metavar or param.human_readable_name
        name = f"{name}..." if param.nargs == -1 and not name.endswith("...") else name
        shown.append(name if param.required or name.startswith("[") else f"[{name}]")
    options = any(
        param.param_type_name == "option" and param.name != "help" for param in command.params
    )
    return " ".join([words, *(["[OPTIONS]"] if options else []), *shown])


def verb(command: Any, words: str, depth: int) -> Iterator[str]:
    """Give the lines of a verb, and of the verbs that it has of its own."""
    yield from (f"{'#' * depth} {words}", "")
    own = getattr(command, "commands", None)
    yield from ("```sh", usage(command, words) + (" COMMAND" if own else ""), "```", "")
    yield from (plain(command.help), "")
    yield from _table(command)
    if shown := examples(command.epilog):
        yield from ("Examples:", "", "```sh", *shown, "```", "")
    for name, inner in (own or {}).items():
        if not inner.hidden:
            yield from verb(inner, f"{words} {name}", depth + 1)


def page_name(section: str) -> str:
    """Return what the file of a section is called."""
    return section.lower().replace(" ", "-")


def write_pages(tree: Path) -> None:
    """Write a page for each section of the verbs, and one that leads to them."""
    group: Any = get_command(app)
    rows = []
    for section, verbs in SECTIONS.items():
        named = ", ".join(f"[`{name}`](#engram-{name})" for name in verbs)
        lines = [f"# {section}", "", f"{named}; [all verbs](index.md)", ""]
        for name in verbs:
            command = group.get_command(None, name)  # loads the verb
            lines += verb(command, f"engram {name}", 2)
            first = plain(command.help).split("\n")[0].split(". ")[0].rstrip(".")
            link = f"[`engram {name}`]({page_name(section)}.md#engram-{name})"
            rows.append(f"| {link} | {first} | {section} |".replace("\\|", "|"))
        write(tree / FOLDER / f"{page_name(section)}.md", "\n".join(lines))
    index = [
        "# Command line",
        "",
        "Every verb of `engram`, from its own help. `engram VERB --help` prints the same.",
        "[The guide](/guide/command-line.md) explains paths, exit codes and completion.",
        "",
        "| Verb | What it does | Section |",
        "|---|---|---|",
        *rows,
        "",
        "```{toctree}",
        ":hidden:",
        "",
        *(page_name(section) for section in SECTIONS),
        "```",
    ]
    write(tree / FOLDER / "index.md", "\n".join(index) + "\n")
