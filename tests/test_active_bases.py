"""Classes whose bases are of other modules, which the program that loads them does not have."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from test_active_classes import python, said

if TYPE_CHECKING:
    from pathlib import Path


def test_a_class_whose_base_is_of_another_module_is_loaded_with_it(home: Path) -> None:
    (home / "family").mkdir()
    (home / "family" / "__init__.py").touch()
    (home / "family" / "base_of.py").write_text(
        "import engram\nimport unknown_of\n\n\n"
        "class Base(engram.ActiveObject):\n    n: int = 2\n\n"
        "    @engram.activemethod\n    def twice(self) -> int:\n        return 2 * self.n\n\n\n"
        "class Other(engram.ActiveObject):\n    n: int = unknown_of.number\n",
        encoding="utf-8",
    )
    (home / "derived_of.py").write_text(
        "import engram\nfrom family.base_of import Base\n\n\n"
        "class Derived(Base):\n    m: int = 3\n\n"
        "    @engram.activemethod\n"
        "    def both(self) -> int:\n        return self.twice() + self.m\n",
        encoding="utf-8",
    )
    (home / "unknown_of.py").write_text("number = 4\n", encoding="utf-8")
    said(
        home,
        "import sys, engram, derived_of, family.base_of\n"
        "with engram.create(sys.argv[1], size='16 MiB', force=True):\n"
        "    derived_of.Derived().make_persistent('d')\n"
        "    family.base_of.Other().make_persistent('o')\n",
        home / "pool",
    )
    shutil.rmtree(home / "family")
    (home / "derived_of.py").unlink()
    (home / "unknown_of.py").unlink()
    done = python(
        home,
        """
        import sys, engram
        from engram import active
        with engram.open(sys.argv[1]), active.Executor(workers=1) as executor:
            derived = active.load_class("derived_of.Derived").get_by_alias("d")
            print(derived.both(), derived.both.submit().result(60))
            print([each.__module__ for each in type(derived).__mro__[:2]])
            print({"family", "family.base_of", "derived_of"} & sys.modules.keys())
        """,
        home / "pool",
    )
    assert done.stdout.splitlines() == ["7 7", "['derived_of', 'family.base_of']", "set()"], done
