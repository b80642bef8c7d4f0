"""What is told of a program before it starts: whether a preloaded library reaches it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import engram
import native
import shell
from elf_files import AARCH64, I386, Made, own, program
from engram import elf, programs

LINKER = own().interpreter
LIKE_OURS = Made(LINKER, ("libc.so.6",), machine=own().machine)
PATH = [str(Path(shutil.which("true") or "/bin/true").parent), "/usr/bin", "/bin"]


def look(path: Path | str, **options: object) -> programs.Program:
    return programs.look(str(path), search=PATH, **options)  # type: ignore[arg-type]


def kinds(path: Path | str) -> list[str]:
    return [obstacle.kind for obstacle in look(path).obstacles]


def script(path: Path, first: str) -> Path:
    path.write_bytes(first.encode() + b"\necho hello\n")
    path.chmod(0o755)
    return path


def test_a_program_of_this_machine_is_reached() -> None:
    found = look("true")
    assert found.path in {str(Path(folder, "true")) for folder in PATH}
    assert found.files == (found.path,)
    assert found.obstacles == ()
    assert found.hidden is None


@pytest.mark.parametrize(
    ("made", "kind", "said"),
    [
        (LIKE_OURS, "", ""),
        (LIKE_OURS._replace(interpreter=""), "static", "no dynamic linker starts"),
        (LIKE_OURS._replace(interpreter="", kind=2), "static", "no dynamic linker starts"),
        (LIKE_OURS._replace(note="Go"), "go", "calls the kernel without the C library"),
        (LIKE_OURS._replace(interpreter="", note="Go"), "go", "calls the kernel"),
        (LIKE_OURS._replace(note="GNU"), "", ""),
        (LIKE_OURS._replace(bits=32, machine=I386), "machine", "x86 of 32 bits"),
        (LIKE_OURS._replace(order=">", machine=21), "machine", "PowerPC of 64 bits"),
        (LIKE_OURS._replace(machine=4711), "machine", "machine 4711 of 64 bits"),
        (LIKE_OURS._replace(needed=("liburing.so.2",)), "io_uring", "goes to the kernel"),
    ],
)
def test_what_is_not_reached_is_named(tmp_path: Path, made: Made, kind: str, said: str) -> None:
    path = program(tmp_path / "made", made)
    found = look(path)
    assert [obstacle.kind for obstacle in found.obstacles] == ([kind] if kind else [])
    assert (found.hidden is None) == (kind in {"", "io_uring"})
    for obstacle in found.obstacles:
        assert obstacle.path == str(path)
        assert said in obstacle.why


def test_programs_of_another_c_library_are_named(tmp_path: Path) -> None:
    for linker in ("ld-musl-x86_64.so.1", "linker64"):
        other = tmp_path / linker
        other.write_bytes(b"")
        path = program(tmp_path / "made", LIKE_OURS._replace(interpreter=str(other)))
        assert kinds(path) == ["libc"]
        assert ("musl" in look(path).obstacles[0].why) == ("musl" in linker)
    own_linker = program(
        tmp_path / "ld", LIKE_OURS._replace(interpreter="", soname="ld-linux.so.2")
    )
    assert kinds(own_linker) == []  # it preloads for what it is given


def test_a_linker_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = program(tmp_path / "made", LIKE_OURS._replace(interpreter="/lib/ld-musl-none.so.1"))
    with pytest.raises(engram.NotFoundError, match=r"needs the dynamic linker /lib/ld-musl-none"):
        look(path)


def test_a_real_static_program_is_named(tmp_path: Path) -> None:
    native.need("cc")
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    command: list[str | Path] = ["cc", "-static", tmp_path / "main.c", "-o", tmp_path / "main"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("the C compiler makes no static programs here")
    assert kinds(tmp_path / "main") == ["static"]


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed here")
def test_a_real_go_program_is_named() -> None:
    assert kinds(shutil.which("go") or "") == ["go"]


def test_scripts_are_followed_to_what_runs_them(tmp_path: Path) -> None:
    direct = script(tmp_path / "direct", "#!/bin/sh -e")
    assert look(direct).files == (str(direct), "/bin/sh")
    for line in ("#! /usr/bin/env true", "#!/usr/bin/env -S -u X A=b true -x"):
        by_env = script(tmp_path / "by_env", line)
        files = look(by_env).files
        assert files[:2] == (str(by_env), "/usr/bin/env")
        assert Path(files[2]).name == "true"
        assert look(by_env).obstacles == ()
    nested = script(tmp_path / "nested", f"#!{direct}")
    assert look(nested).files == (str(nested), str(direct), "/bin/sh")
    static = program(tmp_path / "static", LIKE_OURS._replace(interpreter=""))
    by_static = script(tmp_path / "by_static", f"#!{static} -x")
    assert kinds(by_static) == ["static"]
    assert look(by_static).hidden is not None
    assert look(by_static).obstacles[0].path == str(static)
    for line in ("#!/usr/bin/env -S 'open", "#!/usr/bin/env", "#!/usr/bin/env -S A=b"):
        assert look(script(tmp_path / "odd", line)).files[1:] == ("/usr/bin/env",)


@pytest.mark.parametrize(
    ("first", "error", "said"),
    [
        ("#!/no/such/sh", engram.NotFoundError, r"'/no/such/sh'; the script .*/s asks for it"),
        ("#!/bin/sh\r", engram.NotFoundError, r"'/bin/sh\\r'"),
        ("#!/usr/bin/env no-such-program", engram.NotFoundError, "the script .*/s asks for it"),
        ("#!", engram.FormatError, "names nothing that runs it"),
        ("#!/etc/passwd", engram.AccessError, "not executable"),
    ],
)
def test_a_script_that_nothing_runs_is_refused(
    tmp_path: Path, first: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        look(script(tmp_path / "s", first))


def test_scripts_that_run_each_other_are_refused(tmp_path: Path) -> None:
    script(tmp_path / "a", f"#!{tmp_path}/b")
    script(tmp_path / "b", f"#!{tmp_path}/a")
    with pytest.raises(engram.FormatError, match="run by scripts alone"):
        look(tmp_path / "a")


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("echo hello\n")
    with pytest.raises(engram.AccessError, match=r"not executable: `chmod \+x`"):
        look(text)
    text.chmod(0o755)
    assert kinds(text) == ["unknown"]
    broken = program(tmp_path / "broken", LIKE_OURS)
    broken.write_bytes(broken.read_bytes()[:80])
    with pytest.raises(engram.FormatError, match=r"is a broken program: .* cut off"):
        look(broken)
    with pytest.raises(engram.AccessError, match="is a folder, and no program"):
        look(tmp_path)
    with pytest.raises(engram.NotFoundError, match="there is no program"):
        look(tmp_path / "none")
    with pytest.raises(engram.NotFoundError, match=f"no program 'none' in PATH .{PATH[0]}"):
        look("none")
    for name in ("", "a\0b"):
        with pytest.raises(engram.ArgumentError, match="can be no program"):
            look(name)


def test_path_is_searched_as_execvp_does(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    (one / "x").write_text("not executable")
    search = [str(one), str(two)]
    with pytest.raises(engram.AccessError, match="not executable"):
        programs.look("x", search=search)
    there = program(two / "x", LIKE_OURS)
    assert programs.look("x", search=search).path == str(there)
    assert programs.look("./x", search=[], folder=str(two)).path == "./x"


def test_what_lies_below_a_prefix_is_refused(tmp_path: Path) -> None:
    inside = script(tmp_path / "script", "#!/p/bin/python")
    for name in ("/p/bin/x", "/p", "/p/../p/x", str(inside)):
        with pytest.raises(engram.UnsupportedError, match=r"below the prefix /p, .*by a shell"):
            look(name, prefixes=["/q", "/p"])
    assert look("/bin/true", prefixes=["/p", "/bi"]).obstacles == ()


def test_rights_that_a_program_gets_keep_the_library_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("no program gets rights on this filesystem")
    copy = Path(shutil.copy("/bin/true", tmp_path / "true"))
    user, group = os.getuid(), os.getgid()
    copy.chmod(0o6755)
    assert kinds(copy) == []  # the rights are the user's own
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert kinds(copy) == ["rights"]
    assert f"set-user-id, and runs as user {user}" in look(copy).obstacles[0].why
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(os, "getgid", lambda: group + 1)
    assert f"set-group-id, and runs as group {group}" in look(copy).obstacles[0].why
    copy.chmod(0o2745)  # without the group's x it marks no program
    assert kinds(copy) == []
    copy.chmod(0o4755)
    by_script = script(tmp_path / "script", "#!/bin/sh")
    by_script.chmod(0o6755)
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert kinds(copy) == ["rights"]
    assert kinds(by_script) == []  # the kernel gives a script none


def test_file_capabilities_keep_the_library_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copy("/bin/true", tmp_path / "true"))
    monkeypatch.setattr(os, "listxattr", lambda _path: ["security.capability"])
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert kinds(copy) == ["rights"]
    assert "file capabilities" in look(copy).obstacles[0].why
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert kinds(copy) == []


def test_a_real_set_uid_program_of_another_drops_what_is_preloaded(tmp_path: Path) -> None:
    if os.geteuid() != 0 or os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("root alone can make such a program, and not on a nosuid filesystem")
    native.need("cc")
    library = tmp_path / "marked.so"
    source = 'int puts(const char *); __attribute__((constructor)) void f(void) { puts("here"); }'
    command: list[str | Path] = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=source, text=True, check=True)
    copy = Path(shutil.copy("/bin/true", tmp_path / "true"))
    os.chown(copy, 65534, -1)
    said = []
    for mode in (0o755, 0o4755):
        copy.chmod(mode)
        ended = subprocess.run(
            [copy], env={"LD_PRELOAD": str(library)}, capture_output=True, text=True, check=True
        )
        said.append((kinds(copy), ended.stdout))
    assert said == [([], "here\n"), (["rights"], "")]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o4755


def test_check_says_only_what_would_be_said(tmp_path: Path) -> None:
    ended = shell.run("run", "--check", "true")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith("true: the library reaches it\n")
    static = program(tmp_path / "static", LIKE_OURS._replace(interpreter=""))
    ended = shell.run("run", "--check", static, "--json")
    assert (ended.code, ended.err) == (engram.UnsupportedError.exit_code, "")
    assert "it is a static program" in ended.out
    assert "engram mount POOL DIR" in ended.out
    uring = program(tmp_path / "uring", LIKE_OURS._replace(needed=("liburing.so.2",)))
    ended = shell.run("run", "--check", uring)
    assert ended.code == 0
    assert "io_uring" in ended.out
    ended = shell.run("run", "--check", "no-such-program")
    assert ended.code == engram.NotFoundError.exit_code
    assert "no program 'no-such-program'" in ended.err


def test_check_tells_programs_in_json(tmp_path: Path) -> None:
    static = program(tmp_path / "static", LIKE_OURS._replace(interpreter=""))
    by_static = script(tmp_path / "by_static", f"#!{static}")
    ended = shell.run("run", "--check", "--json", by_static)
    told = json.loads(ended.out)
    assert ended.code == engram.UnsupportedError.exit_code
    assert told["program"] == str(by_static)
    assert told["files"] == [str(by_static), str(static)]
    assert told["reached"] is False
    assert told["obstacles"] == [
        {
            "kind": "static",
            "path": str(static),
            "why": programs.look(str(static), search=[]).obstacles[0].why,
            "hides": True,
        }
    ]
    assert json.loads(shell.run("run", "--check", "--json", sys.executable).out)["reached"] is True


def test_a_library_of_another_machine_is_refused(tmp_path: Path) -> None:
    other = AARCH64 if own().machine != AARCH64 else I386
    made = program(tmp_path / "lib.so", LIKE_OURS._replace(interpreter="", machine=other))
    with pytest.raises(engram.FormatError, match=r"cannot be preloaded: it is for .* of 64 bits"):
        programs.check_library(made)
    made.write_bytes(b"no library")
    with pytest.raises(engram.FormatError, match="cannot be preloaded: 16 bytes from 0"):
        programs.check_library(made)
    assert elf.MAGIC not in made.read_bytes()
