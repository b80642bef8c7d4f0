"""Arrays over nodes: written in place and sealed, copied, of any dtype, published in batches."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
import pytest

import engram
from cluster.rig import Rig, rigged, wait_for
from engram.cluster.boxes import Box, raw_of
from engram.cluster.natives import native

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engram import cluster as clusters

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


def kept(rig: Rig, number: int) -> list[str]:
    """Give the parts that lie in a node's pool, as they are named there."""
    with engram.open(rig.folder / f"node{number}", "r") as pool:
        if PARTS not in pool:
            return []
        found = []
        for uuid in pool[PARTS]:
            with contextlib.suppress(engram.NotFoundError):  # it was collected meanwhile
                found += [f"{uuid}/{part}" for part in pool[f"{PARTS}/{uuid}"]]
        return sorted(found)


def test_each_node_writes_its_parts_in_place_until_the_array_is_sealed(rig: Rig) -> None:
    for number in range(2):
        rig.serve(number)
    here, there, beside = rig.open(0), rig.open(1), rig.open()
    made = beside.create_array("U", VALUES.shape, parts=(4, 1), fill=7.5, attrs={"a": 1})
    assert not made.sealed
    np.testing.assert_array_equal(made[...], np.full(VALUES.shape, 7.5))
    for cluster in (here, there):
        own = cluster["U"].local_parts()
        assert len(own) == 2
        for part in own:
            assert part.array.flags.writeable
            part.array[...] = VALUES[part.box.slices]
    np.testing.assert_array_equal(beside["U"][...], VALUES)
    sealed = beside.publish("U")
    assert sealed.sealed
    assert sealed.generation > made.generation
    assert all("c" in part for part in sealed._manifest["parts"])
    np.testing.assert_array_equal(sealed[...], VALUES)
    np.testing.assert_array_equal(made.publish()[...], VALUES)  # it is sealed already
    assert sealed.attrs == {"a": 1}
    # Nothing of it is written any more: by this handle, nor by one from before.
    assert not here["U"].local_parts()[0].array.flags.writeable
    old = pickle.loads(pickle.dumps(made))
    old.cluster = here
    with pytest.raises(engram.BusyError, match="look it up again"):
        old.local_parts()[0].array  # noqa: B018 - it is refused
    view = here["U"].view(here["U"].local_parts()[0].box)
    np.testing.assert_array_equal(view, VALUES[:60] if view[0, 0] == 0 else VALUES[120:180])
    here.remove("U")
    assert here.names() == []


HOLD = """
import sys, engram.cluster
c = engram.cluster.open("job", etcd=sys.argv[1].split(","), pool=sys.argv[2])
array = c["U"].local_parts()[0].array[3:]
print("holds", flush=True)
sys.stdin.readline()
array[...] = 5
print("wrote", flush=True)
sys.stdin.read()
"""


