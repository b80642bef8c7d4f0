"""COMPSs' storage interface on a pool: what pycompss imports and what its programs do with it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from engram.compat.compss import FOLDER, api
from engram.compat.compss.api import StorageObject, TaskContext, getByID
from engram.compat.dataclay import exceptions as exc
from engram.compat.dataclay.config import get_runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent


class Content(StorageObject):
    """Something that declares no fields."""

    size = 0

    def __init__(self, content: Any = None) -> None:
        super().__init__()
        self.content = content
        self._cache = object()

    def increase(self) -> None:
        self.content += 1


class Declared(StorageObject):
    """A number.

    @ClassField number int
    """

    def __init__(self) -> None:
        self.number = 1
        self.other = object()


@pytest.fixture
def storage(home: Path) -> Iterator[Path]:
    """Give the file of a storage that is set up in this process."""
    config = home / "storage.properties"
    config.write_text(f"Pool={home / 'pool'}\nSize=64 MiB\n", encoding="utf-8")
    api.init(config_file_path=str(config))
    yield config
    api.finish()


def run(code: str, *words: object, **environment: str) -> str:
    """Run a program that has the storage on its PYTHONPATH, as COMPSs' programs have."""
    folder = subprocess.run(
        [sys.executable, "-m", "engram.compat.compss"], check=True, capture_output=True, text=True
    ).stdout.strip()
    paths = [folder, str(TESTS), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        timeout=120,
    )
    return done.stdout.strip()


# The package


def test_pycompss_finds_all_that_it_imports(home: Path) -> None:
    code = (
        "from storage.api import init, finish, getByID, TaskContext, initWorker, finishWorker\n"
        "from storage.api import initWorkerPostFork, finishWorkerPostFork, StorageObject\n"
        "from storage.storage_object import storage_object\n"
        "from storage.Object import SCO\n"
        "import storage.api\n"
        "assert SCO is storage_object is StorageObject is storage.api.StorageObject\n"
        "assert not storage.api.__pipelining__\n"
        "init(config_file_path='null')\n"
        "from test_compat_compss import Content\n"
        "it = Content(5); it.makePersistent('name'); print(it.getID()); finish()"
    )
    engram.create(home / "pool", size="64 MiB").close()
    found = run(code, ENGRAM_POOL=str(home / "pool"))
    assert FOLDER.name == "path"
    with engram.open(home / "pool"):
        assert getByID(found).content == getByID("name").content == 5


def test_workers_note_the_file_and_open_the_pool_after_the_fork(storage: Path) -> None:
    it = Content([1, 2])
    it.make_persistent()
    code = (
        "import os, sys; from storage import api\n"
        "api.initWorker(config_file_path=sys.argv[1])\n"
        "assert api.get_client() is None\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    code = 1\n"
        "    try:\n"
        "        api.initWorkerPostFork()\n"
        "        it = api.getByID(sys.argv[2])\n"
        "        it.content = [*it.content, 3]\n"
        "        api.finishWorkerPostFork()\n"
        "        code = 0\n"
        "    finally:\n"
        "        os._exit(code)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "print(api.getByID(sys.argv[2]).content)\n"
        "api.finishWorker()"
    )
    assert run(code, storage, it.getID()) == "[1, 2, 3]"
    assert it.content == [1, 2, 3]


