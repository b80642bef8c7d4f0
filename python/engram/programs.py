"""Programs before they are started: what a library that is preloaded would not reach in them.

A script is followed to the program that runs it. What is told of a program stands in its file; what
it does once it runs (a system call of its own, a program that it starts) shows in the trace.
"""

import functools
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from engram import elf
from engram.errors import (
    AccessError,
    ArgumentError,
    EngramError,
    FormatError,
    NotFoundError,
    UnsupportedError,
)

__all__ = ["Obstacle", "Program", "check_library", "is_within", "look"]

Kind = Literal["static", "go", "machine", "libc", "rights", "unreadable", "unknown", "io_uring"]

_FIRST = 256
"""The kernel reads so much of a file to know how it is run."""
_FILES_MOST = 6
"""A script is run by a script, and so on, so often at most."""
_LINKERS = ("ld-linux", "ld64.so", "ld.so")
"""The names of glibc's dynamic linker begin so."""
_MUSL = "ld-musl"
_MACHINES = {
    3: "x86",
    8: "MIPS",
    20: "PowerPC",
    21: "PowerPC",
    22: "s390",
    40: "ARM",
    62: "x86-64",
    183: "ARM",
    243: "RISC-V",
    258: "LoongArch",
}
_ENV_TAKES = ("-u", "-C", "--unset", "--chdir")
"""Options of `env` whose value is the next word."""


class Obstacle(NamedTuple):
    """Something of a program that a preloaded library does not reach."""

    kind: Kind
    """What it is, in a word."""
    path: str
    """The file that it is about: the program, or what runs it."""
    why: str
    """What is in the way, as a sentence without its end."""
    hides: bool
    """Whether the program sees nothing of a pool; else it is a part of what it does."""


class Program(NamedTuple):
    """A program that was looked at."""

    path: str
    """Its path, as it was given or found."""
    files: tuple[str, ...]
    """The program, and behind a script what runs it."""
    obstacles: tuple[Obstacle, ...]
    """What is in the way."""

    @property
    def hidden(self) -> Obstacle | None:
        """What keeps the program from all of a pool."""
        return next((obstacle for obstacle in self.obstacles if obstacle.hides), None)


def look(
    name: str, *, search: Sequence[str], folder: str = "", prefixes: Iterable[str] = ()
) -> Program:
    """Find a program as `execvp` does, and look at what runs it.

    `search` are the folders of PATH, `folder` is the one that it is started in, if not the present
    one, and below `prefixes` there are files that the kernel does not know.

    Raises
    ------
    NotFoundError
        If there is no such program, or not what runs it.
    AccessError
        If it may not be executed.
    FormatError
        If it is a broken program.
    UnsupportedError
        If it lies below a prefix.

    """
    finder = _Finder(search, folder, tuple(prefixes))
    path = finder.find(name, "")
    ahead = [path]
    files: list[str] = []
    obstacles: list[Obstacle] = []
    while ahead:
        if len(files) > _FILES_MOST:
            raise FormatError(f"the script {path} is run by scripts alone: {', '.join(files)}")
        files.append(ahead.pop())
        file = finder.file(files[-1])
        start = _start(file)
        if start[:2] == b"#!":  # the kernel takes no rights from a script
            runs, words = _interpreter(file, start)
            ahead.append(finder.find(runs, str(file)))
            if Path(runs).name == "env" and (named := _named(words)):
                ahead.insert(0, finder.find(named, str(file)))
            continue
        obstacles += _rights(file)
        obstacles += _of_elf(file) if start[:4] == elf.MAGIC else [_strange(file, start)]
    return Program(path, tuple(files), tuple(obstacles))


def check_library(path: Path) -> None:
    """See that a library can be preloaded in programs of this machine.

    Raises
    ------
    FormatError
        If it cannot: the dynamic linker would go on without it.

    """
    try:
        with path.open("rb") as file:
            found = elf.read(file)
    except FormatError as error:
        raise FormatError(f"{path} cannot be preloaded: {error}") from None
    if _form(found) != _form(_own()):
        raise FormatError(
            f"{path} cannot be preloaded: it is for {_machine(found)}, and this machine is "
            f"{_machine(_own())}"
        )


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder's own, or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class _Finder(NamedTuple):
    """How programs are found."""

    search: Sequence[str]
    folder: str
    prefixes: tuple[str, ...]

    def file(self, path: str) -> Path:
        """Give a path from the root on."""
        return Path(self.folder, path).absolute()

    def find(self, name: str, script: str) -> str:
        """Give the path of a program, of which a script may ask."""
        asked = f"; the script {script} asks for it" if script else ""
        if not name or "\0" in name:
            raise ArgumentError(f"{name!r} can be no program{asked}: name one, or give its path")
        candidates = [name] if "/" in name else [str(Path(at, name)) for at in self.search]
        refused: EngramError | None = None
        for candidate in candidates:
            try:
                self._check(candidate, asked)
            except (AccessError, NotFoundError) as error:
                if "/" in name:
                    raise
                refused = error if isinstance(error, AccessError) else refused
            else:
                return candidate
        raise refused or NotFoundError(
            f"there is no program {name!r} in PATH ({os.pathsep.join(self.search)}){asked}: give "
            f"its path"
        )

    def _check(self, path: str, asked: str) -> None:
        """Refuse what the kernel would not execute."""
        file = self.file(path)
        for prefix in self.prefixes:
            if is_within(os.path.normpath(file), prefix):
                raise UnsupportedError(
                    f"the program {file} lies below the prefix {prefix}, where the kernel does not "
                    f"find it{asked}: start it by a shell (`engram run ... -- sh -c {file}`), or "
                    f"from a mount"
                )
        try:
            status = file.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"there is no program {path!r}{asked}: check the path") from None
        except OSError as error:
            raise AccessError(f"the program {path!r}: {error.strerror}{asked}") from None
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no file"
            raise AccessError(f"{path!r} is {what}, and no program{asked}: check the path")
        if not os.access(file, os.X_OK):
            raise AccessError(
                f"the program {path!r} is not executable{asked}: `chmod +x` makes it so"
            )


