"""What a notebook shows: whole HTML, nothing of a user's obeyed, bounded work, never an error."""

from __future__ import annotations

import base64
import html
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engram
from engram import _engram
from engram.chunked import ChunkedArray
from support import DTYPES, TEXT, filled

if TYPE_CHECKING:
    from pathlib import Path

VOID = {"wbr", "img", "br", "path"}
ALLOWED = {
    *("div", "style", "b", "code", "span", "details", "summary", "table", "thead", "tbody", "tr"),
    *("th", "td", "ul", "li", "pre", "svg", *VOID),
}
HOSTILE = (
    "<script>alert(1)</script>",
    "</style></details></div><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    '" autofocus onfocus="alert(1)',
    "&lt;b&gt;",
    "]]><!--",
    "a\x1b[31m\n\u202eb",
)


class Page(HTMLParser):
    """Checks that tags are ours, and closed in order; keeps the text."""

    def __init__(self, shown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.words: list[str] = []
        self.counts: dict[str, int] = {}
        self.broken = False
        self.feed(shown)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        assert not [name for name, _ in attrs if name.startswith("on") or name == "href"]
        assert not [v for name, v in attrs if name == "src" and not str(v).startswith("data:")]
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.broken = tag == "wbr"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_data(self, data: str) -> None:
        if self.broken:  # the rest of a name
            self.words[-1] += data
        elif not self.open or self.open[-1] != "style":
            self.words.append(data)
        self.broken = False

    @property
    def text(self) -> str:
        """All that is to be read, in one line."""
        return " ".join(" ".join(self.words).split())


def page(thing: Any) -> Page:
    """Show a thing as a notebook would; check that it is a card, and whole."""
    shown = thing._repr_html_()
    assert shown.startswith("<div class='engram-card'><style>")
    assert shown.isprintable()
    return Page(shown)


@pytest.fixture
def filled_pool(pool: engram.Pool) -> engram.Pool:
    """Give a pool with a bit of everything."""
    field = np.arange(600, dtype="f4").reshape(20, 30)
    pool.create_array(
        "run/T", data=field, dims=("y", "x"), attrs={"units": "K", "range": [200.0, 310.0]}
    )
    pool["run"].attrs["orbit"] = np.int16(4)
    pool["run/log"] = b"hello"
    pool["names"] = np.array(["a", "ö"], dtype=object)
    pool.create_namespace("icesat", mode=0o700)
    return pool


def test_a_pool_shows_space_members_attributes_namespaces_and_devices(
    filled_pool: engram.Pool,
) -> None:
    shown = page(filled_pool).text
    for part in (
        *("Pool", filled_pool.path, "durability", "of 256 MiB used", "run/", "(y: 20, x: 30)"),
        *("float32", "2.3 KiB", "names", "strings", "Attributes (0)", "icesat", "0700"),
        *("survives power loss", filled_pool.devices[0].filesystem, filled_pool.uuid),
    ):
        assert part in shown


def test_a_group_shows_its_members_and_attributes(filled_pool: engram.Pool) -> None:
    shown = page(filled_pool["run"]).text
    assert "Group run/ 2 members" in shown
    assert "T (y: 20, x: 30) float32 2.3 KiB" in shown
    assert "log bytes 5 B" in shown
    assert "orbit 4 int16" in shown


def test_an_array_shows_values_attributes_and_where_it_lies(filled_pool: engram.Pool) -> None:
    shown = page(filled_pool["run/T"]).text
    assert "Array run/T (y: 20, x: 30) float32 2.3 KiB" in shown
    assert "[[ 0., 1., 2., ..., 27., 28., 29.]," in shown
    assert "0 to 599" in shown
    assert "units K str" in shown
    assert "range [200., 310.] float64 (2,)" in shown
    assert "an extent" in shown
    assert "in the catalog" in page(filled_pool["names"]).text


def test_blobs_attributes_trees_namespaces_have_cards_too(filled_pool: engram.Pool) -> None:
    assert "b'hello'" in page(filled_pool["run/log"]).text
    assert "units K str" in page(filled_pool["run/T"].attrs).text
    assert "T (y: 20, x: 30) float32" in page(filled_pool.tree()).text
    assert "icesat" in page(filled_pool.namespaces).text
    assert "Namespace icesat 0 members" in page(filled_pool.namespaces["icesat"]).text


def test_what_an_import_kept_of_its_file_is_shown(pool: engram.Pool, tmp_path: Path) -> None:
    import h5py  # noqa: PLC0415 - takes a while, and only this needs it

    with h5py.File(tmp_path / "a.h5", "w") as file:
        options: dict[str, Any] = {"chunks": (5, 10), "compression": "gzip", "shuffle": True}
        file.create_dataset("x", data=np.zeros((10, 10)), maxshape=(None, 10), **options)
        file["level"] = np.zeros(3, h5py.enum_dtype({"LOW": 1, "HIGH": 2}))
    engram.import_file(tmp_path / "a.h5", pool)
    shown = page(pool["x"]).text
    assert "file: format HDF5" in shown
    assert "file: chunks 5 x 10" in shown
    assert "shuffle, deflate" in shown
    assert "file: maxshape unlimited x 10" in shown
    assert "enum (HIGH 2, LOW 1)" in page(pool["level"]).text


def test_the_codecs_of_a_zarr_store_are_shown(pool: engram.Pool, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("x", data=np.zeros((8, 8)), chunks=(2, 4))
    engram.import_file(tmp_path / "a.zarr", pool)
    shown = page(pool["x"]).text
    assert "file: chunks 2 x 4" in shown
    assert "file: codecs bytes, zstd" in shown


def test_the_style_touches_cards_alone(filled_pool: engram.Pool) -> None:
    style = re.search(r"<style>(.*)</style>", filled_pool._repr_html_())
    assert style is not None
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", style[1])
    assert len(rules) > 10
    for rule in rules:
        for selector in rule.split(","):
            assert selector.strip().startswith(".engram-card")
    assert "url(" not in style[1]
    assert "@" not in style[1]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_and_values_of_users_are_only_text(pool: engram.Pool, name: str) -> None:
    member = name.replace("/", "|")
    made = pool.create_array(f"{member}/{member}", data=np.array([name], TEXT), attrs={name: name})
    record = np.zeros(2, [(name.replace("\n", ""), "f4")])
    pool.create_array(f"{member}/record", data=record, attrs={"record": record[0]})
    pool[member].attrs[name] = np.array([name] * 2, dtype=TEXT)
    pool.create_array(f"{member}/dims", data=[1, 2], dims=[name])
    pool[f"{member}/blob"] = name.encode()
    for thing in (pool, pool[member], *pool[member].values(), made.attrs, pool.tree()):
        page(thing)
    if name.isprintable():
        assert html.escape(member) in pool._repr_html_()
        assert name in page(made.attrs).text


@given(st.text(min_size=1), st.text())
def test_any_text_is_only_text(pool: engram.Pool, name: str, value: str) -> None:
    made = pool.create_array("x", data=[1], overwrite=True)
    try:
        made.attrs[name] = value
    except (engram.ArgumentError, engram.InvalidNameError):
        return
    page(made)


@pytest.mark.parametrize("dtype", [*DTYPES, TEXT], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (70,), (3, 1, 40, 50)], ids=str)
def test_every_dtype_and_shape_has_a_card(
    pool: engram.Pool, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    values = np.full(shape, "é", TEXT) if dtype == TEXT else filled(dtype, shape)
    page(pool.create_array("x", data=values))


@pytest.mark.parametrize(
    "values",
    [
        np.full(10, np.nan),
        np.array([np.inf, -np.inf, 0.0]),
        np.array([-1.7e308, 1.7e308]),
        np.full((5, 5), 3.0),
        np.array([2**64 - 1, 0], "u8"),
        np.array([[True, False]]),
    ],
    ids=["nan", "inf", "huge", "constant", "u8", "bool"],
)
def test_odd_numbers_have_a_card(pool: engram.Pool, values: Any) -> None:
    shown = page(pool.create_array("x", data=values))
    assert shown.counts["pre"] == 1


def test_what_does_not_vary_has_no_picture(pool: engram.Pool) -> None:
    shown = page(pool.create_array("x", data=np.full((50, 60), 2.5)))
    assert "all that was looked at is 2.5" in shown.text
    assert "img" not in shown.counts
    assert page(pool.create_array("y", data=np.eye(4))).counts["img"] == 1


def test_a_picture_leaves_blank_what_is_marked_as_missing(pool: engram.Pool) -> None:
    values = np.array([1.0, -999.0, 3.0, 2.0, np.nan, 1.0])
    made = pool.create_array("x", data=values, attrs={"_FillValue": -999.0})
    assert "1 to 3" in page(made).text
    path = re.search(r" d='([^']*)'", made._repr_html_())
    assert path is not None
    assert path[1].count("M") == 3
    plane = pool.create_array("y", data=values.reshape(2, 3), attrs={"missing_value": -999})
    picture = re.search(r"base64,([^']*)'", plane._repr_html_())
    assert picture is not None
    assert base64.b64decode(picture[1]).startswith(b"\x89PNG\r\n\x1a\n")


def alt_of(shown: str) -> str:
    """Find what a picture is called to those who do not see it."""
    found = re.search(r"(?:alt|aria-label)='([^']*)'", shown)
    assert found is not None
    return html.unescape(found[1])


def test_a_picture_has_axes_of_its_coordinates_and_says_in_words_what_it_shows(
    pool: engram.Pool,
) -> None:
    hours = np.arange(48.0)
    pool.create_array("time", data=hours, attrs={"units": "hours since 2020-01-01"})
    facts = {"units": "m", "long_name": "sea level", "scale_factor": 0.5}
    tide = np.arange(48, dtype="i2")
    line = pool.create_array("tide", data=tide, dims=("time",), attrs=facts)
    ends = "2020-01-01T00:00:00 to 2020-01-02T23:00:00"
    assert alt_of(line._repr_html_()) == f"Line of sea level [m], from 0 to 23.5: time from {ends}"
    assert "2020-01-01T00:00:00 time 2020-01-02T23:00:00 0 to 23.5 m" in page(line).text
    pool.create_array("lat", data=[-30.0, 0.0, 30.0], attrs={"units": "degrees_north"})
    plane = pool.create_array("p", data=np.arange(12.0).reshape(3, 4), dims=("lat", "x"))
    told = "Image of p, from 0 to 11: lat [degrees_north] from -30 to 30 by x from 0 to 3"
    assert alt_of(plane._repr_html_()) == told


def picture_of(array: engram.Array) -> str:
    """Find the image in a card."""
    found = re.search(r"base64,([^']*)'", array._repr_html_())
    assert found is not None
    return found[1]


def test_a_map_stands_upright_whichever_way_its_latitudes_go(pool: engram.Pool) -> None:
    values, latitudes = np.arange(12.0).reshape(3, 4), np.array([-30.0, 0.0, 30.0])
    pictures = []
    for name, step in (("up", 1), ("down", -1)):
        group = pool.create_group(name)
        group.create_array("lat", data=latitudes[::step], attrs={"units": "degrees_north"})
        pictures.append(
            picture_of(group.create_array("T", data=values[::step], dims=("lat", "lon")))
        )
    assert pictures[0] == pictures[1]
    assert pictures[0] != picture_of(pool.create_array("plain", data=values))


def test_a_line_of_many_values_keeps_its_peaks(pool: engram.Pool) -> None:
    values = np.zeros(100_001)
    values[[777, 54_321]] = 5.0, -1.0
    shown = page(pool.create_array("x", data=values))
    assert "-1 to 5" in shown.text


def test_a_picture_of_a_large_chunked_array_reads_its_first_chunks(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = np.add.outer(np.arange(1500.0), np.arange(3000.0)).astype("f4")
    made = pool.create_array("x", data=np.stack([field] * 2), chunks=(1, 256, 512), codec="lz4")
    nbytes = []
    read = ChunkedArray.__getitem__

    def counted(array: ChunkedArray, key: Any) -> Any:
        given = zip(key, array.shape, array.chunks or (), strict=True)
        spans = [(range(n)[k] if isinstance(k, slice) else range(k, k + 1), c) for k, n, c in given]
        nbytes.append(array.dtype.itemsize)
        for span, chunk in spans:
            nbytes[-1] *= (span[-1] // chunk - span[0] // chunk + 1) * chunk
        return read(array, key)

    monkeypatch.setattr(ChunkedArray, "__getitem__", counted)
    shown = page(made)
    assert shown.counts["img"] == 1
    assert "the first 512 of 1,500 rows, the first 1,536 of 3,000 columns" in shown.text
    assert nbytes
    assert sum(nbytes) <= 6 << 20
    large = pool.create_array("y", shape=(4000, 4000), dtype="f4", chunks=(4000, 4000))
    large[:2, :2] = 1.0
    assert "no picture: each chunk is 61 MiB" in page(large).text


def test_a_card_names_the_command_that_shows_it_in_a_browser(
    filled_pool: engram.Pool, home: Path
) -> None:
    command = f"In a browser: engram serve {filled_pool.path}"
    for path in ("", "run", "run/T", "run/log"):
        assert page(filled_pool[path] if path else filled_pool).text.endswith(command)
    inner = filled_pool.namespaces["icesat"].create_group("g")
    assert page(inner).text.endswith(f"{command} --namespace icesat")
    with engram.create(home / "a b", size="16 MiB", force=True) as blank:
        assert page(blank).text.endswith(f"engram serve '{blank.path}'")
    assert "serve" not in page(blank).text


def test_a_group_of_many_members_is_shown_in_bounds(pool: engram.Pool) -> None:
    with pool.batch():
        for n in range(100_000):
            pool[f"many/{n:06}"] = b""
    for thing in (pool, pool["many"], pool["many"].tree()):
        shown = page(thing)
        assert len(thing._repr_html_()) < 60_000
        assert re.search(r"\.\.\. and 99,9[05]0 more", shown.text)
    assert "100,000 members" in page(pool["many"]).text
    assert "many/ (more than 50)" in page(pool).text
    pool["many/more"] = b""
    assert "more than 100,000 members" in page(pool["many"]).text


def test_a_tree_is_bounded_in_depth_and_in_all(pool: engram.Pool) -> None:
    group: engram.Group = pool
    with pool.batch():
        for _ in range(1500):
            group = group.create_group("deeper")
        for n in range(150):
            for m in range(150):
                pool[f"wide/{n}/{m}"] = b""
    assert page(pool.tree()).counts["li"] < 11_000
    assert page(pool).counts["li"] < 400
    assert "... and 50 more" in str(pool["wide"].tree(depth=1))
    assert str(pool.tree()).count("\n") < 11_000


def test_each_group_of_a_level_has_its_share_of_the_lines(pool: engram.Pool) -> None:
    with pool.batch():
        for run in range(10):
            for step in range(40):
                for n in range(10):
                    pool[f"run{run:02}/step{step:02}/x{n}"] = b""
        pool["last"] = b""
    shown = page(pool).text
    for run in range(10):
        assert f"run{run:02}/" in shown
    assert shown.count("step00/ ...") == 10
    assert len(re.findall(r"\.\.\. and 1[12] more", shown)) == 10
    assert "last" in shown
    assert page(pool).counts["li"] <= 310
    assert str(pool.tree()).count("step39/") == 10
    assert "..." not in str(pool.tree())


def test_packed_values_are_shown_as_they_are_meant(pool: engram.Pool) -> None:
    values = np.arange(-50, 50, dtype="i2")
    packing = {"scale_factor": 0.01, "add_offset": np.float32(380), "_FillValue": np.int16(-49)}
    packed = pool.create_array("packed", data=values, attrs={**packing, "units": "ppm"})
    shown = page(packed).text
    assert "379.5, nan, 379.52" in shown
    assert "380.49]" in shown
    assert "stored as int16 with _FillValue -49, add_offset 380.0, scale_factor 0.01" in shown
    since = {"units": "hours since 2003-01-01", "calendar": "standard"}
    times = pool.create_array("times", data=np.array([0, 6, 2**62]), attrs=since)
    assert "4611686018427387904]" in page(times).text  # beyond all times: as they are stored
    times[2] = 12
    assert "2003-01-01, 2003-01-01T06:00:00, 2003-01-01T12:00:00]" in page(times).text
    for attrs in ({"units": "ppm"}, {"scale_factor": "none"}, {"add_offset": [1.0, 2.0]}):
        plain = pool.create_array("plain", data=values, attrs=attrs, overwrite=True)
        assert "-50 to 49" in page(plain).text
        assert "meant" not in page(plain).text


def test_names_break_at_their_joints_alone(pool: engram.Pool) -> None:
    name = "total_column/carbon-dioxide.v2_<b>_"
    pool[f"{name}x"] = 1
    shown = pool["total_column"]._repr_html_()
    assert "carbon-<wbr>dioxide.<wbr>v2_&lt;b&gt;_x" in shown
    assert "carbon-dioxide.v2_<b>_x" in page(pool["total_column"]).text
    assert "anywhere" not in shown.replace("pre-wrap; overflow-wrap: anywhere", "")


def test_many_attributes_and_long_ones_are_cut(pool: engram.Pool) -> None:
    pool.attrs.update({f"a{n:05}": n for n in range(5000)})
    pool.attrs["A history"] = "line\n" * 100_000
    pool.attrs["A name"] = "x" * 100_000
    pool.attrs["A list"] = np.arange(100_000)
    shown = page(pool.attrs)
    assert len(pool.attrs._repr_html_()) < 60_000
    assert "... and 4,903 more" in shown.text
    assert "99999] int64 (100000,)" in shown.text


def test_a_large_array_is_not_read_for_its_card(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pool.create_array("x", shape=(2000, 4000), dtype="f4")
    names = pool.create_array("s", data=np.full(200_000, "a name of some length", TEXT))
    made.view("r+")[:, -1000:] = 1
    monkeypatch.setattr(_engram, "read", None)
    assert "every 63rd row, every 63rd column" in page(made).text
    assert len(made._repr_html_()) < 20_000
    assert "not read for this" in page(names).text


@pytest.mark.parametrize("state", ["gone", "closed"])
def test_what_is_gone_or_closed_still_has_its_line(filled_pool: engram.Pool, state: str) -> None:
    pool = filled_pool
    tree = pool["run"].tree()
    things = [pool["run"], pool["run/T"], pool["run/log"], pool["run"].attrs, pool["run/T"].attrs]
    if state == "gone":
        del pool["run"]
    else:
        things += [pool, pool.namespaces]
        pool.close()
    for thing in things:
        shown = Page(thing._repr_html_())
        assert shown.text
        assert state in shown.text
    assert "(y: 20, x: 30)" in page(tree).text


class Refusing:
    """A native pool whose default namespace is another's."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)

    def namespace(self, name: str) -> Any:
        raise engram.AccessError(f"namespace {name!r} is <another's>")


def test_a_pool_whose_default_namespace_is_anothers_shows_the_rest(pool: engram.Pool) -> None:
    pool.create_namespace("ours")
    refused = engram.Pool(Refusing(pool._pool))  # type: ignore[arg-type]  # as good as one
    shown = page(refused).text
    for part in ("Space", "Members", "Attributes"):
        assert f"{part} namespace 'default' is <another's>" in shown
    assert "ours" in shown
    assert pool.devices[0].filesystem in shown


def test_a_card_never_raises(pool: engram.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pool.create_array("x", data=[1.0, 2.0])

    def broken(*_: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr("engram.notebook.values.shown", broken)
    assert Page(made._repr_html_()).text == repr(made)


def test_an_active_object_s_card_shows_its_fields_and_never_raises(pool: engram.Pool) -> None:
    class Shown(engram.ActiveObject):
        data: np.ndarray
        text: str = ""
        large: object = None
        other: object = None

        @engram.activemethod
        def work(self, how: str = "<b>") -> None:
            self.text = how

    for hostile in HOSTILE:
        shown = Shown(np.zeros((2, 3)), text=hostile)
        assert "volatile" in Page(shown._repr_html_()).text
        shown.large = "x" * 1_000_000
        shown.make_persistent(hostile)
        page = Page(shown._repr_html_())
        assert "array 2 x 3, float64" in page.text
        assert "encoded" in page.text
        assert "work(self" in page.text
    shown.delete()
    Page(shown._repr_html_())
    pool.close()
    Page(shown._repr_html_())
