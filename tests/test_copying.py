"""Copies of members, and moves to other namespaces and pools: alike, whole, or by name not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import engram
from shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20


@pytest.fixture
def here(home: Path) -> Iterator[engram.Pool]:
    with engram.create(home / "here", "256 MiB") as pool:
        yield pool


@pytest.fixture
def there(home: Path) -> Iterator[engram.Pool]:
    with engram.create(home / "there", "256 MiB", checksums=True) as pool:
        yield pool


def fill(pool: engram.Pool, name: str = "g") -> engram.Group:
    """Make one of each kind of thing below a group."""
    rng = np.random.default_rng(7)
    group = pool.create_group(name, attrs={"run": 17, "who": "me"}, index="async")
    group.create_array("big", data=rng.random((300, 500)), dims=("y", "x"), attrs={"u": [1.5, 2.0]})
    group.create_array("small", data=np.arange(3), read_only=True, index="none")
    group["words"] = np.array(["a", "bü", ""], dtype=np.dtypes.StringDType())
    group["scalar"] = np.float32(1.5)
    group["nothing"] = np.zeros((0, 4))
    structure = np.zeros(4, [("a", "i4"), ("b", "f8")])
    group["structure"] = structure
    for codec in ("none", "shuffle+zstd"):
        chunked = group.create_array(
            f"chunks-{codec}", shape=(100, 100), dtype="f4", chunks=(16, 16), codec=codec
        )
        chunked[5:25, 3:60] = rng.random((20, 57))
    group.create_blob("blob", b"x" * 100_000, attrs={"of": "bytes"})
    group.create_blob("little", b"")
    with group.open_file("holes", "wb") as file:
        file.write(b"abc" * 5000)
        file.seek(30 * MIB)
        file.write(b"end" * 2000)
    group.link("big", "sub/again") if group.create_group("sub") else None
    group.symlink("big", "link")
    group.create_group("sub/deep", attributes_per_group=4)["z"] = np.arange(5)
    group["sub"].read_only = True
    group.create_table("table", {"a": [1, 2, 3], "b": ["x", "y", None]})
    return group


def place(pool: engram.Pool, path: str) -> str:
    return f"{pool.path}:{path}"


def differences(one: engram.Pool, path: str, other: engram.Pool, new: str) -> Any:
    ended = run("diff", place(one, path), place(other, new), "--json")
    assert ended.code in {0, 1}, ended.err
    return json.loads(ended.out)


def sound(*pools: engram.Pool) -> None:
    for pool in pools:
        assert engram.verify(pool.path).problems == []


def test_a_copy_of_each_kind_of_thing_is_alike(here: engram.Pool, there: engram.Pool) -> None:
    group = fill(here)
    copied = here.copy("g", "a/b/copy", target=there)
    assert isinstance(copied, engram.Group)
    assert (copied.path, copied.namespace) == ("a/b/copy", "default")
    assert differences(here, "g", there, "a/b/copy") == []
    assert copied.index_settings == group.index_settings == {"index": "async"}
    assert copied["sub/deep"].index_settings == {"attributes_per_group": 4}
    assert copied["sub"].read_only
    assert copied["small"].read_only
    assert copied["big"] == copied["sub/again"]
    assert copied["big"].posix.nlink == 2
    assert copied["link"].posix.kind == "symlink"
    assert copied["table"].to_arrow().to_pydict() == group["table"].to_arrow().to_pydict()
    assert there.query("exists(u)").count() == 1
    assert copied["big"].oid != group["big"].oid
    sound(here, there)


def test_holes_and_chunks_that_are_not_there_take_no_space(
    here: engram.Pool, there: engram.Pool
) -> None:
    fill(here)
    copied = here.copy("g", "g", target=there)
    assert copied["holes"].nbytes > 30 * MIB
    assert there.used < 4 * MIB
    for codec in ("none", "shuffle+zstd"):
        name = f"chunks-{codec}"
        assert copied[name].stored_nbytes == here["g"][name].stored_nbytes
    copied["chunks-none"].append(np.ones((1, 100), "f4"))
    with copied.open_file("holes", "rb+") as file:
        file.seek(20 * MIB)
        file.write(b"middle")
    assert here["g/holes"].view()[20 * MIB] == 0
    sound(there)


def test_a_copy_within_a_namespace_and_between_namespaces(here: engram.Pool) -> None:
    fill(here)
    ice = here.create_namespace("ice")
    here.copy("g", "h")
    assert differences(here, "g", here, "h") == []
    copied = here.copy("g/big", "x/big", target=ice)
    assert copied.namespace == "ice"
    np.testing.assert_array_equal(copied, here["g/big"])
    back = ice.copy("x", "from-ice", target=here["g"])
    assert back.path == "g/from-ice"
    assert ice["x"].copy("big", "/top").path == "top"
    everything = here.copy("/", "everything", target=ice)
    assert set(everything) == set(here)


def test_a_copy_keeps_to_its_user_what_is_private(here: engram.Pool, there: engram.Pool) -> None:
    group = here.create_group("g")
    group["open"] = np.arange(3)
    assert here.copy("g", "one", target=there).scope == "shared"
    group.create_array("own", data=np.arange(5), scope="private")
    copied = here.copy("g", "two", target=there)
    assert {member.scope for member in copied.values()} == {"private"}
    assert here.copy("g", "three", target=there, scope="shared")["own"].scope == "shared"
    here.publish("g", closed=True)
    copied = here.copy("g", "four", target=there)
    assert copied.scope == "shared"
    np.testing.assert_array_equal(copied["own"], np.arange(5))
    with pytest.raises(engram.ReadOnlyError):
        here.copy("g", "five", target=there, scope="published")
    sound(here, there)


def test_names_that_are_taken_stay(here: engram.Pool, there: engram.Pool) -> None:
    fill(here)
    there["a"] = np.arange(3)
    there.create_group("b")["c"] = np.arange(4)
    with pytest.raises(engram.ExistsError):
        here.copy("g/big", "a", target=there)
    with pytest.raises(engram.ExistsError):
        here.copy("g", "a", target=there, overwrite=True)
    with pytest.raises(engram.ExistsError):
        here.copy("g/big", "b", target=there, overwrite=True)
    with pytest.raises(engram.ExistsError):
        here.copy("g", "a/below", target=there)
    view = there["a"].view()
    here.copy("g/big", "a", target=there, overwrite=True)
    np.testing.assert_array_equal(view, np.arange(3))
    np.testing.assert_array_equal(there["a"], here["g/big"])
    assert sorted(there) == ["a", "b"]
    sound(there)


def test_what_cannot_be_copied_is_told_by_name(here: engram.Pool, there: engram.Pool) -> None:
    fill(here)
    for new in ("g/sub/g", "/g/x"):
        with pytest.raises(engram.ArgumentError, match="into itself"):
            here.copy("g", new)
    for name in ("g", "g/big"):
        with pytest.raises(engram.ArgumentError, match=f"'{name}' cannot be copied to where it is"):
            here.copy(name, f"/{name}")
    with pytest.raises(engram.NotFoundError, match="nope"):
        here.copy("nope", "x", target=there)
    with pytest.raises(engram.ArgumentError, match="no group"):
        here.copy("g", "x", target=here["g/big"])
    with pytest.raises(engram.BusyError, match="batch"), there.batch():
        here.copy("g", "x", target=there)
    with pytest.raises(engram.BusyError, match="copies are of what is committed"), here.batch():
        here.copy("g", "x", target=there)
    wrong: list[tuple[Any, Any]] = [(1, "x"), ("g", None)]
    for old, new in wrong:
        with pytest.raises(engram.ArgumentError, match="names and paths are str"):
            here.copy(old, new, target=there)
    there.create_group("kept", read_only=True)
    with pytest.raises(engram.ReadOnlyError, match="kept"):
        here.copy("g", "kept/x", target=there)
    with engram.open(there.path, "r") as reader, pytest.raises(engram.ReadOnlyError):
        here.copy("g", "x", target=reader)
    assert sorted(there) == ["kept"]


class Thing(engram.ActiveObject):
    """An active object."""

    number: int

    def __init__(self) -> None:
        self.number = 1


def test_active_objects_are_refused(here: engram.Pool, there: engram.Pool) -> None:
    Thing().make_persistent("one", here)
    for path in (".active", ".active/objects", "/"):
        with pytest.raises(engram.UnsupportedError, match="active objects"):
            here.copy(path, "x", target=there)
    with pytest.raises(engram.UnsupportedError, match="active objects"):
        here.move(".active", "x", target=there)
    assert list(there) == []


def test_a_pool_that_is_full_gets_nothing_of_it(here: engram.Pool, home: Path) -> None:
    here["big"] = np.ones(40 * MIB, np.uint8)
    here.copy("big", "g/big")
    here["g/more"] = np.arange(9)
    with engram.create(home / "little", "16 MiB") as little:
        for act in (here.copy, here.move):
            with pytest.raises(engram.PoolFullError):
                act("g", "g", target=little)
            assert list(little) == []
            assert little.space.pending == 0
        assert sorted(here["g"]) == ["big", "more"]
        here["g/more"] = np.arange(10)  # nothing of it is on its way any more
        sound(here, little)


def test_a_damaged_value_is_no_copy(there: engram.Pool, home: Path) -> None:
    there["a"] = np.full(9000, 1.5)
    there.close()
    value = np.full(9000, 1.5).tobytes()
    files = [
        each for each in Path(there.path).rglob("*") if each.is_file() and "data" not in each.name
    ]
    (span,) = [each for each in files if value in each.read_bytes()]
    with span.open("rb+") as file:
        file.seek(span.read_bytes().index(value) + 80)
        file.write(b"?")
    with (
        engram.open(there.path) as pool,
        engram.create(home / "other", "64 MiB", checksums=True) as other,
    ):
        with pytest.raises(engram.CorruptError, match="checksum"):
            pool.copy("a", "a", target=other)
        assert list(other) == []


def test_progress_is_told_and_may_end_it(here: engram.Pool, there: engram.Pool) -> None:
    fill(here)
    told: list[engram.CopyProgress] = []
    here.copy("g", "g", target=there, progress=told.append)
    used = there.used
    assert told[-1].done == told[-1].total > MIB
    assert [each.done for each in told] == sorted(each.done for each in told)

    def stop(_: engram.CopyProgress) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        here.copy("g", "h", target=there, progress=stop)
    assert list(there) == ["g"]
    with pytest.raises(InterruptedError):
        here.move("g/blob", "h", target=there, progress=stop)
    here["g/blob"].attrs["more"] = 1
    assert there.used == used


def test_words_of_an_import_know_the_copies(here: engram.Pool, home: Path) -> None:
    h5py = pytest.importorskip("h5py")
    from engram.compat import h5py as compat  # noqa: PLC0415 - after it is known to be there

    with h5py.File(home / "a.h5", "w") as file:
        file["x"] = np.arange(4)
        file["g/y"] = np.arange(4)
        file["again"] = file["g/y"]
        file["soft"] = h5py.SoftLink("/g/y")
        file["x"].make_scale("wide")
        file["g/y"].dims[0].attach_scale(file["x"])
    engram.import_file(home / "a.h5", here.create_group("a"))
    here.copy("a", "b")
    here.move("a", "elsewhere")
    engram.export_file(here["b"], home / "b.h5")
    with h5py.File(home / "b.h5") as file:
        assert file["again"] == file["g/y"]
        assert isinstance(file.get("soft", getlink=True), h5py.SoftLink)
        assert file["g/y"].dims[0][0] == file["x"]
    assert compat is not None


# Moves to another namespace


def test_a_move_to_another_pool_leaves_nothing_here(here: engram.Pool, there: engram.Pool) -> None:
    fill(here, "before")
    here.copy("before", "g")
    group = here["g"]
    view = here["g/big"].view()
    before = np.array(view)
    with pytest.raises(engram.ReadOnlyError):
        here.move("g", "g", target=there)  # some of it is read-only
    group["sub"].read_only = group["small"].read_only = False
    with pytest.raises(engram.ArgumentError, match="several names"):
        here.move("g", "g", target=there)
    del here["g/sub/again"]
    here.move("g", "x/g", target=there)
    assert list(here) == ["before"]
    here["before/sub"].read_only = here["before/small"].read_only = False
    del here["before/sub/again"]
    assert differences(here, "before", there, "x/g") == []
    np.testing.assert_array_equal(view, before)
    here["other"] = np.zeros(MIB)
    np.testing.assert_array_equal(view, before)
    assert not here.query("exists(u) and under('g')").count()
    sound(here, there)


def test_a_move_between_scopes_takes_all_along(here: engram.Pool, there: engram.Pool) -> None:
    group = here.create_group("g", attrs={"a": 1})
    group["open"] = np.arange(3)
    group.create_array("own", data=np.arange(5), scope="private")
    here.move("g", "g", target=there)
    assert list(here) == []
    assert sorted(there["g"]) == ["open", "own"]
    assert there["g"].scope == "private"
    there.share("g")
    there.publish("g", closed=True)
    with pytest.raises(engram.ReadOnlyError, match="published"):
        there.move("g", "g", target=here)
    sound(here, there)


def test_what_is_locked_or_open_does_not_move(here: engram.Pool, there: engram.Pool) -> None:
    here.create_group("g")["a"] = np.arange(9000)
    here.create_blob("g/f", b"bytes")
    with here["g/a"].lock("r"), pytest.raises(engram.BusyError, match="lock"):
        here.move("g", "g", target=there)
    with here.open_file("g/f", "rb"), pytest.raises(engram.BusyError, match="open"):
        here.move("g", "g", target=there)
    with pytest.raises(engram.ArgumentError):
        here.move("/", "g", target=there)
    here.link("g/f", "g/again")
    with pytest.raises(engram.ArgumentError, match=r'"g/.*" has several names'):
        here.move("g", "g", target=there)
    del here["g/again"]
    assert list(there) == []
    here.move("g", "g", target=there)


def test_moving_again_ends_what_was_cut_short(here: engram.Pool, there: engram.Pool) -> None:
    here.create_group("g", attrs={"nan": np.nan})["a"] = np.arange(9000)
    here.copy("g", "g", target=there)  # as a move leaves it that dies before its last step
    there["g/a"].attrs["more"] = 1
    with pytest.raises(engram.ExistsError, match=r"g/a.*has other attributes.*nothing was moved"):
        here.move("g", "g", target=there)
    del there["g/a"].attrs["more"]
    there["g/a"][17] = -1
    with pytest.raises(engram.ExistsError, match="another value"):
        here.move("g", "g", target=there)
    there["g/a"][17] = 17
    here["g/b"] = np.arange(2)
    with pytest.raises(engram.ExistsError, match=r"g/b.*is not there"):
        here.move("g", "g", target=there)
    del here["g/b"]
    there["g/later"] = np.arange(3)  # no harm: all that is here is there
    here.move("g", "g", target=there)
    assert list(here) == []
    assert sorted(there["g"]) == ["a", "later"]


def test_a_move_within_a_namespace_is_a_rename_whatever_its_target(here: engram.Pool) -> None:
    here["g/a"] = np.arange(9)
    oid = here["g/a"].oid
    other = here.create_group("other/deep")
    here["g"].move("a", "b", target=other)
    assert other["b"].oid == oid
    with engram.open(here.path) as again:
        here.move("other/deep/b", "top", target=again)
    assert here["top"].oid == oid
    with pytest.raises(engram.ArgumentError, match="scope"):
        here.move("top", "x", target=other, scope="private")


CHANGES = """
import sys, engram, numpy as np
with engram.open(sys.argv[1]) as pool:
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        try:
            with pool.batch():
                for name in ("a", "b"):
                    pool["g"].create_array(
                        name, data=np.full(50_000, number), attrs={"n": number}, overwrite=True)
            pool["g"].create_array(
                "c", data=np.full((40, 40), number), chunks=(8, 8), codec="lz4", overwrite=True)
            if len(sys.argv) > 2:
                print(number, flush=True)
        except engram.BusyError:
            pass
        except (engram.NotFoundError, engram.ExistsError):
            sys.exit(0)
