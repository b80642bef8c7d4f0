"""`engram run` and `engram.run`: what is refused, and the environment that a program gets.

The library that is preloaded here is an empty one: what the real one does is for other tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import engram
import native
import shell
from elf_files import Made, own, program
from mounted import needs_fuse

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLES = ("ENGRAM_RUN", "ENGRAM_TRACE")
STATIC = Made(machine=own().machine)


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a library without anything in it."""
    native.need("cc")
    made = tmp_path_factory.mktemp("preload") / "libempty.so"
    command: list[str | Path] = ["cc", "-shared", "-fPIC", "-x", "c", os.devnull, "-o", made]
    subprocess.run(command, check=True)
    return made


@pytest.fixture(autouse=True)
def library(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have that library preloaded."""
    monkeypatch.setenv("ENGRAM_PRELOAD_LIBRARY", str(empty))
    for name in ("LD_PRELOAD", *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    return empty


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Give a path at which nothing is."""
    return str(tmp_path / "p")


def told(**given: Any) -> dict[str, str]:
    """Give what the library would be told."""
    made = engram.run_environment(**given)
    return {name: value for name, value in made.items() if name.startswith(VARIABLES)}


def test_the_environment_says_where_a_pool_is_found(
    pool: engram.Pool, library: Path, prefix: str
) -> None:
    made = engram.run_environment(pool=pool, prefix=prefix)
    before = dict(os.environ)
    assert made.pop("LD_PRELOAD") == str(library)
    assert made.pop("ENGRAM_RUN") == f"{pool.path}={prefix}"
    assert made == before
    assert told(pool=str(pool.path), prefix=Path(prefix)) == told(pool=pool, prefix=prefix)
    assert told(pool=pool, prefix=f"{prefix}/") == told(pool=pool, prefix=prefix)


def test_each_option_has_its_variable(
    pool: engram.Pool, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.create_namespace("icesat").create_group("a/b")
    shown = f"{pool.path}:/a/b"
    assert told(pool=f"{shown}/", prefix=prefix, namespace="icesat", read_only=True) == {
        "ENGRAM_RUN": f"{shown}={prefix}",
        "ENGRAM_RUN_NAMESPACE": "icesat",
        "ENGRAM_RUN_READ_ONLY": "1",
    }
    monkeypatch.chdir(tmp_path)  # the program may work elsewhere
    run = {"ENGRAM_RUN": f"{pool.path}={prefix}"}
    assert told(pool=pool, prefix=prefix, trace="t") == run | {"ENGRAM_TRACE": f"{tmp_path}/t"}
    for ring, said in (("r", "r"), ("r:1MiB", "r:1048576"), (Path("r:x"), "r:x")):
        made = told(pool=pool, prefix=prefix, trace_ring=ring)
        assert made == run | {"ENGRAM_TRACE_RING": f"{tmp_path}/{said}"}
    assert told(pool=pool, prefix=prefix, namespace="default", read_only=False) == run


def test_several_pools_have_a_line_each(pool: engram.Pool, home: Path, prefix: str) -> None:
    pool.create_group("a")
    with engram.create(home / "odd:", size="64 MiB", force=True) as other:
        places = {f"{prefix}/1": pool, f"{prefix}/2": f"{pool.path}:/a", f"{prefix}/3": other}
        lines = told(pool=places)["ENGRAM_RUN"].split("\n")
    shown = [pool.path, f"{pool.path}:/a", f"{home}/odd:"]
    assert lines == [f"{each}={prefix}/{n}" for n, each in enumerate(shown, 1)]


def test_a_folder_that_looks_like_a_pool_and_a_path_is_told_with_both(
    home: Path, prefix: str
) -> None:
    (home / "odd:").mkdir()
    with engram.create(home / "odd:/pool", size="64 MiB", force=True) as odd:
        line = told(pool=odd, prefix=prefix)["ENGRAM_RUN"]
        assert line == f"{home}/odd:/pool:/={prefix}"
        assert told(pool=f"{odd.path}:/", prefix=prefix)["ENGRAM_RUN"] == line
        with pytest.raises(engram.PoolNotFoundError, match=r"odd: is a folder|no pool at .*/odd:"):
            told(pool=odd.path, prefix=prefix)


def test_what_else_is_preloaded_follows_and_a_run_in_a_run_begins_anew(
    pool: engram.Pool, library: Path, prefix: str
) -> None:
    first = engram.run_environment(
        pool=pool,
        prefix=prefix,
        read_only=True,
        env={"LD_PRELOAD": "/lib/a.so /lib/b.so:", "X": "1", "ENGRAM_TRACE": "/t"},
    )
    assert first == {
        "LD_PRELOAD": f"{library}:/lib/a.so:/lib/b.so",
        "ENGRAM_RUN": f"{pool.path}={prefix}",
        "ENGRAM_RUN_READ_ONLY": "1",
        "ENGRAM_TRACE": "/t",
        "X": "1",
    }
    ring = prefix + ".ring"
    second = engram.run_environment(pool=pool, prefix=f"{prefix}2", env=first, trace_ring=ring)
    assert second == {
        "LD_PRELOAD": first["LD_PRELOAD"],
        "ENGRAM_RUN": f"{pool.path}={prefix}2",
        "ENGRAM_TRACE_RING": ring,
        "X": "1",
    }


def cases(home: Path) -> Iterator[tuple[dict[str, Any], type[Exception], str]]:
    """Give what cannot be, beside what could."""
    no_line, is_in = "that no line can have", "is, or lies in, the pool's own"
    yield {"pool": home / "none"}, engram.PoolNotFoundError, "no pool at .*/none"
    yield {"pool": f"{home}/none:/a"}, engram.PoolNotFoundError, "no pool at .*/none:"
    yield {"pool": home}, engram.FormatError, "not a pool"
    yield {"pool": 7}, engram.ArgumentError, "7 is no path"
    yield {"pool": {}, "prefix": None}, engram.ArgumentError, "at least one"
    yield {"pool": {"/p": home / "pool"}}, engram.ArgumentError, "one too many"
    yield {"namespace": "x"}, engram.NotFoundError, "no namespace 'x' in .*; there are: default"
    yield {"pool": f"{home}/pool:/x"}, engram.NotFoundError, "no '/x' in namespace 'default'"
    yield {"pool": f"{home}/pool:/file"}, engram.ArgumentError, "/file in .* is no group"
    yield {"pool": f"{home}/pool:/../x"}, engram.InvalidNameError, r"has \. or \.\. in it"
    yield {"pool": f"{home}/a\nb"}, engram.InvalidNameError, no_line
    yield {"prefix": None}, engram.ArgumentError, "the prefix is missing"
    yield {"prefix": 7}, engram.ArgumentError, "prefix 7 is no path"
    yield {"prefix": "p"}, engram.ArgumentError, "'p' does not begin at the root"
    yield {"prefix": ""}, engram.ArgumentError, "'' does not begin at the root"
    yield {"prefix": "/"}, engram.ArgumentError, "the prefix / is the root"
    for unclean in ("//p", "/p//q", "/p/../q", "/p/.", "/./p"):
        yield {"prefix": unclean}, engram.ArgumentError, f"{unclean!r} is not clean"
    yield {"prefix": "/a=b"}, engram.InvalidNameError, "has = in it"
    yield {"prefix": "/a\nb"}, engram.InvalidNameError, no_line
    yield {"prefix": f"{home}/pool"}, engram.ArgumentError, is_in
    yield {"prefix": f"{home}/pool/x"}, engram.ArgumentError, is_in
    yield {"prefix": f"{home}/link"}, engram.ExistsError, "is a real link"
    yield {"pool": home / "link", "prefix": f"{home}/pool/x"}, engram.ArgumentError, is_in
    yield {"prefix": str(home)}, engram.ArgumentError, "lies above the pool's own folder"
    yield {"prefix": f"{home}/full"}, engram.ExistsError, "folder with members, such as 'x'"
    yield {"prefix": f"{home}/full/x"}, engram.ExistsError, "is a real file"
    yield {"prefix": f"{home}/full/x/y"}, engram.ArgumentError, "leads through a real file"
    yield {"prefix": f"{home}/dangling"}, engram.ExistsError, "is a real link"
    yield {"read_only": "no"}, engram.ArgumentError, "read_only 'no' is no truth value"
    yield {"trace": home / "t", "trace_ring": home / "r"}, engram.ArgumentError, "one trace"
    yield {"trace": home / "no/t"}, engram.NotFoundError, "no folder .*/no for the trace t"
    yield {"trace_ring": f"{home}/r:1x"}, engram.ArgumentError, "size '1x' cannot be read"
    yield {"mount": home / "empty"}, engram.NotFoundError, "no pool is mounted at .*/empty: `eng"


def test_what_cannot_be_is_refused(pool: engram.Pool, home: Path) -> None:
    pool["file"] = b"x"
    (home / "full").mkdir()
    (home / "full/x").write_text("x")
    (home / "empty").mkdir()
    (home / "link").symlink_to("pool")
    (home / "dangling").symlink_to("nowhere")
    fitting: dict[str, Any] = {"pool": home / "pool", "prefix": f"{home}/empty"}
    assert told(**fitting)
    for given, error, said in cases(home):
        arguments = fitting | given
        with pytest.raises(error, match=said):
            engram.run_environment(**arguments)
        with pytest.raises(error, match=said):
            engram.run(["true"], **arguments)


@pytest.mark.parametrize("other", ["", "/q"])
def test_no_prefix_lies_in_another(pool: engram.Pool, prefix: str, other: str) -> None:
    words = ["-p", f"{pool.path}={prefix}", "-p", f"{pool.path}={prefix}{other}"]
    ended = shell.run("run", *words, "--", "true")
    assert ended.code == engram.ArgumentError.exit_code
    assert "is the same as" in ended.err
    assert told(pool={prefix: pool, f"{prefix}2": pool})


def test_a_group_is_named_by_its_path(pool: engram.Pool, prefix: str) -> None:
    group = pool.create_group("a/b")
    with pytest.raises(engram.ArgumentError, match=r'is a group: .* as in "POOL:/a/b"'):
        engram.run_environment(pool=group, prefix=prefix)
    pool.create_group("a:b")  # what is behind the last colon begins with no slash
    with pytest.raises(engram.PoolNotFoundError, match="pool:/a:b"):
        engram.run_environment(pool=f"{pool.path}:/a:b", prefix=prefix)


def test_the_library_is_the_one_that_is_named(
    pool: engram.Pool, empty: Path, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> str:
        with pytest.raises(engram.EngramError) as caught:
            engram.run_environment(pool=pool, prefix=prefix)
        return str(caught.value)

    monkeypatch.setenv("ENGRAM_PRELOAD_LIBRARY", str(tmp_path / "none.so"))
    assert "the library to preload is not at" in refused()
    assert "ENGRAM_PRELOAD_LIBRARY names it, and `make` builds it" in refused()
    for name in ("with blank.so", "with:colon.so"):
        shutil.copy(empty, tmp_path / name)
        monkeypatch.setenv("ENGRAM_PRELOAD_LIBRARY", str(tmp_path / name))
        assert "has a blank or a colon in it" in refused()
    (tmp_path / "text.so").write_text("no library")
    monkeypatch.setenv("ENGRAM_PRELOAD_LIBRARY", str(tmp_path / "text.so"))
    assert "text.so cannot be preloaded" in refused()


def test_the_library_is_looked_for_in_the_package(
    pool: engram.Pool, prefix: str, tmp_path: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENGRAM_PRELOAD_LIBRARY", raising=False)
    monkeypatch.setattr("engram._engram.__file__", str(tmp_path / "_engram.so"))
    with pytest.raises(engram.NotFoundError, match="`make` builds it, or ENGRAM_PRELOAD_LIBRARY"):
        engram.run_environment(pool=pool, prefix=prefix)
    (tmp_path / "_native").mkdir()
    there = shutil.copy(empty, tmp_path / "_native/libengram_preload.so")
    made = engram.run_environment(pool=pool, prefix=prefix, env={})
    assert made["LD_PRELOAD"] == str(there)


def test_a_program_runs_with_the_library_in_it(
    pool: engram.Pool, library: Path, prefix: str
) -> None:
    words = ["cat", "/proc/self/maps"]
    ended = engram.run(words, pool=pool, prefix=prefix, capture_output=True, text=True)
    assert ended.returncode == 0
    assert ended.args == words
    assert str(library) in ended.stdout
    said = engram.run("echo $ENGRAM_RUN", pool=pool, prefix=prefix, shell=True, stdout=-1)  # noqa: S604
    assert said.stdout == f"{pool.path}={prefix}\n".encode()
    assert engram.run(["sh", "-c", "exit 7"], pool=pool, prefix=prefix).returncode == 7
    with pytest.raises(subprocess.CalledProcessError):
        engram.run("false", pool=pool, prefix=prefix, check=True)
    killed = engram.run(["sh", "-c", "kill -9 $$"], pool=pool, prefix=prefix)
    assert killed.returncode == -signal.SIGKILL


def test_options_of_subprocess_say_which_program_is_looked_at(
    pool: engram.Pool, prefix: str, tmp_path: Path
) -> None:
    static = program(tmp_path / "static", STATIC)
    refused: list[tuple[Any, dict[str, Any]]] = [
        ([static], {}),
        (static, {}),
        ([os.fsencode(static), "x"], {}),
        (["static"], {"env": {"PATH": str(tmp_path)}}),
        (["./static"], {"cwd": tmp_path}),
        (["true"], {"executable": static}),
    ]
    for args, options in refused:
        with pytest.raises(engram.UnsupportedError, match="it is a static program"):
            engram.run(args, pool=pool, prefix=prefix, **options)
    for args in ([], [7]):
        with pytest.raises(engram.ArgumentError, match="no program"):
            engram.run(args, pool=pool, prefix=prefix)  # type: ignore[arg-type]
    with pytest.raises(engram.ArgumentError, match=r'cwd .* below the prefix .*\["env", "-C", '):
        engram.run(["true"], pool=pool, prefix=prefix, cwd=f"{prefix}/case")
    with pytest.raises(engram.UnsupportedError, match="lies below the prefix"):
        engram.run([f"{prefix}/bin/x"], pool=pool, prefix=prefix)


def test_what_is_not_reached_starts_after_a_warning_if_it_is_to(
    pool: engram.Pool, prefix: str, tmp_path: Path
) -> None:
    odd = script_without_interpreter(tmp_path)
    with pytest.raises(
        engram.UnsupportedError, match="mount=DIR or anyway=True starts it as it is"
    ):
        engram.run([odd], pool=pool, prefix=prefix)
    with (
        pytest.warns(engram.EngramWarning, match="It finds nothing below the prefix"),
        pytest.raises(OSError, match="Exec format error"),
    ):
        engram.run([odd], pool=pool, prefix=prefix, anyway=True)
    with pytest.raises(engram.ArgumentError, match="anyway 'yes' is no truth value"):
        engram.run([odd], pool=pool, prefix=prefix, anyway="yes")  # type: ignore[arg-type]


def script_without_interpreter(folder: Path) -> Path:
    """Give what `sh` would run, and the kernel does not."""
    odd = folder / "odd"
    odd.write_text("exit 3\n")
    odd.chmod(0o755)
    return odd


def cli(pool: engram.Pool, prefix: str, *words: object) -> subprocess.CompletedProcess[bytes]:
    return shell.piped("run", "-p", f"{pool.path}={prefix}", *words)


def test_the_command_becomes_the_program(pool: engram.Pool, library: Path, prefix: str) -> None:
    ended = cli(pool, prefix, "--", "env")
    lines = ended.stdout.decode().splitlines()
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert {f"LD_PRELOAD={library}", f"ENGRAM_RUN={pool.path}={prefix}"} <= set(lines)
    process = subprocess.Popen(
        [*shell.COMMAND, "run", "-p", f"{pool.path}={prefix}", "sh", "-c", "echo $$"],
        stdout=subprocess.PIPE,
    )
    assert process.communicate()[0] == f"{process.pid}\n".encode()


def test_the_programs_options_are_its_own(pool: engram.Pool, prefix: str) -> None:
    ended = cli(pool, prefix, "printf", "%s|", "--json", "-p", "--check", "--", "-h")
    assert ended.stdout == b"--json|-p|--check|--|-h|"


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -PIPE $$; exit 5", -13)],
)
def test_the_exit_code_is_the_programs(
    pool: engram.Pool, prefix: str, script: str, code: int
) -> None:
    assert cli(pool, prefix, "sh", "-c", script).returncode == code


def test_the_program_is_interrupted_as_any(pool: engram.Pool, prefix: str) -> None:
    words = [
        *shell.COMMAND,
        "run",
        "-p",
        f"{pool.path}={prefix}",
        "sh",
        "-c",
        "echo; exec sleep 60",
    ]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"
            process.send_signal(number)
            assert process.wait() == -number


def test_the_program_gets_nothing_of_the_commands_own(
    pool: engram.Pool, library: Path, prefix: str
) -> None:
    words = ["run", "-p", f"{pool.path}={prefix}", sys.executable, "-c"]
    seen = "import os; print(*sorted(os.listdir('/proc/self/fd'), key=int))"
    plain = subprocess.run([sys.executable, "-c", seen], stdout=-1, check=True).stdout
    assert shell.piped(*words, seen).stdout == plain
    closed = (
        "import os; os.write(2, b'%r' % [os.path.exists(f'/proc/self/fd/{n}') for n in (0, 1)])"
    )
    ended = subprocess.run(
        ["sh", "-c", '"$@" <&- >&-', "sh", *shell.COMMAND, *words, closed],
        stderr=subprocess.PIPE,
        check=True,
    )
    assert ended.stderr == b"[False, False]"
    named = {"ENGRAM_PRELOAD_LIBRARY": str(library), "PATH": os.environ["PATH"]}
    bare = {**named, **{k: v for k, v in os.environ.items() if k.startswith("PYTHON")}}
    words = [*shell.COMMAND, "run", "-p", f"{pool.path}={prefix}", "env"]
    ended = subprocess.run(words, env=bare, stdout=-1, check=True)
    names = {line.partition("=")[0] for line in ended.stdout.decode().splitlines()}
    assert names - set(bare) == {"LD_PRELOAD", "ENGRAM_RUN"}  # and no LC_CTYPE of Python's


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ([], engram.ArgumentError, "which pool? -p POOL=/prefix says so"),
        (["-p", "pool"], engram.ArgumentError, "'pool' does not say where"),
        (["-p", "=/p"], engram.ArgumentError, "'=/p' does not say where"),
        (["-p", "{pool}={prefix}", "--trace", "/no/t"], engram.NotFoundError, "no folder /no"),
        (
            ["-p", "{pool}={prefix}", "--trace", "/t", "--trace-ring", "/r"],
            engram.ArgumentError,
            "give --trace or --trace-ring, not both",
        ),
        (["-p", "{pool}={prefix}", "-n", "x"], engram.NotFoundError, "no namespace 'x'"),
    ],
)
def test_the_command_says_what_is_wrong_in_its_words(
    pool: engram.Pool,
    prefix: str,
    words: list[str],
    error: type[engram.EngramError],
    said: str,
) -> None:
    given = [word.format(pool=pool.path, prefix=prefix) for word in words]
    ended = shell.run("run", *given, "--", "true")
    assert ended.code == error.exit_code
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_the_command_starts_what_is_not_reached_if_it_is_to(
    pool: engram.Pool, prefix: str, tmp_path: Path
) -> None:
    odd = script_without_interpreter(tmp_path)
    ended = cli(pool, prefix, odd)
    assert ended.returncode == engram.UnsupportedError.exit_code
    assert b"--mount DIR or --anyway starts it as it is" in ended.stderr
    ended = cli(pool, prefix, "--anyway", odd)
    assert ended.returncode == engram.FormatError.exit_code
    assert ended.stderr.count(b"\n") == 2
    assert b"is no program that the kernel can start" in ended.stderr
    uring = Made(own().interpreter, ("liburing.so.2",), machine=own().machine)
    assert b"io_uring" in cli(pool, prefix, program(tmp_path / "uring", uring)).stderr


def test_a_pool_that_is_missing_is_no_hint_at_what_the_program_is_given(
    pool: engram.Pool, home: Path, prefix: str
) -> None:
    ended = shell.run("run", "-p", f"{home}/none={prefix}", "--", "ls", pool.path)
    assert ended.code == engram.NotFoundError.exit_code
    assert f"no pool at {home}/none" in ended.err
    assert "the pool comes first" not in ended.err


@needs_fuse
def test_a_mount_is_named_to_the_library(
    pool: engram.Pool, home: Path, point: Path, prefix: str, tmp_path: Path
) -> None:
    pool.create_group("a")
    pool.create_namespace("other")
    odd = script_without_interpreter(tmp_path)
    with engram.mount(pool, point):
        assert told(pool=pool, prefix=prefix, mount=point) == {
            "ENGRAM_RUN": f"{pool.path}={prefix}",
            "ENGRAM_RUN_MOUNT": str(point),
        }
        # The same files lie there for the kernel, too.
        assert told(pool=pool, prefix=str(point), mount=point)
        assert told(pool=f"{pool.path}:/a", prefix=f"{point}/a", mount=point)
        with pytest.raises(engram.ExistsError, match="a real folder with members"):
            told(pool=pool, prefix=str(point))
        with pytest.raises(engram.ArgumentError, match="the namespace 'default', not 'other'"):
            told(pool=pool, prefix=prefix, namespace="other", mount=point)
        with engram.create(home / "second", size="64 MiB", force=True) as second:
            with pytest.raises(engram.ArgumentError, match=f"shows {pool.path}, not"):
                told(pool=second, prefix=prefix, mount=point)
            assert told(pool={prefix: second, f"{prefix}2": pool}, mount=point)
        with (
            pytest.warns(engram.EngramWarning, match=f"what it asks for below {point} it reaches"),
            pytest.raises(OSError, match="Exec format error"),
        ):
            engram.run([odd], pool=pool, prefix=prefix, mount=point)
    with pytest.raises(engram.NotFoundError, match="no pool is mounted at"):
        told(pool=pool, prefix=prefix, mount=point)
