"""Groups are mappings of names to members, nested, in byte order."""

import functools
import html
from collections.abc import MutableMapping
from typing import Any

import numpy as np
import pytest

import engram
from engram import _engram
from engram.member import new_member
from engram.scope import Scope

BAD_NAMES = ["", ".", "..", "a/../b", "a/./b", "a//b", "a/", "x" * 256, "é" * 128, "nul\0", "//a"]


def test_a_group_is_a_mutable_mapping(pool: engram.Pool) -> None:
    group = pool.create_group("g")
    assert isinstance(group, MutableMapping)
    group["b"] = 1
    group["a"] = [1, 2]
    group["c"] = b"bytes"
    assert list(group) == list(group.keys()) == ["a", "b", "c"]
    assert len(group) == len(group.items()) == 3
    assert [name for name, _ in group.items()] == ["a", "b", "c"]
    assert [type(member).__name__ for member in group.values()] == ["Array", "Array", "Blob"]
    assert "a" in group
    assert "d" not in group
    assert 5 not in group  # type: ignore[comparison-overlap]  # as with a dict
    assert group.get("d") is None
    assert group.get("d", 7) == 7
    assert group.get("a") == group["a"]
    del group["a"]
    assert "a" not in group


def test_the_mapping_mixins_work(pool: engram.Pool) -> None:
    group = pool.create_group("g")
    group.update({"x": 1, "y": 2}, z=3)
    assert group.pop("nothing", None) is None
    group.pop("x")
    assert list(group) == ["y", "z"]
    assert group.setdefault("y", 9)[()] == 2
    assert group.setdefault("w", 9)[()] == 9
    group.popitem()
    assert len(group) == 2
    group.clear()
    assert list(group) == []


def test_clear_deletes_all_or_none(pool: engram.Pool) -> None:
    for name in "abcd":
        pool[name] = 1
    pool["d"].read_only = True
    with pytest.raises(engram.ReadOnlyError, match='"d"'):
        pool.clear()
    assert list(pool) == ["a", "b", "c", "d"]
    pool["d"].read_only = False
    pool.publish("c", closed=True)
    pool.unshare("b")
    with pytest.raises(engram.ReadOnlyError, match='"c" is published'):
        pool.clear()
    with pool.batch():
        pool["e"] = 1
        with pytest.raises(engram.ReadOnlyError):
            pool.clear()
    assert list(pool) == ["a", "b", "c", "d", "e"]
    pool.unpublish("c")
    with pool.batch(), pytest.raises(engram.BusyError, match="several scopes"):
        pool["f"] = 1
        pool.clear()
    assert list(pool) == ["a", "b", "c", "d", "e", "f"]
    pool.clear()
    assert list(pool) == []


def test_names_iterate_in_byte_order(pool: engram.Pool) -> None:
    names = ["b", "a", "B", "é", "z", "\U0001f30d", "￿", "a b", "10", "9", "-"]
    for name in names:
        pool[name] = 1
    assert list(pool) == sorted(names, key=str.encode)


def test_more_members_than_a_page_are_all_there(pool: engram.Pool) -> None:
    names = [f"{n:05}" for n in range(3000)]
    with pool.batch():
        for name in names:
            pool[name] = 1
    assert len(pool) == 3000
    assert list(pool) == names
    assert [name for name, _ in pool.items()] == names
    assert sum(1 for _ in pool.values()) == 3000


def test_members_that_go_while_iterating_are_left_out(pool: engram.Pool) -> None:
    with pool.batch():
        for n in range(2000):
            pool[f"{n:04}"] = n
    seen = []
    for name, _ in pool.items():  # noqa: PERF102 - items() it is
        seen.append(name)
        if name == "0000":
            del pool["1999"]
    assert len(seen) == 1999


def test_paths_lead_through_groups(pool: engram.Pool) -> None:
    array = pool.create_array("a/b/c/x", data=1)
    assert pool["a"]["b"]["c"]["x"] == array
    assert pool["a/b"]["c/x"] == array
    assert pool["a/b"]["/a/b/c/x"] == array
    assert "b/c" in pool["a"]
    assert "x/y" not in pool["a/b/c"]
    assert pool["a"]["/"] == pool
    assert (pool["a/b"].path, pool["a/b"].name) == ("a/b", "b")
    assert (pool.name, pool["a"].parent) == ("default", pool)
    assert pool["a"].parent.path == ""


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_bad_names_are_refused_everywhere(pool: engram.Pool, name: str) -> None:
    pool["ok"] = 1
    calls: list[Any] = [
        lambda: pool[name],
        lambda: pool.create_group(name),
        lambda: pool.create_array(name, data=1),
        lambda: pool.create_blob(name, b""),
        lambda: pool.require_group(name),
        lambda: pool.allocate(name, shape=1).__enter__(),
        lambda: pool.__setitem__(name, 1),
        lambda: pool.__delitem__(name),
        lambda: pool.move("ok", name),
        lambda: pool.move(name, "new"),
        lambda: pool.get(name),
    ]
    for call in calls:
        with pytest.raises(engram.InvalidNameError):
            call()
    assert list(pool) == ["ok"]


