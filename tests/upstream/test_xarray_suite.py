"""xarray's own tests of its engines, from the installed package, with pools for files.

Each class of xarray's is asked to save into a pool and to open from it. Where a test writes a file
with netCDF4 itself, that file is imported. What stands beside a class are the tests that fail and
why: one that passes after all fails the run, and so does a test that asks nothing of the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import xarray as xr
from xarray.tests import test_backends, test_backends_datatree
from xarray.tests.conftest import (  # noqa: F401 - fixtures
    create_test_datatree,
    simple_datatree,
    time_unit,
    use_dask,
)
from xarray.tests.test_backends import (  # noqa: F401 - likewise
    default_zarr_format,
    tmp_store,
)

import engram
from engram.xarray.plan import Plan
from engram.xarray.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("default")

_TO_NETCDF = xr.Dataset.to_netcdf


class Pools:
    """Saves to pools, and opens from them."""

    engine: Any = "engram"
    asked = 0

    @pytest.fixture(autouse=True)
    def _for_files(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Pools.asked = 0
        monkeypatch.setattr(tempfile, "tempdir", str(home))
        monkeypatch.setattr(xr.Dataset, "to_netcdf", to_netcdf)
        monkeypatch.setattr(xr.DataTree, "to_netcdf", tree_to_netcdf)
        monkeypatch.setattr(xr, "open_zarr", lambda path: xr.load_dataset(place(path)))

    def save(self, dataset: Any, path: Any, **options: Any) -> None:
        save(dataset, path, **options)

    @contextlib.contextmanager
    def open(self, path: Any, **options: Any) -> Iterator[Any]:
        with xr.open_dataset(place(path), engine=self.engine, **options) as found:
            yield found

    @contextlib.contextmanager
    def create_store(self) -> Iterator[Any]:
        with test_backends.create_tmp_file() as path, engram.open(place(path)) as pool:
            yield AtOnce(Plan(pool), "", "w")


class AtOnce(Target):
    """Writes when xarray dumps into it."""

    def store(self, *given: Any, **options: Any) -> None:
        super().store(*given, **options)
        self.plan.run()


def place(path: Any) -> str:
    """Return where the pool is; a file is imported into one."""
    Pools.asked += 1
    given = Path(path)
    if not given.is_file():
        if not given.exists():
            engram.create(given, size="64 MiB", force=True).close()
        return str(given)
    made = given.with_suffix(".pool")
    if not made.exists():
        with engram.create(made, size="64 MiB", force=True) as pool:
            engram.import_file(given, pool)
    return str(made)


def save(dataset: Any, path: Any, group: str | None = None, **options: Any) -> None:
    """Save a dataset as xarray's tests do."""
    part = {"region", "append_dim"} & set(options)
    mode = options.pop("mode", None)
    mode = {"r+": "a", None: None if part else "w"}.get(mode, mode)
    target = place(path) + (f"/{group}" if group else "")
    if isinstance(dataset, xr.DataArray):
        dataset = dataset.to_dataset(name=dataset.name or "values")
    dataset.engram.to_pool(target, mode=mode, **options)


def to_netcdf(dataset: Any, path: Any = None, engine: Any = None, **options: Any) -> Any:
    """Write a netCDF file where its engine is named, and else to a pool."""
    if engine not in {None, "engram"}:
        return _TO_NETCDF(dataset, path, engine=engine, **options)
    return save(dataset, path, **options)


def tree_to_netcdf(tree: Any, path: Any = None, engine: Any = None, **options: Any) -> None:
    """Write a tree to a pool."""
    del engine
    if path is None:
        message = "a pool is no file in memory"
        raise ValueError(message)
    tree.engram.to_pool(place(str(path)), mode=options.pop("mode", "w"), **options)


def suite(exceptions: dict[str, str]) -> Callable[[type], type]:
    """Have each test of a class ask something of the engine, and those named fail."""

    def decorate(cls: type) -> type:
        assert not [name for name in exceptions if not hasattr(cls, name)]
        for name in dir(cls):
            if name.startswith("test_"):
                test = _asking(getattr(cls, name))
                if name in exceptions:
                    test = _failing(test, exceptions[name])
                setattr(cls, name, test)
        return cls

    return decorate


