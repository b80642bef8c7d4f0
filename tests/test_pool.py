"""Pools: creating, opening, growing, closing, destroying, devices and sizes."""

import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engram
from engram import size
from support import assert_exactly, in_child


def test_arrays_outlive_their_program(home: Path) -> None:
    path = home / "pool"
    in_child(
        "import sys, engram, numpy as np\n"
        "pool = engram.create(sys.argv[1], size='64 MiB', force=True)\n"
        "pool.create_array('g/x', data=np.arange(100_000), attrs={'unit': 'K'})\n",
        path,
    )
    with engram.open(path) as pool:
        assert_exactly(pool["g/x"][...], np.arange(100_000))
        assert pool["g/x"].attrs["unit"] == "K"


def test_a_pool_tells_of_itself(pool: engram.Pool) -> None:
    assert Path(pool.path).is_dir()
    assert pool.size == 256 << 20
    assert pool.used == 0
    assert pool.mode == "r+"
    assert pool.durability in {"process", "system"}
    assert len(pool.uuid) == 32
    (device,) = pool.devices
    assert (device.index, str(device.path)) == (0, pool.path)
    assert device.free > 0
    if device.medium == "memory":
        assert device.filesystem == "tmpfs"
    else:
        assert device.medium in {"page cache", "persistent memory, MAP_SYNC"}
        assert device.durable
    assert pool.path in repr(pool)
    assert "256 MiB" in repr(pool)
    pool["x"] = np.zeros(100_000)
    assert pool.used >= 800_000
    space = pool.space
    assert space.used + space.free + space.pending == space.arena <= space.size
    assert os.getpid() in space.pids


def test_what_nobody_else_may_read_has_no_mode_for_them(pool: engram.Pool) -> None:
    pool["x"] = np.zeros(100_000)
    shared = Path(pool.path, "ns", "default", "shared")
    for file in (shared, *shared.rglob("*")):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_no_pool_is_made_in_the_folder_of_another(pool: engram.Pool) -> None:
    for inner in ("inner", "ns/inner"):
        with pytest.raises(engram.ArgumentError, match="in the folder of the pool") as raised:
            engram.create(Path(pool.path, inner), size="64 MiB", force=True)
        assert str(Path(pool.path, inner)) in str(raised.value)
        assert not Path(pool.path, inner).exists()


def test_reading_and_writing_are_modes(pool: engram.Pool) -> None:
    pool["x"] = [1, 2]
    with engram.open(pool.path, "r") as reading:
        assert reading.mode == "r"
        assert reading["x"][...].tolist() == [1, 2]
        pool["y"] = 3
        assert reading["y"][()] == 3
    for mode in ("w", "a", "", "rb"):
        with pytest.raises(engram.ArgumentError, match="r\\+"):
            engram.open(pool.path, mode)


def test_a_closed_pool_ends_its_handles(pool: engram.Pool) -> None:
    array = pool.create_array("g/x", data=np.arange(10_000))
    blob = pool.create_blob("b", b"123")
    group, attrs, ns = pool["g"], array.attrs, pool.create_namespace("n")
    copied = array[...]
    pool.close()
    pool.close()
    assert not pool
    for call in _calls(pool, group, array, blob, attrs, ns):
        with pytest.raises(engram.ArgumentError, match="closed"):
            call()
    for handle in (pool, group, array, blob, ns):
        assert "closed" in repr(handle)
    assert array.shape == (10_000,)
    assert_exactly(copied, np.arange(10_000))


def _calls(  # noqa: PLR0917 - one of each
    pool: Any, group: Any, array: Any, blob: Any, attrs: Any, ns: Any
) -> list[Any]:
    return [
        lambda: pool["g"],
        lambda: pool.__setitem__("y", 1),
        lambda: list(pool),
        lambda: len(pool),
        lambda: "g" in pool,
        lambda: pool.get("g"),
        lambda: pool.size,
        lambda: pool.used,
        lambda: pool.devices,
        lambda: pool.resize("1 GiB"),
        lambda: pool.add_device("/tmp"),
        lambda: list(pool.namespaces),
        lambda: pool.namespaces["n"],
        lambda: pool.create_namespace("m"),
        lambda: pool.remove_namespace("n"),
        lambda: pool.scratch(10),
        lambda: pool.batch().__enter__(),
        lambda: pool.visititems(print),
        lambda: group.create_array("y", data=1),
        lambda: group.create_group("h"),
        lambda: group.move("x", "y"),
        lambda: group.__delitem__("x"),
        lambda: group.allocate("y", shape=3).__enter__(),
        lambda: group.path,
        lambda: array[...],
        lambda: array[0],
        lambda: array.__setitem__(0, 1),
        array.view,
        lambda: array.view("r+"),
        array.flush,
        lambda: array.created,
        lambda: np.asarray(array),
        lambda: blob[...],
        lambda: attrs["a"],
        lambda: attrs.__setitem__("a", 1),
        lambda: list(attrs),
        lambda: ns["x"],
    ]


