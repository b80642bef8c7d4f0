"""A C library cloned and built: zstd's, from the sources that a crate brings.

It is put into a repository of git's first, so no network is needed. Then each place gets a clone
of it, is built in, and is cleared.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.files.places import places
from bench.files.turns import MOUNT, TMPFS, by_turns
from bench.harness import Bound, Line
from bench.own import rust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bench.files.turns import Phases
    from bench.setting import Setting

CRATE = "zstd-sys"
SOURCES = "zstd/lib"
POOL_BYTES = 256 << 20
ROUNDS, QUICK = 3, 1
LIMIT = 2.0
MAKEFILE = """\
sources := $(wildcard common/*.c compress/*.c decompress/*.c dictBuilder/*.c)
libzstd.a: $(sources:.c=.o)
\t$(AR) rcs $@ $^
%.o: %.c
\t$(CC) -O0 -g -DZSTD_DISABLE_ASM -c -o $@ $<
"""
TITLES = {"clone": "git clone", "build": "build", "both": "git clone and build"}


def lines(setting: Setting) -> Iterator[Line]:
    """Measure on a mount, and on a tmpfs."""
    source = repository(setting)
    if source is None:
        return
    with places(setting, POOL_BYTES, nothing=False) as folders:
        runs = {who: work(source, folder) for who, folder in folders.items()}
        samples = by_turns(runs, QUICK if setting.quick else ROUNDS)
    for phase, what in TITLES.items():
        shown = Bound(MOUNT, TMPFS, "show")
        bound = Bound(MOUNT, TMPFS, "time", LIMIT) if phase == "both" else shown
        yield Line(f"{what} of a C library", "ms", [bound], samples[phase])


def repository(setting: Setting) -> Path | None:
    """Give a repository of the library's sources; `None` where a tool is missing."""
    missing = next((tool for tool in ("git", "make", "cc") if shutil.which(tool) is None), None)
    if missing is not None:
        setting.absent["git clone and build"] = f"{missing} is not installed"
        return None
    made = setting.folder / "zstd.git"
    return made if made.exists() else published(made, setting.folder / "sources")


def published(repository: Path, sources: Path) -> Path:
    """Make a repository of the library's sources."""
    command = ["cargo", "metadata", "--format-version=1", "--offline", "--locked"]
    said = subprocess.run(  # noqa: S603 - our own words
        command, cwd=rust.ROOT, check=True, capture_output=True, text=True
    )
    packages: list[dict[str, Any]] = json.loads(said.stdout)["packages"]
    crate = next(package for package in packages if package["name"] == CRATE)
    shutil.copytree(Path(crate["manifest_path"]).parent / SOURCES, sources)
    (sources / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    git(sources, "init", "--quiet")
    git(sources, "add", ".")
    author = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    git(sources, *author, "commit", "--quiet", "--message=zstd")
    git(sources, "clone", "--quiet", "--bare", ".", str(repository))
    return repository


def git(folder: Path, *words: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", *words], cwd=folder, check=True)  # noqa: S603, S607


def work(
    source: Path, folder: Path, environment: Mapping[str, str] | None = None
) -> Callable[[], Phases]:
    """Return a round in a folder, in an environment by which programs find it."""
    env = None if environment is None else dict(environment)

    def run(*command: str | Path) -> None:
        subprocess.run(command, env=env, check=True)  # noqa: S603 - our own words

    def once() -> Phases:
        tree = folder / "zstd"
        start = time.perf_counter()
        run("git", "clone", "--quiet", f"file://{source}", tree)
        cloned = time.perf_counter()
        run("make", "--silent", "-j2", "-C", tree)
        built = time.perf_counter()
        run("test", "-s", tree / "libzstd.a")
        run("rm", "-r", tree)
        return {"clone": cloned - start, "build": built - cloned, "both": built - start}

    return once
