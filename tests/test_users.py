"""Other users: what the command line and the package refuse them, and what they may do.

Alice keeps one pool to herself, and one that all may enter. Bob, who shares nothing with her, tries
every verb, and the package, in a process that has become him for good.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import pkgutil
import re
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import engram
import engram.cli
import engram.formats
from shell import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")

ALICE, BOB = 40_001, 40_002
DATA = np.arange(40_000.0)
WORDS = "private-words-of-alice"
"""What stands in the names and attributes that Bob is not to see."""


def import_all() -> None:
    """Import what verbs import when they are called: a user may not enter its folders."""
    for package in (engram.cli, engram.formats):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def as_user(uid: int, work: Callable[[], Any]) -> Any:
    """Do something in a process that has become this user, and give what it gave."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.umask(0o077)
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(work(), pipe)
        except BaseException:  # noqa: BLE001 - it is shown, and the process ends
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        given = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return pickle.loads(given)


class World(NamedTuple):
    """Alice's two pools, and Bob's folder with files to import and put."""

    closed: Path
    open: Path
    bobs: Path


@pytest.fixture
def world(home: Path) -> World:
    """Make all of it."""
    import_all()
    home.chmod(0o755)
    folders = {uid: home / str(uid) for uid in (ALICE, BOB)}
    for uid, folder in folders.items():
        folder.mkdir()
        folder.chmod(0o755)
        os.chown(folder, uid, uid)
    world = World(folders[ALICE] / "closed", folders[ALICE] / "open", folders[BOB])

    def alice() -> None:
        for path, mode in ((world.closed, 0o700), (world.open, 0o755)):
            with engram.create(path, size="64 MiB", mode=mode, force=True) as pool:
                pool.create_array("shown/T", data=DATA, attrs={"orbit": 3}, dims=("x",))
                pool["shown/note"] = b"published"
                pool.publish("shown", closed=True)
                pool.create_array("ours/T", data=DATA, attrs={"orbit": 3, "said": WORDS})
                pool.create_array(f"ours/{WORDS}", data=DATA)
                pool.create_array(f"{WORDS}/T", data=DATA, scope="private", attrs={"orbit": 3})

    def bob() -> None:
        np.save(world.bobs / "new.npy", DATA)

    as_user(ALICE, alice)
    as_user(BOB, bob)
    return world


def verbs(pool: Path, member: str, bobs: Path) -> list[list[object]]:
    """Return every verb that reads or changes a member of a pool."""
    group, new = member.split("/", maxsplit=1)[0], bobs / "new.npy"
    return [
        ["ls", pool, group],
        ["info", pool, member],
        ["get", pool, member, bobs / "got.npy"],
        ["export", pool, group, bobs / "out.nc"],
        ["mv", pool, member, "away"],
        ["rm", pool, member],
        ["rm", "-r", pool, group],
        ["protect", pool, member],
        ["share", pool, member],
        ["unshare", pool, member],
        ["publish", pool, member],
        ["unpublish", pool, member],
        ["index", pool, group, "--mode", "async"],
        ["put", pool, f"{group}/y", new],
        ["put", pool, member, new, "--overwrite"],
        ["import", pool, group, new],
    ]


def of_pools(pool: Path, bobs: Path) -> list[list[object]]:
    """Return every verb that reads or changes a pool as a whole."""
    return [
        ["ls", pool],
        ["tree", pool],
        ["info", pool],
        ["stats", pool],
        ["query", pool, "orbit = 3"],
        ["backup", pool, bobs / "copy", "--force"],
        ["ns", pool],
        ["index", pool],
        ["reindex", pool],
        ["publish", pool, "--where", "orbit = 3"],
        ["unpublish", pool, "/"],
        ["ns", pool, "new", "--create"],
        ["ns", pool, "default", "--size", "1GiB"],
        ["destroy", pool, "--yes"],
    ]


