"""Where active objects are: backends, moving with all that leads there, replicas, namespaces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

import engram
from active_models import Account, Block
from engram import active

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = ["x" * 100] * 100
"""Tags that are kept as a blob."""


class Sites(NamedTuple):
    """Two pools, the first of which has two devices and is in use."""

    here: engram.Pool
    there: engram.Pool
    device: Path


@pytest.fixture
def sites(home: Path) -> Iterator[Sites]:
    """Make them."""
    device = home / "device"
    device.mkdir()
    with (
        engram.create(home / "here", size="32 MiB", devices=[device], force=True) as here,
        engram.create(home / "there", size="32 MiB", force=True) as there,
        active.use(here),
    ):
        yield Sites(here, there, device)


def block(alias: str | None = None, *, number: float = 1) -> Block:
    made = Block(np.full(1000, number), alias or "")
    if alias is not None:
        made.make_persistent(alias)
    return made


def device_of(sites: Sites, obj: Block, name: str = "data") -> int:
    """Tell which device's file is mapped where a field lies."""
    number = int(str(obj.get_id()).rpartition(":")[2], 16)
    (group,) = (each for each in sites.here[".active/objects"].values() if each._id == number)
    member = group[name]
    view = member.view() if name == "data" else np.frombuffer(member.view(), np.uint8)
    address = view.ctypes.data
    with Path("/proc/self/maps").open(encoding="utf-8") as lines:
        for line in lines:
            start, _, end = line.split()[0].partition("-")
            if int(start, 16) <= address < int(end, 16):
                return int(str(sites.device) in line)
    raise AssertionError(obj)


# Backends


def test_a_backend_is_a_pool_a_namespace_a_path_or_a_device(sites: Sites) -> None:
    other = sites.there.create_namespace("other")
    here, there = sites.here.path, sites.there.path
    for backend, location in (
        (sites.there, there),
        (there, there),
        (str(there), there),
        (other, f"{there}?other"),
        (f"{there}?other", f"{there}?other"),
        (1, f"{here}#1"),
        (sites.device, f"{here}#1"),
        (f"{here}#0", f"{here}#0"),
        (None, here),
    ):
        made = block()
        assert made.get_location() is None
        assert made.get_all_locations() == []
        made.make_persistent(backend_id=backend)
        assert made.get_location() == str(location)
        assert made.get_all_locations() == [str(location)]
        assert made.mean() == 1
        again = block()
        again.make_persistent(backend_id=made.get_location())
        assert again.get_location() == str(location)


def test_unknown_backends_are_told(sites: Sites, tmp_path: Path) -> None:
    made = block()
    with pytest.raises(engram.NotFoundError, match="has no device 7: it has"):
        made.make_persistent(backend_id=7)
    with pytest.raises(engram.NotFoundError, match="neither a pool nor a device"):
        made.make_persistent(backend_id=tmp_path / "none")
    with pytest.raises(engram.ArgumentError, match=r"backend 1\.5 is none"):
        made.make_persistent(backend_id=1.5)
    with pytest.raises(engram.ArgumentError, match="backend True is none"):
        made.make_persistent(backend_id=True)
    with pytest.raises(engram.NotFoundError, match="has no device 9"):
        made.make_persistent(backend_id=f"{sites.here.path}#9")
    with pytest.raises(engram.ArgumentError, match="'first' is no number of a device"):
        made.make_persistent(backend_id=f"{sites.here.path}#first")
    with pytest.raises(engram.NotFoundError, match="nowhere"):
        made.make_persistent(backend_id=f"{sites.here.path}?nowhere")
    assert not made.is_persistent
    made.make_persistent()
    with pytest.raises(engram.NotFoundError):
        made.move(tmp_path / "none")
    assert made.get_location() == str(sites.here.path)


def test_what_is_made_on_a_device_stays_there(sites: Sites) -> None:
    for device in (0, 1):
        made = block()
        made.tags = LARGE
        made.make_persistent(backend_id=device)
        assert device_of(sites, made) == device
        assert device_of(sites, made, "tags") == device
        made.data = np.zeros(2000)
        made.tags = LARGE * 2
        assert device_of(sites, made) == device
        assert device_of(sites, made, "tags") == device
        version = made.new_version()
        made.fill(3)
        assert device_of(sites, made) == device
        assert version.mean() == 0


# Moving


