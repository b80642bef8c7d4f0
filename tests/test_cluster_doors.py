"""The doors to a cluster: the command line, fsspec, Zarr, xarray, notebooks, and verifying it."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import typing
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import engram
from cluster.rig import Rig, rigged, wait_for
from documents import blocks, run
from engram import cluster as clusters
from engram.cluster.boxes import raw_of
from engram.cluster.natives import native
from engram.cluster.operating import opened as of_no_node
from engram.paths import ClusterPath
from engram.zarr import ClusterStore

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("own_state")
VALUES = np.arange(240 * 50, dtype="f8").reshape(240, 50)
PARTS = ".cluster/parts"


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with rigged(home) as rig:
        yield rig
        fsspec.filesystem("engram", cluster="job").close()


def said(*words: str, code: int = 0, given: bytes | None = None) -> str:
    """Run the command line; give what it printed, or, where it fails, its message."""
    command = [sys.executable, "-m", "engram", *words]
    told = subprocess.run(command, capture_output=True, input=given, check=False)
    assert told.returncode == code, (told.returncode, told.stdout, told.stderr)
    return (told.stderr if code not in {0, 4} else told.stdout).decode()


def filled(rig: Rig, nodes: int = 2) -> clusters.Cluster:
    """Give a cluster that has arrays in parts, and groups of both kinds."""
    for number in range(nodes):
        rig.serve(number)
    opened = rig.open(0)
    opened.put("run/T", VALUES, parts=(4, 1), dims=("y", "x"), attrs={"units": "K"})
    opened.put("run/y", np.arange(240.0), dims=("y",))
    group = opened.create_group("orbits", spread="hash", attrs={"title": "all"})
    for number in range(6):
        group.put(f"o{number}", np.full(3, number, "i4"), attrs={"n": number})
    group["deep/notes"] = b"some words"
    opened.create_group("mine")["a"] = np.arange(5.0)
    return opened


def test_who_opened_before_a_node_came_reads_what_lies_on_it(rig: Rig) -> None:
    rig.serve(0)
    early = rig.open()
    assert len(early.members) == 1
    rig.serve(1)
    group = rig.open(0).create_group("late", spread="hash")
    for number in range(8):
        group[f"n{number}"] = np.full(2, number)
    assert list(early["late"]) == [f"n{number}" for number in range(8)]
    assert early["late/n5"][0] == 5


# The command line


def test_every_look_of_the_command_line_takes_a_clusters_name(rig: Rig) -> None:
    opened = filled(rig)
    assert said("ls", "engram://job").split() == ["mine/", "orbits/", "run/"]
    assert said("ls", "engram://job", "run").split() == ["T", "y"]
    assert said("ls", "engram://job/run").split() == ["T", "y"]
    assert said("ls", "engram://job", "orbits/deep").split() == ["notes"]
    every = said("ls", "-r", "engram://job").split()
    assert {"run/T", "orbits/o3", "orbits/deep/notes", "mine/a"} <= set(every)
    (line,) = [row for row in said("ls", "-l", "engram://job/run").splitlines() if " T" in row]
    assert line.split()[:4] == ["array", "float64", "240", "x"]
    told = {each["path"]: each for each in json.loads(said("ls", "-r", "--json", "engram://job"))}
    assert told["run/T"]["parts"] == 4
    assert sorted(told["run/T"]["nodes"]) == sorted(opened["run/T"].holders())
    assert told["run/T"]["sealed"] is True
    assert told["orbits"]["spread"] == "hash"
    assert told["orbits/o3"]["dtype"] == "int32"
    assert told["orbits/deep/notes"]["kind"] == "blob"
    tree = said("tree", "engram://job")
    assert "T  float64  (y: 240, x: 50)  in 4 parts" in tree
    assert "notes  blob" in tree
    one = json.loads(said("tree", "engram://job", "--depth", "1", "--limit", "2", "--json"))
    assert [each["name"] for each in one["below"]] == ["mine", "orbits"]
    assert (one["left_out"], one["below"][1]["members"], one["below"][1]["below"]) == (1, 7, [])
    assert "there is no 'no/such'" in said("ls", "engram://job", "no/such", code=10)


def test_info_shows_nodes_boxes_and_holders(rig: Rig) -> None:
    opened = filled(rig)
    whole = said("info", "engram://job")
    for member in opened.members:
        assert member.node in whole
        assert member.path in whole
    told = json.loads(said("info", "engram://job", "--json"))
    assert told["epoch"] == opened.epoch
    assert {each["state"] for each in told["members"]} == {"serving"}
    array = said("info", "engram://job", "run/T")
    assert "[60:120, 0:50]" in array
    assert "units" in array
    told = json.loads(said("info", "engram://job/run", "T", "--json"))
    assert [box["offsets"] for box in told["boxes"]] == [[0, 0], [60, 0], [120, 0], [180, 0]]
    assert told["boxes"][0]["nodes"] == list(opened["run/T"].parts[0].nodes)
    assert told["attributes"] == {"units": "K"}
    assert told["first_values"][:2] == [0.0, 1.0]
    told = json.loads(said("info", "engram://job", "orbits", "--json"))
    assert told["attributes"] == {"title": "all"}
    assert len(told["nodes"]) == 2
    stats = json.loads(said("stats", "engram://job", "--json"))
    assert (stats["arrays"], stats["blobs"], stats["groups"]) == (9, 1, 4)
    held = {each["node"]: each["holds"] for each in stats["nodes"]}
    assert sum(held.values()) == VALUES.nbytes + 240 * 8 + 6 * 12 + 10 + 40
    assert all(each["space"] is not None for each in stats["nodes"])
    assert stats["largest"][0] == {"path": "run/T", "nbytes": VALUES.nbytes}
    assert "free" in said("stats", "engram://job")


def test_values_go_in_and_out_of_a_cluster(rig: Rig, tmp_path: Path) -> None:
    opened = filled(rig)
    file = tmp_path / "T.npy"
    said("get", "engram://job", "run/T", str(file))
    np.testing.assert_array_equal(np.load(file), VALUES)
    assert "in 2 parts" in said("put", "engram://job", "new/U", str(file), "--dims", "y,x")
    np.testing.assert_array_equal(opened["new/U"][...], VALUES)
    assert opened["new/U"].dims == ("y", "x")
    assert "exists; add --overwrite" in said("put", "engram://job", "new/U", str(file), code=11)
    said("put", "engram://job", "new/U", str(file), "--overwrite")
    said("put", "engram://job", "orbits/big", str(file))
    np.testing.assert_array_equal(opened["orbits/big"][...], VALUES)
    assert "exists" in said("put", "engram://job", "orbits/big", str(file), code=11)
    said("put", "engram://job/orbits", "log", "-", "--blob", given=b"began")
    assert said("get", "engram://job", "orbits/log", "-") == "began"
    told = said("put", "engram://job", "log", "-", "--blob", given=b"began", code=20)
    assert "bytes lie below a group" in told
    assert "is a group" in said("get", "engram://job", "orbits", code=20)
    assert "whole cluster" in said("get", "engram://job", "/", code=20)


def test_names_are_removed_together_and_groups_with_r_alone(rig: Rig) -> None:
    opened = filled(rig)
    assert "there is no" in said("rm", "engram://job", "run/y", "run/absent", code=10)
    assert "run/y" in opened
    assert "add -r" in said("rm", "engram://job", "run", code=20)
    assert "add -r" in said("rm", "engram://job", "orbits", code=20)
    said("rm", "engram://job", "orbits/o1", "run/y")
    assert opened.names() == ["mine", "orbits", "run/T"]
    assert "orbits/o1" not in opened
    said("rm", "-r", "engram://job", "run", "orbits")
    assert opened.names() == ["mine"]


def test_a_query_says_which_nodes_are_missing(rig: Rig) -> None:
    opened = filled(rig)
    paths = said("query", "engram://job", "n > 3", "--paths", "--order-by", "n desc").split()
    assert paths == ["orbits/o5", "orbits/o4"]
    assert said("query", "engram://job", 'units = "K"', "--paths").split() == ["run/T"]
    assert said("query", "engram://job", "n < 9", "--below", "orbits", "--count").strip() == "6"
    assert said("query", "engram://job/run", "--count").strip() == "2"
    told = json.loads(said("query", "engram://job", "n = 2", "--json"))
    assert told[0]["path"] == "orbits/o2"
    assert told[0]["node"] == opened["orbits"].home("orbits/o2")
    assert "orbits/o2" in said("query", "engram://job", "n = 2")
    assert "^" in said("query", "engram://job", "n <", code=15)
    assert "--explain says nothing" in said("query", "engram://job", "n=1", "--explain", code=20)
    pool = str(rig.folder / "node0")
    assert "is one pool" in said("query", pool, "n = 1", "--partial", code=20)
    rig.processes[1].kill()
    rig.processes[1].wait()
    home = opened["orbits"].home
    there = [f"orbits/o{n}" for n in range(6) if home(f"orbits/o{n}") == opened.node]
    assert "have not answered" in said("query", "engram://job", "n >= 0", code=17)
    found = said("query", "engram://job", "n >= 0", "--partial", "--paths", code=4).split()
    assert found == there
    assert clusters.open("job").query("n >= 0", partial=True).missing.keys() == {
        each.node for each in opened.members if each.node != opened.node
    }


def test_an_array_is_sealed_by_publish(rig: Rig) -> None:
    opened = filled(rig)
    opened.create_array("run/U", (4, 3))
    assert "sealed" in said("publish", "engram://job", "run/U")
    assert opened["run/U"].sealed


@pytest.mark.parametrize(
    "words",
    [
        ("backup", "engram://job", "/tmp/copy"),
        ("compact", "engram://job"),
        ("mount", "engram://job", "/mnt"),
        ("stage", "in", "engram://job", "name", "/src"),
        ("stage", "out", "engram://job", "name", "--to", "/copy"),
        ("index", "engram://job"),
        ("ns", "engram://job"),
        ("watch", "engram://job", "n > 1"),
        ("share", "engram://job", "run"),
        ("gc", "engram://job"),
    ],
)
def test_what_is_of_one_pool_names_the_pools(rig: Rig, words: tuple[str, ...]) -> None:
    rig.serve(0)
    told = said(*words, code=21)
    assert "engram://job is a cluster" in told
    assert f"{rig.folder / 'node0'} at " in told


def test_every_verb_of_a_pool_is_done_or_refused(rig: Rig) -> None:
    """A verb that nobody has thought of is refused: none opens a cluster as a folder."""
    del rig
    from engram.cli.app import VERBS, app, module_of  # noqa: PLC0415
    from engram.cli.over_nodes import _INSTEAD, _MODULES  # noqa: PLC0415

    for verb in VERBS:
        __import__(module_of(verb))
    known = set()
    for command in app.registered_commands:
        name = command.name or command.callback.__name__  # type: ignore[union-attr]
        if "pool" in command.callback.__annotations__:
            known.add(name)
    known.remove("run")  # its pools have prefixes
    assert known <= set(_MODULES) | set(_INSTEAD), known - set(_MODULES) - set(_INSTEAD)


def test_help_names_a_cluster_where_the_verb_takes_one() -> None:
    from engram.cli.app import VERBS, app, module_of  # noqa: PLC0415
    from engram.cli.over_nodes import _MODULES  # noqa: PLC0415

    for verb in VERBS:
        __import__(module_of(verb))
    told = set()
    for command in app.registered_commands:
        assert command.callback is not None
        hints = typing.get_type_hints(command.callback, include_extras=True)
        for argument in getattr(hints.get("pool"), "__metadata__", ()):
            if "a cluster, engram://" in (argument.help or ""):
                told.add(command.name or command.callback.__name__)
    assert told == set(_MODULES)


def test_arrays_of_a_cluster_go_out_by_an_export(rig: Rig) -> None:
    rig.serve(0)
    told = said("stage", "out", "engram://job", "run/T", "--to", "/copy", code=21)
    assert "`engram export engram://job PATH FILE`" in told


def test_what_cannot_be_meant_is_refused_by_name(rig: Rig, tmp_path: Path) -> None:
    filled(rig)
    told = said("ls", "engram://job", "-n", "other", code=20)
    assert "--namespace says nothing of a cluster" in told
    assert "nothing is known here" in said("ls", "engram://absent", code=10)
    assert "cannot be a cluster's name" in said("ls", "engram://no+name", code=20)
    told = said("run", "-p", "engram://job=/p", "--", "true", code=20)
    assert "the pool of its own node" in told
    assert "no path in the filesystem" in said("doctor", "engram://job", code=2)
    local = rig.folder / "node0"
    assert said("ls", f"engram://{local}").split() == [".cluster/", "mine/", "orbits/"]
    with pytest.raises(engram.ArgumentError, match=r"engram\.cluster\.open"):
        engram.open("engram://job")
    with pytest.raises(engram.ArgumentError, match=r"engram\.cluster\.open"):
        engram.verify("engram://job")
    del tmp_path


def test_what_lies_below_an_array_is_no_matter_of_pictures_and_none_of_files(
    rig: Rig, tmp_path: Path
) -> None:
    filled(rig)["run/T/below"] = np.arange(3.0)
    said("plot", "engram://job", "run/T", "-o", str(tmp_path / "T.png"))
    told = said("export", "engram://job", "run", str(tmp_path / "run.h5"), code=21)
    assert "'run/T' is an array, and 'run/T/below' lies below it. Export them one by one" in told
    said("export", "engram://job", "run/T", str(tmp_path / "T.npy"))


def test_an_import_that_is_refused_does_not_say_that_it_is_done(rig: Rig, tmp_path: Path) -> None:
    filled(rig)
    np.save(tmp_path / "a.npy", np.arange(4.0))
    assert "1 array" in said("import", "engram://job", "in", str(tmp_path / "a.npy"))
    command = [sys.executable, "-m", "engram", "import", "engram://job", "in"]
    ended = subprocess.run([*command, str(tmp_path / "a.npy")], capture_output=True, check=False)
    assert ended.returncode == engram.ExistsError.exit_code
    assert ended.stdout == b""
    assert b"exists already; --overwrite replaces it" in ended.stderr


def test_what_lies_below_a_group_is_not_sealed_and_told_so(rig: Rig) -> None:
    filled(rig)
    told = said("publish", "engram://job", "orbits/o1", code=20)
    assert "'orbits/o1' lies below a group, where everything is published as it is stored" in told
    assert "is a group of the cluster" in said("publish", "engram://job", "orbits", code=20)


def test_a_url_without_a_name_is_no_place() -> None:
    for url in ("engram://", "engram:///"):
        assert f"{url} names no cluster and no pool" in said("ls", url, code=2)
    assert "engram://job is a cluster, and no path" in said("unmount", "engram://job", code=2)


def test_files_go_in_and_out(rig: Rig, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    opened = filled(rig)
    file = tmp_path / "run.h5"
    said("export", "engram://job", "run", str(file))
    import h5py  # noqa: PLC0415

    with h5py.File(file) as found:
        np.testing.assert_array_equal(found["T"][...], VALUES)
        assert found["T"].attrs["units"] == "K"
    said("import", "engram://job", "again", str(file))
    np.testing.assert_array_equal(opened["again/T"][...], VALUES)
    assert opened["again/T"].attrs["units"] == "K"
    assert opened["again/T"].sealed
    assert "exists already" in said("import", "engram://job", "again", str(file), code=11)
    said("import", "engram://job", "again", str(file), "--overwrite")
    said("import", "engram://job", "orbits/all", str(file))
    np.testing.assert_array_equal(opened["orbits/all/T"][...], VALUES)
    all_ = tmp_path / "all.h5"
    said("export", "engram://job", "/", str(all_))
    with h5py.File(all_) as found:
        assert found["orbits/o3"][...].tolist() == [3, 3, 3]
    assert "salvage" in said("export", "engram://job", "run", "x.h5", "--salvage", code=20)


def test_an_array_is_drawn(rig: Rig, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    filled(rig)
    file = tmp_path / "T.png"
    assert "image" in said("plot", "engram://job", "run/T", "-o", str(file))
    assert file.read_bytes()[:4] == b"\x89PNG"
    assert "is a group" in said("plot", "engram://job", "run", code=20)


# Verifying


def test_a_cluster_that_is_whole_is_told_so_with_what_no_manifest_names(rig: Rig) -> None:
    opened = filled(rig)
    opened.create_array("run/U", (10, 4))
    report = opened.verify()
    assert report, report.problems
    assert report.problems == report.skipped == report.elsewhere == report.unnamed == []
    counts = report.counts
    assert (counts["nodes"], counts["pools"], counts["names"]) == (2, 2, 5)
    assert (counts["arrays"], counts["groups"], counts["parts"], counts["copies"]) == (3, 2, 8, 8)
    assert counts["checked_bytes"] == VALUES.nbytes + 240 * 8
    assert set(report.pools) == {each.node for each in opened.members}
    assert opened.verify(checksums=False).counts["checked_bytes"] == 0
    assert clusters.verify("engram://job")
    # What was replaced lies there yet, and is no damage.
    old = opened["run/T"].parts
    opened.put("run/T", VALUES + 1)
    report = opened.verify()
    assert report
    told = "\n".join(report.unnamed)
    assert all(f"{PARTS}/{part.uuid}/{part.number}, of 'run/T'" in told for part in old)
    printed = said("verify", "engram://job")
    assert "nodes 2, pools 2, names 5" in printed
    assert "no manifest names it" in printed
    assert "is whole" in printed
    assert json.loads(said("verify", "engram://job", "--json"))["problems"] == []
    assert "as a whole" in said("verify", "engram://job/run", code=20)


def damaged(rig: Rig, number: int, name: str) -> None:
    """Write over the first item of a part that is sealed."""
    with engram.open(rig.folder / f"node{number}") as pool:
        own = pool[f"{PARTS}/{name}"]
        own.read_only = False
        own.view("r+").reshape(-1)[0] = 123456.0
        own.read_only = True


@pytest.mark.parametrize("hosts", [("", ""), ("h0", "h1")])
def test_what_manifests_say_and_pools_do_not_have_is_named(
    rig: Rig, hosts: tuple[str, str]
) -> None:
    for number, host in enumerate(hosts):
        rig.serve(number, host=host)
    opened = rig.open()
    opened.put("run/gone", VALUES)
    opened.put("run/bytes", VALUES)
    opened.create_group("tree", spread="hash")
    nodes = [rig.folder / "node0", rig.folder / "node1"]
    places = {
        each.node: nodes.index(path)
        for each in opened.members
        for path in nodes
        if str(path) == each.path
    }
    gone, wrong = opened["run/gone"].parts[0], opened["run/bytes"].parts[1]
    with engram.open(nodes[places[gone.node]]) as pool:
        del pool[f"{PARTS}/{gone.uuid}/{gone.number}"]
    damaged(rig, places[wrong.node], f"{wrong.uuid}/{wrong.number}")
    with engram.open(nodes[1]) as pool:
        del pool["tree"]
    report = opened.verify()
    assert not report
    told = "\n".join(report.problems)
    assert "part 0 of 'run/gone' at " in told
    assert "it is not there" in told
    assert "part 1 of 'run/bytes': " in told
    assert "other bytes than were published" in told
    assert "the group 'tree' at " in told
    assert len(report.problems) == 3
    assert (len(report.pools), len(report.elsewhere)) == ((0, 2) if hosts[0] else (2, 0))
    if hosts[0]:
        assert f"`engram verify {nodes[0]}` on h0" in "\n".join(report.elsewhere)
    with pytest.raises(engram.CorruptError, match="and 2 more"):
        report.check()
    assert "and 2 more" in said("verify", "engram://job", code=16)


def test_a_copy_that_differs_is_found_though_readers_take_another(rig: Rig) -> None:
    for number in range(2):
        rig.serve(number, host=f"h{number}")
    opened = rig.open()
    part = opened.put("T", VALUES, parts=(1, 1), replicas=2).parts[0]
    assert opened.verify()
    for number in range(2):
        before = rig.folder / f"node{number}"
        with engram.open(before) as pool:
            value = float(pool[f"{PARTS}/{part.uuid}/0"][0, 0])
        damaged(rig, number, f"{part.uuid}/0")
        (problem,) = opened.verify().problems
        assert f"part 0 of 'T' at h{number} " in problem
        assert "other bytes than were published" in problem
        assert opened.verify(checksums=False)
        with engram.open(before) as pool:
            own = pool[f"{PARTS}/{part.uuid}/0"]
            own.read_only = False
            own.view("r+")[0, 0] = value
            own.read_only = True
    assert opened.verify()


def test_a_part_of_another_box_is_found_in_the_pool(rig: Rig) -> None:
    rig.serve(0)
    opened = rig.open(0)
    part = opened.put("T", VALUES).parts[0]
    name = f"{PARTS}/{part.uuid}/0"
    with engram.open(rig.folder / "node0") as pool:
        pool[name].read_only = False
        del pool[name]
    other = native.NewPart("T", part.uuid, 0, 1, 1, "<i8", [5, 5], list(VALUES.shape))
    opened._native.make_part(opened._native.own_holder(), other, raw_of(VALUES.astype("<i8")))
    told = "\n".join(opened.verify(checksums=False).problems)
    assert "its dtype is int64 there, and float64 in the manifest" in told
    assert "its box is " in told


def test_a_node_that_is_away_is_told_and_is_no_damage(rig: Rig) -> None:
    opened = filled(rig)
    away = rig.processes[1]
    away.kill()
    away.wait()
    report = opened.verify()
    assert report, report.problems
    assert any("part" in each for each in report.skipped)
    assert any("the group 'orbits'" in each for each in report.skipped)
    printed = said("verify", "engram://job", code=4)
    assert "not looked at: " in printed


def test_nodes_that_speak_tls_are_asked_with_certificates(home: Path) -> None:
    with rigged(home, secure=True) as rig:
        for number in range(2):
            rig.serve(number, host=f"h{number}")
        opened = rig.open()
        part = opened.put("T", VALUES, parts=(2, 1), replicas=2).parts[0]
        report = opened.verify()
        assert report, report.problems
        assert report.skipped == []
        assert report.counts["copies"] == 4
        damaged(rig, 1, f"{part.uuid}/0")
        (problem,) = opened.verify().problems
        assert "part 0 of 'T' at h1 " in problem


# Cards


def test_a_cluster_and_an_array_show_themselves(rig: Rig) -> None:
    opened = filled(rig)
    opened.put("<b>&", VALUES, attrs={"<i>": "<script>"})
    card = opened._repr_html_()
    for member in opened.members:
        assert member.node in card
    assert f"epoch {opened.epoch}" in card
    assert "MiB of 64 MiB" in card
    assert "serving" in card
    assert "&lt;b&gt;&amp;" in card
    assert "<b>&" not in card
    shown = opened["run/T"]._repr_html_()
    assert shown.count("<title>part ") == 4
    assert "part 1 [60:120, 0:50]" in shown
    assert "sealed" in shown
    assert f"{opened['run/T'].generation:,}" in shown
    odd = opened["<b>&"]._repr_html_()
    assert "<script>" not in odd
    assert "&lt;script&gt;" in odd
    opened.create_array("run/U", (6, 6, 6), parts=(2, 2, 3), replicas=1)
    shown = opened["run/U"]._repr_html_()
    assert "written in place" in shown
    assert shown.count("<title>part ") == 6
    for shape in ((), (0, 3), (7,)):
        made = opened.put("odd", np.zeros(shape))
        assert "engram-card" in made._repr_html_()
    many = opened.put("many", np.zeros((60, 60)), parts=(60, 60))
    assert many._repr_html_().count("<title>part ") == 1024
    assert "1,024 of 3,600 boxes" in many._repr_html_()
    rig.processes[1].kill()
    rig.processes[1].wait()
    wait_for(lambda: [each for each in struck(opened) if each.state == "away"])
    card = opened._repr_html_()
    assert "1 of them not there" in card
    assert "away" in card
    assert "engram-card" in opened["run/T"]._repr_html_()


class Tags(HTMLParser):
    """What is open of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        if tag not in {"br", "wbr", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_groups_what_lies_below_and_hits_show_themselves(rig: Rig) -> None:
    filled(rig)["orbits/<b>"] = np.zeros((9, 2, 8), "i2")
    with of_no_node("job", rig.etcd) as opened:
        check_cards(rig, opened)


def check_cards(rig: Rig, opened: clusters.Cluster) -> None:
    group = opened["orbits"]
    card = group._repr_html_()
    for shown in ("engram://job/", "over 2 nodes", "o3", "deep/", "int32", "&lt;b&gt;", "title"):
        assert shown in card
    assert "<b>" not in card.replace("<b>Group</b>", "")
    array = group["<b>"]._repr_html_()
    assert "at [0, :6, :6]" in array
    assert "int16" in array
    assert "288 B" in array
    assert "[[0 0 0 0 0 0]" in array
    assert "some words" in group["deep/notes"]._repr_html_()
    assert "none: it has no items" in opened_empty(group)._repr_html_()
    found = opened.query("exists(n) or exists(units)", order_by="@path")
    card = found._repr_html_()
    assert "7 objects" in card
    assert "in parts" in card
    assert "orbits/<wbr>o5" in card or "orbits/o5" in card
    assert "none" in opened.query("n = 77")._repr_html_()
    rig.processes[1].kill()
    rig.processes[1].wait()
    wait_for(lambda: [each for each in struck(opened) if each.state == "away"])
    card = opened.query("exists(n)", partial=True)._repr_html_()
    assert "without 1 node" in card
    assert "Missing" in card
    assert "engram-card" in group._repr_html_()
    rig.processes[0].kill()  # the other one may have had the group's attributes
    rig.processes[0].wait()
    assert "engram-card" in group._repr_html_()


def opened_empty(group: clusters.ClusterGroup) -> clusters.FarArray:
    group["empty"] = np.zeros((0, 3))
    found = group["empty"]
    assert isinstance(found, clusters.FarArray)
    return found


def test_cards_close_what_they_open(rig: Rig) -> None:
    filled(rig)
    with of_no_node("job", rig.etcd) as opened:
        group = opened["orbits"]
        things = (opened, opened["run/T"], group, group["o1"], group["deep/notes"], opened.query())
        for thing in things:
            page = Tags()
            page.feed(thing._repr_html_())
            assert page.open == []


def struck(opened: clusters.Cluster) -> list[clusters.Member]:
    """Give the members, after a read had a look at those that do not answer."""
    with contextlib.suppress(engram.EngramError):
        opened["run/T"][...]
    return opened.members


# Pickles

GETS = """
import pickle, sys
import engram.cluster
first = [engram.cluster.open("job", etcd=sys.argv[2:])] if sys.argv[1] == "open" else []
for name, data in pickle.load(sys.stdin.buffer).items():
    try:
        thing = pickle.loads(data)
        if name == "cluster":
            said = sorted(thing)
        elif name == "hits":
            said = [sorted(thing.paths()), len(list(thing.objects()))]
        elif name.startswith("group"):
            said = sorted(thing)
        else:
            said = list(thing[:])
        print(name, said)
    except engram.EngramError as error:
        print(name, type(error).__name__, "look it up again" in str(error))
"""


@pytest.mark.parametrize("begins", ["open", "closed"])
def test_handles_are_true_in_a_process_that_knows_nothing_of_the_cluster(
    rig: Rig, tmp_path: Path, begins: str
) -> None:
    for number in range(2):
        rig.serve(number)
    with of_no_node("job", rig.etcd) as opened:
        group = opened.create_group("g", spread="hash")
        for name in ("a", "b", "c"):
            opened[f"r/{name}"] = group[name] = np.arange(3)
        group["in/x"] = b"\1\2"
        held = {f"array {name}": opened[f"r/{name}"] for name in "abc"}
        held |= {f"far {name}": group[name] for name in "abc"}
        held |= {"blob": group["in/x"], "group": group, "group below": group["in"]}
        held |= {"hits": opened.query("@ndim = 1"), "cluster": opened}
        data = pickle.dumps({name: pickle.dumps(thing) for name, thing in held.items()})
        opened["r/b"], group["b"] = np.zeros((2, 2)), np.zeros((2, 2))
        del opened["r/c"], group["c"]
    command = [sys.executable, "-c", GETS, begins, *rig.etcd]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "elsewhere")}
    told = subprocess.run(command, input=data, capture_output=True, check=True, env=env)
    lines = told.stdout.decode().splitlines()
    numbers = str(list(np.arange(3)))
    assert f"array a {numbers}" in lines
    assert "array b ConflictError True" in lines
    assert "array c NotFoundError False" in lines
    assert f"far a {numbers}" in lines
    assert f"far b {list(np.zeros((2, 2)))}" in lines  # the name is looked up where it comes to
    assert "far c NotFoundError False" in lines
    assert "blob [1, 2]" in lines
    assert "group ['a', 'b', 'in']" in lines
    assert "group below ['x']" in lines
    found = ["g/a", "g/b", "g/c", "g/in/x", "r/a", "r/b", "r/c"]
    assert f"hits {[found, 5]}" in lines
    assert "cluster ['g', 'r/a', 'r/b']" in lines