READING = {"ls", "info", "get", "export"}
REFUSED = re.compile(
    "open to its owner alone|Permission denied|there is no |is published, |nothing is made in what "
    "is published|who alone, beside root, may|nothing of it can be changed"
)
"""Who may, or that there is nothing: what is another's is as if it were not there."""


def test_the_command_line_refuses_what_is_anothers(world: World) -> None:
    closed, opened, bobs = world
    gone = {"put", "import"}  # what Bob cannot see, he may have beside it, for himself
    acts = [*of_pools(closed, bobs), *verbs(closed, "ours/T", bobs)]
    for member in ("ours/T", f"{WORDS}/T"):
        acts += [words for words in verbs(opened, member, bobs) if words[0] not in gone]
    acts += [words for words in verbs(opened, "shown/T", bobs) if words[0] not in READING]
    acts += [words for words in of_pools(opened, bobs) if words[0] in ("publish", "unpublish")]
    acts += [["ns", opened, "new", "--create"], ["destroy", opened, "--yes"]]
    all_ended = as_user(BOB, lambda: [run(*act) for act in acts])
    for words, ended in zip(acts, all_ended, strict=True):
        told = f"{words}: {ended}"
        assert ended.code != 0, told
        assert 1 <= len(ended.err.splitlines()) <= 2, told
        assert "Traceback" not in ended.err, told
        assert REFUSED.search(ended.err), told
    assert len(acts) == 72

    def alice() -> list[Any]:
        with engram.open(opened) as pool:
            return [pool[f"{group}/T"][-1] for group in ("shown", "ours", WORDS)]

    assert as_user(ALICE, alice) == [DATA[-1]] * 3, "nothing has changed"


def test_strangers_are_told_whose_the_pool_is(world: World) -> None:
    acts: list[list[object]] = [
        ["destroy", world.closed, "--yes"],
        ["destroy", world.open, "--yes"],
        ["ns", world.open, "new", "--create"],
    ]
    for ended in as_user(BOB, lambda: [run(*act) for act in acts]):
        assert ended.code == engram.AccessError.exit_code
        assert f"is that of user {ALICE}" in ended.err
    ended = as_user(BOB, lambda: run("compact", world.closed))
    assert ended.code == engram.AccessError.exit_code
    assert "nothing of the pool" in ended.err


def test_roots_backup_names_what_is_damaged_and_copies_the_rest(world: World, home: Path) -> None:
    def bob() -> None:
        with engram.open(world.open) as pool:
            pool.create_array("bobs", data=DATA, scope="private")

    as_user(BOB, bob)
    copy, private = home / "copy", world.open / "ns/default/private" / str(BOB)
    (private / "realm.toml").write_text("nonsense")
    ended = run("backup", world.open, copy, "--force", "--json")
    assert (ended.code, ended.err) == (4, "")
    (left,) = json.loads(ended.out)["left_out"]
    assert (left["namespace"], left["scope"], left["user"]) == ("default", "private", BOB)
    assert "realm.toml is damaged" in left["why"]
    assert engram.verify(copy)
    engram.destroy(copy)
    with engram.open(world.open, mode="r") as pool:
        done = pool.backup(copy, force=True)
    assert (bool(done), done.realms, len(done.left_out)) == (False, 3, 1)
    assert str(done.left_out[0]).startswith(f"default (private of {BOB}): ")
    with pytest.raises(engram.CorruptError, match="not all could be copied: default"):
        done.check()
    engram.destroy(copy)
    ended = run("backup", world.open, copy, "--force", "--allow-partial")
    assert (ended.code, f"left out: default (private of {BOB})" in ended.out) == (0, True)
    ended = run("compact", world.open)
    assert (ended.code, f"left out: default (private of {BOB})" in ended.out) == (4, True)
    assert run("compact", world.open, "--allow-partial", "--json").code == 0
    assert not engram.compact(world.open)


