"""What an HDU is called: one rule for coming in and going out.

A member is called EXTNAME, with EXTVER behind it if that is not 1, else HDU and its number. A name
with slashes is a path where HDUs without values before it are the groups on its way; so are the
groups of a pool written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engram.formats.names import name_problem


@dataclass(slots=True)
class Names:
    """The names of the HDUs so far; those of groups are marked."""

    taken: dict[str, bool] = field(default_factory=dict)

    def add(
        self, number: int, extname: Any, extver: Any, *, is_group: bool
    ) -> tuple[str, str | None]:
        """Return the name of the next HDU, and why it is not what its header says, if so."""
        name, why = self.find(number, extname, extver)
        self.taken[name] = is_group
        return name, why

    def find(self, number: int, extname: Any, extver: Any) -> tuple[str, str | None]:
        """Return what `add` would, and take nothing."""
        stated = str(extname).strip()
        name = stated if extver == 1 else f"{stated}_{extver}"
        why = self._problem(name) if stated else None
        if stated and name in self.taken:
            why = f"an earlier HDU is called {name!r} as well"
        if not stated or why is not None:
            name = f"HDU{number}"
            while name in self.taken:
                name += "_"
        return name, why

    def _problem(self, name: str) -> str | None:
        """Say why a name cannot stand here, neither by itself nor below the groups before it."""
        above, _, last = name.rpartition("/")
        return name_problem(last if above and self.taken.get(above) else name)
