"""The page in a browser: how soon it shows a pool, and how soon a commit of another process.

The browser is Debian's chromium, with nothing cached. Both times end when the name is on the page,
as an element that can be seen; they hold the time of Playwright, which looks at each frame.
"""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import engram

PATIENCE_MS = 60_000
AT_REST = 0.3
"""For how long the page is left alone before a commit, in seconds."""


@contextmanager
def browser() -> Iterator[Any]:
    """Give a browser; an ImportError or OSError says why there is none."""
    program = shutil.which("chromium")
    if program is None:
        raise OSError("chromium is not installed")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where it is there

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


@contextmanager
def _page(started: Any) -> Iterator[Any]:
    """Give a page of a user who has seen nothing yet."""
    context = started.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield context.new_page()
    finally:
        context.close()


def painted(started: Any, url: str, group: str, member: str) -> float:
    """Open the page of a group's member; give the seconds until the tree shows it there."""
    with _page(started) as page:
        start = time.perf_counter()
        page.goto(f"{url}#/0/{group}/{member}")
        page.get_by_role("treeitem", name=member).wait_for()
        return time.perf_counter() - start


@contextmanager
def watching(started: Any, url: str, pool: engram.Pool) -> Iterator[Any]:
    """Open a pool's page; give a function that commits, and waits until the page shows it."""
    with _page(started) as page:
        page.goto(url)
        page.locator(".top .state", has_text="Live").wait_for()

        def update(name: str) -> float:
            time.sleep(AT_REST)
            start = time.perf_counter()
            pool.create_blob(name, b"new")
            page.get_by_role("treeitem", name=name).wait_for()
            return time.perf_counter() - start

        yield update
