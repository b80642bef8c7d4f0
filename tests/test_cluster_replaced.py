"""Names that are replaced, removed or interrupted while others have handles of them."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cluster.rig import Rig, rigged, wait_for
from engram.errors import AccessError, ArgumentError, ConflictError, ExistsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engram import cluster as clusters
    from engram.cluster.natives import native

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with rigged(home) as rig:
        yield rig


class Interrupted:
    """A native cluster whose publications take effect, and are interrupted right after."""

    def __init__(self, own: native.Cluster) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def publish(self, *what: Any) -> None:
        """Publish, and be asked to stop by Ctrl-C."""
        self._own.publish(*what)
        raise KeyboardInterrupt


@pytest.mark.parametrize("sealed", [True, False])
def test_ctrl_c_right_after_a_publication_frees_nothing_of_it(rig: Rig, *, sealed: bool) -> None:
    rig.serve(0, host="one")
    rig.serve(1, host="two")
    c, reader = rig.open(0), rig.open()
    c.put("run/T", np.zeros(100), parts=(2,))
    made = c.create_array("run/S", (100,), parts=(2,), replicas=2, fill=2.0)
    own = c._native
    c._native = Interrupted(own)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        if sealed:
            made.publish()
        else:
            c.put("run/T", np.ones(100), parts=(2,))
    c._native = own
    assert (reader["run/T"][...] == float(not sealed)).all()
    assert reader["run/S"].sealed is sealed
    assert (reader["run/S"][...] == 2).all()
    assert c.verify().problems == []


def test_a_part_that_is_published_is_given_back_by_nobody(rig: Rig) -> None:
    rig.serve(0)
    c = rig.open(0)
    draft = c._native.draft(["run/T"])
    kept = c.put("run/T", np.arange(5.0))
    (part,), (member,) = kept.parts, c.members
    with pytest.raises(AccessError, match='"run/T" is published'):
        c._native.give_back((part.node, int(member.id, 16)), part.uuid, 0, draft.maker)
    assert c["run/T"][...].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize(
    "other",
    [
        np.ones(6, "i8"),
        np.arange(6, dtype=">f8"),
        np.array(["2020-01-01"] * 6, "M8[ns]"),
        np.arange(12, dtype="f4"),
        np.arange(6.0).reshape(2, 3),
    ],
    ids=lambda other: f"{other.dtype} {other.shape}",
)
def test_a_handle_gives_no_items_as_what_they_are_not(rig: Rig, other: Any, *, here: bool) -> None:
    rig.serve(0)
    c = rig.open(0 if here else None)
    old = c.put("run/T", np.arange(6.0))
    c.put("run/T", other)
    for box in (np.s_[...], np.s_[1:3], np.s_[5]):
        with pytest.raises(ConflictError, match="it was replaced; look it up again"):
            old[box]
    assert np.array_equal(c["run/T"][...], other)
    # One of the same shape and dtype is read as the name is now.
    c.put("run/T", np.full(6, 3.0))
    assert (old[...] == 3).all()


def test_boxes_below_a_group_are_of_the_object_that_was_looked_up(rig: Rig) -> None:
    rig.serve(0)
    rig.serve(1)
    c = rig.open(0)
    far = next(each for each in c.members if each.node != c.node)
    group = c.create_group("g", spread="hash")
    name = next(f"x{n}" for n in range(99) if group.home(f"g/x{n}") == far.node)
    group[name] = np.arange(2000.0)
    old = group[name]
    old[5:8] = [1.5, 2.5, 3.5]
    assert old[5:8].tolist() == [1.5, 2.5, 3.5]
    old.attrs["unit"] = "K"  # which changes the object, and not what it is
    assert old[5:8].tolist() == [1.5, 2.5, 3.5]
    group[name] = np.arange(2000)
    with pytest.raises(ConflictError, match="was replaced or removed: look it up again"):
        old[5:8]
    with pytest.raises(ConflictError, match="was replaced or removed: look it up again"):
        old[5:8] = [1.5, 2.5, 3.5]
    assert group[name][5:8].tolist() == [5, 6, 7]
    new = group[name]
    del group[name]
    with pytest.raises(ConflictError, match="was replaced or removed: look it up again"):
        new[5:8] = [1, 2, 3]


def test_an_array_takes_no_groups_name_and_both_are_found_below_each_other(rig: Rig) -> None:
    rig.serve(0)
    c = rig.open(0)
    group = c.create_group("g")
    group["x"] = np.arange(3.0)
    with pytest.raises(ExistsError, match="'g' is a group, and goes with all that is below it"):
        c.put("g", np.zeros(3))
    with pytest.raises(ExistsError, match="'g' is a group"):
        c.create_array("g", (3,))
    assert group["x"][...].tolist() == [0, 1, 2]
    c.put("a", np.zeros(3), attrs={"step": 1})
    c.put("a/b", np.zeros(4), attrs={"step": 2})
    c.put("a/b/c/d", np.zeros(5), attrs={"step": 3})
    c.put("z", np.zeros(2, np.dtype([])), attrs={"step": 4})
    found = c.query("step > 0", order_by="step desc")
    assert [hit.path for hit in found] == ["z", "a/b/c/d", "a/b", "a"]
    assert [hit.path for hit in c.query("step > 0", order_by="step", limit=2)] == ["a", "a/b"]
    c.remove("a")
    assert {hit.path for hit in c.query("step > 0")} == {"a/b", "a/b/c/d", "z"}


@pytest.mark.parametrize("value", [b"ab\0\0", b"\0", np.bytes_(b"abc"), b"abc"])
def test_bytes_keep_the_zeros_at_their_end(rig: Rig, value: bytes) -> None:
    rig.serve(0)
    for number in (0, None):
        c = rig.open(number)
        c.put("run/B", np.array(value, f"V{len(value)}"))
        assert c["run/B"][...].tobytes() == value
        c["run/C"] = value
        assert np.asarray(c["run/C"][...]).tobytes().ljust(len(value), b"\0") == value


def test_a_bool_is_a_mask_and_no_number(rig: Rig) -> None:
    rig.serve(0)
    c = rig.open()
    values = np.arange(12.0).reshape(3, 4)
    kept = c.put("run/T", values)
    for key in (True, False, (True, 1), np.True_, (np.False_, slice(2))):
        assert np.array_equal(kept[key], values[key]), key


def test_a_closed_cluster_ends_its_maker_whoever_has_handles_still(rig: Rig) -> None:
    rig.serve(0)
    before = threads().count("engram-maker")  # of other tests' clusters
    c = rig.open(0)
    group = c.create_group("g")
    group["x"] = np.arange(3.0)
    assert threads().count("engram-maker") > before
    c.close()
    wait_for(lambda: threads().count("engram-maker") <= before)
    del group
    gc.collect()


def threads() -> list[str]:
    """Name the threads of this process, those of natives, too."""
    tasks = Path("/proc/self/task").iterdir()
    return [(task / "comm").read_text(encoding="utf-8").strip() for task in tasks]


def test_a_reader_sees_names_that_are_replaced_all_the_time(rig: Rig) -> None:
    rig.serve(0, kept=0.5)
    writer, reader = rig.open(0), rig.open()
    stops = threading.Event()
    writer.put("run/T", np.zeros(40_000))

    def replace() -> None:
        for number in range(1, 10_000):
            if stops.is_set():
                return
            writer.put("run/T", np.full(40_000, float(number)))

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        kept: clusters.ClusterArray = reader["run/T"]
        seen = {tuple(set(kept[1000:1300].tolist())) for _ in range(150)}
    finally:
        stops.set()
        thread.join()
    assert all(len(values) == 1 for values in seen)
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"parts": "22"}, r"parts '22': give a whole number for each dimension"),
        ({"parts": (1.5, 2)}, r"parts \(1\.5, 2\): give a whole number"),
        ({"parts": 2}, r"parts \[2\]: give for each of the 2 dimensions"),
        ({"parts": (1000, 1000)}, r"at most 16384 parts, not 1000000"),
        ({"dims": (1, 2)}, r"dims \(1, 2\) are no names: give a tuple of str"),
        ({"dims": "yx"}, r"dims 'yx' are no names"),
        ({"attrs": ["x"]}, r"attrs \['x'\] are no attributes: give a dict"),
        ({"attrs": {5: 1}}, r"5 is no key of an attribute: give a str"),
        ({"attrs": {"": 1}}, r"'' is no key of an attribute"),
        ({"attrs": {"a": [1, "b"]}}, "attribute 'a' has strings beside 1"),
        ({"attrs": {"a": [[1], [1, 2]]}}, r"attribute 'a': \[\[1\], \[1, 2\]\] is no array"),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_value(
    refusing: clusters.Cluster, what: dict[str, Any], why: str
) -> None:
    with pytest.raises(ArgumentError, match=why):
        refusing.create_array("run/T", (1000, 1000), **what)
    assert list(refusing) == []


@pytest.mark.parametrize("path", ["/".join("d" * 65), "x" * 256, "ä" * 128, "a\ud800b", 5])
def test_what_cannot_be_a_name_is_refused(refusing: clusters.Cluster, path: Any) -> None:
    for ask in (lambda: refusing.put(path, 1), lambda: refusing[path], lambda: path in refusing):
        with pytest.raises(ArgumentError, match="is no name"):
            ask()
    refusing.put("/".join("d" * 64), 1)
    assert refusing["/".join("d" * 64)][...] == 1
    refusing.remove("/".join("d" * 64))


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    """Give a cluster of one node, which has no names."""
    folder = tmp_path_factory.mktemp("refusing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        with rigged(folder) as rig:
            rig.serve(0)
            yield rig.open(0)
