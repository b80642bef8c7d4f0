"""Plot3D in and out: grids, solutions and functions, however their numbers are written."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engram
from engram.formats.blocks import whole
from engram.formats.find import find_files
from engram.formats.registry import open_source
from engram.formats.source import ArrayNode
from same import assert_same
from shell import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SHAPES3 = [(2, 3, 4), (1, 5, 2), (3, 3, 3)]
SHAPES2 = [(3, 4), (5, 2)]
CONDITIONS = ("mach", "alpha", "re", "time")
NAMES = {3: ["density", "momentum_x", "momentum_y", "momentum_z", "energy"]}
NAMES[2] = [name for name in NAMES[3] if name != "momentum_z"]


class Made:
    """A Plot3D file, made by hand: the tests' own idea of the format."""

    def __init__(self, order: str = "<", real: int = 4, marker: int = 4) -> None:
        self.order, self.real, self.marker = order, real, marker
        self.content = b""

    def record(self, *parts: np.ndarray[Any, Any]) -> None:
        """Add a record."""
        content = b"".join(part.tobytes() for part in parts)
        mark = b""
        if self.marker:
            code = {4: "i", 8: "q"}[self.marker]
            mark = struct.pack(self.order + code, len(content))
        self.content += mark + content + mark

    def ints(self, *values: int) -> np.ndarray[Any, Any]:
        """Return integers as the file has them."""
        return np.array(values, f"{self.order}i4")

    def reals(self, values: Any) -> np.ndarray[Any, Any]:
        """Return numbers as the file has them, the first axis fastest."""
        return np.asarray(values, f"{self.order}f{self.real}")


def block_values(file: str, shape: tuple[int, ...], seed: int, iblank: bool) -> dict[str, Any]:
    """Return the arrays of a block."""
    random = np.random.default_rng(seed)
    names = {
        "grid": ["x", "y", "z"][: len(shape)],
        "solution": NAMES[len(shape)],
        "function": ["f1", "f2"],
    }[file]
    found: dict[str, Any] = {name: random.normal(size=shape) for name in names}
    if iblank and file == "grid":
        found["iblank"] = random.integers(-3, 2, shape)
    return found


def made(
    file: str,
    shapes: Sequence[tuple[int, ...]],
    *,
    multi: bool = True,
    iblank: bool = False,
    **how: Any,
) -> tuple[bytes, list[dict[str, Any]]]:
    """Return a binary file, and the arrays of its blocks."""
    out = Made(**how)
    blocks = [block_values(file, shape, n, iblank) for n, shape in enumerate(shapes)]
    if multi:
        out.record(out.ints(len(shapes)))
    lengths: list[int] = []
    for shape in shapes:
        lengths += [*shape[::-1], *([2] if file == "function" else [])]
    out.record(out.ints(*lengths))
    for n, block in enumerate(blocks):
        if file == "solution":
            out.record(out.reals([0.5 + n, 2.0, 1e6, 0.25]))
        for name, values in block.items():
            block[name] = out.ints(*values.flat) if name == "iblank" else out.reals(values)
            block[name] = block[name].reshape(values.shape)
        out.record(*block.values())
    return out.content, blocks


def member(pool: Any, multi: bool, number: int) -> Any:
    """Return the group of a block."""
    return pool[f"block{number + 1}"] if multi else pool


BINARY = list(itertools.product("<>", (4, 8), (0, 4, 8)))
CASES = [
    (file, shapes, multi, iblank)
    for file, (shapes, multi), iblank in itertools.product(
        ("grid", "solution", "function"),
        [
            *[(SHAPES3, True), (SHAPES3[:1], True), (SHAPES3[:1], False)],
            *[(SHAPES2, True), (SHAPES2[:1], False)],
        ],
        (False, True),
    )
    if file == "grid" or not iblank
]
SUFFIX = {"grid": ".xyz", "solution": ".q", "function": ".f"}


