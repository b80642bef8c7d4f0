"""dataClay 4 programs run on a pool: what they rely on holds, under their names."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from compat_models import Collection, Odd, Person, Reader, Stats
from engram import active
from engram.compat.dataclay import (
    AlienDataClayObject,
    Client,
    DataClayObject,
    StorageObject,
    StubDataClayObject,
    activemethod,
)
from engram.compat.dataclay import exceptions as exc
from engram.compat.dataclay.client import finish, init
from engram.compat.dataclay.config import get_runtime, session_var, set_runtime
from engram.compat.dataclay.contrib.dummy_pycompss import INOUT, task
from engram.compat.dataclay.event_loop import run_dc_coroutine
from test_active import python

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = "64 MiB"


@pytest.fixture
def client(home: Path) -> Iterator[Client]:
    """Give a started client of a new pool with three devices."""
    for name in ("one", "two"):
        (home / name).mkdir()
    with Client(str(home / "pool"), size=SIZE, devices=[home / "one", home / "two"]) as started:
        yield started


# The client


def test_a_program_finds_in_another_process_what_it_stored(home: Path) -> None:
    path = str(home / "pool")
    client = Client(host=path, port=16587, username="u", password="p", dataset="admin", size=SIZE)  # noqa: S106
    client.start()
    person = Person("Alice", 32)
    person.make_persistent("alice")
    person.add_year()
    client.stop()
    code = (
        "import sys; from engram.compat.dataclay import Client; from compat_models import Person\n"
        "with Client(host=sys.argv[1]):\n"
        "    alice = Person.get_by_alias('alice'); alice.add_year(); print(alice)"
    )
    assert python(code, path) == "Alice, 34"
    with Client(path):
        assert Person.get_by_alias("alice").age == 34


def test_a_client_opens_and_closes_its_pool_and_leaves_open_one_that_was(home: Path) -> None:
    path = home / "pool"
    client = Client(pool=path, size=SIZE)
    assert not client.is_active
    with pytest.raises(RuntimeError, match="not active"):
        client.get_backends()
    client.start()
    client.start()
    assert client.is_active
    assert session_var.get()["dataset_name"] == "admin"
    client.stop()
    client.stop()
    assert get_runtime() is None
    with engram.open(path) as pool:
        with Client(pool=pool):
            Person("Bob", 1).make_persistent("bob")
        with Client(str(path)):
            assert Person.get_by_alias("bob").age == 1
        assert pool
    engram.destroy(path)


def test_clients_nest_and_the_last_one_that_was_started_is_used(home: Path) -> None:
    with Client(str(home / "a"), size=SIZE) as outer:
        Person("outer", 1).make_persistent("it")
        with Client(str(home / "b"), size=SIZE):
            Person("inner", 1).make_persistent("it")
            assert Person.get_by_alias("it").name == "inner"
            assert get_runtime() is not outer.runtime
        assert Person.get_by_alias("it").name == "outer"
        assert outer.runtime is not None
        set_runtime(outer.runtime)
        assert get_runtime() is outer.runtime


def test_the_environment_names_the_pool(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engram.create(home / "pool", size=SIZE).close()
    monkeypatch.setenv("ENGRAM_POOL", str(home / "pool"))
    client = init()
    Person("Eve", 1).make_persistent("eve")
    finish()
    client.stop()
    monkeypatch.delenv("ENGRAM_POOL")
    monkeypatch.delenv("DC_HOST", raising=False)
    with pytest.raises(engram.ArgumentError, match="ENGRAM_POOL"):
        Client().start()
    monkeypatch.chdir(home)
    for host in ("127.0.0.1", "dataclay"):
        client = Client(host=host, size=SIZE)
        with pytest.raises(engram.ArgumentError, match=rf"host='{host}'.*/dev/shm/demo"):
            client.start()
        assert not client.is_active
        assert not (home / host).exists()
    with Client(host="./here", size=SIZE):
        pass
    with Client(host="here"):
        pass


def test_a_thread_uses_the_client_of_the_program(client: Client, home: Path) -> None:
    del client
    Person("Alice", 32).make_persistent("alice")
    found = []
    thread = threading.Thread(target=lambda: found.append(Person.get_by_alias("alice").age))
    with engram.create(home / "other", size=SIZE):
        thread.start()
        thread.join()
    assert found == [32]


def test_a_dataset_is_a_namespace(home: Path) -> None:
    path = str(home / "pool")
    with Client(path, size=SIZE):
        Person("own", 1).make_persistent("it")
        with Client(path, dataset="other"):
            Person("other", 1).make_persistent("it")
            assert Person.get_by_alias("it").name == "other"
            assert Person.get_by_alias("it", "admin").name == "own"
            with pytest.raises(exc.AlreadyExistError, match="other/it already exists"):
                Person("third", 1).make_persistent("it")
        other = Person.get_by_alias("it", dataset_name="other")
        assert other.name == "other"
        assert other._dc_meta.dataset_name == "other"
        assert Person.get_by_id(other._dc_meta.id) is other
        with pytest.raises(exc.DatasetIsNotAccessibleError, match="nowhere"):
            Person.get_by_alias("it", "nowhere")
        Person.delete_alias("it", "other")
        with pytest.raises(exc.AliasDoesNotExistError):
            Person.get_by_alias("it", "other")


def test_a_client_is_a_with_block_of_either_kind(home: Path) -> None:
    async def program() -> int:
        async with Client(str(home / "pool"), size=SIZE) as client:
            person = Person("Alice", 32)
            await person.a_make_persistent("alice")
            await person.a_add_alias("a")
            assert await person.a_get_aliases() == {"alice", "a"}
            found = await Person.a_get_by_alias("a")
            assert found is person
            assert await Person.a_get_by_id(person._dc_meta.id) is person
            await Person.a_delete_alias("a")
            version = await person.a_new_version()
            await version.a_dc_update_properties({"_dc_property_age": 40})
            await version.a_consolidate_version()
            assert list(await person.a_get_properties()) == [
                f"_dc_property_{name}" for name in ("name", "age", "friend")
            ]
            await person.a_move(next(iter(await client.a_get_backends())))
            await person.a_sync()
            return int(person.age)

    assert asyncio.run(program()) == 40


# Objects


def test_methods_run_whether_they_are_decorated_or_not(client: Client) -> None:
    del client
    person = Person("Alice", 32)
    person.add_year()
    person.make_persistent()
    person.add_year()
    assert person.describe() == "Alice is 34"
    assert str(person) == "Alice, 34"
    assert getattr(Person.add_year, "_is_activemethod")  # noqa: B009
    assert StorageObject is DataClayObject

    @task(returns=INOUT)
    @activemethod
    def method(self: Person) -> None: ...

    assert getattr(method, "_is_activemethod")  # noqa: B009


def test_an_object_knows_whether_it_is_persistent(client: Client) -> None:
    del client
    person, friend = Person("Alice", 32), Person("Bob", 3)
    person.friend = friend
    assert person.is_persistent is person._dc_is_registered is False
    assert person.getID() is None
    assert person.backends == person.get_aliases() == set()
    person.make_persistent(alias="")
    assert person.is_persistent is friend.is_persistent is True
    assert person.get_aliases() == set()
    person.make_persistent()
    person.make_persistent("alice")
    assert person.get_aliases() == {"alice"}
    assert person.get_alias() == "alice"
    assert person == Person.get_by_alias("alice")
    assert person != friend
    assert Person("x", 1) != Person("x", 1)


def test_ids_are_uuids_and_json_and_mean_the_same_in_any_process(client: Client) -> None:
    person = Person("Alice", 32)
    person.make_persistent("alice")
    text = person.getID()
    assert isinstance(person._dc_meta.id, uuid.UUID)
    assert isinstance(text, str)
    assert " " not in text
    assert "://" not in text
    assert Person.get_by_id(text) is Person.get_by_id(person._dc_meta.id) is person
    assert Person.get_by_id(person.get_id()) is person
    code = (
        "import sys; from engram.compat.dataclay import Client; from compat_models import Person\n"
        "with Client(sys.argv[1]) as client:\n"
        "    assert Person.get_by_id(sys.argv[2]).name == 'Alice'\n"
        "    print(Person.get_by_alias('alice').getID(), *client.get_backends())"
    )
    path = client.runtime.home.pool_path  # type: ignore[union-attr]
    backends = " ".join(map(str, client.get_backends()))
    assert python(code, path, text) == f"{text} {backends}"
    with pytest.raises(exc.DoesNotExistError, match=r"^/object/.* does not exist$"):
        Person.get_by_id(uuid.uuid4())
    person.delete()
    with pytest.raises(exc.DoesNotExistError, match=r"^/object/.* does not exist$"):
        Person.get_by_id(text)


def test_a_class_is_imported_where_the_program_lacks_it(client: Client) -> None:
    Person("Alice", 32).make_persistent("alice")
    code = (
        "import sys; from engram.compat.dataclay import Client, DataClayObject\n"
        "with Client(sys.argv[1]):\n"
        "    print(DataClayObject.get_by_alias('alice'))"
    )
    path = client.runtime.home.pool_path  # type: ignore[union-attr]
    assert python(code, path) == "Alice, 32"
    Path(path).chmod(0o722)
    with pytest.raises(subprocess.CalledProcessError):
        python(code, path)


def test_properties_have_dataclays_prefix(client: Client) -> None:
    del client
    person = Person("Alice", 32)
    for _ in range(2):
        assert person.get_properties()["_dc_property_age"] == 32
        person.dc_update_properties({"_dc_property_age": 32, "_dc_property_name": "Alicia"})
        assert person.name == "Alicia"
        person.make_persistent()
    with pytest.raises(active.UndeclaredFieldError, match="size"):
        person.dc_update_properties({"_dc_property_age": 1, "_dc_property_size": 1})
    assert person.age == 32


def test_clones_and_updates_are_coroutines(client: Client) -> None:
    del client

    async def program() -> None:
        person = Person("Alice", 32)
        await person.dc_put("alice")
        clone = await person.dc_clone()
        assert not clone.is_persistent
        clone.age = 50
        assert person.age == 32
        await person.dc_update(clone)
        assert person.age == 50
        other = await Person.dc_clone_by_alias("alice")
        other.name = "Bob"
        await Person.dc_update_by_alias("alice", other)
        assert person.name == "Bob"
        with pytest.raises(TypeError, match="Person"):
            await person.dc_update(Stats({}))
        with pytest.raises(TypeError, match="Person"):
            await Person.dc_update_by_alias("alice", Stats({}))
        with pytest.raises(AttributeError, match="empty"):
            await Person("x", 1).dc_put("")

    asyncio.run(program())


def test_coroutines_may_be_active_methods(client: Client) -> None:
    del client
    person = Person("Alice", 1)
    assert asyncio.run(person.grow(2)) == 3
    person.make_persistent()
    assert asyncio.run(person.grow(2)) == person.age == 5


def test_what_a_method_makes_and_returns_is_persistent(client: Client) -> None:
    person = Person("Alice", 32)
    person.make_persistent("alice")
    before = client.runtime.get_num_objects()  # type: ignore[union-attr]
    child = person.child("Carol")
    assert child.is_persistent
    assert child.name == "Carol"
    assert client.runtime.get_num_objects() == before + 1  # type: ignore[union-attr]
    says, text = person.child_says()
    assert says is True
    assert Person.get_by_id(text).name == "child"


def test_what_a_method_is_given_is_persistent_after_it(client: Client) -> None:
    del client
    person, other = Person("Alice", 32), Person("Bob", 3)
    person.make_persistent()
    assert person.meet(other) == "Bob"
    assert other.is_persistent


def test_a_method_that_raises_stores_nothing(client: Client) -> None:
    person = Person("Alice", 32)
    person.make_persistent()
    before = client.runtime.get_num_objects()  # type: ignore[union-attr]
    made: list[Person] = []
    with pytest.raises(RuntimeError, match="Alice"):
        person.make_and_fail(made)
    assert not made[0].is_persistent
    person.add_year()
    assert not made[0].is_persistent
    assert client.runtime.get_num_objects() == before  # type: ignore[union-attr]


def test_annotations_may_say_more_than_a_type(client: Client) -> None:
    del client
    odd = Odd()
    odd.kept, odd.cache, odd.number, odd.array = 1, {}, 5, np.zeros(2)
    odd.make_persistent("odd")
    names = {name.removeprefix("_dc_property_") for name in odd.get_properties()}
    assert names == {"kept", "number", "array"}
    odd.array[1] = 3
    assert list(odd.array) == [0, 3]
    assert odd.number == 11
    odd.number = 2
    assert odd.number == 5
    assert odd.cache == {}


def test_a_class_with_a_state_sets_up_what_is_no_field(client: Client) -> None:
    reader = Reader("f")
    reader.make_persistent("reader")
    assert reader.read() == (1, True)
    code = (
        "import sys; from engram.compat.dataclay import Client; from compat_models import Reader\n"
        "with Client(sys.argv[1]):\n"
        "    print(*Reader.get_by_alias('reader').read())"
    )
    path = client.runtime.home.pool_path  # type: ignore[union-attr]
    assert python(code, path) == "2 True"
    assert reader.read() == (3, True)


def test_a_value_that_a_pool_does_not_hold_is_refused_and_nothing_is_stored(client: Client) -> None:
    before = client.runtime.get_num_objects()  # type: ignore[union-attr]
    stats = Stats({"a": object()})  # type: ignore[dict-item]
    with pytest.raises(exc.DataClayException, match=r"Stats\.counts"):
        stats.make_persistent("stats")
    with pytest.raises(active.UnsupportedFieldError):
        stats.make_persistent("stats")
    assert not stats.is_persistent
    assert client.runtime.get_num_objects() == before  # type: ignore[union-attr]


# Aliases


def test_an_alias_is_taken_once_under_either_name_of_the_error(client: Client) -> None:
    del client
    Person("Alice", 32).make_persistent("it")
    other = Person("Bob", 3)
    for error in (
        exc.AlreadyExistError,
        exc.AliasAlreadyExistError,
        active.AliasTakenError,
        exc.DataClayException,
    ):
        with pytest.raises(error, match="admin/it already exists"):
            other.make_persistent("it")
        assert not other.is_persistent
    other.make_persistent()
    with pytest.raises(exc.AlreadyExistError, match="admin/it already exists"):
        other.add_alias("it")


def test_a_missing_alias_is_an_error_where_it_is_asked_for(client: Client) -> None:
    del client
    for error in (exc.AliasDoesNotExistError, active.AliasNotFoundError, KeyError):
        with pytest.raises(error) as caught:
            Person.get_by_alias("nobody")
        assert str(caught.value) == "Alias None/nobody does not exist"
    Person.delete_alias("nobody")
    with pytest.raises(exc.ObjectNotRegisteredError, match="is not registered!"):
        Person("Alice", 1).add_alias("x")
    person = Person("Alice", 1)
    person.make_persistent("alice")
    with pytest.raises(AttributeError, match="empty"):
        person.add_alias("")
    Person.delete_alias("alice")
    assert person.get_aliases() == set()
    assert person.age == 1


def test_errors_pickle() -> None:
    errors = [
        exc.AliasDoesNotExistError("a", None),
        exc.ObjectIsNotVersionError("x"),
        exc.DatasetIsNotAccessibleError("d", "u"),
        exc.BackendUnknownError("there is none"),
    ]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)


# Backends


def test_backends_are_the_devices_of_the_pool_and_then_other_pools(
    client: Client, home: Path
) -> None:
    three = list(client.get_backends())
    assert len(three) == 3
    assert all(isinstance(each, uuid.UUID) for each in three)
    with engram.create(home / "other", size=SIZE):
        backends = client.get_backends()
        assert list(backends)[:3] == three
        assert len(backends) == 4
        person = Person("Alice", 1)
        person.make_persistent(backend_id=list(backends)[3])
        assert person._home.pool_path == str(home / "other")
    assert list(client.get_backends()) == three


def test_an_unknown_backend_is_a_key_error_and_leaves_no_alias(client: Client) -> None:
    person = Person("Alice", 1)
    for error in (KeyError, exc.DataClayException):
        with pytest.raises(error):
            person.make_persistent("alice", uuid.uuid4())
        assert not person.is_persistent
        with pytest.raises(exc.AliasDoesNotExistError):
            Person.get_by_alias("alice")
    person.make_persistent()
    for call in (person.move, person.new_replica, person.new_version):
        with pytest.raises(KeyError):
            call(uuid.uuid4())
    with pytest.raises(KeyError):
        client.get_backends()[uuid.uuid4()]


def test_an_object_is_in_the_backend_that_was_named_and_moves(client: Client) -> None:
    first, second, third = client.get_backends()
    person, friend = Person("Alice", 1), Person("Bob", 2)
    friend.make_persistent(backend_id=second)
    person.friend = friend
    person.make_persistent(backend_id=first)
    assert person._dc_meta.master_backend_id == first
    assert friend._dc_meta.master_backend_id == second
    assert person.where() == (first, True)
    assert get_runtime().backend_id is None  # type: ignore[union-attr]
    person.move(third, recursive=True, remotes=False)
    assert friend.backends == {second}
    person.move(third, recursive=True)
    assert person.backends == friend.backends == {third}
    person.make_persistent("alice", first)
    assert person.backends == {first}
    assert person.get_aliases() == {"alice"}
    carol = Person("Carol", 1)
    carol.move(second)
    assert carol.backends == {second}


def test_replicas_go_where_there_is_none_yet(client: Client) -> None:
    person = Person("Alice", 1)
    with pytest.raises(exc.ObjectNotRegisteredError):
        person.new_replica()
    with pytest.raises(exc.ObjectNotRegisteredError):
        person.sync()
    person.make_persistent()
    for count in (2, 3, 3):
        person.new_replica()
        assert len(person.backends) == count
    assert person._dc_meta.master_backend_id not in person._dc_meta.replica_backend_ids
    assert len(client.get_backends()) == 3


# Versions


def test_a_version_takes_its_originals_place_and_equals_it_from_then_on(client: Client) -> None:
    del client
    person = Person("Alice", 1)
    with pytest.raises(exc.ObjectNotRegisteredError):
        person.new_version()
    person.make_persistent("alice")
    first = person.new_version()
    second = first.new_version()
    second.name = "Carol"
    assert second._dc_meta.original_object_id == person._dc_meta.id
    assert second._dc_meta.versions_object_ids == [first._dc_meta.id]
    assert person != second
    second.consolidate_version()
    assert person.name == first.name == second.name == "Carol"
    assert person == first == second
    assert len({person, first, second}) == 1
    assert Person.get_by_alias("alice") == second
    for each in (person, first, second):
        for error in (exc.ObjectIsNotVersionError, active.VersionError):
            with pytest.raises(error, match="is not a version!"):
                each.consolidate_version()


def test_a_backends_client_makes_and_consolidates_versions(client: Client) -> None:
    person = Person("Alice", 1)
    person.make_persistent()
    backend = client.get_backends()[person._dc_meta.master_backend_id]  # type: ignore[index]
    text = run_dc_coroutine(backend.new_object_version, person._dc_meta.id)
    version = Person.get_by_id(text)
    version.name = "Bob"
    run_dc_coroutine(backend.flush_all)
    run_dc_coroutine(backend.consolidate_object_version, version._dc_meta.id)
    assert person.name == "Bob"


# What else a program may use


def test_a_stub_is_the_class_by_its_name(client: Client) -> None:
    del client
    stub = StubDataClayObject.__class_getitem__("compat_models.Person")
    person = stub("Alice", 32)
    assert person.is_persistent
    person.make_persistent("alice")
    person.add_year()
    assert stub.get_by_alias("alice").age == 33


def test_a_stub_runs_the_source_that_the_pool_keeps(client: Client) -> None:
    Person("Alice", 32).make_persistent("alice")
    code = (
        "import sys; from engram.compat.dataclay import Client, StubDataClayObject\n"
        "import importlib, builtins\n"
        "real = importlib.import_module\n"
        "def none(name, *rest):\n"
        "    if name == 'compat_models': raise ImportError(name)\n"
        "    return real(name, *rest)\n"
        "importlib.import_module = none\n"
        "with Client(sys.argv[1]):\n"
        "    person = StubDataClayObject['compat_models.Person'].get_by_alias('alice')\n"
        "    person.add_year(); print(person)"
    )
    path = client.runtime.home.pool_path  # type: ignore[union-attr]
    assert python(code, path) == "Alice, 33"


def test_an_alien_is_a_value_that_is_persistent_by_itself(client: Client) -> None:
    del client
    alien = AlienDataClayObject({"a": 1, "b": [1]})
    alien["c"] = 2
    alien.make_persistent("alien")
    alien["d"] = 3
    alien.update(e=4)
    del alien["a"]
    with pytest.raises(KeyError):
        alien["a"]
    assert sorted(alien) == ["b", "c", "d", "e"]
    assert len(alien) == 4
    assert "b" in alien
    assert AlienDataClayObject.get_by_alias("alien") == {"b": [1], "c": 2, "d": 3, "e": 4}
    array = AlienDataClayObject(np.arange(3.0))
    array.make_persistent()
    assert array.sum() == 3


def test_the_word_count_of_the_white_paper(client: Client) -> None:
    del client
    collection = Collection()
    collection.make_persistent("texts")
    for text in ("To be or not", "to be that is the question", "the rest is silence"):
        collection.add(text)
    result = Stats({})
    result.make_persistent()
    for each in Collection.get_by_alias("texts").texts:
        result.merge(each.count())
    assert result.most(4) == [("be", 2), ("is", 2), ("the", 2), ("to", 2)]
    assert sum(result.counts.values()) == 14
