"""Every error is named, tells the value and the remedy, and is a built-in exception too."""

import errno
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tblib.pickling_support import pickle_exception

import engram
from engram import errors
from engram._engram import kinds

BASES: dict[str, tuple[type[BaseException], ...]] = {
    "NotFoundError": (KeyError,),
    "PoolNotFoundError": (engram.NotFoundError, FileNotFoundError, KeyError),
    "ExistsError": (ValueError,),
    "PoolFullError": (MemoryError,),
    "AccessError": (PermissionError,),
    "ReadOnlyError": (PermissionError,),
    "QueryError": (ValueError,),
    "CorruptError": (),
    "BusyError": (),
    "FormatError": (ValueError,),
    "InvalidNameError": (ValueError,),
    "ArgumentError": (ValueError, TypeError),
    "UnsupportedError": (OSError,),
    "CommitUncertainError": (OSError,),
    "PoolGoneError": (OSError,),
    "ClosedNamespaceError": (PermissionError,),
    "UnverifiedError": (engram.CorruptError,),
}


@pytest.mark.parametrize("name", BASES)
def test_each_error_is_what_it_is_called(name: str) -> None:
    kind = getattr(engram, name)
    assert issubclass(kind, (engram.EngramError, *BASES[name]))
    assert all(issubclass(kind, base) for base in BASES[name])
    error = kind("what, and what to do")
    assert str(error) == "what, and what to do"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    make, given = pickle_exception(error)[:2]  # as Dask's workers send it
    assert type(make(*given)) is kind
    assert str(make(*given)) == str(error)


def test_engrams_own_class_comes_first() -> None:
    for name in BASES:
        assert getattr(engram, name).__mro__.index(engram.EngramError) <= 2


def test_exit_codes_are_the_engines() -> None:
    codes = {name: getattr(engram, name).exit_code for name in BASES}
    assert codes["NotFoundError"] == codes["PoolNotFoundError"] == 10
    del codes["PoolNotFoundError"]
    codes["EngramError"] = engram.EngramError.exit_code
    assert sorted(codes.values()) == list(range(10, 27))


def test_the_conventions_list_each_kind_as_the_engine_has_it() -> None:
    root = Path(__file__).resolve().parents[1]
    page = (root / "docs/c-conventions.md").read_text(encoding="utf-8")
    header = (root / "capi/include/engram.h").read_text(encoding="utf-8")
    row = r"^\| (\d+) \| `(\w+)` \| `\w+` \| `(\w+)` \| `(\w+)` \| (\d+) \|"
    told = re.findall(row, page, re.MULTILINE)
    statuses = dict(re.findall(r"ENGRAM_STATUS_(\w+) = (\d+),", header))
    assert {name: number for number, name, *_ in told} == {
        name: number for name, number in statuses.items() if number != "0"
    }
    assert [(int(number), name, int(code)) for number, _, name, _, code in told] == [
        (number, name, code) for number, name, code, _ in kinds()
    ]
    assert [getattr(errno, name) for *_, name, _ in told] == [number for *_, number in kinds()]
    for name, number in re.findall(r"^\| `(\w+)` \| (\d+), `", page, re.MULTILINE):
        assert getattr(errors, name).exit_code == int(number) + 9


def test_os_errors_have_an_errno() -> None:
    assert errors.AccessError("x").errno == 13
    assert errors.PoolNotFoundError("x").errno == 2
    assert errors.ReadOnlyError("x").errno == 30
    assert errors.CommitUncertainError("x").errno == 5
    assert errors.PoolGoneError("x").errno == 116


# Arguments of a wrong type


