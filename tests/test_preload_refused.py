"""Limits and keys of a pool's files, and what the kernel alone can do: that is refused."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import native
import preloaded

if TYPE_CHECKING:
    from pathlib import Path

    import engram

pytestmark = preloaded.needs_library

NOT_SUPPORTED = f"-1 {errno.ENOTSUP}"


def test_limits_keys_and_the_working_folder_are_those_of_a_plain_one(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    preloaded.same(once, pool, home, "limits")


def test_what_the_kernel_alone_can_do_is_refused_of_a_pool(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    program, prefix = preloaded.compiled(once, "refused"), preloaded.of(pool, home)
    there, absent = prefix.run(program, prefix.path, "and roots").split("of none\n")
    answers = dict(line.split(": ") for line in there.splitlines())
    assert answers.pop("wordexp of no pattern") == "0 0"
    assert set(answers.values()) == {NOT_SUPPORTED}, answers
    answers = dict(line.split(": ") for line in absent.splitlines())
    of_a_path = {
        name: said
        for name, said in answers.items()
        if name not in {"by a descriptor", "open_by_handle_at", "wordexp", "wordexp of no pattern"}
    }
    assert set(of_a_path.values()) == {f"-1 {errno.ENOENT}"}, of_a_path


def test_it_goes_on_to_the_kernel_elsewhere(
    once: native.Once, pool: engram.Pool, home: Path
) -> None:
    program, prefix, plain = preloaded.compiled(once, "refused"), preloaded.of(pool, home), home
    assert prefix.run(program, plain) == native.run(program, plain)
    # Another root would change what the prefix means.
    assert f"chroot: {NOT_SUPPORTED}" in prefix.run(program, plain, "and roots")


def test_what_another_process_has_open_is_not_opened_as_empty(
    pool: engram.Pool, home: Path
) -> None:
    prefix = preloaded.of(pool, home)
    script = 'cd "$1"; echo some > f; exec 5< f; cat /proc/$$/fd/5; echo $?'
    said = prefix.run("bash", "-c", script, "bash", prefix.path)
    assert "Operation not supported" in said
    assert said.startswith("1\n"), said
