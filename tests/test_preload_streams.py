"""Streams under the preload library: programs say of a pool's files what they say of tmpfs's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import engram
from native import ROOT, need
from support import PATIENCE

PROGRAMS = ROOT / "tests/preload"
LIBRARY = Path(
    os.environ.get("ENGRAM_PRELOAD_LIBRARY", ROOT / "python/engram/_native/libengram_preload.so")
)
PREFIX = "/engram-preloaded"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    """Give the environment in which programs find a new pool below the prefix."""
    engram.create(home / "run.pool", size="256 MiB", force=True).close()
    entry = f"{home / 'run.pool'}={PREFIX}"
    return {**os.environ, "LD_PRELOAD": str(LIBRARY), "ENGRAM_RUN": entry}


def said(*command: str | Path, env: dict[str, str] | None = None, given: str = "") -> str:
    """Give what a program says on both of its outputs, and how it ends."""
    done = subprocess.run(
        [str(each) for each in command],
        input=given,
        capture_output=True,
        text=True,
        env=env,
        timeout=PATIENCE,
        check=False,
        errors="backslashreplace",
    )
    return f"{done.stdout}\n{done.stderr}\nended with {done.returncode}"


def compiled(program: str, home: Path) -> Path:
    """Give a program in C or C++ that is built with the checks of its buffers."""
    compiler = "c++" if program.endswith(".cc") else "cc"
    need(compiler)
    built = home / Path(program).stem
    checks = ("-O2", "-D_FORTIFY_SOURCE=2")
    told = said(compiler, *checks, "-pthread", "-w", "-o", built, PROGRAMS / program)
    assert told.endswith("ended with 0"), told
    return built


@pytest.mark.parametrize(
    "program",
    [
        "streams_modes.c",
        "streams_buffers.c",
        "streams_standard.c",
        "streams_wide.c",
        "streams_iostreams.cc",
        "streams_blocked.c",
        "asynchronous.c",
    ],
)
def test_program_says_the_same(program: str, home: Path, env: dict[str, str]) -> None:
    """A C program prints the same results and errors of a pool's files as of tmpfs's."""
    built = compiled(program, home)
    plain = home / "plain"
    plain.mkdir()
    wanted = said(built, plain)
    assert wanted.endswith("ended with 0"), wanted
    assert said(built, PREFIX, env=env) == wanted


def test_full_pool_is_told(home: Path, env: dict[str, str]) -> None:
    """A stream that finds no room says ENOSPC, and its file's room is there again afterwards."""
    pool = home / "small.pool"
    engram.create(pool, size="64 MiB", force=True).close()
    env["ENGRAM_RUN"] = f"{pool}={PREFIX}"
    told = said(compiled("streams_full.c", home), PREFIX, env=env)
    assert told == "ENOSPC 1 error 1\nflush 1\nclose 0\n\n\nended with 0"


SCRIPTS = {
    "redirects": """
        echo one > $P/f; printf two >> $P/f; { echo a; echo b; } > $P/g
        while read x; do echo "[$x]"; done < $P/f
        read y < $P/g; echo "$y"
    """,
    "exec": """
        exec 3> $P/f; echo by three >&3; exec 3>&-
        exec 4< $P/f; read x <&4; echo "$x"; exec 4<&-
        ( exec > $P/out; echo to the file; echo more )
        while read x; do echo "[$x]"; done < $P/out
    """,
    "children": """
        ( echo child; echo error >&2 ) > $P/f 2>&1
        ( echo further ) >> $P/f
        while read x; do echo "[$x]"; done < $P/f
        x=$(echo inner; echo file > $P/g); read y < $P/g; echo "$x $y"
    """,
    "heredoc": """
        while read x; do echo "<$x>" >> $P/f; done <<END
first
second
END
        while read x; do echo "[$x]"; done < $P/f
    """,
    "inherited": """
        seq 5 > $P/f; sort -r < $P/f > $P/g; cat $P/g; cat < $P/f | wc -l
        sh -c 'echo error >&2; no_such' > $P/e 2>&1; cat $P/e
        awk '{ print $1 * 2 }' < $P/f >> $P/g; tail -n 2 $P/g
        perl -e 'print "perl\\n"; print STDERR "error\\n"' > $P/p 2>&1; sort $P/p
    """,
    "errors": """
        no_such_program 2> $P/f; [ -s $P/f ] && echo said
        echo x > $P/no/such || echo refused
        set -C; echo x > $P/f || echo kept
    """,
}


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_shell_redirects(shell: str, script: str, home: Path, env: dict[str, str]) -> None:
    """A shell's own commands write to a pool's files and read them, by redirections."""
    plain = home / "plain"
    plain.mkdir()
    wanted = said(shell, "-c", SCRIPTS[script], env={**os.environ, "P": str(plain)})
    told = said(shell, "-c", SCRIPTS[script], env={**env, "P": PREFIX})
    assert told.replace(PREFIX, str(plain)) == wanted


EVERYDAY = {
    "perl": """
        open(F, ">", "$ENV{P}/f"); print F "x\\n" x 9; close F; open(F, "$ENV{P}/f"); print <F>;
        open(STDOUT, ">>", "$ENV{P}/f"); print "to it\\n"; close STDOUT;
        open(F, "$ENV{P}/f"); print STDERR <F>
    """,
    "awk": """
        BEGIN {
            f = ENVIRON["P"] "/f"; for (i = 0; i < 5000; i++) print i > f; close(f);
            while ((getline line < f) > 0) n += line
            print n; print "x" >> f
        }
    """,
    "sh": """
        seq 5000 | sort -r -o $P/f; sort -n $P/f -o $P/g; uniq $P/g $P/u; head -n 3 $P/u
        tail -n 2 $P/u; cksum $P/u | cut -d' ' -f1,2; echo x | tee $P/t; cat $P/t; paste $P/t $P/t
    """,
    "python3": """if True:
        import os, sys
        p = os.environ["P"] + "/f"
        open(p, "w").write("first\\n")
        os.dup2(os.open(p, os.O_RDWR | os.O_APPEND), 1)
        print("by number"); sys.stdout.flush(); os.write(1, b"os.write\\n")
        print(open(p).read(), file=sys.stderr)
    """,
}
ARGUMENT = {"perl": "-e", "sh": "-c", "python3": "-c"}


@pytest.mark.parametrize("program", EVERYDAY)
def test_program_of_every_day(program: str, home: Path, env: dict[str, str]) -> None:
    """Programs of every day say the same of a pool's files as of tmpfs's."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not here")
    plain = home / "plain"
    plain.mkdir()
    argument = [ARGUMENT[program]] if program in ARGUMENT else []
    command = [program, *argument, EVERYDAY[program]]
    wanted = said(*command, env={**os.environ, "P": str(plain)})
    told = said(*command, env={**env, "P": PREFIX})
    assert told.replace(PREFIX, str(plain)) == wanted