@pytest.mark.parametrize("written", BINARY, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_binary_files_come_in_and_go_out_byte_for_byte(
    pool: Any, tmp_path: Path, case: Any, written: Any
) -> None:
    (file, shapes, multi, iblank), (order, real, marker) = case, written
    content, blocks = made(
        file, shapes, multi=multi, iblank=iblank, order=order, real=real, marker=marker
    )
    path = tmp_path / f"a{SUFFIX[file]}"
    path.write_bytes(content)
    report = engram.import_file(path, pool)
    assert (report.format, report.complete, report.noted) == ("PLOT3D", True, ())
    for number, block in enumerate(blocks):
        group = member(pool, multi, number)
        assert set(group) == set(block)
        for name, values in block.items():
            assert_same(group[name][...], values)
            assert group[name].dims == ("k", "j", "i")[-values.ndim :]
        if file == "solution":
            expected = [0.5 + number, 2.0, 1e6, 0.25]
            assert [group.attrs[name] for name in CONDITIONS] == expected
            assert group.attrs["re"].dtype == np.dtype(f"f{real}")
    out = tmp_path / f"b{SUFFIX[file]}"
    assert engram.export_file(pool, out).complete
    assert out.read_bytes() == content


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("real", [4, 8])
def test_text_keeps_every_value(pool: Any, tmp_path: Path, case: Any, real: int) -> None:
    file, shapes, multi, iblank = case
    content, blocks = made(file, shapes, multi=multi, iblank=iblank, real=real)
    first, second = tmp_path / f"a{SUFFIX[file]}", tmp_path / f"b{SUFFIX[file]}"
    first.write_bytes(content)
    group = pool.create_group("first")
    engram.import_file(first, group)
    report = engram.export_file(group, second, format=f"plot3d-{file}-ascii")
    assert bool(report.noted) == (real == 4)
    group = pool.create_group("second")
    engram.import_file(second, group)
    for number, block in enumerate(blocks):
        for name, values in block.items():
            found = member(group, multi, number)[name]
            assert found[...].tolist() == values.tolist()
            assert found.dtype == ("i4" if name == "iblank" else "f8")
    third = tmp_path / f"c{SUFFIX[file]}"
    engram.export_file(group, third)
    assert third.read_bytes() == second.read_bytes()


def test_text_as_fortran_writes_it(pool: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.x"
    path.write_text(" 2, 1, 2\n 4*1.5D+00 3*-2\n  7E-1 0 .5 1. nan\n")
    engram.import_file(path, pool)
    assert pool["x"][...].tolist() == [[[1.5, 1.5]], [[1.5, 1.5]]]
    assert pool["y"][...].tolist() == [[[-2.0, -2.0]], [[-2.0, 0.7]]]
    np.testing.assert_array_equal(pool["z"][...], [[[0.0, 0.5]], [[1.0, np.nan]]])


def test_a_long_text_is_read_array_by_array(pool: Any, tmp_path: Path) -> None:
    values = np.random.default_rng(5).normal(size=(3, 40, 50, 60))
    path = tmp_path / "a.xyz"
    lines = "\n".join(map(repr, values.ravel().tolist()))
    path.write_text(f"1\n60 50 40\n{lines}\n")
    assert path.stat().st_size > 3 << 20
    engram.import_file(path, pool)
    for name, expected in zip("xyz", values, strict=True):
        assert_same(pool["block1"][name][...], expected)


def test_any_region_is_read(tmp_path: Path) -> None:
    content, blocks = made("grid", SHAPES3, order=">", real=8)
    (tmp_path / "a.x").write_bytes(content)
    with open_source(tmp_path / "a.x") as source:
        nodes = {n.path: n for n in source.nodes if isinstance(n, ArrayNode)}
        node = nodes["block3/z"]
        region = (slice(0, 3, 2), slice(1, 3, 1), slice(2, 3, 1))
        out = np.empty((2, 2, 1), node.dtype)
        node.read(out, region)
        assert out.tolist() == blocks[2]["z"][region].tolist()
        out = np.empty(node.shape, node.dtype)
        node.read(out, whole(node.shape))
        assert_same(out, blocks[2]["z"])


def test_a_mesh_made_here_goes_out_by_its_names(pool: Any, tmp_path: Path) -> None:
    for number in range(1, 12):
        for name in ("x", "y", "z"):
            pool[f"mesh/block{number}/{name}"] = np.full((1, 2, 3), float(number), ">f8")
    engram.export_file(pool["mesh"], tmp_path / "a.xyz")
    group = pool.create_group("again")
    engram.import_file(tmp_path / "a.xyz", group)
    assert [group[f"block{n}/x"][0, 0, 0] for n in range(1, 12)] == list(range(1, 12))
    assert group["block1/x"].dtype == np.dtype(">f8")


def flow(pool: Any) -> Any:
    """Make a solution of one block."""
    group = pool.create_group("flow")
    for name in NAMES[3]:
        group[name] = np.ones((2, 2, 2), "f4")
    group.attrs.update({"mach": 0.8, "alpha": 1, "re": np.float32(1e6), "time": 0.0})
    return group


def test_attributes_are_rounded_to_the_precision_of_the_file(pool: Any, tmp_path: Path) -> None:
    report = engram.export_file(flow(pool), tmp_path / "a.q")
    assert [(e.path, e.what) for e in report.noted] == [("/", "attribute mach")]
    group = pool.create_group("again")
    engram.import_file(tmp_path / "a.q", group)
    assert [group.attrs[n] for n in CONDITIONS] == [np.float32(0.8), 1, 1e6, 0]


def refused(pool: Any, path: Path, *words: str, **how: Any) -> None:
    """Assert that an export fails with these words, and writes nothing."""
    with pytest.raises(engram.FormatError) as caught:
        engram.export_file(pool, path, **how)
    for word in words:
        assert word in str(caught.value)
    assert not path.exists()


def test_what_a_solution_lacks_is_named(pool: Any, tmp_path: Path) -> None:
    group = flow(pool)
    del group.attrs["mach"]
    for lossy in (False, True):
        words = ("attribute mach", "missing", "or mend these: leaving them out is not enough")
        refused(group, tmp_path / "a.q", *words, lossy=lossy)
    group.attrs["note"] = "no place"
    refused(group, tmp_path / "a.q", "attribute note", "attribute mach", "is not enough")
    group.attrs["mach"] = "fast"
    refused(group, tmp_path / "a.q", "attribute mach", "no real number")
    group.attrs["mach"] = 0.5
    refused(group, tmp_path / "a.q", "attribute note", "or pass lossy=True to leave these out")
    assert not engram.export_file(group, tmp_path / "a.q", lossy=True).complete
    del group["energy"]
    refused(group, tmp_path / "b.q", "lacks energy")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"b/x": np.zeros((2, 2, 2), "f8")}, ("/b/x", "float64")),
        ({"b/x": np.zeros((2, 2, 3), "f4")}, ("/b", "one shape")),
        ({"b/x": np.zeros((2, 2, 2), "i4")}, ("/b/x", "int32")),
        ({"b/x": np.zeros((2, 2, 2), "f2")}, ("/b/x", "float16")),
        ({"b/x": np.zeros((2, 2, 2), "c8")}, ("/b/x", "complex64")),
        ({"b/x": None}, ("/b", "lacks x")),
        ({"b/iblank": np.zeros((2, 2, 2), "i8")}, ("/b/iblank", "int32")),
        ({"b/iblank": np.zeros((2, 2, 2), "i4")}, ("/a", "lacks iblank")),
        ({"b/t": np.zeros((2, 2, 2), "f4")}, ("/b/t", "has x, y, z")),
        ({"b/c/x": np.zeros((2, 2, 2), "f4")}, ("/b/c", "blocks have no groups")),
        ({"top": np.zeros((2, 2, 2), "f4")}, ("/a: group", "one block")),
        ({"c/x": np.zeros((2, 2), "f4"), "c/y": np.zeros((2, 2), "f4")}, ("/c", "2 dimensions")),
        ({"c/x": np.zeros(2, "f4")}, ("/c", "one shape")),
        ({"c/x": np.zeros((0, 1, 1), "f4")}, ("/c", "one shape")),
    ],
    ids=str,
)
def test_blocks_that_are_no_grid_are_refused_by_name(
    pool: Any, tmp_path: Path, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    mesh = pool.create_group("mesh")
    for path in ("a/x", "a/y", "a/z", "b/x", "b/y", "b/z"):
        mesh[path] = np.zeros((2, 2, 2), "f4")
    for path, value in change.items():
        if path in mesh:
            del mesh[path]
        if value is not None:
            mesh[path] = value
    refused(mesh, tmp_path / "a.xyz", *words, format="plot3d-grid")


@pytest.mark.parametrize("encoding", ["", "-fortran", "-stream", "-ascii"])
@pytest.mark.parametrize(
    ("file", "wrong"),
    [
        *[("grid", "a.q"), ("grid", "a.f"), ("solution", "a.XYZ"), ("solution", "a.fun")],
        *[("function", "a.grd"), ("function", "a.q")],
    ],
)
def test_a_suffix_of_another_kind_is_refused(
    pool: Any, tmp_path: Path, file: str, wrong: str, encoding: str
) -> None:
    first = tmp_path / f"first{SUFFIX[file]}"
    first.write_bytes(made(file, SHAPES3)[0])
    engram.import_file(first, pool)
    for word in (f"plot3d{encoding}", f"plot3d-{file}{encoding}"):
        with pytest.raises(engram.ArgumentError) as caught:
            engram.export_file(pool, tmp_path / wrong, format=word)
        said = str(caught.value)
        assert f"{tmp_path / wrong}: would be a {file}, and {wrong[1:]} is" in said
        assert f"{SUFFIX[file]}" in said.partition("end its name with")[2]
        assert not (tmp_path / wrong).exists()
    for right in (f"a{SUFFIX[file]}", "a.p3d", "a.bin"):
        assert engram.export_file(pool, tmp_path / right, format=f"plot3d{encoding}").arrays


def test_a_suffix_of_another_kind_is_refused_of_what_names_tell(pool: Any, tmp_path: Path) -> None:
    for name in ("x", "y", "z", "odd"):
        pool[f"mesh/{name}"] = np.zeros((2, 2, 2), "f4")
    with pytest.raises(engram.ArgumentError, match=r"a\.q: would be a grid"):
        engram.export_file(pool["mesh"], tmp_path / "a.q", format="plot3d-grid", lossy=True)
    del pool["mesh/odd"]
    with pytest.raises(engram.ArgumentError, match=r"a\.q: would be a grid"):
        engram.export_file(pool["mesh"], tmp_path / "a.q")
    refused(pool.create_group("empty"), tmp_path / "a.q", "no array")


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_stream_that_would_be_taken_for_another_is_refused(
    pool: Any, tmp_path: Path, dtype: str
) -> None:
    values = np.full((2, 3, 4), np.finfo(dtype).smallest_subnormal, dtype)
    pool["f1"] = values
    refused(pool, tmp_path / "a.f", "/f1", "begins with", format="plot3d-function-stream")
    engram.export_file(pool, tmp_path / "a.f", format="plot3d-function")
    group = pool.create_group("again")
    engram.import_file(tmp_path / "a.f", group)
    np.testing.assert_array_equal(group["f1"][...], values)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8"])
def test_a_stream_of_one_point_comes_back_or_is_refused(
    pool: Any, tmp_path: Path, dtype: str
) -> None:
    group = pool.create_group("mesh")
    for name in ("x", "y", "z"):
        group[name] = np.full((1, 1, 1), 0.5, dtype)
    if dtype != "<f8":
        refused(group, tmp_path / "a.xyz", "2-dimensional", "too", format="plot3d-grid-stream")
        return
    engram.export_file(group, tmp_path / "a.xyz", format="plot3d-grid-stream")
    engram.import_file(tmp_path / "a.xyz", pool.create_group("again"))
    assert pool["again/x"][...] == 0.5


def test_names_that_tell_of_no_kind_are_refused(pool: Any, tmp_path: Path) -> None:
    pool["b/pressure"] = np.zeros((2, 2, 2), "f4")
    pool["b/heat"] = np.ones((2, 2, 2), "f4")
    refused(pool, tmp_path / "a.f", "plot3d-function")
    report = engram.export_file(pool, tmp_path / "a.f", format="plot3d-function")
    assert {(e.path, e.what) for e in report.left_out} == {
        ("/b/heat", "name"),
        ("/b/pressure", "name"),
    }
    group = pool.create_group("again")
    engram.import_file(tmp_path / "a.f", group)
    assert [group[f"block1/{n}"][0, 0, 0] for n in ("f1", "f2")] == [1, 0]


def test_an_empty_tree_is_refused(pool: Any, tmp_path: Path) -> None:
    refused(pool, tmp_path / "a.xyz", "no array")
    pool.create_group("empty")
    refused(pool, tmp_path / "a.xyz", "/empty: group")


@pytest.mark.parametrize("marker", [0, 4, 8])
@pytest.mark.parametrize("file", ["grid", "solution", "function"])
def test_a_file_cut_anywhere_is_refused(pool: Any, tmp_path: Path, file: str, marker: int) -> None:
    content, _ = made(file, [(1, 2, 2), (2, 1, 3)], marker=marker)
    path = tmp_path / f"a{SUFFIX[file]}"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(engram.FormatError) as caught:
            engram.import_file(path, pool)
        assert str(path) in str(caught.value)
    path.write_bytes(content + b"\0")
    with pytest.raises(engram.FormatError, match="truncated or damaged"):
        engram.import_file(path, pool)
    assert list(pool) == []


def test_a_text_cut_anywhere_is_refused_or_ends_in_a_number(pool: Any, tmp_path: Path) -> None:
    text = b"1\n2 1 2\n0.5 1.5 2.5 3.5\n4.25 5.25 6.25 7.25\n8.125 9.125 10.125 11.125\n"
    path = tmp_path / "a.xyz"
    for length in range(len(text) - 6):
        path.write_bytes(text[:length])
        with pytest.raises(engram.FormatError) as caught:
            engram.import_file(path, pool)
        assert str(path) in str(caught.value)
    path.write_bytes(text.replace(b"9.125", b"9.1-5"))
    with pytest.raises(engram.FormatError, match=r"/block1/z"):
        engram.import_file(path, pool)
    assert list(pool) == []


def test_damaged_markers_are_found(pool: Any, tmp_path: Path) -> None:
    content, _ = made("solution", SHAPES3)
    path = tmp_path / "a.q"
    places = [0, 8, 12, 52, 56, 76]
    for at in places:
        damaged = bytearray(content)
        damaged[at] ^= 0x40
        path.write_bytes(bytes(damaged))
        with pytest.raises(engram.FormatError):
            engram.import_file(path, pool)


def test_what_could_be_several_kinds_is_refused_unless_its_suffix_says(
    pool: Any, tmp_path: Path
) -> None:
    # Four numbers and five times four of 32 bits are as long as three times four of 64 bits.
    twin = struct.pack("<4i", 1, 2, 2, 1) + bytes(96)
    path = tmp_path / "a.p3d"
    path.write_bytes(twin)
    with pytest.raises(engram.FormatError, match=r"could be a .*grid.* or a .*solution"):
        engram.import_file(path, pool)
    for name, array in {"a.q": "energy", "a.xyz": "z"}.items():
        path = path.rename(tmp_path / name)
        engram.import_file(path, pool.create_group(name))
        assert pool[f"{name}/block1/{array}"].shape == (1, 2, 2)


@settings(max_examples=300, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=200),
        st.lists(st.integers(-1, 20), max_size=40).map(lambda n: struct.pack(f"<{len(n)}i", *n)),
        st.text("0123456789 .-+eEdD*,\n", max_size=200).map(str.encode),
    ),
    suffix=st.sampled_from([".xyz", ".q", ".f", ".p3d"]),
)
def test_any_bytes_are_read_or_refused(tmp_path_factory: Any, content: bytes, suffix: str) -> None:
    path = tmp_path_factory.mktemp("any") / f"a{suffix}"
    path.write_bytes(content)
    try:
        with open_source(path) as source:
            for node in source.nodes:
                if isinstance(node, ArrayNode) and node.nbytes < 1 << 20:
                    node.read(np.empty(node.shape, node.dtype), whole(node.shape))
    except engram.EngramError:
        pass


