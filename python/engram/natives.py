"""The natives, loaded before what needs them: if they cannot be, one sentence says what to do.

A wheel is made for one C library and one processor, and pip installs no other. A folder that was
copied from another system, or a source tree in which nothing is built, ends up here.
"""

import os


def _told(error: ImportError) -> str:
    """Return what is wrong with an installation whose natives cannot be loaded, and what to do."""
    import platform  # noqa: PLC0415 - for this error alone

    where = os.path.dirname(__file__)  # noqa: PTH120 - pathlib takes longer to load
    if error.path is None or "cannot import name" in str(error):
        return (
            f"the natives of Engram are not in {where}: install a wheel, or build them with "
            "`pip install .` in a clone"
        )
    library = " ".join(platform.libc_ver()).strip() or "a C library other than glibc"
    return (
        f"the natives of Engram in {where} are for another system than this one, which has "
        f"{library} on {platform.machine()} and Python {platform.python_version()} ({error}): "
        "install the wheel for this system, or build one with `pip install` from the source "
        "distribution"
    )


try:
    from engram import _engram
except ImportError as error:
    if error.name not in {"engram", "engram._engram", "_engram"}:
        raise  # numpy, say, which the error names
    raise ImportError(_told(error), name=error.name, path=error.path) from None

__all__ = ["VERSION"]

VERSION: str = _engram.VERSION
"""The version of the package: that of its natives."""