def _start(file: Path) -> bytes:
    """Give what the kernel reads of a program; nothing if this user may only execute it."""
    try:
        with file.open("rb") as opened:
            return opened.read(_FIRST)
    except PermissionError:
        return b""


def _strange(file: Path, start: bytes) -> Obstacle:
    if not os.access(file, os.R_OK):
        return Obstacle("unreadable", str(file), "it may be executed, and not read", hides=True)
    what = "it is empty" if not start else "it is neither ELF nor a script that begins with #!"
    return Obstacle("unknown", str(file), what, hides=True)


def _interpreter(file: Path, start: bytes) -> tuple[str, str]:
    """Give what runs a script, and what its first line gives to that."""
    line = os.fsdecode(start[2:].partition(b"\n")[0]).strip(" \t")
    # The kernel takes blanks alone for the end of a path: a \r is a part of it.
    path, *rest = re.split(r"[ \t]+", line, maxsplit=1)
    if not path:
        raise FormatError(f"the script {file} names nothing that runs it behind #!")
    return path, rest[0] if rest else ""


def _named(text: str) -> str:
    """Give the program that `env` is to start; "" if that cannot be told."""
    split = next((mark for mark in ("-S", "--split-string=") if text.startswith(mark)), None)
    if split is None:
        return text
    try:
        given = iter(shlex.split(text.removeprefix(split)))
    except ValueError:
        return ""
    for word in given:
        if word in _ENV_TAKES:
            next(given, None)
        elif not word.startswith("-") and "=" not in word:
            return word
    return ""


def _of_elf(file: Path) -> Iterator[Obstacle]:
    """Tell what is in the way in a program of ELF."""
    path = str(file)
    try:
        with file.open("rb") as opened:
            found = elf.read(opened)
    except FormatError as error:
        raise FormatError(f"{path} is a broken program: {error}") from None
    if _form(found) != _form(_own()):
        what = f"it is a program for {_machine(found)}, and the library is for {_machine(_own())}"
        yield Obstacle("machine", path, what, hides=True)
        return
    linker = Path(found.interpreter or found.soname).name
    if found.interpreter and not Path(found.interpreter).exists():
        raise NotFoundError(
            f"{path} needs the dynamic linker {found.interpreter}, which is not there: install the "
            f"C library that it is made for"
        )
    if linker.startswith(_MUSL):
        what = "it is linked with musl, and the library is for programs of glibc"
        yield Obstacle("libc", path, what, hides=True)
    elif linker and not linker.startswith(_LINKERS):
        what = f"the dynamic linker {linker} starts it, and the library is for programs of glibc"
        yield Obstacle("libc", path, what, hides=True)
    elif not linker and not found.is_go:
        what = "it is a static program, which no dynamic linker starts: nothing can be preloaded"
        yield Obstacle("static", path, what, hides=True)
    if found.is_go:
        what = "it is a Go program, which calls the kernel without the C library"
        yield Obstacle("go", path, what, hides=True)
    if any(name.startswith("liburing.so") for name in found.needed):
        what = "it is linked with liburing: what it asks of io_uring goes to the kernel"
        yield Obstacle("io_uring", path, what, hides=False)


def _rights(file: Path) -> Iterator[Obstacle]:
    """Tell of rights that a program gets as it starts: the dynamic linker preloads nothing then."""
    try:
        status = file.stat()
        kept = not os.statvfs(file).f_flag & os.ST_NOSUID
        capable = "security.capability" in os.listxattr(file)
    except OSError:
        return
    what = ""
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        what = f"it is set-user-id, and runs as user {status.st_uid}"
    elif (
        status.st_mode & stat.S_ISGID
        and status.st_mode & stat.S_IXGRP
        and status.st_gid != os.getgid()
    ):
        what = f"it is set-group-id, and runs as group {status.st_gid}"
    elif capable and os.getuid() != 0:
        what = "it has file capabilities"
    if what and kept:
        yield Obstacle(
            "rights", str(file), f"{what}: nothing of the user's is preloaded then", hides=True
        )


@functools.cache
def _own() -> elf.Elf:
    """Give what this process is a program for."""
    with Path("/proc/self/exe").open("rb") as file:
        return elf.read(file)


def _form(found: elf.Elf) -> tuple[int, int, str]:
    return found.machine, found.bits, found.order


def _machine(found: elf.Elf) -> str:
    return f"{_MACHINES.get(found.machine, f'machine {found.machine}')} of {found.bits} bits"
