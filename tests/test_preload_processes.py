"""What children have of files that the preload library serves, compared with the kernel's own."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import engram
from native import ROOT, need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAMS = ROOT / "tests/preload"
PREFIX = "/engram-preloaded"
PATIENCE = 120
MIB = 1 << 20

named = os.environ.get("ENGRAM_PRELOAD_LIBRARY")
LIBRARY = Path(named) if named else ROOT / "python/engram/_native/libengram_preload.so"
pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason=f"there is no {LIBRARY.name}: build it"
)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Path]:
    """Make a new pool, which has no prefix yet."""
    path = Path("/dev/shm") / f"engram-{os.getpid()}-{tmp_path.name}.pool"
    engram.create(path, size=256 * MIB).close()
    yield path
    engram.destroy(path)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Path]:
    """Make a folder of the kernel's in memory."""
    path = Path("/dev/shm") / f"engram-{os.getpid()}-{tmp_path.name}.plain"
    path.mkdir()
    yield path
    shutil.rmtree(path)


def compiled(name: str, into: Path, *flags: str) -> Path:
    """Compile a program of the tests."""
    need("cc")
    made = into / Path(name).stem
    source = PROGRAMS / name
    command = ["cc", "-O1", "-o", str(made), str(source), *flags, "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return made


def preloaded(pool: Path) -> dict[str, str]:
    """Give the environment in which a program finds the pool below the prefix."""
    run = {"ENGRAM_RUN": f"{pool}={PREFIX}", "LD_PRELOAD": str(LIBRARY)}
    return {**os.environ, "LC_ALL": "C", **run}


def defines(name: str) -> bool:
    """Whether the library defines a function."""
    listed = subprocess.run(["nm", "-D", LIBRARY], capture_output=True, text=True, check=True)
    return f" T {name}\n" in listed.stdout


def said(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> str:
    """Run a program, and give all that it says, and how it ended."""
    environment = environment or {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
        check=False,
        text=True,
        errors="backslashreplace",
    )
    return f"{done.stdout}({done.returncode})\n"


def test_children_have_what_the_kernel_gives_them(tmp_path: Path, pool: Path, plain: Path) -> None:
    """Offsets, numbers, flags, programs and errors are the kernel's, however a child is begun."""
    program = compiled("processes.c", tmp_path)
    expected = said([program, plain])
    assert expected.endswith("(0)\n")
    assert said([program, PREFIX], preloaded(pool)) == expected


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_shells(shell: str, pool: Path, plain: Path) -> None:
    """A script says the same in a pool."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = PROGRAMS / "processes.sh"
    expected = said([shell, script, plain])
    assert expected.endswith("one\ntwo\n(0)\n") or shell == "dash"
    assert said([shell, script, PREFIX], preloaded(pool)) == expected


def test_large_here_documents(pool: Path) -> None:
    """They are files without a name, which outlive the shell that made them."""
    if shutil.which("bash") is None or not defines("mkstemp"):
        pytest.skip("bash makes them by mkstemp")
    script = "big=$(head -c 200000 /dev/zero | tr '\\0' x); cat <<END | wc -c\n$big\nEND\n"
    inside = {**preloaded(pool), "TMPDIR": PREFIX}
    assert said(["bash", "-c", script], inside) == "200001\n(0)\n"


def test_find_starts_programs(pool: Path, plain: Path) -> None:
    """What `find` finds is given to programs, with the folder in which they are."""
    if not defines("opendir"):
        pytest.skip("folders cannot be listed yet")
    script = "cd $0; mkdir s; cat > s/one < /bin/true; find . -type f -execdir wc -c {} \\; | cat"
    expected = said(["dash", "-c", script, plain])
    assert said(["dash", "-c", script, PREFIX], preloaded(pool)) == expected


def test_python_starts_programs(tmp_path: Path, pool: Path, plain: Path) -> None:
    """`subprocess` and `posix_spawn` hand files on, also those without a name."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, subprocess, sys, tempfile
            os.chdir(sys.argv[1])
            read = os.O_RDWR | os.O_CREAT
            fd = os.open("a", read)
            os.write(fd, b"some\\nlines\\n")
            def out(*command, **how):
                print(subprocess.run(command, stdout=subprocess.PIPE, **how).stdout)
            out("cat", "a")
            out("cat", "a", cwd=sys.argv[1])
            os.lseek(fd, 5, os.SEEK_SET)
            out("cat", stdin=fd)
            gone = os.open("gone", read)
            os.unlink("gone")
            subprocess.run(["sh", "-c", "echo out; echo err >&2"], stdout=gone, stderr=gone)
            print(os.pread(gone, 100, 0), os.lseek(gone, 0, os.SEEK_CUR))
            to = [
                (os.POSIX_SPAWN_OPEN, 0, "a", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "b", os.O_WRONLY | os.O_CREAT, 0o600),
            ]
            pid = os.posix_spawn("/bin/cat", ["cat"], os.environ, file_actions=to)
            print(os.waitpid(pid, 0)[1])
            print(os.waitpid(os.posix_spawnp("cat", ["cat", "b"], os.environ), 0)[1], flush=True)
            print(os.system("cat b"), os.popen("cat b").read())
            os.lseek(fd, 5, os.SEEK_SET)
            out("bash", "-c", f"cat <&{fd}; cat <&{gone} 2>&- || echo closed", pass_fds=[fd])
            """
        ),
        encoding="utf-8",
    )
    expected = said([sys.executable, script, plain])
    assert expected.endswith("(0)\n")
    assert said([sys.executable, script, PREFIX], preloaded(pool)) == expected


def test_a_program_with_threads_becomes_another(tmp_path: Path, pool: Path, plain: Path) -> None:
    """A file without a name outlives it, whatever its threads do meanwhile."""
    program = compiled("chain.c", tmp_path)
    expected = said([program, plain, "100"])
    assert expected.endswith(" 1 0 \n(0)\n")
    assert said([program, PREFIX, "100"], preloaded(pool)) == expected


def test_a_command_with_a_pipe_leaves_the_numbers_of_its_parent_alone(
    tmp_path: Path, pool: Path, plain: Path
) -> None:
    """`popen` replaces no number, so none that another thread has closed and opened meanwhile."""
    program = compiled("popened.c", tmp_path, "-Wno-mismatched-dealloc")
    expected = said([program, plain])
    assert expected.startswith("the number is what it was\n")
    assert expected.endswith("Success\n(0)\n")
    assert said([program, PREFIX], preloaded(pool)) == expected


def test_a_program_that_becomes_no_other_goes_on(tmp_path: Path, pool: Path, plain: Path) -> None:
    """`exec` replaces no number that another thread has, lets signals in, and hands locks on."""
    program = compiled("becoming.c", tmp_path)
    expected = said([program, plain])
    assert "as another: 14, 0, -1\nlocked: 1\nblocked: 1 0\n" in expected
    assert expected.endswith("\nblocked: 1 0\n(0)\n")
    assert said([program, PREFIX], preloaded(pool)) == expected


def test_who_becomes_another_program_holds_no_file(tmp_path: Path, pool: Path, plain: Path) -> None:
    """Others extend a file that a thread extended when its process became another program."""
    program = compiled("amid_exec.c", tmp_path)
    expected = said([program, plain])
    assert expected == "1 written\n" * 3 + "(0)\n"
    assert said([program, PREFIX], preloaded(pool)) == expected


@pytest.mark.parametrize(("rounds", "each"), [(200, 400), (4500, 2)])
def test_what_the_dead_had_is_found_again(
    tmp_path: Path, pool: Path, rounds: int, each: int
) -> None:
    """Neither descriptions nor rows for processes run out, however many are killed."""
    program = compiled("slots.c", tmp_path)
    done = said([program, PREFIX, str(rounds), str(each)], preloaded(pool))
    assert done == "offset 0, and 0 more\n(0)\n"


def test_locks_go_with_descriptors_and_processes(tmp_path: Path, pool: Path, plain: Path) -> None:
    """A lock that nobody has a descriptor of any more keeps nobody out, whoever was killed."""
    program = compiled("locks.c", tmp_path)
    expected = said([program, plain])
    assert expected.count("locked\n") > 20
    assert said([program, PREFIX], preloaded(pool)) == expected


def test_who_was_killed_amid_a_write_keeps_nobody_waiting(tmp_path: Path, pool: Path) -> None:
    """A parent writes by the offset that it shared, and asks for its dead child after that."""
    program = compiled("killed_amid.c", tmp_path)
    assert said([program, PREFIX, "100"], preloaded(pool)) == "offset 9, xxxparent\n(0)\n"


def test_a_terminal_of_its_own(pool: Path) -> None:
    """A child in a terminal has its parent's files, and the terminal in place of one of them."""
    script = (
        "import os, pty\n"
        f"fd = os.open('{PREFIX}/x', os.O_RDWR | os.O_CREAT)\n"
        "os.write(fd, b'in the pool')\n"
        "os.set_inheritable(fd, True)\n"
        "os.dup2(fd, 0)\n"
        "pid, terminal = pty.fork()\n"
        "if pid == 0:\n"
        "    os.lseek(fd, 3, os.SEEK_SET)\n"
        "    os.execvp('sh', ['sh', '-c', f'test -t 0 && cat <&{fd}'])\n"
        "print(os.waitpid(pid, 0)[1], os.read(terminal, 100), os.lseek(0, 0, os.SEEK_CUR))\n"
    )
    assert said([sys.executable, "-c", script], preloaded(pool)) == "0 b'the pool' 11\n(0)\n"


def test_a_mount_runs_programs(pool: Path, plain: Path) -> None:
    """Where the pool is mounted, too, its programs are run from there."""
    shutil.copy("/bin/echo", plain / "program")
    environment = preloaded(pool)
    assert said(["cp", "/bin/false", f"{PREFIX}/program"], environment) == "(0)\n"
    environment["ENGRAM_RUN_MOUNT"] = str(plain)
    command = ["dash", "-c", f"{PREFIX}/program from the mount"]
    assert said(command, environment) == "from the mount\n(0)\n"


def test_libraries_are_loaded_from_a_pool(tmp_path: Path, pool: Path, plain: Path) -> None:
    """A library that lies in a pool is loaded, and known again."""
    program = compiled("loaded.c", tmp_path)
    source, library = tmp_path / "library.c", tmp_path / "library.so"
    source.write_text("int answer(void) { return 42; }\n", encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    shutil.copy(library, plain)
    copied = said(["cp", library, PREFIX], preloaded(pool))
    assert copied == "(0)\n"
    expected = said([program, plain])
    assert expected.endswith("(0)\n")
    assert said([program, PREFIX], preloaded(pool)) == expected


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its C library may not be installed")
def test_a_program_without_the_library_is_never_silent(tmp_path: Path, pool: Path) -> None:
    """A static program gets descriptors that fail, and no other working folder."""
    source = tmp_path / "static.c"
    source.write_text(
        "#include <unistd.h>\n"
        'int main(void) { char c; write(1, read(0, &c, 1) < 0 ? "refused" : "read", 7); }\n',
        encoding="utf-8",
    )
    program = tmp_path / "static"
    if subprocess.run(["cc", "-w", "-static", "-o", program, source], check=False).returncode != 0:
        pytest.skip("there is no static C library")
    script = f"echo x > {PREFIX}/x; {program} < {PREFIX}/x; cd {PREFIX}; {program} 2>&-; echo $?"
    assert said(["dash", "-c", script], preloaded(pool)) == "refused126\n(0)\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its C library may not be installed")
def test_numbers_that_were_handed_may_be_other_files_by_then(tmp_path: Path, pool: Path) -> None:
    """A program between two closes what it inherits, and opens its own: nobody takes them away."""
    known, strange = compiled("strange.c", tmp_path, "-w"), tmp_path / "static"
    source = PROGRAMS / "strange.c"
    command: list[str | Path] = ["cc", "-w", "-static", "-o", strange, source]
    if subprocess.run(command, check=False).returncode != 0:
        pytest.skip("there is no static C library")
    script = f'exec 9> {PREFIX}/x; flock 9; exec "$0" "$1" {PREFIX}/x'
    done = said(["dash", "-c", script, strange, known], preloaded(pool))
    assert done == "4 were handed, and 0 are lost, 0 later: 1\n(0)\n"


def test_what_happens_amid_a_call_takes_no_lock_away(
    tmp_path: Path, pool: Path, plain: Path
) -> None:
    """Threads go on while a process ends, and others send to the sockets that keep locks."""
    need("cc")
    program, beneath = compiled("above.c", tmp_path), tmp_path / "beneath.so"
    source = PROGRAMS / "beneath.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", beneath, source, "-ldl"], check=True)
    alone = {**os.environ, "LC_ALL": "C", "LD_PRELOAD": str(beneath)}
    expected = said([program, plain], alone)
    assert expected.count("unavailable") == expected.count("Success") == 2
    environment = preloaded(pool)
    environment["LD_PRELOAD"] += f":{beneath}"
    assert said([program, PREFIX], environment) == expected
