"""Another processor's system in a folder: Debian, unpacked by debootstrap, emulated by qemu-user.

The folder is made once, in `target/wheels/roots/`. Its packages are unpacked and not configured:
Python needs no more, and configuring would run for minutes in the emulator.

The kernel runs a program of another processor by qemu where binfmt_misc says so. It is said in a
user namespace of the trial's own, which has a binfmt_misc of its own (Linux 6.7 or newer): nothing
of it is seen on the machine, and all of it is gone when the trial ends.

qemu-user has no robust locks: a process that is killed leaves its locks locked. So the parts of the
smoke test that kill are left out by name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from wheels.outcomes import FailedError, SkippedError, run
from wheels.platforms import OUT

if TYPE_CHECKING:
    from wheels.platforms import Platform

RELEASE = "bookworm"
"""Debian 12: it has the oldest Python that the package needs."""
PYTHON = "3.11"
DEBIAN = {"aarch64": "arm64"}
PACKAGES = "python3,python3-venv"
PROGRAMS = {"debootstrap": "debootstrap", "unshare": "util-linux", "dpkg-deb": "dpkg"}
WITHOUT = ("kill", "mount")
"""Parts of the smoke test that an emulator cannot do: robust locks, FUSE."""
ELF = {
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
exec chroot "$ROOT" /bin/sh -c "$COMMANDS"
"""
COMMANDS = """
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8
python3 -m venv /tmp/environment
cd /tmp
environment/bin/python -m pip install -q --no-index --find-links given given/{wheel}
environment/bin/python -I given/smoke.py {version} --without {without}
"""


def smoke(wheel: Path, platform: Platform, program: Path, version: str) -> None:
    """Install a wheel in such a system, and run the smoke test there."""
    root = made(platform)
    emulator = shutil.which(f"qemu-{platform.machine}-static")
    if emulator is None:
        raise SkippedError("qemu-user is missing: apt-get install qemu-user-static")
    with tempfile.TemporaryDirectory(prefix="engram-root-") as folder:
        given = Path(folder)
        given.chmod(0o755)
        shutil.copy(wheel, given)
        shutil.copy(program, given / "smoke.py")
        download = ("download", "-q", "--only-binary=:all:", "--no-deps", "-d", folder)
        tags = [f"--platform=manylinux_2_{minor}_{platform.machine}" for minor in (17, 27, 28)]
        python = f"--python-version={PYTHON}"
        run(sys.executable, "-m", "pip", *download, *tags, python, "numpy")
        commands = COMMANDS.format(wheel=wheel.name, version=version, without=" ".join(WITHOUT))
        # F: the kernel opens the emulator now, where it can be found.
        magic = ELF[platform.machine].decode()
        rule = f":engram-{platform.machine}:M::{magic}:{MASK.decode()}:{emulator}:F"
        around = {"RULE": rule, "ROOT": str(root), "GIVEN": folder, "COMMANDS": commands}
        ended = subprocess.run(
            ["unshare", *UNSHARED, "sh", "-c", INSIDE],
            check=False,
            env=os.environ | around,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    if "binfmt_misc" in ended.stdout and ended.returncode:
        raise SkippedError(f"binfmt_misc cannot be mounted in a namespace: {ended.stdout.strip()}")
    if ended.returncode:
        raise FailedError(f"in {root} it ended with {ended.returncode}\n{ended.stdout}")
    sys.stdout.write(ended.stdout)


def made(platform: Platform) -> Path:
    """Return the folder with the system, which is made if it is not there."""
    root = OUT / "roots" / platform.machine
    whole = root.with_suffix(".made")
    if whole.exists():
        return root
    lacking = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if lacking or os.geteuid() != 0:
        raise SkippedError(f"root has to run it, with {' '.join(PROGRAMS.values())} installed")
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    architecture = f"--arch={DEBIAN[platform.machine]}"
    try:
        run(
            *("debootstrap", "--foreign", architecture, "--variant=minbase"),
            *(f"--include={PACKAGES}", RELEASE, str(root), *mirror()),
        )
    except FailedError as error:
        raise SkippedError(f"debootstrap cannot unpack Debian here: {error}") from None
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE
        ) as unpacked:
            into = ["tar", "--extract", "--keep-directory-symlink", "--directory", str(root)]
            subprocess.run(into, check=True, stdin=unpacked.stdout)
    whole.touch()
    return root


def mirror() -> list[str]:
    """Return whence this machine has Debian, if it tells."""
    told = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = [line.split()[0] for line in told.stdout.splitlines() if line.endswith(f" {RELEASE}")]
    return found[:1]
