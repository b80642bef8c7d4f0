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
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from wheels import roots
from wheels.outcomes import FailedError, SkippedError, run

if TYPE_CHECKING:
    from wheels.platforms import Platform

SMOKE = Path(__file__).with_name("smoke.py")
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
FROM_C = """
#include <engram.h>
#include <stdio.h>
int main(int argc, char **argv) {
    engram_pool *pool;
    const char *path = argv[argc - 1];
    if (engram_pool_create(path, 16 << 20, NULL, &pool) != 0 ||
        engram_pool_close(pool) != 0 ||
        engram_pool_open(path, ENGRAM_OPEN_MODE_READ, false, &pool) != 0) {
        fprintf(stderr, "%s\\n", engram_last_error());
        return 1;
    }
    printf("%s\\n", engram_version());
    return engram_pool_close(pool) != 0;
}
"""


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
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder)
        prefix = folder / "engram/_native"
        (folder / "main.c").write_text(FROM_C)
        flags = [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
        program = folder / "main"
        run(compiler, str(folder / "main.c"), *flags, "-lengram", "-o", str(program))
        told = run(str(program), str(folder / "pool")).strip()
        if told != version_of(wheel):
            raise FailedError(f"the C library says that it is {told}")