def test_memory_that_another_process_may_write_is_not_sealed_and_is_when_it_ends(rig: Rig) -> None:
    rig.serve(0)
    user = rig.open()
    user.create_array("U", (100, 100))
    command = [sys.executable, "-c", HOLD, ",".join(rig.etcd), str(rig.folder / "node0")]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "holds\n"
        with pytest.raises(engram.BusyError, match=str(writer.pid)):
            user.publish("U")
        assert not user["U"].sealed
        writer.stdin.write("\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "wrote\n"
        writer.kill()
    assert user.publish("U").sealed
    assert float(user["U"][3, 0]) == 5
    own = rig.open(0)["U"].local_parts()[0]
    assert not own.array.flags.writeable


def test_bytes_that_change_after_the_seal_are_found_by_whoever_pulls_them(rig: Rig) -> None:
    rig.serve(0, host="h0")
    user = rig.open()
    (part,) = user.create_array("U", (100, 100)).parts
    user.publish("U")
    # Whoever means it writes past all that the cluster says.
    with engram.open(rig.folder / "node0") as pool:
        own = pool[f"{PARTS}/{part.uuid}/0"]
        own.read_only = False
        memory = own.view("r+")
    memory[5, 5] = 1
    with pytest.raises(engram.BusyError, match="other bytes than were published"):
        user["U"][...]
    memory[5, 5] = 0
    np.testing.assert_array_equal(user["U"][...], np.zeros((100, 100)))


def test_a_seal_that_was_broken_off_is_ended_by_the_next(rig: Rig) -> None:
    rig.serve(0)
    here = rig.open(0)
    made = here.create_array("U", (100, 100), parts=(2, 1))
    first = made.parts[0]
    here._native.seal_part(here._native.own_holder(), first.uuid, first.number)
    with pytest.raises(engram.BusyError, match="broken off"):
        made.local_parts()[0].array  # noqa: B018 - it is refused
    made.local_parts()[1].array[...] = 2
    assert made.publish().sealed
    np.testing.assert_array_equal(here["U"][50:], np.full((50, 100), 2.0))


def test_a_publication_waits_for_memory_that_is_written_and_says_which(rig: Rig) -> None:
    rig.serve(0)
    here = rig.open(0)
    made = here.create_array("U", (100, 100), parts=(2, 1))
    memory = [made.local_parts()[1].array]
    host = here.members[0].host
    with pytest.raises(engram.BusyError, match=rf"part 1 of 'U' on {host} is still .* after 0 s"):
        made.publish(timeout=0)
    memory[0][...] = 5
    with ThreadPoolExecutor() as other:
        published = other.submit(made.publish, timeout=60)
        with pytest.raises(TimeoutError):
            published.result(2.5)  # longer than a node waits by itself
        memory.clear()
        assert published.result().sealed
    np.testing.assert_array_equal(here["U"][50:], np.full((50, 100), 5.0))


def test_a_publication_that_waits_can_be_interrupted(rig: Rig) -> None:
    rig.serve(0)
    here = rig.open(0)
    made = here.create_array("U", (100, 100), parts=(20, 1))
    memory = [part.array for part in made.local_parts()]
    interrupt = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        made.publish(timeout=86_400)
    interrupt.join()
    memory.clear()
    assert made.publish().sealed


@pytest.mark.parametrize("timeout", ["x", None, True, -1, float("nan"), float("inf")])
def test_a_publication_refuses_a_timeout_that_is_none(rig: Rig, timeout: Any) -> None:
    rig.serve(0)
    made = rig.open().create_array("U", (10,))
    with pytest.raises(engram.ArgumentError, match=f"timeout {timeout!r} cannot be waited for"):
        made.publish(timeout=timeout)
    assert made.publish(timeout=0).sealed


def test_a_part_is_at_several_hosts_and_read_on_where_one_is_gone(rig: Rig) -> None:
    first = rig.serve(0, host="h0")
    for number in (1, 2):
        rig.serve(number, host=f"h{number}")
    user = rig.open()
    array = user.put("T", VALUES, parts=(6, 1), replicas=2)
    stored = user.from_dask("D", da.from_array(VALUES, chunks=(60, 25)), replicas=3)
    made = user.create_array("U", VALUES.shape, parts=(3, 1), fill=3, replicas=2)
    assert all(len(part.nodes) == 1 for part in made.parts)
    made.publish()
    hosts = {each.node: each.host for each in user.members}
    for name, copies in (("T", 2), ("D", 3), ("U", 2)):
        assert user[name].replicas == copies
        for part in user[name].parts:
            assert len({hosts[node] for node in part.nodes}) == copies
    assert sum(map(len, array.holders().values())) == 12
    with pytest.raises(engram.ArgumentError, match=r"replicas=4: .* nodes on 3 host"):
        user.put("T", VALUES, replicas=4)
    for wrong in (0, True, "2"):
        with pytest.raises(engram.ArgumentError, match="at how many hosts"):
            user.put("T", VALUES, replicas=wrong)  # type: ignore[arg-type]
    first.kill()
    first.wait()
    np.testing.assert_array_equal(array[...], VALUES)
    np.testing.assert_array_equal(stored[...], VALUES)
    np.testing.assert_array_equal(user["U"][...], np.full(VALUES.shape, 3.0))


def test_of_those_who_seal_one_array_at_once_one_does_and_all_copies_are_there(rig: Rig) -> None:
    for number in (0, 1):
        rig.serve(number, host=f"h{number}")
    both = [rig.open(), rig.open()]
    for step in range(4):
        name = f"U{step}"
        both[0].create_array(name, VALUES.shape, parts=(3, 1), fill=step, replicas=2)
        # The same maker twice, and two makers.
        with ThreadPoolExecutor(2) as at_once:
            ends = list(at_once.map(published, [both[0], both[step % 2]], [name, name]))
        assert set(ends) <= {"done", "ConflictError"}
        assert "done" in ends
        assert both[1][name].sealed
        assert all(len(part.nodes) == 2 for part in both[1][name].parts)
    report = both[1].verify()
    assert report.problems == []
    assert report.counts["copies"] == 4 * 3 * 2


def published(user: clusters.Cluster, name: str) -> str:
    try:
        user.publish(name)
    except engram.ConflictError as error:
        return type(error).__name__
    return "done"


def test_a_copy_that_was_left_by_one_who_sealed_is_waited_for_while_that_one_lives(
    rig: Rig,
) -> None:
    for number in (0, 1):
        rig.serve(number, host=f"h{number}")
    user, other = rig.open(), rig.open()
    (part,) = user.create_array("U", (10,), "i8", parts=(1,), fill=3, replicas=2).parts
    target = next(each for each in user.members if each.node != part.node)
    draft = other._native.draft(["U"])
    copy = native.NewPart("U", part.uuid, 0, draft.maker, draft.begun, "<i8", [0], [10])
    other._native.make_part((target.node, int(target.id, 16)), copy, raw_of(np.full(10, 3)))
    hasty = rig.open()
    hasty.deadline = 0.0
    with pytest.raises(engram.BusyError, match="another process publishes 'U', or has died"):
        hasty.publish("U")
    other.close()  # its lease ends
    assert all(len(part.nodes) == 2 for part in user.publish("U").parts)
    assert user.verify().problems == []


def test_a_holder_that_lacks_a_part_is_passed_over(rig: Rig) -> None:
    for number in range(2):
        rig.serve(number, host=f"h{number}")
    user = rig.open()
    array = user.put("T", VALUES, replicas=2)
    with engram.open(rig.folder / "node0") as pool:
        for part in array.parts:
            del pool[f"{PARTS}/{part.uuid}/{part.number}"]
    assert all(len(part.nodes) == 2 for part in array.parts)
    np.testing.assert_array_equal(array[...], VALUES)
    with engram.open(rig.folder / "node1") as pool:
        del pool[f"{PARTS}/{array.parts[0].uuid}/0"]
    with pytest.raises(engram.CorruptError, match='part 0 of "T" is not at'):
        array[...]


INNER = np.dtype([("x", "<f4"), ("name", ">U3")])
NESTED = np.dtype([("a", ">i4"), ("inner", INNER), ("grid", "<f8", (2, 3)), ("raw", "V5")])
ALIGNED = np.dtype([("flag", "?"), ("v", "<f8")], align=True)
OVERLAPPING = np.dtype(
    {"names": ["all", "low"], "formats": ["<u4", "<u2"], "offsets": [0, 2], "itemsize": 8}
)
DTYPES = ("?", ">i2", "<c16", "S7", ">U4", "<M8[25s]", "<m8[ns]", "<f2", "V3", INNER, NESTED)


def same(found: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
    assert (found.dtype, found.shape) == (values.dtype, values.shape)
    assert bool((found == values).all())


@pytest.mark.parametrize("dtype", [*DTYPES, ALIGNED, OVERLAPPING], ids=str)
def test_every_dtype_of_fixed_width_comes_back_exactly(rig: Rig, dtype: Any) -> None:
    rig.serve(0)
    rig.serve(1)
    user = rig.open(0)
    kind = np.dtype(dtype)
    raw = np.random.default_rng(3).integers(0, 2, (20, 3, kind.itemsize), dtype="u1")
    values = raw.reshape(20, -1).view(kind)
    put = user.put("T", values, parts=(4, 1))
    for array in (put, pickle.loads(pickle.dumps(put)), rig.open()["T"]):
        assert array.dtype == kind
        assert array.dtype.isalignedstruct == kind.isalignedstruct
        same(array[...], values)
        same(array[3:7, 1], values[3:7, 1])
        same(array.dask().compute(), values)
    made = user.create_array("U", (6, 2), kind, fill=values[0, 0], parts=(2, 1))
    same(made[...], np.full((6, 2), values[0, 0], kind))
    made.local_parts()[0].array[...] = values[1, 1]
    assert made.publish().dtype == kind


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (4, 0, 2), (1,), (3, 1, 1, 2)])
def test_arrays_without_items_or_dimensions(rig: Rig, shape: tuple[int, ...]) -> None:
    rig.serve(0)
    rig.serve(1)
    user = rig.open()
    values = np.arange(int(np.prod(shape)), dtype="i4").reshape(shape)
    lazy = da.from_array(values, chunks=-1)
    arrays = (user.put("T", values), user.from_dask("D", lazy), user["T"])
    for array in arrays:
        assert array.shape == shape
        np.testing.assert_array_equal(array[...], values)
        np.testing.assert_array_equal(np.asarray(array), values)
        np.testing.assert_array_equal(array.dask().compute(), values)
    made = user.create_array("U", shape, "i4", fill=2)
    np.testing.assert_array_equal(made.publish()[...], np.full(shape, 2))


