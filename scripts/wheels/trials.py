"""Trials: a wheel is installed where nothing else is, and `smoke.py` uses what it brings.

===============  ===================================================================================
x86_64           an empty environment of this machine's Python; without `cc` in the build of pip
aarch64          Debian in a folder, made by debootstrap, and emulated by qemu-user
x86_64-musl      the C library, from a C program of Debian's `musl`; Python's natives by the audits
aarch64-musl     the audits alone: nothing here runs it
source           unpacked outside of any repository, and built there by pip
===============  ===================================================================================

A trial that needs what cannot be had here gives the reason.
"""

from __future__ import annotations

import platform as machine
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from wheels import roots
from wheels.outcomes import FailedError, SkippedError, run
from wheels.platforms import OUT, PLATFORMS

if TYPE_CHECKING:
    from wheels.platforms import Platform

SMOKE = Path(__file__).with_name("smoke.py")
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
FROM_C = """
#include <engram.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    engram_pool *pool;
    const char *path = argv[argc - 1];
    if ((strcmp(argv[1], "make") == 0 &&
         (engram_pool_create(path, 16 << 20, NULL, &pool) != 0 || engram_pool_close(pool) != 0)) ||
        engram_pool_open(path, ENGRAM_OPEN_MODE_READ_WRITE, false, &pool) != 0) {
        printf("%s\\n", engram_last_error());
        return 1;
    }
    printf("%s\\n", engram_version());
    fflush(stdout);
    getchar(); /* until its input ends */
    return engram_pool_close(pool) != 0;
}
"""
"""Makes a pool, or opens one, and has it open until its input ends."""


def try_wheel(wheel: Path, platform: Platform) -> None:
    """Install a wheel and use it.

    Raises
    ------
    SkippedError
        It cannot be tried here.
    FailedError
        It does not work.

    """
    if not platform.is_gnu:
        _from_c(wheel, platform)
    elif platform.machine == machine.machine():
        _in_environment(str(wheel), version_of(wheel))
    else:
        roots.smoke(wheel, platform, SMOKE, version_of(wheel))


def try_source(source: Path) -> None:
    """Build a wheel of the source distribution, far from the repository, and import it."""
    with tempfile.TemporaryDirectory(prefix="engram-source-") as made:
        folder = Path(made)
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source))
        (wheel,) = folder.glob("*.whl")
        told = "import engram; print(engram.__version__)"
        _in_environment(str(wheel), version_of(source), told)


def version_of(file: Path) -> str:
    """Return the version that a wheel or a source distribution is of, by its name."""
    return file.name.removesuffix(".tar.gz").split("-")[1]


def _in_environment(what: str, version: str, code: str | None = None) -> None:
    """Install into an empty environment, and run the smoke test there, or other code."""
    with tempfile.TemporaryDirectory(prefix="engram-trial-") as made:
        venv.create(made, with_pip=True)
        own = str(Path(made) / "bin/python")
        run(own, "-m", "pip", "install", "-q", what)
        if code is None:
            sys.stdout.write(run(own, "-I", str(SMOKE), version, cwd=Path(made)))
        elif (told := run(own, "-I", "-c", code, cwd=Path(made)).strip()) != version:
            raise FailedError(f"{what} says that it is {told}")


def _from_c(wheel: Path, platform: Platform) -> None:
    """Use the C library of a wheel from a C program of musl's."""
    compiler = shutil.which("musl-gcc")
    if platform.machine != machine.machine():
        raise SkippedError(f"a program of {platform.machine} with musl does not run here")
    if compiler is None:
        raise SkippedError("musl-gcc is missing: apt-get install musl-tools")
    with tempfile.TemporaryDirectory(prefix="engram-musl-", dir=MEMORY) as made:
        folder = Path(made)
        program, pool = _compiled(compiler, wheel, folder / "musl"), str(folder / "pool")
        told = run(str(program), "make", pool).strip()
        if told != version_of(wheel):
            raise FailedError(f"the C library says that it is {told}")
        sys.stdout.write("    the C library, from C: works\n")
        _refused_while_open(program, pool, folder / "gnu")
        sys.stdout.write("    what musl has open, glibc is refused: works\n")


def _refused_while_open(program: Path, pool: str, folder: Path) -> None:
    """See that a program with glibc is refused while one with musl has the pool open."""
    like = PLATFORMS["x86_64"]
    wheel = next(OUT.glob(f"*{like.tag}.whl"), None)
    if wheel is None:
        raise SkippedError("its half with glibc: the wheel for x86_64 is not built")
    other = _compiled("cc", wheel, folder)
    with subprocess.Popen(
        [program, "open", pool], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None  # noqa: S101 - for the checker of types
        assert holder.stdout is not None  # noqa: S101 - likewise
        holder.stdout.readline()
        try:
            told = run(str(other), "open", pool)
        except FailedError as error:
            told = str(error)
        holder.stdin.close()
    if "another C library (glibc, musl) has it open" not in told:
        raise FailedError(f"glibc opened what musl has open: {told}")
    run(str(other), "open", pool)


def _compiled(compiler: str, wheel: Path, folder: Path) -> Path:
    """Compile the C program with the library of a wheel."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    prefix = folder / "engram/_native"
    (folder / "main.c").write_text(FROM_C)
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
    run(compiler, str(folder / "main.c"), *flags, "-lengram", "-ldl", "-o", str(folder / "main"))
    return folder / "main"
