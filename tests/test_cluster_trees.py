"""Groups of a cluster whose members lie on one node or are spread over several, and queries."""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest

import engram
from cluster.rig import Rig, end, rigged, wait_for
from engram.cluster import ClusterGroup, queries
from engram.cluster.natives import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engram import cluster as clusters

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with rigged(home) as rig:
        yield rig


def node_of(rig: Rig, number: int) -> str:
    told = native.node_of(rig.folder / f"node{number}")
    assert told is not None
    return told[1]


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, bytes):
        assert bytes(found[:]) == expected
        return
    array = np.asarray(expected)
    got = np.asarray(found[...])
    assert got.shape == array.shape
    if array.dtype.kind != "U" or got.dtype == array.dtype:
        assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)


VALUES: dict[str, Any] = {
    "numbers": np.arange(12.0).reshape(3, 4),
    "large": np.arange(300_000, dtype="<i4").reshape(600, 500),
    "none": np.zeros((0, 3), "f4"),
    "one": np.float32(7.5),
    "times": np.array(["2026-01-01", "NaT"], "M8[s]"),
    "turned": np.arange(6, dtype=">i2"),
    "fields": np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")]),
    "texts": np.array(["a", "größe", ""], np.dtypes.StringDType()),
    "bytes": b"some bytes",
    "no bytes": b"",
    "more bytes": bytes(range(256)) * 1000,
    "deep/er/a": np.arange(3),
}


@pytest.mark.parametrize("spread", ["node", "hash"])
def test_values_come_back_from_wherever_they_lie(rig: Rig, spread: Any) -> None:
    for number in range(3):
        rig.serve(number)
    writer, reader, beside = rig.open(0), rig.open(1), rig.open()
    group = writer.create_group("run/objects", spread=spread)
    assert len(group.nodes) == (1 if spread == "node" else 3)
    for name, value in VALUES.items():
        group[name] = value
    names = sorted({name.partition("/")[0] for name in VALUES}, key=str.encode)
    for opened in (writer, reader, beside):
        found = opened["run/objects"]
        assert list(found) == names
        assert len(found) == len(names)
        for name, value in VALUES.items():
            same(found[name], value)
            same(opened[f"run/objects/{name}"], value)
            assert name in found
            assert f"run/objects/{name}" in opened
        assert list(found["deep/er"]) == ["a"]
        assert list(found["deep"]) == ["er"]
        assert "other" not in found
        with pytest.raises(engram.NotFoundError, match="other"):
            found["other"]
        again = pickle.loads(pickle.dumps(found["numbers"]))
        same(again, VALUES["numbers"])
    del reader["run/objects/numbers"]
    assert "numbers" not in group
    with pytest.raises(engram.NotFoundError, match="numbers"):
        del beside["run/objects/numbers"]
    beside["run/objects/numbers"] = np.ones(2)
    same(group["numbers"], np.ones(2))


def test_what_lies_here_is_the_pools_own_memory(rig: Rig) -> None:
    rig.serve(0)
    rig.serve(1)
    here, there = rig.open(0), rig.open(1)
    group = here.create_group("mine")
    group["a"] = np.arange(100_000.0)
    own = group["a"]
    assert isinstance(own, engram.Array)
    assert here.pool["mine/a"] == own
    own[3] = -1.0
    far = there["mine/a"]
    assert far[3] == -1.0
    far[10:20] = np.full(10, 5.0)
    far[0] = 9.0
    assert own[0] == 9.0
    assert own[10:20].tolist() == [5.0] * 10
    assert group.local == here.pool["mine"]
    with pytest.raises(engram.ArgumentError, match="mine"):
        there["mine"].local  # noqa: B018 - that it cannot be had is the test
    with pytest.raises(engram.ArgumentError, match="boxes"):
        far[::2] = 1.0


