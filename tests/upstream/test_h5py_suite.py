"""h5py's own tests, from the installed package, with `engram.compat.h5py` in h5py's place.

Each module of theirs is loaded once more: what it imports as `h5py` is the compat module then, and
its files are pools. The list in `h5py_exceptions.py` has the tests that fail, each with its reason:
one that passes after all fails the run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import sys
import tempfile
import types
import unittest
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

from engram.compat import h5py as compat
from engram.compat.h5py.refused import LowLevel

sys.path.insert(0, str(Path(__file__).parent))
from h5py_exceptions import EXCEPTIONS, LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("default")

MODULES = (
    *("attribute_create", "attrs", "attrs_data", "base", "big_endian_file", "completions"),
    *("dataset", "dataset_getitem", "dataset_swmr", "datatype", "dimension_scales"),
    *("dims_dimensionproxy", "dtype", "errors", "file", "file2", "file_alignment", "file_image"),
    *("filters", "group", "h5", "native_complex", "npystrings", "selections"),
    "slicing",
)
FOLDER = str(Path(h5py.__file__).parent / "tests")


class Nothing:
    """What a module of h5py's tests takes of the low-level interface as it is loaded."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any) -> Any:
        message = "it uses the low-level interface"
        raise RuntimeError(message)

    def __bool__(self) -> bool:
        return False


class Stand(types.ModuleType):
    """A module in the place of one of h5py's."""

    def __init__(self, name: str, of: Any, **more: Any) -> None:
        super().__init__(name)
        self.__dict__.update({n: v for n, v in vars(of).items() if not n.startswith("__")})
        self.__dict__.update(more)
        self.__path__: list[str] = []
        self._of = of

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if isinstance(self._of, LowLevel) and sys.modules.get("h5py") is not h5py:
            return Nothing()
        return getattr(self._of, name)


class Scales:
    """The functions of `h5py.h5ds` that prepare tests, by what datasets can do."""

    @staticmethod
    def set_scale(of: Any, name: bytes = b"") -> None:
        of._of.make_scale(name)

    @staticmethod
    def is_scale(of: Any) -> bool:
        return bool(of._of.is_scale)

    @staticmethod
    def attach_scale(of: Any, scale: Any, axis: int) -> None:
        of._of.dims[axis].attach_scale(scale._of)

    @staticmethod
    def detach_scale(of: Any, scale: Any, axis: int) -> None:
        of._of.dims[axis].detach_scale(scale._of)

    @staticmethod
    def is_attached(of: Any, scale: Any, axis: int) -> bool:
        return scale._of in of._of.dims[axis].values()

    @staticmethod
    def get_num_scales(of: Any, axis: int) -> int:
        return len(of._of.dims[axis])

    @staticmethod
    def set_label(of: Any, axis: int, label: bytes) -> None:
        of._of.dims[axis].label = label

    @staticmethod
    def get_label(of: Any, axis: int) -> bytes:
        return bytes(of._of.dims[axis].label.encode())

    @staticmethod
    def get_scale_name(of: Any) -> bytes:
        return str(of._of._words().get("scale")).encode()


def stands() -> dict[str, Stand]:
    """Return what stands for h5py's modules while one of its tests is loaded."""
    lock = contextlib.nullcontext()
    warned = types.SimpleNamespace(H5pyDeprecationWarning=DeprecationWarning, H5pyWarning=Warning)
    product = types.SimpleNamespace(
        product=np.prod, is_empty_dataspace=lambda of: of._of.shape is None
    )
    inner: dict[str, Any] = {
        "_objects": types.SimpleNamespace(phil=lock, with_phil=lambda f: f),
        "_hl.base": types.SimpleNamespace(
            **vars(product), is_hdf5=compat.is_hdf5, Empty=compat.Empty
        ),
        "_hl.files": types.SimpleNamespace(direct_vfd=False, _drivers=(), mpi=False),
        "_hl.compat": types.SimpleNamespace(filename_encode=str, filename_decode=str),
        "h5py_warnings": warned,
        "h5ds": Scales,
    }
    more = ("selections", "selections2", "filters", "dataset", "attrs", "group")
    low = (*compat._LOW, "_selector", "_hl", "_conv", "_errors", *(f"_hl.{name}" for name in more))
    for name in low:
        inner.setdefault(name, LowLevel(name, **compat._AGAIN.get(name, {})))
    inner["_hl.group"] = compat
    made = {f"h5py.{name}": Stand(f"h5py.{name}", of) for name, of in inner.items()}
    top = {n.partition(".")[2]: one for n, one in made.items() if n.count(".") == 1}
    made["h5py"] = Stand("h5py", compat, **top)
    made["h5py"].__path__ = []
    made["h5py.tests"] = Stand("h5py.tests", types.SimpleNamespace())
    made["h5py.tests"].__path__ = [FOLDER]
    return made


