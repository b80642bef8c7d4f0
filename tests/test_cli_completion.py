"""Completion, through the protocol that bash speaks: candidates, one a line, never an error."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

import engram
from shell import COMMAND, example

if TYPE_CHECKING:
    from pathlib import Path


def offered(*words: object, cwd: Path | None = None) -> list[str]:
    """Return what bash would offer for the last word of `engram WORD…`."""
    line = ["engram", *map(str, words)]
    asked = {
        "COMP_WORDS": "\n".join(line),
        "COMP_CWORD": str(len(line) - 1),
        "_ENGRAM_COMPLETE": "complete_bash",
    }
    ended = subprocess.run(
        COMMAND, env={**os.environ, **asked}, capture_output=True, text=True, check=False, cwd=cwd
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines() if ended.stdout.strip() else []


def test_verbs_are_offered(home: Path) -> None:
    assert offered("mv") == ["mv"]
    assert {"tree", "ls", "import"} <= set(offered("", cwd=home))


def test_pools_and_folders_on_the_way_are_offered(home: Path) -> None:
    path = example(home)
    (home / "other").mkdir()
    (home / "file").touch()
    (home / ".hidden").mkdir()
    assert offered("ls", f"{home}/") == [f"{home}/other/", str(path)]
    assert offered("ls", f"{home}/po") == [str(path)]
    assert offered("ls", "", cwd=home) == ["other/", "pool"]
    assert offered("ls", "po", cwd=home) == ["pool"]


def test_a_folder_alone_is_left_to_the_shell_which_puts_no_blank_after_it(home: Path) -> None:
    (home / "other").mkdir()
    assert offered("ls", f"{home}/oth") == []


def test_clusters_that_are_known_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "engram/clusters"
    (folder / "job.d").mkdir(parents=True)
    for name in ("job", "join", "other"):
        (folder / f"{name}.json").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert offered("ls", "engram://jo") == ["engram://job", "engram://join"]
    assert offered("query", "engram://") == ["engram://job", "engram://join", "engram://other"]
    assert offered("ls", "engram://no") == []
    # Bash takes a URL apart at its colon.
    assert offered("ls", "engram", ":", "//jo") == ["//job", "//join"]
    assert offered("ls", "engram", ":") == ["//job", "//join", "//other"]
    assert offered("ls", "engram", ":", "//no") == []


def test_members_are_offered_level_by_level(home: Path) -> None:
    path = example(home)
    assert offered("ls", path, "") == ["log", "run-17/"]
    assert offered("info", path, "run-17/step-0400/") == [
        *("run-17/step-0400/T", "run-17/step-0400/names")
    ]
    assert offered("info", path, "/l") == ["/log"]
    assert offered("mv", path, "log", "l") == ["log"]  # more members, before where they go
    assert offered("rm", path, "log", "run-17/step-05") == [
        *("run-17/step-0500/", "run-17/step-0500/T")
    ]


def test_a_group_alone_comes_with_its_members_so_that_no_blank_follows(home: Path) -> None:
    assert offered("ls", example(home), "run") == [
        *("run-17/", "run-17/step-0400/", "run-17/step-0500/")
    ]


def test_members_of_the_namespace_that_is_named_are_offered(home: Path) -> None:
    path = example(home)
    assert offered("ls", "-n", "icesat", path, "") == ["inside"]
    assert offered("ls", path, "-n", "ice") == ["icesat"]
    assert offered("ns", path, "d") == ["default"]


def test_names_that_a_shell_would_take_apart_are_left_out(home: Path) -> None:
    path = example(home)
    with engram.open(path) as pool:
        for name in ("a b", "a;b", "a$b", "a'b", "a\nb", "a\x1bb", "a*", "ab", "aö"):
            pool[name] = 1
    assert offered("ls", path, "a") == ["ab", "aö"]


def test_many_members_are_offered_in_part(home: Path) -> None:
    path = example(home)
    with engram.open(path) as pool, pool.batch():
        for i in range(3000):
            pool[f"many/{i:04}"] = np.int8(0)
    assert offered("ls", path, "many/")[0] == "many/0000"
    assert 0 < len(offered("ls", path, "many/")) <= 400


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "/no/such/folder/x"),
        ("ls", "/no/such/pool", ""),
        ("ls", "/proc/self/mem", ""),
        ("ls", "{pool}", "no/such/group/"),
        ("ls", "{pool}", "log/"),
        ("ls", "{pool}", "run-17//"),
        ("ls", "{pool}", "-n", "nope", ""),
        ("ls", "-n", "nope", "{pool}", ""),
        ("ls", "-n", ""),
        ("ls", "{pool}/pool.toml", ""),
    ],
)
def test_what_is_not_there_offers_nothing_and_says_nothing(
    home: Path, words: tuple[str, ...]
) -> None:
    path = example(home)
    assert offered(*(word.format(pool=path) for word in words)) == []


def test_a_damaged_pool_offers_nothing(home: Path) -> None:
    path = example(home)
    (path / "pool.toml").write_text("not toml = = =")
    assert offered("ls", path, "") == []


def test_dimensions_are_offered_for_a_place_to_plot_at(home: Path) -> None:
    path = example(home)
    assert offered("plot", path, "run-17/step-0400/T", "--at", "") == ["y=0", "x=0"]
    assert offered("plot", path, "run-17/step-0400/T", "--at", "x") == ["x=0"]
    assert offered("plot", path, "run-17/step-0500/T", "--at", "") == ["0=0", "1=0"]
    assert offered("plot", path, "log", "--at", "") == []