def test_boxes_of_what_lies_elsewhere_are_read_as_numpy_would(rig: Rig) -> None:
    rig.serve(0)
    rig.serve(1)
    here, there = rig.open(0), rig.open(1)
    values = np.arange(60 * 70 * 30, dtype="<u4").reshape(60, 70, 30)
    group = here.create_group("mine")
    group["a"] = values
    here.pool["mine"].create_array("pieces", data=values, chunks=(16, 16, 16))
    draw = random.Random(7)  # noqa: S311 - the same keys each time
    for name in ("a", "pieces"):
        far = there[f"mine/{name}"]
        assert (far.shape, far.dtype, far.ndim, len(far)) == (values.shape, values.dtype, 3, 60)
        for _ in range(40):
            key = tuple(
                draw.choice(
                    [
                        draw.randrange(-length, length),
                        slice(
                            draw.randrange(length),
                            draw.randrange(length),
                            draw.choice([None, 1, 3]),
                        ),
                        slice(None, None, -1),
                    ]
                )
                for length in values.shape[: draw.randrange(4)]
            )
            np.testing.assert_array_equal(far[key], values[key])
    blob = bytes(range(256)) * 999
    group["b"] = blob
    far = there["mine/b"]
    assert len(far) == len(blob)
    assert far[1000:250_000] == blob[1000:250_000]
    assert far[::-5] == blob[::-5]


def test_attributes_are_set_and_removed_over_the_network(rig: Rig) -> None:
    rig.serve(0)
    rig.serve(1)
    here, there = rig.open(0), rig.open(1)
    group = here.create_group("mine", attrs={"what": "tests"})
    assert there["mine"].attrs["what"] == "tests"
    there["mine"].put("a", np.arange(3), dims=["x"], attrs={"unit": "K", "n": 3, "v": [1.5, 2.5]})
    assert group["a"].dims == ("x",)
    assert group["a"].attrs["unit"] == "K"
    far = there["mine/a"]
    assert far.dims == ("x",)
    assert far.attrs["n"] == 3
    far.attrs["late"] = "yes"
    del far.attrs["unit"]
    assert dict(group["a"].attrs) | {"v": None} == {"n": 3, "v": None, "late": "yes"}
    assert group["a"].attrs["v"].tolist() == [1.5, 2.5]
    assert set(there["mine/a"].attrs) == {"n", "v", "late"}
    with pytest.raises(KeyError):
        del far.attrs["unit"]
    with pytest.raises(engram.ExistsError):
        there["mine"].put("a", np.arange(4), exist_ok=False)


def test_names_above_and_below_a_group_are_refused(rig: Rig) -> None:
    rig.serve(0)
    cluster = rig.open(0)
    cluster.put("run/T", np.arange(4.0))
    cluster.create_group("mine")
    for name in ("run", "run/T", "mine", "mine/below"):
        with pytest.raises(engram.ExistsError, match=r"run|mine"):
            cluster.create_group(name)
    assert cluster.create_group("mine", exist_ok=True).path == "mine"
    cluster.pool["taken"] = np.arange(3)
    with pytest.raises(engram.ExistsError, match="taken"):
        cluster.create_group("taken")
    with pytest.raises(engram.ArgumentError, match="wide"):
        cluster.create_group("x", spread="wide")  # type: ignore[arg-type]
    with pytest.raises(engram.NodeAwayError, match="elsewhere"):
        cluster.create_group("x", node="elsewhere")


def test_a_group_that_is_removed_and_made_anew_is_another_one(rig: Rig) -> None:
    rig.serve(0)
    rig.serve(1)
    here, there = rig.open(0), rig.open(1)
    for spread in ("node", "hash", "node"):
        group = here.create_group("mine", spread=spread)
        assert list(group) == []
        group["a"] = np.arange(3)
        far = there["mine"]
        assert list(far) == ["a"]
        here.remove("mine")
        assert "mine" not in there
        with pytest.raises(engram.NotFoundError):
            there["mine/a"]
    # Who has the former one is not given what has its name now.
    again = here.create_group("mine")
    again["b"] = np.arange(2)
    assert "b" not in far
    assert list(there["mine"]) == ["b"]


def test_a_node_that_comes_back_has_its_groups(rig: Rig) -> None:
    first = rig.serve(0)
    rig.serve(1)
    there = rig.open(1)
    group = there.create_group("kept", node=node_of(rig, 0))
    group["a"] = np.arange(5)
    end(first)
    with pytest.raises(engram.BusyError):
        group["a"]
    rig.serve(0)
    wait_for(lambda: list(group) == ["a"])
    same(group["a"], np.arange(5))


