"""dataClay 2 programs, as the papers have them: docstring schemas, `@dclayMethod`, `api.init`."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pytest

import engram
from compat_models import Block, OldCollection, OldStats, OldText, Person
from engram import active
from engram.compat.dataclay import DataClayObject, api, dclayMethod, getRuntime
from engram.compat.dataclay.exceptions.exceptions import (
    ClientError,
    DataClayException,
    ImproperlyConfigured,
    InvalidPythonSignature,
)
from test_active import python

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def session(home: Path) -> Iterator[Path]:
    """Give the pool of a session that a file has begun."""
    (home / "session.properties").write_text(
        f"# a remark\nAccount=bsc\nPool={home / 'pool'}\nSize=64 MiB\n", encoding="utf-8"
    )
    api.init(home / "session.properties")
    yield home / "pool"
    api.finish()


# Sessions


def test_a_session_begins_with_a_file_or_the_environment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ENGRAM_POOL", "DATACLAYSESSIONCONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(home)
    with pytest.raises(ImproperlyConfigured, match="ENGRAM_POOL"):
        api.init()
    with pytest.raises(ValueError, match=r"none\.properties"):
        api.init("none.properties")
    (home / "empty.properties").write_text("Account=bsc\n", encoding="utf-8")
    with pytest.raises(ImproperlyConfigured, match="Pool="):
        api.init("empty.properties")
    assert not api.is_initialized()
    with pytest.raises(ClientError, match="not initialized"):
        getRuntime()
    engram.create(home / "pool", size="64 MiB").close()
    monkeypatch.setenv("ENGRAM_POOL", str(home / "pool"))
    api.init()
    api.init()
    assert api.is_initialized()
    api.finish()
    monkeypatch.delenv("ENGRAM_POOL")
    config = home / "there.properties"
    config.write_text(f"Pool = '{home / 'pool'}'\nDataSetForStore=mine\n", encoding="utf-8")
    monkeypatch.setenv("DATACLAYSESSIONCONFIG", str(config))
    api.init()
    assert getRuntime().dataset_name == "mine"
    api.finish()
    assert not api.is_initialized()


def test_the_runtime_knows_backends_and_objects(session: Path) -> None:
    block = Block()
    block.make_persistent("block")
    runtime = getRuntime()
    assert api.get_backends() == [str(session)]
    (backend,) = api.get_backends_info()
    assert api.get_backend_id_by_name(str(session)) == backend
    assert api.get_backend_id(str(session), 6867) == backend
    assert api.get_backend_id_by_name("nowhere") is None
    assert api.get_num_objects() == 1
    assert block.get_location() == backend
    assert list(runtime.get_all_locations(block.get_object_id())) == [backend]
    assert runtime.get_object_by_id(block.get_object_id()) is block
    assert runtime.get_by_alias("block") is block
    runtime.move_object(block, backend, backend)
    assert runtime.new_replica(block.get_object_id()) is None
    runtime.delete_alias_in_dataclay("block")
    assert block.get_aliases() == set()


# Classes


def test_an_old_class_is_one_with_docstring_fields_or_dclay_methods(session: Path) -> None:
    block = Block()
    assert not block.is_persistent
    assert not block.is_persistent()
    block.make_persistent()
    assert block.is_persistent
    assert block.is_persistent() is True
    assert repr(block.is_persistent) == "True"
    assert str(block.getID()).count(":") == 2
    assert Block.get_object_by_id(block.get_object_id()) is block
    assert Block.get_by_id(block.getID()) is block

    class OnlyMethods(DataClayObject):
        @dclayMethod()
        def nothing(self) -> None: ...

    class Below(OnlyMethods):
        pass

    assert callable(OnlyMethods().is_persistent)
    assert callable(Below().is_persistent)
    assert not callable(Person("Alice", 1).is_persistent)
    assert session.exists()


def test_an_old_field_without_a_value_is_none_once_the_object_is_persistent(session: Path) -> None:
    block = Block()
    with pytest.raises(AttributeError, match="label"):
        _ = block.label
    block.make_persistent()
    assert block.label is None
    assert session.exists()


def test_an_old_version_is_an_id_and_a_backend(session: Path) -> None:
    block = Block()
    block.label = "first"
    block.make_persistent("block")
    number, backend = block.new_version()
    assert isinstance(number, UUID)
    assert list(api.get_backends_info()) == [backend]
    version = getRuntime().get_object_by_id(number)
    version.label = "second"
    assert block.label == "first"
    version.consolidate_version()
    assert Block.get_by_alias("block").label == "second"
    assert session.exists()


def test_old_clones_and_updates_are_plain_methods(session: Path) -> None:
    block = Block()
    block.label = "a"
    block.dc_put("block")
    clone = block.dc_clone()
    assert not clone.is_persistent
    clone.label = "b"
    block.dc_update(clone)
    block.dc_update(None)
    assert Block.dc_clone_by_alias("block").label == "b"
    block.synchronize("label", "c")
    assert block.label == "c"
    block.set_all(clone)
    assert block.label == "b"
    block.session_detach()
    with pytest.raises(AttributeError, match="empty"):
        Block().make_persistent(alias="")
    assert session.exists()


def test_the_older_names_of_persistence(session: Path) -> None:
    block = Block()
    block.initialize_zeros(2, 3)
    block.deletePersistent()
    block.makePersistent("block")
    assert Block.get_by_alias("block") is block
    block.block[0, 0] = 7
    block.deletePersistent()
    assert not block.is_persistent()
    assert block.getID() is None
    assert block.block[0, 0] == 7
    with pytest.raises(active.AliasNotFoundError):
        Block.get_by_alias("block")
    block.makePersistent("block")
    assert block.block.sum() == 7
    assert session.exists()


def test_a_docstring_imports_into_its_classs_module(session: Path) -> None:
    block = Block()
    assert block.imported() == (2.0, 7)
    block.make_persistent()
    assert block.imported() == (2.0, 7)
    assert block.local() == "here"
    assert vars(Block)["elsewhere"]._dclay_method
    block.elsewhere()
    with pytest.raises(ImportError, match=r"Missing.*import no_such_module"):
        types.new_class(
            "Missing",
            (DataClayObject,),
            exec_body=lambda body: body.update(__doc__="\n    @dclayImport no_such_module\n"),
        )
    assert session.exists()


@pytest.mark.parametrize(
    "kind",
    [
        *("int", "float", "bool", "None", "str", "bytes", "anything", "storageobject", "list"),
        *("list<int>", "list[list<model.matrix.Block>]", "dict<int, model.classes.Node>"),
        *("tuple", "set<str>", "numpy.ndarray", "numpy.matrix", "model.block.Block"),
    ],
)
def test_a_fields_type_is_one_of_dataclays(kind: str) -> None:
    made = _class_with(kind)
    assert list(made._fields) == ["it"]


@pytest.mark.parametrize("kind", ["Block", "unicode", "object", "integer"])
def test_an_unknown_type_is_refused_with_its_field(kind: str) -> None:
    with pytest.raises(InvalidPythonSignature, match=rf"'it' of Made.*'{kind}'") as caught:
        _class_with(kind)
    assert isinstance(caught.value, DataClayException | active.UnsupportedFieldError)
    with pytest.raises(ValueError, match=rf"'number' of method .*nothing.*'{kind}'"):

        @dclayMethod(number=kind)
        def nothing(self: DataClayObject, number: int) -> None: ...


def _class_with(kind: str) -> type[DataClayObject]:
    doc = f"A class.\n\n    # a remark\n    @ClassField it {kind}\n    Other text.\n"
    made = types.new_class(
        "Made", (DataClayObject,), exec_body=lambda body: body.update(__doc__=doc)
    )
    assert issubclass(made, DataClayObject)
    return made


# The papers' programs


def test_the_blocks_of_the_paper_multiply_in_place(session: Path) -> None:
    """As in arXiv 2111.06851: matrices of blocks, and a product by fused multiply and add."""
    size, blocks = 8, 3

    def matrix(start: int) -> list[list[Block]]:
        rows = [[Block() for _ in range(blocks)] for _ in range(blocks)]
        for number, block in enumerate(block for row in rows for block in row):
            block.make_persistent()
            block.initialize_random(size, size, start + number)
        return rows

    def whole(rows: list[list[Block]]) -> np.ndarray:
        return np.block([[np.array(block.block) for block in row] for row in rows])

    a, b, c = matrix(0), matrix(100), [[Block() for _ in range(blocks)] for _ in range(blocks)]
    for row in c:
        for block in row:
            block.make_persistent()
            block.initialize_zeros(size, size)
    for i in range(blocks):
        for j in range(blocks):
            for k in range(blocks):
                c[i][j].add_product(a[i][k], b[k][j])
    assert np.allclose(whole(c), whole(a) @ whole(b))
    assert api.get_num_objects() == 3 * blocks**2
    assert session.exists()


def test_a_blocks_array_is_the_pools_memory_in_a_method(session: Path) -> None:
    block = Block()
    block.make_persistent("block")
    block.initialize_zeros(4, 4)
    before = active.ActiveObject._loaded(block)["block"].raw
    one = Block()
    one.make_persistent()
    one.initialize_random(4, 4, 0)
    block.add_product(one, one)
    code = (
        "import sys; from engram.compat.dataclay import Client; from compat_models import Block\n"
        "with Client(sys.argv[1]):\n"
        "    print(Block.get_by_alias('block').block.sum())"
    )
    assert float(python(code, session)) == pytest.approx(float((one.block @ one.block).sum()))
    assert before is not None


def test_the_word_count_of_the_white_paper(session: Path) -> None:
    """As in the NEXTGenIO white paper: texts that count their words, and statistics that merge."""
    collection = OldCollection()
    collection.make_persistent(alias="texts")
    for text in ("To be or not", "to be that is the question", "the rest is silence"):
        collection.add_text(text)
    result = OldStats({})
    result.make_persistent()
    for each in OldCollection.get_by_alias("texts").texts:
        assert isinstance(each, OldText)
        assert each.is_persistent()
        result.merge_word_counts(each.word_count())
    assert result.get_summary(4) == [("be", 2), ("is", 2), ("the", 2), ("to", 2)]
    assert session.exists()


# The snippet of the paper

SNIPPET = """
import sys
from engram.compat.dataclay import DataClayObject, api, dclayMethod


