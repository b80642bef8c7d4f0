"""All of the page, at all widths and in both themes: `make web-test`, which takes minutes.

Its name is none that pytest looks for by itself: it is given by name.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import engram
from active_models import Block
from cluster.rig import Rig, rigged
from engram.cluster import known
from web import serving
from web.contents import SIDE
from web.looking import settled, violations, wait_for_drawing

PATIENCE_MS = 30_000
Opened = Callable[[str], Page]

PLACES = [
    "#/0/",
    "#/0/climate",
    "#/0/scalar",
    "#/0/notes",
    "#/0/detector/frame?view=image",
    "#/0/detector/frame?view=line",
    "#/0/detector/frame?view=histogram",
    "#/0/detector/frame?view=table",
    "#/0/detector/events",
    "#/0/climate/temperature?view=map",
    "#/0/nothing/there",
    "#/0/?panel=query",
    "#/0/?query=temperature > 20",
    "#/0/?query=temperature << 20",
    "#/0/?query=temperature > 20&explain=1",
    "#/0/?panel=space",
    "#/0/?panel=index",
    "#/0/?panel=active",
    "#/0/?panel=files",
    "#/0/?panel=stages",
    "#/compare",
    "#/compare?a=0:climate/temperature&b=0:climate/other",
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 768, 1280, 1920])
def test_every_place_fits_and_axe_finds_nothing(
    browser: Browser, site: str, width: int, theme: str
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    for place in PLACES:
        page.goto(f"{site}{place}")
        settled(page)
        wide = page.evaluate("document.querySelector('main').scrollWidth")
        room = page.evaluate("document.querySelector('main').clientWidth")
        assert wide <= room, f"{place} is {wide} wide, and has {room}"
        assert violations(page) == [], place
    assert wrong == []
    context.close()


def test_the_menu_of_a_narrow_page(browser: Browser, site: str) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 800})
    page = context.new_page()
    page.goto(f"{site}#/0/")
    menu = page.get_by_role("button", name="Pool", exact=True)
    expect(menu).to_have_attribute("aria-expanded", "false")
    menu.click()
    expect(page.get_by_role("tree")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("treeitem", name="scalar").click()
    expect(page.get_by_role("tree")).to_be_hidden()
    expect(page.get_by_role("heading", level=1)).to_have_text("scalar")
    context.close()


@pytest.fixture
def own(browser: Browser, home: Path) -> Iterator[tuple[Page, engram.Pool, Path]]:
    """Give a page, and a pool that the test may change."""
    place = home / "own"
    pool = engram.create(place, size="64 MiB")
    context = browser.new_context()
    yield context.new_page(), pool, place
    context.close()
    pool.close()


def test_the_server_ends_and_comes_back(own: tuple[Page, engram.Pool, Path]) -> None:
    page, pool, place = own
    pool.create_array("a", data=np.arange(3.0))
    server = serving.Serving(place, "--port", "0")
    port = re.search(r":(\d+)/", server.url)
    assert port is not None
    page.goto(f"{server.url}#/0/a")
    expect(page.locator(".top .state")).to_have_text("Live")
    server.end()
    expect(page.locator(".banner")).to_contain_text("engram serve again")
    expect(page.locator(".top .state")).to_have_text("No answer")
    pool.create_array("meanwhile", data=np.arange(3.0))
    with serving.served(place, options=("--port", port[1])) as url:
        # It has another token now: the page says so, and the address that it prints works.
        expect(page.locator(".banner")).to_contain_text("token", timeout=60_000)
        page.goto("about:blank")
        page.goto(f"{url}#/0/a")
        expect(page.get_by_role("treeitem", name="meanwhile")).to_be_visible()
        expect(page.locator(".banner")).to_be_empty()


def test_a_prefix_as_of_a_proxy(own: tuple[Page, engram.Pool, Path]) -> None:
    page, pool, place = own
    pool.create_array("a", data=np.ones((20, 30)))
    with serving.served(place, options=("--port", "0", "--prefix", "/user/ada/proxy")) as url:
        assert "/user/ada/proxy/" in url
        page.goto(f"{url}#/0/a")
        wait_for_drawing(page, ".plane canvas", 20)
        expect(page.locator(".top .state")).to_have_text("Live")


def test_changes_with_write_and_none_without(own: tuple[Page, engram.Pool, Path]) -> None:
    page, pool, place = own
    pool.create_array("g/a", data=np.arange(3.0))
    with serving.served(place) as url:
        page.goto(f"{url}#/0/g/a")
        expect(page.get_by_role("heading", name="Attributes")).to_be_visible()
        expect(page.get_by_role("button", name="Remove…")).to_have_count(0)
    with serving.served(place, options=("--port", "0", "--write")) as url:
        page.goto(f"{url}#/0/g/a")
        page.get_by_label("Name of the attribute").fill("level")
        page.get_by_label("Value of the attribute").fill("4")
        page.get_by_role("button", name="Set attribute").click()
        expect(page.locator(".attributes")).to_contain_text("level")
        assert pool["g/a"].attrs["level"] == 4
        page.get_by_label("New path").fill("g/b")
        page.get_by_role("button", name="Rename").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("b")
        page.get_by_role("button", name="Remove…").click()
        page.get_by_role("button", name="Remove it").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("g")
        assert "b" not in pool["g"]


def test_downloads_are_of_what_is_shown(at: Opened, tmp_path: Path) -> None:
    page = at("climate/temperature?view=map&index=3,:,:")
    wait_for_drawing(page, ".plane canvas", 60)
    saved = {}
    for kind in ("netCDF", "CSV", "NumPy", "PNG"):
        with page.expect_download() as told:
            page.get_by_role("button", name=kind).click()
        saved[kind] = tmp_path / told.value.suggested_filename
        told.value.save_as(saved[kind])
    with netCDF4.Dataset(str(saved["netCDF"])) as data:
        assert data["climate/temperature"].shape[-2:] == (37, 72)
    assert np.load(saved["NumPy"]).shape == (37, 72)  # all around the earth
    assert len(saved["CSV"].read_text().splitlines()) >= 37
    assert saved["PNG"].read_bytes().startswith(b"\x89PNG")


def test_a_difference_is_told_and_drawn(at: Opened) -> None:
    page = at("climate/temperature?view=image")
    page.get_by_role("link", name="Compare with…").click()
    page.get_by_label("Second array: path").fill("climate/other")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".facts").first).to_contain_text("Largest difference2.5")
    expect(page.locator(".facts").first).to_contain_text(f"{37 * 72 - 100}")
    wait_for_drawing(page, ".plane canvas", 10)


def test_zoom_asks_for_levels_of_bounded_size(at: Opened, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda told: asked.append(told.url) if "/image?" in told.url else None)
    at("detector/frame?view=image&index=100:140,200:260")
    wait_for_drawing(page, ".plane canvas", 60)
    canvas = page.locator(".plane canvas")
    canvas.hover()
    expect(page.locator(".readout")).to_contain_text("counts")
    canvas.focus()
    for key in ("-", "-", "ArrowLeft", "0"):
        page.keyboard.press(key)
    page.wait_for_url(re.compile("index=:,:"))
    for url in asked:
        found = re.search(r"width=(\d+)&height=(\d+)", url)
        assert found is not None
        assert int(found[1]) <= SIDE[1]
        assert int(found[2]) <= SIDE[0]


@pytest.fixture
def cluster(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """Give a cluster of two nodes, which the page knows by its name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with rigged(home) as rig:
        rig.serve(0)
        rig.serve(1)
        rows, columns = np.indices((40, 60))
        opened = rig.open()
        opened.put(
            "run/T", np.sin(rows / 9) + np.cos(columns / 7), parts=(2, 1), attrs={"units": "K"}
        )
        group = opened.create_group("spread", spread="hash")
        for number in range(5):
            group[f"a{number}"] = np.arange(number + 1.0)
        known.write(known.Known("job", rig.etcd))
        yield rig