def filled(rig: Rig) -> tuple[clusters.Cluster, list[dict[str, Any]]]:
    """Give a cluster of three nodes with objects in both kinds of groups, and arrays."""
    for number in range(3):
        rig.serve(number)
    cluster = rig.open(0)
    spread = cluster.create_group("orbits", spread="hash")
    mine = cluster.create_group("run/mine")
    elsewhere = cluster.create_group("run/far", node=node_of(rig, 2))
    draw, told = random.Random(11), []  # noqa: S311 - the same objects each time
    for number in range(90):
        group = (spread, mine, elsewhere)[number % 3]
        attrs: dict[str, Any] = {"n": number, "kind": draw.choice("abc")}
        attrs["t"] = draw.choice([draw.random(), draw.randrange(-4, 4), float("nan")])
        if number % 7 == 0:
            del attrs["t"]
        group.put(f"o{number:02}", np.arange(number % 5), attrs=attrs)
        told.append({"path": f"{group.path}/o{number:02}", "shape": (number % 5,), **attrs})
    for number in range(5):
        attrs = {"n": 1000 + number, "kind": "a", "t": number / 5}
        cluster.put(f"run/array{number}", np.zeros((4, 6)), parts=(2, 2), attrs=attrs)
        told.append({"path": f"run/array{number}", "shape": (4, 6), **attrs})
    return cluster, told


@pytest.mark.filterwarnings("ignore:no indexed object has:engram.EngramWarning")
def test_a_query_finds_what_lies_on_all_nodes_in_one_order(rig: Rig) -> None:
    cluster, told = filled(rig)
    single = engram.create(rig.folder / "single", "64 MiB")
    for each in told:
        own: dict[str, Any] = {key: each[key] for key in ("n", "kind", "t") if key in each}
        single.create_array(each["path"], data=np.zeros(each["shape"]), attrs=own)
    cases: list[tuple[str | None, Any, int | None]] = [
        (None, "n", None),
        ("kind = 'a'", "n", 10),
        ("t < 0.5", "t", None),
        ("kind != 'b'", ["t desc", "n"], 20),
        (None, ["kind", "t", "n desc"], None),
        ("under('run/far')", "n", None),
        ("@path like 'orbits/%'", "@path", 7),
        ("@ndim = 2", "@name desc", None),
        ("n >= 1000 or n < 3", "n", None),
        ("missing > 1", "n", None),
        (None, "n", 0),
    ]
    for expr, order_by, limit in cases:
        hits = cluster.query(expr, order_by=order_by, limit=limit)
        alone = single.query(expr, order_by=order_by, limit=limit)
        # What ties is in no order over nodes: then the order has another key here.
        expected = list(alone.paths())
        if order_by == "t":
            assert sorted(hits.paths()) == sorted(expected)
            expected = hits.paths()
        assert hits.paths() == expected, (expr, order_by, limit)
        assert hits.missing == {}
    later = cluster.query("n >= :least order by n limit 5 offset 3", params={"least": 2})
    assert later.paths() == single.query("n >= 2", order_by="n", limit=5, offset=3).paths()
    assert (
        cluster.query(None, order_by="n", offset=4).paths()
        == (single.query(order_by="n").paths()[4:])
    )
    with pytest.raises(engram.QueryError, match="a cluster's query finds objects"):
        cluster.query("count() group by kind")
    by_path = {each["path"]: each for each in told}
    for hit in cluster.query("n < 20"):
        each = by_path[hit.path]
        assert (hit.attrs["n"], hit.shape) == (each["n"], each["shape"])
    assert [found.shape for found in cluster.query("n = 4 or n = 1002").objects()]
    below = cluster["orbits"].query("n < 30", order_by="n")
    assert below.paths() == [f"orbits/o{number:02}" for number in range(0, 30, 3)]
    with pytest.raises(engram.QueryError):
        cluster.query("n <")


def test_what_is_replaced_while_a_query_runs_is_found(rig: Rig) -> None:
    for number in range(2):
        rig.serve(number)
    here, there = rig.open(0), rig.open(1)
    group = here.create_group("busy")
    names = [f"busy/o{number}" for number in range(8)]
    ends = threading.Event()

    def replace() -> None:
        count = 0
        while not ends.is_set():
            count += 1
            group.put(f"o{count % 8}", np.arange(3), attrs={"n": count})
            ends.wait(0.001)  # a query is slower than what replaces without a pause

    for name in names:
        here[name] = np.arange(3)
        here[name].attrs["n"] = 0
    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        for _ in range(300):
            assert sorted(there.query("n >= 0").paths()) == names
            assert len(there.query("n >= 0", order_by="n desc", limit=5)) == 5
    finally:
        ends.set()
        replacing.join()