def test_other_files_of_such_suffixes_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "code.f").write_text("      program main\n      end\n")
    (tmp_path / "water.xyz").write_text("3\nwater\nO 0.0 0.0 0.0\nH 0.7 0.5 0\nH -0.7 0.5 0\n")
    (tmp_path / "mesh.xyz").write_bytes(made("grid", SHAPES3)[0])
    found = find_files([tmp_path])
    assert [path.name for path in found.files] == ["mesh.xyz"]
    assert len(found.passed_over) == 2


def test_the_command_line_brings_grids_in_and_out(home: Path, tmp_path: Path) -> None:
    content, _ = made("grid", SHAPES3, iblank=True, order=">")
    (tmp_path / "a.x").write_bytes(content)
    assert run("create", home / "p", "--size", "16 MiB").code == 0
    assert run("import", home / "p", "/wing", tmp_path / "a.x").code == 0
    assert run("export", home / "p", "/wing", tmp_path / "b.x").code == 0
    assert (tmp_path / "b.x").read_bytes() == content
    assert run("export", home / "p", "/wing", tmp_path / "c", "--format", "plot3d-ascii").code == 0
    assert (tmp_path / "c").read_text().startswith("3\n4 3 2\n")


def test_names_of_blocks_are_told_of(pool: Any, tmp_path: Path) -> None:
    for name in ("wing", "block2"):
        group = pool.create_group(name)
        for axis in "xyz":
            group[axis] = np.ones((2, 2, 2), "f4")
    report = engram.export_file(pool, tmp_path / "grid.xyz")
    told = [str(each) for each in report.noted if "blocks have no names" in str(each)]
    assert len(told) == 2
    assert "block2" in told[0] + told[1]
