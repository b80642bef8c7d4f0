"""What the tests of the page share: a pool, `engram serve` of it, a browser."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import engram
from web import contents, serving

pytest.importorskip("playwright", reason="needs playwright: pip install playwright")
pytest.importorskip("starlette", reason="needs starlette: pip install 'engram[web]'")
pytest.importorskip("uvicorn", reason="needs uvicorn: pip install 'engram[web]'")

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)  # else five seconds, whatever a context waits


# While playwright runs, its thread has an event loop: tests of other modules must not see that.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Give Debian's chromium; root has no sandbox there."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium (chromium)")
    if not serving.PAGE.is_file():
        pytest.skip("needs the page: make web")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a pool that has something for each view; tests only read it."""
    with serving.folder(tmp_path_factory) as home:
        place = home / "stocked"
        contents.stock(engram.create(place, size="128 MiB"))
        yield place


@pytest.fixture(scope="session")
def site(stocked: Path) -> Iterator[str]:
    """Give the address of that pool's page, with its token."""
    with serving.served(stocked) as url:
        yield url


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Give a browser that nobody has used, of 1280 x 800."""
    made = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """Give an empty page; what its scripts throw, or a policy forbids, fails the test."""
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    made.on(
        "console",
        lambda told: wrong.append(told.text) if "Content Security Policy" in told.text else None,
    )
    yield made
    assert not wrong


@pytest.fixture
def at(page: Page, site: str) -> Callable[[str], Page]:
    """Give a function that opens a place of the stocked pool."""

    def opened(place: str) -> Page:
        page.goto(f"{site}#/0/{place}")
        page.wait_for_selector("h1")
        return page

    return opened
