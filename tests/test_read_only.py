"""Read-only members: what Python and the command line refuse, and how it is taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from shell import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def changes(pool: engram.Pool) -> dict[str, Callable[[], Any]]:
    """Every way to change `g/x`, or what is in `g`."""
    x = pool["g/x"]
    return {
        "assign": lambda: pool.__setitem__("g/x", 1),
        "slice": lambda: x.__setitem__(0, 1.0),
        "view": lambda: x.view("r+"),
        "overwrite": lambda: pool.create_array("g/x", data=1, overwrite=True),
        "allocate": lambda: pool.allocate("g/x", shape=5000, overwrite=True).__enter__(),
        "delete": lambda: pool.__delitem__("g/x"),
        "delete the group": lambda: pool.__delitem__("g"),
        "move": lambda: pool.move("g/x", "y"),
        "annotate": lambda: x.attrs.__setitem__("k", 2),
        "remove an attribute": lambda: x.attrs.__delitem__("k"),
    }


@pytest.mark.parametrize("small", [True, False])
def test_what_is_read_only_is_not_changed(pool: engram.Pool, *, small: bool) -> None:
    data = np.arange(5 if small else 5000, dtype="f8")
    x = pool.create_array("g/x", data=data, attrs={"k": 1}, read_only=True)
    assert x.read_only
    assert not pool["g"].read_only
    for what, change in changes(pool).items():
        with pytest.raises(engram.ReadOnlyError, match='"g/x" is read-only'):
            pytest.fail(f"{what}: {change()}")
    assert np.array_equal(x[...], data)
    pool["g/y"] = 1
    x.read_only = False
    x[0] = 7
    assert x[0] == 7


def test_a_read_only_group_holds_what_is_below_it(pool: engram.Pool) -> None:
    x = pool.create_array("g/x", data=np.zeros(5000), attrs={"k": 1})
    pool["g"].read_only = True
    assert x.read_only
    for change in changes(pool).values():
        with pytest.raises(engram.ReadOnlyError, match='the group "g" is read-only'):
            change()
    with pytest.raises(engram.ReadOnlyError):
        pool["g/new/array"] = 1
    with pytest.raises(engram.ReadOnlyError):
        pool.require_group("g/new")
    with pytest.raises(engram.ReadOnlyError, match='the group "g"'):
        x.read_only = False
    with pytest.raises(engram.ReadOnlyError), pool.batch():
        pool["g/new"] = 1
    assert list(pool["g"]) == ["x"]
    assert pool.require_group("g") == pool["g"]
    pool["g"].read_only = False
    pool["g/new"] = 1


def test_groups_blobs_and_allocations_are_made_read_only(pool: engram.Pool) -> None:
    g = pool.create_group("g", attrs={"k": 1}, read_only=True)
    assert g.read_only
    assert g.attrs["k"] == 1
    with pytest.raises(engram.ReadOnlyError):
        g["x"] = 1
    b = pool.create_blob("b", b"kept", read_only=True)
    with pytest.raises(engram.ReadOnlyError):
        pool["b"] = b"other"
    assert b[...] == b"kept"
    with pool.allocate("a", shape=5000, read_only=True) as buf:
        buf[...] = 3
    assert pool["a"].read_only
    with pytest.raises(engram.ReadOnlyError):
        pool["a"][0] = 1


def test_protect_on_the_command_line(home: Path) -> None:
    with engram.create(home / "p", size="16 MiB") as pool:
        pool["g/x"] = np.arange(5)
    assert "g is read-only now" in run("protect", home / "p", "g").out
    refused = run("rm", home / "p", "g/x")
    assert refused.code == engram.ReadOnlyError.exit_code
    assert "engram protect" in refused.err
    assert "g may be changed again" in run("protect", home / "p", "g", "--off").out
    assert run("rm", home / "p", "g/x").code == 0
    assert "/ is read-only now" in run("protect", home / "p", "/").out
    assert run("rm", "-r", home / "p", "g").code == engram.ReadOnlyError.exit_code
