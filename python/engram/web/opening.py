"""The page, opened in a browser: the token is in no list of processes.

A browser's arguments are for every user of the machine to see. So it is given a file that only its
owner reads, which leads it to the address. Some browsers are waited for, as they load the page: so
a thread of its own opens them, and the server answers meanwhile.
"""

from __future__ import annotations

import contextlib
import html
import os
import tempfile
import threading
import webbrowser
from pathlib import Path

_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Engram</title>"
    '<meta name=referrer content=no-referrer><meta http-equiv=refresh content="0;url={url}">'
    '<p><a href="{url}">The page of Engram</a>'
)


class Opening:
    """A browser that is led to an address."""

    def __init__(self) -> None:
        self._file: Path | None = None

    def open(self, url: str) -> None:
        """Open an address; where it has a token, by a file."""
        if "?" not in url:
            _lead(url)
            return
        number, name = tempfile.mkstemp(prefix="engram-", suffix=".html")  # its mode is 0600
        self._file = Path(name)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(_PAGE.format(url=html.escape(url)))
        _lead(self._file.as_uri())

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink()


def _lead(url: str) -> None:
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