def test_moving_to_a_device_moves_arrays_and_large_values(sites: Sites) -> None:
    made = block("a")
    made.tags = LARGE
    view = made.data
    used, identity = sites.here.used, made.get_id()
    for device in (1, 0, 1):
        made.move(device)
        assert device_of(sites, made) == device
        assert device_of(sites, made, "tags") == device
        assert made.get_location() == f"{sites.here.path}#{device}"
        assert made.get_id() == identity
        assert made.tags == LARGE
        assert made.mean() == 1
    assert view.mean() == 1
    del view
    assert sites.here.used == used


def test_aliases_references_and_ids_follow_to_another_pool(sites: Sites) -> None:
    moved, holder = block("moved"), block("holder")
    moved.add_alias("second name")
    holder.next = moved
    moved.next = holder
    identity = moved.get_id()
    moved.move(sites.there)
    assert moved.get_location() == str(sites.there.path)
    assert holder.next is moved
    assert moved.next is holder
    for pool in (sites.here, sites.there):
        for alias in ("moved", "second name"):
            assert Block.get_by_alias(alias, pool=pool) is moved
    assert identity is not None
    assert Block.get_by_id(identity) is moved
    assert moved.get_id() != identity
    assert Block.get_by_id(moved.get_id() or "") is moved
    assert moved.get_aliases() == {"moved", "second name"}
    moved.fill(7)
    assert Block.get_by_alias("moved").mean() == 7


def test_what_moves_back_and_forth_is_still_found(sites: Sites) -> None:
    moved, holder = block(), block("holder")
    holder.next = moved
    for _ in range(3):
        for pool in (sites.there, sites.here):
            moved.move(pool)
            assert holder.next is moved
    assert moved.get_location() == str(sites.here.path)


def test_moving_frees_the_space_it_had(sites: Sites) -> None:
    made = Block(np.zeros(1_000_000), tags=LARGE)
    block("keeps the class")
    before = sites.here.used
    made.make_persistent("a")
    made.move(sites.there)
    assert sites.here.used == before
    assert sites.there.used >= 8_000_000


def test_moving_recursively_takes_cycles_along_and_else_leaves_them(sites: Sites) -> None:
    one, two = block("one"), block("two")
    one.next, two.next = two, one
    one.move(sites.there)
    assert two.get_location() == str(sites.here.path)
    one.move(sites.there, recursive=True)
    assert two.get_location() == str(sites.there.path)
    assert one.next is two
    assert two.next is one
    one.move(f"{sites.here.path}#1", recursive=True)
    assert [device_of(sites, each) for each in (one, two)] == [1, 1]


def test_a_move_that_fails_leaves_the_object_where_it_is(sites: Sites) -> None:
    made = block("a")
    made.data = np.zeros(1_000_000)
    Block(np.zeros(3_500_000)).make_persistent(backend_id=sites.there)
    used = sites.there.used
    with pytest.raises(engram.PoolFullError):
        made.move(sites.there)
    assert (made.get_location(), made.mean()) == (str(sites.here.path), 0)
    assert sites.there.used == used
    made.data = np.ones(3)
    block().make_persistent("a", backend_id=sites.there)
    with pytest.raises(active.AliasTakenError, match="'a' is taken"):
        made.move(sites.there)
    assert Block.get_by_alias("a") is made
    assert made.mean() == 1


def test_a_volatile_object_that_moves_is_made_there(sites: Sites) -> None:
    made = block()
    made.move(sites.there)
    assert made.get_location() == str(sites.there.path)


def test_an_object_that_is_made_persistent_again_moves(sites: Sites) -> None:
    made = block("a")
    made.make_persistent(backend_id=sites.there, alias="b")
    assert made.get_location() == str(sites.there.path)
    assert made.get_aliases() == {"a", "b"}


def test_a_handle_follows_where_another_process_moved_the_object(sites: Sites) -> None:
    reads, writes, calls = block("reads"), block("writes"), block("calls")
    pid = os.fork()
    if pid == 0:
        try:
            for each in (reads, writes, calls):
                each.move(sites.there)
        except BaseException:  # noqa: BLE001 - the parent asks how it ended
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert reads.data.mean() == 1
    writes.label = "written"
    assert Block.get_by_alias("writes", pool=sites.there).label == "written"
    calls.scale(3)
    assert Block.get_by_alias("calls", pool=sites.there).mean() == 3


# Replicas