def test_blocks_without_items_are_no_parts(rig: Rig) -> None:
    rig.serve(0)
    user = rig.open()
    values = np.arange(10.0)
    array = user.from_dask("D", da.from_array(values, chunks=((3, 0, 7),)))
    assert [part.box for part in array.parts] == [Box((0,), (3,)), Box((3,), (7,))]
    np.testing.assert_array_equal(array.dask().compute(), values)


def test_a_batch_is_published_as_a_whole_or_not_at_all(rig: Rig) -> None:
    rig.serve(0)
    user, other = rig.open(0), rig.open()
    user.put("old", VALUES)
    with user.batch() as batch:
        batch.put("A", VALUES)
        batch.create_array("B", (10,), "i4", fill=1)
        batch.remove("old")
        assert user.names() == ["old"]
    assert user.names() == ["A", "B"]
    np.testing.assert_array_equal(user["A"][...], VALUES)
    before = kept(rig, 0)
    # Somebody else is faster with one of the names, after all parts were made.
    native = user._native

    class Racing:
        def __getattr__(self, name: str) -> Any:
            return getattr(native, name)

        def publish(self, draft: Any, manifests: Any) -> int:
            other.put("B", VALUES[:3])
            return native.publish(draft, manifests)

    user._native = Racing()  # type: ignore[assignment]
    with pytest.raises(engram.ConflictError, match='"B"'), user.batch() as batch:
        batch.put("A", VALUES + 1)
        batch.put("B", VALUES + 1)
        batch.put("C", VALUES + 1)
    user._native = native
    assert user.names() == ["A", "B"]
    np.testing.assert_array_equal(user["A"][...], VALUES)
    new = [part for part in kept(rig, 0) if part not in before]
    assert new == [f"{user['B'].parts[0].uuid}/0"], "parts of the batch are there yet"