# Files by fsspec


def test_files_of_a_cluster_are_read_and_written_by_their_urls(rig: Rig) -> None:
    opened = filled(rig)
    data = bytes(range(256)) * 1000
    for number in range(4):
        with fsspec.open(f"engram://job/orbits/f{number}/x.bin", "wb") as file:
            file.write(data + bytes([number]))
    for number in range(4):
        with fsspec.open(f"engram://job/orbits/f{number}/x.bin") as file:
            assert file.read() == data + bytes([number])
            assert file.size == len(data) + 1
    assert bytes(opened["orbits/f1/x.bin"][:]) == data + b"\1"
    with fsspec.open("engram://job/orbits/deep/notes", "r") as file:
        assert file.read() == "some words"
    table = pd.DataFrame({"T": [1.5, 2.5]})
    table.to_csv("engram://job/mine/t.csv", index=False)
    assert pd.read_csv("engram://job/mine/t.csv")["T"].tolist() == [1.5, 2.5]
    # An array reads as its values, as one of a pool does.
    with fsspec.open("engram://job/run/T") as file:
        np.testing.assert_array_equal(np.frombuffer(file.read(), "f8"), VALUES.reshape(-1))


def test_a_clusters_files_are_listed_found_copied_and_removed(rig: Rig) -> None:
    opened = filled(rig)
    fs = fsspec.filesystem("engram", cluster="job")
    top = "engram://job"
    assert fsspec.core.url_to_fs(f"{top}/run")[0] == fs
    assert fs.ls("/", detail=False) == [f"{top}/mine", f"{top}/orbits", f"{top}/run"]
    assert fs.ls(f"{top}/run", detail=False) == fs.ls("run", detail=False)
    told = {each["name"]: each for each in fs.ls("run")}
    assert told[f"{top}/run/T"]["type"] == "array"
    assert told[f"{top}/run/T"]["size"] == VALUES.nbytes
    assert told[f"{top}/run/T"]["shape"] == VALUES.shape
    assert fs.info("orbits")["type"] == "directory"
    notes = fs.info("orbits/deep/notes")
    assert (notes["type"], notes["size"]) == ("file", 10)
    assert fs.modified("orbits/deep/notes") >= fs.created("orbits/deep/notes")
    assert fs.find("orbits/deep") == [f"{top}/orbits/deep/notes"]
    assert fs.glob("orbits/*/not*") == [f"{top}/orbits/deep/notes"]
    assert fs.glob(f"{top}/r*/T") == [f"{top}/run/T"]
    assert [name for name, _, _ in fs.walk("orbits")] == [f"{top}/orbits", f"{top}/orbits/deep"]
    assert fs.exists("run/T")
    assert not fs.exists("run/absent")
    assert (fs.isdir("run"), fs.isfile("run/T"), fs.isfile("orbits/deep/notes")) == (1, 0, 1)
    assert fs.cat_file("orbits/deep/notes", 5, 8) == b"wor"
    fs.makedirs("files/a")
    fs.pipe({f"{top}/files/a/x/1": b"one", "files/a/x/2": b"two"})
    assert fs.cat(fs.find("files")) == {f"{top}/files/a/x/1": b"one", f"{top}/files/a/x/2": b"two"}
    fs.cp("files/a/x", "orbits/y", recursive=True)
    assert fs.cat("orbits/y/2") == b"two"
    fs.cp("run/y", "copy/y")
    assert opened["copy/y"].dims == ("y",)
    fs.mv("files/a/x/1", "files/a/x/3")
    assert fs.ls("files/a/x", detail=False) == [f"{top}/files/a/x/2", f"{top}/files/a/x/3"]
    fs.rm("orbits/y", recursive=True)
    assert not fs.exists("orbits/y")
    fs.rm([f"{top}/run", "files/a/x/2"], recursive=True)
    assert opened.names() == ["copy/y", "files/a", "mine", "orbits"]
    assert fs.ls("files/a/x", detail=False) == [f"{top}/files/a/x/3"]
    assert pickle.loads(pickle.dumps(fs)).cat("files/a/x/3") == b"one"
    before = fs.ukey("files/a/x/3")
    fs.pipe("files/a/x/3", b"new")
    assert fs.ukey("files/a/x/3") != before


