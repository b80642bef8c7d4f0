"""Trials: a wheel is installed where nothing else is, and `smoke.py` uses what it brings.

===============  ===================================================================================
x86_64           an empty environment of each Python of this machine; pip finds no compiler there
aarch64          Debian in a folder, made by debootstrap, and emulated by qemu-user
x86_64-musl      the C library, from a C program of Debian's `musl`; names that all ask it for
aarch64-musl     the C library is loaded so in the emulated system; the same names
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
from pathlib import Path
from typing import TYPE_CHECKING

from wheels import archive, roots
from wheels.outcomes import FailedError, SkippedError, apart, run, tools
from wheels.platforms import OUT, PLATFORMS

if TYPE_CHECKING:
    from wheels.platforms import Platform

SMOKE = Path(__file__).with_name("smoke.py")
PYTHONS = tuple(f"python3.{minor}" for minor in range(11, 15))
MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory is what is meant
FROM_SOURCE = """
import pathlib, tempfile, engram, numpy
with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
    with engram.create(folder + "/pool", size="16 MiB") as pool:
        pool["run/T"] = numpy.arange(24.0)
    with engram.open(folder + "/pool") as pool:
        assert pool["run/T"].view().sum() == 276.0
page = pathlib.Path(engram.__file__).with_name("web") / "page/index.html"
assert "<script" in page.read_text(encoding="utf-8"), page
print(engram.__version__)
"""
"""Uses what a build of the source distribution has."""
FROM_C = """
#include <engram.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    engram_pool *pool = NULL;
    const char *path = argv[argc - 1];
    if (strcmp(argv[1], "load") != 0 && ((strcmp(argv[1], "make") == 0 &&
         (engram_pool_create(path, 16 << 20, NULL, &pool) != 0 || engram_pool_close(pool) != 0)) ||
        engram_pool_open(path, ENGRAM_OPEN_MODE_READ_WRITE, false, &pool) != 0)) {
        printf("%s\\n", engram_last_error());
        return 1;
    }
    printf("%s\\n", engram_version());
    fflush(stdout);
    getchar(); /* until its input ends */
    return pool != NULL && engram_pool_close(pool) != 0;
}
"""
"""Makes a pool, or opens one, and has it open until its input ends; or loads the library alone."""


def try_wheel(wheel: Path, platform: Platform) -> None:
    """Install a wheel and use it.

    Raises
    ------
    SkippedError
        It cannot be tried here.
    FailedError
        It does not work.

    """
    is_here = platform.machine == machine.machine()
    if not platform.is_gnu:
        if is_here:
            _from_c(wheel)
        else:
            _from_c_elsewhere(wheel, platform)
    elif is_here:
        _under_each_python(wheel)
    else:
        roots.smoke(wheel, platform, SMOKE, version_of(wheel))


def try_source(source: Path) -> None:
    """Build a wheel of the source distribution, far from the repository, and use it."""
    with tempfile.TemporaryDirectory(prefix="engram-source-") as made:
        folder = Path(made)
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source))
        (wheel,) = folder.glob("*.whl")
        told = _in_environment(sys.executable, wheel, "-c", FROM_SOURCE).strip()
        if told != version_of(source):
            raise FailedError(f"what is built of {source.name} says that it is {told}")
        sys.stdout.write("    what pip builds of it: works\n")


def version_of(file: Path) -> str:
    """Return the version that a wheel or a source distribution is of, by its name."""
    return file.name.removesuffix(".tar.gz").split("-")[1]


def _under_each_python(wheel: Path) -> None:
    """Run the smoke test under this Python, and under each other that is on the path."""
    own = f"python3.{sys.version_info.minor}"
    missing = []
    for name in [own, *(name for name in PYTHONS if name != own)]:
        program = sys.executable if name == own else shutil.which(name)
        if program is None or not _runs(program):
            missing.append(name)
            continue
        sys.stdout.write(f"    {name}:\n")
        sys.stdout.write(_in_environment(program, wheel, str(SMOKE), version_of(wheel)))
    if missing:
        sys.stdout.write(f"    not tried, for they are not here: {', '.join(missing)}\n")


def _runs(program: str) -> bool:
    """Tell whether a Python is more than a name that stands for none, and can make environments."""
    try:
        run(program, "-c", "import venv, ensurepip")
    except FailedError:
        return False
    return True


def _in_environment(python: str, wheel: Path, *words: str) -> str:
    """Install a wheel into an empty environment of a Python; have its Python run something."""
    with tempfile.TemporaryDirectory(prefix="engram-trial-") as made:
        run(python, "-m", "venv", made)
        own = str(Path(made) / "bin/python")
        pip = (own, "-m", "pip", "install", "-q", "--only-binary=:all:", str(wheel))
        run(*pip, around=apart() | {"PATH": f"{made}/bin"})  # so there is no compiler
        return run(own, "-I", *words, cwd=Path(made))


def _from_c(wheel: Path) -> None:
    """Use the C library of a wheel from a C program of musl's."""
    compiler = shutil.which("musl-gcc")
    if compiler is None:
        raise SkippedError("musl-gcc is missing: apt-get install musl-tools")
    libc = Path(f"/usr/lib/{machine.machine()}-linux-musl/libc.so")
    with tempfile.TemporaryDirectory(prefix="engram-musl-", dir=MEMORY) as made:
        folder = Path(made)
        program, pool = _compiled((compiler,), wheel, folder / "musl"), str(folder / "pool")
        _asks_for_what_is_in(libc, folder / "musl")
        _is_of(wheel, run(str(program), "make", pool))
        sys.stdout.write("    the C library, from C: works\n")
        _refused_while_open(program, pool, folder / "gnu")
        sys.stdout.write("    what musl has open, glibc is refused: works\n")