def test_one_closing_does_not_end_the_others(pool: engram.Pool) -> None:
    pool["x"] = 1
    other = engram.open(pool.path)
    handle = other["x"]
    other.close()
    assert pool["x"][()] == 1
    with pytest.raises(engram.ArgumentError):
        handle[()]


def test_a_pool_is_found_by_any_path_to_it(
    pool: engram.Pool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool["x"] = 1
    (home / "link").symlink_to(pool.path)
    monkeypatch.chdir(home)
    for path in ("pool", "./pool/", home / "link", f"{pool.path}/../pool"):
        with engram.open(path) as again:
            assert again["x"] == pool["x"]


def test_an_unpickled_handle_shares_an_open_pool(pool: engram.Pool) -> None:
    pool["x"] = np.arange(10_000)
    again = pickle.loads(pickle.dumps(pool["x"]))
    assert np.shares_memory(again.view(), pool["x"].view())
    pool.close()
    with pytest.raises(engram.ArgumentError):
        again[0]


def test_a_handle_unpickles_in_a_process_that_has_no_pool_open(pool: engram.Pool) -> None:
    pool.create_namespace("n")["g/x"] = [1, 2, 3]
    dumped = pickle.dumps(pool.namespaces["n"]["g/x"])
    code = (
        "import sys, pickle, engram\n"
        "a = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "b = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "print(a.path, a[...].sum(), a == b, a.namespace)\n"
    )
    assert in_child(code, dumped.hex()) == "g/x 6 True n"


@pytest.mark.parametrize("is_another_there", [False, True])
def test_what_was_pickled_on_another_host_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, is_another_there: bool
) -> None:
    path = home / "pool"
    with engram.create(path, size="16 MiB") as pool:
        pool["g/x"] = [1, 2, 3]
        with monkeypatch.context() as patch:
            patch.setattr(os, "uname", lambda: SimpleNamespace(nodename="h9"))
            dumped = [pickle.dumps(each) for each in (pool, pool["g"], pool["g/x"])]
    for each in dumped:  # where the pool is, the host is no matter
        assert pickle.loads(each)
    engram.destroy(path)
    if is_another_there:
        engram.create(path, size="16 MiB").close()
    for each in dumped:
        says = rf"lies in the pool '{path}' of the host 'h9', which is not on this one, .*cluster\["
        with pytest.raises(engram.NotFoundError, match=says):
            pickle.loads(each)


def test_what_was_pickled_is_not_looked_for_in_another_pool(home: Path) -> None:
    path, other = str(home / "pool"), str(home / "other")
    with engram.create(path, size="16 MiB") as pool:
        pool["g/x"] = [1, 2, 3]
        dumped = [pickle.dumps(each).hex() for each in (pool, pool["g"], pool["g/x"])]
        pool.backup(other)
        uuids = [pool.uuid, engram.open(other, "r").uuid]
    Path(path).rename(home / "away")
    Path(other).rename(path)
    code = (
        "import sys, pickle, engram\n"
        "for dumped in sys.argv[3:]:\n"
        "    try:\n"
        "        print(pickle.loads(bytes.fromhex(dumped)))\n"
        "    except engram.NotFoundError as error:\n"
        "        print(all(uuid in str(error) for uuid in sys.argv[1:3]))\n"
    )
    assert in_child(code, *uuids, *dumped).split() == ["True"] * 3
    Path(path).rename(other)
    (home / "away").rename(path)
    assert in_child(code, *uuids, dumped[2]).startswith("<engram.Array")


# Creating and destroying


def test_a_taken_path_is_refused(pool: engram.Pool, home: Path) -> None:
    pool["x"] = 1
    with pytest.raises(engram.ExistsError):
        engram.create(pool.path, size="1 MiB", force=True)
    (home / "file").write_text("hello")
    with pytest.raises(engram.EngramError):
        engram.create(home / "file", size="1 MiB", force=True)
    (home / "folder").mkdir()
    (home / "folder" / "mine").write_text("hello")
    with pytest.raises(engram.ExistsError):
        engram.create(home / "folder", size="1 MiB", force=True)
    assert (home / "folder" / "mine").read_text() == "hello"
    assert pool["x"][()] == 1


