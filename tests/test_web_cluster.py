"""The web page of a cluster: its names, its arrays in parts, its nodes."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("starlette", reason="engram[web] is not installed")
pytest.importorskip("uvicorn", reason="engram[web] is not installed")

from cluster.rig import Rig, rigged
from engram.cluster import known
from engram.paths import cluster_of
from engram.web import looks
from engram.web.served import ServedCluster
from web_client import Listener, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VALUES = np.arange(24 * 50, dtype="f8").reshape(24, 50)


@pytest.fixture
def rig(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with rigged(home) as rig:
        rig.serve(0)
        rig.serve(1)
        yield rig


def test_a_cluster_is_shown_with_its_members(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = rig.open()
    units = {"units": "K", "scale_factor": 0.5}
    opened.put("run/T", VALUES, parts=(2, 1), dims=["y", "x"], attrs=units)
    opened.put("run/x", np.arange(50.0), dims=["x"], attrs={"units": "m"})
    group = opened.create_group("group", spread="hash", attrs={"title": "spread"})
    for number in range(4):
        group[f"a{number}"] = np.arange(number + 1.0)
    known.write(known.Known("job", rig.etcd))
    with served(monkeypatch, tmp_path, "engram://job") as browser:
        (pool,) = browser.get("api/pools").json["pools"]
        assert (pool["kind"], pool["place"], pool["nodes"]) == ("cluster", "engram://job", 2)
        assert 0 < pool["used"] < pool["size"]
        nodes = browser.of("nodes")["nodes"]
        assert [each["state"] for each in nodes] == ["serving"] * 2
        assert all(0 < each["free"] <= each["size"] for each in nodes)

        roots = {each["name"]: each["kind"] for each in browser.of("members")["members"]}
        assert roots == {"group": "group", "run": "group"}
        page = browser.of("members", path="group", limit=3)
        assert [each["name"] for each in page["members"]] == ["a0", "a1", "a2"]
        rest = browser.of("members", path="group", after=page["after"])
        assert [each["path"] for each in rest["members"]] == ["group/a3"]

        told = browser.of("object", path="run/T")
        assert (told["dtype"], told["shape"], told["dims"]) == ("float64", [24, 50], ["y", "x"])
        assert {part["nodes"][0] for part in told["parts"]} == {each["id"] for each in nodes}
        assert told["coordinates"]["x"]["units"] == "m"
        assert told["coordinates"]["x"]["last"] == 49.0
        assert browser.of("object", path="group")["attrs"] == {"title": "spread"}
        far = browser.of("object", path="group/a3")
        assert (far["kind"], far["shape"], len(far["nodes"])) == ("array", [4], 1)

        cells = browser.get("api/p/0/image", path="run/T", index=":,:", width=5, height=4).cells
        np.testing.assert_allclose(cells, VALUES.reshape(4, 6, 5, 10).mean((1, 3)) * 0.5)
        nearest = browser.get(
            "api/p/0/image", path="run/T", index=":,:", width=5, height=4, reduce="nearest"
        )
        np.testing.assert_allclose(nearest.cells, VALUES[3::6, 5::10] * 0.5)
        line = browser.get("api/p/0/line", path="group/a3", index=":").cells
        np.testing.assert_array_equal(line[1], [0, 1, 2, 3])
        assert browser.of("table", path="group/a1")["rows"] == [["0.0"], ["1.0"]]
        assert browser.of("histogram", path="run/T", bins=2)["counts"] == [600, 600]

        found = browser.of("query", text='units = "K"')
        assert [row["path"] for row in found["rows"]] == ["run/T"]
        assert found["missing"] == {}
        for what in ("space", "index", "active", "stages"):
            assert browser.get(f"api/p/0/{what}").json["error"] == "UnsupportedError"
        assert browser.get("api/p/0/object", path="none").status == 404


def test_new_names_of_a_cluster_arrive(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = rig.open()
    opened.put("run/T", VALUES)
    known.write(known.Known("job", rig.etcd))
    with (
        served(monkeypatch, tmp_path, "engram://job/run") as browser,
        closing(Listener(browser)) as listener,
    ):
        assert listener.next("space")["objects"] == 1
        opened.put("run/U", VALUES)
        opened.put("other", VALUES)
        assert listener.next("change")["names"] == ["U"]
        assert [each["name"] for each in browser.of("members")["members"]] == ["T", "U"]


def test_commits_below_groups_on_this_hosts_node_arrive(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "GROUPS_S", 1e9)
    opened = rig.open()  # of no node: what it stores is committed by the node's process
    own = rig.open(0).node
    group = opened.create_group("group", node=own)
    group["a"] = VALUES
    there = {socket.gethostname(): str(rig.folder / "node0")}
    known.write(known.Known("job", rig.etcd, pools=there))
    with (
        served(monkeypatch, tmp_path, "engram://job") as browser,
        closing(Listener(browser)) as listener,
    ):
        listener.next("space")
        for change in (
            lambda: group.__setitem__("b", VALUES),
            lambda: group["a"].attrs.__setitem__("x", 1),
            lambda: group.__delitem__("b"),
        ):
            change()
            assert listener.next("change") == {"pool": "0", "names": [], "more": 1}
        assert browser.of("object", path="group/a")["attrs"] == {"x": 1}


def test_groups_may_have_changed_and_nothing_else_may(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "NAMES_S", 0.0)
    opened, own = rig.open(), rig.open(0).node
    (other,) = (each.node for each in opened.members if each.node != own)
    opened.put("run/T", VALUES)
    there = {socket.gethostname(): str(rig.folder / "node0")}
    known.write(known.Known("job", rig.etcd, pools=there))
    whole, inside = (
        ServedCluster("0", url)
        for url in map(cluster_of, ("engram://job", "engram://job/far/deep"))
        if url is not None
    )
    with closing(whole), closing(inside):
        all_looks, looks_inside = looks.Looks(whole), looks.Looks(inside)
        opened.create_group("near", node=own)
        assert not all_looks.look().is_any  # what is there at first is no news
        for _ in range(5):  # no node commits anything by itself
            assert not all_looks.look().is_any
            time.sleep(0.1)
        monkeypatch.setattr(looks, "GROUPS_S", 0.0)
        all_looks, looks_inside = looks.Looks(whole), looks.Looks(inside)
        for each in (all_looks, looks_inside):
            each.look()
        assert all_looks.look() == ([], True, False, False)
        assert not looks_inside.look().is_any
        opened.remove("near")
        assert all_looks.look() == (["near"], False, True, True)
        assert not all_looks.look().is_any
        opened.create_group("far", node=other)["deep/a"] = VALUES
        assert all_looks.look() == (["far"], True, True, True)
        for each in (all_looks, looks_inside):
            assert each.look() == ([], True, False, False)
        opened.remove("far")
        for each in (all_looks, looks_inside):
            each.look()
            assert not each.look().is_any
