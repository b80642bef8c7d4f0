"""Namespaces are parts of a pool with owner, mode and size of their own."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import engram
from shell import run


def test_a_namespace_is_a_root_of_its_own(pool: engram.Pool) -> None:
    ns = pool.create_namespace("icesat")
    ns["x"] = [1, 2]
    pool["x"] = [3]
    assert (ns.name, ns.path, ns.namespace) == ("icesat", "", "icesat")
    assert pool.namespaces["icesat"] == ns
    assert pool.namespaces["icesat"]["x"][...].tolist() == [1, 2]
    assert pool["x"][...].tolist() == [3]
    assert ns["x"].namespace == "icesat"
    assert ns["x"] != pool["x"]
    assert ns != pool
    assert ns["/x"] == ns["x"]
    assert "icesat" in repr(ns)


def test_a_pool_is_the_root_of_its_default_namespace(pool: engram.Pool) -> None:
    pool["x"] = 1
    assert pool.namespaces["default"] == pool
    assert list(pool.namespaces["default"]) == ["x"]


def test_namespaces_are_a_mapping(pool: engram.Pool) -> None:
    pool.create_namespace("b")
    pool.create_namespace("a")
    assert list(pool.namespaces) == ["a", "b", "default"]
    assert len(pool.namespaces) == 3
    assert "a" in pool.namespaces
    assert "c" not in pool.namespaces
    assert "'a', 'b', 'default'" in repr(pool.namespaces)
    with pytest.raises(engram.NotFoundError):
        pool.namespaces["c"]
    with pytest.raises(engram.NotFoundError):
        pool.namespaces.info("c")


def test_a_namespace_has_owner_group_and_mode(pool: engram.Pool) -> None:
    pool.create_namespace("mine", mode=0o700)
    pool.create_namespace("ours", mode=0o770)
    pool.create_namespace("by default")
    mine, ours = pool.namespaces.info("mine"), pool.namespaces.info("ours")
    assert (mine.owner, mine.mode) == (os.getuid(), 0o700)
    assert (ours.owner, ours.group, ours.mode) == (os.getuid(), os.getgid(), 0o770)
    assert pool.namespaces.info("by default").mode == 0o770


def test_the_files_have_the_modes_that_protect_them(pool: engram.Pool) -> None:
    pool.create_namespace("mine", mode=0o700)["x"] = np.zeros(100_000)
    pool.create_namespace("ours", mode=0o770)["x"] = np.zeros(100_000)
    for name, others in (("mine", 0o077), ("ours", 0o007)):
        shared = Path(pool.path, "ns", name, "shared")
        files = [shared, *shared.rglob("*")]
        assert len(files) > 5
        for file in files:
            assert stat.S_IMODE(file.stat().st_mode) & others == 0, file


@pytest.mark.parametrize("mode", [-1, 0o1777, 0o777000, 0o000, 0o070, 0o777, 0o707, 0o702])
def test_a_mode_that_no_namespace_can_have_is_refused(pool: engram.Pool, mode: int) -> None:
    with pytest.raises((engram.ArgumentError, OverflowError)):
        pool.create_namespace("x", mode=mode)
    assert list(pool.namespaces) == ["default"]


def test_a_mode_that_lets_all_others_write_is_refused_with_what_to_do(pool: engram.Pool) -> None:
    with pytest.raises(engram.ArgumentError, match=r"0o777 lets all others write.*give 0o775"):
        pool.create_namespace("x", mode=0o777)


def test_a_namespace_of_a_mode_that_is_refused_by_now_is_backed_up(
    pool: engram.Pool, home: Path
) -> None:
    pool.create_namespace("x", mode=0o775)["y"] = np.arange(3)
    file = Path(pool.path, "ns", "x", "namespace.toml")
    _checksum, text = file.read_text().split("\n", 1)
    file.write_text(text.replace(f"mode = {0o775}", f"mode = {0o777}"))
    pool.backup(home / "copy", force=True)
    with engram.open(home / "copy") as copy:
        assert copy.namespaces["x"]["y"][2] == 2


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "nul\0", "x" * 256], ids=ascii)
def test_bad_names_are_refused(pool: engram.Pool, name: str) -> None:
    with pytest.raises(engram.InvalidNameError):
        pool.create_namespace(name)
    with pytest.raises(engram.EngramError):
        pool.namespaces[name]
    with pytest.raises(engram.EngramError):
        pool.remove_namespace(name)
    assert list(pool.namespaces) == ["default"]


def test_a_taken_name_is_refused(pool: engram.Pool) -> None:
    pool.create_namespace("x")["y"] = 1
    with pytest.raises(engram.ExistsError):
        pool.create_namespace("x")
    with pytest.raises(engram.ExistsError):
        pool.create_namespace("default")
    assert list(pool.namespaces["x"]) == ["y"]


def test_an_unknown_group_is_refused(pool: engram.Pool) -> None:
    with pytest.raises(engram.EngramError, match="no-such-group"):
        pool.create_namespace("x", mode=0o770, group="no-such-group")
    assert list(pool.namespaces) == ["default"]


def test_a_namespace_has_a_size_of_its_own(pool: engram.Pool) -> None:
    ns = pool.create_namespace("small", size="4 MiB")
    assert ns.size == 4 << 20
    with pytest.raises(engram.PoolFullError):
        ns["x"] = np.zeros(1 << 20)
    pool["x"] = np.zeros(1 << 20)
    ns.resize("16 MiB")
    ns["x"] = np.zeros(1 << 20)
    assert ns.used >= 8 << 20


def test_removing_a_namespace_removes_all_in_it(pool: engram.Pool) -> None:
    ns = pool.create_namespace("x")
    ns["y"] = np.zeros(100_000)
    pool.remove_namespace("x")
    assert list(pool.namespaces) == ["default"]
    with pytest.raises(engram.EngramError):
        ns["z"] = 1
    with pytest.raises(engram.NotFoundError):
        pool.remove_namespace("x")
    assert list(pool.create_namespace("x")) == []


def test_a_namespace_in_use_is_not_removed(pool: engram.Pool) -> None:
    ns = pool.create_namespace("x")
    ns["y"] = np.ones(100_000)
    with engram.open(pool.path) as other:
        assert list(other.namespaces["x"]) == ["y"]
        with pytest.raises(engram.BusyError):
            pool.remove_namespace("x")
    ns["z"] = 1
    assert list(ns) == ["y", "z"]


def test_views_outlive_their_namespace(pool: engram.Pool) -> None:
    ns = pool.create_namespace("x")
    ns["y"] = np.ones(100_000)
    view = ns["y"].view()
    pool.remove_namespace("x")
    assert list(pool.namespaces) == ["default"]
    again = pool.create_namespace("x")
    again["y"] = np.zeros(100_000)
    assert view.sum() == 100_000
    del view
    assert again["y"][...].sum() == 0


def test_what_is_private_can_be_removed_by_its_user(pool: engram.Pool, home: Path) -> None:
    for name in ("default", "x"):
        part = pool if name == "default" else pool.create_namespace(name)
        part["kept"] = np.ones(100_000)
        part.create_array("own", data=np.zeros(100_000), scope="private")
        view = part["own"].view()
        if name == "default":
            pool.remove_private()
        else:
            pool.remove_private(name)
        assert (list(part), view.sum()) == (["kept"], 0)
        part.create_array("own", data=np.ones(3), scope="private")
        assert part["own"][...].sum() == 3
    with engram.open(pool.path) as other, pytest.raises(engram.BusyError):
        assert list(other) == ["kept", "own"]
        pool.remove_private()
    assert list(pool) == ["kept", "own"]
    pool.close()
    words = ["ns", pool.path, "x", "--remove-private"]
    assert "--yes" in run(*words).err
    assert run(*words, "--yes").out == "removed all that you keep in private in namespace x\n"
    ended = run(*words, "--yes")
    assert (ended.code, "has no private realm" in ended.err) == (10, True)
    assert "exclude each other" in run(*words, "--remove").err
    assert [path.name for path in home.rglob("private/*")] == [str(os.getuid())] * 2


def test_the_default_namespace_stays(pool: engram.Pool) -> None:
    with pytest.raises(engram.EngramError):
        pool.remove_namespace("default")
    pool["x"] = 1


def test_scratch_and_batches_are_a_namespaces_own(pool: engram.Pool) -> None:
    ns = pool.create_namespace("x")
    assert ns.scratch(10).shape == (10,)
    with ns.batch():
        ns["y"] = 1
    assert list(ns) == ["y"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_members_of_a_group_grow_their_namespace_by_turns(pool: engram.Pool, home: Path) -> None:
    home.chmod(0o755)
    pool.create_namespace("proj", mode=0o770, group=2000)
    code = (
        "import os, sys, engram, numpy as np\n"
        "os.setgroups([]); os.setgid(2000); os.setuid(int(sys.argv[2])); os.umask(0o022)\n"
        "with engram.open(sys.argv[1]) as pool:\n"
        "    proj = pool.namespaces['proj']\n"
        "    proj[sys.argv[3]] = np.ones(3_000_000)\n"
        "    assert all(a.view().sum() == 3_000_000 for a in proj.values())\n"
    )
    for name, user in enumerate(["1001", "1002", "1001"]):
        child = subprocess.run(
            [sys.executable, "-c", code, pool.path, user, str(name)],
            capture_output=True,
            check=False,
            text=True,
        )
        assert child.returncode == 0, child.stderr
    assert sorted(pool.namespaces["proj"]) == ["0", "1", "2"]
    assert not engram.verify(pool.path).problems


def test_an_object_is_found_by_its_oid_wherever_it_lies(pool: engram.Pool) -> None:
    pool["run/T"] = [1, 2]
    pool.create_array("run/chunked", data=np.arange(10), chunks=5)
    pool.create_blob("run/log", b"x")
    before = [pool["run"][name] for name in ("T", "chunked", "log")]
    pool.move("run", "archive/ö")
    for each in before:
        found = pool.by_oid(each.oid)
        assert (found, type(found)) == (each, type(each))
        assert found.path == f"archive/ö/{each.name}"
    assert pool.by_oid(np.uint64(before[0].oid))[...].tolist() == [1, 2]
    oid = before[0].oid
    with pool.snapshot() as then:
        del pool["archive/ö/T"]
        assert then.by_oid(oid)[...].tolist() == [1, 2]
    with pytest.raises(engram.NotFoundError, match=f"{oid:#x}"):
        pool.by_oid(oid)


def test_what_has_no_oid_here_is_not_found(pool: engram.Pool) -> None:
    ns = pool.create_namespace("other")
    ns["x"] = 1
    assert ns.by_oid(ns["x"].oid) == ns["x"]
    for oid in (ns["x"].oid, pool.create_group("g")._id, 0, 2**64 - 1):
        said = rf"'default' has the OID {oid:#x}: .*`pool\.namespaces\[NAME\]\.by_oid\(oid\)`"
        with pytest.raises(engram.NotFoundError, match=said):
            pool.by_oid(oid)
    for wrong in (-1, 2**64, 1.0, "7", None, True, np.bool_(False)):
        with pytest.raises(engram.ArgumentError, match="is no OID"):
            pool.by_oid(wrong)  # type: ignore[arg-type]
