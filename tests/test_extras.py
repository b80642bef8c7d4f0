"""The package needs numpy alone; what needs more says which extra brings it."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engram
from engram import later

ROOT = Path(__file__).resolve().parents[1]

ALONE = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in {"numpy", "engram"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
"""
"""Makes a process in which nothing but numpy and the standard library can be imported."""

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(600)


def alone(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python code where numpy alone is installed."""
    command = [sys.executable, "-c", ALONE + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, text=True)


def refused(code: str, *arguments: object) -> str:
    """Run code that ends with `UnsupportedError` there; give what it says."""
    body = "".join(f"    {line}\n" for line in code.splitlines())
    wrapped = (
        f"import engram\ntry:\n{body}except engram.UnsupportedError as error:\n    print(error)"
    )
    ended = alone(wrapped, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_numpy_is_all_that_has_to_be_installed() -> None:
    assert [name.partition(">")[0] for name in PROJECT["dependencies"]] == ["numpy"]


def test_the_extra_all_brings_what_every_extra_brings() -> None:
    extras = PROJECT["optional-dependencies"]
    assert set(extras["all"]) == {
        library for name in extras if name not in {"all", "dev"} for library in extras[name]
    }


def test_importing_engram_loads_numpy_and_the_standard_library_alone() -> None:
    code = (
        "import engram\n"
        "tops = {name.partition('.')[0] for name in sys.modules if sys.modules[name]}\n"
        "print(*sorted(tops - sys.stdlib_module_names))\n"
        "above = ('active', 'cli', 'compat', 'demo', 'formats', 'notebook')\n"
        "print(*[name for name in above if f'engram.{name}' in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"],
        capture_output=True,
        check=True,
        text=True,
    )
    others, above = ended.stdout.split("\n")[:2]
    assert set(others.split()) <= {"__main__", "engram", "numpy"}
    assert not above


def test_the_core_works_with_numpy_alone(home: Path) -> None:
    code = """
import sys
import numpy as np
import engram
with engram.create(sys.argv[1], size="16 MiB", force=True) as pool:
    run = pool.create_group("run", attrs={"orbit": 4})
    run["T"] = np.arange(6.0)
    run["names"] = np.array(["a", "long"], dtype=np.dtypes.StringDType())
    with run.allocate("P", shape=(2, 3), dtype="f4") as buf:
        buf[...] = 1
    with pool.batch():
        pool["log"] = b"bytes"
        run.create_array("C", data=np.eye(4), chunks=(2, 2), codec="lz4")
    run["T"].view("r+")[:] += 1
    found = pool.query("orbit = 4 or group.orbit = 4")
    assert "T" in found._repr_html_() + pool._repr_html_()
    engram.export_file(run["T"], sys.argv[2] + ".npy")
    engram.import_file(sys.argv[2] + ".npy", pool.create_group("again"))
    print(run["T"][...].sum(), len(found), pool["log"][...], len(list(pool["again"])))
    pool.tree()
    engram.salvage, engram.verify
"""
    ended = alone(code, home / "p", home / "T")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[0] == "21.0 4 b'bytes' 1"


def test_the_command_without_its_libraries_says_so_in_one_line() -> None:
    ended = alone("from engram.cli import main\nmain(['--help'])")
    assert ended.returncode == engram.UnsupportedError.exit_code
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("engram: the command line needs typer, which is not installed")
    assert line.endswith("pip install 'engram[cli]'")


def test_the_demo_without_its_libraries_says_so_in_one_line() -> None:
    ended = alone("import runpy\nrunpy.run_module('engram.demo', run_name='__main__')")
    assert ended.returncode == engram.UnsupportedError.exit_code
    (line,) = ended.stderr.splitlines()
    assert line.endswith("pip install 'engram[demo]'")


@pytest.mark.parametrize(
    ("name", "content", "extra"),
    [
        ("x.nc", HDF5, "hdf5"),
        ("x.h5", HDF5, "hdf5"),
        ("x.fits", b"SIMPLE  =", "fits"),
        ("x.grib", b"GRIB\0\0\0\x02", "grib"),
    ],
)
def test_a_file_whose_library_is_missing_names_the_extra(
    home: Path, name: str, content: bytes, extra: str
) -> None:
    if name.endswith(".nc"):
        netcdf = pytest.importorskip("netCDF4")
        netcdf.Dataset(home / name, "w").close()
    else:
        (home / name).write_bytes(content)
    said = refused(
        "import sys\n"
        "with engram.create(sys.argv[1], size='16 MiB', force=True) as pool:\n"
        "    engram.import_file(sys.argv[2], pool)\n",
        home / "p",
        home / name,
    )
    assert said.endswith(f"which is not installed: pip install 'engram[{extra}]'"), said
    assert str(home / name) in said


@pytest.mark.parametrize(
    ("name", "extra"), [("x.nc", "hdf5"), ("x.h5", "hdf5"), ("x.zarr", "zarr")]
)
def test_a_file_that_cannot_be_written_names_the_extra(home: Path, name: str, extra: str) -> None:
    said = refused(
        "import sys\n"
        "with engram.create(sys.argv[1], size='16 MiB', force=True) as pool:\n"
        "    pool['a'] = 1.0\n"
        "    engram.export_file(pool, sys.argv[2])\n",
        home / "p",
        home / name,
    )
    assert said.endswith(f"which is not installed: pip install 'engram[{extra}]'"), said
    assert not (home / name).exists()


def test_classic_netcdf_needs_no_library(home: Path) -> None:
    code = (
        "import sys, engram\n"
        "with engram.create(sys.argv[1], size='16 MiB', force=True) as pool:\n"
        "    pool.create_array('a/v', data=[1.5, 2.5], dims=('x',))\n"
        "    engram.export_file(pool['a'], sys.argv[2], format='netcdf3')\n"
        "    engram.import_file(sys.argv[2], pool.create_group('b'))\n"
        "    print(pool['b/v'][...].tolist())\n"
    )
    ended = alone(code, home / "p", home / "x.nc")
    assert ended.stdout.strip() == "[1.5, 2.5]", ended.stderr


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("class Block(engram.ActiveObject):\n    n: int = 0", "active"),
        ("engram.active.gc", ""),
        ("from engram.active.stored.values import references\nreferences(b'1')", "active"),
        ("import engram.compat.dataclay", "active"),
    ],
)
def test_what_needs_a_library_names_the_extra(code: str, extra: str) -> None:
    said = refused(code)
    assert said == "" if not extra else said.endswith(f"pip install 'engram[{extra}]'"), said


@pytest.mark.parametrize(("method", "extra"), [("to_pandas", "pandas"), ("to_arrow", "pyarrow")])
def test_a_result_without_its_library_names_the_extra(home: Path, method: str, extra: str) -> None:
    said = refused(
        "import sys\n"
        "with engram.create(sys.argv[1], size='16 MiB', force=True) as pool:\n"
        f"    pool.query('').{method}()\n",
        home / "p",
    )
    assert f"pip install 'engram[{extra}]'" in said
    assert "r.paths()" in said


@pytest.mark.parametrize(
    "use", ["pool['t'].read()", "pool['t'].append({})", "pool.create_table('u', {'x': [1]})"]
)
def test_a_table_without_pyarrow_names_the_extra(home: Path, use: str) -> None:
    with engram.create(home / "p", size="16 MiB") as pool:
        pool.create_table("t", {"x": [1]})
    said = refused(f"import sys\nwith engram.open(sys.argv[1]) as pool:\n    {use}\n", home / "p")
    assert said.endswith("needs pyarrow, which is not installed: pip install 'engram[pyarrow]'")


@pytest.mark.parametrize(
    ("module", "call", "extra"),
    [
        ("matplotlib", "draw(None, None, 'png', 100)", "plot"),
        ("cftime", "conventions.times(array, np.zeros(1))", "cli"),
    ],
)
def test_a_verb_without_its_library_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, call: str, extra: str
) -> None:
    from engram import conventions  # noqa: PLC0415 - what is tried
    from engram.cli.plot.draw import draw  # noqa: PLC0415 - likewise

    class Array:
        attrs: dict[str, Any] = {"units": "days since 1970-01-01", "calendar": "noleap"}
        dims, dtype = ("x",), np.dtype("f8")

    monkeypatch.setitem(sys.modules, module, None)
    known = {"conventions": conventions, "draw": draw, "array": Array(), "np": np}
    with pytest.raises(engram.UnsupportedError, match=rf"engram\[{extra}\]"):
        eval(call, known)  # noqa: S307 - a table of calls


def test_dir_lists_the_public_names_alone() -> None:
    assert dir(engram) == sorted(engram.__all__)
    assert not [name for name in dir(engram) if name.startswith("_")]
    assert all(hasattr(engram, name) for name in engram.__all__)


def test_what_is_loaded_later_is_public_and_is_there() -> None:
    assert set(later.PUBLIC) <= set(engram.__all__)
    for name in later.PUBLIC:
        assert getattr(engram, name) is later.load(name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = engram.nothing


def test_no_public_signature_has_a_private_parameter() -> None:
    found = []
    for name in engram.__all__:
        thing = getattr(engram, name)
        members = vars(thing).items() if inspect.isclass(thing) else [(name, thing)]
        for inner, member in members:
            if inspect.isroutine(member) and not inner.startswith("_"):
                names = inspect.signature(getattr(thing, inner, thing)).parameters
                found += [f"{name}.{inner}({p})" for p in names if p.startswith("_")]
    assert not found


def test_the_source_distribution_carries_what_its_build_asks_for(tmp_path: Path) -> None:
    maturin = Path(sys.executable).parent / "maturin"
    command = [str(maturin), "sdist", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as held:
        names = {name.partition("/")[2] for name in held.getnames()}
    assert {".cargo/config.toml", "Cargo.lock", "LICENSE", "engine/catalog/build.rs"} <= names
    crates = {str(path.relative_to(ROOT)) for path in ROOT.glob("engine/*/Cargo.toml")}
    assert crates <= names