WRONG: dict[str, Callable[[engram.Pool, Path], Any]] = {
    "'few'": lambda pool, _: pool.drain_index("few"),  # type: ignore[arg-type]
    "-1": lambda pool, _: pool.drain_index(-1),
    "'3'": lambda pool, _: pool["a"].lock(timeout="3"),
    "scope 1": lambda pool, _: pool.create_group("g", scope=1),  # type: ignore[arg-type]
    "scope 2": lambda pool, _: pool.create_array("x", data=1, scope=2),  # type: ignore[arg-type]
    "scope 3": lambda pool, _: pool.create_blob("x", b"", scope=3),  # type: ignore[arg-type]
    "scope 4": lambda pool, _: pool.require_array("x", 3, scope=4),
    "'no'": lambda p, _: p.create_array("x", data=1, read_only="no"),  # type: ignore[arg-type]
    "'yes'": lambda p, _: p.create_array("x", data=1, overwrite="yes"),  # type: ignore[arg-type]
    "'off'": lambda pool, _: setattr(pool["a"], "read_only", "off"),
    "'on'": lambda pool, _: pool.create_group("g", read_only="on"),  # type: ignore[arg-type]
    "'x'": lambda pool, _: engram.open(pool.path, force="x"),  # type: ignore[arg-type]
    "'y'": lambda _, home: engram.create(home / "q", prefault="y"),  # type: ignore[arg-type]
    "'z'": lambda _, home: engram.create(home / "q", checksums="z"),  # type: ignore[arg-type]
    "5": lambda _, home: engram.create(home / "q", devices=5),  # type: ignore[arg-type]
    "'/tmp'": lambda _, home: engram.create(home / "q", devices="/tmp"),
    "shape None": lambda pool, _: pool.require_array("a", None),  # type: ignore[arg-type]
    "'abc'": lambda pool, _: pool.require_array("a", "abc"),  # type: ignore[arg-type]
    "depth 'deep'": lambda pool, _: pool.tree(depth="deep"),  # type: ignore[arg-type]
    "limit -2": lambda pool, _: pool.tree(limit=-2),
    "visit None": lambda pool, _: pool.visititems(None),  # type: ignore[arg-type]
    "path None": lambda pool, _: engram.import_file(None, pool),  # type: ignore[arg-type]
    "path 7": lambda pool, _: engram.export_file(pool, 7),  # type: ignore[arg-type]
    "limit 'all'": lambda pool, _: pool.query(limit="all"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("value", WRONG)
def test_arguments_of_a_wrong_type_are_told_with_the_value(
    pool: engram.Pool, home: Path, value: str
) -> None:
    pool["a"] = np.arange(3)
    with pytest.raises(engram.ArgumentError, match=re.escape(value)):
        WRONG[value](pool, home)
    assert list(pool) == ["a"]
    assert not (home / "q").exists()


def test_a_relative_path_needs_a_folder_to_start_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(engram.NotFoundError, match="absolute path"):
        engram.open("pool")


def test_what_is_told_of_handles_that_can_do_nothing_is_so(pool: engram.Pool) -> None:
    pool["a"] = 1
    with pool.snapshot() as then:
        with pytest.raises(engram.ReadOnlyError, match="of a snapshot"):
            then.unshare("a")
        with pytest.raises(engram.ReadOnlyError, match="of a snapshot"):
            then.query().publish()
    gone = pool.create_namespace("gone")
    gone["x"] = 1
    pool.remove_namespace("gone")
    with pytest.raises(engram.NotFoundError, match=r'"gone" of .* was removed'):
        list(gone)
    pool.create_namespace("gone")
    with pytest.raises(engram.NotFoundError, match="was removed"):
        list(gone)


def test_an_opening_that_fails_keeps_nothing_open(
    pool: engram.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.close()
    with monkeypatch.context() as patched:
        patched.setattr(engram.Pool, "__init__", lambda _, opening: opening.devices()[9])
        with pytest.raises(IndexError) as kept:
            engram.open(pool.path)
    engram.destroy(pool.path)
    assert kept.value.__traceback__ is not None


# Pools


def test_a_missing_pool_is_a_missing_file(home: Path) -> None:
    for call in (engram.open, engram.destroy, engram.verify):
        with pytest.raises(engram.PoolNotFoundError, match="nowhere") as caught:
            call(home / "nowhere")
        assert isinstance(caught.value, FileNotFoundError)
        assert isinstance(caught.value, engram.NotFoundError)


def test_an_empty_folder_is_as_good_as_none(home: Path) -> None:
    (home / "folder").mkdir()
    with pytest.raises(engram.FormatError, match="engram destroy"):
        engram.open(home / "folder")
    engram.create(home / "folder", size="4 MiB").close()
    engram.destroy(home / "folder")
    (home / "folder").mkdir()
    engram.destroy(home / "folder")
    assert not (home / "folder").exists()


def test_what_is_no_pool_is_told_apart(home: Path) -> None:
    (home / "folder" / "inner").mkdir(parents=True)
    (home / "file.nc").write_bytes(b"CDF\x01")
    for name in ("folder", "file.nc"):
        for call in (engram.open, engram.destroy):
            with pytest.raises(engram.FormatError, match=name):
                call(home / name)
    assert (home / "file.nc").read_bytes() == b"CDF\x01"


def test_a_half_created_pool_is_told_apart(pool: engram.Pool) -> None:
    path = Path(pool.path)
    pool.close()
    (path / "pool.toml").rename(path / "creating.toml")
    for _ in range(2):
        with pytest.raises(engram.FormatError, match="half-created"):
            engram.open(path)
        engram.create(path, size="4 MiB").close()  # made anew
        (path / "pool.toml").rename(path / "creating.toml")
    engram.destroy(path)
    assert not path.exists()


def test_a_newer_pool_is_refused_by_its_version(pool: engram.Pool) -> None:
    path = Path(pool.path)
    pool.close()
    description = path / "pool.toml"
    _checksum, original = description.read_text().split("\n", 1)
    description.write_text(original.replace("format = 7", "format = 99"))
    with pytest.raises(engram.FormatError, match="format 99"):
        engram.open(path)
    description.write_text(original.replace("incompatible = []", 'incompatible = ["sparse"]'))
    with pytest.raises(engram.FormatError, match="sparse"):
        engram.open(path)
    description.write_text(original.replace("read_only = []", 'read_only = ["journal"]'))
    with engram.open(path) as reading:
        assert reading.mode == "r"
    description.write_text("this is [no toml")
    with pytest.raises(engram.EngramError, match=r"pool\.toml"):
        engram.open(path)
    description.write_text(original)
    engram.open(path).close()


def test_a_filesystem_off_the_list_needs_force(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "ramfs", "ramfs", tmp_path], capture_output=True, check=False, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a filesystem here: {mounted.stderr.strip()}")
    try:
        with pytest.raises(engram.UnsupportedError, match="force"):
            engram.create(tmp_path / "pool", size="1 MiB")
        assert list(tmp_path.iterdir()) == []
        # ramfs allocates nothing ahead: whoever forces it is told so, and nothing is left behind.
        with pytest.raises(engram.UnsupportedError):
            engram.create(tmp_path / "pool", size="1 MiB", force=True)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_folder_that_cannot_be_made_is_a_named_error() -> None:
    with pytest.raises(engram.EngramError, match="/proc/pool"):
        engram.create("/proc/pool", size="1 MiB", force=True)


# Reading only


def test_a_write_through_a_reading_pool_is_refused(pool: engram.Pool) -> None:
    pool.create_array("g/small", data=[1, 2], attrs={"a": 1})
    pool["large"] = np.zeros(10_000)
    pool["blob"] = b"123"
    with engram.open(pool.path, "r") as reading:
        for call in _writes(reading):
            with pytest.raises(engram.ReadOnlyError, match=r"r\+"):
                call()
        assert reading["large"].view().sum() == 0
    assert list(pool) == ["blob", "g", "large"]
    assert pool["g/small"][...].tolist() == [1, 2]
    assert dict(pool["g/small"].attrs) == {"a": 1}


def _writes(pool: engram.Pool) -> list[Any]:
    small: Any = pool["g/small"]
    large: Any = pool["large"]
    return [
        lambda: pool.__setitem__("x", 1),
        lambda: pool.create_array("x", data=np.zeros(10_000)),
        lambda: pool.create_array("x", data=np.zeros((100, 200)).T),
        lambda: pool.create_array("x", shape=3),
        lambda: pool.create_blob("x", b""),
        lambda: pool.create_group("h"),
        lambda: pool.allocate("x", shape=3).__enter__(),
        lambda: pool.scratch(3),
        lambda: pool.__delitem__("large"),
        lambda: pool.move("large", "x"),
        lambda: pool.resize("1 GiB"),
        lambda: pool.create_namespace("n"),
        lambda: pool.remove_namespace("n"),
        lambda: pool.add_device("/tmp"),
        lambda: pool.batch().__enter__(),
        lambda: small.__setitem__(0, 5),
        lambda: large.__setitem__(0, 5),
        lambda: large.view("r+"),
        lambda: small.view("r+"),
        large.flush,
        lambda: small.attrs.__setitem__("a", 2),
        lambda: small.attrs.__delitem__("a"),
    ]


# Corruption


def test_verify_finds_nothing_wrong_with_a_sound_pool(pool: engram.Pool) -> None:
    pool["g/x"] = np.zeros(10_000)
    pool["g/x"].attrs["a"] = 1
    report = engram.verify(pool.path)
    assert report
    assert report.problems == []
    assert (report.counts["objects"], report.counts["groups"]) == (1, 2)
    assert report.counts["extents"] == 1
    report.check()


def test_a_damaged_catalog_is_corruption_not_a_crash(pool: engram.Pool) -> None:
    for n in range(2000):
        pool[f"x{n}"] = np.full(20, n)
    path = pool.path
    pool.close()
    (catalog,) = Path(path).rglob("data.mdb")
    with catalog.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * (60 * 4096))
    report = engram.verify(path)
    assert not report
    with pytest.raises(engram.CorruptError):
        report.check()


def test_a_missing_span_is_corruption(pool: engram.Pool) -> None:
    pool["x"] = np.zeros(10_000)
    path = pool.path
    pool.close()
    spans = list(Path(path).rglob("span-*"))
    assert spans
    for span in spans:
        span.unlink()
    with pytest.raises(engram.EngramError):
        engram.open(path)["x"][...]
    assert engram.verify(path).problems


# Users


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_another_user_is_refused_by_the_kernel(pool: engram.Pool, home: Path) -> None:
    pool["x"] = np.zeros(10_000)
    home.chmod(0o755)
    code = (
        "import sys, os, engram, engram.errors\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try:\n"
        "    engram.open(sys.argv[1], 'r')\n"
        "except engram.AccessError as error:\n"
        "    print(type(error).__name__, str(error))\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, pool.path], capture_output=True, check=False, text=True
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.startswith("AccessError")
    assert pool["x"][0] == 0
