"""The page of `engram serve`: about ten looks at it, against the real server."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, expect

import engram
from web import serving
from web.contents import HOSTILE
from web.looking import settled, violations, wait_for_drawing

Opened = Callable[[str], Page]
MANY = 100_000


def test_the_tree_and_an_array_by_keyboard_alone(at: Opened) -> None:
    page = at("")
    tree = page.get_by_role("tree")
    expect(tree.get_by_role("treeitem", name="climate")).to_be_visible()
    tree.focus()
    page.keyboard.press("ArrowRight")
    expect(tree.get_by_role("treeitem", name="lat")).to_be_visible()
    for key in ("ArrowDown", "End", "Home", "ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("lat")
    assert page.url.endswith("#/0/climate/lat")
    expect(tree.get_by_role("treeitem", selected=True)).to_contain_text("lat")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("stocked")


@pytest.mark.parametrize(
    ("place", "canvas"),
    [
        ("detector/frame?view=image", ".plane canvas"),
        ("climate/temperature?view=map", ".plane canvas"),
        ("climate/temperature?view=line&index=0,:,0", ".uplot canvas"),
        ("detector/signal?view=line", ".uplot canvas"),
        ("climate/temperature?view=histogram", ".uplot canvas"),
    ],
)
def test_each_view_draws_its_values_from_bounded_answers(
    at: Opened, page: Page, place: str, canvas: str
) -> None:
    sizes: list[int] = []
    page.on("response", lambda told: sizes.append(int(told.headers.get("content-length", 0))))
    at(place)
    wait_for_drawing(page, canvas, 60 if canvas.startswith(".plane") else 3)
    assert max(sizes) <= 2048 * 2048 * 4
    assert page.get_by_role("alert").filter(has_text=re.compile(".")).count() == 0


def test_a_table_scrolls_to_the_last_of_its_rows(at: Opened) -> None:
    page = at("detector/signal?view=table")
    grid = page.get_by_role("region", name="Values of signal")
    expect(grid.locator("tbody th").first).to_have_text("0")
    grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
    expect(grid.locator("tbody th").last).to_have_text("99999")
    page = at("detector/events?view=table")
    expect(page.locator(".values thead")).to_contain_text("energy")
    expect(page.locator(".values tbody tr").nth(2)).to_contain_text("3.0")


def test_sliders_zoom_and_decoding_stand_in_the_link(at: Opened, context: BrowserContext) -> None:
    page = at("climate/temperature?view=map")
    slider = page.get_by_role("slider", name="time: index")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".told")).to_have_text("2001-04-01")
    page.locator(".plane canvas").focus()
    page.keyboard.press("+")
    page.wait_for_url(re.compile(r"index=3,\d+:\d+,:.*lon=-\d+\.\d+:\d+"))
    page.get_by_label("Decoded values").uncheck()
    page.wait_for_url(re.compile("decoded=0"))
    other = context.new_page()
    assert "token" not in page.url
    other.goto(page.url)
    expect(other.get_by_role("spinbutton", name="time: index")).to_have_value("3")
    expect(other.get_by_label("Decoded values")).not_to_be_checked()


def test_a_query_completes_marks_what_is_wrong_and_is_explained(at: Opened) -> None:
    page = at("?panel=query")
    box = page.get_by_role("combobox", name="Query")
    box.press_sequentially("temper")
    completions = page.get_by_role("listbox", name="Completions")
    expect(completions.get_by_role("option")).to_contain_text("temperature")
    box.press("Tab")
    expect(box).to_have_value("temperature")
    box.press_sequentially(" << 3")
    box.press("Enter")
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".wrong pre span")).to_have_text(" " * 12 + "^^")
    box.fill("temperature > 20")
    box.press("Enter")
    expect(page.get_by_role("status").filter(has_text="found in")).to_contain_text("1 to 9")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".drawing .node").first).to_contain_text("temperature > 20")
    page.go_back()
    expect(page.locator(".results tbody tr")).to_have_count(9)


def test_an_update_of_another_process_arrives(page: Page, pool: engram.Pool) -> None:
    pool.create_array("here", data=np.zeros((20, 30)), dims=("y", "x"))
    with serving.served(pool.path) as url:
        page.goto(f"{url}#/0/here?view=table")
        expect(page.locator(".values tbody td").first).to_have_text("0.0")
        expect(page.locator(".top .state")).to_have_text("Live")
        pool.create_array("new", data=np.arange(3.0))
        expect(page.get_by_role("treeitem", name="new")).to_be_visible()
        pool["here"][...] = 7
        pool["here"].attrs["by"] = "another"
        expect(page.locator(".values tbody td").first).to_have_text("7.0")
        expect(page.locator(".attributes")).to_contain_text("another")
        del pool["new"]
        expect(page.get_by_role("treeitem", name="new")).to_have_count(0)


def test_a_hundred_thousand_members_are_few_elements(page: Page, pool: engram.Pool) -> None:
    with pool.batch():
        for place in range(MANY):
            pool.create_blob(f"many/m-{place:06}", b"")
    with serving.served(pool.path) as url:
        page.goto(f"{url}#/0/many/m-000003")
        tree = page.get_by_role("tree")
        expect(tree.get_by_role("treeitem", selected=True)).to_contain_text("m-000003")
        tree.focus()
        for _ in range(3):
            page.keyboard.press("End")
            expect(tree.get_by_role("treeitem", name="Loading more…")).to_have_count(0)
        assert tree.get_by_role("treeitem").count() < 100
        last = tree.get_by_role("treeitem").last.get_attribute("aria-posinset")
        assert int(last or 0) >= 1000
        page.keyboard.press("/")
        page.keyboard.type("077777")
        expect(tree.get_by_role("treeitem")).to_have_count(1)
        expect(tree.get_by_role("treeitem")).to_contain_text("m-077777")
        page.keyboard.press("Control+a")
        page.keyboard.press("Delete")
        expect(tree.get_by_role("treeitem", selected=True)).to_contain_text("m-000003")


def test_hostile_names_are_shown_and_nothing_of_them_runs(at: Opened, page: Page) -> None:
    at("hostile")
    for name in HOSTILE:
        if "\u202e" not in name:
            expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    expect(page.get_by_role("link", name=r"right\u202eleft")).to_be_visible()
    for name in HOSTILE:
        at(f"hostile/{quote(name, safe='')}")
        expect(page.locator(".attributes th")).to_have_text("<b>key</b>")
    assert page.evaluate("window.broken") is None
    assert page.locator("main b, main img, main script").count() == 0


def test_a_pool_that_fills_and_one_that_goes_away(page: Page, home: Path) -> None:
    place = home / "small"
    pool = engram.create(place, size="8 MiB")
    pool.create_array("a", data=np.arange(4.0))
    with serving.served(place) as url:
        page.goto(f"{url}#/0/?panel=space")
        expect(page.locator(".lead")).to_contain_text("8 MiB")
        with pytest.raises(engram.PoolFullError):
            for number in range(100):
                pool.create_array(f"b{number}", data=np.zeros(1 << 15))
        expect(page.get_by_text("The pool is nearly full")).to_be_visible()
        pool.close()
        shutil.rmtree(place)
        expect(page.locator(".banner")).to_contain_text("engram serve")
        page.goto(f"{url}#/0/a")
        expect(page.locator("main .problem").first).to_be_visible()


def test_without_the_token_the_page_says_where_it_is(page: Page, site: str) -> None:
    page.goto(re.sub("token=.*", "token=wrong", site))
    expect(page.locator("body")).to_contain_text("engram serve")
    assert page.get_by_role("tree").count() == 0


@pytest.mark.parametrize(
    "place",
    [
        "",
        "detector/frame",
        "climate/temperature?view=table",
        "?query=temperature > 20",
        "?panel=space",
    ],
)
def test_axe_finds_nothing(at: Opened, place: str) -> None:
    page = at(place)
    settled(page)
    assert violations(page) == []


def test_a_link_of_another_site_opens_the_page_without_the_token(
    at: Opened, page: Page, site: str
) -> None:
    at("")
    link = re.sub(r"\?token=.*", "#/0/climate/lat", site)
    page.route("http://other.example/", lambda route: route.fulfill(body=f"<a href={link}>x</a>"))
    page.goto("http://other.example/")
    page.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("lat")
    assert page.url == link


def test_what_is_typed_as_an_attribute_is_kept_as_it_stands(page: Page, home: Path) -> None:
    place = home / "typed"
    with engram.create(place, size="64 MiB") as pool:
        pool["a"] = [1]
        with serving.served(place, options=("--port", "0", "--write")) as url:
            page.goto(f"{url}#/0/a")
            for name, text in (("whole", "9007199254740993"), ("real", "1.0"), ("word", "a b")):
                page.get_by_label("Name of the attribute").fill(name)
                page.get_by_label("Value of the attribute").fill(text)
                page.get_by_role("button", name="Set attribute").click()
                expect(page.get_by_role("rowheader", name=name)).to_be_visible()
        found = pool["a"].attrs
        assert int(found["whole"]) == 9007199254740993
        assert found["real"].dtype == np.float64
        assert found["word"] == "a b"