@pytest.mark.parametrize("bad", [0, -1, "0", "", "many", "4 XiB", 2**63, 2.5, None, "1e9"])
def test_a_size_that_cannot_be_is_refused(home: Path, bad: Any) -> None:
    with pytest.raises(engram.ArgumentError, match="size"):
        engram.create(home / "pool", size=bad, force=True)
    assert not (home / "pool").exists()


def test_an_unknown_durability_is_refused(home: Path) -> None:
    with pytest.raises(engram.ArgumentError, match="process"):
        engram.create(home / "pool", durability="forever", force=True)
    assert not (home / "pool").exists()


def test_destroying_removes_everything(pool: engram.Pool, home: Path) -> None:
    pool["x"] = np.zeros(100_000)
    path = pool.path
    with pytest.raises(engram.BusyError, match=str(os.getpid())):
        engram.destroy(path)
    assert pool["x"][0] == 0
    pool.close()
    engram.destroy(path)
    assert list(home.iterdir()) == []
    with pytest.raises(engram.NotFoundError):
        engram.destroy(path)
    engram.create(path, size="1 MiB", force=True).close()


def test_what_is_no_pool_is_not_destroyed(home: Path) -> None:
    (home / "mine").write_text("hello")
    with pytest.raises(engram.FormatError):
        engram.destroy(home)
    assert (home / "mine").read_text() == "hello"


def test_destroying_lets_go_of_what_unpickled_handles_opened(pool: engram.Pool) -> None:
    path = pool.path
    dumped = pickle.dumps(pool.create_array("x", data=1))
    pool.close()
    assert pickle.loads(dumped)[()] == 1
    engram.destroy(path)