"""


def changer(pool: engram.Pool) -> subprocess.Popen[bytes]:
    program = textwrap.dedent(CHANGES)
    words = [sys.executable, "-c", program, pool.path]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def consistent(group: Any) -> None:
    """Fail where a copy mixes commits."""
    values = [set(np.unique(group[name][...]).tolist()) for name in ("a", "b", "c")]
    assert all(len(each) == 1 for each in values)
    ((a,), (b,), (c,)) = values
    assert a == b == group["a"].attrs["n"] == group["b"].attrs["n"]
    assert a - c in {0, 1}


def test_what_two_others_change_meanwhile_is_copied_as_one_commit_left_it(
    here: engram.Pool, there: engram.Pool
) -> None:
    here.create_group("g")
    for name in ("a", "b"):
        here["g"].create_array(name, data=np.full(50_000, 0), attrs={"n": 0})
    here["g"].create_array("c", data=np.full((40, 40), 0), chunks=(8, 8), codec="lz4")
    others = [changer(here)]
    try:
        seen = set()
        for number in range(60):
            copied = here.copy("g", f"g{number}", target=there)
            consistent(copied)
            seen.add(copied["a"].attrs["n"].item())
            del there[f"g{number}"]
        assert len(seen) > 1
        others.append(changer(here))
        for number in range(20):
            here.copy("g", f"g{number}", target=there)
        for _ in range(1000):  # a change may begin at the same instant
            try:
                here.move("g", "moved", target=there)
                break
            except engram.BusyError:
                time.sleep(0.001)
        for other in others:
            assert other.wait(60) == 0
        assert "g" not in here
        assert sorted(there["moved"]) == ["a", "b", "c"]
    finally:
        for other in others:
            other.kill()
            other.communicate()
    sound(here, there)


WORK = """
import os, sys, engram
source, target, verb = sys.argv[1:]
with engram.open(source) as here, engram.open(target) as there:
    print("ready", flush=True)
    getattr(here, verb)("g", "x/g", target=there)
