"""h5py's own tests, from the installed package, with `engram.compat.h5py` in h5py's place.

Each module of theirs is loaded once more: what it imports as `h5py` is the compat module then, and
its files are pools. The list in `h5py_exceptions.py` has the tests that fail, each with its reason:
one that passes after all fails the run.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import tempfile
import types
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
        raise NotImplementedError

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
    for name in (*compat._LOW, "_selector", "_hl", "_hl.selections", "_hl.selections2", "_hl.filters",
                 "_hl.dataset", "_hl.attrs", "_hl.group", "_conv", "_errors"):  # fmt: skip
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
                    globals()[f"Test_{name}_{found}"] = thing
                elif inspect.isfunction(thing) and found.startswith("test"):
                    globals()[f"test_{name}__{found}"] = thing
                elif type(thing).__name__ == "FixtureFunctionDefinition":
                    globals()[found] = thing


collect()


def key_of(request: pytest.FixtureRequest) -> str:
    """Return the name of a test, as the list of exceptions has it."""
    key: str = request.node.nodeid.partition("::")[2].removeprefix("Test_").removeprefix("test_")
    return key


@pytest.fixture(autouse=True)
def _as_expected(request: pytest.FixtureRequest) -> None:
    """Have the tests fail that are expected to."""
    key = key_of(request)
    for start, reason in LEFT_OUT.items():
        if key.startswith(start):
            pytest.skip(reason)
    if key in EXCEPTIONS:
        mark = pytest.mark.xfail(reason=EXCEPTIONS[key], strict=True)
        request.applymarker(mark)


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