@pytest.mark.parametrize("name", [*BAD_NAMES, "g/", "/g/"], ids=ascii)
def test_nothing_is_called_what_cannot_be_a_name(pool: engram.Pool, name: str) -> None:
    pool["g/x"] = 1
    assert name not in pool
    with pytest.raises(engram.InvalidNameError):
        pool[name]


def test_a_shape_is_not_taken_for_data(pool: engram.Pool) -> None:
    with pytest.raises(TypeError, match="positional"):
        pool.create_array("x", (10, 10), dtype="f8")  # type: ignore[call-arg]
    assert "x" not in pool
    assert pool.create_array("x", shape=(10, 10), dtype="f8").shape == (10, 10)


def test_a_member_is_copied_with_what_is_said_of_it(pool: engram.Pool) -> None:
    attrs = {"units": "K", "levels": np.arange(3)}
    pool.create_array("a", data=np.eye(3), attrs=attrs, dims=("y", "x"))
    pool.create_array("c", data=np.eye(4), attrs=attrs, chunks=(2, 2), codec="lz4")
    pool.create_array("t", data=np.array(["one", "zwei"], np.dtypes.StringDType()), attrs=attrs)
    pool.create_blob("b", b"bytes", attrs=attrs)
    pool["copy/a"] = 1

    def value(member: Any) -> Any:
        return bytes(member.view()) if isinstance(member, engram.Blob) else member[...].tolist()

    for name in "actb":
        pool[f"copy/{name}"] = pool[name]
        copy, there = pool[f"copy/{name}"], pool[name]
        assert type(copy) is type(there)
        assert sorted(copy.attrs) == ["levels", "units"]
        assert copy.attrs["units"] == "K"
        assert copy.attrs["levels"].tolist() == [0, 1, 2]
        assert value(copy) == value(there)
    assert pool["copy/a"].dims == ("y", "x")
    assert (pool["copy/c"].chunks, pool["copy/c"].codec) == ((2, 2), "lz4")
    pool["a"] = pool["a"]
    assert pool["a"].attrs["units"] == "K"


@pytest.mark.parametrize("name", [5, None, b"x", ("a",)], ids=repr)
def test_a_name_is_a_str(pool: engram.Pool, name: Any) -> None:
    with pytest.raises(engram.ArgumentError, match="are str"):
        pool[name]
    with pytest.raises(engram.ArgumentError, match="are str"):
        pool[name] = 1


def test_a_name_without_utf8_is_refused(pool: engram.Pool) -> None:
    with pytest.raises(engram.InvalidNameError, match="surrogates"):
        pool["\ud800"] = 1


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "a b\n\t", "…", ".hidden", "...", "a\\b"])
def test_any_other_name_is_a_name(pool: engram.Pool, name: str) -> None:
    pool[name] = 1
    assert list(pool) == [name]
    assert pool[name].name == name


def test_a_missing_member_is_named_with_what_is_there(pool: engram.Pool) -> None:
    pool["temperature"] = 1
    with pytest.raises(engram.NotFoundError, match=r"'temprature'.*'temperature'"):
        pool["temprature"]
    with pytest.raises(engram.NotFoundError, match="empty"):
        pool.create_group("g")["x"]
    with pytest.raises(engram.NotFoundError):
        del pool["nothing"]
    with pytest.raises(engram.NotFoundError):
        pool.move("nothing", "x")


def test_a_taken_name_is_refused(pool: engram.Pool) -> None:
    pool["x"] = 1
    pool.create_group("g")["y"] = 2
    for call in (
        lambda: pool.create_group("x"),
        lambda: pool.create_group("g"),
        lambda: pool.create_array("x", data=2),
        lambda: pool.create_array("g", data=2),
        lambda: pool.create_array("g", data=2, overwrite=True),
        lambda: pool.create_blob("x", b""),
        lambda: pool.require_group("x"),
        lambda: pool.move("g/y", "x"),
        lambda: pool.__setitem__("g", 1),
    ):
        with pytest.raises(engram.ExistsError):
            call()
    assert pool["x"][()] == 1
    assert pool["g/y"][()] == 2