def test_a_damaged_namespace_hides_no_other(world: World) -> None:
    with engram.open(world.open) as pool:
        pool.create_namespace("more")
        pool.create_namespace("other")
    (world.open / "ns/more/shared/realm.toml").write_text("nonsense")
    (world.open / "ns/other/namespace.toml").write_text("nonsense")
    ended = run("ns", world.open)
    assert ended.code == 0
    assert "default" in ended.out
    assert "more is damaged: " in ended.out
    told = json.loads(run("ns", world.open, "--json").out)
    assert [facts["name"] for facts in told] == ["default", "more", "other"]
    assert [facts["damaged"] is None for facts in told] == [True, False, True]


def test_who_keeps_something_in_private_can_leave(world: World) -> None:
    def bob() -> Any:
        with engram.open(world.open) as pool:
            pool.create_array("bobs", data=DATA, scope="private")

    as_user(BOB, bob)
    ended = as_user(ALICE, lambda: run("destroy", world.open, "--yes"))
    assert ended.code == engram.AccessError.exit_code
    assert f"of user {BOB}" in ended.err
    (words,) = re.findall(r"`engram (ns .* --remove-private)`", ended.err)
    assert as_user(BOB, lambda: run(*words.split(), "--yes")).code == 0
    assert as_user(ALICE, lambda: run("destroy", world.open, "--yes")).code == 0
    assert not world.open.exists()


def test_the_command_line_reads_what_is_published(world: World) -> None:
    acts = [words for words in verbs(world.open, "shown/T", world.bobs) if words[0] in READING]
    acts += [["tree", world.open], ["query", world.open, "orbit = 3"]]
    ended = as_user(BOB, lambda: [run(*words) for words in acts])
    assert [(end.code, end.err) for end in ended] == [(0, "")] * len(acts)
    assert not any(WORDS in end.out or "ours" in end.out for end in ended)
    assert np.array_equal(np.load(world.bobs / "got.npy"), DATA)


@pytest.mark.parametrize(
    ("mode", "group", "others"),
    [
        (0o710, "reads", ""),
        (0o740, "", ""),
        (0o720, "shares", ""),
        (0o704, "", ""),
        (0o701, "", "reads"),
        (0o754, "reads", ""),
        (0o771, "shares", "reads"),
    ],
)
def test_a_digit_lets_in_with_1_and_share_with_2(
    home: Path, mode: int, group: str, others: str
) -> None:
    import_all()
    home.chmod(0o755)
    with engram.create(home / "pool", size="64 MiB", mode=mode, group=BOB, force=True) as pool:
        pool["x"] = DATA
        pool["shown/y"] = DATA
        pool.publish("shown", closed=True)
    closed = run("publish", home / "pool", "x").code == engram.ClosedNamespaceError.exit_code
    assert closed == (not group and not others)
    run("unpublish", home / "pool", "x")

    def may() -> str:
        try:
            with engram.open(home / "pool") as pool:
                pool.create_array("own", data=np.arange(3), scope="private")
                assert "shown/y" in pool
                return "shares" if "x" in pool else "reads"
        except engram.AccessError:
            return ""

    assert (as_user(BOB, may), as_user(ALICE, may)) == (group, others)


def test_the_package_refuses_what_is_anothers(world: World) -> None:
    def bob() -> list[str]:
        acts: list[Callable[[], object]] = [lambda: engram.open(world.closed)]
        pool = engram.open(world.open)
        shown = pool["shown/T"]
        acts += [
            lambda: pool["ours/T"],
            lambda: pool[WORDS],
            lambda: shown.attrs.update(orbit=4),
            lambda: shown.view("r+"),
            lambda: shown.lock("w").__enter__(),
            lambda: pool.publish("shown"),
            lambda: pool.unpublish("shown"),
            lambda: pool.create_namespace("new"),
        ]
        told = []
        for act in acts:
            try:
                act()
            except engram.EngramError as error:
                told.append(type(error).__name__)
            else:
                told.append("done")
        return told

    told = as_user(BOB, bob)
    wanted = ["AccessError", "NotFoundError", "NotFoundError", *["ReadOnlyError"] * 3]
    assert told == [*wanted, *["AccessError"] * 3]