def test_what_files_of_a_cluster_cannot_do_is_an_error_of_files(rig: Rig) -> None:
    filled(rig)
    fs = fsspec.filesystem("engram", cluster="job")
    for error, match, ask in (
        (FileNotFoundError, "does not exist", lambda: fs.cat("orbits/absent")),
        (PermissionError, "below a group", lambda: fs.pipe("run/file", b"x")),
        (PermissionError, "is an array", lambda: fs.pipe("orbits/o1", b"x")),
        (IsADirectoryError, "is a group", lambda: fs.cat_file("orbits")),
        (IsADirectoryError, "is a group", lambda: fs.pipe("orbits/deep", b"x")),
        (IsADirectoryError, "recursive", lambda: fs.rm("orbits")),
        (NotADirectoryError, "is no group", lambda: fs.pipe("orbits/deep/notes/x", b"x")),
        (FileExistsError, "exists", lambda: fs.pipe_file("orbits/deep/notes", b"", "create")),
        (FileExistsError, "exists", lambda: fs.mkdir("run")),
        (OSError, "has members", lambda: fs.rmdir("orbits")),
        (engram.ArgumentError, "written? anew|write it anew", lambda: fs.open("orbits/n", "ab")),
        (engram.UnsupportedError, "no transaction", fs.transaction.__enter__),
        (engram.ArgumentError, "another cluster", lambda: fs.ls("engram://other/run")),
        (engram.ArgumentError, "of a pool", lambda: fs.ls("engram:///dev/shm/pool")),
        (
            engram.ArgumentError,
            "namespace",
            lambda: fsspec.filesystem("engram", cluster="job", namespace="n"),
        ),
        (
            engram.ArgumentError,
            "cluster='job'",
            lambda: fsspec.filesystem("engram").ls("engram://job/run"),
        ),
        (
            engram.ReadOnlyError,
            "for reading",
            lambda: fsspec.filesystem("engram", cluster="job", pool_mode="r").pipe("orbits/n", b""),
        ),
    ):
        with pytest.raises(error, match=match):
            ask()
    with pytest.raises(FileNotFoundError), fs.open("absent/x") as file:
        file.read()
    with pytest.raises(ZeroDivisionError), fs.open("orbits/half", "w") as text:
        text.write("half")
        1 / 0  # noqa: B018 - it raises
    assert not fs.exists("orbits/half")


