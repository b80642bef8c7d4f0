"""Sharing and publishing: what moves stays itself, and is where it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

import engram
from shell import run as shell

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(40_000.0)
ATTRS = {"orbit": 7, "µ": "ß", "vector": np.arange(6, dtype=">i2").reshape(2, 3)}


def filled(pool: engram.Pool, scope: Literal["private", "shared", "published"]) -> engram.Group:
    """Return a group of this scope with a large and a small array and a blob in it."""
    run = pool.create_group("run/deep", attrs=ATTRS, scope=scope)
    run.create_array("large", data=DATA, attrs=ATTRS, dims=("x",))
    run.create_array("small", data=np.float32(4), attrs=ATTRS)
    run.create_blob("bytes", b"abc")
    return run


def told(pool: engram.Pool) -> list[tuple[object, ...]]:
    """Return all that is to stay as it is."""
    found: list[tuple[object, ...]] = []

    def visit(path: str, member: engram.Array | engram.Blob | engram.Group) -> None:
        attrs = {key: np.asarray(value).tolist() for key, value in member.attrs.items()}
        value = None
        if not isinstance(member, engram.Group):
            value = np.asarray(member[...]).tolist()
        found.append((path, member.path, member.owner, member.created, attrs, value))

    pool.visititems(visit)
    return found


def test_members_move_to_and_fro_and_stay_themselves(pool: engram.Pool) -> None:
    """Every way, for a group, an object and what a query finds."""
    run = filled(pool, "private")
    large = run["large"]
    before = told(pool)
    assert pool.share("run") == (3, 2, DATA.nbytes + 4 + 3)
    assert (run.scope, large.scope) == ("shared", "shared")
    assert pool.share("run") == (0, 0, 0), "it is there already"
    assert pool.publish("run/deep/large", closed=True).objects == 1
    assert (large.scope, run["small"].scope) == ("published", "shared")
    assert pool.query("orbit = 7").publish(closed=True).objects == 1
    assert pool.query("orbit = 7").unpublish().objects == 2
    assert pool.query('orbit = 7 and @scope = "shared"').unshare().objects == 2
    assert (large.scope, run["bytes"].scope) == ("private", "shared")
    assert told(pool) == before
    assert large.oid == pool["run/deep/large"].oid
    assert sorted(pool.query("orbit = 7").names()) == ["large", "small"]


def test_what_is_published_is_not_changed(pool: engram.Pool) -> None:
    """Every change is refused, by name."""
    run = filled(pool, "shared")
    pool.publish("run", closed=True)
    view = run["large"].view()
    for change in (
        lambda: run["large"].attrs.update({"a": 1}),
        lambda: run["large"].__setitem__(0, 1.0),
        lambda: run["large"].view("r+"),
        lambda: run.__delitem__("small"),
        lambda: pool.move("run/deep", "elsewhere"),
    ):
        with pytest.raises(engram.ReadOnlyError, match="published"):
            change()
    with pytest.raises(engram.ArgumentError, match="unpublish it first"):
        pool.unshare("run/deep/large")
    with pytest.raises(engram.ArgumentError, match="unpublish it first"):
        pool.unshare("run")
    pool.unpublish("run")
    assert pool.unpublish("run") == (0, 0, 0), "it is shared already"
    run["large"][0] = 5.0
    assert view[0] == 0.0, "a view shows what was"
    assert run["large"][0] == 5.0


def test_what_cannot_move_stays(pool: engram.Pool) -> None:
    """A name that is taken, a batch that runs, what is not there."""
    filled(pool, "private")
    with pytest.raises(engram.NotFoundError):
        pool.share("nothing")
    with pool.batch(), pytest.raises(engram.BusyError, match="batch"):
        pool["run/deep"].attrs["in"] = "a batch"
        pool.share("run")
    assert pool["run"].scope == "private"


def test_all_moves_at_once(pool: engram.Pool) -> None:
    """The root stands for all that is in it."""
    filled(pool, "shared")
    pool["beside"] = DATA
    assert pool.publish("/", closed=True).objects == 4
    assert {pool[name].scope for name in pool} == {"published"}
    assert pool["run"].unpublish("/").objects == 4, "a leading slash is the namespace's root"


def test_the_default_namespace_is_open_to_whom_its_mode_says(home: Path) -> None:
    """It is its owner's alone unless it is made otherwise; the command line says so."""
    for name, more, mode in (("a", [], 0o700), ("b", ["--mode", "755"], 0o755)):
        path = home / name
        shell("create", path, "--size", "64MiB", "--force", *more)
        with engram.open(path) as pool:
            pool["x"] = DATA
            assert pool.namespaces.info("default").mode == mode
        ended = shell("publish", path, "/")
        assert (ended.code == engram.ClosedNamespaceError.exit_code) == (mode == 0o700)
        assert (f"ns {path} default --mode 755" in ended.err) == (mode == 0o700)
        assert shell("publish", path, "/", "--closed").code == 0
        inside = (path / "ns" / "default").stat().st_mode & 0o777
        assert inside == mode
    refused = shell("create", home / "c", "--mode", "rwx")
    assert refused.code != 0
    assert "octal" in refused.err
    with pytest.raises(engram.ArgumentError, match="0o77"):
        engram.create(home / "d", size="64 MiB", force=True, mode=0o77)
    assert not (home / "d").exists()
    with pytest.raises(engram.ArgumentError, match="POSIX mode"):
        engram.create(home / "d", size="64 MiB", force=True, mode="755")  # type: ignore[arg-type]


