"""What tests of mounts have in common: whether FUSE is here, programs, what killed runs left."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from native import ROOT
from support import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "engram-test-mount-"
"""A folder of tests that have mounts begins so; then comes the number of their process."""
TOOLS = ROOT / "target/tools/bin"
NOREPLACE, EXCHANGE = 1, 2
"""Flags of `renameat2`."""
_CAP_SYS_ADMIN = 21
_FUSE = Path("/dev/fuse")
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Give the reason for which nothing can be mounted here; "" if it can."""
    if not _FUSE.exists() or not stat.S_ISCHR(_FUSE.stat().st_mode):
        return "there is no /dev/fuse here"
    try:
        os.close(os.open(_FUSE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"/dev/fuse is closed to this user: {error.strerror}"
    if os.geteuid() != 0:
        return "" if shutil.which("fusermount3") else "fusermount3 is missing (fuse3)"
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    if found is None or not int(found[1], 16) >> _CAP_SYS_ADMIN & 1:
        return "this container's root may not mount"
    return ""


WHY_NOT = why_not()
needs_fuse = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "FUSE is here")


def mounts() -> dict[Path, str]:
    """Give all mounts of Engram's, each with its source."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        kind, source = after.split(" ")[:2]
        if kind.startswith("fuse") and source.startswith("engram:"):
            point = before.split(" ")[4].encode().decode("unicode_escape")
            found[Path(point)] = source
    return found


def take_away(point: Path) -> None:
    """Unmount, whatever has become of the process that serves it."""
    words = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
    subprocess.run([*words, point], check=False, capture_output=True)


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def clear() -> None:
    """Take away what tests have left that were killed."""
    of_ours = re.compile(rf"/{PREFIX}(\d+)-")
    for point in mounts():
        if (found := of_ours.search(str(point))) and not _is_running(int(found[1])):
            take_away(point)
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        found = of_ours.search(str(folder))
        left = found is not None and not _is_running(int(found[1]))
        if left and not any(point.is_relative_to(folder) for point in mounts()):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def place() -> Iterator[Path]:
    """Give an empty folder that every user may enter; what is mounted there is taken away."""
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    folder.chmod(0o755)
    point = folder / "mount"
    point.mkdir()
    try:
        yield point
    finally:
        if point in mounts():
            take_away(point)
        if point not in mounts():
            shutil.rmtree(folder)


def tool(name: str) -> str:
    """Give a program that `make posix-suites` installs; skip the test without it."""
    program = TOOLS / name
    if not program.exists():
        pytest.skip(f"needs {name} ({program.relative_to(ROOT)}: `make posix-suites`)")
    return str(program)


def code_of(call: object, *arguments: object, **named: object) -> str:
    """Give the name of the errno that a call fails with; "" if it does not fail."""
    assert callable(call)
    try:
        call(*arguments, **named)
    except OSError as error:
        return errno.errorcode[error.errno or 0].replace("ENOTSUP", "EOPNOTSUPP")
    return ""


def _checked(code: int) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def rename(old: Path, new: Path, flags: int) -> None:
    """Call `renameat2`, which Python has not."""
    _checked(_libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags))


def allocate(fd: int, mode: int, offset: int, nbytes: int) -> None:
    """Call `fallocate`, which Python has not."""
    wide = ctypes.c_int64
    _checked(_libc.fallocate64(fd, mode, wide(offset), wide(nbytes)))


def names(folder: Path) -> list[str]:
    """Give the names in a folder, in order."""
    return sorted(path.name for path in folder.iterdir())


def begin(script: str, *arguments: object, knows: bool = False) -> subprocess.Popen[str]:
    """Begin a Python program, which knows nothing of Engram, if nothing else is said."""
    return subprocess.Popen(
        [sys.executable, *([] if knows else ["-I"]), "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str], patience: float = PATIENCE) -> str:
    """Give what a program has said that ended well."""
    try:
        said, _ = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        said = f"it hangs: {process.communicate()[0]}"
    assert process.returncode == 0, said
    return said


LINES = int(os.environ.get("ENGRAM_LINES", "4000"))
"""So many lines each of two processes appends: 200,000 where it is done at full size."""


def all_ended(*processes: subprocess.Popen[str], patience: float = PATIENCE) -> list[str]:
    """Give what each of some programs has said; if one fails, the others are killed."""
    try:
        return [ended(process, patience) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


WHO = ("one", "two")
APPENDER = """
import os, sys
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
for n in range(count):
    line = b"%s %07d\\n" % (name.encode(), n)
    assert os.write(fd, line) == len(line)
os.close(fd)
"""
INSIDE = """
import sys, engram
pool, name, count = engram.open(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with pool.open_file("log", "ab") as file:
    for n in range(count):
        line = b"%s %07d\\n" % (name.encode(), n)
        assert file.write(line) == len(line)
"""


def append(paths: tuple[Path, Path], count: int, patience: float = PATIENCE) -> None:
    """Have two processes append numbered lines, each by its path."""
    writers = [begin(APPENDER, path, name, count) for path, name in zip(paths, WHO, strict=True)]
    all_ended(*writers, patience=patience)


def check_appended(data: bytes, count: int) -> None:
    """See that no line is lost, torn or doubled, and each one's lines are in order."""
    lines = data.splitlines()
    assert len(lines) == len(WHO) * count
    for name in WHO:
        mine = [line for line in lines if line.startswith(name.encode())]
        assert mine == [b"%s %07d" % (name.encode(), n) for n in range(count)]