def test_one_of_two_who_make_a_file_of_one_name_is_refused(rig: Rig) -> None:
    filled(rig)
    fs = fsspec.filesystem("engram", cluster="job")
    for name in ("orbits/n1", "orbits/n2", "orbits/n3", "mine/n"):
        one = fs.open(name, "xb")
        with fs.open(name, "xb") as other:
            other.write(b"other")
        one.write(b"one")
        with pytest.raises(FileExistsError):
            one.close()
        assert fs.cat(name) == b"other"


# Zarr and xarray


def test_arrays_of_a_cluster_are_zarrs_with_a_chunk_for_each_part(rig: Rig) -> None:
    opened = filled(rig)
    for reader in (opened, rig.open()):
        store = ClusterStore(ClusterPath(reader, "run"))
        root = zarr.open_group(store, mode="r")
        assert sorted(root.array_keys()) == ["T", "y"]
        array = root["T"]
        assert (array.shape, array.chunks, array.dtype) == ((240, 50), (60, 50), np.dtype("f8"))
        assert array.metadata.dimension_names == ("y", "x")
        assert dict(array.attrs) == {"units": "K"}
        np.testing.assert_array_equal(array[...], VALUES)
        np.testing.assert_array_equal(array[50:70, ::7], VALUES[50:70, ::7])
    odd = np.arange(7 * 5, dtype=">i4").reshape(7, 5)
    opened.put("run/odd", odd, parts=(3, 2))
    opened.put("run/none", np.zeros((0, 3)))
    opened.put("run/one", np.float32(2.5))
    whole = zarr.open_group(ClusterStore("engram://job"), mode="r")
    np.testing.assert_array_equal(whole["run/odd"][...], odd)
    assert whole["run/none"].shape == (0, 3)
    assert whole["run/one"][()] == 2.5
    assert whole["orbits/o3"][...].tolist() == [3, 3, 3]
    assert whole["orbits"].attrs["title"] == "all"
    assert bytes(whole["orbits/deep/notes"][...]) == b"some words"
    assert sorted(whole.group_keys()) == ["mine", "orbits", "run"]
    store = ClusterStore("engram://job/run")
    again = pickle.loads(pickle.dumps(store))
    assert again == store
    dataset = xr.open_zarr(again, consolidated=False)
    np.testing.assert_array_equal(dataset["T"].values, VALUES)
    with pytest.raises(FileNotFoundError):
        zarr.open_array(ClusterStore("engram://job"), path="absent", mode="r")
    with pytest.raises(engram.ArgumentError, match="no URL of a cluster"):
        ClusterStore("/dev/shm/pool")