def test_prefault_takes_all_space_now(home: Path) -> None:
    with engram.create(home / "pool", size="8 MiB", prefault=True, force=True) as pool:
        assert pool.space.arena == 8 << 20
        pool["x"] = np.zeros((6 << 20) // 8)


# Space


def test_a_full_pool_refuses_and_deleting_makes_room(home: Path) -> None:
    with engram.create(home / "pool", size="16 MiB", force=True) as pool:
        pool["x"] = np.zeros((10 << 20) // 8)
        for call in (
            lambda: pool.create_array("y", data=np.zeros((10 << 20) // 8)),
            lambda: pool.create_array("y", shape=(10 << 20,), dtype="u1"),
            lambda: pool.allocate("y", shape=(10 << 20,), dtype="u1").__enter__(),
            lambda: pool.scratch((10 << 20,), "u1"),
            lambda: pool.create_blob("y", bytes(10 << 20)),
            lambda: pool.__setitem__("x", np.ones((10 << 20) // 8)),
        ):
            with pytest.raises(engram.PoolFullError, match=r"resize|delete|size"):
                call()
            assert list(pool) == ["x"]
            assert not pool["x"][...].any()
        pool["small"] = 1
        del pool["x"]
        pool["y"] = np.zeros((10 << 20) // 8)
        pool.resize("64 MiB")
        pool["z"] = np.zeros((40 << 20) // 8)


def test_resizing_below_what_is_there_is_refused(pool: engram.Pool) -> None:
    pool["x"] = np.zeros((32 << 20) // 8)
    with pytest.raises(engram.EngramError):
        pool.resize("2 MiB")
    assert pool.size == 256 << 20
    assert pool["x"][0] == 0


def test_space_of_the_dead_comes_back(pool: engram.Pool) -> None:
    before = pool.space
    code = (
        "import sys, os, signal, engram\n"
        "pool = engram.open(sys.argv[1])\n"
        "buf = pool.allocate('x', shape=(8 << 20,), dtype='u1').__enter__()\n"
        "scratch = pool.scratch((8 << 20,), 'u1')\n"
        "print(pool.space.pending)\n"
        "sys.stdout.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, pool.path], check=False, capture_output=True, text=True
    )
    assert child.returncode == -9, child.stderr
    assert int(child.stdout) >= 16 << 20
    pool.resize("32 MiB")
    pool["y"] = np.zeros(20 << 20, "u1")
    assert pool.space.pending == before.pending
    assert list(pool) == ["y"]


# Devices


def test_an_array_may_be_larger_than_a_device_has(home: Path) -> None:
    (home / "second").mkdir()
    with engram.create(home / "pool", size="64 MiB", devices=[home / "second"], force=True) as pool:
        assert [str(device.path) for device in pool.devices] == [pool.path, str(home / "second")]
        pool["x"] = np.arange((48 << 20) // 8)
        assert_exactly(pool["x"].view(), np.arange((48 << 20) // 8))
        with engram.open(pool.path, "r") as other:
            assert_exactly(other["x"].view(), np.arange((48 << 20) // 8))


def test_a_device_is_named_by_index_or_path(home: Path) -> None:
    (home / "second").mkdir()
    with engram.create(home / "pool", size="64 MiB", force=True) as pool:
        pool.add_device(home / "second", force=True)
        before = _bytes_in(home / "second")
        pool.create_array("x", shape=(8 << 20,), dtype="u1", device=1)
        pool.create_array("y", shape=(8 << 20,), dtype="u1", device=home / "second")
        assert _bytes_in(home / "second") >= before + (16 << 20)
        pool.create_array("z", shape=(8 << 20,), dtype="u1", device=str(pool.path))
        with pytest.raises(engram.ArgumentError, match="second"):
            pool.create_array("w", shape=1, device=2)
        with pytest.raises(engram.EngramError):
            pool.add_device(home / "second", force=True)
        with pytest.raises(engram.EngramError):
            pool.add_device(home / "nowhere", force=True)
        assert len(pool.devices) == 2


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_a_missing_device_is_named(home: Path) -> None:
    (home / "second").mkdir()
    engram.create(home / "pool", size="4 MiB", devices=[home / "second"], force=True).close()
    (home / "second").rename(home / "elsewhere")
    with pytest.raises(engram.NotFoundError, match="second"):
        engram.open(home / "pool", force=True)
    (home / "elsewhere").rename(home / "second")
    engram.open(home / "pool", force=True).close()


# Sizes


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("4 GiB", 4 << 30),
        ("4GiB", 4 << 30),
        ("512 mib", 512 << 20),
        ("1.5 TiB", 3 << 39),
        ("1 GB", 10**9),
        ("2kB", 2000),
        ("4096", 4096),
        ("4096 B", 4096),
        ("8 bytes", 8),
        (" 1 G ", 10**9),
        ("0.1 KiB", 102),
        (123, 123),
        (np.int64(5), 5),
    ],
)
def test_sizes_are_read_as_people_write_them(text: Any, nbytes: int) -> None:
    assert size.parse(text) == nbytes


@pytest.mark.parametrize("text", ["", "GiB", "4 GiX", "-1", "4,5 GB", "1 2", "9 EiB", 2**63, -1])
def test_other_sizes_are_refused(text: Any) -> None:
    with pytest.raises(engram.ArgumentError, match="size"):
        size.parse(text)


@pytest.mark.parametrize("given", ["9" * 1200, "x" * 5000, 10**2000, 10**5000], ids=lambda _: "")
def test_a_long_size_is_told_in_short(given: Any) -> None:
    with pytest.raises(engram.ArgumentError, match="size") as refused:
        size.parse(given)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (4 << 30, "4 GiB")],
)
def test_sizes_are_written_as_people_read_them(nbytes: int, text: str) -> None:
    assert size.human(nbytes) == text


@given(st.integers(0, 2**62))
def test_a_size_that_is_written_reads_as_nearly_itself(nbytes: int) -> None:
    assert size.parse(size.human(nbytes)) == pytest.approx(nbytes, rel=0.06)


def test_destroying_gives_the_memory_back_while_the_closed_pool_is_named(home: Path) -> None:
    pool = engram.create(home / "large", size="128 MiB", force=True)
    pool["x"] = np.ones(8_000_000)
    view = pool["x"].view()
    pool.close()
    free = os.statvfs(home).f_bfree
    engram.destroy(home / "large")
    assert view.sum() == 8_000_000
    del view
    came_back = (os.statvfs(home).f_bfree - free) * os.statvfs(home).f_frsize
    assert came_back > 32 << 20
    assert not pool


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_what_root_adds_to_anothers_pool_stays_the_others(home: Path) -> None:
    home.chmod(0o777)
    code = "import os, sys, engram, numpy as np; os.setgid(1001); os.setuid(1001)\n"
    make = code + "engram.create(sys.argv[1], size='64 MiB', force=True).close()"
    use = code + "with engram.open(sys.argv[1]) as pool: pool['y'] = pool['x'][...] + 1"
    path = str(home / "theirs")
    subprocess.run([sys.executable, "-c", make, path], check=True)
    with engram.open(path, force=True) as pool:
        pool["x"] = np.ones(1_000_000)
        subprocess.run([sys.executable, "-c", use, path], check=True)
        assert pool["y"].view()[0] == 2
