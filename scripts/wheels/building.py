"""Compiles and links what a wheel carries, for one platform, with zig as compiler and linker.

Zig brings the headers of every C library and a linker for every processor. So a wheel for another
platform needs nothing of that platform, and one for this platform is linked against an older glibc
than this machine has.

Two builds make a wheel: cargo's, of all that stands beside the natives of Python, and maturin's, of
these natives and the Python files. Each has a folder of its own: their flags differ from those of
`make` (no paths of this machine, no debug information), and the two call zig by different scripts,
at which a folder that they share would be built anew each time.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wheels.outcomes import FailedError, run, tools
from wheels.platforms import OUT, ROOT

if TYPE_CHECKING:
    from wheels.platforms import Platform

BUILD = OUT / "build"
OF_MUSL = "-DCACHELINE=128"
"""`.cargo/config.toml` says it, too; cargo-zigbuild sets that variable itself."""


@dataclass(frozen=True)
class Built:
    """What was built for a platform."""

    bare: Path
    """The wheel as maturin makes it: the Python files and their natives."""
    cluster: Path
    preload: Path | None
    prefix: Path
    """The C library, as `capi/install.sh` lays it out, links included."""


def cargo_home() -> Path:
    """Return the folder where cargo has crates."""
    return Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))


def environment(platform: Platform) -> dict[str, str]:
    """Return the environment in which both builds run."""
    cargo = cargo_home()
    names = {str(path): "crates" for path in cargo.glob("registry/src/*")}
    names |= {str(ROOT): "engram", str(cargo): "cargo"}
    # The last that fits counts: longer paths come after those that they begin with.
    ordered = sorted(names.items(), key=lambda pair: len(pair[0]))
    flags = [f"--remap-path-prefix={path}={name}" for path, name in ordered]
    mapped = [f"-ffile-prefix-map={path}={name}" for path, name in ordered]
    if not platform.is_gnu:
        flags.append("-Ctarget-feature=-crt-static")  # else there are no shared libraries
    return tools() | {
        "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "1",  # smaller
        "CARGO_PROFILE_RELEASE_DEBUG": "0",
        "CARGO_PROFILE_RELEASE_STRIP": "symbols",
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
        "CFLAGS": " ".join([*mapped, *([] if platform.is_gnu else [OF_MUSL])]),
        "PYO3_PYTHON": sys.executable,
        "PYO3_BUILD_EXTENSION_MODULE": "1",  # it is loaded by Python, and not linked with it
    }


def build(platform: Platform) -> Built:
    """Build everything for a platform."""
    around = environment(platform)
    around["CARGO_TARGET_DIR"] = str(BUILD / "libraries")
    run(
        *("cargo", "zigbuild", "--release", "--locked", "--target", platform.zig),
        *(word for part in platform.parts for word in ("-p", part)),
        *("--features", "engram-cluster-python/abi3"),
        cwd=ROOT,
        around=around,
    )
    made = BUILD / "libraries" / platform.triple / "release"
    prefix = fresh(OUT / "prefix" / platform.name)
    run("sh", "capi/install.sh", str(made), str(prefix), cwd=ROOT, around=around)
    return Built(
        bare=natives(platform, around | {"CARGO_TARGET_DIR": str(BUILD / "natives")}),
        cluster=made / "lib_cluster.so",
        preload=made / "libengram_preload.so" if platform.is_gnu else None,
        prefix=prefix,
    )


def natives(platform: Platform, around: dict[str, str]) -> Path:
    """Have maturin build the natives of Python, and its wheel."""
    folder = fresh(OUT / "bare" / platform.name)
    run(
        *("maturin", "build", "--release", "--locked", "--zig", "--features", "abi3"),
        *("--target", platform.triple, "--compatibility", platform.policy),
        *("--auditwheel", "check", "--out", str(folder)),
        cwd=ROOT,
        around=around,
    )
    return one(folder, "*.whl")


def source() -> Path:
    """Make the source distribution."""
    run("maturin", "sdist", "--out", str(OUT), cwd=ROOT, around=tools())
    return one(OUT, "*.tar.gz")


def fresh(folder: Path) -> Path:
    """Return a folder that is empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def one(folder: Path, pattern: str) -> Path:
    """Return the only file in a folder that has such a name."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        names = ", ".join(sorted(path.name for path in found)) or "nothing"
        raise FailedError(f"{folder} is to have one {pattern}, and has {names}")
    return found[0]