def test_a_zarr_array_is_never_read_as_another_generation(rig: Rig) -> None:
    opened = filled(rig)
    array = zarr.open_array(ClusterStore("engram://job/run"), path="T", mode="r")
    opened.put("run/T", VALUES + 1, parts=(4, 1))
    with pytest.raises(engram.NotFoundError, match="open it again"):
        array[...]


def test_what_zarr_writes_in_a_batch_is_published_together(rig: Rig) -> None:
    opened = filled(rig)
    store = ClusterStore("engram://job/run")
    with pytest.raises(engram.ArgumentError, match=r"store\.batch"):
        zarr.create_array(store, name="U", shape=(4,), dtype="f8")
    assert opened.names("run") == ["run/T", "run/y"]
    with store.batch():
        made = zarr.create_array(
            store,
            name="deep/U",
            data=VALUES,
            chunks=(100, 50),
            dimension_names=("y", "x"),
            attributes={"units": "m", "levels": [1, 2]},
        )
        made[5] = -1
        zarr.open_array(store, path="y", mode="r+")[:3] = 9
        assert made[5, 7] == -1
        assert opened.names("run") == ["run/T", "run/y"]
        assert opened["run/y"][1] == 1
    expected = VALUES.copy()
    expected[5] = -1
    found = opened["run/deep/U"]
    np.testing.assert_array_equal(found[...], expected)
    assert (found.dims, found.sealed, len(found.parts)) == (("y", "x"), True, 3)
    assert found.attrs["units"] == "m"
    assert found.attrs["levels"].tolist() == [1, 2]
    assert opened["run/y"][:5].tolist() == [9, 9, 9, 3, 4]
    assert opened["run/y"].dims == ("y",)
    with pytest.raises(ZeroDivisionError), store.batch():
        zarr.create_array(store, name="V", data=VALUES)
        1 / 0  # noqa: B018 - it raises
    assert "run/V" not in opened
    with store.batch():
        root = zarr.open_group(store, mode="a")
        del root["deep/U"]
        root.create_array("W", data=np.arange(3))
    assert opened.names("run") == ["run/T", "run/W", "run/y"]
    with pytest.raises(engram.ArgumentError, match="have no place"), store.batch():
        zarr.open_group(store, mode="a").attrs["title"] = "x"
    below = ClusterStore(opened["orbits"])
    with below.batch():
        root = zarr.open_group(below, mode="a")
        root.attrs["title"] = "new"
        root.create_array("z", data=np.arange(4.0), chunks=(2,))
    assert opened["orbits/z"][...].tolist() == [0, 1, 2, 3]
    assert rig.open()["orbits"].attrs["title"] == "new"
    dataset = xr.Dataset({"S": (("y", "x"), VALUES)}, {"y": np.arange(240)})
    with store.batch():
        dataset.to_zarr(store, mode="a", consolidated=False)
    np.testing.assert_array_equal(opened["run/S"][...], VALUES)
    with pytest.raises(ValueError, match=r"read-only|read only"):
        ClusterStore("engram://job/run", read_only=True).batch()


