"""The platforms that wheels are built for."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "target/wheels"
GLIBC = "2.28"
"""The oldest glibc that the wheels run with: RHEL 8's and Debian 10's."""
MUSL = "1_2"


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
    def tag(self) -> str:
        """The last part of a wheel's name, which pip compares with the system."""
        policy = f"manylinux_{GLIBC.replace('.', '_')}" if self.is_gnu else f"musllinux_{MUSL}"
        return f"{policy}_{self.machine}"

    @property
    def is_gnu(self) -> bool:
        """Whether the C library is glibc."""
        return self.libc == "gnu"

    @property
    def musl(self) -> str:
        """The name of musl as a system has it, which lets systems have it for two processors."""
        return f"libc.musl-{self.machine}.so.1"

    def missing(self) -> str | None:
        """Say what building for it needs and cannot be had here."""
        if importlib.util.find_spec("ziglang") is None:
            return "ziglang is not installed: pip install -r scripts/wheels/requirements.txt"
        if not shutil.which("rustup"):
            return "rustup, which adds targets of Rust, is not installed"
        listed = subprocess.run(
            ["rustup", "target", "list", "--installed"], check=True, capture_output=True, text=True
        )
        added = subprocess.run(
            ["rustup", "target", "add", self.triple], check=False, capture_output=True
        )
        if self.triple not in listed.stdout.split() and added.returncode:
            return f"rustup cannot add {self.triple} here"
        return None


PLATFORMS = {
    each.name: each
    for each in (
        Platform("x86_64", "x86_64", "gnu"),
        Platform("aarch64", "aarch64", "gnu"),
        Platform("x86_64-musl", "x86_64", "musl"),
        Platform("aarch64-musl", "aarch64", "musl"),
    )
}