def test_what_a_batch_cannot_be_is_refused_before_anything_is_made(rig: Rig) -> None:
    rig.serve(0)
    user = rig.open(0)
    with pytest.raises(ZeroDivisionError), user.batch() as batch:
        batch.put("A", VALUES)
        raise ZeroDivisionError
    with pytest.raises(engram.ArgumentError, match="at most 100 names"), user.batch() as batch:
        for number in range(101):
            batch.put(f"n{number}", VALUES)
    with pytest.raises(engram.ArgumentError, match="already"), user.batch() as batch:
        batch.put("A", VALUES)
        batch.remove("A")
    with pytest.raises(engram.NotFoundError, match="'gone'"), user.batch() as batch:
        batch.put("A", VALUES)
        batch.remove("gone")
    long = "x" * 600_000
    too_large = pytest.raises(engram.ArgumentError, match=r"3 names have 18\d+ bytes")
    with too_large, user.batch() as batch:
        for name in "ABC":
            batch.put(name, VALUES, attrs={"a": long})
    with pytest.raises(engram.ArgumentError, match=r'"A" has 15\d+ bytes, with 1 parts'):
        user.put("A", VALUES, attrs={"a": "x" * 1_500_000})
    with pytest.raises(engram.ArgumentError, match=r"at most 16384 parts, not 16385"):
        user.create_array("A", (16_385,), parts=(16_385,))
    assert user.names() == []
    assert kept(rig, 0) == []
    with user.batch() as batch:
        for number in range(100):
            batch.put(f"n{number}", VALUES[:1])
    assert len(user.names()) == 100


def test_parts_that_nobody_can_be_given_any_more_are_freed(rig: Rig) -> None:
    rig.serve(0, kept=1.0)
    user, here = rig.open(), rig.open(0)
    # Published and replaced, published and removed, before the node has looked; and seen by it.
    for step in range(3):
        user.put("often", VALUES + step)
    user.put("short", VALUES)
    user.remove("short")
    last = user["often"].parts[0]
    wait_for(lambda: kept(rig, 0) == [f"{last.uuid}/0"])
    view = here["often"].view()
    user.create_array("often", (5,)).publish()
    now = user["often"].parts[0]
    wait_for(lambda: kept(rig, 0) == [f"{now.uuid}/0"])
    np.testing.assert_array_equal(view, VALUES + 2)  # it stays as long as it is looked at
    np.testing.assert_array_equal(user["often"][...], np.zeros(5))


