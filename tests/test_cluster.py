"""Clusters on one host: processes that serve node pools, an etcd of the test's own, and users."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest

import engram
from cluster.gateway import Gateway
from cluster.rig import TTL_S, Rig, rigged, wait_for
from engram import cluster as clusters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with rigged(home) as rig:
        yield rig


VALUES = np.arange(300 * 40, dtype="f8").reshape(300, 40)


def test_what_is_put_is_read_everywhere_as_numpy_would(rig: Rig) -> None:
    for number in range(3):
        rig.serve(number)
    here, elsewhere = rig.open(0), rig.open()
    attrs = {"units": "K", "n": np.float32(3), "levels": np.arange(3), "names": ["a", "ü"]}
    put = here.put("run/T", VALUES, dims=("y", "x"), attrs=attrs)
    assert len(put.parts) == 3
    assert len(put.holders()) == 3
    for array in (put, elsewhere["run/T"], pickle.loads(pickle.dumps(put))):
        assert (array.shape, array.dtype, array.dims) == (VALUES.shape, VALUES.dtype, ("y", "x"))
        for key in (
            ...,
            5,
            -1,
            (slice(90, 210), 3),
            (slice(250, 10, -7), slice(None, None, 3)),
            (Ellipsis, 7),
            [1, 250, 3],
            (slice(10, 10),),
            VALUES[:, 0] > 5000,
        ):
            np.testing.assert_array_equal(array[key], VALUES[key])
        assert array.attrs.keys() == attrs.keys()
        assert array.attrs["units"] == "K"
        assert array.attrs["n"].dtype == np.float32
        assert array.attrs["names"].tolist() == ["a", "ü"]
    assert elsewhere.names() == elsewhere.names("run") == ["run/T"]
    assert "run/T" in elsewhere
    assert "run" not in elsewhere
    with pytest.raises(IndexError):
        put[300]


def test_a_view_is_the_memory_of_this_hosts_pool_or_says_where_it_is(rig: Rig) -> None:
    for number in range(2):
        rig.serve(number)
    here = rig.open(1)
    array = here.put("T", VALUES, parts=(4, 1))
    own, other = array.local_parts()[0], next(p for p in array.parts if p.node != here.node)
    view = array.view(own.box)
    np.testing.assert_array_equal(view, VALUES[own.box.slices])
    assert not view.flags.writeable
    assert not view.flags.owndata
    rows = slice(own.box.offsets[0] + 3, own.box.offsets[0] + 9)
    np.testing.assert_array_equal(array.view((rows, slice(1, 3))), VALUES[rows, 1:3])
    with pytest.raises(engram.ArgumentError, match=rf"part {other.number} on \S+ has it"):
        array.view(other.box)
    with pytest.raises(engram.ArgumentError, match=r"lies in the parts \[0, 1, 2, 3\]"):
        array.view()
    with pytest.raises(engram.ArgumentError, match="no steps"):
        array.view((slice(0, 10, 2),))
    here.put("T", VALUES + 1)
    np.testing.assert_array_equal(view, VALUES[own.box.slices])  # it stays as it was


def test_daskss_arrays_go_in_and_out(rig: Rig) -> None:
    for number in range(2):
        rig.serve(number)
    here = rig.open(0)
    source = da.from_array(VALUES, chunks=(70, 15))
    array = here.from_dask("U", source * 2, attrs={"a": 1})
    assert len(array.parts) == source.npartitions
    np.testing.assert_array_equal(array[...], VALUES * 2)
    lazy = array.dask()
    assert lazy.chunks == source.chunks
    np.testing.assert_array_equal((lazy + 1).compute(), VALUES * 2 + 1)


def test_names_are_replaced_and_removed_as_a_whole(rig: Rig) -> None:
    rig.serve(0)
    here = rig.open(0)
    first = here.put("T", VALUES)
    second = here.put("T", VALUES[:10].astype("i2"), parts=(2, 2))
    assert second.generation > first.generation
    assert here["T"].dtype == np.int16
    np.testing.assert_array_equal(second[...], VALUES[:10].astype("i2"))
    here.remove("T")
    with pytest.raises(engram.NotFoundError, match=r"there is no .T."):
        here["T"]
    with pytest.raises(engram.NotFoundError, match=r"there is no .T."):
        here.remove("T")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda c: c[""], "is no name"),
        (lambda c: c["a//b"], "is no name"),
        (lambda c: c["../b"], "is no name"),
        (lambda c: c[5], "is no name"),
        (lambda c: c.put("T", VALUES, parts=(0, 1)), "into how many"),
        (lambda c: c.put("T", VALUES, parts=(1,)), "into how many"),
        (lambda c: c.put("T", VALUES, dims=("x",)), "name 1 of 2"),
        (lambda c: c.put("T", [None]), "cannot be an array's over nodes"),
        (lambda c: c.put("T", VALUES, attrs={"a": object()}), "attribute 'a'"),
        (lambda _: clusters.open("no/name"), "cannot be a cluster's name"),
    ],
)
def test_what_cannot_be_is_refused_by_its_value(rig: Rig, change: Any, match: str) -> None:
    rig.serve(0)
    opened = rig.open(0)
    with pytest.raises(engram.ArgumentError, match=match):
        change(opened)
    assert opened.names() == []


def test_a_process_that_dies_is_followed_by_another_as_the_same_member(rig: Rig) -> None:
    first = rig.serve(0)
    second = rig.serve(0)
    user = rig.open()
    user.put("T", VALUES)
    (before,) = user.members
    first.kill()
    first.wait()

    def reads() -> bool:
        with contextlib.suppress(engram.NodeAwayError):
            return bool((user["T"][...] == VALUES).all())
        return False

    wait_for(reads)
    (after,) = user.members
    assert (after.id, after.node, after.state) == (before.id, before.node, "serving")
    assert second.poll() is None


def test_a_node_whose_only_process_died_is_away_and_then_lost_with_its_memory(rig: Rig) -> None:
    gone, _ = rig.serve(0), rig.serve(1)
    user = rig.open()
    array = user.put("T", VALUES)
    gone.kill()
    gone.wait()
    with pytest.raises(engram.NodeAwayError, match="try again later"):
        array[...]
    away = wait_for(lambda: [m for m in struck(user) if m.state == "away"])
    assert len(away) == 1
    there = next(part for part in array.parts if part.node != away[0].node)
    np.testing.assert_array_equal(array[there.box.slices], VALUES[there.box.slices])
    # It comes back with what it had.
    rig.serve(0)
    wait_for(lambda: not isinstance(tried(array), engram.NodeAwayError))
    np.testing.assert_array_equal(array[...], VALUES)


def test_a_node_that_reaches_etcd_no_more_is_in_the_way_of_nothing_that_is_made(rig: Rig) -> None:
    rig.serve(0)
    etcd = rig.etcd
    with Gateway(etcd[0], "job") as way:
        rig.etcd = [way.address]
        rig.serve(1)
        rig.etcd = etcd
        user = rig.open(0)
        assert len(user.put("T", VALUES).holders()) == 2

    def puts() -> bool:
        with contextlib.suppress(engram.NodeAwayError):
            return len(user.put("T", VALUES + 1).holders()) == 1
        return False

    # It answers that it is no member, and nobody reads anything there.
    wait_for(puts)
    assert sorted(each.state for each in user.members) == ["away", "serving"]
    np.testing.assert_array_equal(user["T"][...], VALUES + 1)


def struck(user: clusters.Cluster) -> list[clusters.Member]:
    """Give the members, after a read had a look at those that do not answer."""
    with contextlib.suppress(engram.EngramError):
        user["T"][...]
    return user.members


def tried(array: clusters.ClusterArray) -> object:
    try:
        return array[...]
    except engram.EngramError as error:
        return error


def test_a_lease_is_renewed_while_the_interpreter_is_busy(rig: Rig) -> None:
    # A function of C's that is called with the interpreter's lock held, for two leases.
    busy = f"import ctypes; ctypes.PyDLL(None).sleep({int(2 * TTL_S)}); print('woke', flush=True)"
    process = rig.serve(0, more=busy)
    user = rig.open()
    (before,) = user.members
    begun = time.monotonic()
    array = user.put("T", VALUES)
    while time.monotonic() - begun < 1.5 * TTL_S:
        np.testing.assert_array_equal(array[...], VALUES)
        time.sleep(0.1)
    (after,) = user.members
    assert (after.id, after.state) == (before.id, "serving")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "woke"


def test_a_node_that_is_full_says_so_and_is_no_less_there(rig: Rig) -> None:
    rig.serve(0)
    beside = rig.open()
    before = beside.members
    with pytest.raises(engram.PoolFullError):
        beside.put("T", np.zeros(100 << 20, "u1"))
    assert beside.members == before
    assert beside.names() == []
    beside.put("T", VALUES)


def test_without_a_node_or_an_etcd_errors_say_what_to_do(rig: Rig) -> None:
    opened = rig.open()
    with pytest.raises(engram.NodeAwayError, match="start one"):
        opened.put("T", VALUES)
    with pytest.raises(engram.ArgumentError, match="no node of the cluster"):
        opened.pool.path  # noqa: B018 - it is refused
    with pytest.raises(engram.NotFoundError, match="nothing is known here"):
        clusters.open("other")
    with pytest.raises(engram.CoordinatorError, match=r"no etcd answers at 127\.0\.0\.1:9"):
        clusters.open("job", etcd=["127.0.0.1:9"])


def test_one_node_loads_nothing_of_clusters() -> None:
    code = (
        "import sys, engram, engram.active, engram.formats\n"
        "print([m for m in sys.modules if m.startswith('engram.cluster') or m == 'dask'])"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "[]"