def _asking(test: Any) -> Any:
    @functools.wraps(test)
    def asking(*arguments: Any, **options: Any) -> None:
        test(*arguments, **options)
        assert Pools.asked, "this test asks nothing of the engine"

    return asking


def _failing(test: Any, reason: str) -> Any:
    @functools.wraps(test)
    def failing(*arguments: Any, **options: Any) -> None:
        try:
            test(*arguments, **options)
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - whatever xarray expects
            pytest.xfail(reason)
        pytest.fail(f"it passes after all, so take it from the exceptions: {reason}")

    return failing


FILES = {
    "test_open_encodings": "it opens a file with netCDF4",
    "test_dump_and_open_encodings": "it opens a file with netCDF4",
    "test_mask_and_scale": "it opens a file with netCDF4",
    "test_0dimensional_variable": "it opens a file with netCDF4",
    "test_read_variable_len_strings": "it opens a file with netCDF4",
    "test_encoding_enum__error_multiple_variable_with_changing_enum": "it opens with netCDF4",
    "test_refresh_from_disk": "it copies a file, and a pool is a folder",
    "test_byte_attrs": "an attribute of bytes stays bytes, and netCDF makes a text of it",
}


class Saved(Pools, test_backends.NetCDF4Base):
    """What all engines of netCDF-4 pass."""

    def test_load_async(self) -> None:  # type: ignore[override]  # pytest needs no plugin so
        asyncio.run(test_backends.DatasetIOBase.test_load_async(self))


@suite(FILES)
class TestDataset(Saved):
    """Datasets from numpy."""


@suite(
    {
        **FILES,
        "test_dataset_caching": "dask's arrays are not cached, as with other engines",
        "test_encoding_enum__no_fill_value": "dask forgets a dtype's metadata",
    }
)
class TestDask(Saved):
    """Datasets that dask computes, opened in chunks."""

    @contextlib.contextmanager
    def roundtrip(
        self,
        data: Any,
        save_kwargs: Any = None,
        open_kwargs: Any = None,
        allow_cleanup_failure: Any = False,
    ) -> Iterator[Any]:
        options = {"chunks": {}, **(open_kwargs or {})}
        with super().roundtrip(data.chunk(), save_kwargs, options, allow_cleanup_failure) as found:
            yield found


@suite(
    {
        **FILES,
        "test_child_group_with_inconsistent_dimensions": "a tree's groups agree on dimensions, "
        "which xarray's own tests of trees expect as well",
    }
)
class TestTree(Saved):
    """Datasets that are opened as trees."""

    @contextlib.contextmanager
    def open(self, path: Any, **options: Any) -> Iterator[Any]:
        with xr.open_datatree(place(path), engine=self.engine, **options) as found:
            yield found.to_dataset()


@suite(
    {
        "test_compute_false": "a write is whole or not at all: there is none that comes later",
        "test_to_memoryview_compute_false": "a pool is no file in memory",
        "test_roundtrip_via_memoryview": "a pool is no file in memory",
        "test_no_redundant_dimensions": "it opens the file with netCDF4",
    }
)
class TestTrees(Pools, test_backends_datatree.NetCDFIOBase):
    """Trees."""


SAFE = "chunks that writers share lose nothing, so nothing is refused of how dask cuts values"


@suite(
    {
        "test_zarr_append_chunk_partial": SAFE,
        "test_zarr_region_chunk_partial": SAFE,
        "test_zarr_region_chunk_partial_offset": SAFE,
        "test_zarr_safe_chunk_append_dim": SAFE,
        "test_zarr_safe_chunk_region": SAFE,
        "test_dataset_to_zarr_align_chunks_true": "there is no align_chunks=, for the same reason",
        "test_zarr_region_append": "append_dim= and region= exclude each other",
    }
)
class TestRegions(Pools, test_backends.TestZarrRegionAuto):
    """Parts of datasets, and appends."""

    def save(self, target: Any, ds: Any, **options: Any) -> None:  # type: ignore[override]
        save(ds, target, **options)
