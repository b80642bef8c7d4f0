"""Libraries that an extra of the package brings: loaded where they are used, named where missing.

`pip install engram` brings numpy alone. What needs more asks here for it, so that each refusal has
one form: what needs which library, and the command that installs it.
"""

import importlib
from typing import Any

from engram.errors import UnsupportedError


def library(module: str, extra: str, purpose: str) -> Any:
    """Import a library that comes as an extra.

    Parameters
    ----------
    module
        The library's module, such as ``"astropy.io.fits"``.
    extra
        The extra that installs it.
    purpose
        What it is needed for, such as ``"sky.fits: reading FITS"``.

    Raises
    ------
    UnsupportedError
        It is not installed, or cannot be loaded.

    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:  # the last: eccodes without its library
        top = module.partition(".")[0]
        missing = isinstance(error, ModuleNotFoundError) and error.name == top
        why = "which is not installed" if missing else f"which cannot be loaded ({error})"
        message = f"{purpose} needs {top}, {why}: pip install 'engram[{extra}]'"
        raise UnsupportedError(message) from None


class Library:
    """A library that is imported when something of it is first used, and refused as above."""

    def __init__(self, module: str, extra: str, purpose: str) -> None:
        self.__needed = (module, extra, purpose)

    def __getattr__(self, name: str) -> Any:
        """Give what the library has of that name; from then on it is an attribute of this."""
        found = getattr(library(*self.__needed), name)
        setattr(self, name, found)
        return found