def test_a_maker_that_dies_leaves_nothing(rig: Rig) -> None:
    rig.serve(0, kept=1.0)
    code = (
        "import sys, os, numpy, engram.cluster as e\n"
        "from engram.cluster.making import Making, Made, make_part\n"
        "from engram.cluster.boxes import Box\n"
        "c = e.open('job', etcd=sys.argv[1].split(','))\n"
        "draft = c._native.draft(['T'])\n"
        "(m,) = c.members\n"
        "making = Making('T', c._native.new_uuid(), draft.maker, draft.begun)\n"
        "part = Made(0, Box((0,), (500,)), [(m.node, int(m.id, 16))], None)\n"
        "make_part(c, making, part, numpy.zeros(500), [])\n"
        "print('made', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, ",".join(rig.etcd)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "made\n"
        assert len(kept(rig, 0)) == 1
        maker.kill()
    wait_for(lambda: kept(rig, 0) == [])


def test_a_name_is_read_while_it_is_replaced_and_sealed(rig: Rig) -> None:
    rig.serve(0)
    rig.serve(1)
    user, other = rig.open(), rig.open()
    user.put("T", np.zeros((50, 50)), parts=(4, 1))
    for step in range(1, 6):
        made = other.create_array("T", (50, 50), fill=step, parts=(4, 1))
        assert set(np.unique(user["T"][...])) == {float(step)}
        with contextlib.closing(rig.open()) as third:
            third.publish("T")
        assert set(np.unique(made[...])) == {float(step)}


# Room


@pytest.mark.parametrize("way", ["put", "create_array", "from_dask"])
def test_a_node_that_is_full_gives_way_to_the_next(rig: Rig, way: str) -> None:
    rig.serve(0, size="8 MiB")
    rig.serve(1)
    here, beside = rig.open(0), rig.open()
    large = np.arange(1 << 21, dtype="f8")  # 16 MiB, and half of it is more than a node has
    # The process at the full node would keep all of what Dask computes in it.
    cluster = here if way == "from_dask" else beside
    if way == "put":
        cluster.put("F", large, parts=(4,))
    elif way == "create_array":
        cluster.create_array("F", large.shape, parts=(4,))
    else:
        with dask.config.set(scheduler="synchronous"):
            cluster.from_dask("F", da.from_array(large, chunks=1 << 19))
    found = beside["F"]
    assert all(sorted(part.nodes) == sorted(set(part.nodes)) for part in found.parts)
    counts = {node: len(boxes) for node, boxes in found.holders().items()}
    rooms = {node: beside.space(node) for node in counts}
    small = next(node for node, room in rooms.items() if room and room.size < 16 << 20)
    assert 0 < counts[small] < 4
    assert sum(counts.values()) == 4
    if way != "create_array":
        np.testing.assert_array_equal(found[...], large)
    assert beside.verify().problems == []


def test_where_no_node_has_room_the_error_says_what_each_has(rig: Rig) -> None:
    rig.serve(0, size="8 MiB")
    rig.serve(1, size="8 MiB")
    cluster = rig.open()
    with pytest.raises(engram.PoolFullError, match=r"no node .* has room for part \d of 'F'") as e:
        cluster.put("F", np.zeros(1 << 22), parts=(2,))
    assert str(e.value).count(" B free") == 2
    assert "What was replaced or removed is freed 60 s after that" in str(e.value)
    assert "when its last view on its node has gone: try again then" in str(e.value)
    assert "F" not in cluster
    # What was made of it before is given back.
    wait_for(lambda: kept(rig, 0) == kept(rig, 1) == [])


def test_copies_of_a_part_never_share_a_host_also_where_one_is_full(rig: Rig) -> None:
    rig.serve(0, size="8 MiB", host="engram-f0")
    rig.serve(1, host="engram-f1")
    cluster = rig.open()
    with pytest.raises(engram.PoolFullError, match="engram-f0 has"):
        cluster.put("F", np.zeros(1 << 21), parts=(1,), replicas=2)
    assert "F" not in cluster
    rig.serve(2, host="engram-f2")
    cluster.put("F", np.zeros(1 << 21), parts=(1,), replicas=2)
    hosts = {each.node: each.host for each in cluster.members}
    assert {hosts[node] for node in cluster["F"].parts[0].nodes} == {"engram-f1", "engram-f2"}