def test_the_storages_file_names_the_pool_by_a_key_or_by_its_first_line(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENGRAM_POOL", raising=False)
    engram.create(home / "pool", size="64 MiB").close()
    config = home / "storage.conf"
    for text in (f"# remark\n{home / 'pool'}\n", f"Dataset=mine\nPool={home / 'pool'}\n"):
        config.write_text(text, encoding="utf-8")
        api.init(str(config))
        runtime = get_runtime()
        assert runtime is not None
        assert runtime.home.pool_path == str(home / "pool")
        assert runtime.dataset_name == ("mine" if "mine" in text else "admin")
        api.finish()
    for name in ("localhost\n", ""):
        config.write_text(name, encoding="utf-8")
        with pytest.raises(engram.ArgumentError, match=r"storage\.conf.*Pool="):
            api.init(str(config))
    with pytest.raises(engram.ArgumentError, match="ENGRAM_POOL"):
        api.init("null")


def test_what_is_finished_or_refused_is_not_used_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENGRAM_POOL", raising=False)
    config = home / "storage.conf"
    config.write_text(f"Pool={home / 'pool'}\nSize=64 MiB\n", encoding="utf-8")
    api.init(str(config))
    it = Content(5)
    it.make_persistent("five")
    api.finish()
    with pytest.raises(FileNotFoundError):
        api.init(str(home / "nowhere.conf"))
    config.unlink()
    with engram.open(home / "pool"):
        assert getByID("five").content == 5


# Objects


def test_a_persistent_object_is_known_by_its_id(storage: Path) -> None:
    it = Content("a")
    assert it.getID() is api.getID(it) is None
    with pytest.raises(TypeError):
        Content.getID()  # type: ignore[call-arg]
    it.make_persistent()
    text = it.getID()
    assert isinstance(text, str)
    assert not set(text) & set(" \t\n")
    assert "://" not in text
    assert text[0] != "/"
    assert getByID(text) is it
    assert getByID(text, text) == [it, it]
    it.make_persistent()
    api.make_persistent(it, "ignored")
    assert it.getID() == text
    assert storage.exists()


def test_a_class_without_fields_keeps_all_its_attributes(storage: Path) -> None:
    it = Content(np.arange(3.0))
    it.label = "before"
    it.make_persistent()
    it.later = {"a": [1]}
    assert it.size == 0
    it.size = 4
    it._private = 1
    version = api.new_version(it)
    version.label = "version"
    code = (
        "import sys; from storage.api import init, finish, getByID\n"
        "from test_compat_compss import Content\n"
        "init(config_file_path=sys.argv[1])\n"
        "it = getByID(sys.argv[2])\n"
        "print(it.content.sum(), it.label, it.later, it.size, hasattr(it, '_private'))\n"
        "it.more = 5; it.content[0] = 7\n"
        "other = Content(); print(other.size, hasattr(other, 'label'))\n"
        "print(getByID(sys.argv[3]).label, getByID(sys.argv[3]).content.sum())\n"
        "finish()"
    )
    printed = run(code, storage, it.getID(), version.getID()).splitlines()
    assert printed == ["3.0 before {'a': [1]} 4 False", "0 False", "version 3.0"]
    assert it.more == 5
    assert it.content[0] == 7
    assert not hasattr(it, "nothing")
    assert Content().size == 0


def test_a_class_with_fields_keeps_just_these(storage: Path) -> None:
    it = Declared()
    it.make_persistent()
    it.number += 1
    it.third = object()
    assert getByID(str(it.getID())).number == 2
    assert storage.exists()


def test_what_is_deleted_is_an_ordinary_object_and_may_be_stored_again(storage: Path) -> None:
    it = Content(1)
    it.deletePersistent()
    it.makePersistent()
    text = it.getID()
    it.increase()
    it.delete_persistent()
    assert it.getID() is None
    assert it.content == 2
    with pytest.raises(exc.DoesNotExistError):
        getByID(str(text))
    api.make_persistent(it, text)
    assert getByID(str(text)) is it
    api.removeById(it)
    assert it.getID() is None
    assert storage.exists()


def test_an_id_of_nothing_is_an_error(storage: Path) -> None:
    with pytest.raises(exc.DoesNotExistError, match="nobody does not exist"):
        getByID("nobody")
    wrongs: list[Any] = [None, "", 5]
    for wrong in wrongs:
        with pytest.raises(engram.ArgumentError, match="is no id"):
            getByID(wrong)
    assert storage.exists()


def test_versions_are_made_of_objects_and_of_ids(storage: Path) -> None:
    it = Content([1])
    it.make_persistent()
    version = api.new_version(it)
    version.content = [2]
    assert it.content == [1]
    api.consolidate_version(version)
    assert it.content == [2]
    text = api.new_version(it.getID())
    getByID(text).content = [3]
    api.consolidate_version(text)
    assert it.content == [3]
    assert storage.exists()


def test_a_task_works_on_the_object_itself(storage: Path) -> None:
    it = Content(np.zeros(3))
    it.make_persistent()
    context = TaskContext(logging.getLogger("tests"), [it], config_file_path=str(storage))
    context.__enter__()
    context.values = [getByID(str(it.getID())), 5, "text"]
    context.values[0].content[1] = 4
    context.__exit__(None, None, None)
    it.updatePersistent()
    assert list(it.content) == [0, 4, 0]
    with api.ConstraintsContext({"max_threads": 1}):
        assert it.content.sum() == 4


def test_a_task_that_fails_leaves_the_context_open_and_the_next_one_works(storage: Path) -> None:
    it = Content(1)
    it.make_persistent()
    for value in (2, 3):
        context = TaskContext(logging.getLogger("tests"), [it], config_file_path=str(storage))
        context.__enter__()
        it.content = value
    context.__exit__(None, None, None)
    assert getByID(str(it.getID())).content == 3


def test_a_field_that_was_refused_is_just_not_there(storage: Path) -> None:
    assert storage
    content = Content(1)
    content.make_persistent("content")
    with pytest.raises(engram.active.UnsupportedFieldError):
        content.bad = lambda: 0
    assert not hasattr(content, "bad")
    content.bad = 1
    assert content.bad == 1