"""


@pytest.mark.parametrize("verb", ["copy", "move"])
def test_a_kill_at_any_instant_loses_nothing(
    here: engram.Pool, there: engram.Pool, verb: str
) -> None:
    rng = random.Random(11)  # noqa: S311 - moments, and no secrets
    fill(here, "before")
    here["before/sub"].read_only = here["before/small"].read_only = False
    del here["before/sub/again"]
    for number in range(12):
        here["before/more"] = np.arange(number * 40_000)
        here.copy("before", "g")
        words = [sys.executable, "-c", textwrap.dedent(WORK), here.path, there.path, verb]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(rng.random() * 0.02)
            process.send_signal(signal.SIGKILL)
        at = ("g" in here, "x/g" in there)
        assert at[0] or (verb == "move" and at[1])
        if at[1]:
            assert differences(here, "before", there, "x/g") == []
        if at[0]:
            assert differences(here, "before", here, "g") == []
            if verb == "move":
                here.move("g", "x/g", target=there)
                assert "g" not in here
                assert differences(here, "before", there, "x/g") == []
            else:
                del here["g"]
        if "x" in there:
            del there["x"]
    sound(here, there)
    assert there.used == 0


# The command line


def test_cp_and_mv_between_pools_say_what_they_did(here: engram.Pool, there: engram.Pool) -> None:
    here["run/T"] = np.zeros((100, 100))
    here.create_blob("log", b"bytes")
    for pool in (here, there):
        pool.close()
    one, other = here.path, there.path
    ended = run("cp", one, "run", "log", "archive/", "--to", other)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0] == (
        f"run copied to archive/run, namespace default of {other}: 1 object in 1 group (78.1 KiB)"
    )
    ended = run("cp", one, "run/T", "run/T-before", "--json")
    assert json.loads(ended.out) == [
        {
            "from": "run/T", "to": "run/T-before", "pool": one, "namespace": "default",
            "objects": 1, "groups": 0, "nbytes": 80_000,
        }
    ]  # fmt: skip
    ended = run("cp", one, "log", "archive/log", "--to", other)
    assert ended.code == engram.ExistsError.exit_code
    assert "exists" in ended.err
    assert run("cp", one, "log", "archive/log", "--to", other, "--overwrite").code == 0
    assert run("cp", one, "run", "run/x").code == engram.ArgumentError.exit_code
    for verb in ("cp", "mv"):
        ended = run(verb, one, "log", other)
        assert ended.code == engram.ArgumentError.exit_code
        assert f"name the pool by --to {other}" in ended.err
    assert run("cp", one, "run", "log", "x", "--to", other).code == engram.ArgumentError.exit_code
    ended = run("mv", one, "run", "/", "--to", other)
    assert (ended.code, ended.err) == (0, "")
    assert "run moved to run" in ended.out
    assert run("ls", one, "--json").out.count("run") == 0
    assert run("diff", f"{other}:archive/run", f"{other}:run").code == 1  # it got T-before
    assert run("cp", one, "/", "all", "--to", other).code == 0
    assert run("mv", one, "/", "all", "--to", other).code == engram.ArgumentError.exit_code
    assert run("cp", one, "log", "x", "--to", "engram://job").code != 0


def test_cp_and_mv_between_namespaces(here: engram.Pool) -> None:
    here["run/T"] = np.zeros((100, 100))
    here["a"] = here["b"] = np.arange(3)
    here.create_namespace("ice")
    here.close()
    path = here.path
    assert run("cp", path, "run", "run", "--to-namespace", "ice").code == 0
    ended = run("cp", path, "run", "run", "--to-namespace", "nope")
    assert ended.code == engram.NotFoundError.exit_code
    assert "ice" in ended.err
    assert run("mv", path, "a", "b", "group/").out == "a is now group/a\nb is now group/b\n"
    assert run("mv", path, "run", "group/run", "-n", "ice", "--to-namespace", "default").code == 0
    # What is at both places, equal, only goes from here.
    assert run("cp", path, "run", "again", "--to-namespace", "ice").code == 0
    assert run("mv", path, "run", "again", "--to-namespace", "ice").code == 0
    with engram.open(path) as pool:
        assert sorted(pool) == ["group"]
        assert sorted(pool.namespaces["ice"]) == ["again"]
    ended = run("mv", path, "group/a", "group/nope", "group/x/")
    assert ended.code == engram.NotFoundError.exit_code
    with engram.open(path) as pool:
        assert sorted(pool["group"]) == ["a", "b", "run"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is anybody else")
def test_another_users_namespace_is_closed_to_a_copy(here: engram.Pool) -> None:
    here["a"] = np.arange(9000)
    here.create_namespace("closed", mode=0o700)["secret"] = np.arange(3)
    here.create_namespace("open", mode=0o777 & ~0o022, group=0)
    here.close()
    os.chmod(here.path, 0o755)  # noqa: PTH101, S103 - others are to come in
    program = textwrap.dedent(f"""
        import os, engram, engram.united
        os.setgroups([]); os.setgid(54321); os.setuid(54321)
        with engram.open({here.path!r}) as pool:
            for names in ("closed", "default"):
                try:
                    pool.namespaces[names]
                except engram.AccessError as error:
                    print(names, "refused")
            try:
                pool.namespaces.query("", names=["open", "closed"])
            except engram.AccessError as error:
                print("closed" in str(error))
            found = pool.namespaces.query("")
            print(sorted(found.left_out), len(found))
    """)
    os.chmod(os.path.dirname(here.path), 0o755)  # noqa: PTH101, PTH120, S103 - likewise
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == [
        "closed refused", "default refused", "True", "['closed', 'default'] 0",
    ], ended.stderr  # fmt: skip


def test_a_child_that_was_forked_in_a_move_takes_nothing_back(home: Path) -> None:
    with (
        engram.create(home / "a", size="64 MiB") as source,
        engram.create(home / "b", size="64 MiB") as target,
    ):
        source.create_array("g/x", data=np.arange(100_000))
        seen: list[int] = []

        def forks(_progress: object) -> None:
            if seen:
                return
            seen.append(os.fork())
            if seen[0] == 0:
                # As `sys.exit` would, through every `finally`.
                raise SystemExit(0)
            os.waitpid(seen[0], 0)
            with pytest.raises(engram.BusyError):
                source["g"].create_array("late", data=[1])

        try:
            source.move("g", "g", target=target, progress=forks)
        except SystemExit:
            os._exit(0)
        assert "g" not in source
        assert list(target["g"]) == ["x"]
