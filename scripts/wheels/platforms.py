"""The platforms that wheels are built for."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from wheels.outcomes import FailedError, SkippedError, run

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "target/wheels"
GLIBC = "2.28"
"""The oldest glibc that the wheels run with: RHEL 8's and Debian 10's."""
MUSL = "1_2"
ELF = b"\x7fELF"
"""With what a library begins."""
PARTS = ("engram-capi", "engram-cluster-c", "engram-cluster-python")
"""The crates of what stands beside the natives of Python."""
NATIVES = "engram-python"
PRELOAD = "engram-preload"
"""It stands in for functions of glibc, so it is for glibc alone."""


@dataclass(frozen=True)
class Platform:
    """A processor and a C library."""

    name: str
    machine: str
    libc: str

    @property
    def triple(self) -> str:
        """The target, as rustc calls it."""
        return f"{self.machine}-unknown-linux-{self.libc}"

    @property
    def zig(self) -> str:
        """The target, as cargo-zigbuild calls it: with the oldest C library."""
        return f"{self.triple}.{GLIBC}" if self.is_gnu else self.triple

    @property
    def policy(self) -> str:
        """What a wheel may ask of a system: of its C library above all."""
        return f"manylinux_{GLIBC.replace('.', '_')}" if self.is_gnu else f"musllinux_{MUSL}"

    @property
    def tag(self) -> str:
        """The last part of a wheel's name, which pip compares with the system."""
        return f"{self.policy}_{self.machine}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The crates of what stands beside the natives of Python."""
        return (*PARTS, PRELOAD) if self.is_gnu else PARTS

    @property
    def is_gnu(self) -> bool:
        """Whether the C library is glibc."""
        return self.libc == "gnu"

    @property
    def musl(self) -> str:
        """The name of musl as a system has it, which lets systems have it for two processors."""
        return f"libc.musl-{self.machine}.so.1"

    def require(self) -> None:
        """Have what building for it needs.

        Raises
        ------
        SkippedError
            It cannot be had here.

        """
        if importlib.util.find_spec("ziglang") is None:
            lacking = "ziglang is not installed: pip install -r scripts/wheels/requirements.txt"
            raise SkippedError(lacking)
        if not shutil.which("rustup"):
            raise SkippedError("rustup, which adds targets of Rust, is not installed")
        around = dict(os.environ)
        if self.triple not in run("rustup", "target", "list", "--installed", around=around).split():
            try:
                run("rustup", "target", "add", self.triple, around=around)
            except FailedError as error:
                raise SkippedError(f"rustup cannot add {self.triple} here: {error}") from None


PLATFORMS = {
    each.name: each
    for each in (
        Platform("x86_64", "x86_64", "gnu"),
        Platform("aarch64", "aarch64", "gnu"),
        Platform("x86_64-musl", "x86_64", "musl"),
        Platform("aarch64-musl", "aarch64", "musl"),
    )
}
