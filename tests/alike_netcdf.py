"""Whether two netCDF files are alike, as netCDF's own library shows them and as xarray does.

It walks both files beside each other and knows nothing of how they were made: names in their
order, dimensions, types, attributes with their types, storage, and every byte of the values.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Facts = dict[str, Any]

_LIBRARYS = {
    *("_NCProperties", "_Netcdf4Coordinates", "_Netcdf4Dimid", "_nc3_strict"),
    *("CLASS", "DIMENSION_LIST", "NAME", "REFERENCE_LIST"),
}
"""Attributes of the library's own; what they say is compared as dimensions."""


def assert_alike(first: Path, second: Path) -> None:
    """Assert that two files say the same through netCDF's library."""
    with _raw(first) as one, _raw(second) as other:
        assert one.data_model == other.data_model
        is_hdf5 = one.data_model.startswith("NETCDF4")
        _assert_groups_alike(one, other)
    if is_hdf5:
        assert_stored_alike(first, second)


def assert_stored_alike(first: Path, second: Path) -> None:
    """Assert that two HDF5 files are stored alike: types, attributes' forms, layouts, filters."""
    with h5py.File(first) as one, h5py.File(second) as other:
        assert _stored(one) == _stored(other)


def _stored(file: h5py.File) -> Facts:
    """Return what netCDF4 does not tell apart: how attributes are stored, and which filters."""
    found: Facts = {}

    def visit(name: str, member: Any) -> None:
        if isinstance(member, h5py.Datatype):
            found[name] = _kind(member.id)
            return
        attributes = [_attribute(member, name) for name in member.attrs if name not in _LIBRARYS]
        found[name] = attributes
        if isinstance(member, h5py.Dataset):
            plist = member.id.get_create_plist()
            filters = [plist.get_filter(place)[:3] for place in range(plist.get_nfilters())]
            kept = (_kind(member.id.get_type()), member.maxshape, plist.get_layout(), filters)
            found[name] = (attributes, kept, plist.fill_value_defined())

    visit("", file["/"])
    file.visititems(visit)
    return found


def _attribute(member: Any, name: str) -> Facts:
    """Return an attribute's name, type and shape."""
    attribute = member.attrs.get_id(name)
    shape = attribute.shape or (1,) if attribute.shape is not None else None
    if _kind(attribute.get_type())[0] == "text":
        shape = attribute.shape  # characters have none; strings have one, even if it is one
    return {"name": name, "type": _kind(attribute.get_type()), "shape": shape}


def _kind(tid: Any) -> Any:
    """Return a datatype's kind and size, and whether text is of variable length."""
    kind, size = tid.get_class(), tid.get_size()
    if kind == h5py.h5t.STRING:
        return ("text", "variable" if tid.is_variable_str() else size)
    if kind == h5py.h5t.OPAQUE:
        return ("opaque", tid.get_tag(), size)
    return (kind, size)


@contextlib.contextmanager
def _raw(path: Path) -> Iterator[netCDF4.Dataset]:
    """Open a file, to be read as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of opaque variables, which `_stored` compares
        file = netCDF4.Dataset(path)
    with file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        file.set_always_mask(False)
        yield file


def _assert_groups_alike(one: Any, other: Any) -> None:
    """Assert that two groups are alike, all the way down."""
    where = one.path
    assert _attributes(one) == _attributes(other), where
    assert _dimensions(one) == _dimensions(other), where
    assert _types(one) == _types(other), where
    assert list(one.variables) == list(other.variables), where
    for name, variable in one.variables.items():
        assert _storage(variable) == _storage(other[name]), f"{where}{name}"
        assert _attributes(variable) == _attributes(other[name]), f"{where}{name}"
        assert _values(variable) == _values(other[name]), f"{where}{name}"
    assert list(one.groups) == list(other.groups), where
    for name, inner in one.groups.items():
        _assert_groups_alike(inner, other[name])


def _attributes(owner: Any) -> list[tuple[str, Any]]:
    """Return attributes in their order, each with its type and its bytes."""
    found: list[tuple[str, Any]] = []
    for name in owner.ncattrs():
        value = owner.getncattr(name)
        if isinstance(value, str):
            found.append((name, ("text", value)))
        elif isinstance(value, list):
            found.append((name, ("strings", value)))
        else:
            array = np.asarray(value)
            found.append((name, (array.dtype.str, array.shape, _bytes(array))))
    return found


def _dimensions(group: Any) -> list[tuple[str, int, bool]]:
    """Return a group's dimensions in their order."""
    return [(n, len(d), bool(d.isunlimited())) for n, d in group.dimensions.items()]


