"""The messages of a file, as cfgrib indexes them, without a file of its own beside the user's."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cfgrib import cfmessage, dataset, messages

from engram.errors import EngramError, FormatError
from engram.formats.grib import frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram.formats.source import Source

SINGLE = (
    *dataset.GLOBAL_ATTRIBUTES_KEYS,
    *("discipline", "parameterCategory", "parameterNumber"),  # of edition 2
    *("table2Version", "indicatorOfParameter"),  # of edition 1
)
"""Keys that have one value in all messages of a variable, beside those that cfgrib has so."""

GRID = "md5GridSection"


def index(source: Source) -> Any:
    """Return cfgrib's index of all messages of a file.

    Raises
    ------
    FormatError
        A message is truncated or damaged.

    """
    frames.check(source)
    stream = messages.FileStream(str(source.path.absolute()), errors="raise")
    keys = sorted({*dataset.INDEX_KEYS, "time", "step", *SINGLE, GRID})
    with reading(source):
        return messages.FileIndex.from_fieldset_and_iteritems(
            stream, stream.items(), keys, cfmessage.COMPUTED_KEYS
        )


@contextlib.contextmanager
def reading(source: Source) -> Iterator[None]:
    """Turn what eccodes raises into `FormatError`: its kinds have no base but `Exception`."""
    try:
        yield
    except EngramError:
        raise
    except Exception as error:
        message = (
            f"{source.path}: a message cannot be decoded: {type(error).__name__}: {error}. The "
            "file is damaged: get it again"
        )
        raise FormatError(message) from error