class Block(DataClayObject):
    \"\"\"
    @ClassField data numpy.ndarray
    @ClassField label str
    \"\"\"
    @dclayMethod(return_='float')
    def mean(self):
        return self.data.mean()


api.init(sys.argv[1])
if len(sys.argv) == 2:
    b = Block("MyLabel", [1, 2, 3])
    b.makePersistent()
    m = b.mean()
    print(m, b.getID())
else:
    b = Block.get_by_id(sys.argv[2].partition(":")[0])
    print(b.mean(), b.label, b.data.dtype.kind, b.data.tolist())
"""


def test_the_papers_snippet_runs_as_printed(session: Path) -> None:
    config = session.parent / "session.properties"
    mean, number = python(SNIPPET, config).split()
    assert mean == "2.0"
    assert python(SNIPPET, config, number) == "2.0 MyLabel i [1, 2, 3]"


class Typed(DataClayObject):
    """What has fields and no `__init__`.

    @ClassField data numpy.ndarray
    @ClassField label str
    @ClassField note str
    @ClassField counts dict<str, int>
    @ClassField steps list<int>
    """


def test_arguments_go_in_order_if_they_fit_and_else_by_type() -> None:
    made: Any = Typed(np.zeros(2), "a", "b", {"x": 1}, [1])
    assert (made.label, made.note, made.counts, made.steps) == ("a", "b", {"x": 1}, [1])
    made = Typed("a", [1.5, 2], note="b", steps=[])
    assert (made.label, made.note, made.data.tolist()) == ("a", "b", [1.5, 2.0])
    made = Typed({"x": 1}, data=[[1, 2], (3, 4)])
    assert (made.counts, made.data.shape) == ({"x": 1}, (2, 2))
    made = Typed(None, "a", None, steps=[1])
    assert (made.data, made.label, made.steps) == (None, "a", [1])


class Loose(DataClayObject):
    """What programs give other values than they have declared.

    @ClassField low int
    @ClassField high float
    @ClassField pair tuple<int>
    @ClassField words list<string>
    @ClassField anything typing.Any
    @ClassField data np.ndarray
    """


def test_arguments_that_are_alike_stay_in_order() -> None:
    words = ["a", "b"]
    made: Any = Loose(0.5, 10, [3, 4], words, int, [])
    assert (made.low, made.high, made.pair, made.words) == (0.5, 10, [3, 4], words)
    assert (made.anything, made.data) == (int, [])
    made = Loose(True, np.float32(2), (1,), {"a"}, None, range(3))
    assert (made.low, made.high, made.words, made.data) == (True, 2, {"a"}, range(3))


def test_arguments_that_fit_in_no_order_or_in_several_stay_in_order() -> None:
    for args in (("a", [1]), (b"a", [[1], [1, 2]])):  # whose list may be data, or steps
        with pytest.raises(
            engram.active.UnsupportedFieldError, match=r"Typed\.data is a field for"
        ):
            Typed(*args)
    made: Any = Typed(None, 1, [2])
    assert (made.label, made.note) == (1, [2])


@pytest.mark.parametrize(
    ("args", "named", "told"),
    [
        (([1],), {"data": [2]}, "'data' twice"),
        ((1, 2, 3, 4, 5, 6), {}, "takes 5 fields, not 6"),
    ],
)
def test_arguments_that_are_too_many_are_told(
    args: tuple[object, ...], named: dict[str, object], told: str
) -> None:
    with pytest.raises(engram.ArgumentError, match=f"Typed.*{told}"):
        Typed(*args, **named)