def test_zarrs_own_files_lie_below_a_group_by_their_url(rig: Rig) -> None:
    opened = filled(rig)
    root = zarr.open_group("engram://job/orbits/model.zarr", mode="w")
    root.create_array("T", data=VALUES, chunks=(60, 50))
    np.testing.assert_array_equal(
        zarr.open_group("engram://job/orbits/model.zarr", mode="r")["T"][...], VALUES
    )
    assert "zarr.json" in opened["orbits/model.zarr"]
    with pytest.warns(engram.EngramWarning, match="store of Zarr's itself"):
        assert "model.zarr" not in list(
            zarr.open_group(ClusterStore("engram://job/orbits"), mode="r").keys()
        )


def test_a_group_of_names_opens_as_a_dataset_by_its_url(rig: Rig) -> None:
    opened = filled(rig)
    with xr.open_dataset("engram://job/run", engine="engram") as found:
        np.testing.assert_array_equal(found["T"].values, VALUES)
        assert found["T"].attrs["units"] == "K"
        assert found["y"].dims == ("y",)
    with xr.open_dataset("engram://job", engine="engram", group="run") as found:
        assert set(found.variables) == {"T", "y"}
    with pytest.raises(engram.NotFoundError, match="no arrays right below"):
        xr.open_dataset("engram://job/none", engine="engram")
    np.testing.assert_array_equal(opened.open_xarray("run")["T"].values, VALUES)


