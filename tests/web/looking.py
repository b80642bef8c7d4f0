"""What a person sees of a page, as tests ask for it."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from web import serving

PATIENCE = 30
_COLOURS = """(selector) => {
  const canvas = document.querySelector(selector);
  if (!canvas || canvas.width === 0) return 0;
  const context = canvas.getContext("2d");
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4 * 7) {
    if (data[at + 3]) seen.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
  }
  return seen.size;
}"""


def wait_for_drawing(page: Page, selector: str, least: int) -> None:
    """Wait until a canvas has as many colours as only its values can have."""
    for _ in range(PATIENCE * 5):  # the page's policy lets nobody wait by `eval`
        if page.evaluate(_COLOURS, selector) >= least:
            return
        page.wait_for_timeout(200)
    raise AssertionError(f"{selector} has not {least} colours")


def settled(page: Page) -> None:
    """Wait until the page asks for nothing that it will show."""
    page.wait_for_selector("h1, .problem")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def violations(page: Page) -> list[str]:
    """Return what axe finds wrong: rules, and the elements that break them."""
    if not serving.AXE.is_file():
        pytest.skip("needs axe-core: make web")
    page.evaluate(serving.AXE.read_text(encoding="utf-8"))
    # Colours that change slowly are judged when they have changed.
    page.wait_for_timeout(200)
    found: dict[str, Any] = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{rule['id']}: {', '.join(node['html'][:120] for node in rule['nodes'])}"
        for rule in found["violations"]
    ]