def test_a_replica_is_read_and_refuses_every_change(sites: Sites) -> None:
    original = block("a")
    replica = original.new_replica(sites.there)
    assert replica.get_location() == str(sites.there.path)
    assert replica.mean() == 1
    assert not replica.data.flags.writeable
    assert Block.get_by_alias("a", pool=sites.there) is replica
    assert original.get_all_locations() == [str(sites.here.path), str(sites.there.path)]
    refused = "is a replica"
    with pytest.raises(engram.ReadOnlyError, match=refused):
        replica.label = "mine"
    with pytest.raises(engram.ReadOnlyError, match=refused):
        del replica.label
    with pytest.raises(engram.ReadOnlyError, match=refused):
        replica.add_tag("mine")
    with pytest.raises(engram.ReadOnlyError, match=refused):
        replica.move(sites.here)
    with pytest.raises(engram.ReadOnlyError, match=refused):
        replica.new_replica(sites.here)
    with pytest.raises(ValueError, match="read-only"):
        replica.fill(4)
    assert (replica.label, replica.tags, replica.mean()) == ("a", [], 1)


def test_sync_brings_replicas_up_to_date_from_both_ends(sites: Sites) -> None:
    original = block("a")
    replica, second = original.new_replica(sites.there), original.new_replica(1)
    original.label, original.tags = "new", LARGE
    original.fill(5)
    del original.next
    assert (replica.label, replica.mean()) == ("a", 1)
    replica.sync()
    assert (replica.label, replica.tags, replica.mean()) == ("new", LARGE, 5)
    assert second.mean() == 1
    original.fill(6)
    original.sync()
    assert (replica.mean(), second.mean()) == (6, 6)
    assert device_of(sites, second) == 1
    used = sites.there.used
    for _ in range(3):
        original.sync()
    assert sites.there.used == used


def test_replicas_of_a_cycle_refer_to_each_other(sites: Sites) -> None:
    one, two = block("one"), block(number=2)
    one.next, two.next = two, one
    replica = one.new_replica(sites.there)
    assert replica.next is not two
    assert replica.next.get_location() == str(sites.there.path)
    assert replica.next.next is replica
    three = block(number=3)
    two.next = three
    two.sync()
    assert replica.next.next.mean() == 3
    alone = three.new_replica(sites.there, recursive=False)
    assert alone.mean() == 3


def test_without_recursion_a_replica_refers_to_the_originals(sites: Sites) -> None:
    one, two = block("one"), block()
    one.next = two
    replica = one.new_replica(sites.there, recursive=False)
    assert replica.next is two
    one.delete()
    assert active.gc(sites.here).objects == 0
    assert replica.next.mean() == 1


def test_replicas_that_cannot_be_are_told(sites: Sites) -> None:
    original = block("a")
    original.new_replica(sites.there)
    with pytest.raises(engram.ArgumentError, match=r"is in .* already"):
        original.new_replica(sites.there)
    with pytest.raises(engram.ArgumentError, match=r"is in .* already"):
        original.new_replica()
    with pytest.raises(engram.ArgumentError, match="not persistent"):
        block().new_replica(sites.there)


def test_a_deleted_replica_is_forgotten_and_a_deleted_original_told(sites: Sites) -> None:
    original = block("a")
    original.new_replica(sites.there).delete()
    original.sync()
    assert original.get_all_locations() == [str(sites.here.path)]
    replica = original.new_replica(sites.there)
    original.delete()
    assert replica.mean() == 1
    with pytest.raises(active.ObjectDeletedError):
        replica.sync()


def test_a_moved_original_keeps_its_replicas_and_its_versions(sites: Sites, home: Path) -> None:
    original = block("a")
    replica, version = original.new_replica(sites.there), original.new_version()
    version.fill(9)
    version.move(f"{sites.here.path}#1")
    with engram.create(home / "third", size="16 MiB", force=True) as third:
        original.move(third)
        assert original.get_all_locations() == [str(third.path), str(sites.there.path)]
        original.fill(4)
        original.sync()
        assert replica.mean() == 4
        version.consolidate_version()
        assert original.mean() == 9
        replica.sync()
        assert replica.mean() == 9


def test_a_moved_version_is_a_version_still(sites: Sites) -> None:
    original = block("a")
    version = original.new_version()
    version.fill(2)
    version.move(sites.there)
    assert original.mean() == 1
    version.consolidate_version()
    assert original.mean() == 2


# Namespaces, scopes, modes