@contextlib.contextmanager
def in_place() -> Iterator[None]:
    """Have h5py's name stand for the compat module."""
    kept = {n: m for n, m in sys.modules.items() if n == "h5py" or n.startswith("h5py.")}
    for name in kept:
        del sys.modules[name]
    sys.modules.update(stands())
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n == "h5py" or n.startswith("h5py.")]:
            del sys.modules[name]
        sys.modules.update(kept)


def as_listed(test: Any, *, is_all: bool) -> Any:
    """Have a test fail that is expected to; `is_all` tells that nothing of it comes after this."""

    @functools.wraps(test)
    def as_expected(*arguments: Any, **options: Any) -> None:
        reason = reason_of(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])
        if reason is None:
            test(*arguments, **options)
            return
        try:
            test(*arguments, **options)
        except unittest.SkipTest:
            raise
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - whatever h5py expects
            pytest.xfail(reason)
        if is_all:
            pytest.fail(f"it passes after all, so take it from the exceptions: {reason}")

    return as_expected


def reason_of(node: str) -> str | None:
    """Return why a test is expected to fail; None if it is not."""
    key = node.partition("::")[2].removeprefix("Test_").removeprefix("test_")
    return EXCEPTIONS.get(key) or EXCEPTIONS.get(key.partition("[")[0])


def entered(name: str, cls: Any) -> None:
    """Enter a class of tests into this module."""
    if f"{name}_{cls.__name__}" in LEFT_OUT:
        return
    for test in [found for found in vars(cls) if found.startswith("test")]:
        setattr(cls, test, as_listed(getattr(cls, test), is_all=True))
    if "setUp" in vars(cls):
        cls.setUp = as_listed(cls.setUp, is_all=False)
    globals()[f"Test_{name}_{cls.__name__}"] = cls


def collect() -> None:
    """Enter all tests of h5py's modules into this one."""
    with in_place():
        common = importlib.import_module("h5py.tests.common")
        reads = common.TestCase.assertNumpyBehavior
        common.TestCase.assertNumpyBehavior = lambda case, dset, arr, part, **_: reads(
            case, dset, arr, part, skip_fast_reader=True
        )  # the fast reader is h5py's own inside
        for name in MODULES:
            module = importlib.import_module(f"h5py.tests.test_{name}")
            for found, thing in list(vars(module).items()):
                if getattr(thing, "__module__", None) != module.__name__:
                    continue
                if inspect.isclass(thing) and (found.startswith("Test") or hasattr(thing, "setUp")):
                    entered(name, thing)
                elif inspect.isfunction(thing) and found.startswith("test"):
                    globals()[f"test_{name}__{found}"] = as_listed(thing, is_all=True)
                elif type(thing).__name__ == "FixtureFunctionDefinition":
                    globals()[found] = thing


collect()


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test leaves open: h5py's files cost no addresses, and pools do."""
    opened: list[weakref.ref[Any]] = []
    begin = compat.File.__init__

    def noted(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        opened.append(weakref.ref(self))

    monkeypatch.setattr(compat.File, "__init__", noted)
    yield
    for kept in opened:
        file = kept()
        if file is not None:
            with contextlib.suppress(Exception):
                file.close()


@pytest.fixture(scope="module", autouse=True)
def _in_memory() -> Iterator[None]:
    """Have temporary files lie where pools can."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="engram-h5py-", dir="/dev/shm") as folder:
        tempfile.tempdir = folder
        yield
        tempfile.tempdir = before


@pytest.fixture
def tmp_path(_in_memory: None) -> Path:
    return Path(tempfile.mkdtemp())


@pytest.fixture
def writable_file(tmp_path: Path) -> Iterator[Any]:
    with compat.File(tmp_path / "test.h5", "w") as file:
        yield file
