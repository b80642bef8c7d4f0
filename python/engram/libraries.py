"""The C library that a wheel carries: where it lies, and what a compiler has to be told.

A wheel has a tree in `engram/_native/` as `make install` makes one: headers, libraries, and what
CMake and pkg-config ask for. Wheels hold no symbolic links. So the library lies under the name
that programs look for, `libengram.so.0`; what linkers find for `-lengram` is a script that names
it.

A package that was built in a clone has no such tree: there, `make install` puts it anywhere.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple, NoReturn

from engram import _engram
from engram.errors import ArgumentError, EngramError, NotFoundError

__all__ = ["Libraries", "find"]

LIBRARY = "lib/libengram.so.0"
"""The C library, below the prefix."""
WORDS = {
    "cflags": "Print what a compiler needs to find the headers.",
    "libs": "Print what links a program with the library, which it then finds when it runs.",
    "cmakedir": "Print the folder that CMake's `engram_DIR` names.",
    "prefix": "Print the folder with include, lib and share.",
}
"""What can be asked for, each with the line of help that says what it gives."""


class Libraries(NamedTuple):
    """The C library, its headers and what build systems ask for."""

    prefix: Path
    """The folder with `include`, `lib` and `share`."""

    @property
    def cflags(self) -> str:
        """What a compiler needs to find the headers."""
        return f"-I{self._word(self.prefix)}/include"

    @property
    def libs(self) -> str:
        """What links a program with the library, which it then finds when it runs."""
        folder = f"{self._word(self.prefix)}/lib"
        return f"-L{folder} -Wl,-rpath,{folder} -lengram -ldl"

    @property
    def cmakedir(self) -> str:
        """The folder that CMake's `engram_DIR` names."""
        return str(self.prefix / "lib/cmake/engram")

    @staticmethod
    def _word(path: Path) -> str:
        if re.search(r"[\s,]", str(path)):
            raise ArgumentError(
                f"the path {str(path)!r} has a blank or a comma in it, at which compilers cut "
                "options: install Engram elsewhere, or use CMake with --cmakedir"
            )
        return str(path)


def find() -> Libraries:
    """Find the C library of this installation.

    Raises
    ------
    NotFoundError
        This installation has none: it was not made from a wheel.

    """
    prefix = Path(_engram.__file__ or "").resolve().parent / "_native"
    if not (prefix / LIBRARY).is_file():
        raise NotFoundError(
            f"the C library is not in this installation of Engram ({prefix / LIBRARY} is missing): "
            "install Engram from a wheel, or run `make install PREFIX=...` in a clone and ask "
            "pkg-config"
        )
    return Libraries(prefix)


def told(wanted: list[str]) -> str:
    """Return what is wanted, in one line; or all there is, a line for each."""
    found = find()
    if not wanted:
        return "\n".join(f"{word}: {getattr(found, word)}" for word in WORDS)
    return " ".join(str(getattr(found, word)) for word in wanted)


def main(arguments: list[str]) -> NoReturn:
    """Do what `engram config` does, where the libraries of the command line are missing."""
    parser = argparse.ArgumentParser(
        prog="python -m engram config", description="Tell a compiler about the C library."
    )
    for word, line in WORDS.items():
        parser.add_argument(f"--{word}", action="store_true", help=line)
    given = vars(parser.parse_args(arguments))
    try:
        sys.stdout.write(f"{told([word for word in WORDS if given[word]])}\n")
    except EngramError as error:
        sys.stderr.write(f"engram: {error}\n")
        sys.exit(error.exit_code)
    sys.exit(0)