def test_namespaces_of_a_pool_have_objects_and_aliases_of_their_own(sites: Sites) -> None:
    other = sites.here.create_namespace("other")
    ours, theirs = block("same"), block()
    theirs.make_persistent("same", backend_id=other)
    assert Block.get_by_alias("same") is ours
    assert Block.get_by_alias("same", pool=other) is theirs
    ours.next = theirs
    theirs.next = ours
    assert ours.next is theirs
    Block.delete_alias("same", pool=other)
    assert active.gc(other).objects == 0
    assert theirs.next is ours
    with active.use(other):
        block("third")
    with pytest.raises(active.AliasNotFoundError, match="no object has the alias 'third'"):
        Block.get_by_alias("third")


def test_a_private_object_lives_as_any_other(sites: Sites) -> None:
    private, shared = block(), block("shared")
    private.make_persistent("private", scope="private")
    assert Block.get_by_alias("private") is private
    private.label = "changed"
    private.fill(3)
    private.tags = LARGE
    assert private.add_tag("more") == 101
    version = private.new_version()
    version.fill(5)
    version.consolidate_version()
    assert private.mean() == 5
    private.add_alias("another")
    assert private.get_aliases() == {"private", "another"}
    assert shared.mean() == 1
    private.delete()
    with pytest.raises(active.AliasNotFoundError):
        Block.get_by_alias("private", pool=sites.here)


def test_a_pool_opened_for_reading_is_read_and_not_changed(sites: Sites) -> None:
    original = block("a")
    original.next = block()
    path = sites.there.path
    original.move(sites.there, recursive=True)
    sites.there.close()
    with engram.open(path, mode="r") as there:
        found = Block.get_by_alias("a", pool=there)
        assert (found.mean(), found.label) == (1, "a")
        assert not found.data.flags.writeable
        assert found.next is not None
        for change in (
            lambda: setattr(found, "label", "b"),
            lambda: found.add_tag("b"),
            lambda: found.add_alias("b"),
            found.delete,
            found.new_version,
            lambda: found.move(sites.here),
            lambda: block().make_persistent(backend_id=there),
            lambda: active.gc(there),
        ):
            with pytest.raises(engram.ReadOnlyError):
                change()
        with pytest.raises(ValueError, match="read-only"):
            found.fill(2)
        assert active.gc(there, dry_run=True).objects == 0
    with engram.open(path) as there:
        assert Block.get_by_alias("a", pool=there).label == "a"
        assert len(there[".active/objects"]) == 2


def test_references_to_an_object_of_another_pool_keep_it(sites: Sites) -> None:
    far, holder = block(), block("holder")
    far.make_persistent(backend_id=sites.there)
    holder.next = far
    account = Account()
    account.make_persistent(backend_id=sites.there)
    assert active.gc(sites.there).objects == 1
    assert holder.next is far
    assert holder.next.mean() == 1


def test_published_objects_are_read_and_refuse_every_change_until_they_are_not(
    sites: Sites,
) -> None:
    original, friend = block("a"), block()
    original.next = friend
    holder = block("holder")
    name = next(iter(sites.here[".active/objects"]))
    token = f".active/objects/{name}"
    assert sites.here[token]._id == int(str(original.get_id()).rpartition(":")[2], 16)
    sites.here.publish(token, closed=True)
    assert original.mean() == 1
    for change in (lambda: setattr(original, "label", "b"), lambda: original.add_tag("b")):
        with pytest.raises(engram.ReadOnlyError, match="published"):
            change()
    with pytest.raises(ValueError, match="read-only"):
        original.fill(3)
    holder.next = original
    version = original.new_version()
    version.fill(3)
    assert (original.mean(), version.mean()) == (1, 3)
    Block.delete_alias("holder")
    assert original.next is friend
    sites.here.unpublish(token)
    original.fill(4)
    version.consolidate_version()
    assert original.mean() == 3


def test_a_published_object_is_not_collected(sites: Sites) -> None:
    original = block()
    original.next = block()
    original.make_persistent()
    (name, _) = sites.here[".active/objects"]
    sites.here.publish(f".active/objects/{name}", closed=True)
    assert active.gc(sites.here).objects == 0
    sites.here.unpublish(f".active/objects/{name}")
    assert active.gc(sites.here).objects == 2


def test_private_and_shared_objects_refer_to_each_other(sites: Sites) -> None:
    private, shared = block(), block("shared")
    private.make_persistent(scope="private")
    shared.next = private
    private.next = shared
    assert active.gc(sites.here).objects == 0
    assert shared.next is private
    assert private.next is shared
    version = shared.new_version()
    version.fill(2)
    version.consolidate_version()
    assert (shared.mean(), private.next.mean()) == (2, 2)