def _types(group: Any) -> Facts:
    """Return a group's user-defined types."""
    enums = {n: (t.dtype.str, t.enum_dict) for n, t in group.enumtypes.items()}
    compounds = {n: _layout(t.dtype) for n, t in group.cmptypes.items()}
    return {"enums": list(enums.items()), "compounds": list(compounds.items())}


def _layout(dtype: Any) -> Any:
    """Return a dtype by its fields, offsets and size."""
    if dtype.subdtype is not None:
        return (_layout(dtype.base), dtype.shape)
    if dtype.names is None:
        return dtype.str
    return [(n, dtype.fields[n][1], _layout(dtype[n])) for n in dtype.names], dtype.itemsize


def _storage(variable: Any) -> Facts:
    """Return a variable's type, dimensions, and how it is stored."""
    kind = variable.datatype
    is_netcdf4 = variable.group().data_model.startswith("NETCDF4")
    return {
        "dimensions": variable.dimensions,
        "shape": variable.shape,
        "dtype": str(variable.dtype),
        "type": getattr(kind, "name", None) and kind.name,
        "endian": variable.endian(),
        "chunks": variable.chunking() if is_netcdf4 else None,
        "filters": variable.filters() if is_netcdf4 else None,
        "fill": _fill(variable),
        "quantization": variable.quantization() if is_netcdf4 else None,
    }


def _fill(variable: Any) -> Any:
    """Return the value that stands where nothing was written; None if anything may."""
    value = variable.get_fill_value()
    return None if value is None else _bytes(np.asarray(value))


def _values(variable: Any) -> Any:
    """Return a variable's values: strings, or bytes."""
    values = variable[...]
    array = np.asarray(values)
    if array.dtype.kind in "OU":
        return array.tolist()
    return array.shape, array.dtype.str, _bytes(array)


def _bytes(array: np.ndarray[Any, Any]) -> Any:
    """Return an array's bytes; of records, those of each field, without what lies between."""
    if array.dtype.names is None:
        return np.ascontiguousarray(array).tobytes()
    return [_bytes(array[name]) for name in array.dtype.names]


_COMPARE = """
import sys, warnings
import xarray as xr
warnings.simplefilter("ignore")
one, other, with_encoding = sys.argv[1:]
for decode in (False, True):
    groups = [xr.open_groups(path, decode_cf=decode, engine="netcdf4") for path in (one, other)]
    assert list(groups[0]) == list(groups[1])
    for name, first in groups[0].items():
        second = groups[1][name]
        xr.testing.assert_identical(first, second)
        assert list(first.variables) == list(second.variables)
        assert list(first.attrs) == list(second.attrs)
        for variable in first.variables:
            assert list(first[variable].attrs) == list(second[variable].attrs)
            assert first[variable].dtype == second[variable].dtype
            kept = [dict(d[variable].encoding) for d in (first, second)]
            for encoding in kept:
                encoding.pop("source", None)
            if with_encoding:
                assert repr(kept[0]) == repr(kept[1]), (variable, kept)
        assert first.encoding.get("unlimited_dims") == second.encoding.get("unlimited_dims")
print("identical", len(groups[0]))
"""


def assert_identical_in_xarray(first: Path, second: Path, *, encoding: bool = True) -> None:
    """Assert that xarray finds two files identical, raw and decoded, group by group.

    Their encodings too, that is how they are stored, unless that is not asked for.
    """
    # In a process of its own: xarray's libraries warn while they are imported.
    ended = subprocess.run(
        [sys.executable, "-c", _COMPARE, str(first), str(second), "encoding" * encoding],
        capture_output=True,
        check=False,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("identical")
