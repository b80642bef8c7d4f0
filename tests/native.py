"""What tests of C, of mounts, of clusters and of the page need of the machine; how they use it.

Run as a program, it installs what is missing, where apt and root can. What is still missing then
has its tests skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "tests/capi"

PACKAGES = {
    "cc": "gcc",
    "c++": "g++",
    "mpicxx": "libopenmpi-dev",
    "mpirun": "openmpi-bin",
    "gfortran": "gfortran",
    "mpifort": "libopenmpi-dev",
    "cmake": "cmake",
    "pkg-config": "pkg-config",
    "fusermount3": "fuse3",
    "rsync": "rsync",
    "flock": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "etcd": "etcd-server",
    "etcdctl": "etcd-client",
    "chromium": "chromium",
}
"""Programs, and the packages of Debian that have them."""
SERVICES = {"etcd-server": "etcd"}
"""Packages that have the system start a service with each boot: tests start their own alone."""
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
"""Where programs are looked for: those of the system, too."""

Once = Callable[[str, Callable[[Path], None]], Path]
"""Makes a folder of this name, which is filled once for all processes of the tests."""

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PATIENCE = 120
"""Seconds after which a program hangs: none takes more than a few."""


def install(packages: Mapping[str, str] = PACKAGES) -> str:
    """Install what is missing, where that can be; give what is missing still, and why.

    No daemon of a package is started, now or with the next boot.
    """
    missing = sorted({packages[program] for program in lacking(packages)})
    if not missing:
        return ""
    names = " ".join(missing)
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return f"these Debian packages are missing: {names}"
    with no_daemons():
        for command in (
            ["apt-get", "update", "-q"],
            ["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return f"{' '.join(command)}: {done.stderr.strip()[-500:]}"
    services = [SERVICES[package] for package in missing if package in SERVICES]
    if services and shutil.which("systemctl"):
        line = ["systemctl", "disable", "--quiet", *services]
        subprocess.run(line, capture_output=True, check=False)
    return ""


@contextmanager
def no_daemons() -> Iterator[None]:
    """Keep the scripts of packages from starting daemons: `policy-rc.d` says no meanwhile."""
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
        policy.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            policy.unlink()


def lacking(programs: Iterable[str]) -> list[str]:
    """Return which of these programs are not here."""
    return [program for program in programs if shutil.which(program, path=PATH) is None]


def need(*programs: str) -> None:
    """Skip the test unless these programs are here."""
    if missing := [f"{name} ({PACKAGES[name]})" for name in lacking(programs)]:
        pytest.skip(f"needs {', '.join(missing)}")


def run(
    *command: str | Path,
    code: int = 0,
    env: dict[str, str] | None = None,
    patience: float = PATIENCE,
) -> str:
    """Run a program that ends with `code`; give what it said."""
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )
    said = f"{done.stdout}{done.stderr}"
    assert done.returncode == code, f"{command}: {done.returncode}\n{said}"
    return said


def compiled(
    compiler: str, source: Path, prefix: Path, program: Path, options: Sequence[str] = ()
) -> Path:
    """Compile a program against an installed tree, as pkg-config says."""
    need(compiler, "pkg-config")
    settings = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "engram", env=settings).split()
    run(compiler, *options, source, "-o", program, *flags, f"-Wl,-rpath,{prefix}/lib")
    return program


def ranks(
    count: int,
    program: Path,
    *arguments: str | Path,
    options: Sequence[str] = (),
    env: dict[str, str] | None = None,
) -> str:
    """Run a program of MPI with so many ranks; give what they said, one rank after the other."""
    need("mpirun")
    root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
    settings = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        **(env or {}),
    }
    # mpirun passes on what it reads of each rank, which may be less than a line.
    with tempfile.TemporaryDirectory() as folder:
        kept = ("--output-filename", folder)
        run("mpirun", *root, *kept, *options, "-n", str(count), program, *arguments, env=settings)
        return "".join(
            Path(folder, "1", f"rank.{rank:0{len(str(count - 1))}}", "stdout").read_text("utf-8")
            for rank in range(count)
        )


if __name__ == "__main__":
    reason = install()
    if reason:
        sys.stderr.write(
            f"    some tests of C, mounts, clusters and the page will be skipped: {reason}\n"
        )
