"""Where the parts of active objects lie in a namespace, and what their notes are called."""

from typing import Final

ROOT: Final = ".active"
OBJECTS: Final = f"{ROOT}/objects"
ALIASES: Final = f"{ROOT}/aliases"
CLASSES: Final = f"{ROOT}/classes"

CLASS: Final = "__class__"
ALIASES_OF: Final = "__aliases__"
LINKS: Final = "__links__"
MOVED: Final = "__moved__"
ARRIVING: Final = "__arriving__"
OUTSIDE: Final = "__outside__"
FROM_AFAR: Final = 2
"""What `OUTSIDE` is of a copy that another node is about to move here; else 1."""
HELD: Final = "__held__"
SHARING: Final = "__sharing__"