def test_an_object_is_no_group(pool: engram.Pool) -> None:
    pool["x"] = 1
    assert "x/y" not in pool
    with pytest.raises(engram.NotFoundError):
        pool["x/y"]
    with pytest.raises(engram.EngramError):
        pool["x/y"] = 1
    assert pool["x"][()] == 1


def test_require_group_gives_what_is_there(pool: engram.Pool) -> None:
    made = pool.require_group("a/b")
    assert pool.require_group("a/b") == made
    assert pool["a"].require_group("b") == made


def test_deleting_a_group_deletes_all_below(pool: engram.Pool) -> None:
    array = pool.create_array("a/b/x", data=np.zeros(10_000))
    pool.create_array("a/y", data=1)
    group = pool["a/b"]
    del pool["a"]
    assert list(pool) == []
    assert pool.used == 0
    calls: list[Any] = [
        lambda: array[...],
        lambda: group["x"],
        lambda: list(group),
        lambda: group.path,
    ]
    for call in calls:
        with pytest.raises(engram.NotFoundError):
            call()
    with pytest.raises(engram.NotFoundError):
        group["new"] = 1
    assert "gone" in repr(group)
    assert "gone" in repr(array)


def test_the_root_cannot_be_deleted_or_moved(pool: engram.Pool) -> None:
    pool["x"] = 1
    calls: list[Any] = [
        lambda: pool.__delitem__("/"),
        lambda: pool.move("/", "y"),
        lambda: pool.__setitem__("/", 1),
    ]
    for call in calls:
        with pytest.raises(engram.EngramError):
            call()
    assert list(pool) == ["x"]


@pytest.mark.parametrize("scope", ["shared", "private"])
def test_a_taken_name_is_refused_with_a_remedy_that_there_is(
    pool: engram.Pool, scope: Scope
) -> None:
    """Also where it is private, and what takes it says nothing of its scope."""
    pool.create_array("x", data=1, scope=scope)
    pool.create_group("g", scope=scope)
    pool["y"] = 2
    for call, remedy in (
        (lambda: pool.move("y", "x"), "rename or delete one of them"),
        (lambda: pool.move("y", "g"), "rename or delete one of them"),
        (lambda: pool.create_group("x"), "is no group: rename or delete one of them"),
        (lambda: pool.create_group("g"), "require_group"),
        (lambda: pool.create_array("x", data=2), "overwrite=True"),
    ):
        with pytest.raises(engram.ExistsError, match=remedy) as refused:
            call()
        assert ("overwrite" in str(refused.value)) == (remedy == "overwrite=True")


def test_moving_keeps_identity_and_what_is_below(pool: engram.Pool) -> None:
    array = pool.create_array("a/b/x", data=[1, 2], attrs={"k": 1})
    group = pool["a/b"]
    pool.move("a/b", "c/d/e")
    assert pool["c/d/e"] == group
    assert pool["c/d/e/x"] == array
    assert array.path == "c/d/e/x"
    assert array.attrs["k"] == 1
    assert list(pool["a"]) == []


def test_a_group_cannot_move_into_itself(pool: engram.Pool) -> None:
    pool.create_group("a/b")
    with pytest.raises(engram.EngramError):
        pool.move("a", "a/b/c")
    assert list(pool["a"]) == ["b"]
    assert list(pool["a/b"]) == []


def test_moving_onto_itself_changes_nothing(pool: engram.Pool) -> None:
    pool["x"] = 1
    pool.move("x", "x")
    assert pool["x"][()] == 1


def test_visititems_visits_all_below_in_order(pool: engram.Pool) -> None:
    for path in ("b/y", "b/a/x", "a", "c"):
        pool[path] = 1
    seen: list[str] = []
    assert pool.visititems(lambda path, _: seen.append(path)) is None
    assert seen == ["a", "b", "b/a", "b/a/x", "b/y", "c"]
    members: dict[str, Any] = {}
    pool["b"].visititems(members.__setitem__)
    assert {path: member.path for path, member in members.items()} == {
        "a": "b/a",
        "a/x": "b/a/x",
        "y": "b/y",
    }


def test_visititems_ends_with_the_first_answer(pool: engram.Pool) -> None:
    for path in ("a", "b", "c"):
        pool[path] = 1
    seen: list[str] = []

    def until_b(path: str, _: object) -> str | None:
        seen.append(path)
        return "found" if path == "b" else None

    assert pool.visititems(until_b) == "found"
    assert seen == ["a", "b"]


