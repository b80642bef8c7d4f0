"""A program that does with files what it is told, and says what comes of it.

    python front_worker.py SOCKET TOP [whole]

It knows nothing of Engram, and calls the C library as any program does. Each line that it gets is
a command in JSON, each that it gives the outcome: `{"ok": …}` or `{"no": "ENOENT"}`. Bytes are
text of Latin-1. With `whole`, `flock` is a lock of all bytes that its description has: on a file
system where the two kinds do not meet, that is what NFS makes of it, and a pool.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import mmap
import os
import socket
import stat
import struct
import sys
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
LONG_AGO = 10**18
"""Nanoseconds: a time before this one was set by somebody."""
LOCKS = {"r": fcntl.F_RDLCK, "w": fcntl.F_WRLCK, "u": fcntl.F_UNLCK}
FLOCKS = {"r": fcntl.LOCK_SH, "w": fcntl.LOCK_EX, "u": fcntl.LOCK_UN}
KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symlink"}


def told(about: os.stat_result) -> dict[str, Any]:
    """Give what is alike on all file systems, and the number, which is not."""
    kind = KINDS[stat.S_IFMT(about.st_mode)]
    when = about.st_mtime_ns
    return {
        "ino": about.st_ino,
        "kind": kind,
        "mode": stat.S_IMODE(about.st_mode),
        "nlink": about.st_nlink,
        "size": None if kind == "folder" else about.st_size,
        "mtime": when if when < LONG_AGO else None,
    }


def digest(data: bytes) -> str:
    return f"{len(data)} {hashlib.sha256(data).hexdigest()[:16]}"


def checked(code: int) -> int:
    if code < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return code


class Worker:
    """Its open files and maps, by the numbers that it is told."""

    def __init__(self, address: str, top: str, whole: bool) -> None:
        self.address, self.top, self.whole = address, top, whole
        self.base, self.line = top, -1
        self.fds: dict[int, int] = {}
        self.maps: dict[int, mmap.mmap] = {}
        self.held: dict[int, int] = {}

    def at(self, path: str) -> str:
        """Give a path below the folder of this example, or from the working folder."""
        return path if path.startswith("./") else f"{self.base}/{path}"

    # Opening

    def begin(self, name: str) -> None:
        """Go to the folder of an example."""
        self.base = f"{self.top}/{name}"
        os.chdir(self.base)

    def new(self, name: str) -> None:
        """Make the folder of an example."""
        os.mkdir(f"{self.top}/{name}", 0o755)

    def finish(self) -> None:
        """Close all that is open."""
        os.chdir("/")
        for number in list(self.maps):
            self.unmap(number)
        for handle in list(self.held):
            self.let_go(handle)
        for handle in list(self.fds):
            self.close(handle)

    def open(self, handle: int, path: str, flags: int, mode: int, folder: int | None) -> None:
        if folder is None:
            self.fds[handle] = os.open(self.at(path), flags, mode)
        else:
            self.fds[handle] = os.open(path, flags, mode, dir_fd=self.fds[folder])

    def close(self, handle: int) -> None:
        os.close(self.fds.pop(handle))

    def fork(self) -> None:
        """Have a child with all that is open, which is told what to do by a line of its own."""
        if os.fork() == 0:
            os.close(self.line)
            serve(self)

    def end(self) -> None:
        os._exit(0)

    def reap(self) -> int:
        return os.wait()[1]

    def chdir(self, path: str) -> None:
        os.chdir(self.at(path))

    # Bytes

    def read(self, handle: int, count: int) -> str:
        return os.read(self.fds[handle], count).decode("latin-1")

    def write(self, handle: int, data: str) -> int:
        return os.write(self.fds[handle], data.encode("latin-1"))

    def seek(self, handle: int, offset: int, whence: int) -> int:
        return os.lseek(self.fds[handle], offset, whence)

    def read_at(self, handle: int, offset: int, count: int) -> str:
        return os.pread(self.fds[handle], count, offset).decode("latin-1")

    def write_at(self, handle: int, offset: int, data: str) -> int:
        return os.pwrite(self.fds[handle], data.encode("latin-1"), offset)

    def cut(self, handle: int, size: int) -> None:
        os.ftruncate(self.fds[handle], size)

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self.at(path), size)

    def allocate(self, handle: int, mode: int, offset: int, nbytes: int) -> None:
        wide = ctypes.c_int64
        checked(libc.fallocate64(self.fds[handle], mode, wide(offset), wide(nbytes)))

    def copy(self, source: int, target: int, count: int, offset: int, to: int) -> int:
        return os.copy_file_range(self.fds[source], self.fds[target], count, offset, to)

    def sync(self, handle: int) -> None:
        os.fsync(self.fds[handle])

    # Maps

    def map(self, number: int, handle: int, size: int, write: bool) -> None:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
        self.maps[number] = mmap.mmap(self.fds[handle], size, mmap.MAP_SHARED, protection)

    def peek(self, number: int, count: int) -> str:
        return digest(self.maps[number][:count])

    def poke(self, number: int, offset: int, data: str) -> None:
        self.maps[number][offset : offset + len(data)] = data.encode("latin-1")

    def unmap(self, number: int) -> None:
        self.maps.pop(number).close()

    # Names

    def rename(self, old: str, new: str, flags: int) -> None:
        names = os.fsencode(self.at(old)), os.fsencode(self.at(new))
        checked(libc.renameat2(-100, names[0], -100, names[1], flags))

    def link(self, old: str, new: str) -> None:
        os.link(self.at(old), self.at(new), follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, self.at(path))

    def unlink(self, path: str) -> None:
        os.unlink(self.at(path))

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self.at(path), mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(self.at(path))

    def clear(self, path: str) -> None:
        """Remove a tree."""
        with os.scandir(self.at(path)) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_folder in found:
            (self.clear if is_folder else self.unlink)(f"{path}/{name}")
        os.rmdir(self.at(path))

    def empty(self) -> None:
        """Empty the place: an example may have left something beside its folder."""
        self.base = self.top
        for name in os.listdir(self.top):
            path = self.at(name)
            is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
            (self.clear if is_folder else self.unlink)(name)

    def put(self, path: str, data: str, mode: int) -> None:
        """Have a new file take the name, as it is when something is stored."""
        fd = os.open(f"{self.top}/new", os.O_WRONLY | os.O_CREAT, mode)
        os.write(fd, data.encode("latin-1"))
        os.close(fd)
        os.rename(f"{self.top}/new", self.at(path))

    # What is known

    def stat(self, path: str, follow: bool) -> dict[str, Any]:
        return told(os.stat(self.at(path), follow_symlinks=follow))

    def fstat(self, handle: int) -> dict[str, Any]:
        return told(os.fstat(self.fds[handle]))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.at(path), mode)

    def fchmod(self, handle: int, mode: int) -> None:
        os.fchmod(self.fds[handle], mode)

    def utime(self, path: str, when: int, follow: bool) -> None:
        os.utime(self.at(path), ns=(when, when), follow_symlinks=follow)

    def set_attribute(self, path: str, key: str, value: str, flags: int) -> None:
        os.setxattr(self.at(path), f"user.{key}", value.encode(), flags)

    def drop_attribute(self, path: str, key: str) -> None:
        os.removexattr(self.at(path), f"user.{key}")

    def contents(self, handle: int) -> str:
        size = os.fstat(self.fds[handle]).st_size
        return digest(os.pread(self.fds[handle], size + 1, 0))

    def names(self, handle: int) -> list[str]:
        return sorted(os.listdir(self.fds[handle]))

    def survey(self, path: str = ".") -> dict[str, Any]:
        """Give all that is known of all that there is."""
        found = {}
        with os.scandir(f"{self.base}/{path}") as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            name, full = f"{path}/{entry.name}", f"{self.base}/{path}/{entry.name}"
            about = told(os.lstat(full))
            assert about["ino"] == entry.inode(), full
            assert about["kind"] == kind_of(entry), full
            if about["kind"] == "symlink":
                about["target"] = os.readlink(full)
            else:
                keys = sorted(os.listxattr(full))
                about["attributes"] = {
                    key.removeprefix("user."): os.getxattr(full, key).decode()
                    for key in keys
                    if not key.startswith("user.engram.")
                }
            if about["kind"] == "file":
                with open(full, "rb") as file:
                    about["contents"] = digest(file.read())
            found[name] = about
            if about["kind"] == "folder":
                found |= self.survey(name)
        return found

    # Locks

    def lock(self, handle: int, kind: str, mode: str, start: int, count: int) -> None:
        fd = self.fds[handle]
        if kind == "flock" and not self.whole:
            fcntl.flock(fd, FLOCKS[mode] | fcntl.LOCK_NB)
            return
        by_process = kind == "process"
        if kind == "flock":
            start, count = 0, 0
        command = fcntl.F_SETLK if by_process else fcntl.F_OFD_SETLK
        fcntl.fcntl(fd, command, struct.pack("hhqqi4x", LOCKS[mode], 0, start, count, 0))

    def hold(self, handle: int, mode: str) -> None:
        """Lock all of a file for a description of its own, as Python's `file.lock()` does."""
        fd = os.open(f"/proc/self/fd/{self.fds[handle]}", os.O_RDWR)
        try:
            words = struct.pack("hhqqi4x", LOCKS[mode], 0, 0, 0, 0)
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, words)
        except OSError:
            os.close(fd)
            raise
        self.held[handle] = fd

    def let_go(self, handle: int) -> None:
        os.close(self.held.pop(handle))


def kind_of(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "symlink"
    return "folder" if entry.is_dir(follow_symlinks=False) else "file"


def serve(worker: Worker) -> None:
    """Do what is told until nobody tells anything."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(worker.address)
        worker.line = connection.fileno()
        lines = connection.makefile("rwb", buffering=-1)
        for line in lines:
            name, *arguments = json.loads(line)
            try:
                said = {"ok": getattr(worker, name)(*arguments)}
            except OSError as error:
                code = errno.errorcode[error.errno or 0]
                said = {"no": code.replace("ENOTSUP", "EOPNOTSUPP")}
            except Exception as error:  # noqa: BLE001 - a test shows it
                said = {"broken": repr(error)}
            lines.write(json.dumps(said).encode() + b"\n")
            lines.flush()
    os._exit(0)


if __name__ == "__main__":
    os.umask(0)
    serve(Worker(sys.argv[1], sys.argv[2], len(sys.argv) > 3))
