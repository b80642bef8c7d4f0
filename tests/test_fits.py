"""Importing FITS: every HDU arrives as the file has it, raw, or is named in the report."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from astropy.io import fits

import engram
from engram.formats.blocks import region_shape, whole
from engram.formats.registry import open_source
from engram.formats.source import ArrayNode
from same import assert_same
from support import said_without

if TYPE_CHECKING:
    from pathlib import Path

    from engram.formats import ImportReport

BLOCK = 2880


def write(path: Path, *hdus: Any) -> Path:
    """Make a FITS file of these HDUs; an empty primary HDU is put before an extension."""
    first = hdus and isinstance(hdus[0], fits.PrimaryHDU)
    fits.HDUList(list(hdus) if first else [fits.PrimaryHDU(), *hdus]).writeto(path)
    return path


def said(report: ImportReport) -> dict[tuple[str, str], str]:
    """Return what a report says was left out or is otherwise than in the file."""
    return {(e.path, e.what): e.why for e in (*report.left_out, *report.noted)}


def origin(member: Any) -> dict[str, Any]:
    """Return what is kept for export."""
    found: dict[str, Any] = json.loads(member._origin)
    return found


def cards(*lines: str) -> bytes:
    """Return a header of these cards, as a file has it."""
    text = "".join(line.ljust(80) for line in (*lines, "END"))
    return text.ljust(-(-len(text) // BLOCK) * BLOCK).encode("latin-1")


def padded(values: bytes) -> bytes:
    """Return values as a file has them: to the end of a block."""
    return values.ljust(-(-len(values) // BLOCK) * BLOCK, b"\0")


PRIMARY = cards("SIMPLE  =                    T", "BITPIX  = 8", "NAXIS   = 0")


@pytest.mark.parametrize("dtype", ["u1", ">i2", ">i4", ">i8", ">f4", ">f8"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (200, 300)], ids=str)
def test_an_image_arrives_raw_in_its_own_byte_order(
    pool: Any, tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    data = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)
    file = write(tmp_path / "x.fits", fits.PrimaryHDU(data), fits.ImageHDU(data + 1, name="SCI"))
    report = engram.import_file(file, pool)
    assert (report.format, report.arrays, report.complete, report.noted) == ("FITS", 2, True, ())
    assert_same(pool["HDU0"][...], data)
    assert_same(pool["SCI"][...], (data + 1).astype(dtype))


def test_scaling_and_blanks_stay_attributes(pool: Any, tmp_path: Path) -> None:
    scaled = fits.ImageHDU(np.array([[1, -99], [3, 4]], ">i2"), name="T")
    scaled.header.update(BSCALE=0.5, BZERO=100.0, BLANK=-99)
    unsigned = fits.ImageHDU(np.array([0, 65535], "u2"), name="U")
    file = write(tmp_path / "x.fits", scaled, unsigned)
    engram.import_file(file, pool)
    assert_same(pool["T"][...], np.array([[1, -99], [3, 4]], ">i2"))
    assert (pool["T"].attrs["BSCALE"], pool["T"].attrs["BZERO"]) == (0.5, 100.0)
    assert pool["T"].attrs["BLANK"] == -99
    assert_same(pool["U"][...], np.array([-32768, 32767], ">i2"))
    assert pool["U"].attrs["BZERO"] == 32768
    with fits.open(file, do_not_scale_image_data=True) as opened:
        assert_same(pool["T"][...], opened["T"].data)


def test_members_are_named_by_extname_and_version_or_by_number(pool: Any, tmp_path: Path) -> None:
    one = np.zeros(1, "u1")
    hdus = [fits.ImageHDU(one, name=name, ver=ver) for name, ver in [("SCI", 1), ("SCI", 2)]]
    hdus += [fits.ImageHDU(one), fits.ImageHDU(one, name="A/B"), fits.ImageHDU(one, name="SCI")]
    hdus += [fits.ImageHDU(one, name="HDU3")]
    report = engram.import_file(write(tmp_path / "x.fits", *hdus), pool)
    assert list(pool) == ["HDU3", "HDU4", "HDU5", "HDU6", "SCI", "SCI_2"]
    told = said(report)
    assert "'/'" in told["/HDU4", "HDU 4"]
    assert "earlier HDU" in told["/HDU5", "HDU 5"]
    assert "earlier HDU" in told["/HDU6", "HDU 6"]
    assert origin(pool)["order"] == ["SCI", "SCI_2", "HDU3", "HDU4", "HDU5", "HDU6"]


def test_cards_become_attributes_of_their_types(pool: Any, tmp_path: Path) -> None:
    primary = fits.PrimaryHDU()
    head = primary.header
    head["FLAG"] = (True, "a logical")
    head["COUNT"] = (-42, "an integer")
    head["EXPTIME"] = (30.25, "[s] exposure")
    head["OBJECT"] = ("O'Brien", "text")
    head["EMPTY"] = ""
    head["PHASE"] = 1 + 2j
    head["LONG"] = ("word " * 40 + "end", "continued")
    head["HIERARCH ESO DET CHIP1 NX"] = 2048
    head["BIG"] = 2**80
    head["NOTHING"] = None
    head.add_history("first")
    head.add_history("second")
    head.add_comment("only one")
    head["TWICE"] = 1
    head.append(("TWICE", 2))
    report = engram.import_file(write(tmp_path / "x.fits", primary), pool)
    expected = {
        "FLAG": np.True_,
        "COUNT": np.int64(-42),
        "EXPTIME": np.float64(30.25),
        "OBJECT": "O'Brien",
        "EMPTY": "",
        "PHASE": np.complex128(1 + 2j),
        "LONG": "word " * 40 + "end",
        "ESO DET CHIP1 NX": np.int64(2048),
        "BIG": str(2**80),
        "TWICE": np.int64(1),
    }
    found = dict(pool.attrs.items())
    assert found.pop("HISTORY").tolist() == ["first", "second"]
    assert found.pop("COMMENT").tolist() == ["only one"]
    assert found == expected
    assert {name: type(v) for name, v in found.items()} == {n: type(v) for n, v in expected.items()}
    told = said(report)
    assert "64-bit" in told["/", "attribute BIG"]
    assert "no value" in told["/", "attribute NOTHING"]
    assert "first card" in told["/", "attribute TWICE"]
    assert report.complete
    kept = origin(pool)["cards"]
    assert any(card.startswith("EXPTIME ") and "[s] exposure" in card for card in kept)
    assert any(card.startswith("NOTHING") for card in kept)
    assert sum(card.startswith("TWICE") for card in kept) == 2
    assert kept[0].startswith("SIMPLE")


def test_an_hdu_without_values_is_a_group_of_attributes(pool: Any, tmp_path: Path) -> None:
    bare = fits.ImageHDU(name="NOTES")
    bare.header["WHO"] = "observer"
    report = engram.import_file(write(tmp_path / "x.fits", bare), pool)
    assert isinstance(pool["NOTES"], engram.Group)
    assert pool["NOTES"].attrs["WHO"] == "observer"
    assert (report.groups, report.arrays) == (1, 0)


@pytest.mark.parametrize(
    ("kinds", "dims"),
    [
        (("RA---TAN", "DEC--TAN"), ("DEC", "RA")),
        (("TIME", "FREQ-LSR"), ("FREQ", "TIME")),
        (("RA---TAN", ""), None),
        (("X", "X"), None),
        ((), None),
    ],
    ids=str,
)
def test_ctypes_name_the_axes_in_numpys_order(
    pool: Any, tmp_path: Path, kinds: tuple[str, ...], dims: tuple[str, ...] | None
) -> None:
    image = fits.ImageHDU(np.zeros((2, 3)), name="I")
    for number, kind in enumerate(kinds, 1):
        image.header[f"CTYPE{number}"] = kind
    engram.import_file(write(tmp_path / "x.fits", image), pool)
    assert pool["I"].dims == dims


def columns() -> list[fits.Column]:
    """Return a column of every kind that has a fixed size."""
    return [
        fits.Column("flag", "L", array=np.array([True, False, True])),
        fits.Column("bits", "11X", array=np.arange(33).reshape(3, 11) % 2 == 0),
        fits.Column("byte", "B", array=np.array([0, 1, 255], "u1")),
        fits.Column("short", "I", null=-1, array=np.array([-1, 2, 3], "i2")),
        fits.Column("int", "J", unit="adu", array=np.array([-1, 2, 3], "i4")),
        fits.Column("long", "K", array=np.array([-1, 2, 2**60])),
        fits.Column("name", "5A", array=np.array(["a", "bcdef", ""])),
        fits.Column("words", "6A3", dim="(3,2)", array=np.array([["ab", "c"]] * 3)),
        fits.Column("float", "E", array=np.array([1.5, np.nan, -0.0], "f4")),
        fits.Column("double", "D", unit="m/s", array=np.array([1.5, np.inf, 1 / 3])),
        fits.Column("complex", "C", array=np.array([1 + 2j, 0, -1j], "c8")),
        fits.Column("double complex", "M", array=np.array([1 + 2j, 0, -1j])),
        fits.Column("vector", "3E", array=np.arange(9, dtype="f4").reshape(3, 3)),
        fits.Column("grid", "6J", dim="(3,2)", array=np.arange(18).reshape(3, 2, 3)),
    ]


def test_every_column_of_a_binary_table_arrives_raw(pool: Any, tmp_path: Path) -> None:
    table = fits.BinTableHDU.from_columns(columns(), name="T")
    file = write(tmp_path / "x.fits", table)
    report = engram.import_file(file, pool)
    assert report.complete
    found = pool["T"][...]
    with fits.open(file, memmap=False, character_as_bytes=True) as opened:
        raw = opened["T"].data.view(np.ndarray)
        assert found.dtype.names == raw.dtype.names
        for name in raw.dtype.names:
            assert found[name].shape == raw[name].shape
            assert found[name].tobytes() == raw[name].tobytes(), name
            if name not in {"flag", "words"}:
                assert found.dtype[name] == raw.dtype[name], name
    assert found["flag"].tolist() == [b"T", b"F", b"T"]
    assert found["words"].tolist() == [[b"ab", b"c"]] * 3
    assert found.dtype["grid"] == np.dtype((">i4", (2, 3)))
    attrs = pool["T"].attrs
    assert (attrs["TUNIT5"], attrs["TNULL4"], attrs["TDIM14"]) == ("adu", -1, "(3,2)")
    assert attrs["TFORM2"] == "11X"
    assert pool["T"].dims is None


def test_scaled_columns_stay_raw(pool: Any, tmp_path: Path) -> None:
    scaled = fits.Column("u", "J", bzero=2**31, array=np.array([0, 2**32 - 1], "u4"))
    engram.import_file(
        write(tmp_path / "x.fits", fits.BinTableHDU.from_columns([scaled], name="T")), pool
    )
    assert_same(pool["T"][...]["u"], np.array([-(2**31), 2**31 - 1], ">i4"))
    assert pool["T"].attrs["TZERO1"] == 2**31


def test_variable_length_columns_are_named_and_the_rest_is_imported(
    pool: Any, tmp_path: Path
) -> None:
    ragged = np.array([np.arange(2), np.arange(5)], dtype=object)
    made = [
        fits.Column("a", "J", array=np.array([1, 2])),
        fits.Column("p", "PJ()", array=ragged),
        fits.Column("q", "QD()", array=ragged),
        fits.Column("b", "D", array=np.array([0.5, 1.5])),
    ]
    table = fits.BinTableHDU.from_columns(made, name="T")
    only = fits.BinTableHDU.from_columns([made[1].copy()], name="ONLY")
    report = engram.import_file(write(tmp_path / "x.fits", table, only), pool)
    named = {(e.path, e.what) for e in report.left_out}
    assert named == {("/T", "column p"), ("/T", "column q"), ("/ONLY", "column p")}
    expected = np.array([(1, 0.5), (2, 1.5)], dtype=[("a", ">i4"), ("b", ">f8")])
    assert_same(pool["T"][...], expected)
    assert isinstance(pool["ONLY"], engram.Group)


def test_an_ascii_tables_numbers_are_decoded(pool: Any, tmp_path: Path) -> None:
    made = [
        fits.Column("name", "A6", array=np.array(["one", "two", ""])),
        fits.Column("n", "I8", array=np.array([1, -22, 333])),
        fits.Column("x", "F9.3", array=np.array([1.5, -0.25, 1000])),
        fits.Column("e", "E15.7", array=np.array([1e10, -2e-5, 3])),
        fits.Column("d", "D25.16", array=np.array([1 / 3, -2e-50, 3])),
    ]
    file = write(tmp_path / "x.fits", fits.TableHDU.from_columns(made, name="T"))
    report = engram.import_file(file, pool)
    assert report.complete
    found = pool["T"][...]
    with fits.open(file) as opened:
        for name in ("n", "x", "e", "d"):
            assert found[name].tolist() == opened["T"].data[name].tolist()
            assert np.dtype(found.dtype[name]).itemsize == 8
    assert found["name"].tolist() == [b"one   ", b"two   ", b"      "]


def ascii_table(rows: list[str], *lines: str) -> bytes:
    """Return a file with an ASCII table of one column, made by hand."""
    head = cards(
        "XTENSION= 'TABLE   '",
        "BITPIX  = 8",
        "NAXIS   = 2",
        f"NAXIS1  = {len(rows[0])}",
        f"NAXIS2  = {len(rows)}",
        "PCOUNT  = 0",
        "GCOUNT  = 1",
        "TFIELDS = 1",
        "TBCOL1  = 1",
        *lines,
    )
    values = "".join(rows).encode()
    return PRIMARY + head + values.ljust(BLOCK, b" ")


def test_undefined_numbers_of_an_ascii_table_are_told(pool: Any, tmp_path: Path) -> None:
    form, null = "TFORM1  = 'I4      '", "TNULL1  = '****    '"
    for name, lines in {
        "i": (form, null),
        "f": ("TFORM1  = 'F4.1    '", null),
        "b": (form,),
    }.items():
        path = tmp_path / f"{name}.fits"
        path.write_bytes(ascii_table(["  12", "****" if len(lines) == 2 else "    "], *lines))
        report = engram.import_file(path, pool.create_group(name))
        assert bool(report.noted) == (len(lines) == 2)
    assert pool["i/HDU1"][...]["col1"].tolist() == [b"  12", b"****"]
    np.testing.assert_array_equal(pool["f/HDU1"][...]["col1"], [1.2, np.nan])  # a point is implied
    assert pool["b/HDU1"][...]["col1"].tolist() == [12, 0]


def test_columns_of_one_name_are_told_apart(pool: Any, tmp_path: Path) -> None:
    head = cards(
        *("XTENSION= 'BINTABLE'", "BITPIX  = 8", "NAXIS   = 2", "NAXIS1  = 7", "NAXIS2  = 2"),
        *("PCOUNT  = 0", "GCOUNT  = 1", "TFIELDS = 4"),
        *("TFORM1  = 'I       '", "TTYPE1  = 'a       '"),
        *("TFORM2  = 'I       '", "TTYPE2  = 'a       '"),
        *("TFORM3  = '0J      '", "TTYPE3  = 'none    '"),
        "TFORM4  = '2B      '",
    )
    rows = np.arange(1, 15, dtype="u1").tobytes()
    path = tmp_path / "x.fits"
    path.write_bytes(PRIMARY + head + padded(rows))
    report = engram.import_file(path, pool)
    found = pool["HDU1"][...]
    assert found.dtype == np.dtype([("a", ">i2"), ("a_2", ">i2"), ("col4", "u1", (2,))])
    assert found["a_2"].tolist() == [0x0304, 0x0A0B]
    assert found["col4"].tolist() == [[5, 6], [12, 13]]
    told = said(report)
    assert "a_2" in told["/HDU1", "column a"]
    assert "no field" in told["/HDU1", "column none"]


def test_random_groups_arrive_as_records(pool: Any, tmp_path: Path) -> None:
    data = np.arange(24, dtype="f4").reshape(4, 2, 3)
    pars = [np.arange(4, dtype="f4"), np.arange(4, dtype="f4") + 0.5]
    groups = fits.GroupData(data, bitpix=-32, parnames=["UU", "VV"], pardata=pars)
    engram.import_file(write(tmp_path / "x.fits", fits.GroupsHDU(groups)), pool)
    found = pool["HDU0"][...]
    assert found.dtype == np.dtype([("UU", ">f4"), ("VV", ">f4"), ("DATA", ">f4", (2, 3))])
    assert_same(found["VV"], pars[1].astype(">f4"))
    assert_same(found["DATA"], data.astype(">f4"))


@pytest.mark.parametrize("kind", ["RICE_1", "GZIP_1", "GZIP_2", "PLIO_1", "HCOMPRESS_1"])
def test_a_compressed_image_arrives_decompressed(pool: Any, tmp_path: Path, kind: str) -> None:
    data = (np.arange(64 * 96) % 317).reshape(64, 96).astype("i2")
    image = fits.CompImageHDU(data, name="C", compression_type=kind, tile_shape=(16, 32))
    image.header["BZERO"] = 7.0
    image.header["EXPTIME"] = (2.0, "[s]")
    file = write(tmp_path / "x.fits", image)
    report = engram.import_file(file, pool)
    assert report.complete
    assert kind in said(report)["/C", "compressed image"]
    assert pool["C"][...].tolist() == data.tolist()
    assert pool["C"].dtype == np.dtype("i2")
    assert pool["C"].attrs["EXPTIME"] == 2.0
    assert any(card.startswith("ZCMPTYPE") for card in origin(pool["C"])["cards"])


def test_a_compressed_image_of_floats_is_what_astropy_gives(pool: Any, tmp_path: Path) -> None:
    data = np.random.default_rng(3).normal(size=(80, 70)).astype("f4")
    file = write(tmp_path / "x.fits", fits.CompImageHDU(data, name="C", quantize_level=4))
    engram.import_file(file, pool)
    with fits.open(file) as opened:
        assert_same(pool["C"][...], opened["C"].data.astype("f4"))


def test_a_file_under_gzip_is_the_same(pool: Any, tmp_path: Path) -> None:
    data = np.arange(6000, dtype=">i4").reshape(60, 100)
    file = write(tmp_path / "x.fits", fits.ImageHDU(data, name="I"))
    packed = tmp_path / "x.fits.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    report = engram.import_file(packed, pool)
    assert (report.format, report.file) == ("FITS", str(packed))
    assert_same(pool["I"][...], data)


def three(path: Path) -> Path:
    """Make a file of three HDUs, of which the last two have values."""
    data = np.arange(20_000, dtype=">i4")
    return write(path, fits.ImageHDU(data, name="FIRST"), fits.ImageHDU(data, name="SECOND"))


def assert_refused(pool: Any, file: Path, *words: str) -> None:
    """Assert that an import fails as said and that nothing of it is there."""
    with pytest.raises(engram.FormatError) as caught:
        engram.import_file(file, pool)
    for word in (str(file), *words):
        assert word in str(caught.value)
    assert list(pool) == []
    assert dict(pool.attrs) == {}


def test_a_truncated_file_is_refused_with_its_hdu(pool: Any, tmp_path: Path) -> None:
    file = three(tmp_path / "x.fits")
    content = file.read_bytes()
    header = content.index(b"XTENSION", content.index(b"XTENSION") + 8)
    for keep, words in {
        len(content) - 4 * BLOCK: ("HDU 2 (SECOND)", "truncated"),
        header + 100: ("HDU 2", "truncated"),
        header - BLOCK: ("HDU 1 (FIRST)", "truncated"),
        100: ("first HDU",),
    }.items():
        file.write_bytes(content[:keep])
        assert_refused(pool, file, *words)


@pytest.mark.parametrize("kind", ["heap", "compressed", "padding"])
def test_a_file_that_ends_before_its_last_block_is_refused(
    pool: Any, tmp_path: Path, kind: str
) -> None:
    rows = np.array([np.arange(n, dtype="f8") for n in (900, 1000, 1100)], object)
    column = fits.Column("a", "PD()", array=rows)
    image = np.arange(6000, dtype="i4").reshape(60, 100)
    hdu = {
        "heap": lambda: fits.BinTableHDU.from_columns([column]),
        "compressed": lambda: fits.CompImageHDU(image, compression_type="GZIP_1"),
        "padding": lambda: fits.ImageHDU(np.zeros(100)),
    }[kind]()
    file = write(tmp_path / "x.fits", hdu)
    content = file.read_bytes()
    for keep in (len(content) - 1, len(content) - BLOCK + 801):
        file.write_bytes(content[:keep])
        assert_refused(pool, file, "truncated")


def test_a_file_without_the_last_blocks_padding_is_read(pool: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "x.fits", fits.ImageHDU(np.arange(100.0), name="I"))
    file.write_bytes(file.read_bytes()[: 800 - BLOCK])
    report = engram.import_file(file, pool)
    assert (pool["I"][...] == np.arange(100.0)).all()
    assert "truncated" in said(report)["/", "astropy's warning"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"BITPIX  =                   32", b"BITPIX  =                   33", ("HDU 1",)),
        (b"NAXIS1  =                20000", b"NAXIS1  =              -20000", ("HDU 1",)),
        (b"NAXIS1  =                20000", b"NAXIS1  =           2000000000", ("HDU 1", "trunc")),
    ],
)
def test_a_damaged_header_is_refused_with_its_hdu(
    pool: Any, tmp_path: Path, old: bytes, new: bytes, words: tuple[str, ...]
) -> None:
    file = three(tmp_path / "x.fits")
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new, 1))
    assert_refused(pool, file, *words)


@pytest.mark.parametrize("keep", [300, -10])
def test_a_damaged_gzip_is_refused(pool: Any, tmp_path: Path, keep: int) -> None:
    file = three(tmp_path / "x.fits")
    packed = tmp_path / "x.fits.gz"
    packed.write_bytes(gzip.compress(file.read_bytes())[:keep])
    assert_refused(pool, packed, "decompressed")


def test_a_file_that_says_it_is_no_standard_fits_is_refused(pool: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.fits"
    path.write_bytes(PRIMARY.replace(b"  T", b"  F", 1))
    assert_refused(pool, path, "SIMPLE")


def test_what_follows_the_last_hdu_is_told(pool: Any, tmp_path: Path) -> None:
    file = three(tmp_path / "x.fits")
    file.write_bytes(file.read_bytes() + b"junk" * BLOCK)
    report = engram.import_file(file, pool)
    assert [(e.path, e.what) for e in report.left_out] == [("/", "end of the file")]
    assert "FIRST" in pool


def test_an_extension_of_an_unknown_kind_is_left_out_by_name(pool: Any, tmp_path: Path) -> None:
    head = cards(
        *("XTENSION= 'FOREIGN '", "BITPIX  = 8", "NAXIS   = 1", "NAXIS1  = 5"),
        *("PCOUNT  = 0", "GCOUNT  = 1", "EXTNAME = 'F       '"),
    )
    path = tmp_path / "x.fits"
    path.write_bytes(PRIMARY + head + padded(b"bytes"))
    report = engram.import_file(path, pool)
    assert [e.path for e in report.left_out] == ["/F"]
    assert "FOREIGN" in report.left_out[0].why


def test_a_card_that_cannot_be_read_is_noted_and_kept_in_the_origin(
    pool: Any, tmp_path: Path
) -> None:
    head = cards(
        *("SIMPLE  =                    T", "BITPIX  = 8", "NAXIS   = 0"),
        *("GOOD    =                    1", "BAD     = not a value", "lower   = 2"),
        *("HISTORY \xe9crit", "        text without a keyword"),
    )
    path = tmp_path / "x.fits"
    path.write_bytes(head)
    report = engram.import_file(path, pool)
    assert pool.attrs["GOOD"] == 1
    assert "BAD" not in pool.attrs
    assert report.noted
    assert any("BAD" in card for card in origin(pool)["cards"])


def test_any_region_is_read_as_slicing_gives_it(tmp_path: Path) -> None:
    data = np.arange(2, 62, dtype=">i4").reshape(3, 4, 5)
    ragged = np.array([np.arange(2), np.arange(5)], dtype=object)
    made = [
        fits.Column("p", "PJ()", array=ragged),
        fits.Column("b", "D", array=np.array([0.5, 1.5])),
    ]
    path = write(
        tmp_path / "x.fits",
        fits.ImageHDU(data, name="I"),
        fits.CompImageHDU(data[0], name="C", tile_shape=(2, 3)),
        fits.BinTableHDU.from_columns(columns(), name="T"),
        fits.BinTableHDU.from_columns(made, name="P"),
    )
    with open_source(path) as source:
        nodes = [node for node in source.nodes if isinstance(node, ArrayNode) and node.shape]
        for node in nodes:
            everything = np.zeros(node.shape, node.dtype)
            node.read(everything, whole(node.shape))
            for start, step in ((0, 1), (1, 1), (1, 2)):
                region = tuple(slice(min(start, n - 1), n, step) for n in node.shape)
                out = np.zeros(region_shape(region), node.dtype)
                node.read(out, region)
                assert_same(out, everything[region])
    assert {node.path for node in nodes} >= {"I", "C", "T", "P"}


def test_a_large_image_is_read_in_pieces_of_bounded_memory(pool: Any, tmp_path: Path) -> None:
    data = np.arange(12 << 20, dtype=">i4").reshape(1024, -1)
    file = write(tmp_path / "x.fits", fits.ImageHDU(data, name="I"))
    table = np.zeros(3 << 20, dtype=[("a", ">i4"), ("b", ">f8")])
    table["a"], table["b"] = np.arange(3 << 20), -np.arange(3 << 20)
    other = write(tmp_path / "t.fits", fits.BinTableHDU(table, name="T"))
    tracemalloc.start()
    engram.import_file(file, pool)
    engram.import_file(other, pool)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_same(pool["I"].view(), data)
    assert_same(pool["T"].view(), table)
    assert peak < data.nbytes / 2


def test_without_astropy_the_error_says_what_to_install(home: Path, tmp_path: Path) -> None:
    file = three(tmp_path / "x.fits")
    said = said_without("astropy", home, file)
    assert "engram[fits]" in said
    assert str(file) in said