def test_tree_prints_what_is_below(pool: engram.Pool, capsys: pytest.CaptureFixture[str]) -> None:
    pool.create_array("run/T", data=np.zeros((2, 3), "f4"), dims=("y", "x"))
    pool["run/log"] = b"12345"
    pool["top"] = 1
    tree = pool.tree()
    assert capsys.readouterr().out.splitlines() == [
        pool.path,
        "├── run/",
        "│   ├── T (2, 3) float32 [y, x]",
        "│   └── log 5 B",
        "└── top () int64",
    ]
    assert "1 groups, 3 objects" in repr(tree)
    pool.tree(depth=1)
    assert "T" not in capsys.readouterr().out


def test_tree_shows_so_many_of_each_group(
    pool: engram.Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(10):
        pool[f"{n}"] = n
    pool.tree(limit=3)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "├── 0 () int64",
        "├── 1 () int64",
        "├── 2 () int64",
        "└── ... and 7 more",
    ]


def test_tree_in_a_notebook_escapes_names(pool: engram.Pool) -> None:
    name = "<script>alert('&')<"
    pool[name] = 1
    shown = pool.tree()._repr_html_()
    assert name not in shown
    assert html.escape(name) in shown


def test_handles_are_true_while_open(pool: engram.Pool) -> None:
    group = pool.create_group("empty")
    assert group
    pool.close()
    assert not group
    assert "closed" in repr(group)


def test_handles_are_equal_by_identity(pool: engram.Pool) -> None:
    pool["a/x"] = 1
    with engram.open(pool.path) as other:
        assert other["a"] == pool["a"]
        assert hash(other["a/x"]) == hash(pool["a/x"])
        assert other == pool
        assert len({other["a"], pool["a"], pool["a/x"]}) == 2
    assert pool["a"] != pool["a/x"]
    assert pool["a"] != "a"


def test_a_group_has_one_name(pool: engram.Pool) -> None:
    group = pool.create_group("a")
    with pytest.raises(engram.ArgumentError, match="move"):
        pool["b"] = group


def test_each_field_of_what_is_said_of_a_new_array_is_read_as_what_it_is(
    pool: engram.Pool,
) -> None:
    new = new_member(
        shape=(4,),
        dtype="<i2",
        attrs={"units": "K"},
        dims=("x",),
        overwrite=True,
        index_mode="none",
        read_only=True,
        scope="private",
        chunks=(2,),
        codec="lz4",
        origin=b"{}",
    )
    pool.create_array("T", data=1, scope="private")
    found = _engram.put_array(pool._namespace, pool._id, "T", None, new)
    made = pool["T"]
    assert found == (3, made.oid, np.dtype("<i2"), (4,))
    assert (made.shape, made.dtype, dict(made.attrs)) == ((4,), np.dtype("<i2"), {"units": "K"})
    assert (made.dims, made.index, made.read_only) == (("x",), "none", True)
    assert (made.scope, made.chunks, made.codec, made._origin) == ("private", (2,), "lz4", b"{}")
    with pytest.raises(engram.ArgumentError, match="device 99 is none"):
        _engram.put_array(pool._namespace, pool._id, "U", 1, new_member(device=99))
    with pytest.raises(engram.ArgumentError, match="NewMember"):
        _engram.put_array(pool._namespace, pool._id, "U", 1, new[:3])  # type: ignore[arg-type]


def test_overwrite_and_read_only_are_told_apart(pool: engram.Pool) -> None:
    put = functools.partial(_engram.put_array, pool._namespace, pool._id)
    put("T", 1, new_member(overwrite=True))
    assert not pool["T"].read_only
    with pytest.raises(engram.ExistsError, match="T"):
        put("T", 2, new_member(read_only=True))
    put("U", 2, new_member(read_only=True))
    assert pool["U"].read_only


def test_what_an_import_keeps_is_kept(pool: engram.Pool) -> None:
    _engram.create_group(pool._namespace, pool._id, "g", None, b'{"format": "NETCDF4"}', False)
    group = pool["g"]
    _engram.put_array(group._namespace, group._id, "x", 1, new_member(origin=b"{}"))
    array = group["x"]
    assert group._origin == b'{"format": "NETCDF4"}'
    assert array._origin == b"{}"
    assert pool._origin == b""
    assert dict(group.attrs) == {}


def test_the_tab_key_is_told_the_names(pool: engram.Pool) -> None:
    pool["b/c"] = 1
    pool["a"] = 2
    pool["a"].attrs["units"] = "K"
    assert pool._ipython_key_completions_() == ["a", "b"]
    assert pool["b"]._ipython_key_completions_() == ["c"]
    assert pool["a"].attrs._ipython_key_completions_() == ["units"]
    assert pool.namespaces._ipython_key_completions_() == ["default"]