# The guide

ROOT = Path(__file__).resolve().parents[1]
RUN_HERE = "tests/test_cluster_doors.py runs it on one"


def test_names_open_as_a_datatree_by_their_url(rig: Rig) -> None:
    opened = filled(rig)
    opened.put("run/deep/U", np.arange(3.0), dims=("z",))
    url = "engram://job/run"
    with xr.open_datatree(url, engine="engram") as tree:
        assert sorted(each.path for each in tree.subtree) == ["/", "/deep"]
        np.testing.assert_array_equal(tree["T"], VALUES)
        np.testing.assert_array_equal(tree["deep/U"], [0, 1, 2])
        assert tree["T"].attrs == {"units": "K"}
    with xr.open_datatree("engram://job", engine="engram") as tree:
        assert sorted(each.path for each in tree.subtree) == ["/", "/run", "/run/deep"]
    place: Any = ClusterPath(opened, "run")
    with xr.open_datatree(place, engine="engram", group="deep") as tree:
        np.testing.assert_array_equal(tree["U"], [0, 1, 2])
    assert sorted(opened) == ["mine", "orbits", "run/T", "run/deep/U", "run/y"]  # it stays open
    assert sorted(xr.open_groups(url, engine="engram")) == ["/", "/deep"]
    for path, says in (
        ("nosuch", "there are no arrays below engram://job/nosuch"),
        ("run/T", "which is an array itself: open what is above it"),
        ("orbits", "opened from the pool of its node, as `group.local` there"),
    ):
        for function in (xr.open_dataset, xr.open_datatree):
            with pytest.raises(engram.NotFoundError, match=says.replace("below", ".*below")):
                function(f"engram://job/{path}", engine="engram")
    opened["run/T/below"] = np.arange(2.0)
    with pytest.raises(engram.ArgumentError, match="engram://job/run/T is an array and a group"):
        xr.open_datatree(url, engine="engram")


@pytest.mark.parametrize("name", ["command-line", "fsspec", "zarr", "xarray"])
def test_what_the_guide_shows_of_clusters_runs(rig: Rig, name: str, tmp_path: Path) -> None:
    for number in range(2):
        rig.serve(number)
    text = (ROOT / f"docs/guide/{name}.md").read_text(encoding="utf-8")
    wanted = [each for each in blocks(text) if RUN_HERE in each.reason]
    assert wanted
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    printed = run(wanted, name, tmp_path, environment)
    assert "".join(printed).strip()
