"""Exporting generated netCDF files: groups, dimensions, types and storage in any combination."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

import netCDF4
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import engram
from alike_netcdf import assert_alike
from support import filled

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = ["i1", "i2", "i4", "f4", "f8"]
MORE = [*NUMBERS, "u1", "u2", "u4", "i8", "u8"]
NAMES = st.sampled_from(["x", "y", "time", "a b", "größe", "T_2", "_z", "1st", "lat"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
numbers = itertools.count()


@st.composite
def attributes(draw: st.DrawFn, codes: list[str], *, strings: bool) -> dict[str, Any]:
    """Draw attributes of text, of strings and of numbers."""
    found: dict[str, Any] = {}
    for name in draw(st.lists(NAMES, unique=True, max_size=3)):
        kind = draw(st.sampled_from(["text", "number", *(["strings"] if strings else [])]))
        if kind == "text":
            found[name] = np.bytes_(draw(TEXTS).encode())
        elif kind == "strings":
            found[name] = draw(st.lists(TEXTS, min_size=1, max_size=3))
        else:
            shape = (draw(st.integers(0, 3)),)
            found[name] = filled(np.dtype(draw(st.sampled_from(codes))), shape)
    return found


@st.composite
def storage(draw: st.DrawFn, shape: tuple[int, ...], grows: list[bool]) -> dict[str, Any]:
    """Draw how a netCDF-4 variable of numbers is stored."""
    options: dict[str, Any] = {}
    if draw(st.booleans()) and shape:
        options["chunksizes"] = [
            draw(st.integers(1, 3 if can else max(n, 1)))
            for n, can in zip(shape, grows, strict=True)
        ]
        options["fletcher32"] = draw(st.booleans())
        options["compression"] = draw(st.sampled_from([None, "zlib", "zstd", "bzip2"]))
        options["shuffle"] = draw(st.booleans())
    options["fill_value"] = draw(st.sampled_from([None, False, 7]))
    return options


@st.composite
def groups(draw: st.DrawFn, model: str, seen: dict[str, int], depth: int = 0) -> dict[str, Any]:
    """Draw a group: its dimensions, variables, attributes and groups."""
    is_netcdf4 = model == "NETCDF4"
    codes = MORE if model in {"NETCDF4", "NETCDF3_64BIT_DATA"} else NUMBERS
    dims: dict[str, tuple[int, bool]] = {}
    for name in draw(st.lists(NAMES, unique=True, max_size=4)):
        may_grow = is_netcdf4 or not any(grows for _, grows in dims.values())
        grows = may_grow and draw(st.booleans())
        dims[name] = (draw(st.integers(0 if grows else 1, 4)), grows)
    visible = {**seen, **{name: size for name, (size, _) in dims.items()}}
    mine = {name for name, (_, grows) in dims.items() if grows}
    variables: dict[str, Any] = {}
    for name in draw(st.lists(NAMES, unique=True, max_size=4)):
        used = draw(st.lists(st.sampled_from(sorted(visible)), max_size=3)) if visible else []
        if not is_netcdf4:  # an unlimited dimension comes first
            used = sorted(dict.fromkeys(used), key=lambda dim: dim not in mine)
        kinds = [*codes, "S1", *(["str"] if is_netcdf4 else [])]
        code = draw(st.sampled_from(kinds))
        variables[name] = {
            "code": code,
            "dims": used,
            "shape": tuple(visible[dim] for dim in used),
            "storage": draw(storage(tuple(visible[d] for d in used), [d in mine for d in used]))
            if model.startswith("NETCDF4") and code not in {"S1", "str"}
            else {},
            "attributes": draw(attributes(codes, strings=is_netcdf4)),
        }
    inner: dict[str, Any] = {}
    if is_netcdf4 and depth < 2:
        for name in draw(st.lists(st.sampled_from(["g", "größe 2"]), unique=True, max_size=2)):
            inner[name] = draw(groups(model, visible, depth + 1))
    return {
        "dims": dims,
        "variables": variables,
        "attributes": draw(attributes(codes, strings=is_netcdf4)),
        "groups": inner,
    }


def fill(group: netCDF4.Dataset, wanted: dict[str, Any]) -> None:
    """Write what was drawn."""
    put(group, wanted["attributes"])
    for name, (size, grows) in wanted["dims"].items():
        group.createDimension(name, None if grows else size)
    for name, facts in wanted["variables"].items():
        code = str if facts["code"] == "str" else facts["code"]
        made = group.createVariable(name, code, tuple(facts["dims"]), **facts["storage"])
        made.set_auto_maskandscale(False)
        made.set_auto_chartostring(False)
        put(made, facts["attributes"])
        if code is str:
            words = np.array(["", "ö", "word", "日本"], dtype=object)
            made[...] = words[np.arange(int(np.prod(facts["shape"]))) % 4].reshape(facts["shape"])
        elif facts["code"] == "S1":
            made[...] = filled(np.dtype("i1"), facts["shape"]).view("S1")
        else:
            made[...] = filled(np.dtype(facts["code"]), facts["shape"])
    for name, inner in wanted["groups"].items():
        fill(group.createGroup(name), inner)


def put(owner: Any, found: dict[str, Any]) -> None:
    """Write attributes."""
    for name, value in found.items():
        if isinstance(value, list):
            owner.setncattr_string(name, value)
        else:
            owner.setncattr(name, value)


@settings(max_examples=40)
@given(data=st.data())
def test_a_generated_file_comes_back_as_it_was(pool: Any, tmp_path: Path, data: Any) -> None:
    model = data.draw(
        st.sampled_from(["NETCDF4", "NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_CLASSIC",
                         "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
    )  # fmt: skip
    wanted = data.draw(groups(model, {}))
    number = next(numbers)
    path, out = tmp_path / f"{number}.nc", tmp_path / f"{number}-out.nc"
    with netCDF4.Dataset(path, "w", format=cast("Any", model)) as file:
        fill(file, wanted)
    group = pool.create_group(f"{number}")
    assert engram.import_file(path, group).complete
    report = engram.export_file(group, out)
    assert report.format == model
    assert not report.noted
    assert_alike(path, out)
    del pool[f"{number}"]
    path.unlink()
    out.unlink()


def test_strings_that_end_before_their_dimension_are_empty_there(pool: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createVariable("n", "i4", ("t",))[:] = [1, 2, 3]
        file.createVariable("w", str, ("t",))[0] = "a"
    for number in range(20):  # what h5py and HDF5 both free shows after a few
        engram.import_file(path, pool.create_group(f"{number}"))
        assert pool[f"{number}/w"][...].tolist() == ["a", "", ""]
    engram.export_file(pool["0"], tmp_path / "out.nc")
    assert_alike(path, tmp_path / "out.nc")