def test_nodes_that_do_not_answer_a_query_are_named(rig: Rig) -> None:
    cluster, told = filled(rig)
    gone = node_of(rig, 2)
    end(rig.processes[2])
    with pytest.raises(engram.PartialResultError, match=rf"{gone}: .*it has .*'run/far'"):
        cluster.query("n >= 0")
    hits = cluster.query("n >= 0", partial=True)
    assert set(hits.missing) == {gone}
    rest = [each["path"] for each in told if not each["path"].startswith("run/far")]
    assert 0 < len(hits) <= len(rest)
    assert set(hits.paths()) <= set(rest)


def test_a_group_that_goes_while_it_is_asked_is_not_missing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.serve(0, kept=0.1)
    cluster = rig.open(0)
    for name in ("stays", "goes"):
        cluster.create_group(name)["a"] = np.arange(3)
        cluster[name]["a"].attrs["n"] = 0
    stale = [queries._names(cluster)]
    ((node, member),) = stale[0][1]
    uuid = stale[0][1][node, member]["goes"]
    del cluster["goes"]

    def is_freed() -> bool:
        try:
            native.query_node(cluster._native, node, member, "n >= 0", [uuid], True)
        except engram.NotFoundError:
            return True
        return False

    wait_for(is_freed)
    look = queries._names
    monkeypatch.setattr(queries, "_names", lambda of: stale.pop() if stale else look(of))
    assert cluster.query("n >= 0").paths() == ["stays/a"]
    assert stale == []


def test_an_array_over_nodes_cannot_lie_below_a_group(rig: Rig) -> None:
    rig.serve(0)
    cluster = rig.open(0)
    cluster.create_group("run/g")
    values = np.arange(4.0)
    blocks = da.from_array(values, chunks=2)
    makers: list[Callable[[str], Any]] = [
        lambda name: cluster.put(name, values),
        lambda name: cluster.create_array(name, (4,)),
        lambda name: cluster.from_dask(name, blocks),
    ]
    for make in makers:
        for name in ("run/g/x", "run/g/deep/er/x"):
            with pytest.raises(engram.ExistsError, match=r"below the group .run/g."):
                make(name)
    with pytest.raises(engram.ExistsError, match="run/g"), cluster.batch() as batch:
        batch.put("beside", values)
        batch.put("run/g/x", values)
    assert list(cluster.names()) == ["run/g"]
    with pytest.raises(engram.NotFoundError, match="no 'run/g/x' in the cluster"):
        cluster.remove("run/g/x")
    cluster["run/g/x"] = values
    np.testing.assert_array_equal(cluster["run/g/x"][...], values)
    # As many names as one transaction takes, each far down.
    with cluster.batch() as batch:
        for n in range(100):
            batch.put(f"run/{n}/" + "/".join("abcdefgh") + f"/{n}", values)
    assert len(cluster.names("run/")) == 101


def test_two_who_make_one_group_have_one(rig: Rig) -> None:
    for number in range(2):
        rig.serve(number)
    both = [rig.open(0), rig.open(1)]
    for step in range(5):
        names = [f"group{step}/{who}" for who in range(2)]
        made = [each.create_group(f"group{step}", exist_ok=True) for each in both]
        for who, group in enumerate(made):
            with contextlib.suppress(engram.BusyError):
                group[str(who)] = np.arange(who + 1)
        assert all(name in both[0] for name in names)


def test_a_group_that_another_thread_has_forgotten_is_no_error(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zarr looks several names up at once, most of which are not there."""
    rig.serve(0)
    c = rig.open(0)
    c.create_group("g")["there"] = np.arange(3.0)
    assert float(c["g/there"][2]) == 2.0
    look = ClusterGroup.__getitem__

    def looked(group: ClusterGroup, name: str) -> Any:
        c._trees.clear()  # as another thread does that has found nothing
        return look(group, name)

    monkeypatch.setattr(ClusterGroup, "__getitem__", looked)
    with pytest.raises(engram.NotFoundError, match="not"):
        c["g/not"]
    assert float(c["g/there"][2]) == 2.0
