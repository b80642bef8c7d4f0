"""An extension of Sphinx for docstrings: a name in single backticks leads to its place.

`engram.open`, `Group.create_array` and `BusyError` are links where they are public names of the
package. All else in backticks is code: an argument, a value, a name of another project. And classes
that a program never calls, because functions give them, are shown without arguments.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.addnodes import pending_xref

from docsite.python_pages import CONSTRUCTED, PAGES

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?")


@cache
def public() -> dict[str, str]:
    """Return the place of each public name, by the name and by all that it ends with."""
    found: dict[str, str] = {}
    for page in PAGES:
        for module, names in page.names.items():
            for name in names:
                found.setdefault(name, f"{module}.{name}")
                found.setdefault(f"{module}.{name}", f"{module}.{name}")
                found.setdefault(f"{module.removeprefix('engram.')}.{name}", f"{module}.{name}")
    return found


def place(text: str) -> str | None:
    """Return the full name of what a text names, if it is public; else None."""
    if not _NAME.fullmatch(text):
        return None
    name = text.removesuffix("()")
    if name in public():
        return public()[name]
    owner, _, member = name.rpartition(".")
    full = public().get(owner)
    if full is None:
        return None
    module, _, kind = full.rpartition(".")
    documented = vars(getattr(importlib.import_module(module), kind)).get(member)
    return f"{full}.{member}" if getattr(documented, "__doc__", None) else None


def _role(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, *_: Any
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Set a text in backticks, as a role of docutils does."""
    del name, lineno
    code = nodes.literal(rawtext, text)
    full = place(text)
    if full is None:
        return [code], []
    env = inliner.document.settings.env
    told = {"refdomain": "py", "reftype": "obj", "reftarget": full, "refdoc": env.docname}
    return [pending_xref(rawtext, code, refexplicit=True, refwarn=False, **told)], []


def _signature(app: Sphinx, what: str, name: str, *told: Any) -> tuple[str, str] | None:
    """Show no arguments of a class that programs do not call."""
    del app
    _, _, arguments, _ = told
    return ("", "") if what == "class" and arguments and name not in CONSTRUCTED else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the role, and have Sphinx ask which signatures to show."""
    app.add_role("name", _role)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