def _from_c_elsewhere(wheel: Path, platform: Platform) -> None:
    """Load the C library of a wheel in a C program with musl, in another processor's system.

    The emulator has no robust locks. musl asks for them before a pool is made; glibc does not.
    """
    # Without -O2, zig links a sanitizer, which asks for more than Debian's musl has.
    zig = ("python-zig", "cc", "-target", f"{platform.machine}-linux-musl", "-dynamic", "-O2")
    libc = roots.made(platform) / f"usr/lib/{platform.machine}-linux-musl/libc.so"
    with tempfile.TemporaryDirectory(prefix="engram-musl-") as made:
        folder = Path(made)
        _compiled(zig, wheel, folder / "musl")
        _asks_for_what_is_in(libc, folder / "musl")
        path = "LD_LIBRARY_PATH=/tmp/given/musl/engram/_native/lib"
        load = f"{path} /tmp/given/musl/main load </dev/null"
        _is_of(wheel, roots.inside(platform, folder, load))
        sys.stdout.write("    the C library, from C: loads\n")


def _asks_for_what_is_in(libc: Path, folder: Path) -> None:
    """See that the libraries in a folder ask for nothing that a C library, or Python, has not."""
    had = _symbols(libc, "--defined-only")
    for library in sorted(folder.rglob("*.so*")):
        asked = _symbols(library, "--undefined-only") - had
        if lacking := sorted(name for name in asked if not name.startswith(("Py", "_Py"))):
            name = library.relative_to(folder)
            raise FailedError(f"{name} asks for {', '.join(lacking)}, which {libc} has not")
    sys.stdout.write("    what its libraries ask musl for: Debian's has it\n")


def _symbols(library: Path, which: str) -> set[str]:
    """Return the names that a library has, or those that it cannot do without."""
    lines = run("nm", "--dynamic", "--format=posix", which, str(library)).splitlines()
    told = (line.split() for line in lines)
    return {name.partition("@")[0] for name, kind, *_ in told if kind != "w"}


def _is_of(wheel: Path, told: str) -> None:
    if told.strip() != version_of(wheel):
        raise FailedError(f"the C library says that it is {told}")


def _refused_while_open(program: Path, pool: str, folder: Path) -> None:
    """See that a program with glibc is refused while one with musl has the pool open."""
    like = PLATFORMS["x86_64"]
    wheel = next(OUT.glob(f"*{like.tag}.whl"), None)
    if wheel is None:
        raise SkippedError("its half with glibc: the wheel for x86_64 is not built")
    other = _compiled(("cc",), wheel, folder)
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


def _compiled(compiler: tuple[str, ...], wheel: Path, folder: Path) -> Path:
    """Compile the C program with the library of a wheel."""
    with archive.opened(wheel) as file:
        file.extractall(folder)
    prefix = folder / "engram/_native"
    (folder / "main.c").write_text(FROM_C)
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
    words = [str(folder / "main.c"), *flags, "-lengram", "-ldl", "-o", str(folder / "main")]
    run(*compiler, *words, around=tools())
    return folder / "main"