def test_a_cluster_with_its_nodes(cluster: Rig, page: Page) -> None:
    with serving.served("engram://job") as url:
        page.goto(f"{url}#/0/run/T?view=image")
        wait_for_drawing(page, ".plane canvas", 60)
        parts = page.get_by_role("region", name="Parts")
        expect(parts.get_by_role("row")).to_have_count(3)  # one is the heading
        assert violations(page) == []
        page.get_by_role("treeitem", name="spread").click()
        expect(page.get_by_role("main").get_by_role("link", name="a4")).to_be_visible()
        page.get_by_role("link", name="Nodes").click()
        expect(page.locator(".state.serving")).to_have_count(2)
        assert violations(page) == []
        for name in ("Space", "Index", "Active objects", "Files", "Stages"):
            expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
        page.goto(f'{url}#/0/?query=units = "K"')
        expect(page.get_by_role("main").get_by_role("link", name="run/T")).to_be_visible()
        opened = cluster.open()
        opened.put("new", np.arange(3.0))
        expect(page.get_by_role("treeitem", name="new")).to_be_visible()
        page.goto(f"{url}#/0/spread/a4")
        expect(page.get_by_role("treeitem", name="a4")).to_be_visible()
        opened["spread/later"] = np.arange(3.0)
        expect(page.get_by_role("treeitem", name="later")).to_be_visible(timeout=PATIENCE_MS)
        page.goto(f"{url}#/0/spread")
        members = page.get_by_role("main")
        expect(members.get_by_role("link", name="later")).to_be_visible()
        opened["spread/last"] = np.arange(3.0)
        expect(members.get_by_role("link", name="last")).to_be_visible(timeout=PATIENCE_MS)
        page.goto(f"{url}#/0/spread/later?view=table")
        expect(members.get_by_text("2.0", exact=True)).to_be_visible()
        opened["spread/later"][2] = 7.5
        expect(members.get_by_text("7.5", exact=True)).to_be_visible(timeout=PATIENCE_MS)


def test_references_of_active_objects_are_drawn(own: tuple[Page, engram.Pool, Path]) -> None:
    page, _, place = own
    first = Block(data=np.arange(3.0), label="first")
    Block(data=np.arange(4.0), next=first).make_persistent("second")
    with serving.served(place) as url:
        page.goto(f"{url}#/0/?panel=active")
        drawing = page.get_by_role("region", name="References of active objects")
        expect(drawing.locator(".node")).to_have_count(2)
        expect(drawing.locator(".arrow")).to_have_count(1)
        drawing.get_by_role("link").filter(has_text="second").click()
        expect(page.locator(".badge")).to_have_text("active")
