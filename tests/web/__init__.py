"""The page of `engram serve` in a browser: Debian's chromium, driven by Playwright.

`test_page.py` is a part of `make test`; `whole.py` looks at all of it, and `make web-test` runs
both. Without chromium, Playwright, or the page of `make web`, each test is skipped with the reason.
"""
