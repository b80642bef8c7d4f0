"""What tests of the preload library have in common: the library, a prefix, programs in C.

What the kernel does is right: a program in C runs in a plain folder, and then below a prefix, and
says the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import native
from support import PATIENCE

if TYPE_CHECKING:
    import engram

PROGRAMS = native.ROOT / "tests/preload"
LIBRARY = Path(
    os.environ.get("ENGRAM_PRELOAD_LIBRARY")
    or native.ROOT / "python/engram/_native/libengram_preload.so"
)
"""The library that is tested."""
needs_library = pytest.mark.skipif(
    not LIBRARY.exists(), reason=f"there is no {LIBRARY}; ENGRAM_PRELOAD_LIBRARY names another"
)
OPTIONS = ("-O1", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra", "-Wno-unused-result", "-pthread")


def compiled(once: native.Once, name: str) -> Path:
    """Give a program of `tests/preload`, which is compiled once for all tests."""
    native.need("cc")

    def fill(folder: Path) -> None:
        native.run("cc", *OPTIONS, PROGRAMS / f"{name}.c", "-o", folder / name)

    return once(f"preload-{name}", fill) / name


@dataclass(frozen=True)
class Prefix:
    """A prefix, below which programs find a pool."""

    pool: str
    path: Path
    more: dict[str, str] = field(default_factory=dict)
    """Variables that say more of it."""

    @property
    def settings(self) -> dict[str, str]:
        """Give what a program's environment says of it."""
        named = {"ENGRAM_RUN": f"{self.pool}={self.path}", "LD_PRELOAD": str(LIBRARY)}
        return {**named, **self.more}

    def run(
        self,
        *command: str | Path,
        folder: Path | None = None,
        code: int = 0,
        patience: float = PATIENCE,
    ) -> str:
        """Run a program that ends with `code`; give what it said."""
        done = subprocess.run(
            [str(part) for part in command],
            env={**os.environ, "LC_ALL": "C", **self.settings},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
        said = f"{done.stdout}{done.stderr}"
        assert done.returncode == code, f"{command}: {done.returncode}\n{said}"
        return said


def of(pool: engram.Pool, home: Path) -> Prefix:
    """Give the prefix below which programs find this pool; nothing is there for the kernel."""
    return Prefix(pool.path, home / "seen")


def same(once: native.Once, pool: engram.Pool, home: Path, name: str) -> None:
    """Run a program of `tests/preload` in a plain folder and below a prefix: it says the same."""
    program, prefix, plain = compiled(once, name), of(pool, home), home / "plain"
    plain.mkdir()
    expected = native.run(program, plain)
    shutil.rmtree(plain)
    assert prefix.run(program, prefix.path).splitlines() == expected.splitlines()