def test_a_mode_is_changed_and_says_who_reads_what_is_published(home: Path) -> None:
    path = home / "p"
    with engram.create(path, size="64 MiB", force=True) as pool:
        pool["x"] = DATA
        with pytest.raises(engram.ClosedNamespaceError, match=r"mode 700.*--mode 755.*closed=True"):
            pool.publish("x")
        with pytest.raises(engram.ClosedNamespaceError):
            pool.query().publish()
        assert pool["x"].scope == "shared"
        pool.chmod(0o755)
        assert pool.publish("x").objects == 1
        assert pool.namespaces.info("default").mode == 0o755
        with pytest.raises(engram.BusyError, match=r"engram\.chmod"):
            pool.chmod(0o775)
        with pytest.raises(engram.ArgumentError, match="0o757"):
            pool.chmod(0o757)
        pool.create_namespace("more", mode=0o700)
    with engram.open(path, mode="r") as pool, pytest.raises(engram.ReadOnlyError):
        pool.chmod(0o700)
    engram.chmod(path, 0o775)
    assert (path / "ns/default/shared").stat().st_mode & 0o7777 == 0o2770
    ended = shell("ns", path, "more", "--mode", "750")
    assert (ended.code, ended.out) == (0, "namespace more has mode 750 now\n")
    assert "mode exclude each other" in shell("ns", path, "more", "--remove", "--mode", "755").err
    assert "which namespace?" in shell("ns", path, "--mode", "755").err
    assert shell("ns", path, "none", "--mode", "755").code == engram.NotFoundError.exit_code
    assert "750" in shell("ns", path, "more").out
    with pytest.raises(engram.PoolNotFoundError):
        engram.chmod(home / "none", 0o755)
    assert engram.verify(path)


def test_the_command_line_shares(home: Path) -> None:
    """Each verb, by path and by query."""
    pool_path = home / "pool"
    with engram.create(pool_path, size="64 MiB", force=True) as pool:
        filled(pool, "private")
    assert "3 objects in 2 groups" in shell("share", pool_path, "run").out
    assert "nothing has moved" in shell("share", pool_path, "run").out
    assert "2 objects" in shell("publish", pool_path, "--where", "orbit = 7", "--closed").out
    with engram.open(pool_path) as pool:
        assert pool["run/deep/large"].scope == "published"
    shell("unpublish", pool_path, "run/deep/large")
    shell("unshare", pool_path, "run/deep/large")
    with engram.open(pool_path) as pool:
        assert pool["run/deep/large"].scope == "private"
